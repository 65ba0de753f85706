"""Messages that arrived too late: their subject has ended or was superseded."""

from __future__ import annotations

from mailboxd.core.model import Task
from mailboxd.core.vocabulary import OPERATORS, Waiting
from mailboxd.formats.protocol.messages import AnswerMessage, CancelMessage, SteerMessage
from mailboxd.host.ids import time_of
from mailboxd.ledger.store import Store


def is_late(store: Store, task: Task, message: AnswerMessage | CancelMessage | SteerMessage) -> bool:
    """Whether a sender's message is too late. Such a message is correct, so it is not rejected."""
    match message:
        case CancelMessage():
            # it cancels an older attempt: its sender has dispatched the work again since
            return task.phase.is_terminal or (message.attempt or task.origin.attempt) < task.origin.attempt
        case AnswerMessage() if _is_answered(store, task, message):
            return True
        case _:
            return task.phase.is_terminal and message.from_ not in OPERATORS


def tells_of_end(task: Task, message_id: str) -> bool:
    """Whether a reply reports the task's present end; a reply with a foreign id counts as such."""
    made = time_of(message_id)
    return task.phase.is_terminal and (made is None or (task.completed_at or "") <= made)


def was_told(store: Store, task: Task) -> bool:
    """Whether a reply about the task's present end was sent or is pending."""
    replies = [*store.outbox.notes_sent(task.id, "reply", task.sender), store.messages.latest_reply(task.id)]
    return any(reply is not None and tells_of_end(task, reply) for reply in replies)


def _is_answered(store: Store, task: Task, message: AnswerMessage) -> bool:
    """Whether the question that it answers is no longer open.

    A question may have been sent to two attempts of the sender: the answer to either answers both.
    """
    asked = store.outbox.notes_sent(task.id, "question", message.from_)
    if message.in_reply_to not in asked:
        return False  # it does not say which one
    attempt = store.tasks.attempt(task.id, task.attempt)
    waiting_for = task.mending.waiting_for if attempt is None else attempt.waiting_for
    return waiting_for is not Waiting.ANSWER or asked[message.in_reply_to] != next(iter(asked.values()))
