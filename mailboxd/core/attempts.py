"""Attempts: how one starts, what a turn of it brought, what a peer reported, and what a failure leads to.

`Task.attempt` is a fence: whatever names an older attempt is recorded and changes nothing. `Task.failures` is a
budget: rework after a review starts an attempt and is not a failure, and neither is a turn that provably never
reached its agent.
"""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core import planning
from mailboxd.core.draft import Draft
from mailboxd.core.effects import LookUp, RunTurn, Send
from mailboxd.core.events import Kind
from mailboxd.core.failure import failed_attempt, outcome_unknown, pause
from mailboxd.core.inputs import (
    Aborted,
    Acknowledged,
    Answer,
    Failed,
    Failure,
    Permanence,
    Planned,
    Progress,
    Question,
    Results,
    Reviewed,
    Succeeded,
    TurnEnded,
    Unknown,
    Unreadable,
)
from mailboxd.core.late import late, say
from mailboxd.core.lifecycle import Trigger, join_is_met
from mailboxd.core.reviews import review_ended
from mailboxd.core.session import next_session_key
from mailboxd.core.settle import (
    synthesise,
)
from mailboxd.core.terms import AttemptStatus, Mode, Phase, Turn, Waiting
from mailboxd.core.text import first_line
from mailboxd.core.times import plus
from mailboxd.core.types import Attempt, Plan
from mailboxd.errors import PlanError, Refused

SKIP = "REPLY_SKIP"
"""The body that ends a conversation (protocol section 2)."""


def start(draft: Draft) -> None:
    """Begin the next attempt: a turn, or, when children do the work, waiting for them."""
    view, task, ctx = draft.view, draft.task, draft.ctx
    if task.phase is not Phase.EXECUTION_READY or view.unmet or view.parent_phase not in (None, Phase.EXECUTING):
        raise Refused("not-ready", f"{task.local_id} is not ready to start")
    ordinal = task.attempt + 1
    coordinates = view.children.total > 0
    attempt = Attempt(
        id=ctx.new_id("att"),
        task=task.id,
        ordinal=ordinal,
        executor=task.executor,
        runtime=task.runtime,
        status=AttemptStatus.RUNNING,
        waiting_for=Waiting.CHILDREN if coordinates else Waiting.TURN,
        session_key=next_session_key(view.attempt, task.executor, task.local_id, ctx.agent, ordinal),
        reply_token=ctx.new_token(),
        started_at=ctx.now,
    )
    draft.start_attempt(attempt)
    draft.move(
        Trigger.ATTEMPT_STARTED,
        f"attempt {ordinal} by {task.executor}" if not coordinates else f"attempt {ordinal}: waiting for the children",
        attempt=ordinal,
        not_before=None,
        draft_result="",
        error="",
        dispatched_at=task.dispatched_at or ctx.now,
    )
    if coordinates and join_is_met(draft.view):
        synthesise(draft)
    elif not coordinates:
        _order_turn(draft)


def _order_turn(draft: Draft, note: str = "") -> None:
    task, attempt, ctx = draft.task, draft.live, draft.ctx
    turn = Turn.WORK if attempt.executor == ctx.agent else Turn.DISPATCH
    message_id = ctx.new_id("msg") if turn is Turn.DISPATCH else ""
    draft.order(
        RunTurn(
            ctx.new_id("trn"), turn, task.executor, attempt.id, attempt.session_key, message_id=message_id, note=note
        )
    )


# ---------------------------------------------------------------- a turn of ours ended


def turn_ended(draft: Draft, ended: TurnEnded) -> None:
    """Judge what a turn brought; anything that is not of the live attempt is recorded and changes nothing."""
    if ended.turn is Turn.REVIEW:
        review_ended(draft, ended)
        return
    attempt = draft.attempt
    if attempt is None or attempt.id != ended.attempt_id or attempt.status is not AttemptStatus.RUNNING:
        late(draft, ended.agent, ended.attempt_id, say(ended.outcome))
        return
    if not _awaits(attempt, ended):
        late(draft, ended.agent, ended.attempt_id, say(ended.outcome))
        return
    match ended.outcome:
        case Succeeded() as ok:
            draft.checkpoint(
                f"the {ended.turn} turn ended",
                run_id=ok.run_id,
                session_ref=ok.session_ref,
                usage=attempt.usage.plus(ok.usage),
            )
            answered(draft, ended.answer or Unreadable("no answer", ok.text), ended.turn, ended.agent)
        case Failed() as failed:
            _turn_failed(draft, failed)
        case Aborted(error):
            failed_attempt(draft, error, status=AttemptStatus.ABORTED)
        case Unknown() as unknown:
            _turn_unknown(draft, ended, unknown)


def _awaits(attempt: Attempt, ended: TurnEnded) -> bool:
    """Whether the attempt still depends on a turn's end.

    A peer that has acknowledged by message has the work, however the call that took it there ended: a failure or an
    unknown outcome of that call must not give the work out twice. What the call brought itself counts all the same.
    """
    if attempt.waiting_for is Waiting.REPLY:
        return isinstance(ended.outcome, Succeeded) and not isinstance(ended.answer, Acknowledged)
    return attempt.waiting_for in (Waiting.TURN, Waiting.LOOKUP)


def _turn_failed(draft: Draft, failed: Failed) -> None:
    attempt = draft.live
    permanent = failed.permanence is Permanence.PERMANENT
    if failed.started or permanent:
        draft.checkpoint("the turn failed", run_id=failed.run_id, usage=attempt.usage.plus(failed.usage))
        failed_attempt(draft, failed.error, permanent=permanent, retry_after=failed.retry_after)
        return
    stalls = draft.task.stalls + 1
    wait = max(pause(draft, stalls), failed.retry_after)
    draft.finish_attempt(AttemptStatus.ABORTED, failed.error)
    draft.move(
        Trigger.ATTEMPT_FAILED,
        f"never reached {attempt.executor}: {first_line(failed.error)}",
        stalls=stalls,
        not_before=plus(draft.ctx.now, wait),
        error=failed.error,
    )


def _turn_unknown(draft: Draft, ended: TurnEnded, unknown: Unknown) -> None:
    attempt = draft.live
    if not unknown.looked_up:
        run_id = unknown.run_id or attempt.run_id
        draft.checkpoint(f"outcome unknown: {unknown.error}", waiting_for=Waiting.LOOKUP, run_id=run_id)
        turn_id = draft.ctx.new_id("trn")
        draft.order(LookUp(turn_id, ended.turn, ended.agent, attempt.id, attempt.session_key, run_id))
        return
    outcome_unknown(draft, unknown.error)


def answered(draft: Draft, answer: Answer | Progress, turn: Turn, agent: str) -> None:
    """What an executor said, in a turn or by message, about the live attempt."""
    match answer:
        case Results():
            _results(draft, answer, turn, agent)
        case Failure(error, partial):
            if partial:
                draft.artifact("other", partial, f"partial results: {first_line(partial)}", agent)
            failed_attempt(draft, error)
        case Planned(plan):
            _planned(draft, plan, turn)
        case Acknowledged() if turn is Turn.DISPATCH:
            _acknowledged(draft, agent)
        case Acknowledged():
            failed_attempt(draft, f"{agent} acknowledged a {turn} turn instead of doing it")
        case Progress(note):
            draft.checkpoint(note)
            if draft.task.due is not None:
                draft.amend(due=plus(draft.ctx.now, draft.task.policy.reply_within))
        case Question(text):
            _question(draft, text)
        case Reviewed():
            failed_attempt(draft, f"{agent} answered a {turn} turn with a review")
        case Unreadable(problem, text):
            draft.artifact("other", text, "an answer that could not be read", agent)
            failed_attempt(draft, f"the answer could not be read: {problem}")


def _acknowledged(draft: Draft, agent: str) -> None:
    """The peer has the work: a lease begins. Not when it has already sent a plan or a question: the mail came late."""
    if draft.live.waiting_for in (Waiting.CHILDREN, Waiting.ANSWER):
        draft.checkpoint(f"{agent} has taken the work: its mail was faster than its acknowledgement", acknowledged=True)
        return
    draft.checkpoint(f"{agent} has taken the work and will reply", acknowledged=True)
    _await_reply(draft)


def _results(draft: Draft, results: Results, turn: Turn, agent: str) -> None:
    task = draft.task
    if turn is Turn.WORK and task.mode is Mode.COORDINATING and draft.view.children.total:
        draft.checkpoint("the plan stands in task.md: waiting for the children", waiting_for=Waiting.CHILDREN)
        draft.amend("said beside the plan", notes="\n\n".join(filter(None, [task.notes, results.text])))
        return
    text = task.draft_result or results.text
    summary = first_line(text)
    draft.artifact("primary_output", text, summary, agent)
    draft.finish_attempt(AttemptStatus.SUCCEEDED)
    draft.move(
        Trigger.ATTEMPT_SUCCEEDED,
        f"attempt {task.attempt} succeeded",
        result=text,
        result_summary=summary,
        answer=results.answer,
        planned_actions="\n".join(filter(None, [task.spec.planned_actions, results.planned_actions])),
        failures=0,
        stalls=0,
        error="",
        findings="",
    )


def _planned(draft: Draft, plan: Plan, turn: Turn) -> None:
    """Children that stand already are not planned again: an agent may write task.md and answer with the same plan."""
    known = draft.family.existing.nodes
    fresh = tuple(child for child in plan.children if child.key not in known)
    try:
        if turn is Turn.SYNTHESIS or fresh or not known:
            planning.adopt(draft, plan if turn is Turn.SYNTHESIS else replace(plan, children=fresh), draft.family)
    except PlanError as error:
        failed_attempt(draft, f"the plan cannot be carried out: {error}", permanent=True)
        return
    draft.checkpoint("a plan: waiting for the children", waiting_for=Waiting.CHILDREN)


def _question(draft: Draft, text: str) -> None:
    attempt, task = draft.live, draft.task
    turns = attempt.question_turns + 1
    if turns > draft.ctx.limits.question_turns:
        failed_attempt(draft, f"more than {draft.ctx.limits.question_turns} questions were asked")
        return
    receiver = task.sender if task.parent is None else "operator"
    draft.record(Kind.QUESTION_ASKED, to=receiver, text=text, turn=turns)
    draft.checkpoint("a question is open", waiting_for=Waiting.ANSWER, question_turns=turns)
    draft.amend(f"waits for an answer of {receiver}", reason=f"asked {receiver}: {first_line(text)}")
    draft.order(Send(draft.ctx.new_id("msg"), "question", receiver, text))


def _await_reply(draft: Draft) -> None:
    """The peer's daemon has the work: it may be silent for as long as the policy says."""
    draft.checkpoint("waiting for its reply", waiting_for=Waiting.REPLY)
    draft.amend(due=plus(draft.ctx.now, draft.task.policy.reply_within))


def clarified(draft: Draft, text: str, ends: bool) -> None:
    """The question is answered (or will not be): the same attempt goes on, in the same session."""
    attempt = draft.attempt
    if attempt is None or attempt.status is not AttemptStatus.RUNNING or attempt.waiting_for is not Waiting.ANSWER:
        raise Refused("no-question", f"{draft.task.local_id} has not asked anything")
    draft.checkpoint("the question is answered" if not ends else "no answer will come", waiting_for=Waiting.TURN)
    draft.amend("goes on after the question", reason="the question is answered")
    if attempt.acknowledged:
        draft.order(Send(draft.ctx.new_id("msg"), "answer", attempt.executor, SKIP if ends else text))
        _await_reply(draft)
        return
    note = "There will be no answer to your question. Go on with what you have." if ends else text
    _order_turn(draft, note)
