"""A graph as SVG: columns from left to right, one shape per task, its phase in words below its name."""

from __future__ import annotations

from itertools import pairwise

from mailboxd.drawing.graph import Edge, Graph, Lead, Node
from mailboxd.drawing.layered import Placed, place
from mailboxd.drawing.looks import Look, Shape, counted, look_of, loudest
from mailboxd.drawing.marks import drawing, fit, number, outline, safe, tag

WIDTH, HEIGHT = 184.0, 40.0
"""Of a node, in pixels."""
_COLUMN, _ROW, _MARGIN = WIDTH + 56.0, HEIGHT + 16.0, 12.0
_LABEL, _NOTE = 23, 29
"""Characters that fit into a node: of its name, and of the smaller line below it."""


def graph_svg(graph: Graph, label: str = "Tasks", *, alone: bool = True) -> str:
    """The drawing. `alone=False` leaves the style to the page (`marks.STYLE`, of which it has to be a part)."""
    edges = graph.known_edges()
    placed = place([node.id for node in graph.nodes], [(edge.start, edge.end) for edge in edges])
    width = 2 * _MARGIN + max(placed.ranks, 1) * _COLUMN - (_COLUMN - WIDTH)
    height = 2 * _MARGIN + placed.height * _ROW
    content = "".join(_arrow(edge, placed) for edge in edges) + "".join(_node(node, placed) for node in graph.nodes)
    return drawing(width, height, label, content, alone=alone)


def _corner(placed: Placed, name: str) -> tuple[float, float]:
    rank, at = placed.at[name]
    return _MARGIN + rank * _COLUMN, _MARGIN + at * _ROW + (_ROW - HEIGHT) / 2


def _arrow(edge: Edge, placed: Placed) -> str:
    x, y = _corner(placed, edge.start)
    points = [(x + WIDTH, y + HEIGHT / 2)]
    for rank, at in placed.via.get((edge.start, edge.end), ()):
        middle = _MARGIN + at * _ROW + _ROW / 2
        points += [(_MARGIN + rank * _COLUMN, middle), (_MARGIN + rank * _COLUMN + WIDTH, middle)]
    x, y = _corner(placed, edge.end)
    points.append((x - 6, y + HEIGHT / 2))
    path = f"M{number(points[0][0])} {number(points[0][1])}"
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (x1 + x2) / 2
        path += f"C{number(bend)} {number(y1)} {number(bend)} {number(y2)} {number(x2)} {number(y2)}"
    cls = "edge child" if edge.lead is Lead.CHILD else "edge"
    end, mid = number(x - 6), y + HEIGHT / 2
    head = f"M{end} {number(mid - 3.5)}L{number(x)} {number(mid)}L{end} {number(mid + 3.5)}Z"
    return tag("path", cls=cls, d=path) + tag("path", cls="head", d=head)


def _node(node: Node, placed: Placed) -> str:
    x, y = _corner(placed, node.id)
    look = look_of(node.phase)
    if node.counts:
        look = Look(counted(node.counts), "≡", Shape.STACK, loudest(node.counts))
    below = f" · {node.below:,} below" if node.below else ""
    says = " · ".join(filter(None, [look.word, node.note])) + below
    content = tag("title", safe(f"{node.title or node.label}: {says}"))
    content += outline(look.shape, x, y, WIDTH, HEIGHT)
    content += tag("text", safe(f"{look.symbol} {fit(node.label, _LABEL)}"), x=x + 13, y=y + 17)
    content += tag("text", safe(fit(says, _NOTE)), cls="soft", x=x + 13, y=y + 32)
    group = tag("g", content, cls=f"node {look.tone}")
    return tag("a", group, href=node.href) if node.href else group
