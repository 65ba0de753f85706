"""`decide`: what one input does to one task. Pure: the same view, input and context give the same decision.

An input that the state does not allow raises Refused (or PlanError, for a plan), and then nothing has happened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from mailboxd.core import attempts, planning, specs
from mailboxd.core.draft import Decision, Draft
from mailboxd.core.effects import Resend, Send
from mailboxd.core.events import Kind, Role
from mailboxd.core.failure import outcome_unknown
from mailboxd.core.inputs import (
    Cancel,
    ChildEdited,
    Clarification,
    Edited,
    Input,
    NewTask,
    Redispatch,
    Remedy,
    Reply,
    Retry,
    Start,
    Steer,
    TimePassed,
    TurnEnded,
    Unblock,
)
from mailboxd.core.lifecycle import AFTER_JOIN, CLOSES_CHILDREN, TRANSITIONS, Trigger
from mailboxd.core.replies import replied
from mailboxd.core.settle import announce_end, cancel, settle_draft
from mailboxd.core.terms import OPERATORS, AttemptStatus, Mode, Phase, Waiting, same_agent
from mailboxd.core.types import Plan, PlannedChild
from mailboxd.core.view import Context, View
from mailboxd.errors import Refused


def decide(
    view: View | None, heard: Input, ctx: Context, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
) -> Decision:
    """The events and effects that `heard` leads to. Raises Refused or PlanError when the state does not allow it."""
    if isinstance(heard, NewTask):
        return planning.create(heard, ctx)
    if view is None:
        raise AssertionError("only a new task has no view")
    draft = Draft(view, ctx, role, actor)
    match heard:
        case Redispatch():
            _redispatched(draft, heard)
        case Start():
            attempts.start(draft)
        case TurnEnded():
            attempts.turn_ended(draft, heard)
        case Reply():
            replied(draft, heard)
        case Clarification(sender, text, ends):
            _only_from_sender(draft, sender, "answer")
            attempts.clarified(draft, text, ends)
        case Steer(sender, text):
            _steered(draft, sender, text)
        case Cancel(by, reason):
            _cancelled(draft, by, reason)
        case Retry(instructions):
            _retried(draft, instructions)
        case Unblock():
            _unblocked(draft, heard)
        case TimePassed():
            _time_passed(draft)
        case Edited():
            _edited(draft, heard)
        case ChildEdited(planned, needs):
            _child_edited(draft, planned, needs)
        case _:
            assert_never(heard)
    draft.role, draft.actor = Role.ORCHESTRATOR, "mailboxd"
    settle_draft(draft)
    return draft.done()


def _redispatched(draft: Draft, new: Redispatch) -> None:
    """Ended work gets a new attempt; live work goes on, and its reply will name the newer attempt."""
    task = draft.task
    if task.phase is Phase.CANCELLED:
        draft.order(Resend())
    elif not task.phase.is_terminal:
        draft.amend("the sender's newer attempt takes over the work under way", origin=new.origin)
    else:
        spec, _ = specs.derive(new.spec)
        draft.move(
            Trigger.REDISPATCHED,
            f"dispatched again as attempt {new.origin.attempt}",
            origin=new.origin,
            spec=spec,
            planned_actions=spec.planned_actions,
            findings=new.findings,
            failures=0,
            rework=0,
            stalls=0,
            not_before=None,
            completed_at=None,
        )


def _only_from_sender(draft: Draft, sender: str, what: str) -> None:
    if not same_agent(sender, draft.task.sender) and sender not in OPERATORS:
        task = draft.task
        raise Refused("wrong-agent", f"{task.local_id} was given by {task.sender}; {what} from {sender} does not count")


def _steered(draft: Draft, sender: str, text: str) -> None:
    """New instructions: into the next turn, and on to the peer that has the work now."""
    _only_from_sender(draft, sender, "new instructions")
    task = draft.task
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} is {task.phase}: it takes no new instructions")
    draft.record(Kind.STEERED, by=sender, text=text)
    if task.phase is Phase.SPEC_DRAFT:
        more = "\n\n".join([task.spec.instructions, text])
        draft.amend("the spec is mended", spec=replace(task.spec, instructions=more), findings="")
        return
    draft.amend("new instructions", findings="\n\n".join(filter(None, [task.findings, f"New instructions: {text}"])))
    if task.phase is Phase.EXECUTING and draft.attempt is not None and draft.attempt.acknowledged:
        draft.order(Send(draft.ctx.new_id("msg"), "steer", draft.attempt.executor, text))


def _cancelled(draft: Draft, by: str, reason: str) -> None:
    task = draft.task
    if draft.role is not Role.OPERATOR:
        _only_from_sender(draft, by, "cancel")
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} is {task.phase} already")
    cancel(draft, f"cancelled by {by}" + (f": {reason}" if reason else ""), by=by)


def _retried(draft: Draft, instructions: str) -> None:
    task = draft.task
    if task.phase is Phase.EXECUTION_READY and task.not_before is not None:
        draft.amend("the operator does not wait for the backoff", not_before=None, reason="retried by the operator")
        return
    if task.phase is Phase.CANCELLED and not task.cancelled_with_parent:
        raise Refused(
            "cancelled", f"{task.local_id} was cancelled; a cancel is final", "Send the work again as a new task."
        )
    if (task.phase, Trigger.OPERATOR_RETRY) not in TRANSITIONS:
        raise Refused(
            "not-failed", f"{task.local_id} is {task.phase}: there is nothing to retry", "See `mailboxd why`."
        )
    if draft.view.parent_phase in CLOSES_CHILDREN:
        raise Refused(
            "parent-ended", f"{task.local_id}: its parent is {draft.view.parent_phase}", "Retry the parent instead."
        )
    findings = "\n\n".join(filter(None, [task.findings, instructions]))
    draft.move(
        Trigger.OPERATOR_RETRY,
        "retried by the operator",
        failures=0,
        rework=0,
        stalls=0,
        not_before=None,
        completed_at=None,
        cancelled_with_parent=False,
        findings=findings,
    )


def _unblocked(draft: Draft, order: Unblock) -> None:
    task = draft.task
    if task.phase is not Phase.CIRCUIT_OPEN:
        raise Refused("not-blocked", f"{task.local_id} is {task.phase}: its circuit is not open")
    match order.remedy:
        case Remedy.RETRY:
            _retried(draft, order.note)
        case Remedy.ACCEPT:
            if not task.result:
                raise Refused("no-artifact", f"{task.local_id} has no result to accept", "Use --retry or --fail.")
            draft.move(Trigger.OPERATOR_ACCEPT, "the operator accepts the last good result", error="")
            announce_end(draft)
        case Remedy.FAIL:
            draft.move(Trigger.OPERATOR_FAIL, order.note or "the operator gives up")
            announce_end(draft)


def _time_passed(draft: Draft) -> None:
    task, attempt, now = draft.task, draft.attempt, draft.ctx.now
    if task.due is None or task.due > now:
        return
    if task.phase is Phase.CIRCUIT_OPEN:
        draft.move(Trigger.HOLD_OVER, f"nobody unblocked it in time; {task.error or task.reason}")
        announce_end(draft)
    elif attempt is not None and attempt.status is AttemptStatus.RUNNING and attempt.waiting_for is Waiting.REPLY:
        outcome_unknown(draft, f"{attempt.executor} has not replied within {task.policy.reply_within} s")
    else:
        draft.amend("nothing waits for this moment any more", due=None)


def _edited(draft: Draft, edit: Edited) -> None:
    """A legal edit of task.md: what is new in it becomes events."""
    task = draft.task
    if edit.notes is not None:
        draft.amend("notes edited in task.md", notes=edit.notes)
    if edit.sections is not None:
        draft.amend("sections edited in task.md", sections=edit.sections)
    if edit.results is not None:
        if task.phase is not Phase.EXECUTING:
            raise Refused("ended", f"{task.local_id} is {task.phase}: its results can not be written now")
        draft.amend("results written in task.md", draft_result=edit.results)
    if edit.instructions is not None:
        if task.phase.is_terminal:
            raise Refused("ended", f"{task.local_id} is {task.phase}: its instructions can no longer change")
        spec, _ = specs.derive(replace(task.spec, instructions=edit.instructions, scope_in=edit.instructions))
        draft.amend("instructions edited in task.md", spec=spec, findings="")
    if edit.added:
        if task.phase.is_terminal or task.phase in AFTER_JOIN:
            raise Refused("ended", f"{task.local_id} is {task.phase}: it takes no more children")
        if task.broadcast:
            raise Refused("illegal-edit", f"{task.local_id} is a broadcast: its children are copies of it")
        planning.adopt(draft, Plan(edit.added), draft.family)
        waits = draft.attempt is not None and draft.attempt.waiting_for
        if waits is Waiting.REPLY and task.mode is Mode.DIRECT:
            raise Refused("given-away", f"{task.local_id} is with {task.executor}, who has acknowledged it")


def _child_edited(draft: Draft, planned: PlannedChild, needs: tuple[str, ...]) -> None:
    task = draft.task
    if task.attempt or task.phase.is_terminal:
        raise Refused("not-pending", f"{task.local_id} was dispatched or has ended, and can no longer be edited")
    executor = specs.executor_of(planned.agents[0], draft.ctx.agent)
    if executor != draft.ctx.agent and (why := draft.ctx.may_reach(executor)) is not None:
        raise Refused("unknown-agent", f"{task.local_id}: {why}")
    spec, _ = specs.derive(specs.child_spec(planned))
    policy = specs.apply(task.policy, planned.overrides)
    title = specs.child_title(planned)
    note = "edited in the parent's task.md"
    said = {"said": planned.overrides, "extra": planned.extra}
    draft.amend(note, spec=spec, policy=policy, executor=executor, title=title, **said)
    draft.record(Kind.NEEDS_CHANGED, needs=list(needs))
