"""A picture on the terminal that is drawn again while things happen, until `q`, Ctrl-C, or its own end."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mailboxd.cli.text import columns, rows, say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.progress import Progress, silent

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.store.reports import Report


DRAW_INTERVAL = 0.5
"""Seconds between two pictures, at most: what runs shows its age."""
_QUIT = {b"q", b"Q", b"\x03", b"\x04"}

Picture = Callable[[int, int], Sequence[str]]
"""The lines of a picture, for so many columns and rows; each is styled for a terminal, and fits. The last says how to
end it."""


def is_watched() -> bool:
    """Whether a person looks on, who can also press a key."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show(picture: Picture, is_over: Callable[[], bool], interval: float = DRAW_INTERVAL) -> None:
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


# ---------------------------------------------------------------------------------------------------------------------
# Progress bars on standard error, where a person looks at it; nothing anywhere else.

_STEPS = 200
_UNKNOWN_STEP = 50


@contextmanager
def bars() -> Iterator[Progress]:
    """What long work is to call (`mailboxd.progress`). The bar is taken away at the end. NO_COLOR is honoured."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn(compact=True)
    with Bars(*columns, console=Console(stderr=True), transient=True) as shown:
        known = dict[str, tuple[TaskID, int]]()

        def tell(what: str, done: int, total: int) -> None:
            before = known.get(what)
            if before is not None and before[1] == total and done % _step(total) and done != total:
                return
            if before is None:
                for task in shown.task_ids:  # one after the other: what came before is over
                    shown.update(task, visible=False)
                known[what] = (shown.add_task(f"{what:<10}", total=total or None, completed=done), total)
                return
            shown.update(known[what][0], total=total or None, completed=done)
            known[what] = (known[what][0], total)

        yield tell


def _step(total: int) -> int:
    """So many calls are shown once: a bar has no more than 200 states that differ."""
    return max(total // _STEPS, 1) if total else _UNKNOWN_STEP


# ---------------------------------------------------------------------------------------------------------------------
# Looking at the event log again and again, for `watch`, `history --follow`, `logs --follow` and `send --wait`.

POLL_INTERVAL = 0.25
"""Seconds between two looks: an indexed query for one number, 20 µs."""


def print_event(event: dict[str, Any]) -> None:
    """An event as one line of a history."""
    by = "" if event["actor"] == "mailboxd" else f"  [{event['actor']}]"
    say(f"{event['seq']:>6}  {event['at']}  {for_terminal(event['text'] + by)}")


def never() -> bool:
    return False


def follow(
    session: Session,
    report: Report,
    tell: Callable[[dict[str, Any]], None],
    *,
    after: int,
    task: str | None = None,
    tree: bool = False,
    is_over: Callable[[], bool] = never,
) -> None:
    """Tell every event after number `after` and then each that happens, until Ctrl-C, which is a good end.

    Or until `is_over`: what had happened by then is told.
    """
    try:
        while True:
            over = is_over()
            last = report.last_event()
            if last > after:
                for event in report.events(task, tree=tree, after=after):
                    say(to_json(event, indent=None)) if session.as_json else tell(event)
                    last = max(last, event["seq"])
                after = last
            if over:
                return
            session.pause(POLL_INTERVAL)
    except KeyboardInterrupt:
        return
