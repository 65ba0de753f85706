"""A weak spec, and who mends it: a drafting turn of the own agent, its sender, or a person (protocol section 4).

Nothing executes before its spec is complete, so a task with a weak one stays in spec_draft. Where the policy says
`draft`, the own agent is called once to fill it in; a call that failed is repeated after a pause, for a draft changes
nothing outside. What is still weak then is asked of the sender. When nobody is left to ask, the task waits, visibly,
for a person, who may write the spec at any time before the work begins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mailboxd.core import specs
from mailboxd.core import specs as weakness
from mailboxd.core.checks import refused
from mailboxd.core.decision_builder import Draft, late, say
from mailboxd.core.effects import LookUp, RunTurn, Send, StopTurns
from mailboxd.core.events import Kind
from mailboxd.core.fast_replace import changed
from mailboxd.core.inputs import Clarification, TurnEnded
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.model import Mending, Spec, Task, backoff
from mailboxd.core.outcomes import Drafted, Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.core.sanitize import first_line
from mailboxd.core.session_keys import draft_key
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Phase, Turn, Waiting, Weak
from mailboxd.errors import Refused

WRITABLE = frozenset({Phase.SPEC_DRAFT, Phase.SPEC_REVIEW, Phase.EXECUTION_READY})
"""The phases in which a person may write the spec: while no attempt is at work on it, or has come of it."""


def after(task: Task, trigger: Trigger) -> Mending:
    """The counters when the task leaves a phase of its spec: a completed spec is reviewed anew, one that was sent back
    is drafted anew."""
    mending = task.mending
    if trigger is Trigger.SPEC_COMPLETE:
        return changed(mending, waiting_for=Waiting.NOTHING, rounds=mending.rounds + 1)
    if task.phase in (Phase.SPEC_REVIEW, Phase.CANCELLED, Phase.FAILED):
        return changed(mending, waiting_for=Waiting.NOTHING, drafted=False, failures=0, stalls=0)
    return mending


def rest(draft: Draft) -> None:
    """Find somebody for a spec that is still weak, unless somebody is at it."""
    task = draft.task
    if task.mending.waiting_for is not Waiting.NOTHING:
        return
    if task.policy.weak is Weak.DRAFT and not task.mending.drafted and _can_be_drafted(task):
        _order_draft(draft)
    elif task.mending.questions < draft.ctx.limits.question_turns:
        _ask(draft, task.mending.questions + 1)
    elif task.reason != (reason := f"its spec is weak: {_problem(draft)}"):
        draft.amend(reason, reason=reason)


def _can_be_drafted(task: Task) -> bool:
    """Not where only its checks may not run: what may run is not an agent's to say."""
    return bool(task.findings or weakness.weaknesses(task.spec, task.policy.weak))


def _problem(draft: Draft) -> str:
    """What keeps the spec from being complete, in a sentence."""
    task = draft.task
    found = weakness.weaknesses(task.spec, task.policy.weak, refused(task, task.spec, draft.ctx))
    sent_back = f"the spec review asks for changes: {first_line(task.findings)}" if task.findings else ""
    return "; ".join(filter(None, [sent_back, weakness.say(found)]))


def _wait(draft: Draft, note: str, waiting_for: Waiting, *, reason: str = "", **counters: Any) -> None:
    mending = changed(draft.task.mending, waiting_for=waiting_for, **counters)
    draft.amend(note, mending=mending, **({"reason": reason} if reason else {}))


# ---------------------------------------------------------------- drafting


def _order_draft(draft: Draft, not_before: str | None = None) -> None:
    task, ctx = draft.task, draft.ctx
    drafts = task.mending.drafts + 1
    _wait(draft, "its spec is drafted", Waiting.TURN, reason=f"its spec is weak: {_problem(draft)}", drafts=drafts)
    key = _key(draft)
    draft.order(RunTurn(ctx.new_id("trn"), Turn.DRAFT, ctx.agent, fence(drafts), key, not_before=not_before))


def fence(drafts: int) -> str:
    """Names a drafting turn, where an attempt's id names others: what names an older one is late."""
    return f"draft-{drafts}"


def _key(draft: Draft) -> str:
    return draft_key(draft.ctx.agent, draft.task.local_id, draft.ctx.agent, draft.task.mending.rounds)


def draft_ended(draft: Draft, ended: TurnEnded) -> None:
    """Take what a drafting turn brought; one that nobody waits for is recorded and changes nothing."""
    mending = draft.task.mending
    awaited = draft.task.phase is Phase.SPEC_DRAFT and mending.waiting_for in (Waiting.TURN, Waiting.LOOKUP)
    lost = isinstance(ended.outcome, Unknown) and not ended.outcome.looked_up
    again = lost and mending.waiting_for is Waiting.LOOKUP
    if not awaited or again or ended.attempt_id != fence(mending.drafts):
        late(draft, ended.agent, ended.attempt_id, say(ended.outcome))
        return
    match ended.outcome, ended.answer:
        case Succeeded(text), answer:
            draft.artifact("other", text, f"a draft of the spec: {first_line(text)}", ended.agent)
            _wait(draft, "a draft of the spec", Waiting.NOTHING, drafted=True)
            if isinstance(answer, Drafted):
                mended = specs.drafted(draft.task.spec, answer.spec, bool(draft.task.findings))
                _take(draft, "the spec is drafted", mended)
        case Unknown(error, run_id, False), _:
            _wait(draft, f"outcome of the draft unknown: {error}", Waiting.LOOKUP)
            key, turn_id = _key(draft), draft.ctx.new_id("trn")
            draft.order(LookUp(turn_id, Turn.DRAFT, ended.agent, ended.attempt_id, key, run_id))
        case outcome, _:
            _draft_failed(draft, outcome)


def _draft_failed(draft: Draft, outcome: Outcome) -> None:
    """Again after a pause, `max_attempts` times; what never reached the agent costs nothing but time."""
    mending, policy, ctx = draft.task.mending, draft.task.policy, draft.ctx
    permanent = isinstance(outcome, Failed) and outcome.permanence is Permanence.PERMANENT
    stalled = isinstance(outcome, Failed) and not outcome.started and not permanent
    failures, stalls = mending.failures + (not stalled), mending.stalls + stalled
    note = f"the draft failed: {say(outcome)}"
    if permanent or failures >= policy.max_attempts:
        _wait(draft, note, Waiting.NOTHING, drafted=True, failures=failures)
        return
    _wait(draft, note, Waiting.NOTHING, failures=failures, stalls=stalls)
    pause = backoff(policy, failures + stalls, ctx.jitter, ctx.jitter_share)
    if isinstance(outcome, Failed):
        pause = max(pause, outcome.retry_after)
    _order_draft(draft, plus(ctx.now, pause))


def _take(draft: Draft, note: str, spec: Spec) -> None:
    """The spec as it was mended. Findings of a review are dealt with by whoever mended it."""
    spec, _ = specs.derive(spec, draft.task.policy.weak)
    draft.amend(note, spec=spec, planned_actions=spec.planned_actions, findings="")


# ---------------------------------------------------------------- asking


def ask_again(draft: Draft) -> None:
    """Put a question that is open to the sender's newer attempt: the one before is over, and heard it in vain."""
    if draft.task.mending.waiting_for is Waiting.ANSWER:
        _ask(draft, draft.task.mending.questions)


def _ask(draft: Draft, turns: int) -> None:
    """A question to whoever gave the work; for a child that is the operator, whose agent has planned it."""
    task = draft.task
    receiver = task.sender if task.parent is None else "operator"
    problem = _problem(draft)
    text = (
        f"The task {task.local_id} cannot start: {problem}.\n\nAnswer with the sections that are to be mended"
        " (`## Goal`, `## Expected Output`, `## Acceptance Criteria`, `## Checks` ...), or with the acceptance criteria"
        " as a plain list. REPLY_SKIP means: go on as it is."
    )
    if task.findings:
        text += f"\n\nThe review said:\n\n{task.findings}"
    draft.record(Kind.QUESTION_ASKED, to=receiver, text=text, turn=turns)
    reason = f"its spec is weak: {problem}; {receiver} was asked"
    _wait(draft, f"asks {receiver} about its spec", Waiting.ANSWER, reason=reason, questions=turns)
    draft.order(Send(draft.ctx.new_id("msg"), "question", receiver, text))


def clarified(draft: Draft, said: Clarification) -> None:
    """The sender has answered a question about the spec. REPLY_SKIP: no more will be said, so the rest is derived."""
    task = draft.task
    if task.mending.waiting_for is not Waiting.ANSWER:
        raise Refused("no-question", f"{task.local_id} has not asked anything")
    _wait(draft, "the question about the spec is answered", Waiting.NOTHING)
    if said.ends:
        draft.amend("no more will be said: what is missing is derived", policy=replace(task.policy, weak=Weak.DERIVE))
        _take(draft, "the spec as it is", task.spec)
    else:
        _take(draft, "the spec is mended by its sender", said.spec or specs.answered(task.spec, said.text))


# ---------------------------------------------------------------- writing


def written(draft: Draft, spec: Spec) -> None:
    """A person writes the spec. Raises Refused when the work has begun, or would begin with a weak one."""
    task = draft.task
    if task.phase not in WRITABLE:
        raise Refused(
            "spec-fixed",
            f"{task.local_id} is {task.phase}: its spec can no longer change",
            "Steer it, or cancel it and send it again.",
        )
    if spec == task.spec and not task.findings:
        return
    if task.phase is Phase.EXECUTION_READY:
        spec, _ = specs.derive(spec, task.policy.weak)
        found = weakness.weaknesses(spec, task.policy.weak, refused(task, spec, draft.ctx))
        if found:
            raise Refused("weak-spec", f"{task.local_id} is ready, and with this spec it is not: {weakness.say(found)}")
        draft.amend("the spec is written anew", spec=spec, planned_actions=spec.planned_actions)
        return
    back_to_draft(draft)
    if task.mending.waiting_for is Waiting.ANSWER:
        _wait(draft, "the question about the spec is answered by writing it", Waiting.NOTHING)
    _take(draft, "the spec is written anew", spec)


def back_to_draft(draft: Draft) -> None:
    """A spec that changes while it is reviewed is another one: its review begins anew."""
    if draft.task.phase is not Phase.SPEC_REVIEW:
        return
    if draft.view.turns:
        draft.order(StopTurns())
    mending = after(draft.task, Trigger.SPEC_REWRITTEN)
    draft.move(Trigger.SPEC_REWRITTEN, "the spec was written anew", mending=mending)
    draft.view = changed(draft.view, turns=0)
