"""Attempts on a line of time, as text: pure, from what `store.course` says.

One row per task. Each kind of end has a character of its own, so that nothing depends on colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from mailboxd.cli.text import PHASES, fit, lasted, pad, width
from mailboxd.core.times import to_epoch

MARKS = {"succeeded": "█", "running": "▒", "failed": "x", "unknown": "?", "aborted": "-"}
"""How an attempt of each status is drawn; of several that fall on one column the latest in this order is seen."""
_COLOURS = {"█": "green", "▒": "blue", "x": "red", "?": "yellow"}
_WAITS = "·"
_LEGEND = "█ succeeded  ▒ running  x failed  ? unknown  - aborted  · open, no attempt"
_MOST_NAME = 30
_LAST = 11
"""Columns behind the bars: how long, how many attempts."""


def lines(found: dict[str, Any], now: str, room: int) -> Iterator[str]:
    """The chart, at most `room` columns wide (40 or more). `now` (ISO-8601 UTC) is where open bars end."""
    began, ended = to_epoch(found["began"]), to_epoch(found["ended"] or now)
    names = [f"{'  ' * min(row['depth'], 8)}{row['key'] if row['depth'] else row['task']}" for row in found["rows"]]
    names = [fit_left(name, _MOST_NAME) for name in names]
    size = min(max(map(width, names)), max(room // 3, 12))
    chart = room - size - 5 - _LAST
    span = max(ended - began, 0.001)
    until = "now" if found["ended"] is None else _clock(found["ended"])
    yield fit(f"{found['task']}: {found['began'][:10]} {_clock(found['began'])} to {until}, {lasted(span)}", room)
    for name, row in zip(names, found["rows"], strict=True):
        symbol, colour = PHASES[row["phase"]]
        shown = click.style(symbol, fg=colour) if colour else symbol
        cells = _cells(row, began, span, ended, chart)
        yield f"{shown} {pad(fit_left(name, size), size)}  {_coloured(cells)} {_tail(row, now)}".rstrip()
    yield fit(_LEGEND, room)


def fit_left(name: str, room: int) -> str:
    """`name` in at most `room` columns, with the indentation that it begins with."""
    text = name.lstrip(" ")
    indent = min(len(name) - len(text), max(room - min(width(text), 4), 0))
    return " " * indent + fit(text, room - indent)


def _cells(row: dict[str, Any], began: float, span: float, ended: float, size: int) -> str:
    """The bar of one task: `size` characters from `began` to `ended`, in seconds since 1970."""

    def column(at: float) -> int:
        return min(max(int((at - began) / span * size), 0), size - 1)

    cells = [" "] * size
    for at in range(column(to_epoch(row["created_at"])), column(_end(row["completed_at"], ended)) + 1):
        cells[at] = _WAITS
    order = [_WAITS, *MARKS.values()]
    for attempt in row["attempts"]:
        mark = MARKS[attempt["status"]]
        first, last = column(to_epoch(attempt["started_at"])), column(_end(attempt["finished_at"], ended))
        for at in range(first, last + 1):
            cells[at] = max(cells[at], mark, key=lambda one: order.index(one) if one in order else -1)
    return "".join(cells)


def _end(at: str | None, ended: float) -> float:
    return ended if at is None else to_epoch(at)


def _coloured(cells: str) -> str:
    """Neighbours of one kind in their colour."""
    shown, start = [], 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or cells[end] != cells[start]:
            colour = _COLOURS.get(cells[start])
            piece = cells[start:end]
            shown.append(click.style(piece, fg=colour) if colour else piece)
            start = end
    return "".join(shown)


def _tail(row: dict[str, Any], now: str) -> str:
    """How long its attempts took in all, and how many there were if it is not one."""
    attempts = row["attempts"]
    if not attempts:
        return ""
    seconds = sum(to_epoch(a["finished_at"] or now) - to_epoch(a["started_at"]) for a in attempts)
    count = f" ×{len(attempts)}" if len(attempts) > 1 else ""
    return fit(f"{lasted(seconds)}{count}", _LAST)


def _clock(at: str) -> str:
    return at[11:19]
