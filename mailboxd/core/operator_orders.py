"""Everything the operator can order about a task, as one table.

Each row names an order, the input that it is, the function that carries it out, and how it is offered. `decide` calls
the function; the permission matrix, the engine, the CLI, the web page and MCP read the other columns. A new order is a
row here, an input in `core.inputs`, and a command with its options in `mailboxd.cli.commands.orders`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mailboxd.core import conversation, reviews, spec_drafting, specs
from mailboxd.core.budget import is_paused, over, paused_by, raised
from mailboxd.core.decision_builder import DecisionBuilder
from mailboxd.core.events import Kind, Role
from mailboxd.core.failure import restored
from mailboxd.core.fixpoint import cancel, end
from mailboxd.core.inputs import (
    Cancel,
    Clarification,
    OperatorInput,
    Pause,
    Redispatch,
    Remedy,
    Resume,
    Retry,
    SpecWritten,
    Steer,
    Unblock,
)
from mailboxd.core.lifecycle import (
    BEFORE_EXECUTION,
    Trigger,
    applies,
    redispatch_trigger,
    require_unblockable,
    retry_trigger,
)
from mailboxd.core.model import Task
from mailboxd.core.vocabulary import OPERATORS, Phase, WeakSpec, same_agent
from mailboxd.errors import Refused

OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that decide whether an order makes sense for a task."""

    phase: Phase
    held: str = ""
    """Why it is on hold."""
    pausing: bool = False
    """It waits before its next attempt."""
    asks: bool = False
    """It has an open question."""
    has_result: bool = False

    @property
    def is_open(self) -> bool:
        """Its circuit is open."""
        return self.phase is Phase.CIRCUIT_OPEN

    @property
    def blocked(self) -> bool:
        return self.is_open or (bool(self.held) and not is_paused(self.held))


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """One row of the table."""

    name: str
    input: type
    carry_out: Callable[[DecisionBuilder, Any], None]
    """Raises Refused where the task's state does not allow it."""
    from_text: Callable[[str], OperatorInput] | None = None
    """The input made of a note alone; None where more is needed."""
    makes_sense: Callable[[Situation], bool] = lambda _situation: False
    """Whether to offer it. The engine judges every order that is given."""
    label: str = ""
    """Its button on the web page; empty: the page does not offer it."""
    main: bool = False
    """The usual choice."""
    dangerous: bool = False
    """It ends the task."""
    done: str = ""
    """The page's confirmation."""
    leads_to: Phase | None = None
    """The phase by which MCP's `task_transition` names it."""


# The orders.


def answer(builder: DecisionBuilder, order: Clarification) -> None:
    """Answer the task's open question. Raises Refused."""
    _require_sender(builder, order.sender, "answer")
    if builder.task.phase is Phase.SPEC_DRAFT:
        spec_drafting.clarified(builder, order)
    else:
        conversation.clarified(builder, order.sender, order.text, order.ends)


def steer(builder: DecisionBuilder, order: Steer) -> None:
    """Add instructions to the task's spec, and deliver them to running work. Raises Refused."""
    _require_sender(builder, order.sender, "new instructions")
    task = builder.task
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} {task.phase.told}: it takes no new instructions")
    require_not_acting(task)
    if task.phase is Phase.SPEC_DRAFT:
        more = "\n\n".join([task.spec.instructions, order.text])
        builder.record(Kind.STEERED, by=order.sender, text=order.text, into="in its spec, which is not complete yet")
        builder.amend("the spec is extended", spec=replace(task.spec, instructions=more), findings="")
        return
    conversation.steered(builder, order.sender, order.text)


def cancel_task(builder: DecisionBuilder, order: Cancel) -> None:
    """Raises Refused."""
    if builder.role is not Role.OPERATOR:
        _require_sender(builder, order.by, "cancel")
    if not applies(builder.task, Trigger.CANCELLED):
        raise Refused("ended", f"{builder.task.local_id} {builder.task.phase.told} already")
    reason = f": {order.reason}" if order.reason else ""
    cancel(builder, f"cancelled by {order.by}{reason}", by=order.by)


def retry(builder: DecisionBuilder, order: Retry) -> None:
    """Run the task again, end its pause after a failure, or ask reviewers whom nobody could ask. Raises Refused."""
    task = builder.task
    if task.phase is Phase.EXECUTION_READY and task.not_before is not None:
        builder.amend("the operator skipped the backoff", not_before=None, reason="retried by the operator")
        return
    if reviews.ask_again(builder):
        return
    trigger = retry_trigger(builder.view)
    mending = task.mending
    if trigger is Trigger.REOPENED:
        more = "\n\n".join(filter(None, [task.spec.instructions, order.instructions]))
        changes: dict[str, Any] = {"findings": "", "spec": replace(task.spec, instructions=more)}
        mending = spec_drafting.after(task, trigger)
    else:
        changes = {"findings": "\n\n".join(filter(None, [task.findings, order.instructions]))}
    changes["mending"] = replace(mending, questions=0)
    builder.move(trigger, "retried by the operator", **changes, **_fresh_start(task, builder.ctx.now))


def unblock(builder: DecisionBuilder, order: Unblock) -> None:
    """Decide about an open circuit, or release work that is held because its budget is used up. Raises Refused."""
    task = builder.task
    require_unblockable(task, order.remedy)
    match order.remedy:
        case Remedy.RETRY:
            _release(builder, order)
            if task.phase is Phase.CIRCUIT_OPEN:
                retry(builder, Retry(order.note))
        case Remedy.FAIL:
            end(builder, Trigger.OPERATOR_FAIL, order.note or "the operator gives up")
        case Remedy.ACCEPT:
            end(builder, Trigger.OPERATOR_ACCEPT, "the operator accepts the last good result", error="")


def pause(builder: DecisionBuilder, order: Pause) -> None:
    """Raises Refused."""
    task = builder.task
    if task.phase.is_terminal:
        raise Refused("ended", f"{task.local_id} {task.phase.told} already")
    if task.held:
        raise Refused("held", f"{task.local_id} is on hold already: {task.held}")
    held = paused_by(builder.actor, order.note)
    builder.amend(held, held=held)


def resume(builder: DecisionBuilder, order: Resume) -> None:
    """Raises Refused."""
    task = builder.task
    if not is_paused(task.held):
        name = task.local_id
        hint = f"`mailboxd why {name}` says what it waits for."
        raise Refused("not-paused", f"{task.local_id} is not paused", hint)
    builder.amend(f"resumed by {builder.actor}" + (f": {order.note}" if order.note else ""), held="")


def write_spec(builder: DecisionBuilder, order: SpecWritten) -> None:
    """Raises Refused."""
    spec_drafting.written(builder, order.spec, f"the {OPERATOR}")


def _release(builder: DecisionBuilder, order: Unblock) -> None:
    """Raise the budgets that the order raises. Raises Refused when they would still be used up."""
    task, spent = builder.task, builder.view.spent
    changes = raised(task.policy, spent, order, builder.ctx.limits)
    policy = replace(task.policy, **changes)
    if why := over(policy, spent):
        hint = "Raise it: --budget-usd, --budget-tokens."
        raise Refused("over-budget", f"{task.local_id} is still over its budget: {why}", hint)
    held = task.held if is_paused(task.held) else ""
    if changes or task.held != held:
        builder.amend("released by the operator", policy=policy, held=held)


def _fresh_start(task: Task, now: str) -> dict[str, Any]:
    """The fields that a fresh start resets: end, counters, pauses, escalation, and a deadline that has passed."""
    changes: dict[str, Any] = {"failures": 0, "rework": 0, "stalls": 0, "not_before": None}
    changes |= {"completed_at": None, "cancelled_with_parent": False, "skipped": False}
    if task.policy.deadline is not None and task.policy.deadline <= now:
        changes["policy"] = replace(task.policy, deadline=None)
    return changes | restored(task)


def _require_sender(builder: DecisionBuilder, sender: str, what: str) -> None:
    """Orders also come by message, from the task's sender. Raises Refused for any other agent's."""
    task = builder.task
    if not same_agent(sender, task.sender) and sender not in OPERATORS:
        raise Refused("wrong-agent", f"{task.local_id} was given by {task.sender}; {what} from {sender} does not count")


def require_not_acting(task: Task) -> None:
    """Raise Refused while approved actions are about to run: they were approved for the work as it was."""
    if task.phase is Phase.READY_TO_RESUME:
        problem = f"{task.local_id}: its approved actions are running or about to run"
        raise Refused("about-to-run", problem, "Cancel it, or wait until they have ended.")


def change(builder: DecisionBuilder, new: Redispatch) -> None:
    """Give live work the text that its sender has sent again: as its spec, or as new instructions. Raises Refused."""
    task = builder.task
    if task.phase in BEFORE_EXECUTION:
        spec_drafting.written(builder, new.spec, task.sender)
    else:
        steer(builder, Steer(task.sender, f"The task was sent again. It now says:\n\n{new.text}"))


def redispatch(builder: DecisionBuilder, new: Redispatch) -> None:
    """Run ended work again for its sender. Work that had no attempt starts again with the review of its spec."""
    task, trigger = builder.task, redispatch_trigger(builder.task)
    unstarted = trigger is Trigger.RENEWED
    spec, _ = specs.derive(new.spec, task.policy.weak if unstarted else WeakSpec.DERIVE)
    changes = _fresh_start(task, builder.ctx.now)
    if new.deadline is not None:
        changes["policy"] = replace(task.policy, deadline=new.deadline)
    if unstarted:
        changes["mending"] = spec_drafting.after(task, trigger)
    builder.move(
        trigger,
        f"dispatched again as attempt {new.origin.attempt}",
        origin=new.origin,
        spec=spec,
        planned_actions=spec.planned_actions,
        findings="" if unstarted else new.findings,
        **changes,
    )


# The table.

OPERATOR_ORDERS: tuple[OperatorOrder, ...] = (
    OperatorOrder(
        "answer",
        Clarification,
        answer,
        makes_sense=lambda now: now.asks,
        label="Answer",
        main=True,
        done="Answered. The agent continues.",
    ),
    OperatorOrder("steer", Steer, steer, from_text=lambda text: Steer(OPERATOR, text)),
    OperatorOrder("spec", SpecWritten, write_spec),
    OperatorOrder(
        "unblock-retry",
        Unblock,
        unblock,
        from_text=lambda text: Unblock(Remedy.RETRY, text),
        makes_sense=lambda now: now.blocked,
        label="Run again",
        main=True,
        done="Unblocked: it will run again.",
        leads_to=Phase.EXECUTION_READY,
    ),
    OperatorOrder(
        "unblock-accept",
        Unblock,
        unblock,
        from_text=lambda text: Unblock(Remedy.ACCEPT, text),
        makes_sense=lambda now: now.is_open and now.has_result,
        label="Accept the last result",
        done="Completed with its last good result.",
        leads_to=Phase.COMPLETED,
    ),
    OperatorOrder(
        "unblock-fail",
        Unblock,
        unblock,
        from_text=lambda text: Unblock(Remedy.FAIL, text),
        makes_sense=lambda now: now.is_open,
        label="Give up",
        dangerous=True,
        done="Failed, as you decided.",
        leads_to=Phase.FAILED,
    ),
    OperatorOrder(
        "retry",
        Retry,
        retry,
        from_text=Retry,
        makes_sense=lambda now: not now.blocked and (now.phase in (Phase.FAILED, Phase.COMPLETED) or now.pausing),
        label="Run again",
        main=True,
        done="It will run again as soon as capacity allows.",
        leads_to=Phase.EXECUTION_READY,
    ),
    OperatorOrder(
        "pause",
        Pause,
        pause,
        from_text=Pause,
        makes_sense=lambda now: not (now.phase.is_terminal or now.held or now.is_open or now.asks),
        label="Pause",
        done="Paused: running turns finish, and no other starts.",
    ),
    OperatorOrder(
        "resume",
        Resume,
        resume,
        from_text=Resume,
        makes_sense=lambda now: is_paused(now.held),
        label="Resume",
        main=True,
        done="Resumed.",
    ),
    OperatorOrder(
        "cancel",
        Cancel,
        cancel_task,
        from_text=lambda text: Cancel(OPERATOR, text),
        makes_sense=lambda now: not now.phase.is_terminal,
        label="Cancel",
        dangerous=True,
        done="Cancelled, with all its subtasks.",
        leads_to=Phase.CANCELLED,
    ),
)
BY_NAME: Mapping[str, OperatorOrder] = {order.name: order for order in OPERATOR_ORDERS}
BY_INPUT: Mapping[type, OperatorOrder] = {order.input: order for order in OPERATOR_ORDERS}


def sensible(situation: Situation) -> tuple[OperatorOrder, ...]:
    """The orders to offer in this situation."""
    return tuple(order for order in OPERATOR_ORDERS if order.makes_sense(situation))


def leading_to(phase: Phase, situation: Situation) -> OperatorOrder | None:
    """The order that moves a task in this situation to `phase`.

    Where none makes sense, one whose refusal says why; None where only a blocked task could be moved there.
    """
    orders = [order for order in OPERATOR_ORDERS if order.leads_to is phase]
    fallback = next((order for order in orders if order.input is not Unblock), None)
    return next((order for order in orders if order.makes_sense(situation)), fallback)
