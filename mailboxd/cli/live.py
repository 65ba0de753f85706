"""Live output: a view redrawn until q or Ctrl-C, progress bars, and following the event log."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mailboxd.cli.text import columns, rows, say, stamp, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.progress import Progress, silent

if TYPE_CHECKING:
    from mailboxd.cli.session import Session
    from mailboxd.store.reports import Report


REDRAW_INTERVAL = 0.5
"""Seconds between two redraws, which also update durations."""
_QUIT = {b"q", b"Q", b"\x03", b"\x04"}

View = Callable[[int, int], Sequence[str]]
"""Returns the styled lines of the view for so many columns and rows. The last line says how to quit."""


def is_interactive() -> bool:
    """Whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show(view: View, is_over: Callable[[], bool], interval: float = REDRAW_INTERVAL) -> None:
    """Redraw the view on the alternate screen until it ends; the last view stays on the terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def drawn() -> Text:
        return Text("\n", no_wrap=True, overflow="crop").join(Text.from_ansi(line) for line in view(columns(), rows()))

    with suppress(KeyboardInterrupt), _keys() as pressed:
        console = Console(highlight=False)
        with Live(drawn(), console=console, screen=True, auto_refresh=False) as live:
            while not is_over() and not pressed(interval):
                live.update(drawn(), refresh=True)
    for line in view(columns(), rows())[:-1]:
        if line:
            say(line)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Read keys unbuffered and without echo. The function waits so many seconds; True if a quit key was pressed."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def pressed(seconds: float) -> bool:
        readable, _, _ = select.select([fd], (), (), seconds)
        if not readable:
            return False
        pressed_keys = os.read(fd, 64)
        return not pressed_keys or any(key in pressed_keys for key in _QUIT)

    try:
        tty.setcbreak(fd)
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


# Progress bars on standard error, if it is a terminal

_STEPS = 200
_UNKNOWN_STEP = 50


@contextmanager
def bars() -> Iterator[Progress]:
    """A callback for long work (`mailboxd.progress`). The bar disappears at the end."""
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
                for task in shown.task_ids:  # one bar at a time: the previous step is complete
                    shown.update(task, visible=False)
                known[what] = (shown.add_task(f"{what:<10}", total=total or None, completed=done), total)
                return
            shown.update(known[what][0], total=total or None, completed=done)
            known[what] = (known[what][0], total)

        yield tell


def _step(total: int) -> int:
    """Update the bar only every so many calls, about 200 times in all."""
    return max(total // _STEPS, 1) if total else _UNKNOWN_STEP


# Following the event log

POLL_INTERVAL = 0.25
"""Seconds between two polls, each an indexed query of 20 µs."""


def print_event(event: dict[str, Any]) -> None:
    """Print an event on one line."""
    by = "" if event["actor"] == "mailboxd" else f"  [{event['actor']}]"
    say(f"{event['seq']:>6}  {stamp(event['at'])}  {for_terminal(event['text'] + by)}")


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
    brief: bool = True,
) -> None:
    """Pass every event after number `after`, then each new one, to `tell`, until Ctrl-C or `is_over`."""
    try:
        while True:
            over = is_over()
            last = report.last_event()
            if last > after:
                for event in report.events(task, tree=tree, after=after, brief=brief and not session.as_json):
                    say(to_json(event, indent=None)) if session.as_json else tell(event)
                    last = max(last, event["seq"])
                after = last
            if over:
                return
            session.pause(POLL_INTERVAL)
    except KeyboardInterrupt:
        return
