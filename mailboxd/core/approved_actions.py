"""Approved actions: started once, ended, retried, voided.

`ACTION_STARTED` is committed before anything happens, and nothing runs again under a key that was started. If the end
was not observed the outcome is UNKNOWN, which only the action's `verify` or a person can resolve.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mailboxd.core import people
from mailboxd.core.approvals import ActionEnded, ActionKind, Approval, ApprovalStatus, Performed, Purpose
from mailboxd.core.decision_builder import DecisionBuilder, record_late
from mailboxd.core.effects import AnswerPermission, Perform, Prepare, Verify
from mailboxd.core.events import Kind
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import Trigger, applies
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import AttemptStatus, Phase
from mailboxd.errors import Refused

MOST_TRIES = 3
"""How often an action is tried that provably did not start."""
_PAUSE = 5.0
"""Seconds before the first retry."""


def same_work(old: Approval, new: Approval) -> bool:
    """Whether `old` already did the work of `new`, whatever a file's target was when it was requested."""
    same = old.action == new.action and old.content_sha256 == new.content_sha256
    return same and old.idempotency_key == new.idempotency_key and old.state is Performed.DONE


def started(builder: DecisionBuilder, row: Approval, digest: str) -> None:
    """Let the runner start the action. Raises Refused if it may not; then nothing is recorded."""
    task = builder.task
    if row.status is not ApprovalStatus.APPROVED or row.purpose is Purpose.PERMISSION:
        raise Refused("not-approved", f"{row.short_id} is {row.status}: it is not approved")
    if row.purpose is Purpose.ACTION and task.phase is not Phase.READY_TO_RESUME:
        raise Refused("not-approved", f"{task.local_id} {task.phase.told}: its actions do not run")
    if digest != row.digest:
        raise Refused("digest-mismatch", f"{row.short_id}: what would run is not what was approved")
    if row.state is not Performed.NOT:
        raise Refused("begun-already", f"{row.short_id} was begun before: it is {row.state}")
    if not people.may_decide(row.resolved_by, builder.ctx.approvers):
        _ask_again(builder, row)
        return
    others = [old for old in builder.view.same_key if old.id != row.id]
    if any(old.state is Performed.STARTED for old in others):
        raise Refused("key-busy", f"the idempotency key {row.idempotency_key} is in use by another task")
    if done := next((old for old in others if same_work(old, row)), None):
        _end(builder, row, Performed.DONE, f"already done, as {done.short_id}: nothing runs again")
    elif others:
        why = (
            f"the idempotency key {row.idempotency_key} was used by {others[-1].short_id}, which is {others[-1].state}"
        )
        _end(builder, row, Performed.FAILED, f"nothing ran: {why}; declare another key to run it again")
    else:
        _change(builder, Kind.ACTION_STARTED, row, state=Performed.STARTED, started_at=builder.ctx.now)


def _ask_again(builder: DecisionBuilder, row: Approval) -> None:
    """Void an unused approval by a person who is no longer an approver, and request another one."""
    why = f"{row.resolved_by}, who approved it, is no longer among approvals.approvers"
    resolve(builder, row, ApprovalStatus.EXPIRED, "mailboxd", f"asked again: {why}", void=True)
    if row.purpose is Purpose.UNDO:
        builder.order(Prepare(builder.ctx.new_id("apr"), row.action, undoes=row.origin))
    elif applies(builder.task, Trigger.APPROVAL_VOID):
        builder.move(Trigger.APPROVAL_VOID, f"{row.requested_action} needs another approval: {why}")


def ended(builder: DecisionBuilder, row: Approval, said: ActionEnded) -> None:
    """Record the outcome, whatever the task's phase. A known outcome is not replaced."""
    settled = row.state in (Performed.DONE, Performed.FAILED) or (row.state is Performed.UNKNOWN and row.checked)
    if settled or row.state is Performed.NOT:
        record_late(
            builder, "mailboxd", row.attempt, f"the action {row.short_id} {said.state}: {first_line(said.summary)}"
        )
        return
    asks = said.state is Performed.UNKNOWN and row.state is Performed.STARTED and bool(row.action.verify)
    artifact = builder.artifact("other", said.report, f"the action {row.action.id}: {said.summary}", "mailboxd")
    _end(builder, row, said.state, said.summary, artifact=artifact, checked=not asks)
    if asks:
        builder.order(Verify(row.id))


def _end(builder: DecisionBuilder, row: Approval, state: Performed, summary: str, **more: Any) -> None:
    now = builder.ctx.now
    _change(builder, Kind.ACTION_ENDED, row, state=state, finished_at=now, summary=summary, **more)


def not_begun(builder: DecisionBuilder, row: Approval, why: str, *, for_now: bool) -> None:
    if for_now:
        if row.state is Performed.STARTED:
            _change(builder, Kind.ACTION_DELAYED, row, state=Performed.NOT, started_at="", summary=why)
        return
    if row.state is not Performed.NOT:
        return
    if row.tries + 1 >= MOST_TRIES:
        _end(builder, row, Performed.FAILED, f"it could not be begun: {why}")
        return
    _change(builder, Kind.ACTION_DELAYED, row, tries=row.tries + 1, summary=why)
    builder.order(Perform(row.id, plus(builder.ctx.now, _PAUSE * (row.tries + 1))))


# The next action


def order_next(builder: DecisionBuilder) -> None:
    """Order what the planned actions need in the task's phase, or void their approvals."""
    match builder.task.phase:
        case Phase.AWAITING_APPROVAL:
            _prepare_missing(builder)
        case Phase.READY_TO_RESUME:
            _perform_next(builder)
        case Phase.EXECUTING:
            attempt = builder.attempt
            if attempt is None or attempt.status is not AttemptStatus.RUNNING:
                void(builder, "its attempt has ended")
        case phase:
            void(builder, f"the task is {phase}")


def _prepare_missing(builder: DecisionBuilder) -> None:
    have = {row.action.id for row in builder.view.live_approvals}
    for action in builder.task.planned_actions:
        if action.id not in have and f"prepare:{action.id}" not in builder.view.ordered_acts:
            builder.order(Prepare(builder.ctx.new_id("apr"), action))


def _perform_next(builder: DecisionBuilder) -> None:
    for row in builder.view.live_approvals:
        if row.state is Performed.DONE:
            continue
        if row.state is Performed.NOT and not people.may_decide(row.resolved_by, builder.ctx.approvers):
            _ask_again(builder, row)
            order_next(builder)
            return
        if row.state is Performed.NOT and row.action.kind is ActionKind.MANUAL:
            _end(builder, row, Performed.DONE, f"done by hand, says {row.resolved_by}" + because(row))
            continue
        if row.state is Performed.NOT and f"perform:{row.id}" not in builder.view.ordered_acts:
            builder.order(Perform(row.id))
        return


# Rows


def void(builder: DecisionBuilder, why: str) -> None:
    """Void the task's approvals that are pending, or approved and not started."""
    for row in builder.view.approvals:
        waits = row.status is ApprovalStatus.PENDING or (
            row.status is ApprovalStatus.APPROVED and row.state is Performed.NOT and row.purpose is Purpose.ACTION
        )
        if waits and row.purpose is not Purpose.UNDO:
            resolve(builder, row, ApprovalStatus.EXPIRED, "mailboxd", f"void: {why}", void=True)


def void_permissions(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """Void the permissions that a harness asked for in a turn that has ended."""
    attempt = builder.attempt
    if attempt is None or attempt.id != ended.attempt_id or not attempt.worker_ref:
        return
    for row in builder.view.approvals:
        if row.purpose is Purpose.PERMISSION and row.status is ApprovalStatus.PENDING and row.attempt == attempt.id:
            resolve(builder, row, ApprovalStatus.EXPIRED, "mailboxd", "void: its turn has ended", void=True)


def because(row: Approval) -> str:
    return f": {first_line(row.note)}" if row.note else ""


def resolve(builder: DecisionBuilder, row: Approval, status: ApprovalStatus, by: str, note: str, **more: Any) -> None:
    now = builder.ctx.now
    _change(
        builder, Kind.APPROVAL_RESOLVED, row, status=status, resolved_by=by, resolved_at=now, note=note, **more
    )  # fmt: skip
    if row.purpose is Purpose.PERMISSION:
        builder.order(AnswerPermission(row.id))


def _change(builder: DecisionBuilder, kind: Kind, row: Approval, **changes: Any) -> Approval:
    plain = {name: to_json(value) for name, value in changes.items()}
    builder.record(kind, approval=row.id, action=row.requested_action, changes=plain)
    after = replace(row, **changes)
    rows = tuple(after if old.id == row.id else old for old in builder.view.approvals)
    builder.see(approvals=rows)
    return after
