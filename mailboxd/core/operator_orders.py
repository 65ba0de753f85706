"""What is ordered about work that has stopped: run it again, by its sender or the operator; let it go on, give up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mailboxd.core import spec_drafting, specs
from mailboxd.core.budget import over, raised
from mailboxd.core.decision_builder import DecisionBuilder
from mailboxd.core.failure import restored
from mailboxd.core.fixpoint import end
from mailboxd.core.inputs import Redispatch, Remedy, Unblock
from mailboxd.core.lifecycle import Trigger, redispatch_trigger, require_unblockable, retry_trigger
from mailboxd.core.model import Task
from mailboxd.core.vocabulary import Phase, WeakSpec
from mailboxd.errors import Refused


def afresh(task: Task, now: str) -> dict[str, Any]:
    """What a fresh start sets back: the end, counters, pauses, what was escalated, and a deadline that has passed."""
    changes: dict[str, Any] = {"failures": 0, "rework": 0, "stalls": 0, "not_before": None}
    changes |= {"completed_at": None, "cancelled_with_parent": False}
    if task.policy.deadline is not None and task.policy.deadline <= now:
        changes["policy"] = replace(task.policy, deadline=None)
    return changes | restored(task)


def given_again(builder: DecisionBuilder, new: Redispatch) -> None:
    """What has ended, given out by its sender once more. What had not started comes back as a draft of its spec."""
    task, trigger = builder.task, redispatch_trigger(builder.task)
    unstarted = trigger is Trigger.RENEWED
    spec, _ = specs.derive(new.spec, task.policy.weak if unstarted else WeakSpec.DERIVE)
    again = afresh(task, builder.ctx.now)
    if new.deadline is not None:
        again["policy"] = replace(task.policy, deadline=new.deadline)
    if unstarted:
        again["mending"] = spec_drafting.after(task, trigger)
    builder.move(
        trigger,
        f"dispatched again as attempt {new.origin.attempt}",
        origin=new.origin,
        spec=spec,
        planned_actions=spec.planned_actions,
        findings="" if unstarted else new.findings,
        **again,
    )


def retried(builder: DecisionBuilder, instructions: str) -> None:
    task = builder.task
    if task.phase is Phase.EXECUTION_READY and task.not_before is not None:
        builder.amend("the operator does not wait for the backoff", not_before=None, reason="retried by the operator")
        return
    trigger = retry_trigger(builder.view)
    if trigger is Trigger.REOPENED:
        _reopened(builder, instructions)
        return
    findings = "\n\n".join(filter(None, [task.findings, instructions]))
    builder.move(
        trigger,
        "retried by the operator",
        findings=findings,
        **afresh(task, builder.ctx.now),
    )


def _reopened(builder: DecisionBuilder, instructions: str) -> None:
    """What had not started comes back as a draft of its spec: that may not be complete, or not have been reviewed."""
    task = builder.task
    more = "\n\n".join(filter(None, [task.spec.instructions, instructions]))
    builder.move(
        Trigger.REOPENED,
        "retried by the operator",
        findings="",
        spec=replace(task.spec, instructions=more),
        mending=spec_drafting.after(task, Trigger.REOPENED),
        **afresh(task, builder.ctx.now),
    )


def unblocked(builder: DecisionBuilder, order: Unblock) -> None:
    """An open circuit, or work that is held because its budget is used up."""
    task = builder.task
    require_unblockable(task, order.remedy)
    if order.remedy is Remedy.RETRY:
        _let_go_on(builder, order)
        if task.phase is Phase.CIRCUIT_OPEN:
            retried(builder, order.note)
        return
    if order.remedy is Remedy.FAIL:
        end(builder, Trigger.OPERATOR_FAIL, order.note or "the operator gives up")
    else:
        end(builder, Trigger.OPERATOR_ACCEPT, "the operator accepts the last good result", error="")


def _let_go_on(builder: DecisionBuilder, order: Unblock) -> None:
    """Raise what the order raises. Raises Refused when the budget would still be used up."""
    task, spent = builder.task, builder.view.spent
    changes = raised(task.policy, spent, order, builder.ctx.limits)
    policy = replace(task.policy, **changes)
    if why := over(policy, spent):
        hint = "Raise it: --budget-usd, --budget-tokens."
        raise Refused("over-budget", f"{task.local_id} cannot go on: {why}", hint)
    if changes or task.held:
        builder.amend("the operator lets it go on", policy=policy, held="")
