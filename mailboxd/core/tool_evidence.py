"""Inputs of MCP tools: checkpoints, files, verdicts, and the orchestrator's order to open the circuit.

Verdicts also come by message. `core.roles` has checked the role; this module checks that the work is the caller's.
Evidence is recorded in the caller's name and moves no phase.
"""

from __future__ import annotations

from mailboxd.core.conversation import renew_lease
from mailboxd.core.decision_builder import DecisionBuilder
from mailboxd.core.events import Kind, Role
from mailboxd.core.fixpoint import end_attempt, open_circuit
from mailboxd.core.inputs import ByTool, Checkpoint, FileMade, OpenCircuit, ReviewGiven, ReviewKind
from mailboxd.core.lifecycle import OPEN_CIRCUIT, review_round
from mailboxd.core.outcomes import Reviewed
from mailboxd.core.reviews import reviewed_by
from mailboxd.core.roles import REVIEWERS, require_executor, require_reviewer
from mailboxd.core.vocabulary import AttemptStatus, Gate, Waiting, same_agent
from mailboxd.errors import Refused

_GATES = {
    ReviewKind.SPEC: (Gate.SPEC_REVIEW, Gate.SPEC_GATE),
    ReviewKind.QUALITY: (Gate.QUALITY_GATE,),
}


def handle(builder: DecisionBuilder, given: ByTool) -> None:
    """Handle the input. Raises Refused."""
    match given:
        case Checkpoint():
            _require_part(builder, given.attempt_id)
            _checkpoint(builder, given)
        case FileMade():
            _require_part(builder, given.attempt_id)
            _file(builder, given)
        case ReviewGiven():
            _review(builder, given)
        case OpenCircuit(reason):
            _open(builder, reason)


def _require_part(builder: DecisionBuilder, attempt_id: str | None) -> None:
    """Raise Refused unless the caller may add evidence: executors to their live attempt, reviewers to their reviews."""
    task, attempt = builder.task, builder.attempt
    if builder.role in REVIEWERS:
        require_reviewer(builder.actor, task)
    if builder.role is Role.EXECUTOR:
        require_executor(builder.actor, attempt.executor if attempt else task.executor, task)
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} {task.phase.told}: it accepts no further evidence")
    if attempt is None or (builder.role is Role.EXECUTOR and attempt.status is not AttemptStatus.RUNNING):
        raise Refused("no-attempt", f"{task.local_id}: no attempt is running")
    _require_live(builder, attempt_id)


def _require_live(builder: DecisionBuilder, attempt_id: str | None) -> None:
    if attempt_id is not None and (builder.attempt is None or builder.attempt.id != attempt_id):
        raise Refused("stale-attempt", f"{attempt_id} is not the present attempt of {builder.task.local_id}")


def _checkpoint(builder: DecisionBuilder, given: Checkpoint) -> None:
    attempt = builder.attempt
    if attempt is None:
        raise AssertionError("a checkpoint is about an attempt")
    said = {"type": given.type} | ({"payload": given.payload} if given.payload else {})
    builder.record(Kind.ATTEMPT_CHECKPOINT, attempt=attempt.id, note=given.note, **said)
    if builder.role is Role.EXECUTOR and attempt.waiting_for is Waiting.REPLY:
        renew_lease(builder)


def _file(builder: DecisionBuilder, file: FileMade) -> None:
    builder.artifact(file.kind, "", file.summary, builder.actor, uri=file.uri, sha256=file.sha256)


def _review(builder: DecisionBuilder, review: ReviewGiven) -> None:
    """Record the reviewer's first verdict in the round; an equal one is ignored, another is refused."""
    task, actor = builder.task, builder.actor
    require_reviewer(actor, task)
    gate = next((gate for gate in _GATES[review.kind] if gate.value == task.phase.value), None)
    asked = next((one.reviewer for one in builder.view.asked_reviewers if same_agent(one.reviewer, actor)), None)
    if gate is None or asked is None:
        raise Refused(
            "not-under-review", f"{task.local_id} {task.phase.told}: no {review.kind} review of {actor} is due"
        )
    _require_live(builder, review.attempt_id)
    if review.round not in (None, round_ := review_round(task)):
        problem = f"it is about attempt {review.round} of {task.local_id}; attempt {round_} is under review"
        raise Refused("stale-attempt", problem, "Name the attempt as the request for the review does: `attempt: N`.")
    before = next((one for one in builder.view.reviews if same_agent(one.reviewer, actor)), None)
    if before is None:
        reviewed_by(builder, gate, asked, Reviewed(review.verdict, review.summary, review.findings))
    elif (before.verdict, before.summary) != (review.verdict, review.summary):
        raise Refused("already-reviewed", f"{actor} has already given the verdict {before.verdict} on {task.local_id}")


def _open(builder: DecisionBuilder, reason: str) -> None:
    task = builder.task
    trigger = OPEN_CIRCUIT.get(task.phase)
    if trigger is None:
        raise Refused("illegal-transition", f"{task.local_id} {task.phase.told}: it cannot be stopped there")
    end_attempt(builder, AttemptStatus.ABORTED, reason)
    open_circuit(builder, trigger, f"{builder.actor} stopped it: {reason}")
