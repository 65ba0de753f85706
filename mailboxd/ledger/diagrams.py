"""A task and its subtasks as a timeline and as a graph, bounded however large the tree is. Read-only."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mailboxd.core.times import to_epoch, to_text
from mailboxd.core.vocabulary import FAILED, OPERATORS, State, Waiting
from mailboxd.formats.drawing.gantt import Bar, Crowd, Window
from mailboxd.formats.drawing.graph import Child, Edge, EdgeKind, Graph, Link, Node, collapse
from mailboxd.formats.drawing.style import STATE_STYLES, Tone
from mailboxd.ledger.conditions import NEED, STATE
from mailboxd.ledger.reports import Report, Row

MOST_NODES = 200
MOST_CHILDREN = 1_000
"""Children of one task that are read one by one; of more only the number in each state."""
_NODES_WITH_ENDED = 60
_SINGLED_OUT = 12
_LABEL = "CASE WHEN t.key = '' THEN t.local_id ELSE t.key END"
_NODE = f"t.id, t.local_id, {_LABEL}, {STATE}, t.phase, t.executor, t.title, t.kids"
_WAITS = "EXISTS (SELECT 1 FROM dependencies d WHERE d.task = t.id)"
_QUIET = (Tone.GOOD, Tone.OFF, Tone.IDLE)
_URGENT = tuple(str(state) for state, style in STATE_STYLES.items() if style.tone not in _QUIET)


def no_link(_name: str, _stacked: bool) -> str:
    return ""


# A timeline: of many subtasks that ran in the window, most are a crowd, until so few are left that each has
# a line of its own. So it shows more the closer one looks, and stays small.

MOST_LINES = 60
_MOST_LOOKED_AT = 200
"""Tasks, whether they ran in the window or not; one may be below the other."""
_ALONE = 12
"""The most subtasks that have a line each, whenever they ran."""
_ALONE_IN_WINDOW = 40
"""The same for those that ran in the window."""
_SOUGHT = 6
"""If there are more, the number of those that failed, wait, run or have subtasks."""
_PARTS = 120
"""Columns of a crowd."""
_ATTEMPTS = 20
"""Latest attempts of a task that are drawn."""
_ACTIVE = "a.started_at <= ? AND coalesce(a.finished_at, ?) >= ?"


def folded_timeline(
    report: Report, task_id: str, now: str, window: Window | None = None, link: Link = no_link
) -> tuple[list[Bar | Crowd], Window]:
    """The attempts in `window` (default: at any time), on at most `MOST_LINES` lines; and the time of all attempts."""
    with report.snapshot():
        first, last = report.db.execute(
            "SELECT min(started_at), max(coalesce(finished_at, ?2)) FROM attempts"
            " WHERE task = ?1 OR task IN (SELECT id FROM tasks WHERE parent = ?1)",
            (task_id, now),
        ).fetchone()
        ran = (to_epoch(first or now), to_epoch(last or now))
        return _FoldedTimeline(report, now, window or ran, link).draw(task_id), ran


class _FoldedTimeline:
    def __init__(self, report: Report, now: str, window: Window, link: Link) -> None:
        self._report = report
        self._now = now
        self._window = window
        self._active = (to_text(window[1]), now, to_text(window[0]))
        self._link = link
        self._lines: list[Bar | Crowd] = []
        self._count = 0
        self._looked_at = 0

    def draw(self, task_id: str) -> list[Bar | Crowd]:
        name, kids = self._report.db.execute("SELECT local_id, kids FROM tasks WHERE id = ?", (task_id,)).fetchone()
        self._add(task_id, name, kids, name)
        return self._lines

    def _add(self, task_id: str, name: str, kids: int, label: str) -> None:
        """The line of a task and those below it."""
        self._looked_at += 1
        if self._count >= MOST_LINES or self._looked_at > _MOST_LOOKED_AT:
            return
        attempts = self._report.rows(
            "SELECT a.ordinal, a.executor AS agent, a.status, a.started_at, a.finished_at,"
            f" a.error_summary AS error FROM attempts a WHERE a.task = ? AND {_ACTIVE}"
            f" ORDER BY a.ordinal DESC LIMIT {_ATTEMPTS}",
            task_id, *self._active,
        )  # fmt: skip
        self._count += bool(attempts)
        stops = self._stops(task_id) if attempts else []
        for attempt in reversed(attempts):
            self._lines += _bars(label, attempt, stops, self._link(name, False))
        if not kids:
            return
        alone = self._alone(task_id, kids)
        for kid, kid_name, key, below in alone:
            self._add(kid, kid_name, below, f"{label}.{key}" if label != name else key)
        if kids > len(alone):
            self._crowd(task_id, name, [kid for kid, *_ in alone])

    def _stops(self, task_id: str) -> list[_Stop]:
        """When attempts of the task did not run: a question or a permission was open, or all of its subtasks wait."""
        found = [*_questions(self._report, task_id)]
        found += [
            _Stop(to_epoch(start), to_epoch(end) if end else None, State.NEEDS_YOU)
            for start, end in self._report.db.execute(
                "SELECT at, resolved_at FROM approvals WHERE task = ? AND purpose = 'permission'", (task_id,)
            )
        ]
        since = self._report.db.execute(
            "SELECT (SELECT max(c.updated_at) FROM tasks c WHERE c.parent = t.id) FROM tasks t"
            f" WHERE t.id = ? AND t.kids > 0 AND {NEED} = 'subtasks'",
            (task_id,),
        ).fetchone()
        if since:
            found.append(_Stop(to_epoch(since[0]), None, State.NEEDS_YOU))
        return sorted(found, key=lambda stop: stop.start)

    def _alone(self, parent: str, kids: int) -> list[tuple[str, str, str, int]]:
        """The subtasks that get a line each: all, those that ran in the window, or those that people look for."""
        columns = f"SELECT t.id, t.local_id, {_LABEL}, t.kids FROM tasks t"
        if kids <= _ALONE:
            return self._report.db.execute(f"{columns} WHERE t.parent = ? ORDER BY t.seq", (parent,)).fetchall()
        ran = self._report.db.execute(
            f"{columns} WHERE t.parent = ? AND EXISTS (SELECT 1 FROM attempts a WHERE a.task = t.id AND {_ACTIVE})"
            f" ORDER BY t.seq LIMIT {_ALONE_IN_WINDOW + 1}",
            (parent, *self._active),
        ).fetchall()
        if len(ran) <= _ALONE_IN_WINDOW:
            return ran
        marks = ", ".join("?" * len(_URGENT))
        return self._report.db.execute(
            f"{columns} WHERE t.parent = ? AND (t.kids > 0 OR {STATE} IN ({marks}))"
            f" ORDER BY {STATE} NOT IN ('{FAILED}', '{State.NEEDS_YOU}'), t.seq LIMIT {_SOUGHT}",
            (parent, *_URGENT),
        ).fetchall()

    def _crowd(self, parent: str, name: str, alone: Sequence[str]) -> None:
        start, end = self._window
        began, failed = [0] * _PARTS, [0] * _PARTS
        rows = self._report.db.execute(
            "SELECT min(max(CAST((julianday(a.started_at) - julianday(?)) * 86400 / ? AS INTEGER), 0), ?), count(*),"
            " count(*) FILTER (WHERE a.status IN ('failed', 'unknown'))"
            f" FROM tasks t JOIN attempts a ON a.task = t.id WHERE t.parent = ? AND {_ACTIVE}"
            " AND t.id NOT IN (SELECT value FROM json_each(?)) GROUP BY 1",
            (to_text(start), max(end - start, 1.0) / _PARTS, _PARTS - 1, parent, *self._active, json.dumps(alone)),
        ).fetchall()  # fmt: skip
        for part, some, bad in rows:
            began[part], failed[part] = some, bad
        if rows:
            self._count += 1
            count = f"{sum(some for _, some, _ in rows):,} attempts more"
            self._lines.append(Crowd(count, began, failed, self._link(name, True)))


@dataclass(frozen=True, slots=True)
class _Stop:
    """A time, in seconds since 1970, in which a task waited for an answer; `end` is None while it does."""

    start: float
    end: float | None
    state: State


def _questions(report: Report, task_id: str) -> Iterator[_Stop]:
    """The times in which a question of the task was open. One that a person is to answer needs them."""
    rows = report.db.execute(
        "SELECT at, kind = 'question.asked', json_extract(data, '$.to') FROM (SELECT seq, at, kind, data,"
        " coalesce(json_extract(data, '$.attempt_changes.waiting_for'), json_extract(data, '$.changes.waiting_for'))"
        " AS waiting FROM events WHERE task = ?) WHERE kind IN ('question.asked', 'attempt.ended', 'attempt.finished')"
        " OR waiting NOT IN (?, '') ORDER BY seq",
        (task_id, Waiting.ANSWER),
    )
    asked, state = None, State.WAITING
    for at, again, to in rows:
        if asked is not None and asked < to_epoch(at):
            yield _Stop(asked, to_epoch(at), state)
        asked, state = to_epoch(at) if again else None, State.NEEDS_YOU if to in OPERATORS else State.WAITING
    if asked is not None:
        yield _Stop(asked, None, state)


def _bars(name: str, attempt: Row, stops: Sequence[_Stop], href: str) -> Iterator[Bar]:
    """An attempt, without the times in which it waited for an answer; these have bars of their own."""
    note = f"attempt {attempt['ordinal']} by {attempt['agent']}" + (f": {attempt['error']}" if attempt["error"] else "")
    end = to_epoch(attempt["finished_at"]) if attempt["finished_at"] else None
    start: float | None = to_epoch(attempt["started_at"])
    for stop in stops:
        if start is None or stop.start < start or (end is not None and stop.start >= end):
            continue
        if stop.start > start:
            yield Bar(name, start, stop.start, attempt["status"], note, href)
        start = stop.end if end is None or stop.end is None else min(stop.end, end)
        yield Bar(name, stop.start, start, stop.state, note, href)
    if start is not None and start != end:
        yield Bar(name, start, end, attempt["status"], note, href)


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
        title, heading = f"{kid.name}: {kid.title}", kid.title if kid.title != kid.label else ""
        node = Node(kid.id, kid.label, kid.state, kid.phase, kid.agent, href, title, kid.kids, heading=heading)
        self._nodes[kid.id] = node
        if kid.kids:
            heapq.heappush(self._open, (kid.is_quiet, depth, len(self._nodes), kid))

    def _unfold(self, parent: Child, depth: int, room: int) -> None:
        node = self._nodes[parent.id]
        self._nodes[parent.id] = replace(node, below=0)
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
            counts[waits][kid.state] -= 1
            self._add(kid, depth + 1)
            self._edges.append(Edge(first, kid.id) if waits else Edge(parent.id, kid.id, EdgeKind.CHILD))
        for stack, waits in ((first, 0), (second, 1)):
            left = {state: count for state, count in counts.get(waits, {}).items() if count}
            if left:
                label, title = f"{sum(left.values()):,} tasks", f"children of {parent.name}"
                href = self._link(parent.name, True)
                self._nodes[stack] = Node(stack, label, href=href, title=title, counts=left)
                needs_first = waits and first in self._nodes
                edge = Edge(first, stack) if needs_first else Edge(parent.id, stack, EdgeKind.CHILD)
                self._edges.append(edge)

    def _counts(self, parent: str) -> dict[int, dict[str, int]]:
        counts: dict[int, dict[str, int]] = {}
        sql = f"SELECT {_WAITS}, {STATE}, count(*) FROM tasks t WHERE t.parent = ? GROUP BY 1, 2"
        for waits, state, count in self._report.db.execute(sql, (parent,)):
            counts.setdefault(waits, {})[state] = count
        return counts

    def _singled_out(self, parent: str, most: int) -> list[tuple[Child, int]]:
        marks = ", ".join("?" * len(_URGENT))
        rows = self._report.db.execute(
            f"SELECT {_NODE}, {_WAITS} FROM tasks t WHERE t.parent = ? AND {STATE} IN ({marks})"
            f" ORDER BY {STATE} NOT IN ('{FAILED}', '{State.NEEDS_YOU}'), t.seq LIMIT ?",
            (parent, *_URGENT, most),
        )
        return [(Child(*row[:-1]), row[-1]) for row in rows]
