"""What is drawn: tasks, stacks of tasks that are alike, and what leads from one to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mailboxd.drawing.phase_style import Tone, look_of


class Lead(StrEnum):
    """Why there is an arrow: `end` is a part of `start`, or needs its result."""

    CHILD = "child"
    NEED = "need"


@dataclass(frozen=True, slots=True)
class Node:
    """A task; or, with `counts` (how many stand in which phase), a stack of several that are drawn as one.

    `id` is unique in the graph and shown nowhere. `below` counts children that are not drawn. `href` is a link that
    the caller made, never one out of a message.
    """

    id: str
    label: str
    phase: str = ""
    note: str = ""
    href: str = ""
    title: str = ""
    below: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many tasks it stands for."""
        return sum(self.counts.values()) or 1


@dataclass(frozen=True, slots=True)
class Edge:
    start: str
    end: str
    lead: Lead = Lead.NEED


@dataclass(frozen=True, slots=True)
class Graph:
    """Edges between nodes that are not there are left out by whoever draws."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    def known_edges(self) -> list[Edge]:
        """Those whose ends are both drawn, each once, no loops."""
        ids = {node.id for node in self.nodes}
        kept = (edge for edge in self.edges if edge.start in ids and edge.end in ids and edge.start != edge.end)
        return list(dict.fromkeys(kept))


# ---------------------------------------------------------------------------------------------------------------------
# Children of one task, few enough to be drawn: those that are alike become a stack.
#
# Alike are two that need the same and that the same ones need, and below which nothing is to be seen. What wants a look
# (failed, waiting, at work) stays on its own as long as there is room.

ALIKE = 8
"""So many that are alike are drawn one by one."""
LOUD = 4
"""Of more than that so many that want a look."""
_LOUD = (Tone.BAD, Tone.ASK, Tone.BUSY, Tone.CHECK)


@dataclass(frozen=True, slots=True)
class Kid:
    """A child as a drawing needs it. `needs` are ids; `kids`: how many children it has itself."""

    id: str
    name: str
    label: str
    phase: str
    agent: str
    title: str = ""
    kids: int = 0
    needs: frozenset[str] = frozenset()

    @property
    def loud(self) -> int:
        """How much it wants a look; less is more."""
        tone = look_of(self.phase).tone
        return _LOUD.index(tone) if tone in _LOUD else len(_LOUD)


Link = Callable[[str, bool], str]
"""The address of a task by its name (local id); of the list of its children, for a stack. Empty = no link."""


@dataclass(frozen=True, slots=True)
class Folded:
    """`alone` are the kids that are drawn as themselves."""

    alone: tuple[Kid, ...]
    stacks: tuple[Node, ...]
    edges: tuple[Edge, ...]


def fold(parent: str, name: str, kids: Sequence[Kid], room: int, link: Link) -> Folded:
    """At most `room` (2 or more) nodes for the children of `parent` (its id; `name` is its local id)."""
    stacks = [group for group in _alike(kids) if len(group) > ALIKE]
    stood_for: dict[str, int] = {}
    for number, group in enumerate(stacks):
        quiet = sorted(group, key=lambda kid: kid.loud)[LOUD:] if group[0].kids == 0 else group
        stood_for |= dict.fromkeys((kid.id for kid in quiet), number)
    alone = [kid for kid in kids if kid.id not in stood_for]
    over = len(alone) + len(stacks) - room
    if over > 0:
        rest = sorted(alone, key=lambda kid: kid.loud)[max(len(alone) - over - 1, 0) :]
        stood_for |= dict.fromkeys((kid.id for kid in rest), len(stacks))
        alone = [kid for kid in alone if kid.id not in stood_for]
    inside: dict[int, list[Kid]] = {}
    for kid in kids:
        if kid.id in stood_for:
            inside.setdefault(stood_for[kid.id], []).append(kid)
    if len(alone) + len(inside) > room:  # more stacks than room: one for all
        inside, stood_for = {0: [kid for group in inside.values() for kid in group]}, dict.fromkeys(stood_for, 0)
    drawn = {kid.id: kid.id for kid in alone} | {kid: f"{parent}/{number}" for kid, number in stood_for.items()}
    made = tuple(_stack(f"{parent}/{number}", name, group, link) for number, group in inside.items())
    return Folded(tuple(alone), made, tuple(_edges(parent, kids, drawn)))


def _alike(kids: Sequence[Kid]) -> list[list[Kid]]:
    ids = {kid.id for kid in kids}
    needed: dict[str, list[str]] = {}
    for kid in kids:
        for need in kid.needs & ids:
            needed.setdefault(need, []).append(kid.id)
    groups: dict[object, list[Kid]] = {}
    for kid in kids:
        seen_below = kid.kids > 0 and kid.phase not in ("completed", "cancelled")
        key = kid.id if seen_below else (kid.needs, frozenset(needed.get(kid.id, ())), kid.kids > 0)
        groups.setdefault(key, []).append(kid)
    return list(groups.values())


def _edges(parent: str, kids: Iterable[Kid], drawn: dict[str, str]) -> Iterable[Edge]:
    edges: dict[Edge, None] = {}
    needing: set[str] = set()
    for kid in kids:
        for need in kid.needs & drawn.keys():
            if drawn[need] != drawn[kid.id]:
                edges[Edge(drawn[need], drawn[kid.id])] = None
                needing.add(drawn[kid.id])
    for node in dict.fromkeys(drawn[kid.id] for kid in kids):
        if node not in needing:
            edges[Edge(parent, node, Lead.CHILD)] = None
    return sorted(edges, key=lambda edge: (edge.start, edge.end))


def _stack(node: str, name: str, group: Sequence[Kid], link: Link) -> Node:
    counts = Counter(kid.phase for kid in group)
    return Node(node, f"{len(group):,} tasks", counts=dict(counts), href=link(name, True), title=f"children of {name}")
