"""What a caller of a typed tool brings: checkpoints, files, verdicts, and the orchestrator's order to stop trying.

The role was checked by `core.roles` already; here it is asked whose the work is. Evidence is recorded in the caller's
name and moves no phase; what follows from it (a gate that is decided) is the orchestrator's, as everywhere.
"""

from __future__ import annotations

from mailboxd.core.attempts import answered
from mailboxd.core.decision_builder import Draft
from mailboxd.core.events import Kind, Role
from mailboxd.core.fixpoint import end_attempt, open_circuit
from mailboxd.core.inputs import ByTool, Checkpoint, FileMade, OpenCircuit, Progress, ReviewGiven, ReviewKind
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.outcomes import Reviewed
from mailboxd.core.reviews import reviewed_by
from mailboxd.core.roles import REVIEWERS, require_executor, require_reviewer
from mailboxd.core.vocabulary import AttemptStatus, Gate, Phase, Turn, same_agent
from mailboxd.errors import Refused

_GATES = {
    ReviewKind.SPEC: (Gate.SPEC_REVIEW, Gate.SPEC_GATE),
    ReviewKind.QUALITY: (Gate.QUALITY_GATE,),
}
_OPENS = {
    Phase.SPEC_REVIEW: Trigger.BLOCKED,
    Phase.EXECUTING: Trigger.EXHAUSTED,
    Phase.SPEC_GATE: Trigger.BLOCKED,
    Phase.QUALITY_GATE: Trigger.BLOCKED,
    Phase.AWAITING_APPROVAL: Trigger.BLOCKED,
    Phase.READY_TO_RESUME: Trigger.ACTION_UNCERTAIN,
}
"""From where a circuit can open, and by which row of the table."""


def given(draft: Draft, heard: ByTool) -> None:
    """Take it, or raise Refused."""
    match heard:
        case Checkpoint(note, attempt_id):
            _require_part(draft, attempt_id)
            _checkpoint(draft, note)
        case FileMade():
            _require_part(draft, heard.attempt_id)
            _file(draft, heard)
        case ReviewGiven():
            _review(draft, heard)
        case OpenCircuit(reason):
            _open(draft, reason)


def _require_part(draft: Draft, attempt_id: str | None) -> None:
    """An executor adds to its own live attempt, a reviewer to what it is named for; the others to any live attempt."""
    task, attempt = draft.task, draft.attempt
    if draft.role in REVIEWERS:
        require_reviewer(draft.actor, task)
    if draft.role is Role.EXECUTOR:
        require_executor(draft.actor, attempt.executor if attempt else task.executor, task)
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} is {task.phase}: nothing is added to it any more")
    if attempt is None or (draft.role is Role.EXECUTOR and attempt.status is not AttemptStatus.RUNNING):
        raise Refused("no-attempt", f"{task.local_id} is {task.phase}: no attempt is running")
    _require_live(draft, attempt_id)


def _require_live(draft: Draft, attempt_id: str | None) -> None:
    if attempt_id is not None and (draft.attempt is None or draft.attempt.id != attempt_id):
        raise Refused("stale-attempt", f"{attempt_id} is not the present attempt of {draft.task.local_id}")


def _checkpoint(draft: Draft, note: str) -> None:
    if draft.role is Role.EXECUTOR:
        answered(draft, Progress(note), Turn.DISPATCH, draft.actor)
    elif draft.attempt is not None:
        draft.record(Kind.ATTEMPT_CHECKPOINT, attempt=draft.attempt.id, note=note, changes={})


def _file(draft: Draft, file: FileMade) -> None:
    draft.record(
        Kind.ARTIFACT_RECORDED,
        artifact={
            "id": draft.ctx.new_id("art"),
            "kind": file.kind,
            "attempt": draft.attempt.id if draft.attempt else None,
            "uri": file.uri,
            "sha256": file.sha256,
            "summary": file.summary,
            "produced_by": draft.actor,
            "body": "",
        },
    )


def _review(draft: Draft, given_: ReviewGiven) -> None:
    """The first verdict of a reviewer in a round counts; the same one again changes nothing, another is refused."""
    task, actor = draft.task, draft.actor
    require_reviewer(actor, task)
    gate = next((gate for gate in _GATES[given_.kind] if gate.value == task.phase.value), None)
    asked = next((one.reviewer for one in draft.view.asked_reviewers if same_agent(one.reviewer, actor)), None)
    if gate is None or asked is None:
        raise Refused("not-under-review", f"{task.local_id} is {task.phase}: no {given_.kind} review of {actor} is due")
    _require_live(draft, given_.attempt_id)
    before = next((review for review in draft.view.reviews if same_agent(review.reviewer, actor)), None)
    if before is None:
        reviewed_by(draft, gate, asked, Reviewed(given_.verdict, given_.summary, given_.findings))
    elif (before.verdict, before.summary) != (given_.verdict, given_.summary):
        raise Refused("already-reviewed", f"{actor} has said {before.verdict} of {task.local_id} already")


def _open(draft: Draft, reason: str) -> None:
    task = draft.task
    if task.phase not in _OPENS:
        raise Refused("illegal-transition", f"{task.local_id} is {task.phase}: no circuit opens from there")
    end_attempt(draft, AttemptStatus.ABORTED, reason)
    open_circuit(draft, _OPENS[task.phase], f"opened by {draft.actor}: {reason}")
