"""Completing a weak spec: by a drafting turn of this agent, by its sender, or by the operator (protocol section 4).

A task with a weak spec stays in spec_draft. If the policy says `draft`, and for each child, which this agent planned,
this agent drafts it in one turn; a failed turn is repeated after a pause, because a draft has no side effects, and an
unclear draft is asked for again (`core.corrections`). What is still missing is asked of the sender, for a child of the
operator. After that the task waits for the operator, who may write the spec at any time before the first attempt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mailboxd.core import corrections, specs
from mailboxd.core.checks import refused
from mailboxd.core.decision_builder import DecisionBuilder, outcome_text, record_late_end
from mailboxd.core.effects import LookUp, RunTurn, Send, StopTurns
from mailboxd.core.events import Kind, Role
from mailboxd.core.inputs import Clarification, TurnEnded
from mailboxd.core.lifecycle import BEFORE_EXECUTION, Trigger, applies
from mailboxd.core.model import Spec, SpecDrafting, Task, backoff, changed
from mailboxd.core.outcomes import Correction, Drafted, Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.core.sanitize import first_line
from mailboxd.core.session_keys import draft_key
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import OPERATORS, Gate, Notice, Phase, Turn, Waiting, WeakSpec
from mailboxd.errors import Refused


def after(task: Task, trigger: Trigger) -> SpecDrafting:
    """The counters after this trigger: a complete spec gets a new review, one that was sent back a new draft."""
    mending = task.mending
    if trigger is Trigger.SPEC_COMPLETE:
        return changed(mending, waiting_for=Waiting.NOTHING, rounds=mending.rounds + 1)
    if task.phase in (Phase.SPEC_REVIEW, Phase.CANCELLED, Phase.FAILED):
        return changed(mending, waiting_for=Waiting.NOTHING, drafted=False, failures=0, stalls=0)
    return mending


def order_completion(builder: DecisionBuilder) -> None:
    """Order a draft of a weak spec or ask about it, unless that has been done."""
    task = builder.task
    if task.mending.waiting_for is not Waiting.NOTHING:
        return
    if _this_agent_knows(task) and not task.mending.drafted and _can_be_drafted(task):
        _order_draft(builder)
    elif task.mending.questions < builder.ctx.limits.questions:
        _ask(builder, task.mending.questions + 1)
    elif task.reason != (reason := f"its spec is weak: {_problem(builder)}"):
        builder.amend(reason, reason=reason)
        builder.notify(Notice.QUESTION)


def _this_agent_knows(task: Task) -> bool:
    """Whether this agent is asked first: the policy says so, or it planned the task."""
    return task.policy.weak is WeakSpec.DRAFT or task.parent is not None


def _can_be_drafted(task: Task) -> bool:
    """Not if the only problem is that checks may not run here: an agent cannot change that."""
    return bool(task.findings or specs.lint(task.spec, task.policy.weak))


def _problem(builder: DecisionBuilder) -> str:
    """Why the spec is not complete, in a sentence."""
    task = builder.task
    found = specs.lint(task.spec, task.policy.weak, refused(task, task.spec, builder.ctx))
    sent_back = f"the spec review asks for changes: {first_line(task.findings)}" if task.findings else ""
    return "; ".join(filter(None, [sent_back, specs.problems_text(found)]))


def _wait(builder: DecisionBuilder, note: str, waiting_for: Waiting, *, reason: str = "", **counters: Any) -> None:
    mending = replace(builder.task.mending, waiting_for=waiting_for, **counters)
    builder.amend(note, mending=mending, **({"reason": reason} if reason else {}))


# Drafting


def _order_draft(builder: DecisionBuilder, not_before: str | None = None, correction: Correction | None = None) -> None:
    drafts = builder.task.mending.drafts + 1
    _wait(builder, "its spec is drafted", Waiting.TURN, reason=f"its spec is weak: {_problem(builder)}", drafts=drafts)
    builder.order(replace(_turn(builder), not_before=not_before, correction=correction))


def _turn(builder: DecisionBuilder) -> RunTurn:
    """The drafting turn that is awaited."""
    turn_id, agent = builder.ctx.new_id("trn"), builder.ctx.agent
    return RunTurn(turn_id, Turn.DRAFT, agent, fence(builder.task.mending.drafts), _key(builder))


def fence(drafts: int) -> str:
    """The name of a drafting turn, in place of an attempt's id; anything about an older one is late."""
    return f"draft-{drafts}"


def _key(builder: DecisionBuilder) -> str:
    return draft_key(builder.ctx.agent, builder.task.local_id, builder.ctx.agent, builder.task.mending.rounds)


def draft_ended(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """Judge a drafting turn; one that is no longer wanted is only recorded."""
    mending = builder.task.mending
    awaited = builder.task.phase is Phase.SPEC_DRAFT and mending.waiting_for in (Waiting.TURN, Waiting.LOOKUP)
    lost = isinstance(ended.outcome, Unknown) and not ended.outcome.looked_up
    again = lost and mending.waiting_for is Waiting.LOOKUP
    awaited = awaited and builder.is_ordered(ended.turn_id)
    if not awaited or again or ended.attempt_id != fence(mending.drafts):
        record_late_end(builder, ended.agent, ended.attempt_id, ended.outcome)
        return
    match ended.outcome, ended.answer:
        case Succeeded(text), Drafted(draft):
            builder.artifact("other", text, f"a draft of the spec: {first_line(text)}", ended.agent)
            _wait(builder, "a draft of the spec", Waiting.NOTHING, drafted=True)
            spec = specs.drafted(builder.task.spec, draft, bool(builder.task.findings))
            _replace_spec(builder, "the spec is drafted", spec)
        case Succeeded(), answer:
            unclear = corrections.unclear_as(ended, "sections of the specification", answer)
            if corrections.ask_again(builder, ended, unclear, _turn(builder)):
                _wait(builder, "the draft was not taken: it is asked for again", Waiting.TURN)
            else:
                _wait(builder, "the draft could not be read, and is given up", Waiting.NOTHING, drafted=True)
        case Unknown(error, run_id, False), _:
            _wait(builder, f"outcome of the draft unknown: {error}", Waiting.LOOKUP)
            key, turn_id = _key(builder), builder.ctx.new_id("trn")
            lookup = LookUp(turn_id, Turn.DRAFT, ended.agent, ended.attempt_id, key, run_id)
            builder.order(replace(lookup, correction=ended.correction, prompt=ended.prompt))
        case outcome, _:
            _draft_failed(builder, outcome, ended.correction)


def _draft_failed(builder: DecisionBuilder, outcome: Outcome, correction: Correction | None) -> None:
    """Draft again after a pause, up to `max_attempts` times; turns that never reached the agent do not count."""
    mending, policy, ctx = builder.task.mending, builder.task.policy, builder.ctx
    permanent = isinstance(outcome, Failed) and outcome.permanence is Permanence.PERMANENT
    stalled = isinstance(outcome, Failed) and not outcome.started and not permanent
    failures, stalls = mending.failures + (not stalled), mending.stalls + stalled
    note = f"the draft failed: {outcome_text(outcome)}"
    if permanent or failures >= policy.max_attempts:
        _wait(builder, note, Waiting.NOTHING, drafted=True, failures=failures)
        return
    _wait(builder, note, Waiting.NOTHING, failures=failures, stalls=stalls)
    pause = backoff(policy, failures + stalls, ctx.jitter(), ctx.jitter_share)
    if isinstance(outcome, Failed):
        pause = max(pause, outcome.retry_after)
    _order_draft(builder, plus(ctx.now, pause), correction)


def _replace_spec(builder: DecisionBuilder, note: str, spec: Spec) -> None:
    """Replace the spec; that resolves the findings of its review."""
    spec, _ = specs.derive(spec, builder.task.policy.weak)
    builder.amend(note, spec=spec, planned_actions=spec.planned_actions, findings="")


# Tracking


def ask_again(builder: DecisionBuilder) -> None:
    """Send an open question again, to the sender's newer attempt: the earlier one has ended."""
    if builder.task.mending.waiting_for is Waiting.ANSWER:
        _ask(builder, builder.task.mending.questions)


def _ask(builder: DecisionBuilder, turns: int) -> None:
    """Ask the sender; for a child, which this agent planned and could not complete, the operator."""
    task = builder.task
    receiver = task.sender if task.parent is None else "operator"
    problem = _problem(builder)
    text = (
        f"The task {task.local_id} cannot start: {problem}.\n\nAnswer with the sections to correct"
        " (`## Goal`, `## Expected Output`, `## Acceptance Criteria`, `## Checks` ...), or with the acceptance criteria"
        " as a plain list. REPLY_SKIP means: continue with the spec as it is."
    )
    if task.findings:
        text += f"\n\nThe review said:\n\n{task.findings}"
    builder.record(Kind.QUESTION_ASKED, to=receiver, text=text, number=turns)
    reason = f"its spec is weak: {problem}; {receiver} was asked"
    _wait(builder, f"asks {receiver} about its spec", Waiting.ANSWER, reason=reason, questions=turns)
    builder.order(Send(builder.ctx.new_id("msg"), "question", receiver, text))
    if receiver in OPERATORS:
        builder.notify(Notice.QUESTION)


def clarified(builder: DecisionBuilder, said: Clarification) -> None:
    """Take an answer about the spec. After REPLY_SKIP the rest is derived. Raises Refused."""
    task = builder.task
    if task.mending.waiting_for is not Waiting.ANSWER:
        raise Refused("no-question", f"{task.local_id} has no open question")
    _wait(builder, "the question about the spec is answered", Waiting.NOTHING)
    if said.ends:
        builder.amend(
            "the sender adds nothing: what is missing is derived", policy=replace(task.policy, weak=WeakSpec.DERIVE)
        )
        _replace_spec(builder, "the spec as it is", task.spec)
    else:
        _replace_spec(builder, "the sender completed the spec", said.spec or specs.answered(task.spec, said.text))


# Writing


def written(builder: DecisionBuilder, spec: Spec, by: str) -> None:
    """`by` writes the spec. Raises Refused once work has started, or if a ready task would get a weak one."""
    task = builder.task
    if task.phase not in BEFORE_EXECUTION:
        raise Refused(
            "spec-fixed",
            f"{task.local_id} has started: its spec can no longer change",
            "Steer it, or cancel it and send it again.",
        )
    if spec == task.spec and not task.findings:
        return
    if task.phase is Phase.EXECUTION_READY:
        spec, _ = specs.derive(spec, task.policy.weak)
        found = specs.lint(spec, task.policy.weak, refused(task, spec, builder.ctx))
        if found:
            raise Refused(
                "weak-spec", f"{task.local_id} is ready, and with this spec it is not: {specs.problems_text(found)}"
            )
        changes = {"spec": spec, "planned_actions": spec.planned_actions}
        is_reviewed = Gate.SPEC_REVIEW in task.policy.gates and not task.attempt
        if is_reviewed and builder.role is not Role.OPERATOR and by not in OPERATORS:  # a person's word needs no review
            builder.move(Trigger.RENEWED, f"{by} rewrote the spec, which is reviewed anew", **changes)
        else:
            builder.amend(f"{by} rewrote the spec", **changes)
        return
    back_to_draft(builder)
    if task.mending.waiting_for is Waiting.ANSWER:
        _wait(builder, "the question about the spec is answered by writing it", Waiting.NOTHING)
    _replace_spec(builder, f"{by} rewrote the spec", spec)


def back_to_draft(builder: DecisionBuilder) -> None:
    """Restart the review of a spec that changes during it."""
    if not applies(builder.task, Trigger.SPEC_REWRITTEN):
        return
    if builder.view.turns:
        builder.order(StopTurns())
    mending = after(builder.task, Trigger.SPEC_REWRITTEN)
    builder.move(Trigger.SPEC_REWRITTEN, "the spec was rewritten", mending=mending)
    builder.see(turns=frozenset())
