"""When each archived message was taken. Its day stands in its path; the moment is known where it led to something.

What only its sender dates comes as early as its file was written, and after what it answers. The same message again
comes after the first one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mailboxd.core.local_ids import distinct, root_local_id
from mailboxd.core.terms import OPERATORS
from mailboxd.core.times import plus
from mailboxd.messages.models import AnswerMessage, CancelMessage, ReplyMessage, SteerMessage, TaskMessage
from mailboxd.rebuild.bounds import EARLIEST
from mailboxd.rebuild.outgoing import Outbox, Work, made
from mailboxd.rebuild.sources import Came, Sources, natural

_MOST_NAMES = 20
_AFTER = 0.001
"""Seconds: what comes after something came with the next round at the earliest."""


class Moments:
    """The moments of one archive. Ask in the order of `ordered`: who comes first has caused what the files show."""

    def __init__(self, found: Sources, outbox: Outbox) -> None:
        self._outbox = outbox
        shown = found.shown.values()
        self._created = {(one.written.sender, one.written.task_id, one.local_id): one for one in shown}
        self._ended = {
            (one.local_id, node.key): node.completed_at
            for one in shown
            for node in one.written.dag
            if node.completed_at
        }
        cancelled = [one for one in shown if one.written.status == "cancelled"]
        self._cancelled = {(one.written.task_id, one.written.sender): one.written for one in cancelled}
        self._cancelled |= {(one.local_id, ""): one.written for one in cancelled}
        self._first: dict[tuple[str, ...], str] = {}
        self._names: dict[tuple[str, str], str] = {}
        """The local id of a work that did not get the one that it wanted, by its sender and that one."""
        self._given: dict[str, str] = {}
        """When a work was given again, or cancelled, the last time, by its local id."""
        self._attempts: dict[tuple[str, ...], int] = {}
        """The last attempt of a work that its sender has given out, by the identity of the work as in `_first`."""

    def of(self, came: Came) -> str:
        """When it was taken."""
        at = _guess(came)
        identity: tuple[str, ...] = ("path", came.path)
        match came.message:
            case TaskMessage() as message:
                wanted = root_local_id(message.task_id, message.subtask_id)
                identity = ("task", message.from_, wanted)
                self._attempts[identity] = max(self._attempts.get(identity, 0), message.attempt or 0)
                at = (self._again if identity in self._first else self._creation)(message, wanted, at)
            case ReplyMessage() as message:
                work = message.task_id, message.subtask_id or ""
                given = self._outbox.dispatches.get(work, [])
                answered = self._outbox.attempts.get(message.attempt_id or "") or (given[-1] if given else None)
                at = at if answered is None else max(at, made(answered))
                if message.attempt_id is None or not given or message.attempt_id == given[-1].message.attempt_id:
                    identity = ("reply", *work)
                    at = self._end(identity, work, at)
            case CancelMessage() as message:
                identity = ("cancel", message.from_, message.task_id, message.subtask_id or "")
                if identity not in self._first:
                    at = self._cancellation(message, at) or at
            case SteerMessage() | AnswerMessage() as message:  # its task may have lain in the inbox as well
                given_as = "task", message.from_, root_local_id(message.task_id, message.subtask_id)
                at = max(at, self._first.get(given_as, ""))
            case _:
                pass
        at = max(at, self._first.get(identity, ""))
        self._first.setdefault(identity, at)
        return at

    def _creation(self, message: TaskMessage, wanted: str, at: str) -> str:
        """When the task came into being, under the name it wanted or the next one that was free."""
        for ordinal in range(1, _MOST_NAMES):
            one = self._created.get((message.from_, message.task_id, distinct(wanted, ordinal)))
            if one is not None:
                if one.local_id != wanted:
                    self._names[message.from_, wanted] = one.local_id
                return one.written.created_at
        return at

    def _again(self, message: TaskMessage, wanted: str, at: str) -> str:
        """When known work was given again: a reply that was made after that names this attempt or a later one."""
        local_id = self._name(message.from_, wanted)
        replies = self._outbox.replies.get(local_id, ())
        earlier = [made(reply) for reply in replies if (reply.message.attempt or 0) < (message.attempt or 0)]
        at = max(at, self._given.get(local_id, ""), plus(earlier[-1], _AFTER) if earlier else "")
        self._given[local_id] = at
        return at

    def _name(self, sender: str, wanted: str) -> str:
        return self._names.get((sender, wanted), wanted)

    def _cancellation(self, message: CancelMessage, at: str) -> str:
        """When the task was cancelled, if it was by this message; else when it had ended, for it came too late."""
        local_id = root_local_id(message.task_id, message.subtask_id)
        written = self._cancelled.get((message.task_id, message.from_))
        if written is None and message.from_ in OPERATORS:
            written = self._cancelled.get((local_id, ""))
        work = ("task", message.from_, local_id)
        last, came = self._attempts.get(work, math.inf), self._first.get(work, "")
        local_id = self._name(message.from_, local_id)
        if written is None:  # an end of an attempt that was given out since is none that it came too late for
            replies = self._outbox.replies.get(local_id, ())
            ends = [made(reply) for reply in replies if (reply.message.attempt or 0) <= last]
            given = self._given.get(local_id, came)  # it may have ended before, and been given again
            return max(plus(next((end for end in ends if end > given), ends[0]), _AFTER) if ends else given, at)
        why = "" if written.dag else written.results  # or it shows what it had brought before
        if why.startswith("cancelled by ") and not why.startswith(f"cancelled by {message.from_}"):
            return ""
        self._given[local_id] = written.updated_at
        return written.updated_at

    def _end(self, identity: tuple[str, ...], work: Work, at: str) -> str:
        """The first reply about the latest attempt ended it."""
        return at if identity in self._first else self._ended.get(work, "") or at


def ordered(came: list[Came]) -> Iterator[Came]:
    """The order in which they were written, as far as that is known."""
    yield from sorted(came, key=lambda one: (one.day, one.written_at, natural(one.path)))


def _guess(came: Came) -> str:
    """When the file was written, or what its sender says, on the day of its archive."""
    message = came.message
    said = message.sent_at or message.completed_at or ""
    if not came.day:
        return max(min(said, came.written_at), EARLIEST) if said else came.written_at
    for moment in (came.written_at, said):
        if moment[:10] == came.day:
            return moment
    return f"{came.day}T00:00:00.000Z" if came.written_at[:10] < came.day else f"{came.day}T23:59:59.999Z"
