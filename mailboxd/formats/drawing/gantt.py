"""A timeline as SVG: one line per task, one bar per attempt; a crowd of attempts is one line of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from mailboxd.core.sanitize import for_drawing
from mailboxd.core.times import to_text
from mailboxd.formats.drawing.style import Shape, attempt_style, fit
from mailboxd.formats.drawing.svg import drawing, outline, tag

_NAMES, _PLOT, _ROW, _TOP, _MARGIN = 200.0, 720.0, 26.0, 30.0, 12.0
_NAME, _LETTER = 22, 6.6
"""Characters of a name that fit before the plot, and pixels of one in a bar, in a wide font like DejaVu Sans."""
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


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many attempts on one line: how many began in each equal part of the window, and how many of these failed."""

    row: str
    began: Sequence[int]
    failed: Sequence[int]
    href: str = ""


Window = tuple[float, float]
"""The start and the end of the time that is drawn, in seconds since 1970."""


def gantt_svg(rows: Sequence[Bar | Crowd], now: float, window: Window, zoom: Callable[[Window], str]) -> str:
    """Draw what happened in the window; unfinished bars end at `now`.

    `zoom` gives the address of another window, for the marks of the axis. The page has the style sheet.
    """
    start, end = window
    inside = [row for row in rows if isinstance(row, Crowd) or (row.start <= end and _end(row, now) >= start)]
    lines = [list(group) for _, group in groupby(inside, key=lambda bar: bar.row)]
    scale = _Scale(start, max(end - start, 1.0))
    height = _TOP + len(lines) * _ROW + _MARGIN
    content = _grid(scale, height, zoom)
    if start <= now <= end and any(isinstance(bar, Bar) and bar.end is None for bar in inside):
        x = scale.x(now)
        content += tag("line", cls="now", x1=x, x2=x, y1=_TOP - 6, y2=height - _MARGIN)
    for number, line in enumerate(lines):
        y = _TOP + number * _ROW
        content += tag("text", for_drawing(fit(line[0].row, _NAME)), x=_MARGIN, y=y + 17)
        for row in line:
            content += _columns(row, y, scale) if isinstance(row, Crowd) else _bar(row, y, scale, now)
    return drawing(_NAMES + _PLOT + 2 * _MARGIN, height, "When attempts ran", content, standalone=False)


def _end(bar: Bar, now: float) -> float:
    return max(bar.end if bar.end is not None else now, bar.start)


@dataclass(frozen=True, slots=True)
class _Scale:
    first: float
    span: float

    def x(self, at: float) -> float:
        """The place of a time; one outside the window is moved to its edge."""
        return _NAMES + min(max((at - self.first) / self.span, 0.0), 1.0) * _PLOT


def _bar(bar: Bar, y: float, scale: _Scale, now: float) -> str:
    style = attempt_style(bar.status)
    end = _end(bar, now)
    start, stop = scale.x(bar.start), scale.x(end)
    width = max(stop - start, _MIN_WIDTH)
    took = f"{duration(end - bar.start)}{'' if bar.end is not None else ' so far'}"
    title = " · ".join(filter(None, [bar.row, style.word, took, bar.note]))
    shape = style.shape if width >= _MIN_SHAPED else Shape.BOX
    content = tag("title", for_drawing(title)) + outline(shape, start, y + 4, width, _ROW - 8)
    word = style.symbol if width < 90 else fit(f"{style.symbol} {style.word} {took}", int((width - 14) / _LETTER))
    if width >= 18:
        content += tag("text", for_drawing(word), cls="soft", x=start + 9, y=y + 17)
    group = tag("g", content, cls=f"bar {style.tone}")
    return tag("a", group, href=bar.href) if bar.href else group


def _columns(crowd: Crowd, y: float, scale: _Scale) -> str:
    """A column for each part, as high as attempts began in it; what failed is the upper end."""
    parts, most, width = "", max(crowd.began, default=0), _PLOT / max(len(crowd.began), 1)
    for number, (began, failed) in enumerate(zip(crowd.began, crowd.failed, strict=True)):
        if not began:
            continue
        x, room, at = _NAMES + number * width, _ROW - 6, to_text(scale.first + number * scale.span / len(crowd.began))
        high, bad = max(began / most * room, 2.0), failed / most * room
        said = f"{crowd.row} · {began:,} began at {at[11:19]}" + (f", {failed:,} of them failed" if failed else "")
        columns = tag("rect", cls="column good", x=x, y=y + _ROW - 3 - high, width=width - 1, height=high)
        if failed:
            columns += tag("rect", cls="column bad", x=x, y=y + _ROW - 3 - high, width=width - 1, height=max(bad, 2.0))
        parts += tag("g", tag("title", for_drawing(said)) + columns)
    whole_line = tag("rect", cls="shape axis", x=_NAMES, y=y + 1, width=_PLOT, height=_ROW - 3)
    return tag("a", whole_line + parts, href=crowd.href) if crowd.href else parts


def _grid(scale: _Scale, height: float, zoom: Callable[[Window], str]) -> str:
    first, span = scale.first, scale.span
    step = next((step for step in _STEPS if span / step <= _TICKS), None) or 86_400 * int(span / 86_400 / _TICKS + 1)
    parts, at, before = [], (first // step + 1) * step, to_text(first)[:10]
    parts.append(tag("text", before, cls="soft", x=_MARGIN, y=16.0))
    if step > _STEPS[0]:
        parts.append(_part(scale, (at - step, at), zoom))
    while at <= first + span:
        x, text_at = scale.x(at), to_text(at)
        day = text_at[:10]
        text = text_at[11:19] if step < 60 else text_at[11:16]
        if day != before:
            text, before = (day if step >= 86_400 else f"{day[5:]} {text}"), day
        parts.append(tag("line", cls="grid", x1=x, x2=x, y1=_TOP - 6, y2=height - _MARGIN))
        parts.append(tag("text", text, cls="soft", x=x + 3, y=16.0))
        if step > _STEPS[0]:
            parts.append(_part(scale, (at, at + step), zoom))
        at += step
    return "".join(parts)


def _part(scale: _Scale, part: Window, zoom: Callable[[Window], str]) -> str:
    """A part of the axis, which leads to the drawing of it alone."""
    x, right = scale.x(part[0]), scale.x(part[1])
    title = tag("title", f"zoom to {to_text(part[0])[11:19]} to {to_text(part[1])[11:19]}")
    area = tag("rect", cls="shape axis", x=x + 1, y=2.0, width=max(right - x - 2, 0.0), height=20.0, rx=3.0)
    return tag("a", title + area, href=zoom(part))


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
