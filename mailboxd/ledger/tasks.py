"""Tasks, their neighbours and approvals. Each query costs O(its neighbours), never O(the tree)."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mailboxd.core import lifecycle
from mailboxd.core.approvals import Approval
from mailboxd.core.effects import CreateChildren
from mailboxd.core.followed import name_of_unknown, unknown
from mailboxd.core.json_codec import from_json
from mailboxd.core.lifecycle import BEFORE_EXECUTION, review_round
from mailboxd.core.model import NO_FLOW, Attempt, Finding, NewChild, Task
from mailboxd.core.task_view import (
    AskedReviewer,
    CheckRun,
    ChildCounts,
    Family,
    Followed,
    Level,
    Need,
    Review,
    TaskView,
)
from mailboxd.core.vocabulary import CheckVerdict, Gate, Join, Phase, Verdict
from mailboxd.host.ids import slug
from mailboxd.ledger.claims import conflicts
from mailboxd.ledger.conditions import ENDED, OPEN, SOME_HELD, may_act
from mailboxd.ledger.row_mapping import (
    APPROVAL,
    ATTEMPT,
    COUNTS,
    TASK,
    TASK_COLUMNS,
    read_approval,
    read_attempt,
    read_task,
)
from mailboxd.ledger.task_cache import AWAITED, HELD, STEERED, Counts, TaskCache

ASKING = frozenset({Phase.EXECUTING, Phase.AWAITING_APPROVAL, Phase.READY_TO_RESUME})
"""Phases in which approvals matter to every decision."""
_ACTS = "('prepare', 'perform')"
_GATES = {Phase(gate.value) for gate in Gate}
_HAS_NOT_ARRIVED = f"needs >= '{unknown('')}' AND needs < '{chr(ord(unknown('')) + 1)}'"
_ANY_AWAITED = f"SELECT 1 FROM dependencies WHERE {_HAS_NOT_ARRIVED} LIMIT 1"

_DIGEST = re.compile(r"-[0-9a-f]{8}(-[0-9]+)?$")
_SUFFIX = "-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"
_CALLED = (
    "SELECT id, local_id, title, seq FROM tasks WHERE parent IS NULL"
    " AND local_id COLLATE NOCASE BETWEEN ?1 AND ?1 || '-g' AND (length(local_id) = length(?1)"
    f" OR substr(local_id, length(?1) + 1) GLOB '{_SUFFIX}'"
    f" OR substr(local_id, length(?1) + 1) GLOB '{_SUFFIX}-[0-9]*')"
    " UNION SELECT id, local_id, title, seq FROM tasks WHERE parent IS NULL AND title = ?1 COLLATE NOCASE"
)


def is_called(name: str, local_id: str, title: str) -> bool:
    """Whether a person may call this root task `name`: its local id, the file that brought it, or its title.

    A dropped file `plan.md` becomes a task `plan-0a1b2c3d`, and `plan-0a1b2c3d-2` when it is dropped again.
    """
    stem = _DIGEST.sub("", local_id)
    own = {local_id.casefold(), stem.casefold(), title.casefold()}
    return not own.isdisjoint({name.casefold(), slug(name) or name.casefold()})


def root_called(db: sqlite3.Connection, name: str) -> str | None:
    """The id of the root task that a person calls `name` (see `is_called`): the one with that id, else the latest."""
    found: dict[str, tuple[bool, int]] = {}
    for spelling in dict.fromkeys(filter(None, (name, slug(name)))):
        for task_id, local_id, title, seq in db.execute(_CALLED, (spelling,)):
            if is_called(name, local_id, title):
                found[task_id] = (local_id.casefold() == name.casefold(), seq)
    return max(found, key=found.__getitem__) if found else None


def declared_answers(line: Iterable[Task]) -> tuple[str, ...]:
    """As `Tasks.declared_answers`, of the first of these tasks: one and its ancestors, nearest first."""
    for at, node in enumerate(line):
        if at and not (node.broadcast or node.body is not None):
            break
        if node.flow.answers:
            return node.flow.answers
    return ()


class Tasks:
    """Finds tasks, their attempts, reviews and relatives; reads from the cache where it can."""

    def __init__(self, db: sqlite3.Connection, cache: TaskCache, approvals: Approvals) -> None:
        self._db = db
        self._cache = cache
        self._approvals = approvals

    def get(self, task_id: str) -> Task | None:
        if self._db.in_transaction and (cached := self._cache.tasks.get(task_id)) is not None:
            return cached
        return self._of_row(self._db.execute(f"SELECT {TASK} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone())

    def places(self, task_ids: Iterable[str]) -> list[tuple[str, str | None, str]]:
        """Of those of these tasks that exist: id, parent and mode."""
        known = self._cache.tasks if self._db.in_transaction else {}
        cached = {task_id: task for task_id in task_ids if (task := known.get(task_id)) is not None}
        found: list[tuple[str, str | None, str]] = [(task.id, task.parent, task.mode) for task in cached.values()]
        if others := [task_id for task_id in task_ids if task_id not in cached]:
            sql = "SELECT id, parent, mode FROM tasks WHERE id IN (SELECT value FROM json_each(?))"
            found += self._db.execute(sql, (json.dumps(others),)).fetchall()
        return found

    def _of_row(self, row: Sequence[Any] | None) -> Task | None:
        """Read a task, from the first columns of a row; inside a transaction also cache it."""
        if row is None:
            return None
        if not self._db.in_transaction:
            return read_task(row[: len(TASK_COLUMNS)])
        task = self._cache.tasks.get(row[0])
        if task is None:
            task = read_task(row[: len(TASK_COLUMNS)])
            self._cache.keep(task)
        return task

    def attempt(self, task_id: str, ordinal: int) -> Attempt | None:
        """The attempt with this number; the first is 1."""
        if not ordinal:
            return None
        cached = self._cache.attempts.get(task_id) if self._db.in_transaction else None
        if cached is not None and cached.ordinal == ordinal:
            return cached
        sql = f"SELECT {ATTEMPT} FROM attempts WHERE task = ? AND ordinal = ?"
        row = self._db.execute(sql, (task_id, ordinal)).fetchone()
        if row is None:
            return None
        attempt = read_attempt(row)
        if self._db.in_transaction and (task := self._cache.tasks.get(task_id)) and task.attempt == ordinal:
            self._cache.attempts[task_id] = attempt
        return attempt

    def with_ancestors(self, task_id: str) -> list[Task]:
        """The task and its ancestors, nearest first."""
        line: list[Task] = []
        above: str | None = task_id
        while above is not None and (task := self.get(above)) is not None:
            line.append(task)
            above = task.parent
        return line

    def by_local_id(self, local_id: str) -> Task | None:
        row = self._db.execute(f"SELECT {TASK} FROM tasks t WHERE t.local_id = ?", (local_id,)).fetchone()
        return self._of_row(row)

    def is_unused(self, local_id: str) -> bool:
        return self._db.execute("SELECT 1 FROM tasks WHERE local_id = ?", (local_id,)).fetchone() is None

    def local_id(self, task_id: str) -> str:
        row = self._db.execute("SELECT local_id FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return "" if row is None else row[0]

    def names(self, task_id: str) -> tuple[str, str, str | None]:
        """Local id, id of the root, and the traceparent of the root; empty for an unknown id."""
        row = self._db.execute(
            "SELECT t.local_id, r.id, json_extract(r.origin, '$.traceparent') FROM tasks t"
            " JOIN tasks r ON r.id = t.root WHERE t.id = ?",
            (task_id,),
        ).fetchone()
        return ("", "", None) if row is None else row

    def by_work(self, sender: str, task_id: str, subtask_id: str | None) -> Task | None:
        """The root task with this identity (protocol section 2: sender, task and subtask)."""
        row = self._db.execute(
            "SELECT id FROM tasks WHERE task_id = ? AND subtask_id IS ? AND sender = ? AND parent IS NULL",
            (task_id, subtask_id, sender),
        ).fetchone()
        return None if row is None else self.get(row[0])  # usually cached

    def root_called(self, name: str) -> Task | None:
        """The root task that a person calls `name`."""
        found = root_called(self._db, name)
        return None if found is None else self.get(found)

    def await_unknown(self) -> list[tuple[str, str]]:
        """The open root tasks that follow one that has not arrived, each with a name of such a one."""
        if self._cache.is_absent(AWAITED, _ANY_AWAITED):
            return []
        rows = self._db.execute(
            "SELECT d.task, d.needs FROM dependencies d JOIN tasks t ON t.id = d.task"
            f" WHERE {_HAS_NOT_ARRIVED} AND {OPEN} ORDER BY t.seq"
        )
        return [(task, name_of_unknown(need)) for task, need in rows]

    def needs(self, task_id: str) -> list[str]:
        """The ids of the direct dependencies; for tasks that have not arrived, what stands for them."""
        rows = self._db.execute("SELECT needs FROM dependencies WHERE task = ? ORDER BY needs", (task_id,))
        return [need for (need,) in rows]

    def child(self, parent_local_id: str, key: str) -> Task | None:
        """The child that a reply addresses by task_id and subtask_id."""
        row = self._db.execute(
            f"SELECT {TASK} FROM tasks p JOIN tasks t ON t.parent = p.id WHERE p.local_id = ? AND t.key = ?",
            (parent_local_id, key),
        ).fetchone()
        return self._of_row(row)

    def keys_of_children(self, task_id: str) -> tuple[str, ...]:
        rows = self._db.execute("SELECT key FROM tasks WHERE parent = ? ORDER BY seq", (task_id,))
        return tuple(key for (key,) in rows)

    def delegated_root(self, task_id: str, subtask_id: str, agent: str) -> Task | None:
        """The root task that was escalated to `agent`, by the ids in its dispatch."""
        row = self._db.execute(
            f"SELECT {TASK} FROM tasks t JOIN attempts a ON a.task = t.id AND lower(a.executor) = lower(?3)"
            " WHERE t.task_id = ?1 AND coalesce(t.subtask_id, t.local_id) = ?2 AND t.parent IS NULL LIMIT 1",
            (task_id, subtask_id, agent),
        ).fetchone()
        return self._of_row(row)

    def had_attempt(self, task_id: str, attempt_id: str | None, agent: str) -> bool:
        """Whether this attempt of the task was assigned to `agent`."""
        row = self._db.execute(
            "SELECT 1 FROM attempts WHERE id = ? AND task = ? AND lower(executor) = lower(?)",
            (attempt_id, task_id, agent),
        ).fetchone()
        return row is not None

    def view(self, task_id: str, *, family: bool = False, approvals: bool = False) -> TaskView:
        """The task and the state of its neighbours.

        `family` adds what the admission of a plan needs; `approvals` adds approvals in any phase.
        """
        task, counts = self._with_counts(task_id)
        parent = None if task.parent is None else self.get(task.parent)
        unmet = counts.unmet
        in_gate = task.phase in _GATES
        asking = counts.asked and (approvals or task.phase in ASKING)
        acting = task.planned_actions and (approvals or task.phase in ASKING)
        early = task.phase in BEFORE_EXECUTION or task.skipped  # which a retry reopens
        strict = unmet and parent is not None and not task.flow.needs_any
        cancelled_need, need_skipped = (strict and self.cancelled_dependency(task_id)) or ("", 0)
        return TaskView(
            task=task,
            attempt=self.attempt(task_id, task.attempt),
            parent_phase=None if parent is None else parent.phase,
            unmet=unmet,
            claimed_by=next((found.holder for found in conflicts(self._db, task_id)), "") if task.claims else "",
            cancelled_need=cancelled_need,
            need_skipped=bool(need_skipped),
            followed=self.followed(task_id) if unmet and parent is None and early else (),
            needs=self._needs(task_id) if task.flow != NO_FLOW and not unmet and early else (),
            children=ChildCounts(counts.kids, counts.kids_completed, counts.kids_failed, counts.kids_cancelled),
            children_due=bool(counts.children_due),
            failed_child=self._failed_child(task_id) if counts.kids_failed else "",
            answers=self._answers(task_id) if task.broadcast and task.policy.join is Join.MAJORITY else (),
            reviews=self._reviews(task.id, task.phase, review_round(task)) if in_gate else (),
            asked_reviewers=self._asked(task) if in_gate else (),
            check_runs=self.check_runs(task) if in_gate and task.spec.checks else (),
            ordered_checks=self._ordered_checks(task_id) if in_gate and task.spec.checks else (),
            turns=counts.calls,
            spent=counts.spent,
            approvals=self._approvals.of_task(task_id) if asking else (),
            ordered_acts=self._approvals.ordered_acts(task_id) if acting else frozenset(),
            family=self.family(task) if family else None,
        )

    def _with_counts(self, task_id: str) -> tuple[Task, Counts]:
        """The task and what the rows count for it, in one query. Raises KeyError for an unknown id."""
        if self._db.in_transaction:
            task, known = self._cache.tasks.get(task_id), self._cache.counts.get(task_id)
            if task is not None and known is not None:
                return task, known
        row = self._db.execute(f"SELECT {TASK}, {COUNTS} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()
        task = self._of_row(row)
        if task is None:
            raise KeyError(task_id)
        counts = Counts.of_row(row[len(TASK_COLUMNS) :])
        if self._db.in_transaction:
            self._cache.keep_counts(task_id, counts)
        return task, counts

    def counts(self, task_id: str) -> Counts:
        """What the rows count for a task. Raises KeyError for an unknown id."""
        known = self._cache.counts.get(task_id) if self._db.in_transaction else None
        return known or self._with_counts(task_id)[1]

    def cancelled_dependency(self, task_id: str) -> tuple[str, int] | None:
        """The key of a dependency that was cancelled for good, and whether it was skipped."""
        found: tuple[str, int] | None = self._db.execute(
            "SELECT n.key, n.skipped FROM dependencies d JOIN tasks n ON n.id = d.needs"
            " WHERE d.task = ? AND n.phase = 'cancelled' AND NOT n.cancelled_with_parent ORDER BY n.seq LIMIT 1",
            (task_id,),
        ).fetchone()
        return found

    def followed(self, task_id: str) -> tuple[Followed, ...]:
        """The tasks that a root task follows, also those that have not arrived."""
        rows = self._db.execute(
            "SELECT d.needs, n.local_id, n.phase FROM dependencies d LEFT JOIN tasks n ON n.id = d.needs"
            " WHERE d.task = ? ORDER BY n.seq IS NULL, n.seq, d.needs",
            (task_id,),
        )
        return tuple(
            Followed(need, name or name_of_unknown(need), None if phase is None else Phase(phase))
            for need, name, phase in rows
        )

    def _needs(self, task_id: str) -> tuple[Need, ...]:
        """The task's dependencies with their answers."""
        return tuple(
            Need(need.key, lifecycle.vote(need.answer, need.result) if need.phase is Phase.COMPLETED else None)
            for need in self.dependencies(task_id)
        )

    def declared_answers(self, task_id: str) -> tuple[str, ...]:
        """The answers of which the task has to declare one: its own, or those of the broadcast that it is a copy of, or
        of the child whose round it is. Empty: none is asked for.
        """
        return declared_answers(self.with_ancestors(task_id))

    def choosing_dependents(self, task_id: str) -> list[str]:
        """Ids of open tasks that this one may let run, or be skipped, by its answer."""
        if not self._some_choose():
            return []
        rows = self._db.execute(
            "SELECT t.id FROM dependencies d JOIN tasks t ON t.id = d.task"
            f" WHERE d.needs = ? AND t.flow <> '{{}}' AND {OPEN} ORDER BY t.seq",
            (task_id,),
        )
        return [row[0] for row in rows]

    def _some_choose(self) -> bool:
        """Whether any open task has a flow."""
        if self._cache.some_choose is None or not self._db.in_transaction:
            sql = f"SELECT 1 FROM tasks INDEXED BY tasks_open WHERE flow <> '{{}}' AND {OPEN} LIMIT 1"
            found = self._db.execute(sql).fetchone() is not None
            if not self._db.in_transaction:
                return found
            self._cache.some_choose = found
        return self._cache.some_choose

    def open_dependents(self, task_id: str) -> list[str]:
        rows = self._db.execute(
            "SELECT t.id FROM dependencies d JOIN tasks t ON t.id = d.task"
            f" WHERE d.needs = ? AND {OPEN} ORDER BY t.seq",
            (task_id,),
        )
        return [row[0] for row in rows]

    def _failed_child(self, task_id: str) -> str:
        row = self._db.execute(
            "SELECT key, coalesce(nullif(error, ''), reason) FROM tasks"
            " WHERE parent = ? AND phase = 'failed' ORDER BY seq LIMIT 1",
            (task_id,),
        ).fetchone()
        return f"child {row[0]} failed: {row[1]}"

    def _answers(self, task_id: str) -> tuple[tuple[str, int], ...]:
        completed = "SELECT answer, result FROM tasks WHERE parent = ? AND phase = 'completed'"
        return lifecycle.count_votes(self._db.execute(completed, (task_id,)))

    def previous_reviews(self, task: Task) -> tuple[Review, ...]:
        """The reviews of the previous round at the current gate."""
        row = self._db.execute(
            "SELECT max(round) FROM reviews WHERE task = ? AND gate = ? AND round < ?",
            (task.id, task.phase, review_round(task)),
        ).fetchone()
        return () if row[0] is None else self._reviews(task.id, task.phase, row[0])

    def result_reviews(self, task: Task) -> tuple[Review, ...]:
        """The reviews of the present result, at both gates that it passes."""
        gates = (Gate.SPEC_GATE, Gate.QUALITY_GATE)
        return tuple(review for gate in gates for review in self._reviews(task.id, gate, task.attempt))

    def _reviews(self, task_id: str, gate: str, round_: int) -> tuple[Review, ...]:
        rows = self._db.execute(
            "SELECT gate, reviewer, verdict, summary, findings, coalesce(given_at, '') FROM reviews"
            " WHERE task = ? AND gate = ? AND round = ? ORDER BY id",
            (task_id, gate, round_),
        )
        return tuple(
            Review(
                Gate(gate),
                reviewer,
                Verdict(verdict),
                summary,
                tuple(Finding(**item) for item in json.loads(findings)),
                given_at,
            )
            for gate, reviewer, verdict, summary, findings, given_at in rows
        )

    def _asked(self, task: Task) -> tuple[AskedReviewer, ...]:
        rows = self._db.execute(
            "SELECT reviewer, times, failures, stalls FROM review_requests"
            " WHERE task = ? AND gate = ? AND round = ? ORDER BY reviewer",
            (task.id, task.phase, review_round(task)),
        )
        return tuple(AskedReviewer(*row) for row in rows)

    def files(self, task_id: str) -> list[tuple[str, str, str]]:
        """The files of the workspace that were recorded as made for a task: path, SHA-256 and summary."""
        rows = self._db.execute(
            "SELECT substr(uri, 11), sha256, summary FROM artifacts"
            " WHERE task = ? AND uri LIKE 'workspace:%' ORDER BY id",
            (task_id,),
        )
        return [(path, sha256, summary) for path, sha256, summary in rows]

    def check_runs(self, task: Task) -> tuple[CheckRun, ...]:
        """The results of the spec's checks for the latest attempt, in the order of the spec."""
        rows = self._db.execute(
            "SELECT c.id, c.verdict, c.summary FROM check_runs c JOIN attempts a ON a.id = c.attempt"
            " WHERE c.task = ? AND a.ordinal = ?",
            (task.id, task.attempt),
        )
        runs = {name: CheckRun(name, CheckVerdict(verdict), summary) for name, verdict, summary in rows}
        return tuple(runs[check.id] for check in task.spec.checks if check.id in runs)

    def _ordered_checks(self, task_id: str) -> tuple[str, ...]:
        rows = self._db.execute(
            "SELECT json_extract(data, '$.check.id') FROM outbox WHERE task = ? AND kind = 'run_check'"
            " AND state = 'pending'",
            (task_id,),
        )
        return tuple(row[0] for row in rows)

    def family(self, task: Task) -> Family:
        """The children of `task` and the levels around it, innermost first."""
        above = self.lineage(task)
        outer = [self._level_as_waiting(one.parent, one.key) for one in reversed(above) if one.parent is not None]
        tree = self._db.execute("SELECT tree_tasks FROM tasks WHERE id = ?", (task.root,)).fetchone()[0]
        return Family(self._level_as_waiting(task.id, ""), tuple(outer), tree, above)

    def lineage(self, task: Task) -> tuple[Task, ...]:
        """The tasks from the root down to this one."""
        return (task,) if task.parent is None else (*self.with_ancestors(task.parent)[::-1], task)

    def _level_as_waiting(self, parent: str, node: str) -> Level:
        """The level with indirect dependencies: a descendant of one of its tasks may need another of its tasks."""
        level = self._level(parent, node)
        needs = {key: list(names) for key, names in level.nodes.items()}
        rows = self._db.execute(
            "SELECT t.parent, n.key FROM tasks n JOIN dependencies d ON d.needs = n.id JOIN tasks t ON t.id = d.task"
            " WHERE n.parent = ?1 AND t.parent <> ?1",
            (parent,),
        ).fetchall()
        for above, need in rows:
            while (row := self._db.execute("SELECT parent, key FROM tasks WHERE id = ?", (above,)).fetchone())[
                0
            ] != parent:
                above = row[0]
            needs[row[1]].append(need)
        return Level(needs, node, level.ids)

    def _level(self, parent: str, node: str) -> Level:
        keys: dict[str, str] = dict(
            self._db.execute("SELECT key, id FROM tasks WHERE parent = ? ORDER BY seq", (parent,))
        )
        needs: dict[str, list[str]] = {key: [] for key in keys}
        rows = self._db.execute(
            "SELECT t.key, n.key FROM tasks t JOIN dependencies d ON d.task = t.id JOIN tasks n ON n.id = d.needs"
            " WHERE t.parent = ?",
            (parent,),
        )
        for key, need in rows:
            needs[key].append(need)
        for new in self._children_due(parent):
            keys[new.planned.key], needs[new.planned.key] = new.id, list(new.planned.depends_on)
        return Level(needs, node, keys)

    def _children_due(self, parent: str) -> Iterator[NewChild]:
        """The children of its plan that are still to be created."""
        rows = self._db.execute(
            "SELECT data FROM outbox WHERE task = ? AND kind = 'create_children' AND state = 'pending' ORDER BY seq",
            (parent,),
        )
        for (text,) in rows:
            yield from from_json(CreateChildren, json.loads(text)).children

    def needs_by_key(self, parent: str) -> Mapping[str, Sequence[str]]:
        """The keys of each child's dependencies, for children that have any."""
        return {key: needs for key, needs in self._level(parent, "").nodes.items() if needs}

    def open_children(self, task_id: str) -> list[str]:
        rows = self._db.execute(f"SELECT id FROM tasks WHERE parent = ? AND {OPEN} ORDER BY seq", (task_id,))
        return [row[0] for row in rows]

    def has_open_children(self, task_id: str) -> bool:
        counts = self.counts(task_id)
        return counts.kids > counts.kids_completed + counts.kids_failed + counts.kids_cancelled

    def reopenable_below(self, task_id: str, also: str, *, open_circuits: bool = False) -> list[str]:
        """Ids of descendants that failed or were cancelled with their parent, parents first.

        Leaves out what is below completed tasks and below those cancelled on their own. Tasks with an open circuit are
        included if `open_circuits` is set; `also` always is.
        """
        rows = self._db.execute(
            "WITH RECURSIVE below (id) AS (SELECT id FROM tasks WHERE parent = ?"
            " UNION ALL SELECT t.id FROM below b JOIN tasks p ON p.id = b.id JOIN tasks t ON t.parent = p.id"
            " WHERE p.phase NOT IN ('spec_gate', 'quality_gate', 'awaiting_approval', 'ready_to_resume', 'completed')"
            " AND (p.phase <> 'cancelled' OR p.cancelled_with_parent))"
            " SELECT t.id FROM tasks t JOIN below b ON b.id = t.id"
            " WHERE t.phase = 'failed' OR (t.phase = 'cancelled' AND t.cancelled_with_parent) OR t.id = ?"
            " OR (? AND t.phase = 'circuit_open') ORDER BY t.depth, t.seq",
            (task_id, also, open_circuits),
        )
        return [row[0] for row in rows]

    def dependents(self, task_id: str) -> list[Task]:
        """Tasks that depend on this one directly."""
        rows = self._db.execute(
            f"SELECT {TASK} FROM dependencies d JOIN tasks t ON t.id = d.task WHERE d.needs = ? ORDER BY t.seq",
            (task_id,),
        )
        return self._of_rows(rows.fetchall())

    def children(self, task_id: str) -> list[Task]:
        rows = self._db.execute(f"SELECT {TASK} FROM tasks t WHERE t.parent = ? ORDER BY t.seq", (task_id,))
        return self._of_rows(rows.fetchall())

    def _of_rows(self, rows: Sequence[Sequence[Any]]) -> list[Task]:
        """Read tasks; the cache may have most of them."""
        known = self._cache.tasks if self._cache.is_current() else {}
        return [known.get(row[0]) or read_task(row) for row in rows]

    def dependencies(self, task_id: str) -> list[Task]:
        """The direct dependencies, oldest first. They have usually just ended, and are in the cache."""
        needs, counts = self._cache.needs.get(task_id), self._cache.counts
        if needs is None or not self._db.in_transaction or (len(needs) > 1 and not counts.keys() >= {*needs}):
            sql = "SELECT t.id FROM dependencies d JOIN tasks t ON t.id = d.needs WHERE d.task = ? ORDER BY t.seq"
            needs = tuple(row[0] for row in self._db.execute(sql, (task_id,)))
        elif len(needs) > 1:
            needs = tuple(sorted(needs, key=lambda need: counts[need].seq))
        return [task for needed in needs if (task := self.get(needed)) is not None]

    def count(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM tasks").fetchone()[0])

    def open_ids(self) -> list[str]:
        """Ids of open tasks, oldest first."""
        rows = self._db.execute(f"SELECT id FROM tasks WHERE {OPEN} ORDER BY seq")
        return [row[0] for row in rows]

    def needing_attention(self) -> list[str]:
        """Local ids of tasks that are held or have an open circuit, oldest first."""
        rows = self._db.execute(
            f"SELECT local_id FROM tasks WHERE {OPEN} AND (held <> '' OR phase = 'circuit_open') ORDER BY seq"
        )
        return [row[0] for row in rows]

    def open_with_file(self) -> list[tuple[str, str]]:
        """Id and local id of open tasks with a task.md of their own."""
        return self._db.execute(
            f"SELECT id, local_id FROM tasks WHERE {OPEN} AND (parent IS NULL OR mode = 'coordinating')"
        ).fetchall()

    def tree_ended_at(self, local_id: str) -> str | None:
        """When the whole tree of a task ended; None while it is open or the task's file is stale."""
        row = self._db.execute(
            "SELECT r.completed_at FROM tasks t JOIN tasks r ON r.id = t.root WHERE t.local_id = ?"
            f" AND r.phase IN {ENDED}"
            " AND NOT EXISTS (SELECT 1 FROM stale_files s WHERE s.task = t.id)",
            (local_id,),
        ).fetchone()
        return None if row is None else row[0]

    def waiting_for_circumstances(self) -> list[str]:
        """Ids of open tasks whose state depends on the configuration or on who can be reached: held, at a gate, or with
        an incomplete spec.
        """
        phases = ", ".join(f"'{phase}'" for phase in sorted({Phase.SPEC_DRAFT, *_GATES}))
        rows = self._db.execute(
            f"SELECT id FROM tasks WHERE (held <> '' OR phase IN ({phases})) AND {OPEN} ORDER BY depth, seq"
        )
        return [row[0] for row in rows]

    def unread_instructions(self) -> list[tuple[str, str, str]]:
        """The executor, session and instructions of each running attempt whose agent has not read them.

        As of the latest transaction of this process, if there was none then.
        """
        if STEERED in self._cache.absent:
            return []
        found = self._db.execute(
            "SELECT executor, session_key, steered FROM attempts INDEXED BY attempts_steered"
            " WHERE steered <> '' AND status = 'running'"
        ).fetchall()
        if not found:
            self._cache.absent.add(STEERED)
        return found

    def reported(self, after: int, most: int) -> tuple[list[tuple[str, str]], int]:
        """Open tasks of peers and sessions, at most `most` after the event `after`, each with what its sender was told.

        Also returns the event of the last one; 0 if there are no more.
        """
        rows = self._db.execute(
            "SELECT id, seq,"
            " coalesce((SELECT w.waits_for || ': ' || w.why FROM waits_told w WHERE w.task = tasks.id), '')"
            f" FROM tasks WHERE parent IS NULL AND {OPEN} AND seq > ?1"
            " AND (json_extract(origin, '$.attempt_id') IS NOT NULL"
            " OR json_extract(origin, '$.reply_to') GLOB 'session:*'"
            " OR json_extract(origin, '$.reply_to') GLOB 'wake:*')"
            " ORDER BY seq LIMIT ?2",
            (after, most),
        ).fetchall()
        last = rows[-1][1] if len(rows) == most else 0
        return [(task_id, told) for task_id, _, told in rows], last

    def is_held(self, task_id: str) -> bool:
        """Whether the task or an ancestor is held, or an order is about to end one of them."""
        if self.none_held():
            return False
        ending = {row[0] for row in self._db.execute("SELECT task FROM held_orders")}
        return any(task.held or task.id in ending for task in self.with_ancestors(task_id))

    def may_act(self, task_id: str) -> bool:
        """Whether an approved action of the task may begin: nobody has paused or is about to end it, or one above."""
        return bool(self._db.execute(f"SELECT {may_act('?')}", (task_id,)).fetchone()[0])

    def none_held(self) -> bool:
        """Whether no task is held or about to be ended; outside of a transaction, some may be."""
        return self._db.in_transaction and self._cache.is_absent(HELD, f"{SOME_HELD} LIMIT 1")

    def has_open_from(self, sender: str, count: int) -> bool:
        """Whether `sender` has at least `count` (1 or more) open root tasks."""
        row = self._db.execute(
            f"SELECT 1 FROM tasks WHERE sender = ? COLLATE NOCASE AND parent IS NULL AND {OPEN} LIMIT 1 OFFSET ?",
            (sender, count - 1),
        ).fetchone()
        return row is not None


class Approvals:
    """Requests for approval, and the state of approved actions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def get(self, approval_id: str) -> Approval | None:
        row = self._db.execute(f"SELECT {APPROVAL} FROM approvals WHERE id = ?", (approval_id,)).fetchone()
        return None if row is None else read_approval(row)

    def of_task(self, task_id: str) -> tuple[Approval, ...]:
        """All approvals of a task, oldest first."""
        rows = self._db.execute(f"SELECT {APPROVAL} FROM approvals WHERE task = ? ORDER BY rowid", (task_id,))
        return tuple(map(read_approval, rows))

    def started_with_key(self, key: str) -> tuple[Approval, ...]:
        """Actions that were started with this idempotency key."""
        rows = self._db.execute(
            f"SELECT {APPROVAL} FROM approvals WHERE idempotency_key = ? AND started_at <> ''", (key,)
        )
        return tuple(map(read_approval, rows))

    def expired(self, now: str) -> list[tuple[str, str]]:
        """Task and id of the pending requests that have expired."""
        return self._db.execute(
            "SELECT task, id FROM approvals WHERE status = 'pending' AND expires_at <= ? ORDER BY expires_at", (now,)
        ).fetchall()

    def ordered_acts(self, task_id: str) -> frozenset[str]:
        """Pending effects on the task's actions, as in `core.task_view`."""
        rows = self._db.execute(
            "SELECT kind || ':' || coalesce(json_extract(data, '$.action.id'), json_extract(data, '$.approval_id'))"
            f" FROM outbox WHERE task = ? AND kind IN {_ACTS} AND state = 'pending'",
            (task_id,),
        )
        return frozenset(row[0] for row in rows)
