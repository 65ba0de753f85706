"""Adapts docs/, whose links are made for the repository, to mkdocs.

Three pages of the root belong to the site; links to anything else outside of docs/ become plain words. A forge draws
the diagram of the states by a script from the network; the site has it drawn here, and fetches nothing.
"""

from __future__ import annotations

import posixpath
import re
import runpy
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

from mailboxd.core.vocabulary import Phase

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {"README.md": "about.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
"""Pages of the root and their names in the site, where README.md is the index of docs/."""

_LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"^ *([a-z_]+) --> ([a-z_]+): (.+)$", re.MULTILINE)

_STEP, _BOX, _MIDDLE = 58, (170, 32), 400
"""Pixels between states, size of a box, and x of the boxes' center."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the root, and those that are derived from the code."""
    for name, here in FROM_ROOT.items():
        files.append(File.generated(config, here, content=(ROOT / name).read_text(encoding="utf-8")))
    for name, page in runpy.run_path(str(ROOT / "docs" / "generate.py"))["SITE_PAGES"].items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Redirect links to pages of the site, or remove them; draw diagrams."""
    names = {here: name for name, here in FROM_ROOT.items()}
    own = page.file.src_uri
    folder = PurePosixPath(names[own]).parent if own in names else PurePosixPath("docs", own).parent
    up = "../" * (str(own).count("/"))
    turned = _LINK.sub(lambda found: _turned(found, folder, up), markdown)
    return _DIAGRAM.sub(lambda found: _drawn(found[1]), turned)


def _turned(found: re.Match[str], folder: PurePosixPath, up: str) -> str:
    """A link or image of a page in `folder` of the repository, as the site needs it."""
    image, text, path, anchor = found[1], found[2], found[3], found[4] or ""
    target = posixpath.normpath(folder / path)
    target = f"{target}/README.md" if (ROOT / target / "README.md").is_file() else target
    if target in FROM_ROOT:
        return f"[{text}]({up}{FROM_ROOT[target]}{anchor})"
    return f"{image}[{text}]({up}{target.removeprefix('docs/')}{anchor})" if target.startswith("docs/") else text


def _drawn(source: str) -> str:
    """States in a column, forward transitions as arcs on the right, others on the left; a tooltip has the reason."""
    arrows = _ARROW.findall(source)
    states = [phase.value for phase in Phase]
    place = {state: number * _STEP + _BOX[1] for number, state in enumerate(states)}
    left, word = _MIDDLE - _BOX[0] // 2, f'x="{_MIDDLE}" text-anchor="middle"'
    boxes = [
        f'<rect x="{left}" y="{y - _BOX[1] // 2}" width="{_BOX[0]}" height="{_BOX[1]}" rx="6" fill="none" '
        f'stroke="currentColor"/><text {word} y="{y + 5}">{escape(state)}</text>'
        for state, y in place.items()
    ]
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
    )
    lines = [_arc(place[source], place[target], label) for source, target, label in arrows]
    size = f'viewBox="0 0 {2 * _MIDDLE} {len(states) * _STEP + _BOX[1]}"'
    style = 'style="max-width:100%;font-size:14px;fill:currentColor" role="img" aria-label="the states of a task"'
    return f"<svg {size} {style}>{head}{''.join(lines)}{''.join(boxes)}</svg>\n"


def _arc(start: int, end: int, label: str) -> str:
    side = 1 if end > start else -1
    edge = _MIDDLE + side * _BOX[0] // 2
    out = edge + side * min(30 + abs(end - start) * 0.55, 300)
    return (
        f'<path d="M{edge} {start + 4 * side}C{out} {start} {out} {end} {edge} {end - 4 * side}" fill="none" '
        f'stroke="currentColor" stroke-opacity="0.55" marker-end="url(#head)"><title>{escape(label)}</title></path>'
    )
