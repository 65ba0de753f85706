"""What is drawn: tasks, stacks of tasks that are alike, and what leads from one to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
