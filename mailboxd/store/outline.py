"""A task and what is below it as a graph that can be drawn: bounded, however large the tree is. Read-only.

Level by level, what is under way before what is done. What is not shown is counted where it would begin.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from mailboxd.core.terms import Phase
from mailboxd.drawing.folding import Kid, Link, fold
from mailboxd.drawing.graph import Edge, Graph, Lead, Node
from mailboxd.drawing.looks import Tone, look_of
from mailboxd.store.report import Report

MOST = 200
"""Nodes of a drawing."""
MANY = 1_000
"""Children of one task that are looked at one by one; of more only how many stand in which phase."""
_ROOM_FOR_THE_ENDED = 60
_SINGLED_OUT = 12
_COLUMNS = "t.id, t.local_id, CASE WHEN t.key = '' THEN t.local_id ELSE t.key END, t.phase, t.executor, t.title, t.kids"
_WAITS = "EXISTS (SELECT 1 FROM dependencies d WHERE d.task = t.id)"
_LOUD = tuple(phase.value for phase in Phase if look_of(phase).tone not in (Tone.GOOD, Tone.OFF, Tone.IDLE))


def no_link(_name: str, _stacked: bool) -> str:
    return ""


def outline(report: Report, task_id: str, *, link: Link = no_link, most: int = MOST) -> Graph:
    """The graph of the task with this id and of what is below it, at most `most` (10 or more) nodes.

    Raises KeyError for an unknown id.
    """
    with report.snapshot():
        return _Outline(report, link, most).draw(task_id)


class _Outline:
    def __init__(self, report: Report, link: Link, most: int) -> None:
        self._report = report
        self._link = link
        self._most = most
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._open: list[tuple[bool, int, int, Kid]] = []

    def draw(self, task_id: str) -> Graph:
        row = self._report.db.execute(f"SELECT {_COLUMNS} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()
        if row is None:
            raise KeyError(task_id)
        self._add(Kid(*row), depth=0)
        while self._open:
            ended, depth, _, kid = heapq.heappop(self._open)
            room = self._most - len(self._nodes)
            if room >= 2 and not (ended and depth and len(self._nodes) + kid.kids > _ROOM_FOR_THE_ENDED):
                self._unfold(kid, depth, room)
        return Graph(tuple(self._nodes.values()), tuple(self._edges))

    def _add(self, kid: Kid, depth: int) -> None:
        href = self._link(kid.name, False)
        title = f"{kid.name}: {kid.title}"
        self._nodes[kid.id] = Node(kid.id, kid.label, kid.phase, kid.agent, href, title, kid.kids)
        if kid.kids:
            ended = kid.phase in ("completed", "cancelled")
            heapq.heappush(self._open, (ended, depth, len(self._nodes), kid))

    def _unfold(self, parent: Kid, depth: int, room: int) -> None:
        node = self._nodes[parent.id]
        self._nodes[parent.id] = Node(node.id, node.label, node.phase, node.note, node.href, node.title)
        if parent.kids > MANY:
            self._unfold_many(parent, depth, room)
            return
        folded = fold(parent.id, parent.name, list(self._kids(parent.id)), room, self._link)
        for kid in folded.alone:
            self._add(kid, depth + 1)
        self._nodes |= {stack.id: stack for stack in folded.stacks}
        self._edges += folded.edges

    def _kids(self, parent: str) -> Iterator[Kid]:
        db = self._report.db
        needs: dict[str, set[str]] = {}
        sql = "SELECT d.task, d.needs FROM tasks t JOIN dependencies d ON d.task = t.id WHERE t.parent = ?"
        for task, need in db.execute(sql, (parent,)):
            needs.setdefault(task, set()).add(need)
        for row in db.execute(f"SELECT {_COLUMNS} FROM tasks t WHERE t.parent = ? ORDER BY t.seq", (parent,)):
            yield Kid(*[*row, frozenset(needs.get(row[0], ()))])

    def _unfold_many(self, parent: Kid, depth: int, room: int) -> None:
        """Two stacks: what needs no other, and what needs others; and a few that want a look."""
        counts = self._counts(parent.id)
        first, second = f"{parent.id}/0", f"{parent.id}/1"
        for kid, waits in self._singled_out(parent.id, min(_SINGLED_OUT, room - 2)):
            counts[waits][kid.phase] -= 1
            self._add(kid, depth + 1)
            self._edges.append(Edge(first, kid.id) if waits else Edge(parent.id, kid.id, Lead.CHILD))
        for stack, waits in ((first, 0), (second, 1)):
            left = {phase: count for phase, count in counts.get(waits, {}).items() if count}
            if left:
                label, title = f"{sum(left.values()):,} tasks", f"children of {parent.name}"
                href = self._link(parent.name, True)
                self._nodes[stack] = Node(stack, label, href=href, title=title, counts=left)
                needs_first = waits and first in self._nodes
                edge = Edge(first, stack) if needs_first else Edge(parent.id, stack, Lead.CHILD)
                self._edges.append(edge)

    def _counts(self, parent: str) -> dict[int, dict[str, int]]:
        counts: dict[int, dict[str, int]] = {}
        sql = f"SELECT {_WAITS}, t.phase, count(*) FROM tasks t WHERE t.parent = ? GROUP BY 1, 2"
        for waits, phase, count in self._report.db.execute(sql, (parent,)):
            counts.setdefault(waits, {})[phase] = count
        return counts

    def _singled_out(self, parent: str, most: int) -> list[tuple[Kid, int]]:
        marks = ", ".join("?" * len(_LOUD))
        rows = self._report.db.execute(
            f"SELECT {_COLUMNS}, {_WAITS} FROM tasks t WHERE t.parent = ? AND t.phase IN ({marks})"
            " ORDER BY t.phase NOT IN ('failed', 'circuit_open', 'awaiting_approval'), t.seq LIMIT ?",
            (parent, *_LOUD, most),
        )
        return [(Kid(*row[:-1]), row[-1]) for row in rows]
