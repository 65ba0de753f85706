"""The life of a task. Everything that decides about phases is in this file, as two tables.

Theory of operation. A task is in exactly one `Phase`. Something that happens to it is a `Trigger`; TRANSITIONS says
which phase a trigger leads to, and where the table has no row the trigger is refused and nothing happens. Some
triggers come from outside (a turn ended, the operator cancelled): `core.decide` turns the input into the trigger.
Others follow from how the task and its neighbours stand ("my spec is complete", "my last child is completed", "my
parent was cancelled"): SETTLED lists these as conditions over a `View`. After every event the engine asks `due` for
the task itself and for the neighbours that the event touched, until nothing more follows. That fixed point is the
recursive scheduler: a completed child wakes its dependants and its parent, the parent's completion wakes its own.

A phase whose gate is off is still passed through, with that reason on record: no task skips a phase.
The diagram in docs/states.md is drawn from TRANSITIONS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from mailboxd.core.approvals import ApprovalStatus, Performed
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.json_codec import each_to_json
from mailboxd.core.model import Policy, Task
from mailboxd.core.specs import lint
from mailboxd.core.task_view import TaskView
from mailboxd.core.vocabulary import TERMINAL, CheckVerdict, Gate, Join, Phase, Quorum, Verdict, same_agent
from mailboxd.errors import Refused

# ---------------------------------------------------------------------------------------------------------------------
# What a gate says: the verdicts of its reviewers under the quorum, and before them the checks of the spec.

_GATES = frozenset(Phase(gate.value) for gate in Gate)
GateVerdict = tuple[Verdict, str]
"""A gate's verdict, with the reason."""


def gate_verdict(view: TaskView, gate: Gate) -> GateVerdict | None:
    """What the gate says, and why; None while it cannot say yet."""
    checked = _checked(view) if gate is Gate.SPEC_GATE else None
    if checked is not None and checked[0] is not Verdict.APPROVED:
        return checked
    if len(view.check_runs) < len(view.checks):
        return None
    said = f"; {checked[1]}" if checked else ""
    if gate not in view.task.policy.gates:
        return Verdict.APPROVED, f"the {gate} is off{said}"
    reviewed = _reviewed(view, gate)
    return None if reviewed is None else (reviewed[0], reviewed[1] + said)


def independent_reviewers(view: TaskView) -> tuple[str, ...]:
    """Those of the named reviewers who did not make the work, each once (section 5)."""
    task, attempt = view.task, view.attempt
    authors = {task.executor.lower(), *((attempt.executor.lower(),) if attempt else ())}
    names: dict[str, str] = {}
    for name in task.policy.reviewers:
        names.setdefault(name.lower(), name)
    return tuple(name for key, name in names.items() if key not in authors)


def reviewers_at_gate(policy: Policy, names: tuple[str, ...], gate: Gate) -> tuple[str, ...]:
    """Those of the reviewers who review at this gate.

    Where both the specification and the quality are reviewed they take turns, in the order in which they are named,
    so that nobody passes both; unless the configuration allows it.
    """
    both = Gate.QUALITY_GATE in policy.gates and len(policy.gates) > 1
    if policy.same_reviewer or not both:
        return names
    return names[1::2] if gate is Gate.QUALITY_GATE else names[0::2]


def eligible_reviewers(view: TaskView) -> tuple[str, ...]:
    """Those who may review at the gate where the task is."""
    found, phase = independent_reviewers(view), view.task.phase
    return reviewers_at_gate(view.task.policy, found, Gate(phase.value)) if phase in _GATES else found


def excluded_reviewers(view: TaskView) -> tuple[str, ...]:
    """The named reviewers who do not review, because the work is theirs."""
    found = independent_reviewers(view)
    return tuple(n for n in view.task.policy.reviewers if not any(same_agent(n, judge) for judge in found))


def _reviewed(view: TaskView, gate: Gate) -> GateVerdict | None:
    """Approved once the quorum approves; else, when all have spoken, the hardest word."""
    asked = eligible_reviewers(view)
    if not asked:
        return None
    verdicts = {review.reviewer: review.verdict for review in view.reviews if review.reviewer in asked}
    by = ", ".join(sorted(verdicts))
    approvals = sum(1 for verdict in verdicts.values() if verdict is Verdict.APPROVED)
    if approvals >= _needed(view.task.policy.quorum, len(asked)):
        return Verdict.APPROVED, f"{gate}: approved by {by}"
    lost = [asked.reviewer for asked in view.asked_reviewers if asked.failures >= view.task.policy.max_attempts]
    silent = [name for name in asked if name not in verdicts]
    if any(name not in lost for name in silent):
        return None
    if silent:
        return Verdict.BLOCKED, f"{gate}: {', '.join(silent)} could not review it: every turn failed"
    hardest = max(verdicts.values(), key=list(Verdict).index)
    return hardest, f"{gate}: {hardest} by {by}"


def _needed(quorum: Quorum, reviewers: int) -> int:
    """How many approvals pass the gate."""
    return {Quorum.ALL: reviewers, Quorum.MAJORITY: reviewers // 2 + 1, Quorum.ANY: 1}[quorum]


def _checked(view: TaskView) -> GateVerdict | None:
    """What the checks say together; None while one of them runs, and when there are none."""
    runs = view.check_runs
    if not view.checks or len(runs) < len(view.checks):
        return None
    for verdict, means in (
        (CheckVerdict.IMPOSSIBLE, Verdict.BLOCKED),
        (CheckVerdict.FAILED, Verdict.CHANGES_REQUESTED),
    ):
        found = [run for run in runs if run.verdict is verdict]
        if found:
            first = found[0]
            said = ", ".join(run.id for run in found)
            how = "failed" if verdict is CheckVerdict.FAILED else "could not be run"
            return means, f"check {said} {how}: {first.summary}"
    return Verdict.APPROVED, f"{len(runs)} check{'s' * (len(runs) != 1)} passed"


# ---------------------------------------------------------------------------------------------------------------------
# What the copies of a broadcast say, counted: the one place where two answers are found to be the same.

Votes = tuple[tuple[str, int], ...]
"""Each answer with its count, most frequent first."""


def vote(answer: str, result: str) -> str:
    """What a copy says: its declared answer, without one its whole result; white space around either does not count."""
    return answer.strip() or result.strip()


def count_votes(copies: Iterable[tuple[str, str]]) -> Votes:
    """The votes of completed copies, each given as its declared answer and its result."""
    votes = Counter(vote(answer, result) for answer, result in copies)
    return tuple(sorted(votes.items(), key=lambda item: (-item[1], item[0])))


def majority(votes: Votes, copies: int) -> str | None:
    """The answer of more than half of all `copies`, those that failed or have not answered included; None = none is."""
    return votes[0][0] if votes and votes[0][1] * 2 > copies else None


def winner(join: Join, done: Sequence[Task]) -> Task:
    """The completed copy whose result is that of the broadcast: the first one, or the first that says what most say."""
    in_order = sorted(done, key=lambda copy: (copy.completed_at or "", copy.id))
    if join is Join.FIRST:
        return in_order[0]
    most = count_votes((copy.answer, copy.result) for copy in done)[0][0]
    return next(copy for copy in in_order if vote(copy.answer, copy.result) == most)


# ---------------------------------------------------------------------------------------------------------------------
# What people's decisions about planned actions, and what became of these, add up to for their task.


def all_approved(view: TaskView) -> str | None:
    """By whom, when every planned action is approved."""
    rows = view.live_approvals
    if len(rows) < len(view.task.planned_actions) or any(row.status is not ApprovalStatus.APPROVED for row in rows):
        return None
    return "approved by " + ", ".join(dict.fromkeys(row.resolved_by for row in rows))


def one_is(*statuses: ApprovalStatus) -> Callable[[TaskView], str | None]:
    """The reason, when one of the planned actions was decided so."""

    def condition(view: TaskView) -> str | None:
        row = next((row for row in view.live_approvals if row.status in statuses), None)
        if row is None:
            return None
        note = f": {row.note}" if row.note else ""
        return f"{row.requested_action}: {row.status} by {row.resolved_by}{note}"

    return condition


def all_performed(view: TaskView) -> str | None:
    """How many, when every planned action has happened."""
    rows = view.live_approvals
    if len(rows) < len(view.task.planned_actions) or any(row.state is not Performed.DONE for row in rows):
        return None
    return f"{len(rows)} action{'s' * (len(rows) > 1)} performed"


def one_uncertain(view: TaskView) -> str | None:
    """Which one failed, or may have happened and nobody can tell."""
    for row in view.live_approvals:
        if row.state is Performed.FAILED or (row.state is Performed.UNKNOWN and row.checked):
            return f"{row.requested_action} ({row.short_id}): {row.state}: {row.summary}"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# The life of a task. Everything that decides about phases is in this file, as two tables.

P = Phase


class Trigger(StrEnum):
    """What moves a task from one phase to another."""

    SPEC_COMPLETE = "spec complete"
    APPROVED = "approved"
    APPROVED_WITH_ACTIONS = "approved, planned actions exist"
    CHANGES_REQUESTED = "changes requested"
    BLOCKED = "blocked, or rework used up"
    ATTEMPT_STARTED = "attempt started"
    ATTEMPT_SUCCEEDED = "attempt succeeded"
    ATTEMPT_FAILED = "attempt failed, attempts are left"
    HOPELESS = "a failure that retrying cannot mend"
    CHILD_FAILED = "a child failed"
    EXHAUSTED = "attempts used up"
    OUTCOME_UNKNOWN = "outcome unknown, work not idempotent"
    PERSON_APPROVED = "a person approved"
    PERSON_ASKED_CHANGES = "a person asked for changes"
    PERSON_REJECTED = "a person rejected, or the approval expired"
    ACTION_IMPOSSIBLE = "an action cannot be performed as declared"
    APPROVAL_VOID = "whoever approved may not decide any more"
    ACTION_DONE = "the action ran once"
    ACTION_UNCERTAIN = "the action failed or its outcome is unknown"
    OPERATOR_RETRY = "operator: retry"
    REOPENED = "operator: retry, it had not started"
    SPEC_REWRITTEN = "a person wrote the spec anew"
    OPERATOR_ACCEPT = "operator: accept the last good artifact"
    OPERATOR_FAIL = "operator: give up"
    HOLD_OVER = "nobody unblocked in time"
    DEADLINE_PASSED = "its deadline passed"
    REDISPATCHED = "the sender dispatched it again"
    RENEWED = "the sender dispatched it again, it had not started"
    IMPORTED_DONE = "taken over as done"
    IMPORTED_FAILED = "taken over as failed"
    CANCELLED = "cancelled"


T = Trigger
_TAKEN_OVER = (P.SPEC_DRAFT, P.SPEC_REVIEW, P.EXECUTION_READY, P.SPEC_GATE, P.QUALITY_GATE, P.AWAITING_APPROVAL)

TRANSITIONS: Mapping[tuple[Phase, Trigger], Phase] = {
    (P.SPEC_DRAFT, T.SPEC_COMPLETE): P.SPEC_REVIEW,
    (P.SPEC_REVIEW, T.CHANGES_REQUESTED): P.SPEC_DRAFT,
    (P.SPEC_REVIEW, T.APPROVED): P.EXECUTION_READY,
    (P.SPEC_REVIEW, T.BLOCKED): P.CIRCUIT_OPEN,
    (P.SPEC_REVIEW, T.SPEC_REWRITTEN): P.SPEC_DRAFT,
    (P.EXECUTION_READY, T.ATTEMPT_STARTED): P.EXECUTING,
    (P.EXECUTING, T.ATTEMPT_FAILED): P.EXECUTION_READY,
    (P.EXECUTING, T.ATTEMPT_SUCCEEDED): P.SPEC_GATE,
    (P.EXECUTING, T.HOPELESS): P.FAILED,
    (P.EXECUTING, T.CHILD_FAILED): P.FAILED,
    (P.EXECUTING, T.EXHAUSTED): P.CIRCUIT_OPEN,
    (P.EXECUTING, T.OUTCOME_UNKNOWN): P.CIRCUIT_OPEN,
    (P.SPEC_GATE, T.APPROVED): P.QUALITY_GATE,
    (P.SPEC_GATE, T.CHANGES_REQUESTED): P.EXECUTION_READY,
    (P.SPEC_GATE, T.BLOCKED): P.CIRCUIT_OPEN,
    (P.QUALITY_GATE, T.APPROVED): P.COMPLETED,
    (P.QUALITY_GATE, T.APPROVED_WITH_ACTIONS): P.AWAITING_APPROVAL,
    (P.QUALITY_GATE, T.CHANGES_REQUESTED): P.EXECUTION_READY,
    (P.QUALITY_GATE, T.BLOCKED): P.CIRCUIT_OPEN,
    (P.AWAITING_APPROVAL, T.PERSON_APPROVED): P.READY_TO_RESUME,
    (P.AWAITING_APPROVAL, T.PERSON_ASKED_CHANGES): P.EXECUTION_READY,
    (P.AWAITING_APPROVAL, T.PERSON_REJECTED): P.FAILED,
    (P.AWAITING_APPROVAL, T.ACTION_IMPOSSIBLE): P.EXECUTION_READY,
    (P.AWAITING_APPROVAL, T.BLOCKED): P.CIRCUIT_OPEN,
    (P.READY_TO_RESUME, T.APPROVAL_VOID): P.AWAITING_APPROVAL,
    (P.READY_TO_RESUME, T.ACTION_DONE): P.COMPLETED,
    (P.READY_TO_RESUME, T.ACTION_UNCERTAIN): P.CIRCUIT_OPEN,
    (P.CIRCUIT_OPEN, T.OPERATOR_RETRY): P.EXECUTION_READY,
    (P.CIRCUIT_OPEN, T.OPERATOR_ACCEPT): P.COMPLETED,
    (P.CIRCUIT_OPEN, T.OPERATOR_FAIL): P.FAILED,
    (P.CIRCUIT_OPEN, T.HOLD_OVER): P.FAILED,
    # Work that mailboxd has no record of, as its task.md says: begun before it came, or its database is made again.
    **{(phase, T.IMPORTED_DONE): P.COMPLETED for phase in _TAKEN_OVER},
    **{(phase, T.IMPORTED_FAILED): P.FAILED for phase in _TAKEN_OVER},
    # Explicit orders about ended work: the operator's, or a newer dispatch of whoever gave it.
    (P.FAILED, T.OPERATOR_RETRY): P.EXECUTION_READY,
    (P.CANCELLED, T.OPERATOR_RETRY): P.EXECUTION_READY,
    (P.CANCELLED, T.REOPENED): P.SPEC_DRAFT,
    (P.FAILED, T.REOPENED): P.SPEC_DRAFT,
    (P.COMPLETED, T.OPERATOR_RETRY): P.EXECUTION_READY,
    (P.FAILED, T.REDISPATCHED): P.EXECUTION_READY,
    (P.COMPLETED, T.REDISPATCHED): P.EXECUTION_READY,
    (P.CANCELLED, T.REDISPATCHED): P.EXECUTION_READY,
    (P.CANCELLED, T.RENEWED): P.SPEC_DRAFT,
    (P.FAILED, T.RENEWED): P.SPEC_DRAFT,
    # An approved action that is about to run is not overtaken by a clock.
    **{(phase, T.DEADLINE_PASSED): P.FAILED for phase in Phase if phase not in {*TERMINAL, P.READY_TO_RESUME}},
    **{(phase, T.CANCELLED): P.CANCELLED for phase in Phase if phase not in TERMINAL},
}
"""(phase, trigger) -> phase, after the table of protocol section 4. Absence is refusal."""


def move(
    task: Task, trigger: Trigger, now: str, reason: str, *, by: str = "", role: Role = Role.ORCHESTRATOR, **changes: Any
) -> tuple[Event, Task]:
    """The event that moves `task`, and the task as it is then; `changes` are other fields that change with it.

    Raises Refused when the table has no such row.
    """
    target = TRANSITIONS.get((task.phase, trigger))
    if target is None:
        raise Refused("illegal-transition", f"{task.local_id} is {task.phase}: {trigger} does not apply there")
    if target in TERMINAL:
        changes.setdefault("completed_at", now)
        changes.setdefault("held", "")
    if target is not Phase.CIRCUIT_OPEN:
        changes.setdefault("due", None)
    changes = {"phase": target, "reason": reason, "circuit_open": target is Phase.CIRCUIT_OPEN, **changes}
    data = {"from": task.phase, "to": target, "trigger": trigger, "reason": reason}
    return _changed(Kind.TASK_TRANSITIONED, task, now, data, by, role, changes)


def amend(
    task: Task, now: str, note: str = "", *, by: str = "", role: Role = Role.ORCHESTRATOR, **changes: Any
) -> tuple[Event, Task]:
    """The event that changes other fields of the task's row, in the phase it is in, and the task as it is then."""
    return _changed(Kind.TASK_AMENDED, task, now, {"note": note}, by, role, changes)


def _changed(
    kind: Kind, task: Task, now: str, data: Mapping[str, Any], by: str, role: Role, changes: Mapping[str, Any]
) -> tuple[Event, Task]:
    # the task is made of the values themselves: what `evolve` makes of their JSON is the same
    event = Event(kind, task.id, {**data, "at": now, "changes": each_to_json(changes)}, role, by or "mailboxd")
    return event, replace(task, updated_at=now, **changes)


# ------------------------------------------------------------------ what follows from how things stand


@dataclass(frozen=True, slots=True)
class StateTriggered:
    """One state-triggered row: in `phase`, when `holds`, the trigger follows, for the reason that `holds` returns."""

    phase: Phase
    trigger: Trigger
    condition: Callable[[TaskView], str | None]
    """The reason when the condition is met, else None."""


def _spec_complete(view: TaskView) -> str | None:
    # Findings here are those of a spec review: somebody has to mend the text first.
    task = view.task
    weak = task.findings or lint(task.spec, task.policy.weak, view.refused_checks)
    return None if weak else "the spec is complete"


def _verdict(gate: Gate, wanted: Verdict) -> Callable[[TaskView], str | None]:
    """The reason of the gate's verdict, if that is the one that is wanted."""

    def condition(view: TaskView) -> str | None:
        said = gate_verdict(view, gate)
        return said[1] if said is not None and said[0] is wanted else None

    return condition


def _rework(gate: Gate, used_up: bool) -> Callable[[TaskView], str | None]:
    asked = _verdict(gate, Verdict.CHANGES_REQUESTED)

    def condition(view: TaskView) -> str | None:
        if (view.task.rework >= view.task.policy.max_rework) is not used_up:
            return None
        reason = asked(view)
        return f"{reason}; rework is used up" if reason and used_up else reason

    return condition


def _quality_approved(with_actions: bool) -> Callable[[TaskView], str | None]:
    approved = _verdict(Gate.QUALITY_GATE, Verdict.APPROVED)

    def condition(view: TaskView) -> str | None:
        return approved(view) if bool(view.task.planned_actions) is with_actions else None

    return condition


def _child_failed(view: TaskView) -> str | None:
    """Fail-fast; for a broadcast only when its join can no longer be met."""
    task, children = view.task, view.children
    gone = children.failed + children.cancelled
    if task.broadcast and task.policy.join is not Join.ALL:
        return (
            "no copy of the broadcast can complete its join" if children.open == 0 and _joined(view) is None else None
        )
    if children.failed:
        return view.failed_child or "a child failed"
    return "every child was cancelled" if children.total and gone == children.total else None


def _joined(view: TaskView) -> str | None:
    """The answer that decides a first or majority broadcast; None while undecided."""
    if view.task.policy.join is Join.FIRST:
        return "first" if view.children.completed else None
    return majority(view.answers, view.children.total)


def review_round(task: Task) -> int:
    """Which asking of the reviewers this is, at the gate the task is at: a verdict is over one attempt and no other.

    Where it is the spec that is reviewed, what counts is how often it went there.
    """
    return task.mending.rounds if task.phase is Phase.SPEC_REVIEW else task.attempt


def join_is_met(view: TaskView) -> bool:
    """Whether a coordinating task's children allow its result to be made."""
    task, children = view.task, view.children
    if not children.total:
        return False
    if task.broadcast and task.policy.join is not Join.ALL:
        return _joined(view) is not None
    return children.open == 0 and children.failed == 0 and children.completed > 0


def _parent_ended(view: TaskView) -> str | None:
    if view.parent_phase in (Phase.CANCELLED, Phase.FAILED):
        return f"the parent is {view.parent_phase}"
    return "the broadcast is decided" if view.parent_phase is not None and view.parent_phase in AFTER_JOIN else None


def _need_cancelled(view: TaskView) -> str | None:
    """Without what it needs it could never start, and its parent would wait for it for ever."""
    return f"{view.cancelled_need}, which it needs, was cancelled" if view.cancelled_need else None


AFTER_JOIN = frozenset({P.SPEC_GATE, P.QUALITY_GATE, P.AWAITING_APPROVAL, P.READY_TO_RESUME, P.COMPLETED})
CLOSES_CHILDREN = AFTER_JOIN | {P.CANCELLED, P.FAILED}
"""Phases of a parent in which no child of it goes on."""

BEFORE_EXECUTION = (P.SPEC_DRAFT, P.SPEC_REVIEW, P.EXECUTION_READY)

STATE_TRIGGERED: tuple[StateTriggered, ...] = (
    *(StateTriggered(phase, T.CANCELLED, _parent_ended) for phase in Phase if phase not in TERMINAL),
    *(
        StateTriggered(phase, T.CANCELLED, _need_cancelled)
        for phase in (P.SPEC_DRAFT, P.SPEC_REVIEW, P.EXECUTION_READY)
    ),
    StateTriggered(P.SPEC_DRAFT, T.SPEC_COMPLETE, _spec_complete),
    StateTriggered(P.SPEC_REVIEW, T.APPROVED, _verdict(Gate.SPEC_REVIEW, Verdict.APPROVED)),
    StateTriggered(P.SPEC_REVIEW, T.CHANGES_REQUESTED, _rework(Gate.SPEC_REVIEW, used_up=False)),
    StateTriggered(P.SPEC_REVIEW, T.BLOCKED, _rework(Gate.SPEC_REVIEW, used_up=True)),
    StateTriggered(P.SPEC_REVIEW, T.BLOCKED, _verdict(Gate.SPEC_REVIEW, Verdict.BLOCKED)),
    StateTriggered(P.EXECUTING, T.CHILD_FAILED, _child_failed),
    StateTriggered(P.SPEC_GATE, T.APPROVED, _verdict(Gate.SPEC_GATE, Verdict.APPROVED)),
    StateTriggered(P.SPEC_GATE, T.CHANGES_REQUESTED, _rework(Gate.SPEC_GATE, used_up=False)),
    StateTriggered(P.SPEC_GATE, T.BLOCKED, _rework(Gate.SPEC_GATE, used_up=True)),
    StateTriggered(P.SPEC_GATE, T.BLOCKED, _verdict(Gate.SPEC_GATE, Verdict.BLOCKED)),
    StateTriggered(P.QUALITY_GATE, T.APPROVED, _quality_approved(with_actions=False)),
    StateTriggered(P.QUALITY_GATE, T.APPROVED_WITH_ACTIONS, _quality_approved(with_actions=True)),
    StateTriggered(P.QUALITY_GATE, T.CHANGES_REQUESTED, _rework(Gate.QUALITY_GATE, used_up=False)),
    StateTriggered(P.QUALITY_GATE, T.BLOCKED, _rework(Gate.QUALITY_GATE, used_up=True)),
    StateTriggered(P.QUALITY_GATE, T.BLOCKED, _verdict(Gate.QUALITY_GATE, Verdict.BLOCKED)),
    StateTriggered(P.AWAITING_APPROVAL, T.PERSON_REJECTED, one_is(ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED)),
    StateTriggered(P.AWAITING_APPROVAL, T.PERSON_ASKED_CHANGES, one_is(ApprovalStatus.REQUEST_CHANGES)),
    StateTriggered(P.AWAITING_APPROVAL, T.PERSON_APPROVED, all_approved),
    StateTriggered(P.READY_TO_RESUME, T.ACTION_DONE, all_performed),
    StateTriggered(P.READY_TO_RESUME, T.ACTION_UNCERTAIN, one_uncertain),
)
"""State-triggered rows, in order of precedence within a phase."""
_STATE_TRIGGERED_IN = {phase: tuple(row for row in STATE_TRIGGERED if row.phase is phase) for phase in Phase}


def next_trigger(view: TaskView) -> tuple[Trigger, str] | None:
    """The trigger that follows from how the task stands now, with its reason; None when it rests."""
    for row in _STATE_TRIGGERED_IN[view.task.phase]:
        if (reason := row.condition(view)) is not None:
            return row.trigger, reason
    return None
