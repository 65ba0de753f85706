"""What happens by itself when a stored moment comes: a hold or a lease ends, a deadline passes, a heartbeat is due.

Every one of them is a stored time, so a restart changes nothing, and what was noticed once is not noticed again.
"""

from __future__ import annotations

from mailboxd.core.conversation import ask_operator, tells_sender
from mailboxd.core.draft import Draft
from mailboxd.core.effects import Send
from mailboxd.core.events import Kind
from mailboxd.core.failure import outcome_unknown
from mailboxd.core.inputs import TimePassed
from mailboxd.core.lifecycle import TRANSITIONS, Trigger
from mailboxd.core.settle import end
from mailboxd.core.terms import AttemptStatus, Phase, Waiting
from mailboxd.core.times import plus


def time_passed(draft: Draft, passed: TimePassed) -> None:
    """Whatever of the task is due at this moment. What mail can prevent waits until the mail is read."""
    task, now = draft.task, draft.ctx.now
    heard = now if passed.read_until is None else min(now, passed.read_until)
    deadline = task.policy.deadline
    if deadline is not None and deadline <= heard and (task.phase, Trigger.DEADLINE_PASSED) in TRANSITIONS:
        reason = f"its deadline, {deadline}, has passed"
        end(draft, Trigger.DEADLINE_PASSED, reason, error=reason)
        return
    if task.heartbeat is not None and task.heartbeat <= now and not task.phase.is_terminal:
        _heartbeat(draft)
    if task.due is not None and task.due <= now:
        _due(draft, heard)


def _due(draft: Draft, heard: str) -> None:
    task, attempt = draft.task, draft.attempt
    waiting = attempt.waiting_for if attempt and attempt.status is AttemptStatus.RUNNING else Waiting.NOTHING
    if task.phase is Phase.CIRCUIT_OPEN:
        end(draft, Trigger.HOLD_OVER, f"nobody unblocked it in time; {task.error or task.reason}")
    elif waiting is not Waiting.NOTHING and (task.due or "") > heard:
        return  # the word that it waits for may lie in the inbox
    elif waiting is Waiting.REPLY:
        outcome_unknown(draft, f"{draft.live.executor} has not replied within {task.policy.reply_within} s")
    elif waiting is Waiting.ANSWER:
        ask_operator(draft, f"{task.sender} has not answered within {task.policy.reply_within} s")
    else:
        draft.amend("nothing waits for this moment any more", due=None)


def _heartbeat(draft: Draft) -> None:
    """Tell the sender that its work is alive; or notice, once, that the peer that has it is silent."""
    task, ctx, attempt = draft.task, draft.ctx, draft.attempt
    if tells_sender(draft) and ctx.heartbeat:
        draft.order(Send(ctx.new_id("msg"), "progress", task.sender, f"{task.phase}: {task.reason}"))
        draft.amend("a sign of life for its sender", heartbeat=plus(ctx.now, ctx.heartbeat))
        return
    if attempt is not None and attempt.waiting_for is Waiting.REPLY:
        draft.record(Kind.PEER_SILENT, agent=attempt.executor, attempt=attempt.id, until=task.due)
        draft.checkpoint(f"{attempt.executor} has missed its heartbeat", silent=True)
    draft.amend("nothing more is noticed until it is heard from", heartbeat=None)
