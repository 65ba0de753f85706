"""What our own messages tell: when work was given out and when it ended. Their ids begin with the millisecond."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from mailboxd.ids import time_of
from mailboxd.messages.models import QuestionMessage, ReplyMessage, TaskMessage
from mailboxd.rebuild.sources import Sent

Work = tuple[str, str]
"""The task_id and the subtask_id of a message."""


@dataclass(slots=True)
class Outbox:
    """The messages of outbox/, by what they are about; each list in the order in which they were made."""

    dispatches: dict[Work, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    given: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    """Dispatches by local id."""
    replies: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    """By local id; not those that said that a task was rejected."""
    questions: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    attempts: dict[str, Sent] = field(default_factory=dict)
    """Dispatches by the id of the attempt that they began."""

    @classmethod
    def of(cls, sent: Iterable[Sent]) -> Outbox:
        found = cls()
        for one in sorted(sent, key=lambda one: (one.message.attempt or 0, one.path)):
            match one.message:
                case TaskMessage() as message:
                    found.dispatches[message.task_id, message.subtask_id or ""].append(one)
                    found.given[one.of].append(one)
                    if message.attempt_id is not None:
                        found.attempts[message.attempt_id] = one
                case ReplyMessage() as message if not _is_bounce(message):
                    found.replies[one.of].append(one)
                case QuestionMessage():
                    found.questions[one.of].append(one)
        for replies in found.replies.values():
            replies.sort(key=lambda one: one.path)
        return found


def _is_bounce(message: ReplyMessage) -> bool:
    return message.section("Error").startswith("The task was rejected: ")


def made(sent: Sent) -> str:
    """When a message of ours was decided: with the attempt that it began, or when its id was given."""
    message = sent.message
    begun = time_of(message.attempt_id or "") if isinstance(message, TaskMessage) else None
    return begun or time_of(message.message_id or "") or message.sent_at or message.completed_at or ""
