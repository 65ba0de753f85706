"""A graph in the language of Mermaid. All texts are quoted."""

from __future__ import annotations

from mailboxd.drawing.graph import EdgeKind, Graph, Node, Shape, Tone
from mailboxd.drawing.svg import fit

_LABEL = 60
_MERMAID = {
    Shape.BOX: ("[", "]"), Shape.ROUND: ("(", ")"), Shape.PILL: ("([", "])"), Shape.CUT: ("[/", "/]"),
    Shape.HEXAGON: ("{{", "}}"), Shape.NOTCH: (">", "]"), Shape.STACK: ("[[", "]]"),
}  # fmt: skip
_COLOURS = {
    Tone.IDLE: ("#f6f8fa", "#8c959f"), Tone.BUSY: ("#ddeafe", "#1f6feb"), Tone.CHECK: ("#eee7fb", "#7a4fd0"),
    Tone.ASK: ("#fff3cd", "#9a6700"), Tone.GOOD: ("#e3f4e6", "#2d7d3a"), Tone.BAD: ("#fde5e3", "#c4271b"),
    Tone.OFF: ("#f3f3f3", "#8c959f"),
}  # fmt: skip


def mermaid(graph: Graph) -> str:
    """A flowchart from left to right. Dotted arrows lead to subtasks, solid ones to dependent tasks."""
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        start, end = _MERMAID[node.style.shape]
        first, second = (_entities(line) for line in _lines(node))
        lines.append(f'  {names[node.id]}{start}"{first}<br>{second}"{end}:::{node.style.tone}')
    for edge in graph.known_edges():
        arrow = "-.->" if edge.lead is EdgeKind.CHILD else "-->"
        lines.append(f"  {names[edge.start]} {arrow} {names[edge.end]}")
    used = sorted({node.style.tone for node in graph.nodes})
    lines += [f"  classDef {tone} fill:{_COLOURS[tone][0]},stroke:{_COLOURS[tone][1]},color:#1f2328" for tone in used]
    return "\n".join(lines) + "\n"


def _lines(node: Node) -> tuple[str, str]:
    style = node.style
    if node.counts:
        return fit(node.label, _LABEL), style.word
    below = f"{node.below:,} below" if node.below else ""
    details = " · ".join(filter(None, [style.word, fit(node.note, _LABEL), below]))
    return f"{style.symbol} {fit(node.label, _LABEL)}", details


def _entities(text: str) -> str:
    """Mermaid's character entities, for everything that could end a label or be HTML."""
    return "".join(char if char.isalnum() or char in " .,_-:·" else f"#{ord(char)};" for char in text)
