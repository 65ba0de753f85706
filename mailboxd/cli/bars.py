"""Progress on standard error, if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mailboxd.cli.text import columns, fit, meter, pad, say
from mailboxd.host.progress import Progress, silent

_STEPS = 200
_UNKNOWN_STEP = 50
_BAR = 30


@contextmanager
def bars() -> Iterator[Progress]:
    """A callback for long work (`mailboxd.host.progress`). The bar disappears at the end."""
    if not sys.stderr.isatty():
        yield silent
        return

    def tell(what: str, done: int, total: int) -> None:
        if done and done != total and done % _step(total):
            return
        drawn = f"{meter(done, total, _BAR)} {done:,} of {total:,}" if total else f"{done:,}"
        _replace_line(f"{what:<10} {drawn}")

    try:
        yield tell
    finally:
        _replace_line("")


def _step(total: int) -> int:
    """Update the bar about 200 times in all, not at every call."""
    return max(total // _STEPS, 1) if total else _UNKNOWN_STEP


def checking(name: str) -> None:
    """Show on a terminal what is being checked, on one line; an empty name clears it."""
    if sys.stderr.isatty():
        _replace_line(f"checking {name} ..." if name else "")


def _replace_line(text: str) -> None:
    # by spaces: with NO_COLOR the code that clears a line would be taken out
    width = columns() - 1
    say(f"\r{pad(fit(text, width), width)}\r", err=True, newline=False)
