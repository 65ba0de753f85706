"""A timeline as lines of text: a line per task. Each status has its own character, so nothing depends on color."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mailboxd.cli.text import COLORS, colored, fit, lasted, pad, width
from mailboxd.core.times import to_text
from mailboxd.core.vocabulary import State
from mailboxd.formats.drawing.gantt import Bar, Crowd, Window
from mailboxd.formats.drawing.style import attempt_style

MARKS = {"succeeded": "█", "running": "▒", "failed": "x", "unknown": "?", "aborted": "-"}
MARKS |= {str(State.NEEDS_YOU): "‖", str(State.WAITING): "·"}
_LEGEND = "█ succeeded  ▒ running  x failed  ? unknown  - aborted  · waiting  ‖ needs you"
_LEVELS = " ▁▂▃▄▅▆▇█"
"""A crowd: how many attempts began."""
_TAIL = 11
"""Columns after the bars, for duration and number of attempts."""


def timeline_lines(rows: Sequence[Bar | Crowd], window: Window, now: float, room: int) -> Iterator[str]:
    """The rows of `folded_timeline` on lines of at most `room` (40 or more) columns; what lasts ends at `now`."""
    start, span = window[0], max(window[1] - window[0], 0.001)
    yield fit(f"{_clock(start)} to {_clock(window[1])}, {lasted(span)}", room)
    size = min(max((width(row.row) for row in rows), default=0), room // 3)
    chart = room - size - 2 - _TAIL
    for name, some in groupby(rows, key=lambda row: row.row):
        bars = list(some)
        cells = [" "] * chart
        for bar in bars:
            _fill(cells, bar, start, span, now)
        shown = "".join(colored("".join(run), _color(mark)) for mark, run in groupby(cells))
        yield f"{pad(fit(name, size), size)} {shown} {_tail(bars, now)}".rstrip()
    yield fit(_LEGEND, room)


def _fill(cells: list[str], bar: Bar | Crowd, start: float, span: float, now: float) -> None:
    size = len(cells)
    if isinstance(bar, Crowd):
        parts, most = len(bar.began), max(bar.began) or 1
        for at in range(size):
            first = at * parts // size
            began = max(bar.began[first : max((at + 1) * parts // size, first + 1)])
            cells[at] = _LEVELS[-(-began * (len(_LEVELS) - 1) // most)]
        return
    end = now if bar.end is None else bar.end
    first, last = (min(max(int((at - start) / span * size), 0), size - 1) for at in (bar.start, end))
    cells[first : last + 1] = MARKS[bar.status] * (last + 1 - first)


def _color(mark: str) -> str | None:
    status = next((status for status, own in MARKS.items() if own == mark), "")
    shown = attempt_style(status)
    return COLORS.get(shown.tone)


def _tail(bars: Sequence[Bar | Crowd], now: float) -> str:
    """The total duration of the attempts, and their number if not one."""
    attempts = [bar for bar in bars if isinstance(bar, Bar) and bar.status not in (State.NEEDS_YOU, State.WAITING)]
    seconds = sum((now if bar.end is None else bar.end) - bar.start for bar in attempts)
    count = f" ×{len(attempts)}" if len(attempts) > 1 else ""
    return f"{lasted(seconds)}{count}"[:_TAIL] if attempts else ""


def _clock(at: float) -> str:
    return to_text(at)[11:19]
