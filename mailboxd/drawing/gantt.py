"""A timeline as SVG: one line per task, one bar per attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mailboxd.core.sanitize import for_drawing
from mailboxd.core.times import to_text
from mailboxd.drawing.graph import ATTEMPT_STYLES, Shape, style_of
from mailboxd.drawing.svg import drawing, fit, outline, tag

_NAMES, _PLOT, _ROW, _TOP, _MARGIN = 200.0, 720.0, 26.0, 30.0, 12.0
_NAME = 27
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
_TICKS = 7
_MIN_SHAPED = 26.0
"""Pixels; shorter bars are plain boxes."""
_MIN_WIDTH = 4.0
"""Pixels of the shortest bar, so that it stays visible."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt, or a time in a phase (`status`). Times are seconds since 1970; `end` is None while it lasts.

    Consecutive bars with the same `row` share a line.
    """

    row: str
    start: float
    end: float | None
    status: str
    note: str = ""
    href: str = ""


def gantt_svg(bars: Sequence[Bar], now: float, label: str = "Timeline", *, standalone: bool = True) -> str:
    """Draw bars; unfinished ones end at `now`. `standalone` as in `graph_svg`."""
    rows = [list(group) for _, group in groupby(bars, key=lambda bar: bar.row)]
    first = min((bar.start for bar in bars), default=now)
    last = max((max(bar.end if bar.end is not None else now, bar.start) for bar in bars), default=now)
    span = max(last - first, 1.0)
    height = _TOP + len(rows) * _ROW + _MARGIN
    content = _grid(first, span, height)
    if any(bar.end is None for bar in bars):
        x = _x(min(max(now, first), first + span), first, span)
        content += tag("line", cls="now", x1=x, x2=x, y1=_TOP - 6, y2=height - _MARGIN)
    for number, row in enumerate(rows):
        y = _TOP + number * _ROW
        content += tag("text", for_drawing(fit(row[0].row, _NAME)), x=_MARGIN, y=y + 17)
        content += "".join(_bar(bar, y, first, span, now) for bar in row)
    return drawing(_NAMES + _PLOT + 2 * _MARGIN, height, label, content, standalone=standalone)


def _x(at: float, first: float, span: float) -> float:
    return _NAMES + (at - first) / span * _PLOT


def _bar(bar: Bar, y: float, first: float, span: float, now: float) -> str:
    style = ATTEMPT_STYLES.get(bar.status) or style_of(bar.status)
    end = max(bar.end if bar.end is not None else now, bar.start)
    start, stop = _x(bar.start, first, span), _x(end, first, span)
    width = max(stop - start, _MIN_WIDTH)
    took = f"{duration(end - bar.start)}{'' if bar.end is not None else ' so far'}"
    title = " · ".join(filter(None, [bar.row, style.word, took, bar.note]))
    shape = style.shape if width >= _MIN_SHAPED else Shape.BOX
    content = tag("title", for_drawing(title)) + outline(shape, start, y + 4, width, _ROW - 8)
    word = style.symbol if width < 70 else fit(f"{style.symbol} {style.word} {took}", int(width / 7))
    if width >= 18:
        content += tag("text", for_drawing(word), cls="soft", x=start + 9, y=y + 17)
    group = tag("g", content, cls=f"bar {style.tone}")
    return tag("a", group, href=bar.href) if bar.href else group


def _grid(first: float, span: float, height: float) -> str:
    step = next((step for step in _STEPS if span / step <= _TICKS), None) or 86_400 * int(span / 86_400 / _TICKS + 1)
    parts, at, before = [], (first // step + 1) * step, to_text(first)[:10]
    parts.append(tag("text", before, cls="soft", x=_MARGIN, y=16.0))
    while at <= first + span:
        x, text_at = _x(at, first, span), to_text(at)
        day = text_at[:10]
        text = text_at[11:19] if step < 60 else text_at[11:16]
        if day != before:
            text, before = (day if step >= 86_400 else f"{day[5:]} {text}"), day
        parts.append(tag("line", cls="grid", x1=x, x2=x, y1=_TOP - 6, y2=height - _MARGIN))
        parts.append(tag("text", text, cls="soft", x=x + 3, y=16.0))
        at += step
    return "".join(parts)


def duration(seconds: float) -> str:
    """`1.5 s`, `4 min 10 s`, `3 h 20 min`, `5 d 2 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"
