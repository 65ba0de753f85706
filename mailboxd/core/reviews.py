"""Review turns: verdicts are recorded here; what they add up to is a row of `lifecycle.SETTLED`."""

from __future__ import annotations

from mailboxd.core.draft import Draft
from mailboxd.core.events import Kind
from mailboxd.core.inputs import Reviewed, Succeeded, TurnEnded
from mailboxd.core.late import late, say
from mailboxd.core.lifecycle import review_round
from mailboxd.core.settle import ask_reviewer, may_ask_again
from mailboxd.core.terms import Gate, Verdict, same_agent
from mailboxd.core.wire import to_json
from mailboxd.errors import Refused


def review_ended(draft: Draft, ended: TurnEnded) -> None:
    task, gate = draft.task, ended.gate
    attempt_id = draft.attempt.id if draft.attempt else ""
    asked = any(reviewer == ended.agent for reviewer, _ in draft.view.asked_reviewers)
    spoken = any(review.reviewer == ended.agent for review in draft.view.reviews)
    wanted = gate is not None and task.phase.value == gate.value and ended.attempt_id == attempt_id
    if gate is None or not wanted or not asked or spoken or same_agent(ended.agent, task.executor):
        late(draft, ended.agent, ended.attempt_id, say(ended.outcome))
        return
    reviewed = ended.answer if isinstance(ended.outcome, Succeeded) else None
    if isinstance(reviewed, Reviewed):
        reviewed_by(draft, gate, ended.agent, reviewed)
    elif may_ask_again(draft.view, ended.agent):
        ask_reviewer(draft, gate, ended.agent)
    else:
        why = say(ended.outcome) if reviewed is None else "the review could not be read"
        reviewed_by(draft, gate, ended.agent, Reviewed(Verdict.BLOCKED, f"no usable review: {why}"))


def reviewed_by(draft: Draft, gate: Gate, reviewer: str, review: Reviewed) -> None:
    if same_agent(reviewer, draft.task.executor):
        raise Refused("own-work", f"{reviewer} executed {draft.task.local_id} and may not review it")
    if reviewer not in draft.task.policy.reviewers:
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
