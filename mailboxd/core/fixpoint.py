"""The fixed point of one task: what follows from its state and that of its neighbours, without any input.

`reach_fixpoint` applies the state triggers of `core.lifecycle` until none is left, and orders what the phase then needs
(a synthesis, a review, a reply). The engine calls it for every task that an event touched.
"""

from __future__ import annotations

from mailboxd.core import approved_actions, checks, following, lifecycle, reviews, spec_drafting
from mailboxd.core.approvals import ApprovalStatus
from mailboxd.core.budget import lifted, over, still_held
from mailboxd.core.decision_builder import Decision, DecisionBuilder
from mailboxd.core.effects import Compose, RunTurn, Send, StopTurns
from mailboxd.core.events import Kind
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.model import changed
from mailboxd.core.task_view import Context, TaskView
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import TERMINAL, AttemptStatus, Notice, Phase, Turn, Waiting

_UNREPORTED = frozenset({AttemptStatus.RUNNING, AttemptStatus.UNKNOWN, AttemptStatus.ABORTED})
"""The status of an attempt whose end its executor has not reported."""


def reach_fixpoint(view: TaskView, ctx: Context) -> Decision:
    """The next decision for this task; empty at the fixed point."""
    builder = DecisionBuilder(changed(view), ctx)
    run_to_fixpoint(builder)
    return builder.done()


def run_to_fixpoint(builder: DecisionBuilder) -> None:
    while (follows := lifecycle.next_trigger(_completed(builder))) is not None:
        _apply(builder, *follows)
    view = builder.view
    if view.task.policy.gates and reviews.follow_configuration(builder):
        run_to_fixpoint(builder)
        return
    _order_work(builder)
    if view.approvals or view.task.planned_actions:
        approved_actions.order_next(builder)
        if lifecycle.next_trigger(builder.view) is not None:  # an action done by hand may complete the task
            run_to_fixpoint(builder)
            return
    if view.followed or view.task.held:
        following.hold(builder)
    _hold_over_budget(builder)


def _completed(builder: DecisionBuilder) -> TaskView:
    """The view, with the verdicts that came with the result, and what is allowed here of the spec's checks and actions.

    Most tasks have none of them.
    """
    view, spec, ctx = builder.view, builder.view.task.spec, builder.ctx
    if view.attempt is not None and view.attempt.verdicts:
        reviews.count_given(builder)
    if spec.checks or spec.planned_actions:
        builder.see(refused_checks=checks.refused(view.task, spec, ctx), checks=checks.due_here(view, ctx))
    return view


def _apply(builder: DecisionBuilder, trigger: Trigger, reason: str) -> None:
    task = builder.view.task
    match trigger:
        case Trigger.CANCELLED:
            cancel(builder, reason, with_parent=builder.view.parent_phase in lifecycle.CLOSES_CHILDREN)
        case Trigger.SKIPPED:
            stop_turns(builder)
            builder.move(trigger, reason, skipped=True, error=reason)
        case Trigger.CHILD_FAILED:
            end_attempt(builder, AttemptStatus.FAILED, reason)
            builder.move(trigger, reason, error=task.error or reason)
            announce_end(builder)
        case Trigger.CHANGES_REQUESTED:
            findings = _findings(builder.view) or reason
            builder.move(
                trigger, reason, rework=task.rework + 1, findings=findings, mending=spec_drafting.after(task, trigger)
            )
        case Trigger.SPEC_COMPLETE:
            if task.mending.waiting_for is not Waiting.NOTHING:
                stop_turns(builder)  # a drafting turn that is no longer needed
            builder.move(trigger, reason, mending=spec_drafting.after(task, trigger))
        case Trigger.BLOCKED | Trigger.ACTION_UNCERTAIN:
            open_circuit(builder, trigger, reason)
        case Trigger.PERSON_ASKED_CHANGES:
            builder.move(trigger, reason, findings=_asked_changes(builder.view))
        case Trigger.PERSON_REJECTED:
            builder.move(trigger, reason, error=reason)
            announce_end(builder)
        case _:
            if builder.view.asked_reviewers and reviews.silent(builder.view):
                stop_turns(builder)  # their verdicts are no longer needed
            builder.move(trigger, reason)
            announce_end(builder)


def _findings(view: TaskView) -> str:
    lines = [f"- {finding.severity}: {finding.message}" for finding in checks.findings(view.check_runs)]
    return "\n".join(filter(None, [*lines, reviews.reviews_text(view.reviews)]))


def _asked_changes(view: TaskView) -> str:
    """The changes that people requested, as findings for the next attempt."""
    rows = (row for row in view.live_approvals if row.status is ApprovalStatus.REQUEST_CHANGES)
    return "\n".join(f"- major: {row.requested_action}: {row.note or 'changes are requested'}" for row in rows)


def _order_work(builder: DecisionBuilder) -> None:
    """Order what the task's phase needs."""
    view = builder.view
    if view.task.phase is Phase.SPEC_DRAFT:
        spec_drafting.order_completion(builder)
    elif len(view.check_runs) < len(view.checks):
        checks.order_missing(builder)
    elif (gate := lifecycle.gate_on(view.task)) is not None:
        reviews.ask_reviewers(builder, gate)
    elif (
        view.task.phase is Phase.EXECUTING
        and view.attempt is not None
        and view.attempt.waiting_for is Waiting.CHILDREN
        and lifecycle.join_is_met(view)
    ):
        synthesise(builder)


def _hold_over_budget(builder: DecisionBuilder) -> None:
    """Put the task on hold over its budget, until the operator raises it by a command or in the configuration."""
    task, spent, limits = builder.view.task, builder.view.spent, builder.ctx.limits
    if task.phase in TERMINAL or not (task.held or over(task.policy, spent)):
        return
    policy = lifted(task.policy, limits, builder.ctx.configured)
    held = still_held(task.held, policy, spent, limits) if task.held else over(policy, spent)
    if held != task.held or (not held and policy != task.policy):
        builder.amend(held or "the configuration now allows more", policy=policy, held=held)
        if held and not task.held:
            builder.notify(Notice.HOLD)


def synthesise(builder: DecisionBuilder) -> None:
    """Make the task's result of its children's, by a turn of its executor or without a model."""
    task, attempt = builder.task, builder.live
    if task.composes:
        builder.checkpoint("the children are completed: composing their results", waiting_for=Waiting.TURN)
        builder.order(Compose(attempt.id))
    else:
        builder.checkpoint("the children are completed: synthesis", waiting_for=Waiting.TURN)
        turn_id = builder.ctx.new_id("trn")
        whose = (attempt.executor, attempt.id, attempt.session_key)
        builder.order(RunTurn(turn_id, Turn.SYNTHESIS, *whose, model=attempt.model, harness=attempt.worker_ref))


def cancel(builder: DecisionBuilder, reason: str, *, by: str = "", with_parent: bool = False) -> None:
    """Cancel the task: stop its turns, notify a peer that has it, reply to the sender."""
    _stop_work(builder, reason)
    by_sender = builder.task.parent is None and by == builder.task.sender
    builder.move(Trigger.CANCELLED, reason, cancelled_with_parent=with_parent or by_sender, error=reason)
    if not by_sender:
        announce_end(builder)


def end(builder: DecisionBuilder, trigger: Trigger, reason: str, **changes: object) -> None:
    """End the task: stop its turns, notify a peer that may have it, reply to the sender."""
    _stop_work(builder, reason)
    builder.move(trigger, reason, **changes)
    announce_end(builder)


def _stop_work(builder: DecisionBuilder, reason: str) -> None:
    cancel_at_peer(builder, reason)
    end_attempt(builder, AttemptStatus.ABORTED, reason)


def cancel_at_peer(builder: DecisionBuilder, reason: str) -> None:
    """Cancel the latest attempt at a peer that has it or may have it."""
    attempt = builder.attempt
    if attempt is not None and attempt.status in _UNREPORTED and attempt.acknowledged:
        builder.order(Send(builder.ctx.new_id("msg"), "cancel", attempt.executor, reason, attempt.ordinal))


def end_attempt(builder: DecisionBuilder, status: AttemptStatus, reason: str) -> None:
    """End the live attempt and stop its turns."""
    stop_turns(builder)
    if builder.attempt is not None and builder.attempt.status is AttemptStatus.RUNNING:
        builder.finish_attempt(status, reason)


def stop_turns(builder: DecisionBuilder) -> None:
    if builder.view.turns:
        builder.order(StopTurns())
        builder.see(turns=frozenset())


def open_circuit(builder: DecisionBuilder, trigger: Trigger, reason: str, **changes: object) -> None:
    """Stop trying and wait for the operator, for a limited time (section 4, "An open circuit surfaces")."""
    hold = plus(builder.ctx.now, builder.task.policy.circuit_hold)
    builder.move(trigger, reason, due=hold, error=builder.task.error or reason, **changes)
    builder.record(Kind.CIRCUIT_OPENED, reason=reason, attempts=builder.task.attempt, held_until=hold)
    builder.notify(Notice.CIRCUIT)


def announce_end(builder: DecisionBuilder) -> None:
    """Reply to the sender of a root task that has ended, and tell people."""
    task = builder.view.task
    if task.phase in TERMINAL and task.parent is None:
        builder.order(Send(builder.ctx.new_id("msg"), "reply", task.sender))
        if task.phase is not Phase.CANCELLED:
            builder.notify(Notice(task.phase))
