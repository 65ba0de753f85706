"""What is decided about approvals: requested, resolved by a person, voided by an edit, performed once.

Only the rows of planned actions move their task, through the table of `core.lifecycle`; those of permissions and of
taking back do not. A row is bound to what it shows: nothing here ever changes its action, only what became of it.
"""

from __future__ import annotations

from dataclasses import replace

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
    ApprovalExpired,
    ApprovalStatus,
    Decision,
    OfApproval,
    Performed,
    PermissionAsked,
    Purpose,
    RequestUndo,
    Resolve,
    in_words,
    merged,
)
from mailboxd.core.approved_actions import because, ended, may_decide, not_begun, resolve, same_work, started
from mailboxd.core.decision_builder import Draft, late
from mailboxd.core.effects import Notify, Perform, Prepare
from mailboxd.core.events import Kind, Role
from mailboxd.core.fixpoint import open_circuit
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import AttemptStatus, Phase, same_agent
from mailboxd.errors import Refused

_UNDO_KEY = "{}/undo"


def heard(draft: Draft, said: OfApproval) -> None:
    """Take it, or raise Refused."""
    match said:
        case ActionDeclared(action):
            _declared(draft, action)
        case ActionPrepared():
            _looked_at(draft, said.action)
            _prepared(draft, said)
        case ActionImpossible():
            _looked_at(draft, said.action)
            _impossible(draft, said)
        case PermissionAsked():
            _permission(draft, said)
        case Resolve():
            _resolved(draft, said)
        case RequestUndo(approval_id):
            _undo(draft, found(draft, approval_id))
        case ApprovalExpired(approval_id):
            _expired(draft, found(draft, approval_id))
        case ActionStarted():
            started(draft, found(draft, said.approval_id), said.digest)
        case ActionEnded():
            ended(draft, found(draft, said.approval_id), said)
        case ActionNotBegun(approval_id, why, for_now):
            not_begun(draft, found(draft, approval_id), why, for_now=for_now)


def found(draft: Draft, approval_id: str) -> Approval:
    """The row of this task with that id. Raises Refused when there is none."""
    row = next((row for row in draft.view.approvals if row.id == approval_id), None)
    if row is None:
        raise Refused("no-such-approval", f"{draft.task.local_id} has no approval {approval_id}", "mailboxd approvals")
    return row


# ---------------------------------------------------------------- requesting


_OPEN_TO_ACTIONS = frozenset(
    {Phase.EXECUTION_READY, Phase.EXECUTING, Phase.SPEC_GATE, Phase.QUALITY_GATE, Phase.AWAITING_APPROVAL}
)


def _declared(draft: Draft, action: Action) -> None:
    task = draft.task
    if task.phase not in _OPEN_TO_ACTIONS:
        raise Refused("illegal-transition", f"{task.local_id} is {task.phase}: no action can be added to it")
    if (why := draft.ctx.may_perform(action)) is not None:
        raise Refused("bad-action", f"the action {action.id} cannot be performed here: {why}")
    actions = merged(task.planned_actions, (action,))
    if actions != task.planned_actions:
        spec = replace(task.spec, planned_actions=merged(task.spec.planned_actions, (action,)))
        draft.amend(f"the action {action.id} is added", planned_actions=actions, spec=spec)


def refused(draft: Draft, actions: tuple[Action, ...]) -> str | None:
    """Why one of these actions may not be performed here, as far as the configuration can say; None = they may."""
    problems = ((action.id, draft.ctx.may_perform(action)) for action in actions)
    return next((f"the planned action {name} cannot be performed here: {why}" for name, why in problems if why), None)


def _looked_at(draft: Draft, action: Action) -> None:
    """What was ordered for an action of this name is over: another one, of a later attempt, is still to be prepared."""
    left = draft.view.ordered_acts - {f"prepare:{action.id}"}
    draft.view = replace(draft.view, ordered_acts=left)


def _prepared(draft: Draft, said: ActionPrepared) -> None:
    task = draft.task
    asked = any(row.action.id == said.action.id for row in draft.view.live_approvals) and not said.undoes
    if asked or any(row.id == said.approval_id for row in draft.view.approvals):
        return  # it was prepared twice
    if not said.undoes and (task.phase is not Phase.AWAITING_APPROVAL or said.action not in task.planned_actions):
        late(draft, "mailboxd", "", f"the action {said.action.id} was prepared, and is not wanted any more")
        return
    purpose = Purpose.UNDO if said.undoes else Purpose.ACTION
    key = _key(draft, said)
    row = _row(draft, said.approval_id, purpose, said.action, said.preview, said.digest, key)
    row = replace(row, gate=said.gate, content_sha256=said.content_sha256, target_sha256=said.target_sha256)
    done = next((old for old in draft.view.same_key if same_work(old, row)), None)
    if done is not None and purpose is Purpose.ACTION:
        summary = f"done already, as {done.short_id} at {done.finished_at}: nothing runs again"
        approved = replace(row, status=ApprovalStatus.APPROVED, resolved_by="mailboxd", resolved_at=draft.ctx.now)
        _request(draft, replace(approved, state=Performed.DONE, finished_at=draft.ctx.now, summary=summary))
        return
    _request(draft, replace(row, origin=said.undoes, risk=_warned(draft, row)))


def _warned(draft: Draft, row: Approval) -> str:
    """The risk, and before it what became of the same action when it was begun, or approved in vain, before."""
    void = [old for old in draft.view.approvals if old.action == row.action and old.void and old.attempt == row.attempt]
    before = [old for old in draft.view.approvals if old.action == row.action and old.started_at]
    said = [f"{old.short_id} did the same, and is {old.state}: {first_line(old.summary)}" for old in before[-1:]]
    if said and row.action.idempotency_key:
        said.append(f"under its key {row.idempotency_key} nothing can run again: ask for another key")
    return "; ".join(filter(None, [*said, *(old.note for old in void[-1:]), row.risk]))


def derived_key(local_id: str, action: Action, digest: str) -> str:
    """The key of an action that declares none: the same action of the same task has the same one."""
    return f"{local_id}/{action.id}/{digest[:12]}"


def _key(draft: Draft, said: ActionPrepared) -> str:
    """The key it runs under. A derived one is ours: after a failure a person is asked about a fresh one."""
    if said.action.idempotency_key:
        return said.action.idempotency_key
    base = derived_key(draft.task.local_id, said.action, said.digest)
    spent = (Performed.STARTED, Performed.FAILED, Performed.UNKNOWN)
    key, number = base, 1
    while any(row.idempotency_key == key and row.state in spent for row in draft.view.approvals):
        number += 1
        key = f"{base}/{number}"
    return key


def _declared_by(draft: Draft, purpose: Purpose, action: Action) -> str:
    """Whoever wants it: the sender whose spec has it, else the executor whose result or turn does."""
    task = draft.task
    if purpose is Purpose.UNDO:
        return draft.actor
    return task.sender if action in task.spec.planned_actions else task.executor


def _row(
    draft: Draft, approval_id: str, purpose: Purpose, action: Action, preview: str, digest: str, key: str
) -> Approval:
    attempt, now = draft.attempt, draft.ctx.now
    return Approval(
        id=approval_id,
        task=draft.task.id,
        attempt=attempt.id if attempt else "",
        purpose=purpose,
        action=action,
        requested_action=in_words(action),
        side_effect_kind=action.kind,
        risk=action.risk,
        preview=preview,
        digest=digest,
        idempotency_key=key,
        requested_by=_declared_by(draft, purpose, action),
        at=now,
        expires_at=plus(now, draft.ctx.approval_seconds),
    )


def _request(draft: Draft, row: Approval) -> None:
    draft.record(Kind.APPROVAL_REQUESTED, approval=to_json(row))
    draft.view = replace(draft.view, approvals=(*draft.view.approvals, row))
    if row.status is ApprovalStatus.PENDING and draft.ctx.notifies:
        draft.order(Notify(row.id))


def _impossible(draft: Draft, said: ActionImpossible) -> None:
    """What the sender declared wrongly no further attempt mends; what the work declared, the next one may."""
    task = draft.task
    reason = f"the planned action {said.action.id} cannot be performed: {first_line(said.why)}"
    if said.undoes or task.phase is not Phase.AWAITING_APPROVAL or said.action not in task.planned_actions:
        draft.record(Kind.ALARM, what="impossible-action", why=reason)
    elif said.action in task.spec.planned_actions or task.rework >= task.policy.max_rework:
        open_circuit(draft, Trigger.BLOCKED, reason)
    else:
        draft.move(Trigger.ACTION_IMPOSSIBLE, reason, rework=task.rework + 1, findings=f"- major: {reason}")


def _permission(draft: Draft, said: PermissionAsked) -> None:
    attempt = draft.attempt
    if any(row.id == said.approval_id for row in draft.view.approvals):
        return
    if attempt is None or attempt.status is not AttemptStatus.RUNNING or said.attempt_id not in ("", attempt.id):
        raise Refused("no-attempt", f"{draft.task.local_id} has no attempt that could be given a permission")
    action = Action(id=said.approval_id, kind=ActionKind.MANUAL, action=said.wish, risk=said.risk)
    row = _row(draft, said.approval_id, Purpose.PERMISSION, action, said.preview, "", said.approval_id)
    _request(draft, replace(row, origin=said.call))


def _undo(draft: Draft, row: Approval) -> None:
    if not row.action.undo or row.purpose is not Purpose.ACTION:
        raise Refused("no-undo", f"{row.short_id} declares no way to take it back")
    if not row.started_at or row.state is Performed.STARTED:
        raise Refused("not-performed", f"{row.short_id} was not performed: there is nothing to take back")
    if any(other.origin == row.id and other.state is Performed.DONE for other in draft.view.approvals):
        return  # it was taken back before: there is nothing left to take back
    if any(other.origin == row.id and other.is_open for other in draft.view.approvals):
        raise Refused("asked-already", f"taking {row.short_id} back is asked for already", "mailboxd approvals")
    what = f"take back: {row.requested_action}"
    action = replace(
        Action(id=f"{row.action.id[:120]}.undo", kind=ActionKind.COMMAND, action=what, argv=row.action.undo),
        cwd=row.action.cwd,
        env=row.action.env,
        timeout=row.action.timeout,
        idempotency_key=_UNDO_KEY.format(row.action.idempotency_key) if row.action.idempotency_key else "",
    )
    draft.record(Kind.UNDO_REQUESTED, approval=row.id)
    draft.order(Prepare(draft.ctx.new_id("apr"), action, undoes=row.id))


# ---------------------------------------------------------------- deciding


_DECIDERS = frozenset({Role.OPERATOR, Role.LOBSTER})


def _resolved(draft: Draft, said: Resolve) -> None:
    """A person's word. Raises Refused for anybody else's, and for a second one that says something else."""
    row, task = found(draft, said.approval_id), draft.task
    if draft.role not in _DECIDERS:
        hint = "A person decides; what expires, or becomes void, is resolved without a word."
        raise Refused("permission-denied", f"the role {draft.role} may not decide about {row.short_id}", hint)
    attempt = draft.attempt
    if any(same_agent(draft.actor, name) for name in (task.executor, attempt.executor if attempt else "")):
        raise Refused("own-work", f"{draft.actor} has executed {task.local_id}, and may not decide about it")
    if not may_decide(draft.actor, draft.ctx):
        hint = "See approvals.approvers in the configuration."
        raise Refused("not-an-approver", f"{draft.actor} is not among those who may decide here", hint)
    if row.status is not ApprovalStatus.PENDING:
        if row.status.value == said.decision.value and row.resolved_by == draft.actor:
            return
        by = f" by {row.resolved_by}" if row.resolved_by else ""
        raise Refused("already-decided", f"{row.short_id} is {row.status}{by} already" + because(row))
    if row.expires_at <= draft.ctx.now:
        raise Refused("expired", f"{row.short_id} has expired at {row.expires_at}")
    resolve(draft, row, ApprovalStatus(said.decision), draft.actor, said.note)
    if row.purpose is Purpose.UNDO and said.decision is Decision.APPROVED:
        draft.order(Perform(row.id))


def _expired(draft: Draft, row: Approval) -> None:
    if row.status is ApprovalStatus.PENDING and row.expires_at <= draft.ctx.now:
        resolve(draft, row, ApprovalStatus.EXPIRED, "mailboxd", f"nobody decided until {row.expires_at}")
