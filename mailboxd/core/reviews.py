"""Review turns: ordering them and recording their verdicts. `core.lifecycle` has the conditions of the gates.

A failed turn is repeated after a pause. A reviewer whose answer is no clear verdict is told why and asked again
(`core.corrections`); if that brings none either, it counts as `blocked`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mailboxd.core import corrections
from mailboxd.core.decision_builder import DecisionBuilder, outcome_text, record_late_end
from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.events import Kind
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import (
    UNUSABLE,
    eligible_reviewers,
    excluded_reviewers,
    gate_on,
    independent_reviewers,
    review_round,
    reviewers_at_gate,
)
from mailboxd.core.model import Attempt, Finding, Task, backoff, changed
from mailboxd.core.outcomes import Failed, Permanence, Reviewed, Succeeded, Unclear, Unknown
from mailboxd.core.sanitize import blockquote, excerpt
from mailboxd.core.session_keys import review_key
from mailboxd.core.specs import reviewed_as
from mailboxd.core.task_view import AskedReviewer, Context, Review, TaskView
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Gate, ReviewLoss, Turn, Verdict, same_agent
from mailboxd.errors import Refused

_WANTED = "a verdict (`approved`, `changes_requested` or `blocked`) with its findings"


# Tracking


def ask_reviewers(builder: DecisionBuilder, gate: Gate) -> None:
    """Order a turn of every reviewer who was not asked yet; nobody reviews their own work (protocol section 5)."""
    task = builder.task
    reason = _nobody_to_ask(builder.view, builder.ctx, gate)
    if reason:
        if task.reason != reason:
            builder.amend(reason, reason=reason)
        return
    asked = {asked.reviewer for asked in builder.view.asked_reviewers}
    given = {review.reviewer for review in builder.view.reviews}
    fresh = [reviewer for reviewer in eligible_reviewers(builder.view) if reviewer not in asked | given]
    for reviewer in fresh:
        _ask(builder, gate, reviewer)
    if task.reason.startswith((f"{gate}: ", f"{gate} is on")):  # it stood still
        names = ", ".join(eligible_reviewers(builder.view))
        builder.amend(f"{gate}: {names} can be asked now", reason=f"reviewed by {names}")
    if fresh and (authors := excluded_reviewers(builder.view)):
        builder.amend(f"{gate}: {', '.join(authors)} does not review it, having done the work")


def silent(view: TaskView) -> tuple[str, ...]:
    """Reviewers who were asked at the present gate and have given no verdict."""
    given = {review.reviewer for review in view.reviews}
    return tuple(asked.reviewer for asked in view.asked_reviewers if asked.reviewer not in given)


def follow_configuration(builder: DecisionBuilder) -> bool:
    """A gate that its reviewers cannot decide follows the configuration, if that helps; returns whether it does."""
    view, configured, gate = builder.view, builder.ctx.configured, gate_on(builder.view.task)
    if gate is None or configured is None or not _nobody_to_ask(view, builder.ctx, gate):
        return False
    policy = reviewed_as(view.task.policy, configured)
    changed_view = changed(view, task=changed(view.task, policy=policy))
    if gate in policy.gates and _nobody_to_ask(changed_view, builder.ctx, gate):
        return False
    builder.amend(f"{gate}: reviewed as the configuration says now", policy=policy)
    return True


def ask_again(builder: DecisionBuilder, reviewers: tuple[str, ...] | None = None) -> bool:
    """Judge a gate that has asked nobody anew, by the operator's order; False for any other task.

    `reviewers` take the place of its own; where they are none, it passes. Raises Refused, which says why there is still
    nobody to ask, or that no gate waits for the reviewers that are named.
    """
    task, gate = builder.task, gate_on(builder.view.task)
    if gate is None or builder.view.asked_reviewers or builder.view.turns:
        if reviewers is not None:
            raise Refused("not-under-review", f"{task.local_id} waits for no reviewers, so that others cannot be named")
        return False
    if reviewers is None:
        follow_configuration(builder)
    else:
        _replaced(builder, gate, reviewers)
    if gate in builder.task.policy.gates and (why := _nobody_to_ask(builder.view, builder.ctx, gate)):
        hint = f"`mailboxd retry {task.local_id} --reviewers none` has it pass without a review; or name others there."
        if not {"gates", "reviewers"} & (builder.task.policy.named or frozenset()):
            hint += " `mailboxd doctor` names what lets a reviewer be asked; then it goes on by itself."
        raise Refused("no-reviewer", f"{task.local_id}: {why}", hint)
    if gate in builder.task.policy.gates:
        builder.amend("the operator has its reviewers asked")
    return True


def _replaced(builder: DecisionBuilder, gate: Gate, reviewers: tuple[str, ...]) -> None:
    """Name other reviewers of the task, or switch off the gate that it is at: the configuration keeps off both."""
    policy = builder.task.policy
    if reviewers:
        policy = replace(policy, reviewers=reviewers)
        note = f"{gate}: reviewed by {', '.join(reviewers)}, as {builder.actor} says"
    else:
        policy = replace(policy, gates=policy.gates - {gate})
        note = f"{gate}: {builder.actor} has it pass without a review"
    builder.amend(note, policy=replace(policy, named=(policy.named or frozenset()) | {"reviewers", "gates"}))


def _nobody_to_ask(view: TaskView, ctx: Context, gate: Gate) -> str:
    """Why the named reviewers cannot decide the gate; empty if they can."""
    named, policy = independent_reviewers(view), view.task.policy
    if not named:
        return f"{gate} is on, but no reviewer other than the executor is named"
    if not all(reviewers_at_gate(policy, named, one) for one in (gate, Gate.QUALITY_GATE)):
        return (
            f"{gate}: only {named[0]} can review, and nobody reviews both the specification and the quality of the "
            "same work; name a second reviewer, or set gates.same_reviewer"
        )
    given = {review.reviewer for review in view.reviews}
    for name in eligible_reviewers(view):
        if name not in given and not same_agent(name, ctx.agent) and (why := ctx.may_reach(name)) is not None:
            return f"{gate}: the reviewer {name} cannot be asked: {why}"
    return ""


def _ask(builder: DecisionBuilder, gate: Gate, reviewer: str) -> None:
    builder.record(Kind.REVIEW_REQUESTED, gate=gate, round=review_round(builder.task), reviewer=reviewer)
    builder.order(_turn(builder, gate, reviewer))


def _turn(builder: DecisionBuilder, gate: Gate, reviewer: str) -> RunTurn:
    turn_id, about = builder.ctx.new_id("trn"), fence(builder.task, builder.attempt)
    return RunTurn(turn_id, Turn.REVIEW, reviewer, about, _key(builder, gate, reviewer), gate=gate)


def fence(task: Task, attempt: Attempt | None) -> str:
    """The name of what is reviewed: the attempt, or else the version of the spec. Reports about another are late."""
    return attempt.id if attempt else f"review-{review_round(task)}"


def _key(builder: DecisionBuilder, gate: Gate, reviewer: str) -> str:
    return review_key(reviewer, builder.task.local_id, builder.ctx.agent, gate, review_round(builder.task))


def reviews_text(reviews: Iterable[Review]) -> str:
    """The reviews as text, for the agent that has to fix the findings or verify the fix."""
    lines = []
    for review in reviews:
        found = [f"- {finding.severity}{_place(finding)}: {finding.message}" for finding in review.findings]
        said = "\n".join(filter(None, [review.summary, *found]))
        lines.append(blockquote(f"The review of {review.reviewer} ({review.verdict})", said))
    return "\n".join(lines)


def _place(finding: Finding) -> str:
    """Where the finding is, in brackets, as far as the reviewer said it."""
    parts = place_of(finding.file, finding.line, finding.artifact_uri)
    return f" ({parts})" if parts else ""


def place_of(file: str | None, line: int | None, artifact_uri: str | None) -> str:
    """Where a finding is, as far as its reviewer said it."""
    return ", ".join(filter(None, [file, "" if line is None else f"line {line}", artifact_uri]))


def contradiction(verdict: Verdict, findings: Iterable[Finding]) -> str:
    """Why this verdict cannot be that of a review with these findings; empty if it can."""
    stopping = next((finding for finding in findings if finding.severity != "minor"), None)
    if verdict is not Verdict.APPROVED or stopping is None:
        return ""
    return f"the verdict is approved, but a finding is {stopping.severity}: {excerpt(stopping.message, 120)}"


# Verdicts that came with the result


def count_given(builder: DecisionBuilder) -> None:
    """Count the verdicts that the result was given at the peer that executed it, at the gate that the task is at.

    As if their reviewers had been asked here: only those count whom this gate would ask, each once, and never the
    peer's own. The others are asked as if nothing had come.
    """
    attempt = builder.view.attempt
    if attempt is None or not attempt.verdicts or (gate := gate_on(builder.view.task)) is None:
        return
    for one in attempt.verdicts:
        spoken = any(same_agent(review.reviewer, one.reviewer) for review in builder.view.reviews)
        asked = next((name for name in eligible_reviewers(builder.view) if same_agent(name, one.reviewer)), None)
        if one.gate is not gate or asked is None or spoken or same_agent(asked, one.given_at):
            continue
        if not contradiction(one.verdict, one.findings):
            reviewed_by(builder, gate, asked, Reviewed(one.verdict, one.summary, one.findings), given_at=one.given_at)


# Verdicts


def review_ended(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """Judge a review turn; one that is no longer wanted is only recorded."""
    task, gate = builder.task, ended.gate
    about = fence(task, builder.attempt)
    asked = next((asked for asked in builder.view.asked_reviewers if asked.reviewer == ended.agent), None)
    spoken = any(review.reviewer == ended.agent for review in builder.view.reviews)
    wanted = gate is not None and task.phase.value == gate.value and ended.attempt_id == about
    wanted = wanted and builder.is_ordered(ended.turn_id)
    if gate is None or not wanted or asked is None or spoken or ended.agent not in eligible_reviewers(builder.view):
        record_late_end(builder, ended.agent, ended.attempt_id, ended.outcome)
        return
    match ended.outcome, ended.answer:
        case Succeeded(), Reviewed() as reviewed:
            reviewed_by(builder, gate, ended.agent, reviewed)
        case Succeeded(), answer:
            _unclear(builder, gate, ended, corrections.unclear_as(ended, _WANTED, answer))
        case Unknown(_, run_id, False), _:
            key = _key(builder, gate, ended.agent)
            lookup = LookUp(builder.ctx.new_id("trn"), Turn.REVIEW, ended.agent, about, key, run_id, gate)
            builder.order(replace(lookup, correction=ended.correction, prompt=ended.prompt))
        case _:
            _failed(builder, gate, asked, ended)


def _unclear(builder: DecisionBuilder, gate: Gate, ended: TurnEnded, unclear: Unclear) -> None:
    if corrections.ask_again(builder, ended, unclear, _turn(builder, gate, ended.agent)):
        return
    _lost(builder, gate, ended.agent, ReviewLoss.UNREADABLE, "the review could not be read")
    why = "\n\n".join([f"{UNUSABLE}, after it was asked for {corrections.MOST} more times", *unclear.problems])
    reviewed_by(builder, gate, ended.agent, Reviewed(Verdict.BLOCKED, why))


def _failed(builder: DecisionBuilder, gate: Gate, asked: AskedReviewer, ended: TurnEnded) -> None:
    """Repeat a failed review after a pause; turns that never reached the reviewer do not count."""
    failed, policy, ctx = ended.outcome, builder.task.policy, builder.ctx
    stalled = isinstance(failed, Failed) and not failed.started and failed.permanence is Permanence.TRANSIENT
    _lost(builder, gate, asked.reviewer, ReviewLoss.STALLED if stalled else ReviewLoss.FAILED, outcome_text(failed))
    if not stalled and asked.failures + 1 >= policy.max_attempts:
        return  # the gate decides what follows
    pause = backoff(policy, asked.failures + asked.stalls + 1, ctx.jitter(), ctx.jitter_share)
    if isinstance(failed, Failed):
        pause = max(pause, failed.retry_after)
    builder.record(Kind.REVIEW_REQUESTED, gate=gate, round=review_round(builder.task), reviewer=asked.reviewer)
    turn = _turn(builder, gate, asked.reviewer)
    builder.order(replace(turn, not_before=plus(ctx.now, pause), correction=ended.correction))


def _lost(builder: DecisionBuilder, gate: Gate, reviewer: str, why: ReviewLoss, said: str) -> None:
    round_ = review_round(builder.task)
    builder.record(Kind.REVIEW_LOST, gate=gate, round=round_, reviewer=reviewer, why=why, said=said)


def reviewed_by(builder: DecisionBuilder, gate: Gate, reviewer: str, review: Reviewed, *, given_at: str = "") -> None:
    """Record a verdict, given here or at the gate of the peer `given_at`.

    Raises Refused for the executor, for agents that are not reviewers of the task, and for an approval that contradicts
    its findings.
    """
    if same_agent(reviewer, builder.task.executor):
        raise Refused("own-work", f"{reviewer} executed {builder.task.local_id} and may not review it")
    if reviewer not in eligible_reviewers(builder.view):
        raise Refused("not-a-reviewer", f"{reviewer} is not a reviewer of {builder.task.local_id}")
    if why := contradiction(review.verdict, review.findings):
        raise Refused("contradiction", why, "Give the verdict changes_requested, or approve without that finding.")
    builder.record(
        Kind.REVIEW_APPENDED,
        review={
            "id": builder.ctx.new_id("rev"),
            "gate": gate,
            "round": review_round(builder.task),
            "attempt": builder.attempt.id if builder.attempt else None,
            "reviewer": reviewer,
            "verdict": review.verdict,
            "summary": review.summary,
            "findings": to_json(review.findings),
            **({"given_at": given_at} if given_at else {}),
        },
    )
    given = Review(gate, reviewer, review.verdict, review.summary, review.findings, given_at)
    builder.see(reviews=(*builder.view.reviews, given))
