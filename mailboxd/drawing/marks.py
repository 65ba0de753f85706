"""Pieces of SVG: escaped text, tags, the outline of each shape, and the style sheet of a drawing that stands alone."""

from __future__ import annotations

from html import escape
from unicodedata import east_asian_width

from mailboxd.drawing.looks import Shape

STYLE = """\
.drawing{--ink:#1f2328;--soft:#59636e;--line:#8c959f;--paper:#fff;--idle:#f6f8fa;--busy:#ddeafe;--busy-line:#1f6feb;
--check:#eee7fb;--check-line:#7a4fd0;--ask:#fff3cd;--ask-line:#9a6700;--good:#e3f4e6;--good-line:#2d7d3a;--bad:#fde5e3;
--bad-line:#c4271b;--off:#f3f3f3;--off-line:#8c959f;font:13px system-ui,-apple-system,"Segoe UI",sans-serif}
@media (prefers-color-scheme:dark){.drawing{--ink:#e6edf3;--soft:#9aa4af;--line:#6e7681;--paper:#0f1318;--idle:#1b2128;
--busy:#132c50;--busy-line:#6cb0ff;--check:#2b2144;--check-line:#b99bf5;--ask:#3a2d0c;--ask-line:#e0b03f;--good:#12301b;
--good-line:#57b96b;--bad:#42191a;--bad-line:#ff7b72;--off:#191d22;--off-line:#6e7681}}
.drawing text{fill:var(--ink)}
.drawing .soft{fill:var(--soft);font-size:11px}
.drawing .paper{fill:var(--paper)}
.drawing .edge{fill:none;stroke:var(--line);stroke-width:1.2}
.drawing .child{stroke-dasharray:2 3}
.drawing .head{fill:var(--line)}
.drawing .grid{stroke:var(--line);stroke-width:1;opacity:.35}
.drawing .now{stroke:var(--busy-line);stroke-width:1.5}
.drawing .shape{fill:var(--idle);stroke:var(--line);stroke-width:1.4}
.drawing .busy .shape{fill:var(--busy);stroke:var(--busy-line)}
.drawing .check .shape{fill:var(--check);stroke:var(--check-line)}
.drawing .ask .shape{fill:var(--ask);stroke:var(--ask-line);stroke-width:2}
.drawing .good .shape{fill:var(--good);stroke:var(--good-line)}
.drawing .bad .shape{fill:var(--bad);stroke:var(--bad-line);stroke-width:2}
.drawing .off .shape{fill:var(--off);stroke:var(--off-line);stroke-dasharray:4 3}
.drawing a:hover .shape,.drawing a:focus .shape{stroke-width:3}
.drawing a:focus{outline:none}
"""


def safe(text: str) -> str:
    """Foreign text as it may stand in XML: escaped, and without what XML does not have."""
    return escape("".join(char if char.isprintable() else "�" if char not in "\n\t" else " " for char in text))


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element; `content` is markup already, the values of attributes are escaped. `cls` is `class`, `_` is `-`."""
    said = "".join(
        f' {"class" if key == "cls" else key.replace("_", "-")}="{safe(number(value))}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def number(value: object) -> str:
    """A coordinate as short as it is exact enough to be drawn."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def columns(text: str) -> int:
    """How wide a text is, in narrow characters."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def fit(text: str, room: int) -> str:
    """The text on one line, in at most so many narrow characters; a cut shows as an ellipsis."""
    text = " ".join(text.split())
    if columns(text) <= room:
        return text
    kept = ""
    for char in text:
        if columns(kept + char) > room - 1:
            break
        kept += char
    return kept.rstrip() + "…"


def outline(shape: Shape, x: float, y: float, width: float, height: float) -> str:
    """The outline of a shape, whose upper left corner is at (x, y)."""
    right, low, mid = x + width, y + height, y + height / 2
    if shape in (Shape.BOX, Shape.ROUND, Shape.PILL):
        radius = {Shape.BOX: 1.0, Shape.ROUND: 7.0, Shape.PILL: height / 2}[shape]
        return tag("rect", cls="shape", x=x, y=y, width=width, height=height, rx=radius)
    if shape is Shape.STACK:
        behind = tag("rect", cls="shape", x=x + 5, y=y - 5, width=width - 5, height=height, rx=3.0)
        return behind + tag("rect", cls="shape", x=x, y=y, width=width - 5, height=height, rx=3.0)
    points = {
        Shape.HEXAGON: [(x, mid), (x + 9, y), (right - 9, y), (right, mid), (right - 9, low), (x + 9, low)],
        Shape.CUT: [(x, y), (right - 9, y), (right, y + 9), (right, low), (x + 9, low), (x, low - 9)],
        Shape.NOTCH: [(x, y), (right, y), (right - 7, mid), (right, low), (x, low), (x + 7, mid)],
    }[shape]
    return tag("polygon", cls="shape", points=" ".join(f"{number(float(a))},{number(float(b))}" for a, b in points))


def drawing(width: float, height: float, label: str, content: str, *, alone: bool) -> str:
    """The whole SVG. `alone`: a file of its own, with its style; else the page that holds it has the style."""
    style = f"<style>{STYLE}</style>" if alone else ""
    paper = tag("rect", cls="paper", width=width, height=height) if alone else ""
    return tag(
        "svg", style + paper + content, xmlns="http://www.w3.org/2000/svg", cls="drawing", role="group",
        viewBox=f"0 0 {number(width)} {number(height)}", width=width, height=height, aria_label=label,
    )  # fmt: skip


def document(title: str, *parts: str) -> str:
    """A page of HTML that needs nothing else: drawings that were made with `alone=True`, under a title."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{safe(title)}</title>'
    look = "<style>:root{color-scheme:light dark}body{font:15px system-ui,sans-serif;margin:2rem}</style>"
    body = "".join(f"<div>{part}</div>" for part in parts)
    return f'<!doctype html><html lang="en"><head>{head}{look}</head><body><h1>{safe(title)}</h1>{body}</body></html>\n'
