"""What we decided: recorded once, never edited. The events table is the audit trail and the only way state changes.

An event names one task (or none, for a message that belongs to no task) and carries plain JSON values, so that the
log can be read, replayed and hashed without this program. `evolve` is the fold: what one event does to one task, and
`evolve_attempt` the same for an attempt.
Arrows say which change of the tables each kind stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from mailboxd.core.json_codec import read_field
from mailboxd.core.model import Attempt, Task


class Role(StrEnum):
    """Who acts (protocol section 5). The permission matrix over these is `core.roles`."""

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
    PEER_SILENT = "peer.silent"  # who has the work has missed its heartbeat
    BREAKER_OPENED = "breaker.opened"  # closed | half_open -> open
    BREAKER_HALF_OPEN = "breaker.half_open"  # open -> half_open
    BREAKER_CLOSED = "breaker.closed"  # open | half_open -> closed
    ARTIFACT_RECORDED = "artifact.recorded"  # -> a row in artifacts
    REVIEW_REQUESTED = "review.requested"  # a reviewer is asked
    REVIEW_APPENDED = "review.appended"  # -> a row in reviews
    REVIEW_LOST = "review.lost"  # a reviewer's turn brought no verdict
    CHECK_ENDED = "check.ended"  # -> a row in check_runs
    APPROVAL_REQUESTED = "approval.requested"  # -> a row in approvals
    APPROVAL_RESOLVED = "approval.resolved"  # pending -> approved | rejected | request_changes | expired
    ACTION_STARTED = "action.started"  # its row: from here on it may have happened
    ACTION_DELAYED = "action.delayed"  # its row: nothing began, it is tried again
    ACTION_ENDED = "action.ended"  # its row: done | failed | unknown
    UNDO_REQUESTED = "undo.requested"  # a person wants an action taken back
    CIRCUIT_OPENED = "circuit.opened"
    PLAN_ADOPTED = "plan.adopted"  # the task coordinates from here on
    EDIT_REFUSED = "task.edit_refused"  # a task.md was put back
    CONTEXT_CUT = "context.cut"  # upstream results did not fit
    QUESTION_ASKED = "question.asked"
    STEERED = "task.steered"
    REPLY_LATE = "reply.late"  # recorded, changes nothing
    TASK_PUT_AWAY = "task.put_away"  # its directory now lies in tasks/.archive/
    MESSAGE_RECEIVED = "message.received"  # -> a row in messages
    MESSAGE_REJECTED = "message.rejected"  # -> a row in messages
    MESSAGE_FILED = "message.filed"  # the file now lies in archive/ or rejected/
    MESSAGE_SENT = "message.sent"  # -> a row in messages
    INBOX_REARMED = "inbox.rearmed"  # another directory lies where it lay, and is listened to
    MESSAGE_UNDELIVERED = "message.undelivered"  # the peer could not be told; the file stays in outbox/
    ALARM = "alarm"  # something an operator should look at


@dataclass(frozen=True, slots=True)
class Event:
    kind: Kind
    task: str | None
    data: Mapping[str, Any]
    role: Role = Role.ORCHESTRATOR
    actor: str = "mailboxd"


def evolve(task: Task, event: Event) -> Task:
    """Apply one event to the task it names; events that do not touch the task's own row leave it as it is."""
    if event.kind not in (Kind.TASK_TRANSITIONED, Kind.TASK_AMENDED):
        return task
    return replace(task, updated_at=event.data["at"], **_changes(Task, event))


def evolve_attempt(attempt: Attempt, event: Event) -> Attempt:
    """Apply one event to the attempt it names; events that do not touch its row leave it as it is."""
    if event.kind not in (Kind.ATTEMPT_CHECKPOINT, Kind.ATTEMPT_FINISHED):
        return attempt
    return replace(attempt, **_changes(Attempt, event))


def _changes(kind: type[Any], event: Event) -> dict[str, Any]:
    return {name: read_field(kind, name, value) for name, value in event.data.get("changes", {}).items()}
