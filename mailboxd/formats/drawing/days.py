"""What each of some days came to, as a line in SVG: a point for each day, the earliest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mailboxd.formats.drawing.svg import tag

_WIDTH, _HEIGHT, _EDGE = 420.0, 84.0, 6.0
_TEXT = 14.0
"""The height of the line of text below."""


@dataclass(frozen=True, slots=True)
class Column:
    """A day: its name (`2026-11-28`), its amount, and that in words."""

    day: str
    amount: int
    text: str


def days_svg(columns: Sequence[Column]) -> str:
    """The line, with the highest day named; what a point stands for is its title. Wide as its place."""
    most = max((one.amount for one in columns), default=0) or 1
    step = (_WIDTH - 2 * _EDGE) / max(len(columns) - 1, 1)
    floor = _HEIGHT - _TEXT - _EDGE
    points = [(_EDGE + step * n, floor - (floor - _EDGE) * one.amount / most) for n, one in enumerate(columns)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    under = f"{_EDGE:.1f},{floor:.1f} {line} {points[-1][0]:.1f},{floor:.1f}" if points else ""
    highest = max(columns, key=lambda one: one.amount, default=None)
    said = "" if highest is None else f"By day since {columns[0].day}; most on {highest.day}: {highest.text}"
    dots = "".join(
        tag("circle", tag("title", f"{one.day}: {one.text}"), cx=x, cy=y, r=3.0)
        for one, (x, y) in zip(columns, points, strict=True)
    )
    ends = "".join(
        tag("text", one.day[5:], x=x, y=_HEIGHT - 2, text_anchor=anchor)
        for one, x, anchor in ((columns[0], _EDGE, "start"), (columns[-1], _WIDTH - _EDGE, "end"))
    ) if columns else ""  # fmt: skip
    shape = tag("polygon", points=under, cls="area") + tag("polyline", points=line)
    return tag(
        "svg", shape + dots + ends, viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}", cls="days", role="img", aria_label=said,
    )  # fmt: skip
