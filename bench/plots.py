"""Plots as SVG: groups of bars on a logarithmic scale, without a library or scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _LEFT, _BAR, _GAP = 760, 190, 14, 10
_COLOURS = {
    "mailboxd": "#1f6feb", "huey": "#8b949e", "ninja": "#b08800", "doit": "#6f42c1",
    "luigi": "#a04100", "dbos": "#22863a",
}  # fmt: skip
_OTHER = "#57606a"
Group = tuple[str, Sequence[tuple[str, float]]]


def draw(parts: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The plots by file name, each with its title."""
    found = {}
    shapes = [_overheads(name, part) for name, part in parts.items() if "contestants" in part]
    if any(bars for _, bars in shapes):
        title = "Overhead per subtask, µs (median; a scale of powers of ten)"
        found["overhead"] = (title, bars(title, shapes, "µs"))
    growth = parts.get("growth", {})
    series = [(f"{what}, CPU µs each", _points(growth[what])) for what in ("messages", "completions") if what in growth]
    if series:
        title = "What one costs, as the history or the graph grows (CPU of the daemon, µs)"
        found["growth"] = (title, bars(title, series, "µs"))
    return found


def _overheads(name: str, part: Mapping[str, Any]) -> Group:
    rows = part["contestants"].items()
    return name, [(who, row["overhead"]["p50"]) for who, row in rows if row.get("overhead", {}).get("p50", 0) > 0]


def _points(of: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(f"at {row['at']:,}", row["CPU µs each"]) for row in of["series"]]


def bars(title: str, groups: Sequence[Group], unit: str) -> str:
    """Groups of bars; all values are positive."""
    values = [value for _, members in groups for _, value in members]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)
    scale = (_WIDTH - _LEFT - 90) / max(high - low, 1)
    lines, y = [], 44
    for name, members in groups:
        lines.append(f'<text x="8" y="{y + 11}" font-weight="bold">{escape(name)}</text>')
        y += _BAR + 6
        for label, value in members:
            length = max((math.log10(value) - low) * scale, 1)
            colour = _COLOURS.get(label, _OTHER)
            lines.append(f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(label)}</text>')
            lines.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>')
            lines.append(f'<text x="{_LEFT + length + 6:.1f}" y="{y + 11}">{value:,.0f} {unit}</text>')
            y += _BAR + 4
        y += _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}" role="img"'
        ' font-family="sans-serif" font-size="12" fill="#24292f">'
    )
    ground = f'<title>{escape(title)}</title><rect width="{_WIDTH}" height="{y}" fill="#ffffff"/>'
    return (
        f'{head}\n{ground}\n<text x="8" y="20" font-size="14">{escape(title)}</text>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )
