"""What must always hold (protocol section 7), checked from the log and the tables by other code than the core's.

`Book` reads each event once, as JSON, and keeps its own small picture of every task: whether an event was allowed
is judged at that point of the log. `standing` looks at the tables between steps, `resting` at the end.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.fixpoint import reach_fixpoint
from mailboxd.core.times import plus
from mailboxd.engine.engine import Engine
from mailboxd.ledger import event_log
from mailboxd.ledger.outbox import latest_turn_of
from mailboxd.ledger.store import Store
from mailboxd.ledger.task_cache import ASKED_IN_TURN, AWAITED, HELD, REJECTED, REPEATED, STEERED
from tests.simulation.consents import Consents
from tests.simulation.script import OWN

ENDED = frozenset({"completed", "failed", "cancelled"})
MOST = 2
PAST_JOIN = frozenset({"spec_gate", "quality_gate", "awaiting_approval", "ready_to_resume", "completed"})
GATES = frozenset({"spec_review", "spec_gate", "quality_gate"})
TABLE = {
    ("spec_draft", "spec_review"),
    ("spec_review", "spec_draft"),
    ("spec_review", "execution_ready"),
    ("spec_review", "circuit_open"),
    ("execution_ready", "executing"),
    ("execution_ready", "spec_draft"),  # beyond the protocol: the reviewed specification was rewritten
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
    ("ready_to_resume", "awaiting_approval"),
    ("awaiting_approval", "execution_ready"),
    ("awaiting_approval", "failed"),
    ("awaiting_approval", "circuit_open"),
    ("ready_to_resume", "completed"),
    ("ready_to_resume", "circuit_open"),
    ("circuit_open", "execution_ready"),
    ("circuit_open", "completed"),
    ("circuit_open", "failed"),
    ("circuit_open", "executing"),  # beyond the protocol: the answer came whose absence had opened it
}
"""The protocol's table, typed off once more, without "any not terminal -> cancelled"."""
ANEW = {"operator: retry, it had not started", "the sender dispatched it again, it had not started"}
LATE = "its deadline passed"
SKIPPED = "its condition does not hold, or what it needs was skipped"
REOPENED = {"operator: retry", "the sender dispatched it again", *ANEW}


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
    aborted: bool = False
    """It was given up while its turn ran, perhaps."""
    lost: str = ""
    """With whom its outcome is unknown, or was when this attempt took over without reaching that agent."""
    spent: int = 0
    """Failures since the work was last given out."""
    not_before: str = ""
    permitted: bool = True
    """Somebody asked for another execution since the outcome became unknown."""
    verdicts: dict[str, str] = field(default_factory=dict)
    actions: list[dict[str, Any]] = field(default_factory=list)
    spec: Mapping[str, Any] = field(default_factory=dict)
    flow: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    declared: str = ""
    result: str = ""
    skipped: bool = False
    broadcast: bool = False
    passed: set[str] = field(default_factory=set)
    """Checks of the latest attempt that have passed."""
    held: str = ""
    unreached: str = ""
    """The attempt whose turn provably never ran."""

    @property
    def answer(self) -> str:
        return (self.declared or self.result).strip()


@dataclass(slots=True)
class Book:
    store: Store
    own: str = OWN
    """The agent whose workspace it is."""
    seen: int = 0
    tasks: dict[str, Known] = field(default_factory=dict)
    taken: set[tuple[str, str]] = field(default_factory=set)
    consents: Consents = field(default_factory=Consents)
    asked_again: dict[tuple[str, ...], int] = field(default_factory=dict)
    """How often the latest answer of a turn was asked for again: by task, kind of turn and agent."""
    shut: dict[str, str] = field(default_factory=dict)
    """Agents whose breaker is not closed, and whether it is open or half open."""
    """Rows of the transition table that were used."""

    def read(self) -> None:
        """Judge every event that is new."""
        rows = self.store.db.execute(
            "SELECT seq, kind, task, role, data FROM v_events WHERE seq > ? ORDER BY seq", (self.seen,)
        ).fetchall()
        for seq, kind, task, role, data in rows:
            self.seen = seq
            name = "_" + kind.replace(".", "_")
            judge = getattr(self, name, None) or getattr(self.consents, name, None)
            values = json.loads(data)
            if judge is not None:
                judge(task, values, role)
            if task is not None and kind.partition(".")[0] in ("task", "attempt", "turn"):
                self._parts(task, kind, values, role)
        live = "SELECT id, failures FROM v_tasks WHERE phase NOT IN ('completed', 'failed', 'cancelled')"
        for task, failures in self.store.db.execute(live):
            known = self.tasks[task]
            assert failures == known.spent, f"{known.name} has {failures} failures on its account, not {known.spent}"

    def _task_created(self, task: str, data: dict[str, Any], _role: str) -> None:
        row = data["task"]
        assert row["phase"] == "spec_draft", "a task begins as a draft"
        assert "spec" in row, "a task is recorded with its spec"
        if row.get("parent") and "rounds" in self.tasks[row["parent"]].flow:
            self._none_too_many(task, row)
        self.tasks[task] = Known(
            row["local_id"], row.get("parent"), row["policy"], row["executor"], frozenset(data["needs"]),
            actions=row.get("planned_actions", []), spec=row["spec"],
            broadcast=row.get("broadcast", False), flow=row.get("flow", {}), key=row["key"],
        )  # fmt: skip

    def _answer_unclear(self, task: str, data: dict[str, Any], _role: str) -> None:
        """An answer is asked for again at most twice, and none of its ends counts for two."""
        asked = self.asked_again
        key = (task, data["purpose"], data["agent"])
        assert data["number"] in (1, asked.get(key, 0) + 1), "the times are counted"
        assert data["number"] <= MOST, f"{self.tasks[task].name} is asked again and again"
        assert data["problems"], "the agent is told why"
        asked[key] = data["number"]

    def _task_needs_changed(self, task: str, data: dict[str, Any], _role: str) -> None:
        self.tasks[task].needs = frozenset(data["needs"])

    def _none_too_many(self, task: str, row: Mapping[str, Any]) -> None:
        """Rounds come one after the other, at most as many as each attempt may have, and none after the last."""
        whole = self.tasks[row["parent"]]
        rounds = [self.tasks[one] for one in self.tasks if self.tasks[one].parent == row["parent"] and one != task]
        assert row["key"] == str(len(rounds) + 1), "rounds are numbered"
        assert len(rounds) < whole.flow["rounds"] * max(whole.ordinal, 1), f"{whole.name} has too many rounds"
        assert all(one.phase in ENDED for one in rounds), "a round follows the one before"
        until = whole.flow.get("until")
        if rounds and until and not until.get("of"):
            assert not _holds(until, rounds[-1].answer), f"{whole.name} goes on after its last round"

    def _parts(self, task: str, kind: str, data: dict[str, Any], role: str) -> None:
        """The parts of an event in the order in which they happened: the turn, the end of the attempt, the phases."""
        if "turn" in data:
            self._turn_is_over(task, data["turn"])
        if kind == "attempt.ended":
            self._attempt_is_over(task, data)
        changes = data.get("changes", {})
        assert "phase" not in changes or "passed" in data, "only passing a phase moves a task"
        steps = data.get("passed", [])
        for step in steps[:1]:
            self._moved(task, {**step, "at": data["at"], "changes": changes}, role)
        self._take(self.tasks[task], changes)  # they come with the first phase; those after it follow from them
        for step in steps[1:]:
            self._moved(task, {**step, "at": data["at"], "changes": changes}, "orchestrator" if "by" in step else role)

    def _breaker_opened(self, _task: str, data: dict[str, Any], _role: str) -> None:
        assert self.shut.get(data["agent"]) != "open", "it was open already"
        assert data["until"] > data["at"], "it is open for a time"
        self.shut[data["agent"]] = "open"

    def _breaker_half_open(self, _task: str, data: dict[str, Any], _role: str) -> None:
        assert self.shut.get(data["agent"]) == "open", "only an open one is tried"
        self.shut[data["agent"]] = "half_open"

    def _breaker_closed(self, _task: str, data: dict[str, Any], _role: str) -> None:
        assert self.shut.pop(data["agent"], None), "it was closed already"

    def _is_held(self, task: str | None) -> bool:
        while task is not None:
            if self.tasks[task].held:
                return True
            task = self.tasks[task].parent
        return False

    def _take(self, known: Known, changes: Mapping[str, Any]) -> None:
        known.policy = changes.get("policy", known.policy)
        known.executor = changes.get("executor", known.executor)
        known.spec = changes.get("spec", known.spec)
        known.actions = changes.get("planned_actions", known.actions)
        known.held = changes.get("held", known.held)
        known.flow = changes.get("flow", known.flow)
        known.skipped = changes.get("skipped", known.skipped)
        known.declared = changes.get("answer", known.declared)
        known.result = changes.get("result", known.result)
        if "not_before" in changes:
            known.not_before = changes["not_before"] or ""

    def _moved(self, task: str, data: dict[str, Any], role: str) -> None:
        known, source, target = self.tasks[task], data["from"], data["to"]
        assert source == known.phase, f"{known.name} is {known.phase}, not {source}"
        assert role in ("orchestrator", "operator"), "only the orchestrator moves phases, on a person's order or not"
        if source in ENDED:
            assert data["trigger"] in REOPENED, f"{known.name} is {source} and stays so"
            anew = data["trigger"] in ANEW
            assert target == ("spec_draft" if anew else "execution_ready"), "ended work is done again, not skipped"
            assert not anew or not known.ordinal, "what had started needs no new spec"
        elif data["trigger"] == LATE:
            assert target == "failed", "what is too late fails"
            assert known.policy["deadline"] <= data["at"], f"{known.name} is not late yet"
        elif data["trigger"] == SKIPPED:
            assert self._is_skipped(known), f"{known.name} was skipped without a reason"
        elif target != "cancelled":
            assert (source, target) in TABLE, f"the protocol has no row {source} -> {target}"
        self.taken.add((source, data["trigger"]))
        self._gate_is_kept(known, source, target)
        self.consents.moved(task, known.last.get("id", ""), known.actions, source, target)
        if data["trigger"] in REOPENED or target == "spec_gate":
            known.spent = 0
        known.permitted = known.permitted or data["trigger"] in REOPENED
        if target == "executing":
            assert known.live, "a task executes while an attempt of it is live"
        elif source == "executing":
            assert not known.live, f"{known.name} has left executing and its attempt lives on"
        if source == "executing" and target == "execution_ready":
            assert (data["changes"].get("not_before") or known.not_before) > data["at"], (
                "a failure is followed by a pause"
            )
        known.phase, known.verdicts = target, {}

    def _gate_is_kept(self, known: Known, source: str, target: str) -> None:
        forward = {"spec_review": "execution_ready", "spec_gate": "quality_gate", "quality_gate": "completed"}
        passes = forward.get(source) == target or (source, target) == ("quality_gate", "awaiting_approval")
        if passes and source in known.policy.get("gates", ()):
            judges = _judges(known.policy, source, _authors(known))
            assert judges, "a gate that is on was passed without reviewers"
            approved = {name for name, verdict in known.verdicts.items() if verdict == "approved"}
            needed = {"majority": len(judges) // 2 + 1, "any": 1}.get(known.policy.get("quorum", "all"), len(judges))
            assert len(judges & approved) >= needed, f"{known.name} passed its {source} with {known.verdicts}"
        here = not known.broadcast and known.last.get("executor") == self.own
        if (source, target) == ("spec_gate", "quality_gate") and here:
            declared = {check["id"] for check in known.spec.get("checks", [])}
            assert declared <= known.passed, f"{known.name} passed with the checks {known.passed} of {declared}"
        if (source, target) == ("spec_draft", "spec_review"):
            assert _says_when_it_is_done(known), f"{known.name} has a weak spec: {known.spec}"
        if (source, target) == ("quality_gate", "completed"):
            assert not known.actions, "planned actions were skipped"

    def _review_appended(self, task: str, data: dict[str, Any], _role: str) -> None:
        known, review = self.tasks[task], data["review"]
        assert review["gate"] == known.phase, "a review counts at the gate it was asked for"
        assert review["reviewer"] != known.executor, "nobody reviews what he made"
        assert review["reviewer"] not in known.verdicts, "a reviewer speaks once per round"
        assert review["attempt"] == (known.last.get("id") if known.ordinal else None), "a review is of this attempt"
        assert review.get("given_at") in (None, known.last.get("executor")), "only who did the work tells of its gates"
        known.verdicts[review["reviewer"]] = review["verdict"]

    def _question_asked(self, task: str, data: dict[str, Any], _role: str) -> None:
        assert data["number"] <= 5, f"{self.tasks[task].name} asks without end"

    def _check_ended(self, task: str, data: dict[str, Any], _role: str) -> None:
        known, check = self.tasks[task], data["check"]
        assert known.phase == "spec_gate", "checks are run after an attempt and before its gates"
        assert check["attempt"] == known.last["id"], "a check is of this attempt"
        if check["verdict"] == "passed":
            known.passed.add(check["id"])

    def _attempt_started(self, task: str, data: dict[str, Any], _role: str) -> None:
        known, attempt = self.tasks[task], data["attempt"]
        assert not known.live, f"{known.name} has two live attempts"
        assert known.phase == "execution_ready", "an attempt starts from execution_ready"
        needs = [self.tasks[need] for need in known.needs]
        met = ("completed", "cancelled") if known.flow.get("needs_any") else ("completed",)
        unmet = [need.name for need in needs if need.phase not in met]
        assert not unmet, f"{known.name} started before {unmet} was completed"
        assert not self._is_skipped(known), f"{known.name} started, and its condition does not hold"
        if known.parent is not None:
            assert self.tasks[known.parent].phase == "executing", "a child runs while its parent executes"
        if attempt["waiting_for"] == "turn":
            assert self.shut.get(attempt["executor"]) != "open", f"{attempt['executor']} gets turns, and is broken"
        assert not self._is_held(task), f"{known.name} started, and is held"
        assert (known.policy.get("deadline") or "~") > data["at"], f"{known.name} started past its deadline"
        assert attempt["ordinal"] == known.ordinal + 1, "attempts are counted one by one"
        assert data["at"] >= known.not_before, "an attempt started during the backoff"
        assert known.spent < known.policy.get("max_attempts", 3), f"{known.name} is over its budget"
        if known.lost == known.last.get("executor") == attempt["executor"]:
            assert attempt["session_key"] == known.last["session_key"], "a new session after an unknown outcome"
            assert known.permitted or known.policy.get("idempotent"), f"{known.name} was repeated blindly"
        known.ordinal, known.live, known.last = attempt["ordinal"], attempt["id"], attempt
        known.passed = set()
        assert known.spec.get("goal"), "an attempt needs a goal"

    def _is_skipped(self, known: Known) -> bool:
        needs = {self.tasks[need].key: self.tasks[need] for need in known.needs}
        said = {key: need.answer if need.phase == "completed" else None for key, need in needs.items()}
        if known.flow.get("needs_any") and said and not any(answer is not None for answer in said.values()):
            return True
        if not known.flow.get("needs_any") and any(need.skipped for need in needs.values()):
            return True
        return any(not _holds(one, said[one["of"]]) for one in known.flow.get("when", ()) if one["of"] in said)

    def _attempt_checkpoint(self, task: str, data: dict[str, Any], _role: str) -> None:
        known = self.tasks[task]
        if data.get("attempt_changes", {}).get("status") == "running":
            assert known.phase == "circuit_open", "only a circuit that its absence opened is closed by a late answer"
            assert known.lost, "an attempt goes on whose outcome was unknown"
            assert data["attempt"] == known.last["id"], "a late answer is about the latest attempt"
            known.live, known.lost, known.permitted = data["attempt"], "", True
            known.spent = max(known.spent - 1, 0)
        if not known.live and known.aborted and list(data["attempt_changes"]) == ["error_summary"]:
            assert data["attempt"] == known.last["id"], "of which attempt a turn may go on"
            return
        assert data["attempt"] == known.live, "only a live attempt goes on"

    def _turn_is_over(self, task: str, turn: dict[str, Any]) -> None:
        if turn["outcome"] == "failed" and not turn["ran"]:
            self.tasks[task].unreached = turn["attempt"]

    def _attempt_is_over(self, task: str, data: dict[str, Any]) -> None:
        known, status = self.tasks[task], data["attempt_changes"]["status"]
        assert data["attempt"] == known.live, "only a live attempt ends"
        known.live, known.aborted = "", status == "aborted"
        never_reached = status == "aborted" and known.unreached == data["attempt"]
        if status != "succeeded" and not never_reached:
            known.spent += 1
        keeps = known.lost if status == "aborted" else ""
        known.lost = known.last["executor"] if status == "unknown" else keeps
        if status == "unknown":
            known.permitted = False


def _holds(condition: Mapping[str, Any], answer: str | None) -> bool:
    return answer is not None and (answer in condition["answers"]) is not condition.get("negated", False)


def _judges(policy: Mapping[str, Any], gate: str, authors: Collection[str]) -> set[str]:
    """Who reviews at a gate: not whoever made the work, and nobody both the specification and the quality."""
    gates, names = policy.get("gates", []), [name for name in policy.get("reviewers", []) if name not in authors]
    if policy.get("same_reviewer") or "quality_gate" not in gates or len(gates) < 2:
        return set(names)
    half = -(-len(names) // 2)
    return set(names[half:] if gate == "quality_gate" else names[:half])


def _authors(known: Known) -> set[str]:
    return {known.executor, known.last.get("executor", "")}


def _says_when_it_is_done(known: Known) -> bool:
    """Vague words do not occur here but as `works well`, which counts only where criteria are derived."""
    spec = known.spec
    criteria = [*spec.get("acceptance_criteria", []), spec.get("expected_output", "")]
    strict = known.policy.get("weak", "derive") != "derive"
    said = [text for text in criteria if text and not (strict and text == "works well")]
    return bool(spec.get("goal")) and bool(said or spec.get("checks"))


# ---------------------------------------------------------------- between steps

STANDING = {
    "a task has more than one live attempt": "SELECT task FROM v_attempts WHERE status = 'running'"
    " GROUP BY task HAVING count(*) > 1",
    "executing and having a live attempt are the same": "SELECT t.local_id FROM v_tasks t LEFT JOIN v_attempts a"
    " ON a.task = t.id AND a.ordinal = t.attempt AND a.status = 'running'"
    " WHERE (t.phase = 'executing') <> (a.id IS NOT NULL)",
    "a child goes on although its parent has ended": "SELECT c.local_id FROM v_tasks c JOIN v_tasks p"
    " ON p.id = c.parent WHERE c.phase NOT IN ('completed', 'failed', 'cancelled')"
    " AND p.phase IN ('spec_gate', 'quality_gate', 'awaiting_approval', 'ready_to_resume',"
    " 'completed', 'failed', 'cancelled')",
    "two pieces of work write the same": "SELECT t.local_id FROM v_tasks t JOIN v_tasks o ON o.executor = t.executor"
    " AND o.seq < t.seq, json_each(t.claims) a, json_each(o.claims) b WHERE t.phase = 'executing'"
    " AND o.phase = 'executing' AND substr(a.value, 1, 3) = substr(b.value, 1, 3)"
    " AND NOT EXISTS (SELECT 1 FROM v_tasks c WHERE c.parent IN (t.id, o.id))",
    "an attempt waits for a turn that nobody ordered, or for two": "SELECT t.local_id FROM v_attempts a"
    " JOIN v_tasks t ON t.id = a.task WHERE a.status = 'running' AND a.waiting_for IN ('turn', 'lookup')"
    " AND 1 <> (SELECT count(*) FROM v_outbox o WHERE o.task = a.task AND o.state = 'pending' AND"
    " o.kind IN ('run_turn', 'compose', 'look_up') AND json_extract(o.data, '$.attempt_id') = a.id"
    " AND coalesce(json_extract(o.data, '$.turn'), '') NOT IN ('review', 'answer'))",
    "a spec waits for a draft that nobody ordered, or for two": "SELECT t.local_id FROM v_tasks t WHERE"
    " t.phase = 'spec_draft' AND json_extract(t.mending, '$.waiting_for') IN ('turn', 'lookup')"
    " AND 1 <> (SELECT count(*) FROM v_outbox o WHERE o.task = t.id AND o.state = 'pending'"
    " AND json_extract(o.data, '$.turn') = 'draft'"
    " AND json_extract(o.data, '$.attempt_id') = 'draft-' || json_extract(t.mending, '$.drafts'))",
    "a parent has spent less than its children": "SELECT p.local_id FROM v_tasks p WHERE p.spent_usd + 1e-9 <"
    " (SELECT total(c.spent_usd) FROM v_tasks c WHERE c.parent = p.id) OR p.spent_tokens <"
    " (SELECT total(c.spent_tokens) FROM v_tasks c WHERE c.parent = p.id)",
    "a tree's account is not what its tasks add up to": "SELECT r.local_id FROM v_tasks r WHERE r.parent IS NULL AND"
    " (r.tree_turns, r.tree_tasks) <> (SELECT sum(t.turns), count(*) - 1 FROM v_tasks t WHERE t.root = r.id)",
    "a budget is used up and nobody is asked": "SELECT local_id FROM v_tasks WHERE completed_at IS NULL AND held = ''"
    " AND phase NOT IN ('completed', 'failed', 'cancelled') AND spent_usd >= json_extract(policy, '$.budget_usd')",
    "a breaker is open without a date": "SELECT agent FROM v_breakers WHERE (state = 'open') <> (until IS NOT NULL)",
    "a peer that has acknowledged has no lease": "SELECT t.local_id FROM v_attempts a JOIN v_tasks t ON t.id = a.task"
    " WHERE a.status = 'running' AND a.waiting_for = 'reply' AND t.due IS NULL",
    "work has ended, and the peer that may still have it was not told": "SELECT t.local_id FROM v_tasks t"
    " JOIN v_attempts a ON a.task = t.id AND a.ordinal = t.attempt"
    " WHERE t.phase IN ('completed', 'failed', 'cancelled') AND a.acknowledged"
    " AND a.status IN ('running', 'unknown', 'aborted') AND NOT EXISTS (SELECT 1 FROM v_outbox o"
    " WHERE o.task = t.id AND o.kind = 'send' AND json_extract(o.data, '$.type') = 'cancel'"
    " AND json_extract(o.data, '$.attempt') = a.ordinal)",
    "an open circuit is not held for a time": "SELECT local_id FROM v_tasks"
    " WHERE phase = 'circuit_open' AND due IS NULL",
    "a task has more failures than attempts": "SELECT local_id FROM v_tasks WHERE failures > attempt",
    "a session is used by two live attempts": "SELECT session_key FROM v_attempts WHERE status = 'running'"
    " GROUP BY session_key HAVING count(*) > 1",
}
"""What is wrong -> the rows of the promised views that show it."""

COUNTED = {
    "the count of unmet needs is wrong": "SELECT local_id FROM tasks t WHERE unmet <> (SELECT count(*) FROM"
    " dependencies d JOIN tasks n ON n.id = d.needs WHERE d.task = t.id AND n.phase <> 'completed' AND NOT"
    " (n.phase = 'cancelled' AND coalesce(json_extract(t.flow, '$.needs_any'), 0)))",
    "the count of children is wrong": "SELECT local_id FROM tasks t WHERE"
    " kids <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id)"
    " OR kids_completed <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id AND c.phase = 'completed')"
    " OR kids_failed <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id AND c.phase = 'failed')"
    " OR kids_cancelled <> (SELECT count(*) FROM tasks c WHERE c.parent = t.id AND c.phase = 'cancelled')",
    "a task does not know whether its parent executes": "SELECT c.local_id FROM tasks c JOIN tasks p"
    " ON p.id = c.parent WHERE c.parent_live <> (p.phase = 'executing')",
    "circuit_open and the column disagree": "SELECT local_id FROM tasks WHERE circuit_open <> (phase = 'circuit_open')",
}
"""What this store keeps in its tables so that nobody has to count; another store keeps other things."""


def standing(store: Store) -> None:
    """Raise AssertionError when the tables, as they stand, break an invariant."""
    for problem, query in (STANDING | COUNTED).items():
        row = store.db.execute(query).fetchone()
        assert row is None, f"{problem}: {row[0]}"
    remembering(store)


_ABSENT = {
    HELD: "SELECT 1 FROM tasks WHERE held <> ''",
    STEERED: "SELECT 1 FROM attempts WHERE steered <> '' AND status = 'running'",
    ASKED_IN_TURN: "SELECT 1 FROM approvals WHERE status = 'pending' AND purpose = 'permission'",
    AWAITED: "SELECT 1 FROM dependencies WHERE needs LIKE '?%'",
    REPEATED: "SELECT 1 FROM repetitions",
    REJECTED: "SELECT 1 FROM messages WHERE verdict = 'rejected' AND dismissed IS NULL",
}
_HANDED_OVER = "SELECT count(*) FROM handovers WHERE source = ? AND at > ? AND counts"


def remembering(store: Store) -> None:
    """What a store remembers between transactions is what its tables say, unless somebody else has written since."""
    if event_log.tip(store.db) == store._tip:
        tables = Store(store.db)
        pending = store.outbox.pending("9999", -1)
        assert repr(tables.outbox.pending("9999", -1)) == repr(pending)
        for order in pending:
            assert repr(tables.outbox.get(order.id)) == repr(order), order.id
        for task in store.cache.tasks.values():
            assert tables.tasks.get(task.id) == task
        for task_id, attempt in store.cache.attempts.items():
            assert tables.tasks.attempt(task_id, attempt.ordinal) == attempt
        for task_id, counts in store.cache.counts.items():
            assert tables.tasks.counts(task_id) == counts, task_id
        if (quiet := store.cache.quiet_until) is not None:
            before = plus(quiet, -0.001)
            assert not tables.schedule.due(before)
            assert not tables.approvals.expired(before)
            assert not tables.held_orders.due(before)
        for task_id, needs in store.cache.needs.items():
            assert tables.tasks.needs(task_id) == sorted(needs), task_id
            assert tables.tasks.dependencies(task_id) == store.tasks.dependencies(task_id), task_id
        if (queue := store.schedule.known_queue()) is not None:
            assert [*queue] == [*tables.schedule.read_queue()]
        for agent, turn in store.outbox._turns.items():
            (read,) = tables.db.execute(f"SELECT {latest_turn_of('?1')}", (agent,))
            assert (turn.after_again, turn.seq) == (bool(read[0]), read[1] or 0), agent
        for what in store.cache.absent:
            assert store.db.execute(_ABSENT[what]).fetchone() is None, what
        for source, known in store.cache.handed_over.items():
            count = store.db.execute(_HANDED_OVER, (source, known.since)).fetchone()[0]
            assert min(count, known.limit) <= known.most, source
            if known.reached_until:
                assert count >= known.limit, source
        if store.cache.some_choose is False:
            assert not tables.tasks._some_choose()
        if store.cache.breakers is not None:
            assert {agent: tables.breakers.get(agent) for agent in store.cache.breakers} == store.cache.breakers


def looked_at(engine: Engine) -> None:
    """Raise AssertionError where something follows for a task and nobody looked: it would stand still for ever."""
    ctx = engine._context()
    for (task_id,) in engine.store.db.execute("SELECT id FROM v_tasks WHERE completed_at IS NULL").fetchall():
        view = engine.store.tasks.view(task_id)
        follows = reach_fixpoint(view, ctx)
        assert (follows.events, follows.effects) == ((), ()), f"nobody looked at {view.task.local_id}: {follows}"


# ---------------------------------------------------------------- at the end


def resting(store: Store) -> None:
    """Every task has ended or waits, through whatever chain, for a person, and the task's row names the reason."""
    rows = store.db.execute("SELECT id, local_id, parent, phase, reason, policy, executor FROM v_tasks").fetchall()
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
    nobody_to_ask = phase in GATES and not all(
        _judges(json.loads(policy), gate, {executor}) for gate in (phase, "quality_gate")
    )
    return bool(reason) and (phase == "awaiting_approval" or nobody_to_ask)


def _waits_for(store: Store, row: tuple[str, ...]) -> Iterator[str]:
    task, parent = row[0], row[2]
    yield from (found[0] for found in store.db.execute("SELECT id FROM v_tasks WHERE parent = ?", (task,)))
    yield from (found[0] for found in store.db.execute("SELECT needs FROM v_dependencies WHERE task = ?", (task,)))
    held = store.db.execute("SELECT id FROM v_tasks WHERE id = ? AND phase <> 'executing'", (parent,)).fetchone()
    if held is not None:
        yield held[0]
