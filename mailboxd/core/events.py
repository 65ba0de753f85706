"""Events: recorded once, never edited. Their log is the audit trail and the only way in which state changes.

An event names one task (or none, for a message that belongs to no task) and carries plain JSON values, so that the log
can be read, replayed and hashed without this program. `evolve` and `evolve_attempt` apply one event to a task and to an
attempt. The arrows show the change in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from mailboxd.core.json_codec import read_field
from mailboxd.core.model import Attempt, Task


class Role(StrEnum):
    """The role of an actor (protocol section 5); `core.roles` has the permission matrix."""

    ORCHESTRATOR = "orchestrator"
    EXECUTOR = "executor"
    SPEC_REVIEWER = "spec_reviewer"
    QUALITY_REVIEWER = "quality_reviewer"
    LOBSTER = "lobster"
    OPERATOR = "operator"


class Kind(StrEnum):
    TASK_CREATED = "task.created"  # -> a row in tasks, its dependencies
    TASK_TRANSITIONED = "task.transitioned"  # phase -> phase, plus `changes`
    TASK_AMENDED = "task.amended"  # the same phase, other values (spec, notes, mode, lease ...)
    NEEDS_CHANGED = "task.needs_changed"  # other rows in dependencies
    ATTEMPT_STARTED = "attempt.started"  # -> a row in attempts, running
    ATTEMPT_CHECKPOINT = "attempt.checkpoint"  # running -> running, other values
    ATTEMPT_FINISHED = "attempt.finished"  # running -> succeeded | failed | aborted | unknown
    TURN_ENDED = "turn.ended"  # -> what it cost, in tasks up to the root; faults in a row, in breakers
    USAGE_REPORTED = "usage.reported"  # by a peer, unchecked -> what it cost, in tasks up to the root
    PEER_SILENT = "peer.silent"  # the executing peer missed its heartbeat
    BREAKER_OPENED = "breaker.opened"  # closed | half_open -> open
    BREAKER_HALF_OPEN = "breaker.half_open"  # open -> half_open
    BREAKER_CLOSED = "breaker.closed"  # open | half_open -> closed
    ARTIFACT_RECORDED = "artifact.recorded"  # -> a row in artifacts
    REVIEW_REQUESTED = "review.requested"  # a review turn is ordered
    REVIEW_APPENDED = "review.appended"  # -> a row in reviews
    REVIEW_LOST = "review.lost"  # a reviewer's turn brought no verdict
    CHECK_ENDED = "check.ended"  # -> a row in check_runs
    APPROVAL_REQUESTED = "approval.requested"  # -> a row in approvals
    APPROVAL_RESOLVED = "approval.resolved"  # pending -> approved | rejected | request_changes | expired
    ACTION_STARTED = "action.started"  # its row: from now on it may have happened
    ACTION_DELAYED = "action.delayed"  # its row: nothing started, it will be tried again
    ACTION_ENDED = "action.ended"  # its row: done | failed | unknown
    UNDO_REQUESTED = "undo.requested"  # an operator wants an action undone
    CIRCUIT_OPENED = "circuit.opened"
    PLAN_ADOPTED = "plan.adopted"  # the task now coordinates subtasks
    EDIT_REFUSED = "task.edit_refused"  # an edit of task.md was reverted
    CONTEXT_CUT = "context.cut"  # upstream results did not fit
    QUESTION_ASKED = "question.asked"
    STEERED = "task.steered"
    REPLY_LATE = "reply.late"  # recorded, changes nothing
    TASK_PUT_AWAY = "task.put_away"  # its directory is now in tasks/.archive/
    MESSAGE_RECEIVED = "message.received"  # -> a row in messages
    MESSAGE_REJECTED = "message.rejected"  # -> a row in messages
    MESSAGE_FILED = "message.filed"  # the file is now in archive/ or rejected/
    MESSAGE_SENT = "message.sent"  # -> a row in messages
    INBOX_REARMED = "inbox.rearmed"  # its directory was replaced, and is watched again
    MESSAGE_UNDELIVERED = "message.undelivered"  # the peer could not be reached; the file stays in outbox/
    ALARM = "alarm"  # something an operator should look at


@dataclass(frozen=True, slots=True)
class Event:
    kind: Kind
    task: str | None
    data: Mapping[str, Any]
    role: Role = Role.ORCHESTRATOR
    actor: str = "mailboxd"


def evolve(task: Task, event: Event) -> Task:
    """Apply one event to the task it names; returns the task itself if the event does not concern its row."""
    if event.kind not in (Kind.TASK_TRANSITIONED, Kind.TASK_AMENDED):
        return task
    return replace(task, updated_at=event.data["at"], **_changes(Task, event))


def evolve_attempt(attempt: Attempt, event: Event) -> Attempt:
    """Apply one event to the attempt it names; returns the attempt itself if the event does not concern its row."""
    if event.kind not in (Kind.ATTEMPT_CHECKPOINT, Kind.ATTEMPT_FINISHED):
        return attempt
    return replace(attempt, **_changes(Attempt, event))


def _changes(kind: type[Any], event: Event) -> dict[str, Any]:
    return {name: read_field(kind, name, value) for name, value in event.data.get("changes", {}).items()}
