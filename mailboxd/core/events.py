"""Events: recorded once, never edited. Their log is the audit trail and the only way in which state changes.

An event names one task (or none, for a message that belongs to no task) and carries plain JSON values, so that the log
can be read, replayed and hashed without this program. `evolve` and `evolve_attempt` apply one event to a task and to an
attempt. The arrows show the change in the tables.

What happens at once is one event: `task.created`, `attempt.started` and `attempt.ended` carry what followed from them.
Besides the fields of its kind, the event of a task may have these parts:

    passed            the phases passed, in order: from, to, trigger, reason; `by`, if not by the event's actor
    changes           the fields of the task that changed
    attempt_changes   the fields of the attempt that changed; `attempt` is its id
    artifacts         the artifacts recorded
    turn              the turn that ended: its purpose, agent, outcome and usage
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mailboxd.core.json_codec import read_field
from mailboxd.core.model import Attempt, Task, changed


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
    TASK_TRANSITIONED = "task.transitioned"  # phase -> phase, other values
    TASK_AMENDED = "task.amended"  # the same phase, other values (spec, notes, mode, lease ...)
    NEEDS_CHANGED = "task.needs_changed"  # other rows in dependencies
    ATTEMPT_STARTED = "attempt.started"  # -> a row in attempts, running
    ATTEMPT_CHECKPOINT = "attempt.checkpoint"  # running -> running, other values
    ATTEMPT_ENDED = "attempt.ended"  # running -> succeeded | failed | aborted | unknown
    TURN_ENDED = "turn.ended"  # the attempt continues; as in `attempt.ended`, what it cost -> tasks up to the root
    ANSWER_UNCLEAR = "answer.unclear"  # a turn's answer was not taken: it is asked for again
    USAGE_REPORTED = "usage.reported"  # by a peer, unchecked -> what it cost, in tasks up to the root
    PEER_SILENT = "peer.silent"  # the executing peer missed its heartbeat
    PEER_WAITS = "peer.waits"  # -> a row in waits_at_peers: what the executing peer says that it waits for
    SENDER_TOLD = "sender.told"  # -> a row in waits_told: what the sender was told that its work waits for
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
    DOUBTED = "task.doubted"  # -> a row in doubts: what may have been meant otherwise in a plan or task.md
    DOUBT_DISMISSED = "doubt.dismissed"  # its row: a person has seen it
    EDIT_REFUSED = "task.edit_refused"  # -> a row in refused_files: a task.md that is not taken, or not all of it
    EDIT_SETTLED = "task.edit_settled"  # its row: a better one was taken, the file is gone, or a person dismissed it
    CONTEXT_CUT = "context.cut"  # upstream results did not fit
    QUESTION_ASKED = "question.asked"
    STEERED = "task.steered"
    ORDER_HELD = "order.held"  # -> a row in held_orders: an order that ends work, for some seconds
    ORDER_RELEASED = "order.released"  # the row is gone: carried out, taken back, or refused
    CAP_RAISED = "cap.raised"  # -> a row in raised_caps: an operator raised what a day may cost
    REMOTE_ORDER = "order.remote"  # an order that came over OpenClaw's gateway, and what was answered
    REPLY_LATE = "reply.late"  # recorded, changes nothing
    TASK_PUT_AWAY = "task.put_away"  # its directory is now in tasks/.archive/
    MESSAGE_RECEIVED = "message.received"  # -> a row in messages
    MESSAGE_REJECTED = "message.rejected"  # -> a row in messages
    MESSAGE_DISMISSED = "message.dismissed"  # its row: it no longer needs attention
    MESSAGE_FILED = "message.filed"  # the file is now in archive/ or rejected/
    MESSAGE_SENT = "message.sent"  # -> a row in messages
    INBOX_REARMED = "inbox.rearmed"  # its directory was replaced, and is watched again
    HOST_PAUSED = "host.paused"  # a person has paused every agent of the host, and this daemon has heard of it
    HOST_RESUMED = "host.resumed"  # that is over
    MESSAGE_UNDELIVERED = "message.undelivered"  # the peer could not be reached; the file stays in outbox/
    REPETITION_CREATED = "repetition.created"  # -> a row in repetitions: work that is done again and again
    REPETITION_RAN = "repetition.ran"  # -> rows in repetition_runs; its row: the next time
    REPETITION_CHANGED = "repetition.changed"  # its row: paused, resumed, ended, or a run that could not be made
    NOTICE_SENT = "notice.sent"  # people were told; its row in untold_notices goes
    NOTICE_FAILED = "notice.failed"  # -> a row in untold_notices: people could not be told yet, or at all
    NOTICE_SETTLED = "notice.settled"  # its rows: it applies no longer, or a person dismissed it
    CONFIG_CHANGED = "config.changed"  # what is allowed: each field that has changed, from what to what (core.policy)
    ALARM = "alarm"  # something an operator should look at


@dataclass(frozen=True, slots=True)
class Event:
    kind: Kind
    task: str | None
    data: Mapping[str, Any]
    role: Role = Role.ORCHESTRATOR
    actor: str = "mailboxd"


VERSION = 2
"""The version of the schema of events, in their data as `v`; events without it have version 1."""
OF_TASKS = frozenset(
    {
        Kind.TASK_CREATED,
        Kind.TASK_TRANSITIONED,
        Kind.TASK_AMENDED,
        Kind.ATTEMPT_STARTED,
        Kind.ATTEMPT_CHECKPOINT,
        Kind.ATTEMPT_ENDED,
        Kind.TURN_ENDED,
        Kind.ARTIFACT_RECORDED,
    }
)
"""The kinds of events that may have the parts above."""


def passed(event: Event) -> Sequence[Mapping[str, Any]]:
    """The phases that the task passed, in order."""
    found: Sequence[Mapping[str, Any]] = event.data.get("passed", ())
    return found


def evolve(task: Task, event: Event) -> Task:
    """Apply one event to the task it names; returns the task itself if the event does not concern its row."""
    if event.kind not in OF_TASKS or "changes" not in event.data:
        return task
    return changed(task, updated_at=event.data["at"], **_read(Task, event.data["changes"]))


def evolve_attempt(attempt: Attempt, event: Event) -> Attempt:
    """Apply one event to the attempt it names; returns the attempt itself if the event does not concern its row."""
    return changed(attempt, **_read(Attempt, event.data.get("attempt_changes", {})))


def _read(kind: type[Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: read_field(kind, name, value) for name, value in changes.items()}


# Events of version 1, in which each phase and each artifact had an event of its own.


RENAMED = {"attempt.finished": Kind.ATTEMPT_ENDED}
"""Kinds that had another name in version 1."""


_KINDS = {kind.value: kind for kind in Kind}
_ROLES = {role.value: role for role in Role}


def recorded_event(kind: str, task: str | None, data: dict[str, Any], role: str, actor: str) -> Event:
    """The event that was recorded so, as of the present version. Raises ValueError."""
    present, values = upcast(kind, data)
    return Event(present, task, values, _ROLES.get(role) or Role(role), actor)


def upcast(kind: str, data: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    """An event as of the present version. Raises ValueError for one of a newer version."""
    version = data.get("v", 1)
    if version == VERSION:
        return _KINDS.get(kind) or Kind(kind), data
    if version != 1:
        raise ValueError(f"an event of version {version} was recorded by a newer mailboxd; this one reads {VERSION}")
    match kind:
        case "task.transitioned":
            step = {name: data[name] for name in ("from", "to", "trigger", "reason")}
            return Kind.TASK_TRANSITIONED, {"at": data["at"], "passed": [step], "changes": data["changes"]}
        case "attempt.finished" | "attempt.checkpoint":
            return RENAMED.get(kind) or Kind(kind), _renamed(data, "changes", "attempt_changes")
        case "turn.ended":
            turn = {"purpose" if name == "turn" else name: data[name] for name in data if name != "at"}
            return Kind.TURN_ENDED, {"at": data["at"], "turn": turn}
        case "question.asked":
            return Kind.QUESTION_ASKED, _renamed(data, "turn", "number")
        case "artifact.recorded":
            return Kind.ARTIFACT_RECORDED, {"at": data["at"], "artifacts": [data["artifact"]]}
        case _:
            return Kind(kind), data


def _renamed(data: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in data.items()}
