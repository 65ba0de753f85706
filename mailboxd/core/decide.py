"""`decide`: what one input does to one task. Pure: the same view, input and context give the same decision.

An input that the state does not allow raises Refused (or PlanError, for a plan), and then nothing has happened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from mailboxd.core.conversation import ask_operator, reports_progress
from mailboxd.core.decision_builder import Decision, DecisionBuilder
from mailboxd.core.effects import LookUp, Send
from mailboxd.core.events import Kind, Role
from mailboxd.core.failure import outcome_unknown
from mailboxd.core.fixpoint import announce_end, end, run_to_fixpoint
from mailboxd.core.inputs import (
    CheckEnded,
    Checkpoint,
    ChildEdited,
    ChildrenDue,
    Edited,
    FileMade,
    ImportedDispatched,
    ImportedDone,
    ImportedFailed,
    Input,
    LookAgain,
    NewTask,
    OpenCircuit,
    Order,
    Redispatch,
    Reply,
    ReviewGiven,
    SenderTold,
    Start,
    TimePassed,
    TurnEnded,
    WorkForgotten,
)
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import AFTER_JOIN, BEFORE_EXECUTION, Trigger, applies, deadline_passed
from mailboxd.core.model import NO_USAGE, Plan, PlannedChild, Task, changed
from mailboxd.core.outcomes import Aborted, Acknowledged, Failed, Outcome, PromptDigest, Succeeded, Unknown
from mailboxd.core.sanitize import first_line
from mailboxd.core.task_view import Context, TaskView
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import AttemptStatus, Mode, Phase, Turn, Waiting, phase_words
from mailboxd.errors import Refused

# The end of any turn: its cost, its outcome, and whether it was a fault of the agent.


def record_turn(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """Record that a turn ended, unless no agent was called or its outcome has to be looked up.

    A harness's turn is recorded as the harness's: its agent was not called.
    """
    if ended.called and not _is_lost(ended):
        builder.record(Kind.TURN_ENDED, turn=_turn_of(ended) | ({"delivered": True} if _is_delivery(ended) else {}))


def record_lost_turn(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """Record that a turn was lost about which nobody will be asked, because nothing waits for it any more."""
    if ended.called and _is_lost(ended) and not any(isinstance(effect, LookUp) for _, effect in builder.effects):
        builder.record(Kind.TURN_ENDED, turn=_turn_of(ended))


def _is_lost(ended: TurnEnded) -> bool:
    return isinstance(ended.outcome, Unknown) and not ended.outcome.looked_up


def _turn_of(ended: TurnEnded) -> dict[str, Any]:
    who = f"acp:{ended.harness}" if ended.harness else ended.agent
    return turn_data(ended.turn, who, ended.attempt_id, ended.outcome, ended.session_key, ended.prompt)


def _is_delivery(ended: TurnEnded) -> bool:
    """Whether the peer's mailbox took the dispatch without a model: what the work costs is in the peer's reply."""
    usage = ended.outcome.usage if isinstance(ended.outcome, Succeeded) else None
    return ended.turn is Turn.DISPATCH and isinstance(ended.answer, Acknowledged) and usage == NO_USAGE


def turn_data(
    purpose: str, agent: str, attempt: str, outcome: Outcome, session_key: str = "", prompt: PromptDigest | None = None
) -> dict[str, Any]:
    """The turn in the event of its end. `ran` is False if the turn provably never reached the agent.

    `model`, `run` and `session` are what OpenClaw, or the harness, reports; null if it reports none.
    """
    known = outcome if isinstance(outcome, Succeeded | Failed) else None
    return {
        "purpose": purpose,
        "agent": agent,
        "attempt": attempt,
        "outcome": _WORDS[type(outcome)],
        "ran": not isinstance(outcome, Failed) or outcome.started,
        "fault": is_fault(outcome),
        "said": "" if isinstance(outcome, Succeeded) else first_line(outcome.error),
        "usage": to_json(NO_USAGE if known is None else known.usage),
        "model": None if known is None else known.model,
        "run": None if isinstance(outcome, Aborted) else outcome.run_id,
        "session": None if known is None else known.session_ref,
        "session_key": session_key,
        "prompt": to_json(prompt),
    }


_WORDS: dict[type, str] = {Succeeded: "succeeded", Failed: "failed", Aborted: "aborted", Unknown: "unknown"}


# Timers: a hold or a lease ends, a deadline passes, a heartbeat is due. All are stored times, so a restart changes
# nothing, and each is handled once.


def time_passed(builder: DecisionBuilder, passed: TimePassed) -> None:
    """Handle what is due. What unread mail could prevent waits until the mail is read."""
    task, now = builder.task, builder.ctx.now
    read_until = now if passed.read_until is None else min(now, passed.read_until)
    if deadline_passed(task, read_until):
        reason = f"its deadline, {task.policy.deadline}, has passed"
        end(builder, Trigger.DEADLINE_PASSED, reason, error=reason)
        return
    if task.heartbeat is not None and task.heartbeat <= now and not task.phase.is_terminal:
        _heartbeat(builder)
    if task.due is not None and task.due <= now:
        _due(builder, read_until)


def _due(builder: DecisionBuilder, read_until: str) -> None:
    task, attempt = builder.task, builder.attempt
    waiting = attempt.waiting_for if attempt and attempt.status is AttemptStatus.RUNNING else Waiting.NOTHING
    if applies(task, Trigger.HOLD_OVER):
        end(builder, Trigger.HOLD_OVER, f"not decided in time; {task.error or task.reason}")
    elif waiting is not Waiting.NOTHING and (task.due or "") > read_until:
        return  # the message that it waits for may be in the inbox
    elif waiting is Waiting.REPLY:
        outcome_unknown(builder, f"{builder.live.executor} has not replied within {task.policy.reply_within} s")
    elif waiting is Waiting.ANSWER:
        ask_operator(builder, f"{task.sender} has not answered within {task.policy.reply_within} s")
    else:
        builder.amend("nothing is due", due=None)


def _heartbeat(builder: DecisionBuilder) -> None:
    """Send the sender a progress message, or record once that the executing peer is silent."""
    task, ctx, attempt = builder.task, builder.ctx, builder.attempt
    if reports_progress(builder) and ctx.heartbeat:
        builder.order(Send(ctx.new_id("msg"), "progress", task.sender, f"{phase_words(task.phase)}: {task.reason}"))
        builder.amend("progress reported to its sender", heartbeat=plus(ctx.now, ctx.heartbeat))
        return
    if attempt is not None and attempt.waiting_for is Waiting.REPLY:
        builder.record(Kind.PEER_SILENT, agent=attempt.executor, attempt=attempt.id, until=task.due)
        builder.checkpoint(f"{attempt.executor} has missed its heartbeat", silent=True)
    builder.amend("no further heartbeat is checked until the peer sends a message", heartbeat=None)


# One input, one decision.


def decide(
    view: TaskView | None, given: Input, ctx: Context, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
) -> Decision:
    """The events and effects of the input. Raises Refused or PlanError if the state does not allow it."""
    if isinstance(given, NewTask):
        return plans.create(given, ctx)
    if view is None:
        raise AssertionError("only a new task has no view")
    builder = DecisionBuilder(changed(view), ctx, role, actor)
    match given:
        case Redispatch():
            _redispatched(builder, given)
        case ChildrenDue(children):
            plans.create_children(builder, children)
        case Start():
            attempts.start(builder)
        case TurnEnded():
            record_turn(builder, given)
            approved_actions.void_permissions(builder, given)
            attempts.turn_ended(builder, given)
            record_lost_turn(builder, given)
        case Reply():
            replied(builder, given)
        case TimePassed():
            time_passed(builder, given)
        case LookAgain():
            pass  # the fixpoint judges it anew
        case SenderTold():
            conversation.tell_sender(builder, given)
        case WorkForgotten():
            attempts.work_forgotten(builder, given)
        case ImportedDone() | ImportedFailed() | ImportedDispatched():
            imported(builder, given)
        case Checkpoint() | FileMade() | ReviewGiven() | OpenCircuit():
            tool_evidence.handle(builder, given)
        case CheckEnded():
            checks.check_ended(builder, given)
        case _ if isinstance(given, OfApproval):
            approval_requests.handle(builder, given)
        case _:
            _order(builder, given)
            _note_words(builder, given)
            _void_what_was_edited(builder, view.task)
    builder.role, builder.actor = Role.ORCHESTRATOR, "mailboxd"
    run_to_fixpoint(builder)
    return builder.done()


def _order(builder: DecisionBuilder, order: Order) -> None:
    match order:
        case Edited():
            _edited(builder, order)
        case ChildEdited(planned, needs):
            _child_edited(builder, planned, needs)
        case _:
            operator_orders.BY_INPUT[type(order)].carry_out(builder, order)


def _note_words(builder: DecisionBuilder, order: Order) -> None:
    """Keep what a person said with an order in the first event that follows from it, whatever became of the words."""
    said = operator_orders.words_of(order) if builder.role is Role.OPERATOR else None
    if said is not None and builder.events:
        first = builder.events[0]
        builder.events[0] = replace(first, data={**first.data, "given": said})


def _void_what_was_edited(builder: DecisionBuilder, before: Task) -> None:
    """An edit voids pending approvals: they are about the work as it was."""
    if before.phase is Phase.AWAITING_APPROVAL and builder.task.spec != before.spec:
        approved_actions.void(builder, "the task was edited after it was asked")


def _redispatched(builder: DecisionBuilder, new: Redispatch) -> None:
    """A newer attempt: ended work gets one, too; live work continues, and its reply will name it. Raises Refused.

    Work that was cancelled by anyone but its sender stays cancelled, and the newer attempt gets that reply.
    """
    task = builder.task
    newer = new.origin.attempt > max(task.origin.attempt, 1)
    if not task.phase.is_terminal:
        _taken_over(builder, new, newer)
    elif not newer:
        hint = "Use a higher `attempt` to redo it, or another `task_id` for other work."
        raise Refused("ended", f"{task.local_id} {task.phase.told}, and this is a different text under its id", hint)
    elif task.phase is Phase.CANCELLED and not task.cancelled_with_parent:
        builder.amend("a cancel is final: the sender's newer attempt gets the same reply", origin=new.origin)
        announce_end(builder)
    else:
        operator_orders.redispatch(builder, new)
        _follow(builder, new)


def _taken_over(builder: DecisionBuilder, new: Redispatch, newer: bool) -> None:
    """Live work continues under the sender's newer dispatch. Another text counts for it; other terms are refused."""
    known = builder.task.origin
    if not newer and known.terms not in ("", new.origin.terms):
        problem = f"{builder.task.local_id} is under way, and this message has other headers or another plan"
        hint = "Instructions can change: `type: steer`. For the rest, cancel it and send it as another task."
        raise Refused("id-conflict", problem, hint)
    origin = replace(new.origin, spec=known.spec)
    builder.amend("the sender's newer dispatch takes over the work under way", origin=origin)
    _follow(builder, new)
    if new.origin.content != known.content and (known.content or builder.task.parent is not None):
        operator_orders.change(builder, new)
    if newer:
        conversation.ask_again(builder)
        spec_drafting.ask_again(builder)


def _follow(builder: DecisionBuilder, new: Redispatch) -> None:
    """Take the order that the newer dispatch says, if the work has not begun; else its sender is told."""
    if new.needs is None:
        return
    if builder.task.phase in BEFORE_EXECUTION:
        builder.record(Kind.NEEDS_CHANGED, needs=list(new.needs), note="its sender has given it another order")
        return
    told = "depends_on was changed when the work had begun: it goes on, whatever it was to follow"
    plans.record_doubts(builder, plans.MESSAGE, [told])


def _edited(builder: DecisionBuilder, edit: Edited) -> None:
    """Record the changes of a legal edit of task.md. Raises Refused, PlanError."""
    task = builder.task
    if edit.notes is not None:
        builder.amend("notes edited in task.md", notes=edit.notes)
    if edit.sections is not None:
        builder.amend("sections edited in task.md", sections=edit.sections)
    if edit.results is not None:
        if task.phase is not Phase.EXECUTING:
            raise Refused("ended", f"{task.local_id} {task.phase.told}: its results cannot be written now")
        builder.amend("results written in task.md", draft_result=edit.results)
    if edit.instructions is not None:
        if task.phase.is_terminal:
            raise Refused("ended", f"{task.local_id} {task.phase.told}: its instructions can no longer change")
        operator_orders.require_not_acting(task)
        spec = replace(task.spec, instructions=edit.instructions, scope_in=edit.instructions)
        spec, _ = specs.derive(spec, task.policy.weak)
        spec_drafting.back_to_draft(builder)
        builder.amend("instructions edited in task.md", spec=spec, findings="")
    plans.record_doubts(builder, plans.PLAN, edit.doubts)
    if edit.added:
        if task.phase.is_terminal or task.phase in AFTER_JOIN:
            raise Refused("ended", f"{task.local_id} {task.phase.told}: it takes no more children")
        if task.broadcast or task.body is not None:
            raise Refused("illegal-edit", f"{task.local_id} is repeated: its children are copies or rounds of it")
        plans.adopt(builder, Plan(edit.added), builder.family)
        waits = builder.attempt is not None and builder.attempt.waiting_for
        if waits is Waiting.REPLY and task.mode is Mode.DIRECT:
            raise Refused("given-away", f"{task.local_id} is with {task.executor}, which has acknowledged it")


def _child_edited(builder: DecisionBuilder, planned: PlannedChild, needs: tuple[str, ...] | None) -> None:
    task = builder.task
    if task.attempt or task.phase.is_terminal:
        raise Refused("not-pending", f"{task.local_id} was dispatched or has ended, and can no longer be edited")
    if task.broadcast or task.body is not None or len(planned.agents) > 1 or planned.flow.rounds:
        problem = f"{task.local_id} is given to several agents, or has rounds"
        raise Refused("illegal-edit", problem, "Cancel it and add another child.")
    if (why := plans.refused_agent(planned, builder.ctx)) is not None:
        raise Refused("unknown-agent", f"{task.local_id}: {why}")
    executor = specs.executor_of(planned.agents[0], builder.ctx.agent)
    plans.require_worker(planned, builder.ctx.agent, builder.ctx.may_use, builder.ctx.models)
    policy = specs.apply(task.policy, planned.overrides)
    spec, _ = specs.derive(specs.child_spec(planned), policy.weak)
    spec_drafting.back_to_draft(builder)
    title = specs.child_title(planned)
    note = "edited in the parent's task.md"
    said = {
        "said": planned.overrides,
        "extra": planned.extra,
        "runtime": policy.runtime,
        "flow": planned.flow,
        "claims": planned.claims,
    }
    builder.amend(note, spec=spec, policy=policy, executor=executor, title=title, **said)
    if needs is not None:
        builder.record(Kind.NEEDS_CHANGED, needs=list(needs))
