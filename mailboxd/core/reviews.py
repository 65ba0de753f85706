"""Review turns: who is asked, and what came of it. What the verdicts add up to is `core.gates`'.

A turn that brings no verdict is no verdict. One that failed is tried again after a pause; one whose answer cannot be
read is asked for once more and then counts as `blocked`: a reviewer that cannot say yes has not said yes.
"""

from __future__ import annotations

from collections.abc import Iterable

from mailboxd.core.decision_builder import Draft, late, say
from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.events import Kind
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import eligible, judges, own_work, review_round, shared_out
from mailboxd.core.model import Attempt, Task, backoff
from mailboxd.core.outcomes import Failed, Permanence, Reviewed, Succeeded, Unknown
from mailboxd.core.sanitize import blockquote
from mailboxd.core.session_keys import review_key
from mailboxd.core.task_view import Asked, Review, View
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Gate, Lost, Turn, Verdict, same_agent
from mailboxd.errors import Refused

_UNREADABLE_AT_MOST = 2


# ---------------------------------------------------------------- asking


def ask_reviewers(draft: Draft, gate: Gate) -> None:
    """Ask every reviewer who has not been asked; nobody reviews what he made (protocol section 5)."""
    task = draft.task
    reason = _nobody_to_ask(draft, gate)
    if reason:
        if task.reason != reason:
            draft.amend(reason, reason=reason)
        return
    asked = {asked.reviewer for asked in draft.view.asked_reviewers}
    given = {review.reviewer for review in draft.view.reviews}
    fresh = [reviewer for reviewer in eligible(draft.view) if reviewer not in asked | given]
    for reviewer in fresh:
        _ask(draft, gate, reviewer)
    if fresh and (authors := own_work(draft.view)):
        draft.amend(f"{gate}: {', '.join(authors)} does not review it, for the work is theirs")


def silent(view: View) -> tuple[str, ...]:
    """Reviewers that were asked at the present gate and have given no verdict."""
    given = {review.reviewer for review in view.reviews}
    return tuple(asked.reviewer for asked in view.asked_reviewers if asked.reviewer not in given)


def _nobody_to_ask(draft: Draft, gate: Gate) -> str:
    """Why the gate cannot be decided by the reviewers that are named; empty when it can."""
    named, policy, ctx = judges(draft.view), draft.task.policy, draft.ctx
    if not named:
        return f"{gate} is on, but no reviewer other than the executor is named"
    if not all(shared_out(policy, named, one) for one in (gate, Gate.QUALITY_GATE)):
        return (
            f"{gate}: only {named[0]} can review, and nobody reviews both the specification and the quality of the "
            "same work; name a second reviewer, or set gates.same_reviewer"
        )
    for name in eligible(draft.view):
        if not same_agent(name, ctx.agent) and (why := ctx.may_reach(name)) is not None:
            return f"{gate}: the reviewer {name} cannot be asked: {why}"
    return ""


def _ask(draft: Draft, gate: Gate, reviewer: str, not_before: str | None = None) -> None:
    draft.record(Kind.REVIEW_REQUESTED, gate=gate, round=review_round(draft.task), reviewer=reviewer)
    turn_id, about = draft.ctx.new_id("trn"), fence(draft.task, draft.attempt)
    key = _key(draft, gate, reviewer)
    draft.order(RunTurn(turn_id, Turn.REVIEW, reviewer, about, key, gate=gate, not_before=not_before))


def fence(task: Task, attempt: Attempt | None) -> str:
    """Names what is reviewed: the attempt, or where there is none the text of the spec. What names another is late."""
    return attempt.id if attempt else f"review-{review_round(task)}"


def _key(draft: Draft, gate: Gate, reviewer: str) -> str:
    return review_key(reviewer, draft.task.local_id, draft.ctx.agent, gate, review_round(draft.task))


def said_by(reviews: Iterable[Review]) -> str:
    """What reviewers said, as a text for whoever has to mend it, or check that it is mended."""
    lines = []
    for review in reviews:
        found = [f"- {finding.severity}: {finding.message}" for finding in review.findings]
        said = "\n".join(filter(None, [review.summary, *found]))
        lines.append(blockquote(f"The review of {review.reviewer} ({review.verdict})", said))
    return "\n".join(lines)


# ---------------------------------------------------------------- what came of it


def review_ended(draft: Draft, ended: TurnEnded) -> None:
    """Take what a reviewer's turn brought; what nobody waits for is recorded and changes nothing."""
    task, gate = draft.task, ended.gate
    about = fence(task, draft.attempt)
    asked = next((asked for asked in draft.view.asked_reviewers if asked.reviewer == ended.agent), None)
    spoken = any(review.reviewer == ended.agent for review in draft.view.reviews)
    wanted = gate is not None and task.phase.value == gate.value and ended.attempt_id == about
    if gate is None or not wanted or asked is None or spoken or ended.agent not in eligible(draft.view):
        late(draft, ended.agent, ended.attempt_id, say(ended.outcome))
        return
    match ended.outcome, ended.answer:
        case Succeeded(), Reviewed() as reviewed:
            reviewed_by(draft, gate, ended.agent, reviewed)
        case Succeeded(), _:
            _unreadable(draft, gate, asked)
        case Unknown(_, run_id, False), _:
            key = _key(draft, gate, ended.agent)
            draft.order(LookUp(draft.ctx.new_id("trn"), Turn.REVIEW, ended.agent, about, key, run_id, gate))
        case _:
            _failed(draft, gate, asked, ended)


def _unreadable(draft: Draft, gate: Gate, asked: Asked) -> None:
    _lost(draft, gate, asked.reviewer, Lost.UNREADABLE, "the review could not be read")
    if asked.unreadable + 1 < _UNREADABLE_AT_MOST:
        _ask(draft, gate, asked.reviewer)
    else:
        why = "no usable review: it could not be read, twice"
        reviewed_by(draft, gate, asked.reviewer, Reviewed(Verdict.BLOCKED, why))


def _failed(draft: Draft, gate: Gate, asked: Asked, ended: TurnEnded) -> None:
    """No verdict: after a pause it is tried again. What never reached its reviewer costs nothing but time."""
    failed, policy, ctx = ended.outcome, draft.task.policy, draft.ctx
    stalled = isinstance(failed, Failed) and not failed.started and failed.permanence is Permanence.TRANSIENT
    _lost(draft, gate, asked.reviewer, Lost.STALLED if stalled else Lost.FAILED, say(failed))
    if not stalled and asked.failures + 1 >= policy.max_attempts:
        return  # what follows from that is the gate's
    pause = backoff(policy, asked.failures + asked.stalls + 1, ctx.jitter, ctx.jitter_share)
    if isinstance(failed, Failed):
        pause = max(pause, failed.retry_after)
    _ask(draft, gate, asked.reviewer, plus(ctx.now, pause))


def _lost(draft: Draft, gate: Gate, reviewer: str, why: Lost, said: str) -> None:
    round_ = review_round(draft.task)
    draft.record(Kind.REVIEW_LOST, gate=gate, round=round_, reviewer=reviewer, why=why, said=said)


def reviewed_by(draft: Draft, gate: Gate, reviewer: str, review: Reviewed) -> None:
    """Record a verdict. Raises Refused for one of the executor, or of somebody who is not named as a reviewer."""
    if same_agent(reviewer, draft.task.executor):
        raise Refused("own-work", f"{reviewer} executed {draft.task.local_id} and may not review it")
    if reviewer not in eligible(draft.view):
        raise Refused("not-a-reviewer", f"{reviewer} is not a reviewer of {draft.task.local_id}")
    draft.record(
        Kind.REVIEW_APPENDED,
        review={
            "id": draft.ctx.new_id("rev"),
            "gate": gate,
            "round": review_round(draft.task),
            "attempt": draft.attempt.id if draft.attempt else None,
            "reviewer": reviewer,
            "verdict": review.verdict,
            "summary": review.summary,
            "findings": to_json(review.findings),
        },
    )
