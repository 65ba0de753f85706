"""The fixed point for one task: what follows from how it and its neighbours stand, with no input from outside.

`settle` applies the state-triggered rows of `core.lifecycle` until the task rests, and orders what its resting
place calls for (a synthesis, a review, a reply). The engine calls it for every task that an event touched.
"""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core import approved_actions, checks, lifecycle, reviews, spec_drafting
from mailboxd.core.approvals import ApprovalStatus
from mailboxd.core.budget import lifted, over, still_held
from mailboxd.core.decision_builder import Decision, Draft
from mailboxd.core.effects import Compose, RunTurn, Send, StopTurns
from mailboxd.core.events import Kind
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.task_view import Context, View
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import AttemptStatus, Gate, Phase, Synthesis, Turn, Waiting

_UNREPORTED = frozenset({AttemptStatus.RUNNING, AttemptStatus.UNKNOWN, AttemptStatus.ABORTED})
"""How an attempt stands whose executor has not said how it ended."""
_GATES = {Phase(gate.value): gate for gate in Gate}


def settle(view: View, ctx: Context) -> Decision:
    """What follows for this task; an empty decision when it rests already."""
    draft = Draft(view, ctx)
    settle_draft(draft)
    return draft.done()


def settle_draft(draft: Draft) -> None:
    while (follows := lifecycle.due(_looked_at(draft))) is not None:
        _take(draft, *follows)
    _rest(draft)
    if draft.view.approvals or draft.task.planned_actions:
        approved_actions.rest(draft)
        if lifecycle.due(draft.view) is not None:  # what a person did by hand needs nobody else
            settle_draft(draft)
            return
    _hold(draft)


def _looked_at(draft: Draft) -> View:
    """The view, with what only the configuration can say of the spec's checks."""
    view, spec, ctx = draft.view, draft.view.task.spec, draft.ctx
    if spec.checks or spec.planned_actions:
        refused = checks.refused(view.task, spec, ctx)
        draft.view = replace(view, refused_checks=refused, checks=checks.due_here(view, ctx))
    return draft.view


def _take(draft: Draft, trigger: Trigger, reason: str) -> None:
    task = draft.task
    match trigger:
        case Trigger.CANCELLED:
            cancel(draft, reason, with_parent=draft.view.parent_phase in lifecycle.CLOSES_CHILDREN)
        case Trigger.CHILD_FAILED:
            end_attempt(draft, AttemptStatus.FAILED, reason)
            draft.move(trigger, reason, error=task.error or reason)
            announce_end(draft)
        case Trigger.CHANGES_REQUESTED:
            findings = _findings(draft.view) or reason
            draft.move(
                trigger, reason, rework=task.rework + 1, findings=findings, mending=spec_drafting.after(task, trigger)
            )
        case Trigger.SPEC_COMPLETE:
            if task.mending.waiting_for is not Waiting.NOTHING:
                stop_turns(draft)  # a draft that is no longer needed
            draft.move(trigger, reason, mending=spec_drafting.after(task, trigger))
        case Trigger.BLOCKED | Trigger.ACTION_UNCERTAIN:
            open_circuit(draft, trigger, reason)
        case Trigger.PERSON_ASKED_CHANGES:
            draft.move(trigger, reason, findings=_asked_changes(draft.view))
        case Trigger.PERSON_REJECTED:
            draft.move(trigger, reason, error=reason)
            announce_end(draft)
        case _:
            if reviews.silent(draft.view):
                stop_turns(draft)  # the quorum does not need their word any more
            draft.move(trigger, reason)
            announce_end(draft)


def _findings(view: View) -> str:
    lines = [f"- {finding.severity}: {finding.message}" for finding in checks.findings(view.check_runs)]
    return "\n".join(filter(None, [*lines, reviews.said_by(view.reviews)]))


def _asked_changes(view: View) -> str:
    """What people want changed, as the next attempt is told."""
    rows = (row for row in view.live_approvals if row.status is ApprovalStatus.REQUEST_CHANGES)
    return "\n".join(f"- major: {row.requested_action}: {row.note or 'changes are requested'}" for row in rows)


def _rest(draft: Draft) -> None:
    """Order what the phase the task rests in calls for."""
    view = draft.view
    if view.task.phase is Phase.SPEC_DRAFT:
        spec_drafting.rest(draft)
    elif len(view.check_runs) < len(view.checks):
        checks.order_missing(draft)
    elif view.task.phase in _GATES and _GATES[view.task.phase] in view.task.policy.gates:
        reviews.ask_reviewers(draft, _GATES[view.task.phase])
    elif (
        view.task.phase is Phase.EXECUTING
        and view.attempt is not None
        and view.attempt.waiting_for is Waiting.CHILDREN
        and lifecycle.join_is_met(view)
    ):
        synthesise(draft)


def _hold(draft: Draft) -> None:
    """Over its budget it gets no further turn until the operator raises that, by a command or in the configuration."""
    task, spent, limits = draft.task, draft.view.spent, draft.ctx.limits
    if task.phase.is_terminal or not (task.held or over(task.policy, spent)):
        return
    policy = lifted(task.policy, limits)
    held = still_held(task.held, policy, spent, limits) if task.held else over(policy, spent)
    if held != task.held or (not held and policy != task.policy):
        draft.amend(held or "the configuration allows more now", policy=policy, held=held)


def synthesise(draft: Draft) -> None:
    """Make the task's result of its children's: a turn of its executor, or without a model."""
    task, attempt = draft.task, draft.live
    if task.broadcast or task.policy.synthesis is not Synthesis.AGENT:
        draft.checkpoint("the children are completed: composing their results", waiting_for=Waiting.TURN)
        draft.order(Compose(attempt.id))
    else:
        draft.checkpoint("the children are completed: synthesis", waiting_for=Waiting.TURN)
        turn_id = draft.ctx.new_id("trn")
        whose = (attempt.executor, attempt.id, attempt.session_key)
        draft.order(RunTurn(turn_id, Turn.SYNTHESIS, *whose, model=attempt.model, harness=attempt.worker_ref))


def cancel(draft: Draft, reason: str, *, by: str = "", with_parent: bool = False) -> None:
    """End the task as cancelled; running work is stopped, a peer that has it is told, the sender gets a reply."""
    _take_back(draft, reason)
    by_sender = draft.task.parent is None and by == draft.task.sender
    draft.move(Trigger.CANCELLED, reason, cancelled_with_parent=with_parent or by_sender, error=reason)
    if not by_sender:
        announce_end(draft)


def end(draft: Draft, trigger: Trigger, reason: str, **changes: object) -> None:
    """End the task, by time or by a person: turns are stopped, a peer that may have it and the sender are told."""
    _take_back(draft, reason)
    draft.move(trigger, reason, **changes)
    announce_end(draft)


def _take_back(draft: Draft, reason: str) -> None:
    call_off(draft, reason)
    end_attempt(draft, AttemptStatus.ABORTED, reason)


def call_off(draft: Draft, reason: str) -> None:
    """Tell a peer that has the latest attempt, or may have it still: we only stopped waiting for him."""
    attempt = draft.attempt
    if attempt is not None and attempt.status in _UNREPORTED and attempt.acknowledged:
        draft.order(Send(draft.ctx.new_id("msg"), "cancel", attempt.executor, reason, attempt.ordinal))


def end_attempt(draft: Draft, status: AttemptStatus, reason: str) -> None:
    """A task that ends takes its live attempt and its running turns with it."""
    stop_turns(draft)
    if draft.attempt is not None and draft.attempt.status is AttemptStatus.RUNNING:
        draft.finish_attempt(status, reason)


def stop_turns(draft: Draft) -> None:
    if draft.view.turns:
        draft.order(StopTurns())
        draft.view = replace(draft.view, turns=0)


def open_circuit(draft: Draft, trigger: Trigger, reason: str, **changes: object) -> None:
    """Stop trying and wait for the operator, for a stored time (section 4, "An open circuit surfaces")."""
    hold = plus(draft.ctx.now, draft.task.policy.circuit_hold)
    draft.move(trigger, reason, due=hold, error=draft.task.error or reason, **changes)
    draft.record(Kind.CIRCUIT_OPENED, reason=reason, attempts=draft.task.attempt, held_until=hold)


def announce_end(draft: Draft) -> None:
    """A root task that has ended answers whoever gave it."""
    task = draft.task
    if task.phase.is_terminal and task.parent is None:
        draft.order(Send(draft.ctx.new_id("msg"), "reply", task.sender))
