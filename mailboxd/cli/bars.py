"""Progress on standard error, if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mailboxd.cli.text import columns, fit, say
from mailboxd.progress import Progress, silent

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

    parts = TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn(compact=True)
    with Bars(*parts, console=Console(stderr=True), transient=True) as shown:
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
    """Update the bar about 200 times in all, not at every call."""
    return max(total // _STEPS, 1) if total else _UNKNOWN_STEP


def checking(name: str) -> None:
    """Show on a terminal what is being checked, on one line; an empty name clears it."""
    if sys.stderr.isatty():
        text = fit(f"checking {name} ...", columns() - 1) if name else ""
        say(f"\r\x1b[K{text}", err=True, newline=False)
