"""A task and its subtasks as a timeline and as a graph, bounded however large the tree is. Read-only."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Phase
from mailboxd.drawing.gantt import Bar
from mailboxd.drawing.graph import Child, Edge, EdgeKind, Graph, Link, Node, Tone, collapse, style_of
from mailboxd.store.reports import Report, Row

MOST_NODES = 200
MOST_CHILDREN = 1_000
"""Children of one task that are read one by one; of more only the number in each phase."""
_NODES_WITH_ENDED = 60
_SINGLED_OUT = 12
_NODE = "t.id, t.local_id, CASE WHEN t.key = '' THEN t.local_id ELSE t.key END, t.phase, t.executor, t.title, t.kids"
_WAITS = "EXISTS (SELECT 1 FROM dependencies d WHERE d.task = t.id)"
_URGENT = tuple(phase.value for phase in Phase if style_of(phase).tone not in (Tone.GOOD, Tone.OFF, Tone.IDLE))


def no_link(_name: str, _stacked: bool) -> str:
    return ""


def task_timeline(report: Report, task_id: str, *, most_tasks: int = -1, most_attempts: int = -1) -> Row:
    """The task and its subtasks in the order of the tree, each with its attempts.

    `rows` holds `task` (local id), `key`, `depth` (0: the task itself), `agent`, `phase`, `title`, `created_at`,
    `completed_at` and `attempts`; `began` and `ended` are the first and last known times (`ended` is None while the
    task is open). Times are ISO-8601 UTC. Of more tasks than `most_tasks` those nearest to the root are kept, of more
    attempts than `most_attempts` the latest; -1 means all.
    """
    below = (
        "WITH RECURSIVE below (id, depth) AS (SELECT ?1, 0 UNION ALL"
        " SELECT t.id, b.depth + 1 FROM below b JOIN tasks t ON t.parent = b.id ORDER BY 2 LIMIT ?2)"
    )
    with report.snapshot():
        tasks = report.rows(
            f"{below} SELECT t.id, t.parent, t.local_id AS task, t.key, t.executor AS agent, t.phase, t.title,"
            " t.created_at, t.completed_at FROM below b JOIN tasks t ON t.id = b.id ORDER BY t.depth, t.seq",
            task_id,
            most_tasks,
        )
        attempts = report.rows(
            f"{below} SELECT a.task, a.ordinal, a.executor AS agent, a.status, a.waiting_for, a.started_at,"
            " a.finished_at, a.error_summary AS error FROM below b JOIN attempts a ON a.task = b.id"
            " ORDER BY a.started_at DESC LIMIT ?3",
            task_id,
            most_tasks,
            most_attempts,
        )
    of_task: dict[str, list[Row]] = {}
    for attempt in sorted(attempts, key=lambda attempt: int(attempt["ordinal"])):
        of_task.setdefault(attempt.pop("task"), []).append(attempt)
    rows = _in_order(tasks, of_task)
    is_open = rows[0]["completed_at"] is None
    times = [time for row in rows for time in _times(row)]
    return {"task": rows[0]["task"], "began": min(times), "ended": None if is_open else max(times), "rows": rows}


def _times(row: Row) -> list[str]:
    ends = [attempt["finished_at"] for attempt in row["attempts"]]
    return [at for at in (row["created_at"], row["completed_at"], *ends) if at]


def _in_order(tasks: list[Row], attempts: dict[str, list[Row]]) -> list[Row]:
    children: dict[str, list[Row]] = {}
    for task in tasks[1:]:
        children.setdefault(task["parent"], []).append(task)
    rows: list[dict[str, Any]] = []
    stack = [(tasks[0], 0)]
    while stack:
        task, depth = stack.pop()
        stack += [(child, depth + 1) for child in reversed(children.get(task["id"], []))]
        named = {name: value for name, value in task.items() if name not in ("id", "parent")}
        rows.append({**named, "depth": depth, "attempts": attempts.get(task["id"], [])})
    return rows


def timeline_bars(rows: Sequence[Row], link: Link = no_link) -> list[Bar]:
    """The attempts in the `rows` of a timeline, as bars to draw."""
    return [
        Bar(
            row["task"],
            to_epoch(attempt["started_at"]),
            to_epoch(attempt["finished_at"]) if attempt["finished_at"] else None,
            attempt["status"],
            f"attempt {attempt['ordinal']} by {attempt['agent']}"
            + (f": {attempt['error']}" if attempt["error"] else ""),
            link(row["task"], False),
        )
        for row in rows
        for attempt in row["attempts"]
    ]


def task_graph(report: Report, task_id: str, *, link: Link = no_link, most: int = MOST_NODES) -> Graph:
    """The task and its subtasks as a graph of at most `most` (10 or more) nodes. Raises KeyError for an unknown id.

    Tasks are added level by level, open ones before ended ones; what is left out is counted at its parent.
    """
    with report.snapshot():
        return _TaskGraph(report, link, most).draw(task_id)


class _TaskGraph:
    def __init__(self, report: Report, link: Link, most: int) -> None:
        self._report = report
        self._link = link
        self._most = most
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._open: list[tuple[bool, int, int, Child]] = []

    def draw(self, task_id: str) -> Graph:
        row = self._report.db.execute(f"SELECT {_NODE} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()
        if row is None:
            raise KeyError(task_id)
        self._add(Child(*row), depth=0)
        while self._open:
            ended, depth, _, kid = heapq.heappop(self._open)
            room = self._most - len(self._nodes)
            if room >= 2 and not (ended and depth and len(self._nodes) + kid.kids > _NODES_WITH_ENDED):
                self._unfold(kid, depth, room)
        return Graph(tuple(self._nodes.values()), tuple(self._edges))

    def _add(self, kid: Child, depth: int) -> None:
        href = self._link(kid.name, False)
        title = f"{kid.name}: {kid.title}"
        self._nodes[kid.id] = Node(kid.id, kid.label, kid.phase, kid.agent, href, title, kid.kids)
        if kid.kids:
            ended = kid.phase in ("completed", "cancelled")
            heapq.heappush(self._open, (ended, depth, len(self._nodes), kid))

    def _unfold(self, parent: Child, depth: int, room: int) -> None:
        node = self._nodes[parent.id]
        self._nodes[parent.id] = Node(node.id, node.label, node.phase, node.note, node.href, node.title)
        if parent.kids > MOST_CHILDREN:
            self._unfold_many(parent, depth, room)
            return
        folded = collapse(parent.id, parent.name, list(self._kids(parent.id)), room, self._link)
        for kid in folded.alone:
            self._add(kid, depth + 1)
        self._nodes |= {stack.id: stack for stack in folded.stacks}
        self._edges += folded.edges

    def _kids(self, parent: str) -> Iterator[Child]:
        db = self._report.db
        needs: dict[str, set[str]] = {}
        sql = "SELECT d.task, d.needs FROM tasks t JOIN dependencies d ON d.task = t.id WHERE t.parent = ?"
        for task, need in db.execute(sql, (parent,)):
            needs.setdefault(task, set()).add(need)
        for row in db.execute(f"SELECT {_NODE} FROM tasks t WHERE t.parent = ? ORDER BY t.seq", (parent,)):
            yield Child(*[*row, frozenset(needs.get(row[0], ()))])

    def _unfold_many(self, parent: Child, depth: int, room: int) -> None:
        """Add two stacks, of tasks without and with dependencies, and a few tasks that need attention."""
        counts = self._counts(parent.id)
        first, second = f"{parent.id}/0", f"{parent.id}/1"
        for kid, waits in self._singled_out(parent.id, min(_SINGLED_OUT, room - 2)):
            counts[waits][kid.phase] -= 1
            self._add(kid, depth + 1)
            self._edges.append(Edge(first, kid.id) if waits else Edge(parent.id, kid.id, EdgeKind.CHILD))
        for stack, waits in ((first, 0), (second, 1)):
            left = {phase: count for phase, count in counts.get(waits, {}).items() if count}
            if left:
                label, title = f"{sum(left.values()):,} tasks", f"children of {parent.name}"
                href = self._link(parent.name, True)
                self._nodes[stack] = Node(stack, label, href=href, title=title, counts=left)
                needs_first = waits and first in self._nodes
                edge = Edge(first, stack) if needs_first else Edge(parent.id, stack, EdgeKind.CHILD)
                self._edges.append(edge)

    def _counts(self, parent: str) -> dict[int, dict[str, int]]:
        counts: dict[int, dict[str, int]] = {}
        sql = f"SELECT {_WAITS}, t.phase, count(*) FROM tasks t WHERE t.parent = ? GROUP BY 1, 2"
        for waits, phase, count in self._report.db.execute(sql, (parent,)):
            counts.setdefault(waits, {})[phase] = count
        return counts

    def _singled_out(self, parent: str, most: int) -> list[tuple[Child, int]]:
        marks = ", ".join("?" * len(_URGENT))
        rows = self._report.db.execute(
            f"SELECT {_NODE}, {_WAITS} FROM tasks t WHERE t.parent = ? AND t.phase IN ({marks})"
            " ORDER BY t.phase NOT IN ('failed', 'circuit_open', 'awaiting_approval'), t.seq LIMIT ?",
            (parent, *_URGENT, most),
        )
        return [(Child(*row[:-1]), row[-1]) for row in rows]
