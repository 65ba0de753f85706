"""Messages about our work that have crossed with something: what they are about is over, or there is more of it."""

from __future__ import annotations

from mailboxd.core.model import Task
from mailboxd.core.vocabulary import OPERATORS, Waiting
from mailboxd.ids import time_of
from mailboxd.protocol.messages import AnswerMessage, CancelMessage, SteerMessage
from mailboxd.store.store import Store


def is_late(store: Store, task: Task, message: AnswerMessage | CancelMessage | SteerMessage) -> bool:
    """Whether an order of the task's sender comes too late. Nobody did anything wrong, so it is not refused."""
    match message:
        case CancelMessage():
            # of an older attempt: its sender has given the work out again since
            return task.phase.is_terminal or (message.attempt or task.origin.attempt) < task.origin.attempt
        case AnswerMessage() if _is_answered(store, task, message):
            return True
        case _:
            return task.phase.is_terminal and message.from_ not in OPERATORS


def tells_of_end(task: Task, message_id: str) -> bool:
    """Whether a reply is about the end that the task has now; one without an id of ours is taken for such."""
    made = time_of(message_id)
    return task.phase.is_terminal and (made is None or (task.completed_at or "") <= made)


def was_told(store: Store, task: Task) -> bool:
    """Whether its sender was told of the end that the task has now, or is about to be."""
    replies = [*store.outbox.notes_sent(task.id, "reply", task.sender), store.messages.latest_reply(task.id)]
    return any(reply is not None and tells_of_end(task, reply) for reply in replies)


def _is_answered(store: Store, task: Task, message: AnswerMessage) -> bool:
    """Whether the question of ours that it answers is not open any more: somebody else was faster.

    A question may have been put twice, to two attempts of the sender: the answer to either is one to both.
    """
    asked = store.outbox.notes_sent(task.id, "question", message.from_)
    if message.in_reply_to not in asked:
        return False  # it does not say which one
    attempt = store.tasks.attempt(task.id, task.attempt)
    waiting_for = task.mending.waiting_for if attempt is None else attempt.waiting_for
    return waiting_for is not Waiting.ANSWER or asked[message.in_reply_to] != next(iter(asked.values()))
