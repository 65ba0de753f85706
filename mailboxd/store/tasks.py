"""Tasks and how their neighbours stand. Each query costs O(its neighbours), never O(the tree)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from mailboxd.core.lifecycle import review_round
from mailboxd.core.terms import Gate, Join, Phase, Verdict
from mailboxd.core.types import Attempt, Finding, Task
from mailboxd.core.view import Family, Level, Review, Tally, View
from mailboxd.store.db import Connected
from mailboxd.store.projection import TASK_COLUMNS
from mailboxd.store.rows import ATTEMPT, TASK, read_attempt, read_task

_GATES = {Phase(gate.value) for gate in Gate}


class TaskQueries(Connected):
    def task(self, task_id: str) -> Task | None:
        row = self.db.execute(f"SELECT {TASK} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()
        return None if row is None else read_task(row)

    def by_local_id(self, local_id: str) -> Task | None:
        row = self.db.execute(f"SELECT {TASK} FROM tasks t WHERE t.local_id = ?", (local_id,)).fetchone()
        return None if row is None else read_task(row)

    def is_free(self, local_id: str) -> bool:
        return self.db.execute("SELECT 1 FROM tasks WHERE local_id = ?", (local_id,)).fetchone() is None

    def local_id(self, task_id: str) -> str:
        row = self.db.execute("SELECT local_id FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return "" if row is None else row[0]

    def work(self, sender: str, task_id: str, subtask_id: str | None) -> Task | None:
        """The root task that is this work (protocol section 2: its identity is sender, task and subtask)."""
        row = self.db.execute(
            f"SELECT {TASK} FROM tasks t WHERE task_id = ? AND subtask_id IS ? AND sender = ? AND parent IS NULL",
            (task_id, subtask_id, sender),
        ).fetchone()
        return None if row is None else read_task(row)

    def child(self, parent_local_id: str, key: str) -> Task | None:
        """The child that a reply's task_id and subtask_id name."""
        row = self.db.execute(
            f"SELECT {TASK} FROM tasks p JOIN tasks t ON t.parent = p.id WHERE p.local_id = ? AND t.key = ?",
            (parent_local_id, key),
        ).fetchone()
        return None if row is None else read_task(row)

    def attempt(self, task_id: str, ordinal: int) -> Attempt | None:
        row = self.db.execute(
            f"SELECT {ATTEMPT} FROM attempts WHERE task = ? AND ordinal = ?",
            (task_id, ordinal),
        ).fetchone()
        return None if row is None else read_attempt(row)

    def knows_attempt(self, task_id: str, attempt_id: str) -> bool:
        row = self.db.execute("SELECT 1 FROM attempts WHERE id = ? AND task = ?", (attempt_id, task_id)).fetchone()
        return row is not None

    def view(self, task_id: str, *, family: bool = False) -> View:
        """The task and how its neighbours stand. With `family` also what admitting a plan needs to know."""
        row = self.db.execute(
            f"SELECT {TASK}, t.unmet, t.kids, t.kids_completed, t.kids_failed, t.kids_cancelled, p.phase"
            " FROM tasks t LEFT JOIN tasks p ON p.id = t.parent WHERE t.id = ?",
            (task_id,),
        ).fetchone()
        task = read_task(row[: len(TASK_COLUMNS)])
        unmet, kids, completed, failed, cancelled, parent_phase = row[len(TASK_COLUMNS) :]
        in_gate = task.phase in _GATES
        return View(
            task=task,
            attempt=self.attempt(task_id, task.attempt) if task.attempt else None,
            parent_phase=None if parent_phase is None else Phase(parent_phase),
            unmet=unmet,
            cancelled_need=self.cancelled_need(task_id) if unmet else "",
            children=Tally(kids, completed, failed, cancelled),
            failed_child=self._failed_child(task_id) if failed else "",
            answers=self._answers(task_id) if task.broadcast and task.policy.join is Join.MAJORITY else (),
            reviews=self._reviews(task) if in_gate else (),
            asked_reviewers=self._asked(task) if in_gate else (),
            turns=self._turns(task_id),
            family=self.family(task) if family else None,
        )

    def cancelled_need(self, task_id: str) -> str:
        """Key of a dependency that was cancelled and will not be reopened; empty when there is none."""
        row = self.db.execute(
            "SELECT n.key FROM dependencies d JOIN tasks n ON n.id = d.needs"
            " WHERE d.task = ? AND n.phase = 'cancelled' AND NOT n.cancelled_with_parent ORDER BY n.seq LIMIT 1",
            (task_id,),
        ).fetchone()
        return "" if row is None else row[0]

    def open_dependants(self, task_id: str) -> list[str]:
        rows = self.db.execute(
            "SELECT t.id FROM dependencies d JOIN tasks t ON t.id = d.task"
            " WHERE d.needs = ? AND t.phase NOT IN ('completed', 'failed', 'cancelled') ORDER BY t.seq",
            (task_id,),
        )
        return [row[0] for row in rows]

    def _failed_child(self, task_id: str) -> str:
        row = self.db.execute(
            "SELECT key, coalesce(nullif(error, ''), reason) FROM tasks"
            " WHERE parent = ? AND phase = 'failed' ORDER BY seq LIMIT 1",
            (task_id,),
        ).fetchone()
        return f"child {row[0]} failed: {row[1]}"

    def _answers(self, task_id: str) -> tuple[tuple[str, int], ...]:
        rows = self.db.execute(
            "SELECT coalesce(nullif(answer, ''), trim(result)) AS vote, count(*) AS votes FROM tasks"
            " WHERE parent = ? AND phase = 'completed' GROUP BY vote ORDER BY votes DESC, vote",
            (task_id,),
        )
        return tuple(rows)

    def _reviews(self, task: Task) -> tuple[Review, ...]:
        rows = self.db.execute(
            "SELECT gate, reviewer, verdict, summary, findings FROM reviews"
            " WHERE task = ? AND gate = ? AND round = ? ORDER BY id",
            (task.id, task.phase, review_round(task)),
        )
        return tuple(
            Review(
                Gate(gate), reviewer, Verdict(verdict), summary, tuple(Finding(**item) for item in json.loads(findings))
            )
            for gate, reviewer, verdict, summary, findings in rows
        )

    def _asked(self, task: Task) -> tuple[tuple[str, int], ...]:
        rows = self.db.execute(
            "SELECT reviewer, times FROM review_requests WHERE task = ? AND gate = ? AND round = ?",
            (task.id, task.phase, review_round(task)),
        )
        return tuple(rows)

    def _turns(self, task_id: str) -> int:
        row = self.db.execute(
            "SELECT count(*) FROM outbox WHERE task = ? AND kind IN ('run_turn', 'look_up') AND state = 'pending'",
            (task_id,),
        ).fetchone()
        return int(row[0])

    # -------------------------------------------------------------- neighbours

    def family(self, task: Task) -> Family:
        """The children of `task`, and the levels around it, innermost first."""
        outer = []
        here: Task | None = task
        while here is not None and here.parent is not None:
            outer.append(self._level_as_waiting(here.parent, here.key))
            here = self.task(here.parent)
        return Family(self._level_as_waiting(task.id, ""), tuple(outer))

    def _level_as_waiting(self, parent: str, node: str) -> Level:
        """The level with what its tasks wait for through those below them, who may need a task of this level."""
        level = self._level(parent, node)
        needs = {key: list(names) for key, names in level.nodes.items()}
        rows = self.db.execute(
            "SELECT t.parent, n.key FROM tasks n JOIN dependencies d ON d.needs = n.id JOIN tasks t ON t.id = d.task"
            " WHERE n.parent = ?1 AND t.parent <> ?1",
            (parent,),
        ).fetchall()
        for above, need in rows:
            while (row := self.db.execute("SELECT parent, key FROM tasks WHERE id = ?", (above,)).fetchone())[
                0
            ] != parent:
                above = row[0]
            needs[row[1]].append(need)
        return Level(needs, node, level.ids)

    def _level(self, parent: str, node: str) -> Level:
        keys: dict[str, str] = dict(
            self.db.execute("SELECT key, id FROM tasks WHERE parent = ? ORDER BY seq", (parent,))
        )
        needs: dict[str, list[str]] = {key: [] for key in keys}
        rows = self.db.execute(
            "SELECT t.key, n.key FROM tasks t JOIN dependencies d ON d.task = t.id JOIN tasks n ON n.id = d.needs"
            " WHERE t.parent = ?",
            (parent,),
        )
        for key, need in rows:
            needs[key].append(need)
        return Level(needs, node, keys)

    def needs_by_key(self, parent: str) -> Mapping[str, Sequence[str]]:
        """For each child that depends on something: the keys of what it needs."""
        return {key: needs for key, needs in self._level(parent, "").nodes.items() if needs}

    def open_children(self, task_id: str) -> list[str]:
        rows = self.db.execute(
            "SELECT id FROM tasks WHERE parent = ? AND phase NOT IN ('completed', 'failed', 'cancelled') ORDER BY seq",
            (task_id,),
        )
        return [row[0] for row in rows]

    def has_open_children(self, task_id: str) -> bool:
        row = self.db.execute(
            "SELECT kids > kids_completed + kids_failed + kids_cancelled FROM tasks WHERE id = ?", (task_id,)
        ).fetchone()
        return bool(row[0])

    def parent(self, task_id: str) -> str | None:
        row = self.db.execute("SELECT parent FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return None if row is None else row[0]

    def fallen_below(self, task_id: str, also: str) -> list[str]:
        """Every task below that failed or was cancelled with its parent, parents first.

        Nothing below work that is done or was cancelled for its own sake. Open circuits of other branches wait for
        their own decision: only `also` is taken of them.
        """
        rows = self.db.execute(
            "WITH RECURSIVE below (id) AS (SELECT id FROM tasks WHERE parent = ?"
            " UNION ALL SELECT t.id FROM below b JOIN tasks p ON p.id = b.id JOIN tasks t ON t.parent = p.id"
            " WHERE p.phase NOT IN ('spec_gate', 'quality_gate', 'awaiting_approval', 'ready_to_resume', 'completed')"
            " AND (p.phase <> 'cancelled' OR p.cancelled_with_parent))"
            " SELECT t.id FROM tasks t JOIN below b ON b.id = t.id"
            " WHERE t.phase = 'failed' OR (t.phase = 'cancelled' AND t.cancelled_with_parent) OR t.id = ?"
            " ORDER BY t.depth, t.seq",
            (task_id, also),
        )
        return [row[0] for row in rows]

    def children(self, task_id: str) -> list[Task]:
        rows = self.db.execute(f"SELECT {TASK} FROM tasks t WHERE t.parent = ? ORDER BY t.seq", (task_id,))
        return [read_task(row) for row in rows]

    def dependencies(self, task_id: str) -> list[Task]:
        rows = self.db.execute(
            f"SELECT {TASK} FROM dependencies d JOIN tasks t ON t.id = d.needs WHERE d.task = ? ORDER BY t.seq",
            (task_id,),
        )
        return [read_task(row) for row in rows]
