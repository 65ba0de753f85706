"""The graph to draw: tasks, stacks of similar tasks, and edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from mailboxd.core.model import Condition, Plan, PlannedChild
from mailboxd.core.vocabulary import CANCELLED, Phase, State, in_states, without_kind
from mailboxd.formats.drawing.style import Shape, Style, Tone, counts_text, most_urgent_tone, style_of


class EdgeKind(StrEnum):
    """CHILD: `end` is a subtask of `start`. NEED: `end` depends on `start`."""

    CHILD = "child"
    NEED = "need"


@dataclass(frozen=True, slots=True)
class Node:
    """A task or, with `counts` (tasks per state), a stack of several tasks drawn as one.

    `id` is unique in the graph and not shown. `below` counts subtasks that are not drawn. `href` comes from the caller,
    never from a message.
    """

    id: str
    label: str
    state: str = ""
    phase: str = ""
    note: str = ""
    href: str = ""
    title: str = ""
    below: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    heading: str = ""
    """What it is about, in place of the label, which then stands below it."""

    @property
    def size(self) -> int:
        """The number of tasks it represents."""
        return sum(self.counts.values()) or 1

    @property
    def style(self) -> Style:
        """The style of the state; of a stack, the counts and the most urgent tone."""
        if self.counts:
            return Style(counts_text(self.counts), "≡", Shape.STACK, most_urgent_tone(self.counts))
        return style_of(self.state)


@dataclass(frozen=True, slots=True)
class Edge:
    start: str
    end: str
    lead: EdgeKind = EdgeKind.NEED


@dataclass(frozen=True, slots=True)
class Graph:
    """Edges to unknown nodes are not drawn."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """In JSON a state is one of the four words, and the phase says how work has ended."""
        nodes = [
            asdict(node) | {"state": node.state and without_kind(node.state), "counts": in_states(node.counts)}
            for node in self.nodes
        ]
        return {"nodes": nodes, "edges": [asdict(edge) for edge in self.edges]}

    def known_edges(self) -> list[Edge]:
        """The edges between drawn nodes, without duplicates and loops."""
        ids = {node.id for node in self.nodes}
        kept = (edge for edge in self.edges if edge.start in ids and edge.end in ids and edge.start != edge.end)
        return list(dict.fromkeys(kept))


def plan_graph(plan: Plan, title: str) -> Graph:
    """A plan before it is carried out. What waits for nothing leads from the whole."""
    nodes, edges = [Node("", title, State.WAITING, Phase.EXECUTION_READY)], list[Edge]()
    _add_planned(nodes, edges, "", plan.children, {})
    return Graph(tuple(nodes), tuple(edges))


def _add_planned(
    nodes: list[Node], edges: list[Edge], above: str, children: Sequence[PlannedChild], outer: Mapping[str, str]
) -> None:
    ids = {**outer, **{child.key: f"{above}/{child.key}" for child in children}}
    for child in children:
        flow, here = child.flow, ids[child.key]
        said = [", ".join(child.agents), *(f"if {condition_text(condition)}" for condition in flow.when)]
        said += [f"join: {child.overrides.join}"] if child.overrides.join else []
        said += [f"at most {flow.rounds} rounds" if flow.until else f"{flow.rounds} rounds"] if flow.rounds else []
        said += [f"until {condition_text(flow.until)}"] if flow.until else []
        heading = child.description if child.description != child.key else ""
        nodes.append(Node(here, child.key, State.WAITING, Phase.EXECUTION_READY, " · ".join(said), heading=heading))
        edges += [Edge(ids[need], here) for need in child.depends_on if need in ids]
        if not child.depends_on:
            edges.append(Edge(above, here, EdgeKind.CHILD))
        _add_planned(nodes, edges, here, child.children, ids)


def condition_text(condition: Condition) -> str:
    whose = f"{condition.of} answers" if condition.of else "it answers"
    return f"{whose} {'not ' if condition.negated else ''}{' or '.join(condition.answers)}"


# Collapsing the subtasks of one task: similar ones become a stack. They are similar if they have the same dependencies
# and dependants and no subtasks to show. Urgent ones (failed, running, or with a need of
# you) stay separate while there is room.

MAX_ALIKE = 8
"""The most similar subtasks that are drawn individually."""
MAX_URGENT = 4
"""The most urgent ones that are drawn individually if there are more."""
_URGENT = (Tone.BAD, Tone.ASK, Tone.BUSY)


@dataclass(frozen=True, slots=True)
class Child:
    """A subtask. `needs` are the ids of its dependencies; `kids` is its number of subtasks."""

    id: str
    name: str
    label: str
    state: str
    phase: str
    agent: str
    title: str = ""
    kids: int = 0
    needs: frozenset[str] = frozenset()

    @property
    def is_quiet(self) -> bool:
        """Whether nobody looks for what is below it: it has a result, or is cancelled."""
        return self.state in (State.DONE, CANCELLED)

    @property
    def urgency(self) -> int:
        """0 is the most urgent."""
        tone = style_of(self.state).tone
        return _URGENT.index(tone) if tone in _URGENT else len(_URGENT)


Link = Callable[[str, bool], str]
"""The address of a task by its local id or, for a stack, of the list of its subtasks; empty means no link."""


@dataclass(frozen=True, slots=True)
class Collapsed:
    """`alone` are the subtasks drawn individually."""

    alone: tuple[Child, ...]
    stacks: tuple[Node, ...]
    edges: tuple[Edge, ...]


def collapse(parent: str, name: str, kids: Sequence[Child], room: int, link: Link) -> Collapsed:
    """Collapse the subtasks of the task with id `parent` and local id `name` to at most `room` (2 or more) nodes."""
    stacks = [group for group in _alike(kids) if len(group) > MAX_ALIKE]
    stack_of: dict[str, int] = {}
    for number, group in enumerate(stacks):
        quiet = sorted(group, key=lambda kid: kid.urgency)[MAX_URGENT:] if group[0].kids == 0 else group
        stack_of |= dict.fromkeys((kid.id for kid in quiet), number)
    alone = [kid for kid in kids if kid.id not in stack_of]
    over = len(alone) + len(stacks) - room
    if over > 0:
        rest = sorted(alone, key=lambda kid: kid.urgency)[max(len(alone) - over - 1, 0) :]
        stack_of |= dict.fromkeys((kid.id for kid in rest), len(stacks))
        alone = [kid for kid in alone if kid.id not in stack_of]
    inside: dict[int, list[Child]] = {}
    for kid in kids:
        if kid.id in stack_of:
            inside.setdefault(stack_of[kid.id], []).append(kid)
    if len(alone) + len(inside) > room:  # more stacks than room: use one stack
        inside, stack_of = {0: [kid for group in inside.values() for kid in group]}, dict.fromkeys(stack_of, 0)
    drawn = {kid.id: kid.id for kid in alone} | {kid: f"{parent}/{number}" for kid, number in stack_of.items()}
    made = tuple(_stack(f"{parent}/{number}", name, group, link) for number, group in inside.items())
    return Collapsed(tuple(alone), made, tuple(_edges(parent, kids, drawn)))


def _alike(kids: Sequence[Child]) -> list[list[Child]]:
    ids = {kid.id for kid in kids}
    needed: dict[str, list[str]] = {}
    for kid in kids:
        for need in kid.needs & ids:
            needed.setdefault(need, []).append(kid.id)
    groups: dict[object, list[Child]] = {}
    for kid in kids:
        has_visible_subtasks = kid.kids > 0 and not kid.is_quiet
        key = kid.id if has_visible_subtasks else (kid.needs, frozenset(needed.get(kid.id, ())), kid.kids > 0)
        groups.setdefault(key, []).append(kid)
    return list(groups.values())


def _edges(parent: str, kids: Iterable[Child], drawn: dict[str, str]) -> Iterable[Edge]:
    edges: dict[Edge, None] = {}
    needing: set[str] = set()
    for kid in kids:
        for need in kid.needs & drawn.keys():
            if drawn[need] != drawn[kid.id]:
                edges[Edge(drawn[need], drawn[kid.id])] = None
                needing.add(drawn[kid.id])
    for node in dict.fromkeys(drawn[kid.id] for kid in kids):
        if node not in needing:
            edges[Edge(parent, node, EdgeKind.CHILD)] = None
    return sorted(edges, key=lambda edge: (edge.start, edge.end))


def _stack(node: str, name: str, group: Sequence[Child], link: Link) -> Node:
    counts = Counter(kid.state for kid in group)
    return Node(
        node,
        f"{len(group):,} task{'s' * (len(group) != 1)}",
        counts=dict(counts),
        href=link(name, True),
        title=f"subtasks of {name}",
    )
