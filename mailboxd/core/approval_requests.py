"""Approvals: requesting them, people's decisions, undo, expiry. Performing them is in `core.approved_actions`.

Only the approvals of planned actions move their task, by the table of `core.lifecycle`; those of permissions and undo
do not. An approval's action never changes, only its status.
"""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core import people
from mailboxd.core.approvals import (
    Action,
    ActionDeclared,
    ActionEnded,
    ActionImpossible,
    ActionKind,
    ActionNotBegun,
    ActionPrepared,
    ActionStarted,
    Approval,
    ApprovalDecision,
    ApprovalExpired,
    ApprovalStatus,
    OfApproval,
    Performed,
    PermissionAsked,
    Purpose,
    RequestUndo,
    Resolve,
    in_words,
    merged,
)
from mailboxd.core.approved_actions import because, ended, not_begun, resolve, same_work, started
from mailboxd.core.decision_builder import DecisionBuilder, record_late
from mailboxd.core.effects import Perform, Prepare
from mailboxd.core.events import Kind, Role
from mailboxd.core.fixpoint import open_circuit
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import Trigger, impossible_action_trigger
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import AttemptStatus, Notice, Phase, same_agent
from mailboxd.errors import Refused

_UNDO_KEY = "{}/undo"


def handle(builder: DecisionBuilder, said: OfApproval) -> None:
    """Handle an input about approvals. Raises Refused."""
    match said:
        case ActionDeclared(action):
            _declared(builder, action)
        case ActionPrepared():
            _looked_at(builder, said.action)
            _prepared(builder, said)
        case ActionImpossible():
            _looked_at(builder, said.action)
            _impossible(builder, said)
        case PermissionAsked():
            _permission(builder, said)
        case Resolve():
            _resolved(builder, said)
        case RequestUndo(approval_id):
            _undo(builder, found(builder, approval_id))
        case ApprovalExpired(approval_id):
            _expired(builder, found(builder, approval_id))
        case ActionStarted():
            started(builder, found(builder, said.approval_id), said.digest)
        case ActionEnded():
            ended(builder, found(builder, said.approval_id), said)
        case ActionNotBegun(approval_id, why, for_now):
            not_begun(builder, found(builder, approval_id), why, for_now=for_now)


def found(builder: DecisionBuilder, approval_id: str) -> Approval:
    """The task's approval with that id. Raises Refused if there is none."""
    row = next((row for row in builder.view.approvals if row.id == approval_id), None)
    if row is None:
        raise Refused("no-such-approval", f"{builder.task.local_id} has no approval {approval_id}", "mailboxd approve")
    return row


# Requesting


_OPEN_TO_ACTIONS = frozenset(
    {Phase.EXECUTION_READY, Phase.EXECUTING, Phase.SPEC_GATE, Phase.QUALITY_GATE, Phase.AWAITING_APPROVAL}
)


def _declared(builder: DecisionBuilder, action: Action) -> None:
    task = builder.task
    if task.phase not in _OPEN_TO_ACTIONS:
        raise Refused("illegal-transition", f"{task.local_id} {task.phase.told}: no action can be added to it")
    if (why := builder.ctx.may_perform(action)) is not None:
        raise Refused("bad-action", f"the action {action.id} cannot be performed here: {why}")
    actions = merged(task.planned_actions, (action,))
    if actions != task.planned_actions:
        spec = replace(task.spec, planned_actions=merged(task.spec.planned_actions, (action,)))
        builder.amend(f"the action {action.id} is added", planned_actions=actions, spec=spec)


def refused(builder: DecisionBuilder, actions: tuple[Action, ...]) -> tuple[str, ...]:
    """Why the configuration does not allow some of these actions, for each of those; empty = it allows all."""
    problems = ((action.id, builder.ctx.may_perform(action)) for action in actions)
    return tuple(f"the planned action {name} cannot be performed here: {why}" for name, why in problems if why)


def _looked_at(builder: DecisionBuilder, action: Action) -> None:
    """Note that the preparation of the action ended: a later attempt's action of this name needs another one."""
    left = builder.view.ordered_acts - {f"prepare:{action.id}"}
    builder.see(ordered_acts=left)


def _prepared(builder: DecisionBuilder, said: ActionPrepared) -> None:
    task = builder.task
    asked = any(row.action.id == said.action.id for row in builder.view.live_approvals) and not said.undoes
    if asked or any(row.id == said.approval_id for row in builder.view.approvals):
        return  # prepared twice
    if not said.undoes and (task.phase is not Phase.AWAITING_APPROVAL or said.action not in task.planned_actions):
        record_late(builder, "mailboxd", "", f"the action {said.action.id} was prepared but is no longer wanted")
        return
    purpose = Purpose.UNDO if said.undoes else Purpose.ACTION
    key = _key(builder, said)
    row = _row(builder, said.approval_id, purpose, said.action, said.preview, said.digest, key)
    row = replace(row, gate=said.gate, content_sha256=said.content_sha256, target_sha256=said.target_sha256)
    done = next((old for old in builder.view.same_key if same_work(old, row)), None)
    if done is not None and purpose is Purpose.ACTION:
        summary = f"already done, as {done.short_id} at {done.finished_at}: nothing runs again"
        approved = replace(row, status=ApprovalStatus.APPROVED, resolved_by="mailboxd", resolved_at=builder.ctx.now)
        _request(builder, replace(approved, state=Performed.DONE, finished_at=builder.ctx.now, summary=summary))
        return
    _request(builder, replace(row, origin=said.undoes, risk=_warned(builder, row)))


def _warned(builder: DecisionBuilder, row: Approval) -> str:
    """The risk, preceded by the outcomes of earlier approvals of the same action."""
    void = [
        old for old in builder.view.approvals if old.action == row.action and old.void and old.attempt == row.attempt
    ]
    before = [old for old in builder.view.approvals if old.action == row.action and old.started_at]
    said = [f"{old.short_id} did the same, and is {old.state}: {first_line(old.summary)}" for old in before[-1:]]
    if said and row.action.idempotency_key:
        said.append(f"under its key {row.idempotency_key} nothing can run again: ask for another key")
    return "; ".join(filter(None, [*said, *(old.note for old in void[-1:]), row.risk]))


def derived_key(local_id: str, action: Action, digest: str) -> str:
    """The key of an action that declares none: equal for the same action of the same task."""
    return f"{local_id}/{action.id}/{digest[:12]}"


def _key(builder: DecisionBuilder, said: ActionPrepared) -> str:
    """The idempotency key. A derived one gets a number after a failure, for another approval."""
    if said.action.idempotency_key:
        return said.action.idempotency_key
    base = derived_key(builder.task.local_id, said.action, said.digest)
    spent = (Performed.STARTED, Performed.FAILED, Performed.UNKNOWN)
    key, number = base, 1
    while any(row.idempotency_key == key and row.state in spent for row in builder.view.approvals):
        number += 1
        key = f"{base}/{number}"
    return key


def _declared_by(builder: DecisionBuilder, purpose: Purpose, action: Action) -> str:
    """The requester: the sender if the spec declares it, else the executor."""
    task = builder.task
    if purpose is Purpose.UNDO:
        return builder.actor
    return task.sender if action in task.spec.planned_actions else task.executor


def _row(
    builder: DecisionBuilder, approval_id: str, purpose: Purpose, action: Action, preview: str, digest: str, key: str
) -> Approval:
    attempt, now = builder.attempt, builder.ctx.now
    return Approval(
        id=approval_id,
        task=builder.task.id,
        attempt=attempt.id if attempt else "",
        purpose=purpose,
        action=action,
        requested_action=in_words(action),
        side_effect_kind=action.kind,
        risk=action.risk,
        preview=preview,
        digest=digest,
        idempotency_key=key,
        requested_by=_declared_by(builder, purpose, action),
        at=now,
        expires_at=plus(now, builder.ctx.approval_seconds),
    )


def _request(builder: DecisionBuilder, row: Approval) -> None:
    builder.record(Kind.APPROVAL_REQUESTED, approval=to_json(row))
    builder.see(approvals=(*builder.view.approvals, row))
    if row.status is ApprovalStatus.PENDING:
        builder.notify(Notice.APPROVAL, row.id)


def _impossible(builder: DecisionBuilder, said: ActionImpossible) -> None:
    """An action of the sender's spec opens the circuit; one of the result is reworked."""
    task = builder.task
    reason = f"the planned action {said.action.id} cannot be performed: {first_line(said.why)}"
    trigger = None if said.undoes else impossible_action_trigger(task, said.action)
    if trigger is None:
        builder.record(Kind.ALARM, what="impossible-action", why=reason)
    elif trigger is Trigger.BLOCKED:
        open_circuit(builder, trigger, reason)
    else:
        builder.move(trigger, reason, rework=task.rework + 1, findings=f"- major: {reason}")


def _permission(builder: DecisionBuilder, said: PermissionAsked) -> None:
    attempt = builder.attempt
    if any(row.id == said.approval_id for row in builder.view.approvals):
        return
    if attempt is None or attempt.status is not AttemptStatus.RUNNING or said.attempt_id not in ("", attempt.id):
        raise Refused("no-attempt", f"{builder.task.local_id} has no attempt that could be given a permission")
    action = Action(id=said.approval_id, kind=ActionKind.MANUAL, action=said.wish, risk=said.risk)
    row = _row(builder, said.approval_id, Purpose.PERMISSION, action, said.preview, "", said.approval_id)
    _request(builder, replace(row, origin=said.call))


def _undo(builder: DecisionBuilder, row: Approval) -> None:
    if not row.action.undo or row.purpose is not Purpose.ACTION:
        raise Refused("no-undo", f"{row.short_id} declares no undo command")
    if not row.started_at or row.state is Performed.STARTED:
        raise Refused("not-performed", f"{row.short_id} was not performed: there is nothing to undo")
    if any(other.origin == row.id and other.state is Performed.DONE for other in builder.view.approvals):
        return  # undone already
    if any(other.origin == row.id and other.is_open for other in builder.view.approvals):
        raise Refused("asked-already", f"undoing {row.short_id} was already requested", "mailboxd approve")
    what = f"take back: {row.requested_action}"
    action = replace(
        Action(id=f"{row.action.id[:120]}.undo", kind=ActionKind.COMMAND, action=what, argv=row.action.undo),
        cwd=row.action.cwd,
        env=row.action.env,
        timeout=row.action.timeout,
        idempotency_key=_UNDO_KEY.format(row.action.idempotency_key) if row.action.idempotency_key else "",
    )
    builder.record(Kind.UNDO_REQUESTED, approval=row.id)
    builder.order(Prepare(builder.ctx.new_id("apr"), action, undoes=row.id))


# Deciding


_DECIDERS = frozenset({Role.OPERATOR, Role.LOBSTER})


def _resolved(builder: DecisionBuilder, said: Resolve) -> None:
    """Record a person's decision. Raises Refused for other roles, and for a second, different decision."""
    row, task = found(builder, said.approval_id), builder.task
    if builder.role not in _DECIDERS:
        hint = "A person decides: approve, reject or request changes."
        raise Refused("permission-denied", f"the role {builder.role} may not decide about {row.short_id}", hint)
    attempt = builder.attempt
    if any(same_agent(builder.actor, name) for name in (task.executor, attempt.executor if attempt else "")):
        raise Refused("own-work", f"{builder.actor} has executed {task.local_id}, and may not decide about it")
    if not people.may_decide(builder.actor, builder.ctx.approvers):
        hint = "See approvals.approvers in the configuration."
        raise Refused("not-an-approver", f"{builder.actor} is not among those who may decide here", hint)
    if said.decision is ApprovalDecision.APPROVED and not may_approve_remotely(builder, row):
        problem = f"{row.short_id} cannot be taken back, and {builder.actor} is not at this machine"
        raise Refused("needs-command", problem, f"Approve it by a command: `mailboxd approve {row.short_id}`.")
    if row.status is not ApprovalStatus.PENDING:
        if row.status.value == said.decision.value and row.resolved_by == builder.actor:
            return
        by = f" by {row.resolved_by}" if row.resolved_by else ""
        raise Refused("already-decided", f"{row.short_id} is {row.status}{by} already" + because(row))
    if row.expires_at <= builder.ctx.now:
        raise Refused("expired", f"{row.short_id} has expired at {row.expires_at}")
    resolve(builder, row, ApprovalStatus(said.decision), builder.actor, said.note)
    if row.purpose is Purpose.UNDO and said.decision is ApprovalDecision.APPROVED:
        builder.order(Perform(row.id))


def may_approve_remotely(builder: DecisionBuilder, row: Approval) -> bool:
    """Whether what is not taken back lightly may be approved by this person: by anybody at the machine."""
    return builder.ctx.chat_approves_all or row.is_reversible or not people.is_remote(builder.actor)


def _expired(builder: DecisionBuilder, row: Approval) -> None:
    if row.status is ApprovalStatus.PENDING and row.expires_at <= builder.ctx.now:
        resolve(builder, row, ApprovalStatus.EXPIRED, "mailboxd", f"nobody decided until {row.expires_at}")
