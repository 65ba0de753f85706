"""A picture on the terminal that is drawn again while things happen, until `q`, Ctrl-C, or its own end."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from mailboxd.cli.text import columns, rows, say

INTERVAL = 0.5
"""Seconds between two pictures, at most: what runs shows its age."""
_QUIT = {b"q", b"Q", b"\x03", b"\x04"}

Picture = Callable[[int, int], Sequence[str]]
"""The lines of a picture, for so many columns and rows; each is styled for a terminal, and fits. The last says how to
end it."""


def is_watched() -> bool:
    """Whether a person looks on, who can also press a key."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show(picture: Picture, is_over: Callable[[], bool], interval: float = INTERVAL) -> None:
    """Draw the picture again and again on a screen of its own; the last one stays on the terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def drawn() -> Text:
        return Text("\n", no_wrap=True, overflow="crop").join(
            Text.from_ansi(line) for line in picture(columns(), rows())
        )

    with suppress(KeyboardInterrupt), _keys() as pressed:
        console = Console(highlight=False)
        with Live(drawn(), console=console, screen=True, auto_refresh=False) as live:
            while not is_over() and not pressed(interval):
                live.update(drawn(), refresh=True)
    for line in picture(columns(), rows())[:-1]:
        if line:
            say(line)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Keys as they are pressed, not shown. The function waits so many seconds; True if one of them means the end."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def pressed(seconds: float) -> bool:
        readable, _, _ = select.select([fd], (), (), seconds)
        if not readable:
            return False
        said = os.read(fd, 64)
        return not said or any(key in said for key in _QUIT)

    try:
        tty.setcbreak(fd)
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
