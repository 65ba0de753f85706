"""The life of a task: its phases, what moves it from one to the next, and every condition of these moves.

A task is in exactly one `Phase`. A `Trigger` moves it; TRANSITIONS gives the phase that a trigger leads to. A trigger
that has no row for the present phase is refused, and nothing happens. There are two kinds of triggers:

- Input triggers: a turn ended, the operator retried, a deadline passed. `core.decide` receives the input and asks the
  functions below, up to the section "State triggers", which trigger it means, if any.
- State triggers: the spec is complete, the last child completed, the parent was cancelled. STATE_TRIGGERED lists their
  conditions over a `TaskView`. After every event the engine asks `next_trigger` for the task and for the neighbours
  that the event touched, until nothing more follows. This fixed point is the recursive scheduler: a completed child
  starts its dependants and completes its parent, which starts the parent's dependants in turn.

A task passes through the phase of a gate that is off, too, with that reason on record: no task skips a phase.
The diagram in docs/when-work-counts.md is drawn from TRANSITIONS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mailboxd.core.approvals import Action, ApprovalStatus, Performed
from mailboxd.core.budget import is_paused
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import Remedy
from mailboxd.core.json_codec import fields_to_json
from mailboxd.core.model import Condition, Policy, Task, changed
from mailboxd.core.sanitize import first_line
from mailboxd.core.specs import lint
from mailboxd.core.stopping import stopped
from mailboxd.core.task_view import Review, TaskView
from mailboxd.core.vocabulary import (
    TERMINAL,
    AttemptStatus,
    CheckVerdict,
    Gate,
    Join,
    Phase,
    Quorum,
    Verdict,
    same_agent,
)
from mailboxd.errors import Refused

P = Phase


class Trigger(StrEnum):
    """The reasons for which a task changes its phase."""

    SPEC_COMPLETE = "spec complete"
    APPROVED = "approved"
    APPROVED_WITH_ACTIONS = "approved, planned actions exist"
    CHANGES_REQUESTED = "changes requested"
    BLOCKED = "blocked, or rework used up"
    ATTEMPT_STARTED = "attempt started"
    ATTEMPT_SUCCEEDED = "attempt succeeded"
    ATTEMPT_FAILED = "attempt failed, attempts are left"
    HOPELESS = "a failure that a retry cannot fix"
    CHILD_FAILED = "a child failed"
    EXHAUSTED = "attempts used up"
    OUTCOME_UNKNOWN = "outcome unknown, work not idempotent"
    PERSON_APPROVED = "a person approved"
    PERSON_ASKED_CHANGES = "a person asked for changes"
    PERSON_REJECTED = "a person rejected, or the approval expired"
    ACTION_IMPOSSIBLE = "an action cannot be performed as declared"
    APPROVAL_VOID = "the approver may no longer decide"
    ACTION_DONE = "the action ran once"
    ACTION_UNCERTAIN = "the action failed or its outcome is unknown"
    OPERATOR_RETRY = "operator: retry"
    REOPENED = "operator: retry, it had not started"
    SPEC_REWRITTEN = "a person rewrote the spec"
    OPERATOR_ACCEPT = "operator: accept the last good artifact"
    OPERATOR_FAIL = "operator: give up"
    ANSWERED_LATE = "the answer came whose absence had opened the circuit"
    HOLD_OVER = "not decided in time"
    DEADLINE_PASSED = "its deadline passed"
    REDISPATCHED = "the sender dispatched it again"
    RENEWED = "the sender dispatched it again, it had not started"
    IMPORTED_DONE = "imported as done"
    IMPORTED_FAILED = "imported as failed"
    REFUSED = "refused when it arrived; the chat that asked is told"
    CANCELLED = "cancelled"
    SKIPPED = "its condition does not hold, or what it needs was skipped"


T = Trigger
_IMPORTABLE = (P.SPEC_DRAFT, P.SPEC_REVIEW, P.EXECUTION_READY, P.SPEC_GATE, P.QUALITY_GATE, P.AWAITING_APPROVAL)

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
    (P.CIRCUIT_OPEN, T.ANSWERED_LATE): P.EXECUTING,
    # Work that mailboxd has no record of, as its task.md says: older than mailboxd, or the database is being rebuilt.
    **{(phase, T.IMPORTED_DONE): P.COMPLETED for phase in _IMPORTABLE},
    **{(phase, T.IMPORTED_FAILED): P.FAILED for phase in _IMPORTABLE},
    # Explicit orders about ended work: the operator's, or a newer dispatch by its sender.
    (P.FAILED, T.OPERATOR_RETRY): P.EXECUTION_READY,
    (P.CANCELLED, T.OPERATOR_RETRY): P.EXECUTION_READY,
    (P.CANCELLED, T.REOPENED): P.SPEC_DRAFT,
    (P.FAILED, T.REOPENED): P.SPEC_DRAFT,
    (P.COMPLETED, T.OPERATOR_RETRY): P.EXECUTION_READY,
    # Another text of its sender: what was decided about the first one no longer counts.
    (P.EXECUTION_READY, T.RENEWED): P.SPEC_DRAFT,
    **{(phase, T.REDISPATCHED): P.EXECUTION_READY for phase in (P.SPEC_GATE, P.QUALITY_GATE, P.AWAITING_APPROVAL)},
    (P.FAILED, T.REDISPATCHED): P.EXECUTION_READY,
    (P.COMPLETED, T.REDISPATCHED): P.EXECUTION_READY,
    (P.CANCELLED, T.REDISPATCHED): P.EXECUTION_READY,
    (P.CANCELLED, T.RENEWED): P.SPEC_DRAFT,
    (P.FAILED, T.RENEWED): P.SPEC_DRAFT,
    (P.SPEC_DRAFT, T.REFUSED): P.FAILED,
    # A deadline does not stop an approved action that is about to run.
    **{(phase, T.DEADLINE_PASSED): P.FAILED for phase in Phase if phase not in {*TERMINAL, P.READY_TO_RESUME}},
    **{(phase, T.CANCELLED): P.CANCELLED for phase in Phase if phase not in TERMINAL},
    **{(phase, T.SKIPPED): P.CANCELLED for phase in (P.SPEC_DRAFT, P.SPEC_REVIEW, P.EXECUTION_READY)},
}
"""(phase, trigger) -> phase, after the table of protocol section 4. Without a row the trigger is refused."""

BEFORE_EXECUTION = frozenset({P.SPEC_DRAFT, P.SPEC_REVIEW, P.EXECUTION_READY})
AFTER_JOIN = frozenset({P.SPEC_GATE, P.QUALITY_GATE, P.AWAITING_APPROVAL, P.READY_TO_RESUME, P.COMPLETED})
"""Phases in which a coordinating task has combined its children's results."""
CLOSES_CHILDREN = AFTER_JOIN | {P.CANCELLED, P.FAILED}
"""Phases of a parent in which none of its children may run."""


def applies(task: Task, trigger: Trigger) -> bool:
    """Whether the table has a row for `trigger` in the task's phase."""
    return (task.phase, trigger) in TRANSITIONS


def move(
    task: Task, trigger: Trigger, now: str, reason: str, **changes: Any
) -> tuple[dict[str, str], dict[str, Any], Task]:
    """The move of `task` by `trigger`: the step for the record, the fields that change, and the moved task.

    `changes` are other fields that change with it. Raises Refused when the table has no such row.
    """
    target = TRANSITIONS.get((task.phase, trigger))
    if target is None:
        raise Refused("illegal-transition", f"{task.local_id} {task.phase.told}: {trigger} does not apply there")
    if target in TERMINAL:
        changes.setdefault("completed_at", now)
        changes.setdefault("held", "")
    if target is not Phase.CIRCUIT_OPEN:
        changes.setdefault("due", None)
    changes = {"phase": target, "reason": reason, "circuit_open": target is Phase.CIRCUIT_OPEN, **changes}
    changes = {name: value for name, value in changes.items() if getattr(task, name) != value}
    step = {"from": task.phase._value_, "to": target._value_, "trigger": trigger._value_, "reason": reason}
    return step, changes, changed(task, updated_at=now, **changes)


def amend(
    task: Task, now: str, note: str = "", *, by: str = "mailboxd", role: Role = Role.ORCHESTRATOR, **changes: Any
) -> tuple[Event, Task]:
    """The event that changes fields of the task within its phase, and the changed task."""
    data = {"note": note, "at": now, "changes": fields_to_json(changes)}
    return Event(Kind.TASK_AMENDED, task.id, data, role, by), changed(task, updated_at=now, **changes)


# Input triggers: the conditions under which an input moves a task.


def may_start(view: TaskView) -> bool:
    """Whether an attempt may start: the task is ready, its dependencies are completed, its parent executes.

    And no live work claims what it writes.
    """
    ready = view.task.phase is Phase.EXECUTION_READY and not view.unmet and not view.claimed_by
    return ready and view.parent_phase in (None, Phase.EXECUTING)


def failure_trigger(policy: Policy, failures: int, *, permanent: bool) -> Trigger:
    """The consequence of the `failures`-th failed attempt: another attempt, an open circuit, or the end."""
    if permanent or policy.max_attempts == 1:
        return T.HOPELESS
    return T.EXHAUSTED if is_exhausted(policy, failures) else T.ATTEMPT_FAILED


def is_exhausted(policy: Policy, failures: int) -> bool:
    return failures >= policy.max_attempts


def may_repeat(task: Task, *, harmless: bool) -> bool:
    """Whether work of unknown outcome may run again (section 7, rule 3): it is idempotent, or used no tool."""
    return task.policy.idempotent or harmless


def awaits_late_answer(view: TaskView) -> bool:
    """Whether the circuit is open only because nobody could tell how the attempt ended: its answer closes it."""
    attempt = view.attempt
    return attempt is not None and attempt.status is AttemptStatus.UNKNOWN and applies(view.task, T.ANSWERED_LATE)


def retry_trigger(view: TaskView) -> Trigger:
    """The effect of an operator's retry: a new attempt, or for a task that had none a new review of its spec.

    Raises Refused.
    """
    task = view.task
    may_return = task.cancelled_with_parent or task.skipped
    if task.phase is Phase.CANCELLED and (task.parent is None or not may_return):
        raise Refused("cancelled", f"{task.local_id} was cancelled, which is final", "Send the work as a new task.")
    if not applies(task, T.OPERATOR_RETRY):
        raise Refused(
            "not-failed",
            f"{task.local_id} {task.phase.told}: there is nothing to retry",
            f"See `mailboxd why {task.local_id}`.",
        )
    if view.parent_phase in CLOSES_CHILDREN:
        raise Refused("parent-ended", f"{task.local_id}: its parent is {view.parent_phase}", "Retry the parent.")
    return T.REOPENED if task.phase.is_terminal and not task.attempt else T.OPERATOR_RETRY


def redispatch_trigger(task: Task) -> Trigger:
    """The effect of another dispatch of work with a result or an end: a new attempt, or a new review if it had none."""
    return T.RENEWED if task.phase is not Phase.COMPLETED and not task.attempt else T.REDISPATCHED


def require_unblockable(task: Task, remedy: Remedy) -> None:
    """Raise Refused unless this remedy can release the task: an open circuit, or for a retry also a hold."""
    if task.phase is not Phase.CIRCUIT_OPEN and not task.held:
        raise Refused("not-blocked", *_not_stopped(task))
    if task.phase is not Phase.CIRCUIT_OPEN and is_paused(task.held):
        raise Refused("held", f"{task.local_id} is {task.held}", f"`mailboxd resume {task.local_id}` ends the pause.")
    if remedy is Remedy.RETRY:
        return
    if task.phase is not Phase.CIRCUIT_OPEN:
        problem = f"{task.local_id} {stopped(task.held)}: it can go on or be cancelled"
        raise Refused("held", problem, f"`mailboxd why {task.local_id}` names what releases it.")
    if remedy is Remedy.ACCEPT and not task.result:
        hint = f"Use `mailboxd retry {task.local_id}` or `mailboxd resolve {task.local_id} --failed`."
        raise Refused("no-artifact", f"{task.local_id} has no result to accept", hint)


def _not_stopped(task: Task) -> tuple[str, str]:
    """What the task does instead of having stopped, and what ends that."""
    name, cancel = task.local_id, f"`mailboxd cancel {task.local_id}` ends it."
    if task.phase.is_terminal:
        return f"{name} {task.phase.told}: there is nothing to resolve", f"See `mailboxd show {name}`."
    if task.phase is Phase.AWAITING_APPROVAL:
        how = "`mailboxd inbox` shows the request, for you to approve or reject;"
        return f"{name} waits for your approval", f"{how} {cancel}"
    does = "is under way" if task.phase is Phase.EXECUTING else "waits"
    return f"{name} has not ended: it {does}, and only what has stopped can be resolved", cancel


OPEN_CIRCUIT: Mapping[Phase, Trigger] = {
    P.SPEC_REVIEW: T.BLOCKED,
    P.EXECUTING: T.EXHAUSTED,
    P.SPEC_GATE: T.BLOCKED,
    P.QUALITY_GATE: T.BLOCKED,
    P.AWAITING_APPROVAL: T.BLOCKED,
    P.READY_TO_RESUME: T.ACTION_UNCERTAIN,
}
"""The trigger by which an orchestrator's order opens the circuit, by the phases that allow it."""


def impossible_action_trigger(task: Task, action: Action) -> Trigger | None:
    """The transition for a planned action that cannot be performed as declared; None if the task no longer wants it.

    An action of the result may be corrected by another attempt; one of the sender's spec may not.
    """
    if task.phase is not Phase.AWAITING_APPROVAL or action not in task.planned_actions:
        return None
    final = action in task.spec.planned_actions or task.rework >= task.policy.max_rework
    return T.BLOCKED if final else T.ACTION_IMPOSSIBLE


def deadline_passed(task: Task, read_until: str) -> bool:
    """Whether the deadline ends the task; `read_until` is the time up to which all mail has been read."""
    deadline = task.policy.deadline
    return deadline is not None and deadline <= read_until and (task.phase, T.DEADLINE_PASSED) in TRANSITIONS


# State triggers. First the gates: the verdicts of the reviewers under the quorum, and before them the checks.

GATES = {Phase(gate.value): gate for gate in Gate}
"""The gate that a task in this phase is at."""
GateVerdict = tuple[Verdict, str]
"""A gate's verdict, with the reason."""


def gate_on(task: Task) -> Gate | None:
    """The gate that the task is at, if that is on."""
    gate = GATES.get(task.phase)
    return gate if gate in task.policy.gates else None


def gate_verdict(view: TaskView, gate: Gate) -> GateVerdict | None:
    """The gate's verdict and its reason; None while it is open."""
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
    """The named reviewers who had no part in the work, each once (section 5)."""
    task, attempt = view.task, view.attempt
    authors = {task.executor.lower(), *((attempt.executor.lower(),) if attempt else ())}
    names: dict[str, str] = {}
    for name in task.policy.reviewers:
        names.setdefault(name.lower(), name)
    return tuple(name for key, name in names.items() if key not in authors)


def reviewers_at_gate(policy: Policy, names: tuple[str, ...], gate: Gate) -> tuple[str, ...]:
    """The reviewers of this gate.

    If both specification and quality are reviewed, the first half of those named reviews the specification and the
    rest the quality, so that none reviews both, unless the configuration allows it. Halves differ little between two
    agents that leave out different authors: so the verdicts that one's gate had are those that the other's needs.
    """
    both = Gate.QUALITY_GATE in policy.gates and len(policy.gates) > 1
    if policy.same_reviewer or not both:
        return names
    half = (len(names) + 1) // 2
    return names[half:] if gate is Gate.QUALITY_GATE else names[:half]


def eligible_reviewers(view: TaskView) -> tuple[str, ...]:
    """The reviewers of the gate that the task is at."""
    found, gate = independent_reviewers(view), GATES.get(view.task.phase)
    return found if gate is None else reviewers_at_gate(view.task.policy, found, gate)


def excluded_reviewers(view: TaskView) -> tuple[str, ...]:
    """The named reviewers who may not review, because they did the work."""
    found = independent_reviewers(view)
    return tuple(n for n in view.task.policy.reviewers if not any(same_agent(n, one) for one in found))


UNUSABLE = "no usable review"
"""How the summary of a review begins that counts as `blocked` because it could not be read."""


def _reviewed(view: TaskView, gate: Gate) -> GateVerdict | None:
    """Approved once the quorum approves; otherwise, when all verdicts are in, the most severe one."""
    asked = eligible_reviewers(view)
    if not asked:
        return None
    reviews = [review for review in view.reviews if review.reviewer in asked]
    verdicts = {review.reviewer: review.verdict for review in reviews}
    approvals = sum(1 for verdict in verdicts.values() if verdict is Verdict.APPROVED)
    if approvals >= _needed(view.task.policy.quorum, len(asked)):
        return Verdict.APPROVED, f"{gate}: approved by {_by(reviews, Verdict.APPROVED)}"
    lost = [asked.reviewer for asked in view.asked_reviewers if asked.failures >= view.task.policy.max_attempts]
    silent = [name for name in asked if name not in verdicts]
    if any(name not in lost for name in silent):
        return None
    if silent:
        return Verdict.BLOCKED, f"{gate}: {', '.join(silent)} could not review it: every turn failed"
    hardest = max(verdicts.values(), key=list(Verdict).index)
    if all(review.summary.startswith(UNUSABLE) for review in reviews if review.verdict is hardest):
        return hardest, f"{gate}: {UNUSABLE} from {_by(reviews, hardest)}, even when asked again"
    return hardest, f"{gate}: {hardest} by {_by(reviews, hardest)}"


def _by(reviews: Iterable[Review], verdict: Verdict) -> str:
    """Who gave the verdict, and at which peer."""
    return ", ".join(
        sorted(
            f"{one.reviewer} (given at {one.given_at})" if one.given_at else one.reviewer
            for one in reviews
            if one.verdict is verdict
        )
    )


def _needed(quorum: Quorum, reviewers: int) -> int:
    """How many approvals the gate needs."""
    return {Quorum.ALL: reviewers, Quorum.MAJORITY: reviewers // 2 + 1, Quorum.ANY: 1}[quorum]


def _checked(view: TaskView) -> GateVerdict | None:
    """The verdict of all checks together; None while one is running, and when there are none."""
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


# The copies of a broadcast: which answer wins. The only place where two answers are found to be the same.

Votes = tuple[tuple[str, int], ...]
"""Each answer with its count, most frequent first."""


def vote(answer: str, result: str) -> str:
    """A copy's vote: its declared answer or, without one, its whole result; surrounding white space is ignored."""
    return answer.strip() or result.strip()


def count_votes(copies: Iterable[tuple[str, str]]) -> Votes:
    """Count the votes of completed copies, each given as (declared answer, result)."""
    votes = Counter(vote(answer, result) for answer, result in copies)
    return tuple(sorted(votes.items(), key=lambda item: (-item[1], item[0])))


def majority(votes: Votes, copies: int) -> str | None:
    """The answer of more than half of all `copies`, including failed and unfinished ones; None if there is none."""
    return votes[0][0] if votes and votes[0][1] * 2 > copies else None


def winner(join: Join, done: Sequence[Task]) -> Task:
    """The completed copy whose result becomes the broadcast's: the first one, or the first with the majority answer."""
    in_order = sorted(done, key=lambda copy: (copy.completed_at or "", copy.id))
    if join is Join.FIRST:
        return in_order[0]
    most = count_votes((copy.answer, copy.result) for copy in done)[0][0]
    return next(copy for copy in in_order if vote(copy.answer, copy.result) == most)


# The flow of a plan: conditions over answers, and rounds.


def satisfied(condition: Condition, answer: str | None) -> bool:
    """Whether an answer is what the condition wants, ignoring case and surrounding white space; no answer never is."""
    if answer is None:
        return False
    wanted = {one.strip().casefold() for one in condition.answers}
    return (answer.strip().casefold() in wanted) is not condition.negated


def round_follows(task: Task, rounds: int, answer: str) -> bool:
    """Whether another round follows after so many, the latest of which gave this answer.

    Each attempt of the task may have `flow.rounds`: another attempt begins where the one before ended.
    """
    until = task.flow.until
    return rounds < task.flow.rounds * task.attempt and (until is None or not satisfied(until, answer))


def _wanted(condition: Condition) -> str:
    return ("not " if condition.negated else "") + " or ".join(condition.answers)


def _condition_fails(view: TaskView) -> str | None:
    """Why the task is skipped, once its dependencies have ended."""
    answers = {need.key: need.answer for need in view.needs}
    if view.task.flow.needs_any and answers and all(answer is None for answer in answers.values()):
        return "skipped: none of its dependencies was completed"
    for condition in view.task.flow.when:
        if condition.of in answers and not satisfied(condition, answer := answers[condition.of]):
            said = "has no answer" if answer is None else f"answered {first_line(answer, 80)}"
            return f"skipped: {condition.of} {said}; it runs if the answer is {_wanted(condition)}"
    return None


def _need_skipped(view: TaskView) -> str | None:
    return f"skipped: its dependency {view.cancelled_need} was skipped" if view.need_skipped else None


def _rounds_used_up(view: TaskView) -> str | None:
    task, until = view.task, view.task.flow.until
    if task.body is None or until is None or satisfied(until, task.answer):
        return None
    whose = f"the answer of {until.of}" if until.of else "the answer"
    said = first_line(task.answer, 80)
    return f"after {view.children.total} rounds {whose} is {said}; the last round is the one with {_wanted(until)}"


# Planned actions: what the approvals, and the outcomes of approved actions, add up to.


def all_approved(view: TaskView) -> str | None:
    """The reason when every planned action is approved: by whom."""
    rows = view.live_approvals
    if len(rows) < len(view.task.planned_actions) or any(row.status is not ApprovalStatus.APPROVED for row in rows):
        return None
    return "approved by " + ", ".join(dict.fromkeys(row.resolved_by for row in rows))


def one_is(*statuses: ApprovalStatus) -> Callable[[TaskView], str | None]:
    """A condition: a planned action has one of these statuses. The reason says which, by whom, and the note."""

    def condition(view: TaskView) -> str | None:
        row = next((row for row in view.live_approvals if row.status in statuses), None)
        if row is None:
            return None
        note = f": {row.note}" if row.note else ""
        return f"{row.requested_action}: {row.status} by {row.resolved_by}{note}"

    return condition


def all_performed(view: TaskView) -> str | None:
    """The reason when every planned action was performed: how many."""
    rows = view.live_approvals
    if len(rows) < len(view.task.planned_actions) or any(row.state is not Performed.DONE for row in rows):
        return None
    return f"{len(rows)} action{'s' * (len(rows) > 1)} performed"


def one_uncertain(view: TaskView) -> str | None:
    """The reason when an action failed, or its outcome stays unknown."""
    for row in view.live_approvals:
        if row.state is Performed.FAILED or (row.state is Performed.UNKNOWN and row.checked):
            return f"{row.requested_action} ({row.short_id}): {row.state}: {row.summary}"
    return None


# The table of state triggers.


@dataclass(frozen=True, slots=True)
class StateTriggered:
    """In `phase`, when `condition` returns a reason, the trigger follows."""

    phase: Phase
    trigger: Trigger
    condition: Callable[[TaskView], str | None]
    """The reason when the condition is met, else None."""


def _spec_complete(view: TaskView) -> str | None:
    # Findings in this phase come from a spec review: the text has to change first.
    task = view.task
    weak = task.findings or lint(task.spec, task.policy.weak, view.refused_checks)
    return None if weak else "the spec is complete"


def _verdict(gate: Gate, wanted: Verdict) -> Callable[[TaskView], str | None]:
    """A condition: the gate's verdict is `wanted`."""

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
    """Fail fast; a broadcast fails only when its join can no longer be met."""
    task, children = view.task, view.children
    gone = children.failed + children.cancelled
    if task.broadcast and task.policy.join is not Join.ALL:
        return _undecided(view) if children.open == 0 and _joined(view) is None else None
    if children.failed:
        return view.failed_child or "a child failed"
    if view.children_due:
        return None
    return "every child was cancelled" if children.total and gone == children.total else None


def _undecided(view: TaskView) -> str:
    """Why a broadcast has no result, with the votes."""
    votes = ", ".join(f"{count} said {first_line(answer, 80)}" for answer, count in view.answers[:_SHOWN_VOTES])
    return f"no copy of the broadcast can complete its join{f': {votes}' if votes else ''}"


_SHOWN_VOTES = 10


def _joined(view: TaskView) -> str | None:
    """The answer that decides a `first` or `majority` broadcast; None while it is undecided."""
    if view.task.policy.join is Join.FIRST:
        return "first" if view.children.completed else None
    return majority(view.answers, view.children.total)


def review_round(task: Task) -> int:
    """The review round at the task's gate: a verdict is about one attempt, or about one version of the spec."""
    return task.mending.rounds if task.phase is Phase.SPEC_REVIEW else task.attempt


def join_is_met(view: TaskView) -> bool:
    """Whether a coordinating task can make its result of its children's."""
    task, children = view.task, view.children
    if not children.total or view.children_due:
        return False
    if task.broadcast and task.policy.join is not Join.ALL:
        return _joined(view) is not None
    return children.open == 0 and children.failed == 0 and children.completed > 0


def _parent_ended(view: TaskView) -> str | None:
    if view.parent_phase in (Phase.CANCELLED, Phase.FAILED):
        return f"the parent is {view.parent_phase}"
    return "the broadcast is decided" if view.parent_phase is not None and view.parent_phase in AFTER_JOIN else None


def _need_cancelled(view: TaskView) -> str | None:
    """Without its dependency it could never start, and its parent would wait forever."""
    return f"its dependency {view.cancelled_need} was cancelled" if view.cancelled_need else None


STATE_TRIGGERED: tuple[StateTriggered, ...] = (
    *(StateTriggered(phase, T.CANCELLED, _parent_ended) for phase in Phase if phase not in TERMINAL),
    *(StateTriggered(phase, T.SKIPPED, _need_skipped) for phase in sorted(BEFORE_EXECUTION)),
    *(StateTriggered(phase, T.CANCELLED, _need_cancelled) for phase in sorted(BEFORE_EXECUTION)),
    *(StateTriggered(phase, T.SKIPPED, _condition_fails) for phase in sorted(BEFORE_EXECUTION)),
    StateTriggered(P.SPEC_DRAFT, T.SPEC_COMPLETE, _spec_complete),
    StateTriggered(P.SPEC_REVIEW, T.APPROVED, _verdict(Gate.SPEC_REVIEW, Verdict.APPROVED)),
    StateTriggered(P.SPEC_REVIEW, T.CHANGES_REQUESTED, _rework(Gate.SPEC_REVIEW, used_up=False)),
    StateTriggered(P.SPEC_REVIEW, T.BLOCKED, _rework(Gate.SPEC_REVIEW, used_up=True)),
    StateTriggered(P.SPEC_REVIEW, T.BLOCKED, _verdict(Gate.SPEC_REVIEW, Verdict.BLOCKED)),
    StateTriggered(P.EXECUTING, T.CHILD_FAILED, _child_failed),
    StateTriggered(P.SPEC_GATE, T.BLOCKED, _rounds_used_up),
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
"""In order of precedence within a phase."""
_STATE_TRIGGERED_IN = {phase: tuple(row for row in STATE_TRIGGERED if row.phase is phase) for phase in Phase}
_OF_OTHERS = frozenset({_parent_ended, _need_skipped, _need_cancelled, _condition_fails})
_ALONE_IN = {
    phase: tuple(row for row in rows if row.condition not in _OF_OTHERS) for phase, rows in _STATE_TRIGGERED_IN.items()
}
"""Without those that only the end of its parent or of a dependency can cause."""


def next_trigger(view: TaskView) -> tuple[Trigger, str] | None:
    """The trigger that follows from the present state, with its reason; None at the fixed point."""
    is_alone = not (view.parent_phase in CLOSES_CHILDREN or view.needs or view.cancelled_need or view.need_skipped)
    for row in (_ALONE_IN if is_alone else _STATE_TRIGGERED_IN)[view.task.phase]:
        if (reason := row.condition(view)) is not None:
            return row.trigger, reason
    return None
