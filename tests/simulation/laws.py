"""What must always hold (protocol section 7), checked from the log and the tables by other code than the core's.

`Book` reads each event once, as JSON, and keeps its own small picture of every task: whether an event was allowed
is judged at that point of the log. `standing` looks at the tables between steps, `resting` at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.store.store import Store

ENDED = frozenset({"completed", "failed", "cancelled"})
PAST_JOIN = frozenset({"spec_gate", "quality_gate", "awaiting_approval", "ready_to_resume", "completed"})
GATES = frozenset({"spec_review", "spec_gate", "quality_gate"})
TABLE = {
    ("spec_draft", "spec_review"),
    ("spec_review", "spec_draft"),
    ("spec_review", "execution_ready"),
    ("spec_review", "circuit_open"),
    ("execution_ready", "executing"),
    ("executing", "execution_ready"),
    ("executing", "spec_gate"),
    ("executing", "failed"),
    ("executing", "circuit_open"),
    ("spec_gate", "quality_gate"),
    ("spec_gate", "execution_ready"),
    ("spec_gate", "circuit_open"),
    ("quality_gate", "completed"),
    ("quality_gate", "execution_ready"),
    ("quality_gate", "circuit_open"),
    ("quality_gate", "awaiting_approval"),
    ("awaiting_approval", "ready_to_resume"),
    ("awaiting_approval", "execution_ready"),
    ("awaiting_approval", "failed"),
    ("ready_to_resume", "completed"),
    ("ready_to_resume", "circuit_open"),
    ("circuit_open", "execution_ready"),
    ("circuit_open", "completed"),
    ("circuit_open", "failed"),
}
"""The protocol's table, typed off once more, without "any not terminal -> cancelled"."""
REOPENED = {"operator: retry", "the sender dispatched it again"}


@dataclass(slots=True)
class Known:
    """One task, as the log has told it so far."""

    name: str
    parent: str | None
    policy: Mapping[str, Any]
    executor: str
    needs: frozenset[str]
    phase: str = "spec_draft"
    ordinal: int = 0
    live: str = ""
    last: dict[str, Any] = field(default_factory=dict)
    """The latest attempt."""
    lost: bool = False
    """Its outcome is unknown, or was when this attempt took over without reaching the agent."""
    spent: int = 0
    """Failures since the work was last given out."""
    not_before: str = ""
    permitted: bool = True
    """Somebody asked for another execution since the outcome became unknown."""
    verdicts: dict[str, str] = field(default_factory=dict)
    actions: str = ""


@dataclass(slots=True)
class Book:
    store: Store
    seen: int = 0
    tasks: dict[str, Known] = field(default_factory=dict)
    taken: set[tuple[str, str]] = field(default_factory=set)
    """Rows of the transition table that were used."""

    def read(self) -> None:
        """Judge every event that is new."""
        rows = self.store.db.execute(
            "SELECT seq, kind, task, role, data FROM events WHERE seq > ? ORDER BY seq", (self.seen,)
        ).fetchall()
        for seq, kind, task, role, data in rows:
            self.seen = seq
            judge = getattr(self, "_" + kind.replace(".", "_"), None)
            if judge is not None:
                judge(task, json.loads(data), role)
        live = "SELECT id, failures FROM tasks WHERE phase NOT IN ('completed', 'failed', 'cancelled')"
        for task, failures in self.store.db.execute(live):
            known = self.tasks[task]
            assert failures == known.spent, f"{known.name} has {failures} failures on its account, not {known.spent}"

    def _task_created(self, task: str, data: dict[str, Any], _role: str) -> None:
        row = data["task"]
        assert row["phase"] == "spec_draft", "a task begins as a draft"
        assert row["spec"]["goal"], "a task is recorded with its spec"
        self.tasks[task] = Known(
            row["local_id"], row.get("parent"), row["policy"], row["executor"], frozenset(data["needs"]),
            actions=row.get("planned_actions", ""),
        )  # fmt: skip

    def _task_needs_changed(self, task: str, data: dict[str, Any], _role: str) -> None:
        self.tasks[task].needs = frozenset(data["needs"])

    def _task_amended(self, task: str, data: dict[str, Any], _role: str) -> None:
        assert "phase" not in data["changes"], "only a transition moves a task"
        self._take(self.tasks[task], data["changes"])

    def _take(self, known: Known, changes: Mapping[str, Any]) -> None:
        known.policy = changes.get("policy", known.policy)
        known.executor = changes.get("executor", known.executor)
        known.actions = changes.get("planned_actions", known.actions)
        if "not_before" in changes:
            known.not_before = changes["not_before"] or ""

    def _task_transitioned(self, task: str, data: dict[str, Any], role: str) -> None:
        known, source, target = self.tasks[task], data["from"], data["to"]
        assert source == known.phase, f"{known.name} is {known.phase}, not {source}"
        assert role in ("orchestrator", "operator"), "only the orchestrator moves phases, on a person's order or not"
        if source in ENDED:
            assert data["trigger"] in REOPENED, f"{known.name} is {source} and stays so"
            assert target == "execution_ready", "ended work is done again from execution_ready on"
        elif target != "cancelled":
            assert (source, target) in TABLE, f"the protocol has no row {source} -> {target}"
        self.taken.add((source, data["trigger"]))
        self._gate_is_kept(known, source, target)
        if data["trigger"] in REOPENED or target == "spec_gate":
            known.spent = 0
        known.permitted = known.permitted or data["trigger"] in REOPENED
        if target == "executing":
            assert known.live, "a task executes while an attempt of it is live"
        elif source == "executing":
            assert not known.live, f"{known.name} has left executing and its attempt lives on"
        if source == "executing" and target == "execution_ready":
            assert (data["changes"]["not_before"] or "") > data["at"], "a failure is followed by a pause"
        known.phase, known.verdicts = target, {}
        self._take(known, data["changes"])

    def _gate_is_kept(self, known: Known, source: str, target: str) -> None:
        forward = {"spec_review": "execution_ready", "spec_gate": "quality_gate", "quality_gate": "completed"}
        passes = forward.get(source) == target or (source, target) == ("quality_gate", "awaiting_approval")
        if passes and source in known.policy.get("gates", ()):
            reviewers = known.policy.get("reviewers", [])
            assert reviewers, "a gate that is on was passed without reviewers"
            approved = {name for name, verdict in known.verdicts.items() if verdict == "approved"}
            assert set(reviewers) <= approved, f"{known.name} passed its {source} with {known.verdicts}"
        if (source, target) == ("quality_gate", "completed"):
            assert not known.actions, "planned actions were skipped"

    def _review_appended(self, task: str, data: dict[str, Any], _role: str) -> None:
        known, review = self.tasks[task], data["review"]
        assert review["gate"] == known.phase, "a review counts at the gate it was asked for"
        assert review["reviewer"] != known.executor, "nobody reviews what he made"
        assert review["reviewer"] not in known.verdicts, "a reviewer speaks once per round"
        assert review["attempt"] == (known.last.get("id") if known.ordinal else None), "a review is of this attempt"
        known.verdicts[review["reviewer"]] = review["verdict"]

    def _attempt_started(self, task: str, data: dict[str, Any], _role: str) -> None:
        known, attempt = self.tasks[task], data["attempt"]
        assert not known.live, f"{known.name} has two live attempts"
        assert known.phase == "execution_ready", "an attempt starts from execution_ready"
        unmet = [self.tasks[need].name for need in known.needs if self.tasks[need].phase != "completed"]
        assert not unmet, f"{known.name} started before {unmet} was completed"
        if known.parent is not None:
            assert self.tasks[known.parent].phase == "executing", "a child runs while its parent executes"
        assert attempt["ordinal"] == known.ordinal + 1, "attempts are counted one by one"
        assert data["at"] >= known.not_before, "an attempt started during the backoff"
        assert known.spent < known.policy.get("max_attempts", 3), f"{known.name} is over its budget"
        if known.lost and known.last["executor"] == attempt["executor"]:
            assert attempt["session_key"] == known.last["session_key"], "a new session after an unknown outcome"
            assert known.permitted or known.policy.get("idempotent"), f"{known.name} was repeated blindly"
        known.ordinal, known.live, known.last = attempt["ordinal"], attempt["id"], attempt

    def _attempt_checkpoint(self, task: str, data: dict[str, Any], _role: str) -> None:
        assert data["attempt"] == self.tasks[task].live, "only a live attempt goes on"

    def _attempt_finished(self, task: str, data: dict[str, Any], _role: str) -> None:
        known, status = self.tasks[task], data["changes"]["status"]
        assert data["attempt"] == known.live, "only a live attempt ends"
        known.live = ""
        never_reached = status == "aborted" and "refused" in data["changes"].get("error_summary", "")
        if status != "succeeded" and not never_reached:
            known.spent += 1
        known.lost = status == "unknown" or (known.lost and status == "aborted")
        if status == "unknown":
            known.permitted = False


# ---------------------------------------------------------------- between steps

STANDING = {
    "a task has more than one live attempt": "SELECT task FROM attempts WHERE status = 'running'"
    " GROUP BY task HAVING count(*) > 1",
    "executing and having a live attempt are the same": "SELECT t.local_id FROM tasks t LEFT JOIN attempts a"
    " ON a.task = t.id AND a.ordinal = t.attempt AND a.status = 'running'"
    " WHERE (t.phase = 'executing') <> (a.id IS NOT NULL)",
    "a child goes on although its parent has ended": "SELECT c.local_id FROM tasks c JOIN tasks p ON p.id = c.parent"
    " WHERE c.phase NOT IN ('completed', 'failed', 'cancelled') AND p.phase IN ('spec_gate', 'quality_gate',"
    " 'awaiting_approval', 'ready_to_resume', 'completed', 'failed', 'cancelled')",
    "the count of unmet needs is wrong": "SELECT local_id FROM tasks t WHERE unmet <> (SELECT count(*) FROM"
    " dependencies d JOIN tasks n ON n.id = d.needs WHERE d.task = t.id AND n.phase <> 'completed')",
    "the count of children is wrong": "SELECT local_id FROM tasks t WHERE"
    " kids <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id)"
    " OR kids_completed <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id AND c.phase = 'completed')"
    " OR kids_failed <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id AND c.phase = 'failed')"
    " OR kids_cancelled <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id AND c.phase = 'cancelled')",
    "a task does not know whether its parent executes": "SELECT c.local_id FROM tasks c JOIN tasks p"
    " ON p.id = c.parent WHERE c.parent_live <> (p.phase = 'executing')",
    "an attempt waits for a turn that nobody ordered, or for two": "SELECT t.local_id FROM attempts a"
    " JOIN tasks t ON t.id = a.task WHERE a.status = 'running' AND a.waiting_for IN ('turn', 'lookup')"
    " AND 1 <> (SELECT count(*) FROM outbox o WHERE o.task = a.task AND o.state = 'pending' AND"
    " o.kind IN ('run_turn', 'compose', 'look_up') AND json_extract(o.data, '$.attempt_id') = a.id"
    " AND coalesce(json_extract(o.data, '$.turn'), '') <> 'review')",
    "a peer that has acknowledged has no lease": "SELECT t.local_id FROM attempts a JOIN tasks t ON t.id = a.task"
    " WHERE a.status = 'running' AND a.waiting_for = 'reply' AND t.due IS NULL",
    "an open circuit is not held for a time": "SELECT local_id FROM tasks WHERE phase = 'circuit_open' AND due IS NULL",
    "circuit_open and the column disagree": "SELECT local_id FROM tasks WHERE circuit_open <> (phase = 'circuit_open')",
    "a task has more failures than attempts": "SELECT local_id FROM tasks WHERE failures > attempt",
    "a session is used by two live attempts": "SELECT session_key FROM attempts WHERE status = 'running'"
    " GROUP BY session_key HAVING count(*) > 1",
}
"""What is wrong -> the rows that show it."""


def standing(store: Store) -> None:
    """Raise AssertionError when the tables, as they stand, break an invariant."""
    for problem, query in STANDING.items():
        row = store.db.execute(query).fetchone()
        assert row is None, f"{problem}: {row[0]}"


# ---------------------------------------------------------------- at the end


def resting(store: Store) -> None:
    """Every task has ended or waits, through whatever chain, for a person, and the task's row names the reason."""
    rows = store.db.execute("SELECT id, local_id, parent, phase, reason, policy, executor FROM tasks").fetchall()
    waiting = {row[0]: row for row in rows if row[3] not in ENDED}
    excused = {task for task, row in waiting.items() if _for_a_person(row)}
    grown = True
    while grown:
        more = {task for task in waiting.keys() - excused if set(_waits_for(store, waiting[task])) & excused}
        excused, grown = excused | more, bool(more)
    stuck = [f"{row[1]} ({row[3]}: {row[4]})" for task, row in waiting.items() if task not in excused]
    assert not stuck, f"these wait for nothing: {', '.join(stuck)}"


def _for_a_person(row: tuple[str, ...]) -> bool:
    _, _, _, phase, reason, policy, executor = row
    reviewers = json.loads(policy).get("reviewers", [])
    nobody_to_ask = phase in GATES and (not reviewers or executor in reviewers)
    return bool(reason) and (phase == "awaiting_approval" or nobody_to_ask)


def _waits_for(store: Store, row: tuple[str, ...]) -> Iterator[str]:
    task, parent = row[0], row[2]
    yield from (found[0] for found in store.db.execute("SELECT id FROM tasks WHERE parent = ?", (task,)))
    yield from (found[0] for found in store.db.execute("SELECT needs FROM dependencies WHERE task = ?", (task,)))
    held = store.db.execute("SELECT id FROM tasks WHERE id = ? AND phase <> 'executing'", (parent,)).fetchone()
    if held is not None:
        yield held[0]
