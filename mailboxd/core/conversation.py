"""Conversation during an attempt: questions, answers, new instructions. The same attempt continues.

A child's question is answered by a turn of this agent, a root task's by its sender. If that brings no answer (the turn
fails or asks back, the sender does not answer in time), the operator is asked, without a time limit. New instructions
become part of the spec at once and are delivered to the executor as soon as possible: OpenClaw runs the turns of a
session one after the other, so a running turn is followed by another one.
"""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core import corrections
from mailboxd.core.decision_builder import DecisionBuilder, record_late_end
from mailboxd.core.effects import RunTurn, Send
from mailboxd.core.events import Kind
from mailboxd.core.failure import failed_attempt
from mailboxd.core.fixpoint import stop_turns
from mailboxd.core.inputs import SenderTold, TurnEnded
from mailboxd.core.lifecycle import join_is_met
from mailboxd.core.outcomes import Results, Silence, Succeeded, Unclear
from mailboxd.core.sanitize import blockquote, first_line
from mailboxd.core.session_keys import session_key
from mailboxd.core.task_view import TaskView
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import OPERATORS, AttemptStatus, Notice, Phase, Turn, Waiting, same_agent
from mailboxd.errors import Refused

SKIP = "REPLY_SKIP"
"""The body that ends a conversation (protocol section 2)."""
PATIENCE = 3
"""Heartbeats that a peer may miss before it counts as silent."""
_OPERATOR = "operator"
_GIVEN = "given in the running turn with the result of a tool"
STEERED = "New instructions came while you worked, and your results have to follow them"
_NO_ANSWER = "Your question will not be answered"
_GO_ON = "Continue with what you have."


def order_turn(builder: DecisionBuilder, note: str = "") -> None:
    """Order the next turn of the live attempt, in its session; `note` is text for this turn only."""
    attempt, ctx = builder.live, builder.ctx
    turn = Turn.WORK if same_agent(attempt.executor, ctx.agent) else Turn.DISPATCH
    if join_is_met(builder.view):
        turn = Turn.SYNTHESIS
    message_id = ctx.new_id("msg") if turn is Turn.DISPATCH else ""
    whose, turn_id = (attempt.executor, attempt.id, attempt.session_key), ctx.new_id("trn")
    model, harness = attempt.model, attempt.worker_ref
    builder.order(RunTurn(turn_id, turn, *whose, message_id, note=note, model=model, harness=harness))


def await_reply(builder: DecisionBuilder) -> None:
    """Wait for the reply of a peer's daemon, which has the work; starts its lease."""
    builder.checkpoint("waiting for its reply", waiting_for=Waiting.REPLY)
    renew_lease(builder)


def renew_lease(builder: DecisionBuilder) -> None:
    """Renew the lease of the peer that has the work."""
    if builder.live.silent:
        builder.checkpoint(f"{builder.live.executor} is active again", silent=False)
    changes: dict[str, str] = {"due": plus(builder.ctx.now, builder.task.policy.reply_within)}
    if builder.ctx.heartbeat and not reports_progress(builder):
        changes["heartbeat"] = plus(builder.ctx.now, PATIENCE * builder.ctx.heartbeat)
    builder.amend(**changes)


def reports_progress(builder: DecisionBuilder) -> bool:
    """Whether the sender is a mailboxd peer, which gets progress messages."""
    task = builder.task
    return task.parent is None and task.origin.attempt_id is not None and task.sender not in OPERATORS


def tell_sender(builder: DecisionBuilder, told: SenderTold) -> None:
    """Tell the sender what its work waits for, or that it goes on."""
    if builder.task.phase.is_terminal:
        return
    sender, session = builder.task.sender, builder.task.reply_address(Notice.PROGRESS)
    if session and told.why:
        builder.notify(Notice.PROGRESS)
    if reports_progress(builder):
        note = told.why or "goes on"
        builder.order(Send(builder.ctx.new_id("msg"), "progress", sender, note, waits_for=told.waits_for.value))
    elif session:
        sender = session
    else:
        return
    builder.record(Kind.SENDER_TOLD, to=sender, waits_for=told.waits_for, why=told.why)


# Questions


def asked(builder: DecisionBuilder, text: str) -> None:
    """Ask the executor's question; after the last one that the task may ask, let it continue without, once."""
    attempt, task, ctx = builder.live, builder.task, builder.ctx
    questions, limit = task.mending.questions + 1, ctx.limits.questions
    said = f"the task has asked its {limit} question{'s' * (limit != 1)} (limits.questions)"
    if questions > limit + 1:
        failed_attempt(builder, f"{said} and asks again: {first_line(text)}", final=True)
        return
    builder.amend("asks a question", mending=replace(task.mending, questions=questions))
    if questions > limit:
        _continue(builder, f"a question was not passed on: {said}", SKIP, f"{_NO_ANSWER}: {said}. {_GO_ON}")
        return
    turns = attempt.question_turns + 1
    builder.checkpoint("a question is open", waiting_for=Waiting.ANSWER, question_turns=turns, question=text)
    if task.parent is None:
        _ask(builder, task.sender)
    elif same_agent(attempt.executor, ctx.agent):
        _ask(builder, _OPERATOR)  # an agent does not answer its own question
    else:
        _ask_by_turn(builder)


def _ask(builder: DecisionBuilder, receiver: str, why: str = "") -> None:
    """Send the open question. An agent has `reply_within` seconds to answer; a person has no limit."""
    question = builder.live.question
    builder.record(Kind.QUESTION_ASKED, to=receiver, text=question, number=builder.task.mending.questions)
    due = None if receiver in OPERATORS else plus(builder.ctx.now, builder.task.policy.reply_within)
    reason = f"asked {receiver}{f' ({why})' if why else ''}: {first_line(question)}"
    builder.amend(f"waits for an answer of {receiver}", reason=reason, due=due)
    builder.order(Send(builder.ctx.new_id("msg"), "question", receiver, question))
    if receiver in OPERATORS:
        builder.notify(Notice.QUESTION)


def ask_again(builder: DecisionBuilder) -> None:
    """Send an open question again, to the sender's newer attempt: the earlier one has ended."""
    attempt, task = builder.attempt, builder.task
    if attempt is not None and attempt.waiting_for is Waiting.ANSWER and task.due is not None:
        _ask(builder, task.sender)


def _ask_by_turn(builder: DecisionBuilder) -> None:
    attempt, task, ctx = builder.live, builder.task, builder.ctx
    builder.record(Kind.QUESTION_ASKED, to=ctx.agent, text=attempt.question, number=task.mending.questions)
    builder.amend(f"{ctx.agent} is to answer", reason=f"asked {ctx.agent}: {first_line(attempt.question)}", due=None)
    builder.order(_answering(builder))


def _answering(builder: DecisionBuilder) -> RunTurn:
    """The turn in which this agent answers the open question."""
    attempt, task, ctx = builder.live, builder.task, builder.ctx
    key = f"{session_key(ctx.agent, task.local_id, ctx.agent, attempt.ordinal)}-answer"
    return RunTurn(ctx.new_id("trn"), Turn.ANSWER, ctx.agent, attempt.id, key, note=attempt.question)


def answer_ended(builder: DecisionBuilder, ended: TurnEnded) -> None:
    """Judge the turn that was to answer the open question."""
    attempt = builder.attempt
    waits = attempt is not None and attempt.status is AttemptStatus.RUNNING and attempt.waiting_for is Waiting.ANSWER
    asked = attempt is not None and (attempt.id, attempt.question) == (ended.attempt_id, ended.question)
    if attempt is None or not waits or not asked or not builder.is_ordered(ended.turn_id):
        record_late_end(builder, ended.agent, ended.attempt_id, ended.outcome)
    elif isinstance(ended.outcome, Succeeded) and isinstance(ended.answer, Results):
        text = ended.answer.text.strip()
        clarified(builder, ended.agent, text, ends=text == SKIP)
    elif isinstance(ended.outcome, Succeeded) and isinstance(ended.answer, Silence):
        clarified(builder, ended.agent, "", ends=True)
    elif isinstance(ended.outcome, Succeeded) and isinstance(ended.answer, Unclear):
        if not corrections.ask_again(builder, ended, ended.answer, _answering(builder)):
            ask_operator(builder, f"the answer of {ended.agent} could not be read")
    else:
        ask_operator(builder, f"{ended.agent} did not answer")


def ask_operator(builder: DecisionBuilder, why: str) -> None:
    """Ask the operator the open question."""
    _ask(builder, _OPERATOR, why)


def clarified(builder: DecisionBuilder, sender: str, text: str, ends: bool) -> None:
    """Continue the attempt, in the same session, with the answer or without one. Raises Refused."""
    attempt = builder.attempt
    if attempt is None or attempt.status is not AttemptStatus.RUNNING or attempt.waiting_for is not Waiting.ANSWER:
        raise Refused("no-question", f"{builder.task.local_id} has no open question")
    stop_turns(builder)  # another answer came before that of the running turn
    if ends:
        _continue(builder, "there will be no answer", SKIP, f"{_NO_ANSWER}. {_GO_ON}")
    else:
        note = blockquote(f"The answer of {sender} to your question", text)
        _continue(builder, "the question is answered", text, note)


def _continue(builder: DecisionBuilder, why: str, message: str, note: str) -> None:
    """Continue the attempt after its question: `message` is for a peer that has the work, `note` for another turn."""
    attempt = builder.live
    builder.checkpoint(why, waiting_for=Waiting.TURN, question="")
    builder.amend("continues after the question", reason=why, due=None)
    if attempt.acknowledged:
        builder.order(Send(builder.ctx.new_id("msg"), "answer", attempt.executor, message, attempt.ordinal))
        await_reply(builder)
    else:
        order_turn(builder, note)


# New instructions


def steered(builder: DecisionBuilder, sender: str, text: str) -> None:
    """Add new instructions to the spec and deliver them to the executor; the event says how."""
    task, attempt = builder.task, builder.attempt
    more = "\n\n".join([task.spec.instructions, blockquote(f"New instructions from {sender}", text)])
    scope = more if task.spec.scope_in == task.spec.instructions else task.spec.scope_in
    spec = replace(task.spec, instructions=more, scope_in=scope)
    live = attempt is not None and attempt.status is AttemptStatus.RUNNING and task.phase is Phase.EXECUTING
    if task.phase is Phase.CIRCUIT_OPEN:
        into = "in the next attempt, which begins when an operator retries it"
    elif attempt is None or not live:
        into = "in the next attempt, if there is one"
    elif attempt.acknowledged:
        into = f"sent to {attempt.executor}, which has the work"
        builder.order(Send(builder.ctx.new_id("msg"), "steer", attempt.executor, text, attempt.ordinal))
    elif attempt.waiting_for is Waiting.ANSWER:
        into = "with the answer to its question"
    elif is_passed_on(builder.view):
        ended = builder.view.children.total - builder.view.children.open
        into = "to its subtasks" + (f" that have not ended; {ended} have, and keep what they said" if ended else "")
    elif _only_combines(builder):
        into = "in the next attempt, if there is one" if builder.task.composes else "when the results are combined"
    else:
        into = "in the running turn if a tool follows, else in another turn of the same session"
        builder.checkpoint("new instructions came", steered="\n\n".join(filter(None, [attempt.steered, text])))
    builder.record(Kind.STEERED, by=sender, text=text, into=into)
    told = {"reason": task.reason.removesuffix(_SINCE) + _SINCE} if task.phase is Phase.CIRCUIT_OPEN else {}
    builder.amend("new instructions", spec=spec, **told)


_SINCE = "; new instructions have come since"
"""Said to the person who decides whether it is tried again."""


def is_passed_on(view: TaskView) -> bool:
    """Whether new instructions are for the subtasks, since the task has no turn of its own in which to read them.

    So it is with the copies of a broadcast, and with the only subtask, whose result is the task's.
    """
    task, attempt = view.task, view.attempt
    waits = attempt is not None and attempt.waiting_for is Waiting.CHILDREN and task.phase is Phase.EXECUTING
    return waits and (task.broadcast or (task.composes and task.body is None and view.children.total == 1))


def _only_combines(builder: DecisionBuilder) -> bool:
    return builder.live.waiting_for is Waiting.CHILDREN or (bool(builder.view.children.total) and builder.task.composes)


def heard(builder: DecisionBuilder, text: str) -> None:
    """Instructions were given in the turn itself, by the result of a tool: only what came after them is still new."""
    steered = builder.live.steered
    if steered and steered.startswith(text):
        builder.checkpoint(_GIVEN, steered=steered[len(text) :].strip())
        builder.record(Kind.STEERED, by="", text=text, into=_GIVEN)


def steer_again(builder: DecisionBuilder) -> bool:
    """Whether another turn has to follow, because new instructions arrived during this one."""
    attempt = builder.live
    if not attempt.steered:
        return False
    builder.checkpoint("its results are from before the new instructions: another turn", steered="")
    order_turn(builder, blockquote(STEERED, attempt.steered))
    return True
