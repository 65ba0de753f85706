"""Terminal output: sanitized text, states, tables, widths, durations.

No information depends on color alone; NO_COLOR and redirected output disable it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

import click

from mailboxd.core.sanitize import for_terminal
from mailboxd.core.times import moment, to_epoch
from mailboxd.core.vocabulary import state_words
from mailboxd.formats.drawing import style
from mailboxd.formats.drawing.style import Tone, style_of

T = TypeVar("T")
COLORS = {Tone.BUSY: "blue", Tone.ASK: "yellow", Tone.GOOD: "green", Tone.BAD: "red"}
"""The color of each tone; the others have none."""


def escape_unencodable(*streams: TextIO) -> None:
    """Escape characters that the encoding of a stream lacks, instead of failing."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Unwritable(OSError):
    """A standard stream cannot be written, for example because the disk is full. Not raised for a closed pipe."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(error.errno, error.strerror) from error


def say(text: str | bytes = "", *, err: bool = False, newline: bool = True) -> None:
    """Print a text. Raises Unwritable."""
    with _writing():
        click.echo(text, err=err, nl=newline, color=False if os.environ.get("NO_COLOR") else None)


def flush() -> None:
    """Flush standard output. Raises Unwritable."""
    with _writing():
        sys.stdout.flush()


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON in ASCII, so that no control or bidi character reaches a terminal."""
    return json.dumps(value, indent=indent, ensure_ascii=True)


def state(row: Mapping[str, Any]) -> str:
    """`✓ done`, in color: the state of a task with `phase` and `need`."""
    shown = style_of(state_words(row["phase"], row["need"]))
    return colored(f"{shown.symbol} {shown.word}", COLORS.get(shown.tone))


def colored(text: str, color: str | None) -> str:
    return click.style(text, fg=color) if color else text


def counted(states: Mapping[str, int]) -> str:
    """`2 needs you, 3 done, 1 failed`: how many tasks there are in each state, and of those that ended, how."""
    return ", ".join(f"{count} {state.removeprefix('done: ')}" for state, count in states.items())


def columns() -> int:
    """The width of the terminal; 80 without one, at least 40."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def room() -> int:
    """The columns of a line of output: those of the terminal; without one (or COLUMNS) nothing is cut."""
    return columns() if sys.stdout.isatty() or os.environ.get("COLUMNS") else _UNCUT


_UNCUT = 100_000


def width(text: str) -> int:
    """The columns of a text; colors have none."""
    return style.width(click.unstyle(text))


def fit(text: str, room: int) -> str:
    """Sanitize and cut a text to one line of at most `room` columns, with an ellipsis."""
    return style.fit(for_terminal(text), room)


def pad(text: str, room: int) -> str:
    return text + " " * (room - width(text))


_CUT_TO = 16
"""Columns that are left of a column which is cut first."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], indent: int = 0, cut: int | None = None) -> Iterable[str]:
    """Lines of aligned columns; the last column is cut to the width of the screen, and before it the column `cut`."""
    body = [list(row) for row in rows]
    widths = [max(map(width, column)) for column in zip(head, *body, strict=True)]
    if cut is not None:
        over = indent + sum(widths) + 2 * (len(widths) - 1) - room()
        widths[cut] = min(widths[cut], max(widths[cut] - over, _CUT_TO))
    left = room() - indent - sum(widths[:-1]) - 2 * (len(widths) - 1)
    for row in ([*head], *body):
        cells = list(row[:-1])
        if cut is not None:
            cells[cut] = fit(cells[cut], widths[cut])
        cells = [pad(cell, size) for cell, size in zip(cells, widths[:-1], strict=True)]
        yield " " * indent + "  ".join([*cells, fit(row[-1], max(left, 10))]).rstrip()


def meter(done: int, total: int, room: int = 10) -> str:
    """A progress bar of `room` columns, `████░░░░░░`; full only when everything is done."""
    filled = room if done >= total else min(done * room // max(total, 1), room - 1)
    return "█" * filled + "░" * (room - filled)


def lasted(seconds: float) -> str:
    """A duration in at most seven columns: `0.4 s`, `35 s`, `3m20s`, `2h05m`, `4d01h`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, below, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02}{smaller}"
    raise AssertionError(f"{whole} s is shorter than a minute")


def when(at: str, now: str) -> str:
    """How far a time is from now: `3m20s ago`, `in 2h05m`."""
    seconds = to_epoch(at) - to_epoch(now)
    return f"in {lasted(seconds)}" if seconds > 0 else f"{lasted(abs(seconds))} ago"


def dated(at: str, now: str) -> str:
    """A time from now and on the calendar: `3m20s ago (21 Nov 02:07 UTC)`."""
    return f"{when(at, now)} ({moment(at, now)})"


def stamp(at: str) -> str:
    """The time of a line of a log, to the second; --json has the exact one."""
    return f"{at[:10]} {at[11:19]}Z"


def folded(text: str, indent: str) -> str:
    """Sanitize and indent a text of several lines."""
    return "\n".join(f"{indent}{line}".rstrip() for line in for_terminal(text).split("\n"))


def shortened(text: str, indent: str, room: int, most: int, rest: str) -> Iterator[str]:
    """The lines of a foreign text, sanitized, indented and wrapped to `room` columns.

    Of more than `most` lines the first, and a count of the others with `rest`: how to see them.
    """
    wide = max(room - width(indent), _NARROWEST)
    lines = [part for line in for_terminal(text).split("\n") for part in textwrap.wrap(line, wide) or [""]]
    shown = lines if len(lines) <= most else lines[: most - 1]
    yield from (f"{indent}{line}".rstrip() for line in shown)
    if len(lines) > len(shown):
        yield f"{indent}… {len(lines) - len(shown):,} more lines: {rest}"


_NARROWEST = 20


MOST_ENTRIES = 50
"""Entries of a list that are printed unless all are asked for; --json is always complete."""


def folded_list(
    entries: Sequence[T],
    lines: Callable[[Sequence[T]], Iterable[str]],
    everything: bool,
    how: str,
    total: int | None = None,
) -> Iterator[str]:
    """The lines of a list; of a long one those of its first entries, the number of the others, and how to see all.

    `total`: how many there are in all, if these entries are only the first.
    """
    shown, total = entries if everything else entries[:MOST_ENTRIES], len(entries) if total is None else total
    yield from lines(shown)
    if len(shown) < total:
        yield f"… and {total - len(shown):,} more: `{how}`"


def entries(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each name with a text that is not empty."""
    yield from (f"  {pad(name, 12)} {text}" for name, text in pairs if text)


def sections(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A heading and the sanitized text below it, for each text that is not blank."""
    yield from (f"\n{heading}\n{folded(text.strip(), '  ')}" for heading, text in pairs if text.strip())
