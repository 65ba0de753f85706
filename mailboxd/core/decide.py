"""`decide`: what one input does to one task. Pure: the same view, input and context give the same decision.

An input that the state does not allow raises Refused (or PlanError, for a plan), and then nothing has happened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

from mailboxd.core import (
    approval_requests,
    approved_actions,
    attempts,
    checks,
    conversation,
    operator_orders,
    plans,
    spec_drafting,
    specs,
    tool_evidence,
)
from mailboxd.core.approvals import OfApproval
from mailboxd.core.attempts import imported, replied
from mailboxd.core.breaker import is_fault
from mailboxd.core.conversation import ask_operator, tells_sender
from mailboxd.core.decision_builder import Decision, Draft
from mailboxd.core.effects import Send
from mailboxd.core.events import Kind, Role
from mailboxd.core.failure import outcome_unknown
from mailboxd.core.fixpoint import announce_end, cancel, end, settle_draft
from mailboxd.core.inputs import (
    Cancel,
    CheckEnded,
    Checkpoint,
    ChildEdited,
    Clarification,
    Edited,
    FileMade,
    ImportedDispatched,
    ImportedDone,
    ImportedFailed,
    Input,
    NewTask,
    OpenCircuit,
    Order,
    Redispatch,
    Reply,
    Retry,
    ReviewGiven,
    SpecWritten,
    Start,
    Steer,
    TimePassed,
    TurnEnded,
    Unblock,
)
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import AFTER_JOIN, TRANSITIONS, Trigger
from mailboxd.core.model import NO_USAGE, Plan, PlannedChild, Task
from mailboxd.core.outcomes import Aborted, Failed, Outcome, Succeeded, Unknown
from mailboxd.core.sanitize import first_line
from mailboxd.core.task_view import Context, View
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import OPERATORS, AttemptStatus, Mode, Phase, Waiting, same_agent
from mailboxd.errors import Refused

# ---------------------------------------------------------------------------------------------------------------------
# What the end of a turn puts on record whatever it was for: its cost, its outcome, and whose fault it was.


def turn_over(draft: Draft, ended: TurnEnded) -> None:
    """Record that a turn is over, unless nobody was called or its outcome is still to be looked up.

    What a harness did counts as its own: the agent it worked for has not been called.
    """
    who = f"acp:{ended.harness}" if ended.harness else ended.agent
    if ended.called and not (isinstance(ended.outcome, Unknown) and not ended.outcome.looked_up):
        draft.record(Kind.TURN_ENDED, **entry(ended.turn, who, ended.attempt_id, ended.outcome))


def entry(turn: str, agent: str, attempt: str, outcome: Outcome) -> dict[str, Any]:
    """The data of the event. `ran` is False when it provably never reached the agent: that is no turn."""
    usage = outcome.usage if isinstance(outcome, Succeeded | Failed) else NO_USAGE
    return {
        "turn": turn,
        "agent": agent,
        "attempt": attempt,
        "outcome": _WORDS[type(outcome)],
        "ran": not isinstance(outcome, Failed) or outcome.started,
        "fault": is_fault(outcome),
        "said": "" if isinstance(outcome, Succeeded) else first_line(outcome.error),
        "usage": to_json(usage),
    }


_WORDS: dict[type, str] = {Succeeded: "succeeded", Failed: "failed", Aborted: "aborted", Unknown: "unknown"}


# ---------------------------------------------------------------------------------------------------------------------
# What happens by itself when a stored moment comes: a hold or a lease ends, a deadline passes, a heartbeat is due.
#
# Every one of them is a stored time, so a restart changes nothing, and what was noticed once is not noticed again.


def time_passed(draft: Draft, passed: TimePassed) -> None:
    """Whatever of the task is due at this moment. What mail can prevent waits until the mail is read."""
    task, now = draft.task, draft.ctx.now
    heard = now if passed.read_until is None else min(now, passed.read_until)
    deadline = task.policy.deadline
    if deadline is not None and deadline <= heard and (task.phase, Trigger.DEADLINE_PASSED) in TRANSITIONS:
        reason = f"its deadline, {deadline}, has passed"
        end(draft, Trigger.DEADLINE_PASSED, reason, error=reason)
        return
    if task.heartbeat is not None and task.heartbeat <= now and not task.phase.is_terminal:
        _heartbeat(draft)
    if task.due is not None and task.due <= now:
        _due(draft, heard)


def _due(draft: Draft, heard: str) -> None:
    task, attempt = draft.task, draft.attempt
    waiting = attempt.waiting_for if attempt and attempt.status is AttemptStatus.RUNNING else Waiting.NOTHING
    if task.phase is Phase.CIRCUIT_OPEN:
        end(draft, Trigger.HOLD_OVER, f"nobody unblocked it in time; {task.error or task.reason}")
    elif waiting is not Waiting.NOTHING and (task.due or "") > heard:
        return  # the word that it waits for may lie in the inbox
    elif waiting is Waiting.REPLY:
        outcome_unknown(draft, f"{draft.live.executor} has not replied within {task.policy.reply_within} s")
    elif waiting is Waiting.ANSWER:
        ask_operator(draft, f"{task.sender} has not answered within {task.policy.reply_within} s")
    else:
        draft.amend("nothing waits for this moment any more", due=None)


def _heartbeat(draft: Draft) -> None:
    """Tell the sender that its work is alive; or notice, once, that the peer that has it is silent."""
    task, ctx, attempt = draft.task, draft.ctx, draft.attempt
    if tells_sender(draft) and ctx.heartbeat:
        draft.order(Send(ctx.new_id("msg"), "progress", task.sender, f"{task.phase}: {task.reason}"))
        draft.amend("a sign of life for its sender", heartbeat=plus(ctx.now, ctx.heartbeat))
        return
    if attempt is not None and attempt.waiting_for is Waiting.REPLY:
        draft.record(Kind.PEER_SILENT, agent=attempt.executor, attempt=attempt.id, until=task.due)
        draft.checkpoint(f"{attempt.executor} has missed its heartbeat", silent=True)
    draft.amend("nothing more is noticed until it is heard from", heartbeat=None)


# ---------------------------------------------------------------------------------------------------------------------
# `decide`: what one input does to one task. Pure: the same view, input and context give the same decision.


def decide(
    view: View | None, heard: Input, ctx: Context, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
) -> Decision:
    """The events and effects that `heard` leads to. Raises Refused or PlanError when the state does not allow it."""
    if isinstance(heard, NewTask):
        return plans.create(heard, ctx)
    if view is None:
        raise AssertionError("only a new task has no view")
    draft = Draft(view, ctx, role, actor)
    match heard:
        case Redispatch():
            _redispatched(draft, heard)
        case Start(begun=begun):
            attempts.start(draft, begun=begun)
        case TurnEnded():
            turn_over(draft, heard)
            approved_actions.turn_over(draft, heard)
            attempts.turn_ended(draft, heard)
        case Reply():
            replied(draft, heard)
        case TimePassed():
            time_passed(draft, heard)
        case ImportedDone() | ImportedFailed() | ImportedDispatched():
            imported(draft, heard)
        case Checkpoint() | FileMade() | ReviewGiven() | OpenCircuit():
            tool_evidence.given(draft, heard)
        case CheckEnded():
            checks.check_ended(draft, heard)
        case _ if isinstance(heard, OfApproval):
            approval_requests.heard(draft, heard)
        case _:
            _ordered(draft, heard)
            _void_what_was_edited(draft, view.task)
    draft.role, draft.actor = Role.ORCHESTRATOR, "mailboxd"
    settle_draft(draft)
    return draft.done()


def _ordered(draft: Draft, heard: Order) -> None:
    """What somebody wants who gave the work, or whose workspace it is."""
    match heard:
        case Clarification(sender, text, ends):
            _only_from_sender(draft, sender, "answer")
            if draft.task.phase is Phase.SPEC_DRAFT:
                spec_drafting.clarified(draft, heard)
            else:
                conversation.clarified(draft, sender, text, ends)
        case Steer(sender, text):
            _steered(draft, sender, text)
        case Cancel(by, reason):
            _cancelled(draft, by, reason)
        case Retry():
            operator_orders.retried(draft, heard.instructions)
        case Unblock():
            operator_orders.unblocked(draft, heard)
        case SpecWritten(spec):
            spec_drafting.written(draft, spec)
        case Edited():
            _edited(draft, heard)
        case ChildEdited(planned, needs):
            _child_edited(draft, planned, needs)
        case _:
            assert_never(heard)


def _void_what_was_edited(draft: Draft, before: Task) -> None:
    """Who was asked about an action was asked about work as it stood then."""
    if before.phase is Phase.AWAITING_APPROVAL and draft.task.spec != before.spec:
        approved_actions.void(draft, "the task was edited after it was asked")


def _redispatched(draft: Draft, new: Redispatch) -> None:
    """Ended work gets a new attempt; live work goes on, and its reply will name the newer attempt.

    What anybody else than its sender has cancelled stays so, and the sender hears it of the newer attempt, too.
    """
    task = draft.task
    if task.phase is Phase.CANCELLED and not task.cancelled_with_parent:
        draft.amend("a cancel is final: the sender's newer attempt is told of it", origin=new.origin)
        announce_end(draft)
    elif not task.phase.is_terminal:
        draft.amend("the sender's newer attempt takes over the work under way", origin=new.origin)
        conversation.ask_again(draft)
        spec_drafting.ask_again(draft)
    else:
        operator_orders.given_again(draft, new)


def _only_from_sender(draft: Draft, sender: str, what: str) -> None:
    if not same_agent(sender, draft.task.sender) and sender not in OPERATORS:
        task = draft.task
        raise Refused("wrong-agent", f"{task.local_id} was given by {task.sender}; {what} from {sender} does not count")


def _steered(draft: Draft, sender: str, text: str) -> None:
    """New instructions, from whoever gave the work."""
    _only_from_sender(draft, sender, "new instructions")
    task = draft.task
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} is {task.phase}: it takes no new instructions")
    _not_about_to_run(task)
    if task.phase is Phase.SPEC_DRAFT:
        more = "\n\n".join([task.spec.instructions, text])
        draft.record(Kind.STEERED, by=sender, text=text, into="in its spec, which is not complete yet")
        draft.amend("the spec is mended", spec=replace(task.spec, instructions=more), findings="")
        return
    conversation.steered(draft, sender, text)


def _not_about_to_run(task: Task) -> None:
    if task.phase is Phase.READY_TO_RESUME:
        problem = f"{task.local_id}: its approved actions are about to run, or run"
        raise Refused("about-to-run", problem, "Cancel it, or wait for their end.")


def _cancelled(draft: Draft, by: str, reason: str) -> None:
    task = draft.task
    if draft.role is not Role.OPERATOR:
        _only_from_sender(draft, by, "cancel")
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} is {task.phase} already")
    cancel(draft, f"cancelled by {by}" + (f": {reason}" if reason else ""), by=by)


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
        _not_about_to_run(task)
        spec = replace(task.spec, instructions=edit.instructions, scope_in=edit.instructions)
        spec, _ = specs.derive(spec, task.policy.weak)
        spec_drafting.back_to_draft(draft)
        draft.amend("instructions edited in task.md", spec=spec, findings="")
    if edit.added:
        if task.phase.is_terminal or task.phase in AFTER_JOIN:
            raise Refused("ended", f"{task.local_id} is {task.phase}: it takes no more children")
        if task.broadcast:
            raise Refused("illegal-edit", f"{task.local_id} is a broadcast: its children are copies of it")
        plans.adopt(draft, Plan(edit.added), draft.family)
        waits = draft.attempt is not None and draft.attempt.waiting_for
        if waits is Waiting.REPLY and task.mode is Mode.DIRECT:
            raise Refused("given-away", f"{task.local_id} is with {task.executor}, who has acknowledged it")


def _child_edited(draft: Draft, planned: PlannedChild, needs: tuple[str, ...] | None) -> None:
    task = draft.task
    if task.attempt or task.phase.is_terminal:
        raise Refused("not-pending", f"{task.local_id} was dispatched or has ended, and can no longer be edited")
    executor = specs.executor_of(planned.agents[0], draft.ctx.agent)
    if executor != draft.ctx.agent and (why := draft.ctx.may_reach(executor)) is not None:
        raise Refused("unknown-agent", f"{task.local_id}: {why}")
    if (why := plans.refused_worker(planned, draft.ctx)) is not None:
        raise Refused("unknown-harness", f"{task.local_id}: {why}")
    policy = specs.apply(task.policy, planned.overrides)
    spec, _ = specs.derive(specs.child_spec(planned), policy.weak)
    spec_drafting.back_to_draft(draft)
    title = specs.child_title(planned)
    note = "edited in the parent's task.md"
    said = {"said": planned.overrides, "extra": planned.extra, "runtime": policy.runtime}
    draft.amend(note, spec=spec, policy=policy, executor=executor, title=title, **said)
    if needs is not None:
        draft.record(Kind.NEEDS_CHANGED, needs=list(needs))
