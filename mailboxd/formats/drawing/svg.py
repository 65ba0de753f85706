"""A graph as SVG, from left to right: one shape per task, with its name and phase."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mailboxd.core.sanitize import for_drawing
from mailboxd.formats.drawing.graph import Edge, EdgeKind, Graph, Node
from mailboxd.formats.drawing.style import Shape, fit

# SVG elements

STYLE = """\
.drawing{--ink:#1f2328;--soft:#59636e;--line:#8c959f;--paper:#fff;--idle:#f6f8fa;--busy:#ddeafe;--busy-line:#1f6feb;
--ask:#fff3cd;--ask-line:#9a6700;--good:#e3f4e6;--good-line:#2d7d3a;--bad:#fde5e3;
--bad-line:#c4271b;--off:#f3f3f3;--off-line:#8c959f;font:13px system-ui,-apple-system,"Segoe UI",sans-serif}
@media (prefers-color-scheme:dark){.drawing{--ink:#e6edf3;--soft:#9aa4af;--line:#6e7681;--paper:#0f1318;--idle:#1b2128;
--busy:#132c50;--busy-line:#6cb0ff;--ask:#3a2d0c;--ask-line:#e0b03f;--good:#12301b;
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
.drawing .ask .shape{fill:var(--ask);stroke:var(--ask-line);stroke-width:2}
.drawing .good .shape{fill:var(--good);stroke:var(--good-line)}
.drawing .bad .shape{fill:var(--bad);stroke:var(--bad-line);stroke-width:2}
.drawing .off .shape{fill:var(--off);stroke:var(--off-line);stroke-dasharray:4 3}
.drawing .axis{fill:transparent;stroke:transparent}
.drawing a:hover .axis,.drawing a:focus .axis{stroke:var(--busy-line)}
.drawing .column.good{fill:var(--good-line)}
.drawing .column.bad{fill:var(--bad-line)}
.drawing a:hover .shape,.drawing a:focus .shape{stroke-width:3}
.drawing a:focus{outline:none}
"""


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element. `content` is markup; attribute values are escaped. `cls` means `class`, `_` means `-`."""
    shown = "".join(
        f' {"class" if key == "cls" else key.replace("_", "-")}="{for_drawing(number(value))}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{name}{shown}>{content}</{name}>" if content else f"<{name}{shown}/>"


def number(value: object) -> str:
    """A coordinate rounded to one digit."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def outline(shape: Shape, x: float, y: float, width: float, height: float) -> str:
    """The outline of a shape whose upper left corner is at (x, y)."""
    right, low, mid = x + width, y + height, y + height / 2
    if shape in (Shape.BOX, Shape.ROUND, Shape.PILL):
        radius = {Shape.BOX: 1.0, Shape.ROUND: 7.0, Shape.PILL: height / 2}[shape]
        return tag("rect", cls="shape", x=x, y=y, width=width, height=height, rx=radius)
    if shape is Shape.STACK:
        behind = tag("rect", cls="shape", x=x + 5, y=y - 5, width=width - 5, height=height, rx=3.0)
        return behind + tag("rect", cls="shape", x=x, y=y, width=width - 5, height=height, rx=3.0)
    points = {
        Shape.HEXAGON: [(x, mid), (x + 9, y), (right - 9, y), (right, mid), (right - 9, low), (x + 9, low)],
        Shape.NOTCH: [(x, y), (right, y), (right - 7, mid), (right, low), (x, low), (x + 7, mid)],
    }[shape]
    return tag("polygon", cls="shape", points=" ".join(f"{number(float(a))},{number(float(b))}" for a, b in points))


def drawing(width: float, height: float, label: str, content: str, *, standalone: bool) -> str:
    """The complete SVG. A `standalone` one includes its style sheet; otherwise the surrounding page has it."""
    style = f"<style>{STYLE}</style>" if standalone else ""
    paper = tag("rect", cls="paper", width=width, height=height) if standalone else ""
    return tag(
        "svg", style + paper + content, xmlns="http://www.w3.org/2000/svg", cls="drawing", role="group",
        viewBox=f"0 0 {number(width)} {number(height)}", width=width, height=height, aria_label=label,
    )  # fmt: skip


# Layered layout (Sugiyama, Tagawa, Toda 1981); edges lead from left to right. Ranks by longest path, dummy nodes
# where an edge passes a rank, and an order within each rank that crosses few edges (barycenters).
# O(sweeps * (nodes + edges)), deterministic.

SWEEPS = 6
_MAX_DUMMIES = 4_000
"""Maximum number of dummy nodes; further edges are drawn straight."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`at[id] = (rank, y)` with y in rows; `via` are the points that an edge passes."""

    at: Mapping[str, tuple[int, float]]
    via: Mapping[tuple[str, str], tuple[tuple[int, float], ...]]
    ranks: int
    height: float


@dataclass(slots=True)
class _Work:
    ranks: list[list[str]]
    left: dict[str, list[str]] = field(default_factory=dict)
    right: dict[str, list[str]] = field(default_factory=dict)
    space: dict[str, float] = field(default_factory=dict)
    """The height of each in rows: 1, less for a dummy."""

    def join(self, start: str, end: str) -> None:
        self.right.setdefault(start, []).append(end)
        self.left.setdefault(end, []).append(start)


def compute_layout(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Layout:
    """Lay out all nodes. Edges that would close a cycle are ignored; both ends of each edge must exist."""
    pairs = list(dict.fromkeys(edges))
    rank = _ranks(nodes, pairs)
    work = _Work([[] for _ in range(max(rank.values(), default=-1) + 1)])
    for node in nodes:
        work.ranks[rank[node]].append(node)
        work.space[node] = 1.0
    chains = _add_dummies(work, rank, pairs)
    for sweep in range(SWEEPS):
        _order(work, forward=sweep % 2 == 0)
    heights = _heights(work)
    least = min(heights.values(), default=0.0)
    at = {node: (rank[node], heights[node] - least) for node in nodes}
    via = {
        pair: tuple((rank[pair[0]] + 1 + step, heights[name] - least) for step, name in enumerate(chain))
        for pair, chain in chains.items()
    }
    return Layout(at, via, len(work.ranks), max(heights.values(), default=0.0) - least + 1.0)


def _ranks(nodes: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The length of the longest path to each node."""
    after: dict[str, list[str]] = {node: [] for node in nodes}
    waits = dict.fromkeys(nodes, 0)
    for start, end in pairs:
        after[start].append(end)
        waits[end] += 1
    rank = dict.fromkeys(nodes, 0)
    seen: set[str] = set()
    free = deque(node for node in nodes if not waits[node])
    rest = iter(nodes)
    while len(seen) < len(nodes):
        if not free:  # a cycle: start it anywhere
            free.append(next(node for node in rest if node not in seen))
        node = free.popleft()
        seen.add(node)
        for end in after[node]:
            if end in seen:
                continue
            rank[end] = max(rank[end], rank[node] + 1)
            waits[end] -= 1
            if waits[end] == 0:
                free.append(end)
    return rank


def _add_dummies(
    work: _Work, rank: Mapping[str, int], pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[str]]:
    chains: dict[tuple[str, str], list[str]] = {}
    room = _MAX_DUMMIES
    for number, (start, end) in enumerate(pairs):
        between = range(rank[start] + 1, rank[end])
        if rank[end] <= rank[start]:
            continue
        if len(between) > room:
            continue
        room -= len(between)
        chain = [f"\0{number}.{at}" for at in between]
        for at, name in zip(between, chain, strict=True):
            work.ranks[at].append(name)
            work.space[name] = 0.35
        for one, other in zip([start, *chain], [*chain, end], strict=True):
            work.join(one, other)
        if chain:
            chains[start, end] = chain
    return chains


def _order(work: _Work, *, forward: bool) -> None:
    """Sort each rank by the mean position of its neighbors on one side; ties keep their order."""
    ranks = work.ranks[1:] if forward else work.ranks[-2::-1]
    before = work.ranks[0] if forward else work.ranks[-1] if work.ranks else []
    sides = work.left if forward else work.right
    for rank in ranks:
        where = {name: place for place, name in enumerate(before)}
        own = {name: float(place) for place, name in enumerate(rank)}
        scale = len(before) / max(len(rank), 1)
        mean = {
            name: sum(where[other] for other in others) / len(others)
            if (others := [other for other in sides.get(name, ()) if other in where])
            else own[name] * scale
            for name in rank
        }
        rank.sort(key=lambda name: (mean[name], own[name]))
        before = rank


def _heights(work: _Work) -> dict[str, float]:
    """The middle of each, in rows; every rank is centered."""
    most = max((sum(work.space[name] for name in rank) for rank in work.ranks), default=0.0)
    heights: dict[str, float] = {}
    for rank in work.ranks:
        at = (most - sum(work.space[name] for name in rank)) / 2
        for name in rank:
            heights[name] = at + work.space[name] / 2
            at += work.space[name]
    return heights


# Drawing the graph

WIDTH, HEIGHT = 216.0, 40.0
"""The size of a node in pixels."""
_COLUMN, _ROW, _MARGIN = WIDTH + 56.0, HEIGHT + 16.0, 12.0
_LABEL, _NOTE = 23, 33
"""Characters that fit into a node, in a wide font like DejaVu Sans: of its name, and of the smaller line below."""


def graph_svg(graph: Graph, label: str = "Tasks", *, standalone: bool = True) -> str:
    """The drawing. `standalone=False` leaves the style sheet (`STYLE`) to the page."""
    edges = graph.known_edges()
    layout = compute_layout([node.id for node in graph.nodes], [(edge.start, edge.end) for edge in edges])
    width = 2 * _MARGIN + max(layout.ranks, 1) * _COLUMN - (_COLUMN - WIDTH)
    height = 2 * _MARGIN + layout.height * _ROW
    content = "".join(_arrow(edge, layout) for edge in edges) + "".join(_node(node, layout) for node in graph.nodes)
    return drawing(width, height, label, content, standalone=standalone)


def _corner(layout: Layout, name: str) -> tuple[float, float]:
    rank, at = layout.at[name]
    return _MARGIN + rank * _COLUMN, _MARGIN + at * _ROW + (_ROW - HEIGHT) / 2


def _arrow(edge: Edge, layout: Layout) -> str:
    x, y = _corner(layout, edge.start)
    points = [(x + WIDTH, y + HEIGHT / 2)]
    for rank, at in layout.via.get((edge.start, edge.end), ()):
        middle = _MARGIN + at * _ROW + _ROW / 2
        points += [(_MARGIN + rank * _COLUMN, middle), (_MARGIN + rank * _COLUMN + WIDTH, middle)]
    x, y = _corner(layout, edge.end)
    points.append((x - 6, y + HEIGHT / 2))
    path = f"M{number(points[0][0])} {number(points[0][1])}"
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (x1 + x2) / 2
        path += f"C{number(bend)} {number(y1)} {number(bend)} {number(y2)} {number(x2)} {number(y2)}"
    cls = "edge child" if edge.lead is EdgeKind.CHILD else "edge"
    end, mid = number(x - 6), y + HEIGHT / 2
    head = f"M{end} {number(mid - 3.5)}L{number(x)} {number(mid)}L{end} {number(mid + 3.5)}Z"
    return tag("path", cls=cls, d=path) + tag("path", cls="head", d=head)


def _node(node: Node, layout: Layout) -> str:
    x, y = _corner(layout, node.id)
    style = node.style
    below = f" · {node.below:,} below" if node.below else ""
    key = node.label if node.heading else ""
    details = " · ".join(filter(None, [style.word, key, node.note])) + below
    content = tag("title", for_drawing(f"{node.title or node.label}: {details}"))
    content += outline(style.shape, x, y, WIDTH, HEIGHT)
    content += tag("text", for_drawing(f"{style.symbol} {fit(node.heading or node.label, _LABEL)}"), x=x + 13, y=y + 17)
    content += tag("text", for_drawing(fit(details, _NOTE)), cls="soft", x=x + 13, y=y + 32)
    group = tag("g", content, cls=f"node {style.tone}")
    return tag("a", group, href=node.href) if node.href else group
