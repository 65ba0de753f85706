"""The fixed point for one task: what follows from how it and its neighbours stand, with no input from outside.

`settle` applies the state-triggered rows of `core.lifecycle` until the task rests, and orders what its resting
place calls for (a synthesis, a review, a reply). The engine calls it for every task that an event touched.
"""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core import lifecycle
from mailboxd.core.draft import Decision, Draft
from mailboxd.core.effects import Compose, RunTurn, Send, StopTurns
from mailboxd.core.events import Kind
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.session import review_key
from mailboxd.core.terms import AttemptStatus, Gate, Phase, Synthesis, Turn, Waiting, same_agent
from mailboxd.core.times import plus
from mailboxd.core.view import Context, Review, View

_GATES = {Phase(gate.value): gate for gate in Gate}
_ASKED_AT_MOST = 2


def settle(view: View, ctx: Context) -> Decision:
    """What follows for this task; an empty decision when it rests already."""
    draft = Draft(view, ctx)
    settle_draft(draft)
    return draft.done()


def settle_draft(draft: Draft) -> None:
    while (follows := lifecycle.due(draft.view)) is not None:
        _take(draft, *follows)
    _rest(draft)


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
            draft.move(trigger, reason, rework=task.rework + 1, findings=_findings(draft.view.reviews) or reason)
        case Trigger.BLOCKED:
            open_circuit(draft, trigger, reason)
        case _:
            draft.move(trigger, reason)
            announce_end(draft)
    draft.view = replace(draft.view, reviews=(), asked_reviewers=())


def _findings(reviews: tuple[Review, ...]) -> str:
    lines = []
    for review in reviews:
        lines.append(f"{review.reviewer}: {review.verdict}. {review.summary}".rstrip())
        lines += [f"- {finding.severity}: {finding.message}" for finding in review.findings]
    return "\n".join(lines)


def _rest(draft: Draft) -> None:
    """Order what the phase the task rests in calls for."""
    view = draft.view
    if view.task.phase in _GATES and _GATES[view.task.phase] in view.task.policy.gates:
        _ask_reviewers(draft, _GATES[view.task.phase])
    elif (
        view.task.phase is Phase.EXECUTING
        and view.attempt is not None
        and view.attempt.waiting_for is Waiting.CHILDREN
        and lifecycle.join_is_met(view)
    ):
        synthesise(draft)


def _ask_reviewers(draft: Draft, gate: Gate) -> None:
    """Ask every reviewer who has not been asked; nobody reviews what he made (protocol section 5)."""
    task = draft.task
    reason = _nobody_to_ask(draft, gate)
    if reason:
        if task.reason != reason:
            draft.amend(reason, reason=reason)
        return
    asked = dict(draft.view.asked_reviewers)
    given = {review.reviewer for review in draft.view.reviews}
    for reviewer in task.policy.reviewers:
        if reviewer not in asked and reviewer not in given:
            ask_reviewer(draft, gate, reviewer)


def _nobody_to_ask(draft: Draft, gate: Gate) -> str:
    """Why the gate cannot be decided by the reviewers that are named; empty when it can."""
    task, ctx = draft.task, draft.ctx
    if all(same_agent(name, task.executor) for name in task.policy.reviewers):
        return f"{gate} is on, but no reviewer other than the executor is named"
    for name in task.policy.reviewers:
        if same_agent(name, task.executor):
            return f"{gate}: the executor {task.executor} is named as its own reviewer"
        if not same_agent(name, ctx.agent) and (why := ctx.may_reach(name)) is not None:
            return f"{gate}: the reviewer {name} cannot be asked: {why}"
    return ""


def ask_reviewer(draft: Draft, gate: Gate, reviewer: str) -> None:
    task, ctx = draft.task, draft.ctx
    draft.record(Kind.REVIEW_REQUESTED, gate=gate, round=lifecycle.review_round(task), reviewer=reviewer)
    key = review_key(reviewer, task.local_id, ctx.agent, gate, lifecycle.review_round(task))
    attempt_id = draft.attempt.id if draft.attempt else ""
    draft.order(RunTurn(ctx.new_id("trn"), Turn.REVIEW, reviewer, attempt_id, key, gate=gate))


def may_ask_again(view: View, reviewer: str) -> bool:
    """An unreadable review is asked for once more, then counts as blocked."""
    return dict(view.asked_reviewers).get(reviewer, 0) < _ASKED_AT_MOST


def synthesise(draft: Draft) -> None:
    """Make the task's result of its children's: a turn of its executor, or without a model."""
    task, attempt = draft.task, draft.live
    if task.broadcast or task.policy.synthesis is not Synthesis.AGENT:
        draft.checkpoint("the children are completed: composing their results", waiting_for=Waiting.TURN)
        draft.order(Compose(attempt.id))
    else:
        draft.checkpoint("the children are completed: synthesis", waiting_for=Waiting.TURN)
        turn_id = draft.ctx.new_id("trn")
        draft.order(RunTurn(turn_id, Turn.SYNTHESIS, task.executor, attempt.id, attempt.session_key))


def cancel(draft: Draft, reason: str, *, by: str = "", with_parent: bool = False) -> None:
    """End the task as cancelled; running work is stopped, a peer that has it is told, the sender gets a reply."""
    attempt = draft.attempt
    told = attempt is not None and attempt.status is AttemptStatus.RUNNING and attempt.acknowledged
    peer = attempt.executor if attempt and told else ""
    end_attempt(draft, AttemptStatus.ABORTED, reason)
    draft.move(Trigger.CANCELLED, reason, cancelled_with_parent=with_parent, error=reason)
    if peer:
        draft.order(Send(draft.ctx.new_id("msg"), "cancel", peer, reason))
    if by != draft.task.sender:
        announce_end(draft)


def end_attempt(draft: Draft, status: AttemptStatus, reason: str) -> None:
    """A task that ends takes its live attempt and its running turns with it."""
    if draft.view.turns:
        draft.order(StopTurns())
    if draft.attempt is not None and draft.attempt.status is AttemptStatus.RUNNING:
        draft.finish_attempt(status, reason)


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
