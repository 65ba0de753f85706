"""Attempts: how one starts, and what the end of its turn or the message of a peer leads to.

`Task.attempt` is a fence: reports about older attempts are recorded and have no other effect. `Task.failures` is
limited by `max_attempts`: rework is not a failure, and neither is a turn that provably never reached its agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mailboxd.core import approval_requests, corrections, plans, reviews, spec_drafting
from mailboxd.core.approvals import merged
from mailboxd.core.conversation import (
    STEERED,
    answer_ended,
    asked,
    await_reply,
    heard,
    order_turn,
    renew_lease,
    steer_again,
)
from mailboxd.core.decision_builder import DecisionBuilder, outcome_text, record_late, record_late_end, sha256_of
from mailboxd.core.effects import LookUp, RunTurn, Send
from mailboxd.core.events import Kind
from mailboxd.core.failure import failed_attempt, outcome_unknown, pause, worker
from mailboxd.core.fixpoint import announce_end, cancel_at_peer, synthesise
from mailboxd.core.inputs import (
    Imported,
    ImportedDispatched,
    ImportedDone,
    ImportedFailed,
    Progress,
    Reply,
    TurnEnded,
    WorkForgotten,
)
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import Trigger, awaits_late_answer, join_is_met, may_start
from mailboxd.core.model import NO_USAGE, Attempt, GivenVerdict, Plan, Task
from mailboxd.core.outcomes import (
    Aborted,
    Acknowledged,
    Answer,
    Drafted,
    Failed,
    Failure,
    Outage,
    Permanence,
    Planned,
    Question,
    Results,
    Reviewed,
    Silence,
    Succeeded,
    Unclear,
    Unknown,
)
from mailboxd.core.reviews import review_ended
from mailboxd.core.sanitize import blockquote, first_line
from mailboxd.core.session_keys import next_session_key
from mailboxd.core.summary import summary_line
from mailboxd.core.task_view import Context
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import (
    POOL,
    AttemptStatus,
    ExecutorKind,
    Mode,
    Phase,
    Runtime,
    Turn,
    Waiting,
    may_answer,
    same_agent,
)
from mailboxd.errors import PlanError, Refused

MOST_WHY = 300
"""The longest text, in characters, that a peer may give for its waiting."""
CUT = "[mailboxd] cut: the text ends here. The rest did not arrive: a limit of the model, or of OpenClaw."
"""Appended to a result that is known to be cut."""


def start(builder: DecisionBuilder) -> None:
    """Start the next attempt: a turn, or waiting for the children. Raises Refused."""
    view, task, ctx = builder.view, builder.task, builder.ctx
    if not may_start(view):
        raise Refused("not-ready", f"{task.local_id} is not ready to start")
    coordinates = view.children.total > 0 or view.children_due
    ordinal = begin(builder, Waiting.CHILDREN if coordinates else Waiting.TURN)
    builder.move(
        Trigger.ATTEMPT_STARTED,
        f"attempt {ordinal} by {task.executor}" if not coordinates else f"attempt {ordinal}: waiting for the children",
        attempt=ordinal,
        not_before=None,
        draft_result="",
        error="",
        dispatched_at=task.dispatched_at or ctx.now,
    )
    if coordinates and join_is_met(builder.view):
        synthesise(builder)
    elif not coordinates:
        order_turn(builder)


def begin(builder: DecisionBuilder, waiting_for: Waiting) -> int:
    """Record the next attempt as running; returns its ordinal."""
    view, task, ctx = builder.view, builder.task, builder.ctx
    ordinal, harness = task.attempt + 1, worker(task, ctx.agent)
    if view.attempt is not None and not same_agent(view.attempt.executor, task.executor):
        cancel_at_peer(builder, f"{task.executor} takes over")
    attempt = Attempt(
        id=ctx.new_id("att"),
        task=task.id,
        ordinal=ordinal,
        executor=task.executor,
        runtime=Runtime.ACP if harness else Runtime.OPENCLAW,
        worker_ref=harness,
        executor_kind=_kind(ctx, harness),
        status=AttemptStatus.RUNNING,
        waiting_for=waiting_for,
        session_key=next_session_key(view.attempt, task.executor, task.local_id, ctx.agent, ordinal),
        reply_token=ctx.new_token(),
        started_at=ctx.now,
        model=task.stronger.model or ("" if harness else task.policy.model),
        escalated=task.stronger.why,
    )
    builder.record(Kind.ATTEMPT_STARTED, attempt=to_json(attempt))
    builder.see(attempt=attempt)
    return ordinal


def _kind(ctx: Context, harness: str) -> ExecutorKind:
    if not harness:
        return ExecutorKind.BUILDER
    return ExecutorKind.RESEARCH if ctx.only_reads(harness) else ExecutorKind.EXTERNAL_CODER


# The end of a turn


def turn_ended(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """Judge a turn; one that does not belong to the live attempt is only recorded."""
    if ended.turn is Turn.REVIEW:
        review_ended(builder, ended)
        return
    if ended.turn is Turn.ANSWER:
        answer_ended(builder, ended)
        return
    if ended.turn is Turn.DRAFT:
        spec_drafting.draft_ended(builder, ended)
        return
    attempt = builder.attempt
    if attempt is not None and attempt.id == ended.attempt_id:
        for made in ended.made:
            builder.artifact(made.kind, made.body, made.summary, ended.agent)
    if attempt is not None and attempt.id == ended.attempt_id and isinstance(ended.outcome, Succeeded):
        attempt = _close_by_late_answer(builder, ended.answer, ended.agent, Waiting.TURN) or attempt
    if attempt is None or attempt.id != ended.attempt_id or attempt.status is not AttemptStatus.RUNNING:
        record_late_end(builder, ended.agent, ended.attempt_id, ended.outcome)
        if isinstance(ended.answer, Acknowledged):
            _taken_too_late(builder, ended)
        return
    if not builder.is_ordered(ended.turn_id) or not _awaits(attempt, ended):
        record_late_end(builder, ended.agent, ended.attempt_id, ended.outcome)
        return
    if ended.heard:
        heard(builder, ended.heard)
        attempt = builder.live
    match ended.outcome:
        case Succeeded() as ok:
            builder.checkpoint(
                "its text was cut" if ok.truncated else "",
                run_id=ok.run_id,
                session_ref=ok.session_ref,
                usage=attempt.usage.plus(ok.usage),
            )
            answer = ended.answer or Unclear(("there is no answer",), ok.text)
            if ok.truncated and isinstance(answer, Results):
                answer = replace(answer, text=f"{answer.text}\n\n{CUT}")
            answered(builder, answer, ended.turn, ended.agent, ended)
        case Failed() as failed:
            _turn_failed(builder, failed)
        case Aborted(error):
            failed_attempt(builder, error, status=AttemptStatus.ABORTED)
        case Unknown() as unknown:
            _turn_unknown(builder, ended, unknown)
    if ended.correction is not None and not isinstance(ended.answer, Unclear):
        corrections.pass_on(builder, ended.correction)


def _taken_too_late(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """A peer has taken work that was cancelled before it could be told."""
    attempt = builder.attempt
    if attempt is not None and attempt.id == ended.attempt_id and attempt.status is AttemptStatus.ABORTED:
        reason = f"it was cancelled before {ended.agent} took it"
        builder.order(Send(builder.ctx.new_id("msg"), "cancel", ended.agent, reason, attempt.ordinal))


def _awaits(attempt: Attempt, ended: TurnEnded) -> bool:
    """Whether the end of this turn matters to the attempt.

    A peer that acknowledged by message has the work, even if the delivering call failed or its outcome is unknown: that
    must not dispatch the work twice. An answer of the call itself counts, if it is a clear one.
    """
    if attempt.waiting_for is Waiting.REPLY:
        return isinstance(ended.outcome, Succeeded) and not isinstance(ended.answer, Acknowledged | Unclear)
    return attempt.waiting_for in (Waiting.TURN, Waiting.LOOKUP)


def _turn_failed(builder: DecisionBuilder, failed: Failed) -> None:
    attempt = builder.live
    permanent = failed.permanence is Permanence.PERMANENT
    if failed.started or permanent:
        builder.checkpoint(
            "",
            run_id=failed.run_id or attempt.run_id,
            session_ref=failed.session_ref or attempt.session_ref,
            usage=attempt.usage.plus(failed.usage),
        )
        failed_attempt(builder, failed.error, permanent=permanent, retry_after=failed.retry_after)
        return
    # The breaker keeps a locked-out agent from getting turns: a growing pause would only delay its return.
    stalls = builder.task.stalls + (failed.outage is not Outage.LOCKED_OUT)
    wait = max(pause(builder, max(stalls, 1)), failed.retry_after)
    builder.finish_attempt(AttemptStatus.ABORTED, failed.error)
    builder.move(
        Trigger.ATTEMPT_FAILED,
        f"never reached {attempt.executor}: {first_line(failed.error)}",
        stalls=stalls,
        not_before=plus(builder.ctx.now, wait),
        error=failed.error,
    )


def _turn_unknown(builder: DecisionBuilder, ended: TurnEnded, unknown: Unknown) -> None:
    attempt = builder.live
    if not unknown.looked_up:
        heard, run_id = attempt.run_id, unknown.run_id
        note = f"outcome unknown: {unknown.error}"
        builder.checkpoint(note, waiting_for=Waiting.LOOKUP, run_id=run_id or heard)
        turn_id = builder.ctx.new_id("trn")
        lookup = LookUp(turn_id, ended.turn, ended.agent, attempt.id, attempt.session_key, run_id, heard=heard)
        builder.order(replace(lookup, harness=attempt.worker_ref, correction=ended.correction, prompt=ended.prompt))
        return
    outcome_unknown(builder, unknown.error, harmless=unknown.harmless)


def answered(
    builder: DecisionBuilder, answer: Answer | Progress, turn: Turn, agent: str, ended: TurnEnded | None = None
) -> None:
    """Take the executor's answer about the live attempt, from the turn that `ended` or by message."""
    match answer:
        case Results():
            _results(builder, answer, turn, agent, ended)
        case Failure(error, partial, permanent):
            if partial:
                builder.artifact("other", partial, f"partial results: {summary_line(partial)}", agent)
            failed_attempt(builder, error, permanent=permanent)
        case Planned(plan):
            _planned(builder, plan, turn, ended)
        case Acknowledged() if turn is Turn.DISPATCH:
            _acknowledged(builder, agent)
        case Progress(note, waits_for):
            builder.checkpoint(note)
            if waits_for is not None:
                why = first_line(note, MOST_WHY)
                builder.record(Kind.PEER_WAITS, agent=agent, attempt=builder.live.id, waits_for=waits_for, why=why)
            if builder.live.waiting_for is Waiting.REPLY:
                renew_lease(builder)
        case Question(text):
            asked(builder, text)
        case Unclear(_, text, is_claim) if is_claim and turn is Turn.WORK and _has_plan(builder):
            _results(builder, Results(text), turn, agent, ended)  # what it says beside the plan in its task.md
        case Unclear(is_silence=True):
            _silent(builder, answer, turn, agent, ended)
        case Unclear(problems):
            _not_taken(builder, ended, answer, f"the answer could not be read: {_text(problems)}")
        case Acknowledged() | Reviewed() | Drafted() | Silence():
            why = f"{agent} answered a {turn} turn with {corrections.in_words(answer)} instead of doing it"
            _not_taken(builder, ended, Unclear((why,), _said(ended)), why)


def _text(problems: Sequence[str]) -> str:
    return "\n\n".join(problems)


def _said(ended: TurnEnded | None) -> str:
    return ended.outcome.text if ended is not None and isinstance(ended.outcome, Succeeded) else ""


def _has_plan(builder: DecisionBuilder) -> bool:
    """Whether the agent has planned the task in its task.md."""
    return builder.task.mode is Mode.COORDINATING and builder.view.children.total > 0


def _not_taken(builder: DecisionBuilder, ended: TurnEnded | None, unclear: Unclear, error: str) -> None:
    """Ask the agent of the turn that `ended` for another answer.

    After the last time, and if there is no turn because the answer came by message, the attempt has failed.
    """
    if ended is not None:
        attempt, ctx = builder.live, builder.ctx
        turn = RunTurn(ctx.new_id("trn"), ended.turn, ended.agent, attempt.id, attempt.session_key)
        note = blockquote(STEERED, attempt.steered) if attempt.steered else ""
        turn = replace(turn, note=note, model=attempt.model, harness=attempt.worker_ref)
        if corrections.ask_again(builder, ended, unclear, turn):
            builder.checkpoint("asked again: the answer was not taken", waiting_for=Waiting.TURN, steered="")
            return
    failed_attempt(builder, error)


def _acknowledged(builder: DecisionBuilder, agent: str) -> None:
    """The peer has the work: start its lease, unless its plan or question arrived before this acknowledgement."""
    if builder.live.waiting_for in (Waiting.CHILDREN, Waiting.ANSWER):
        builder.checkpoint(
            f"{agent} has accepted the work; its message overtook the acknowledgement", acknowledged=True
        )
        return
    if builder.live.steered:
        builder.order(Send(builder.ctx.new_id("msg"), "steer", agent, builder.live.steered, builder.live.ordinal))
    builder.checkpoint(f"{agent} has taken the work and will reply", acknowledged=True, steered="")
    await_reply(builder)


def _results(
    builder: DecisionBuilder, results: Results, turn: Turn, agent: str, ended: TurnEnded | None = None
) -> None:
    task = builder.task
    if turn is Turn.WORK and _has_plan(builder):
        builder.checkpoint("the plan is in task.md: waiting for the children", waiting_for=Waiting.CHILDREN)
        builder.amend("text beside the plan", notes="\n\n".join(filter(None, [task.notes, results.text])))
        return
    if steer_again(builder):
        return
    actions = merged(task.spec.planned_actions, results.planned_actions)
    if actions and (refused := approval_requests.refused(builder, actions)):
        _not_taken(builder, ended, Unclear(refused, results.text), _text(refused))
        return
    text = task.draft_result or results.text
    own = results.summary if text == results.text else ""
    summary = (own and summary_line(own)) or summary_line(text)
    # A peer's reviewers see no side effects: those are planned where they are performed.
    if results.verdicts and not actions and (told := _about(results.verdicts, text)):
        said = ", ".join(f"{one.gate}: {one.verdict} by {one.reviewer}" for one in told)
        builder.checkpoint(f"with the result came the verdicts that it was given at {agent}: {said}", verdicts=told)
    builder.artifact("primary_output", text, summary, agent)
    builder.finish_attempt(AttemptStatus.SUCCEEDED)
    builder.move(
        Trigger.ATTEMPT_SUCCEEDED,
        f"attempt {task.attempt} succeeded",
        result=text,
        result_summary=summary,
        answer=results.answer,
        planned_actions=actions,
        failures=0,
        stalls=0,
        error="",
        findings="",
    )


def _about(verdicts: tuple[GivenVerdict, ...], text: str) -> tuple[GivenVerdict, ...]:
    """Those of the verdicts that were given about this text."""
    digest = sha256_of(text)
    return tuple(one for one in verdicts if one.of == digest)


def _silent(builder: DecisionBuilder, unclear: Unclear, turn: Turn, agent: str, ended: TurnEnded | None) -> None:
    """No text: only what the agent wrote into its task.md during the turn can be a result or a plan."""
    if turn is Turn.WORK and (builder.task.draft_result or _has_plan(builder)):
        _results(builder, Results(""), turn, agent, ended)
    else:
        said = f": {unclear.text}" if unclear.text else ""
        _not_taken(builder, ended, unclear, f"{agent} gave no answer{said}")


def _planned(builder: DecisionBuilder, plan: Plan, turn: Turn, ended: TurnEnded | None) -> None:
    """Adopt the plan's new children: an agent may write task.md and also answer with the same plan."""
    known = builder.family.existing.nodes
    fresh = tuple(child for child in plan.children if child.key not in known)
    try:
        if turn is Turn.SYNTHESIS or fresh or not known:
            plans.adopt(builder, plan if turn is Turn.SYNTHESIS else replace(plan, children=fresh), builder.family)
    except PlanError as error:
        why = f"the plan cannot be carried out: {error}"
        _not_taken(builder, ended, Unclear((why,), _said(ended)), why)
        return
    # New instructions are part of the spec, which the synthesis reads.
    builder.checkpoint("a plan: waiting for the children", waiting_for=Waiting.CHILDREN, steered="")


# Messages of peers about attempts that they were given


def replied(builder: DecisionBuilder, reply: Reply) -> None:
    """Take a peer's message about its attempt. Raises Refused for those of other agents."""
    attempt, task = builder.attempt, builder.task
    if attempt is not None and reply.older_attempt and reply.attempt_id != attempt.id:
        record_late(
            builder, reply.sender, reply.attempt_id, outcome_text(reply.answer)
        )  # from the earlier attempt's executor
        return
    if attempt is None:
        raise Refused("orphan", f"{task.local_id} was never dispatched")
    if not may_answer(attempt.executor, reply.sender):
        raise Refused("wrong-agent", f"{task.local_id} was given to {attempt.executor}, not to {reply.sender}")
    if same_agent(attempt.executor, builder.ctx.agent) and not isinstance(reply.answer, Progress):
        # The answer to a turn of this agent is the output of its call, never a file.
        raise Refused("not-given-away", f"{task.local_id} is executed by {builder.ctx.agent}, not by a peer")
    if reply.attempt_id is not None and reply.attempt_id != attempt.id:
        raise Refused("stale-attempt", f"{task.local_id} has no attempt {reply.attempt_id}")
    if reply.attempt_id is None and reply.ordinal is not None and reply.ordinal < attempt.ordinal:
        record_late(builder, reply.sender, None, outcome_text(reply.answer))
        return
    must_echo = attempt.token_echoed or attempt.executor.startswith(POOL)
    if reply.reply_token != attempt.reply_token and (reply.reply_token is not None or must_echo):
        raise Refused("stale-attempt", f"the reply token is not the one that {task.local_id} was sent with")
    attempt = _close_by_late_answer(builder, reply.answer, reply.sender, Waiting.REPLY) or attempt
    if attempt.status is not AttemptStatus.RUNNING:
        _after_the_end(builder, reply)
        return
    if reply.reply_token is not None and not attempt.token_echoed:
        # So the peer has the work, even if its acknowledgement was lost: from now on it gets messages.
        builder.checkpoint("the reply token was echoed", token_echoed=True, acknowledged=True)
    if reply.usage != NO_USAGE:
        builder.record(Kind.USAGE_REPORTED, agent=reply.sender, attempt=attempt.id, usage=to_json(reply.usage))
        builder.checkpoint("it reports its cost", usage=attempt.usage.plus(reply.usage))
    answer = reply.answer
    if isinstance(answer, Results) and reply.reply_token != attempt.reply_token:
        answer = replace(answer, verdicts=())  # anybody can name a sender
    answered(builder, answer, Turn.DISPATCH, reply.sender)


def _close_by_late_answer(
    builder: DecisionBuilder, answer: Answer | Progress | None, agent: str, waiting_for: Waiting
) -> Attempt | None:
    """Close the circuit that the absence of this answer opened, unless a person has decided meanwhile.

    Returns the attempt, which goes on as if the answer had come in time; None if the circuit stays as it is.
    """
    if not isinstance(answer, Results | Failure | Planned | Question) or not awaits_late_answer(builder.view):
        return None
    builder.resume_attempt(f"the answer of {agent} has come", waiting_for)
    failures = max(builder.task.failures - 1, 0)
    reason = f"the answer of {agent} came after all"
    builder.move(Trigger.ANSWERED_LATE, reason, failures=failures, error="")
    return builder.live


def _after_the_end(builder: DecisionBuilder, reply: Reply) -> None:
    """Record a late reply; a late result of an open circuit is kept for the operator to accept."""
    record_late(builder, reply.sender, reply.attempt_id, outcome_text(reply.answer))
    judged = builder.attempt is not None and builder.attempt.status is AttemptStatus.SUCCEEDED
    if isinstance(reply.answer, Results) and builder.task.phase is Phase.CIRCUIT_OPEN and not judged:
        text = reply.answer.text
        summary = summary_line(reply.answer.summary) or summary_line(text)
        builder.artifact("primary_output", text, summary, reply.sender)
        builder.amend("a late result can be accepted", result=text, result_summary=summary)


def work_forgotten(builder: DecisionBuilder, found: WorkForgotten) -> None:
    """End an attempt that its peer no longer knows of: a turn may have begun there, so a person decides."""
    attempt = builder.attempt
    if attempt is None or attempt.id != found.attempt_id or attempt.status is not AttemptStatus.RUNNING:
        return
    if attempt.waiting_for in (Waiting.REPLY, Waiting.ANSWER):
        outcome_unknown(builder, found.why)


# Import of work that began without mailboxd (by hand, or by another clawflow tool)


def imported(builder: DecisionBuilder, found: Imported) -> None:
    """Move a task that was just recorded to the state in its file, without passing its gates."""
    match found:
        case ImportedDone(result):
            summary = found.summary or summary_line(result)
            builder.artifact("primary_output", result, summary, builder.task.executor)
            changes = _kept_times(found) | {"result": result, "result_summary": summary}
            builder.move(Trigger.IMPORTED_DONE, "it was done before mailboxd managed it", **changes)
        case ImportedFailed(error):
            changes = _kept_times(found) | {"error": error, "result_summary": found.summary}
            builder.move(Trigger.IMPORTED_FAILED, error or "it had failed before mailboxd managed it", **changes)
            announce_end(builder)
        case ImportedDispatched(dispatched_at):
            _dispatched(builder, dispatched_at)


def _kept_times(found: ImportedDone | ImportedFailed) -> dict[str, str]:
    times = {"dispatched_at": found.dispatched_at, "completed_at": found.completed_at}
    return {name: at for name, at in times.items() if at}


def _dispatched(builder: DecisionBuilder, dispatched_at: str) -> None:
    """Record an attempt that a peer already has, and wait for its reply."""
    view, task, ctx = builder.view, builder.task, builder.ctx
    if not may_start(view) or view.parent_phase is None:
        raise Refused("not-ready", f"{task.local_id} cannot be under way: a dependency is not completed")
    builder.move(
        Trigger.ATTEMPT_STARTED,
        f"{task.executor} had it before mailboxd managed it; waiting for its reply",
        attempt=begin(builder, Waiting.REPLY),
        dispatched_at=dispatched_at or ctx.now,
        due=plus(ctx.now, task.policy.reply_within),
    )


# Whether a pending turn is still wanted


def is_wanted(task: Task, attempt: Attempt | None, effect: RunTurn) -> bool:
    """False if it was cancelled, answered or superseded while pending."""
    if effect.turn is Turn.REVIEW:
        at_gate = effect.gate is not None and task.phase.value == effect.gate.value
        named = any(same_agent(effect.agent, name) for name in task.policy.reviewers)
        return at_gate and named and effect.attempt_id == reviews.fence(task, attempt)
    if effect.turn is Turn.ANSWER and (attempt is None or attempt.question != effect.note):
        return False  # the question was answered otherwise
    if effect.turn is Turn.DRAFT:
        return task.phase is Phase.SPEC_DRAFT and effect.attempt_id == spec_drafting.fence(task.mending.drafts)
    if effect.correction is not None and effect.turn is not Turn.ANSWER and not _waits_for_turn(attempt):
        return False  # the answer has come by message
    return (
        task.phase is Phase.EXECUTING
        and attempt is not None
        and attempt.id == effect.attempt_id
        and attempt.status is AttemptStatus.RUNNING
    )


def _waits_for_turn(attempt: Attempt | None) -> bool:
    return attempt is not None and attempt.waiting_for is Waiting.TURN
