"""The order of events: steps with times, derived from the files.

Exact times are in the ids of sent messages, in task.md and in reason files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mailboxd.core.times import plus
from mailboxd.core.vocabulary import OPERATORS, child_local_id, distinct, root_local_id
from mailboxd.protocol.messages import AnswerMessage, CancelMessage, ReplyMessage, SteerMessage, TaskMessage
from mailboxd.protocol.plan import DagNode
from mailboxd.rebuild.files import EARLIEST, Came, Outbox, Refusal, Sent, Shown, Sources, Work, made, natural

# When each archived message was accepted. The path contains the day; the time is known if the message had an effect.
# Otherwise it is when the file was written, but after the message that it answers. A duplicate comes after the first
# copy.

_MOST_NAMES = 20
_AFTER = 0.001
"""Seconds: a consequence follows in the next round at the earliest."""


class Moments:
    """The times of an archive. Call in the order of `ordered`: the first match caused what the files show."""

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
        """Local ids of tasks whose wanted name was taken, by sender and wanted name."""
        self._given: dict[str, str] = {}
        """When work was last dispatched again or cancelled, by local id."""
        self._attempts: dict[tuple[str, ...], int] = {}
        """The last attempt that the sender dispatched, by the identity of the work as in `_first`."""

    def of(self, came: Came) -> str:
        """When the message was accepted."""
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
            case SteerMessage() | AnswerMessage() as message:  # its task may have been in the inbox as well
                given_as = "task", message.from_, root_local_id(message.task_id, message.subtask_id)
                at = max(at, self._first.get(given_as, ""))
            case _:
                pass
        at = max(at, self._first.get(identity, ""))
        self._first.setdefault(identity, at)
        return at

    def _creation(self, message: TaskMessage, wanted: str, at: str) -> str:
        """When the task was created, under the wanted name or the next free one."""
        for ordinal in range(1, _MOST_NAMES):
            one = self._created.get((message.from_, message.task_id, distinct(wanted, ordinal)))
            if one is not None:
                if one.local_id != wanted:
                    self._names[message.from_, wanted] = one.local_id
                return one.written.created_at
        return at

    def _again(self, message: TaskMessage, wanted: str, at: str) -> str:
        """When known work was dispatched again: a later reply names this attempt or a later one."""
        local_id = self._name(message.from_, wanted)
        replies = self._outbox.replies.get(local_id, ())
        earlier = [made(reply) for reply in replies if (reply.message.attempt or 0) < (message.attempt or 0)]
        at = max(at, self._given.get(local_id, ""), plus(earlier[-1], _AFTER) if earlier else "")
        self._given[local_id] = at
        return at

    def _name(self, sender: str, wanted: str) -> str:
        return self._names.get((sender, wanted), wanted)

    def _cancellation(self, message: CancelMessage, at: str) -> str:
        """When the task was cancelled if this message did it, else when it ended, because the message was late."""
        local_id = root_local_id(message.task_id, message.subtask_id)
        written = self._cancelled.get((message.task_id, message.from_))
        if written is None and message.from_ in OPERATORS:
            written = self._cancelled.get((local_id, ""))
        work = ("task", message.from_, local_id)
        last, came = self._attempts.get(work, math.inf), self._first.get(work, "")
        local_id = self._name(message.from_, local_id)
        if written is None:  # not the end of an attempt that was dispatched later
            replies = self._outbox.replies.get(local_id, ())
            ends = [made(reply) for reply in replies if (reply.message.attempt or 0) <= last]
            given = self._given.get(local_id, came)  # it may have ended before and been dispatched again
            return max(plus(next((end for end in ends if end > given), ends[0]), _AFTER) if ends else given, at)
        why = "" if written.dag else written.results  # or the previous result
        if why.startswith("cancelled by ") and not why.startswith(f"cancelled by {message.from_}"):
            return ""
        self._given[local_id] = written.updated_at
        return written.updated_at

    def _end(self, identity: tuple[str, ...], work: Work, at: str) -> str:
        """The first reply about the latest attempt ended it."""
        return at if identity in self._first else self._ended.get(work, "") or at


def ordered(came: list[Came]) -> Iterator[Came]:
    """The messages in the order of writing, as far as known."""
    yield from sorted(came, key=lambda one: (one.day, one.written_at, natural(one.path)))


def _guess(came: Came) -> str:
    """When the file was written, or the time that its sender gives, on the day of its archive."""
    message = came.message
    said = message.sent_at or message.completed_at or ""
    if not came.day:
        return max(min(said, came.written_at), EARLIEST) if said else came.written_at
    for moment in (came.written_at, said):
        if moment[:10] == came.day:
            return moment
    return f"{came.day}T00:00:00.000Z" if came.written_at[:10] < came.day else f"{came.day}T23:59:59.999Z"


# Steps.

ENDED = ("done", "failed", "cancelled", "blocked")
_PERHAPS_NEVER_BEGUN = ("", "pending", "planning", "cancelled")
"""Statuses of tasks that may never have begun; no attempt is invented for them."""


@dataclass(frozen=True, slots=True)
class Receive:
    came: Came


@dataclass(frozen=True, slots=True)
class Refuse:
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Create:
    """A task that was created as a task.md, unless a message created it before.

    `whole`: it had already ended, because no reply reports its end.
    """

    shown: Shown
    whole: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """The children in a task.md that no message created."""

    shown: Shown


@dataclass(frozen=True, slots=True)
class Begin:
    """An attempt began; `sent` dispatched it to a peer."""

    task: tuple[str, str]
    sent: Sent | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """The agent of a root task asked its sender a question."""

    local_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """The task ended, as its file or a reply says."""

    task: tuple[str, str]
    status: str
    text: str


What = Receive | Refuse | Create | Adopt | Begin | Ask | Close
_RANK = (Receive, Refuse, Create, Adopt, Close, Begin, Ask)
"""The order at one time: what ends frees slots for what begins."""


@dataclass(frozen=True, slots=True)
class Step:
    """`task` in `what` is (parent's local id, key) for a child, ("", local id) for a root task."""

    at: str
    what: What
    name: str

    @property
    def order(self) -> tuple[bool, str, int, int, int, tuple[str, int, str]]:
        """At one time children end before parents, but a parent is cancelled before its children.

        An open circuit has no time in the files: it comes after everything else.
        """
        what = self.what
        status = ENDED.index(what.status) if isinstance(what, Close) else 0
        upward = isinstance(what, Close) and what.status != "cancelled"
        length = len(self.name)  # a child's local id is longer than its parent's
        rank = _RANK.index(type(what)), status, -length if upward else length
        return isinstance(what, Close) and what.status == "blocked", self.at, *rank, natural(self.name)


def timeline(found: Sources) -> list[Step]:
    """Every step, in order."""
    outbox = Outbox.of(found.sent)
    moments = Moments(found, outbox)
    steps = [Step(refusal.reason["rejected_at"], Refuse(refusal), refusal.path) for refusal in found.refusals]
    for number, came in enumerate(ordered(found.came)):
        steps.append(Step(moments.of(came), Receive(came), f"{number:09}"))
    children = _children(found)
    for shown in found.shown.values():
        if shown.local_id not in children:
            steps += _root(outbox, shown)
        if shown.written.dag:
            steps += _coordinated(found, outbox, shown)
    for local_id in sorted(outbox.replies.keys() - found.shown.keys()):
        steps += _earlier(outbox.replies[local_id], ("", local_id))  # its task.md is missing
    steps += _given_unshown(found, outbox)
    return sorted(steps, key=lambda step: step.order)


def _given_unshown(found: Sources, outbox: Outbox) -> Iterator[Step]:
    """Dispatches that no task.md shows, which still count as sent."""
    shown = {(one.local_id, node.key) for one in found.shown.values() for node in one.written.dag}
    for work, given in outbox.dispatches.items():
        if work not in shown:
            for sent in given:
                if sent.of not in found.shown:
                    yield Step(made(sent), Begin(work, sent), sent.of)


def _children(found: Sources) -> set[str]:
    """The local ids that have a task.md and are in the DAG of another one."""
    named = set()
    for shown in found.shown.values():
        for node in shown.written.dag:
            local_id = child_local_id(shown.local_id, node.key)
            if local_id in found.shown and found.shown[local_id].written.task_id == shown.local_id:
                named.add(local_id)
    return named


def _root(outbox: Outbox, shown: Shown) -> Iterator[Step]:
    written, local_id = shown.written, shown.local_id
    created, updated = written.created_at, written.updated_at or written.created_at
    replies = outbox.replies.get(local_id, [])
    yield Step(created, Create(shown, written.status in ENDED and not replies), local_id)
    task = ("", local_id)
    begun = written.status not in _PERHAPS_NEVER_BEGUN or any(node.dispatched_at for node in written.dag)
    given = outbox.given.get(local_id, [])
    if begun and not given:
        yield Step(created, Begin(task), local_id)
    yield from (Step(made(sent), Begin(task, sent), local_id) for sent in given)
    for sent in outbox.questions.get(local_id, []):
        yield Step(made(sent), Ask(local_id, sent.message.text), sent.path)
    if replies and begun and written.status not in ENDED:
        yield Step(updated, Begin(task), local_id)  # it had ended, and was dispatched again or retried
    last = replies[-1] if replies and _is_told(written.status, replies[-1]) else None
    yield from _earlier(replies if last is None else replies[:-1], task)
    if written.status in ENDED:
        at = updated if last is None else made(last)
        text = written.synthesised if written.dag else written.results
        yield Step(at, Close(task, written.status, text), local_id)


def _is_told(status: str, reply: Sent) -> bool:
    """Whether the last reply reports the end that the file shows; a sender's own cancel gets no reply."""
    if status == "cancelled":
        return _tells_of_a_cancel(reply)
    return status in ENDED and status != "blocked"


def _tells_of_a_cancel(reply: Sent) -> bool:
    return reply.message.section("Error").startswith("cancelled by ")


def _earlier(replies: list[Sent], task: tuple[str, str]) -> Iterator[Step]:
    """Reported ends that did not last: the work was dispatched again, or an operator retried it."""
    for sent in replies:
        message = sent.message
        done = isinstance(message, ReplyMessage) and message.status == "done"
        text = message.section("Results") if done else message.section("Error")
        status = "done" if done else "cancelled" if _tells_of_a_cancel(sent) else "failed"
        yield Step(made(sent), Close(task, status, text), task[1])


def _coordinated(found: Sources, outbox: Outbox, shown: Shown) -> Iterator[Step]:
    written = shown.written
    begun = [node.dispatched_at for node in written.dag if node.dispatched_at]
    below = [found.shown.get(child_local_id(shown.local_id, node.key)) for node in written.dag]
    born = [one.written.created_at for one in below if one is not None and one.written.task_id == shown.local_id]
    unborn = written.created_at if written.status in ENDED else written.updated_at or written.created_at
    yield Step(min([*begun, *born], default=unborn), Adopt(shown), shown.local_id)
    results = dict(written.subtask_results)
    for node in written.dag:
        yield from _child(outbox, shown, node, results.get(node.key, ""))


def _child(outbox: Outbox, shown: Shown, node: DagNode, result: str) -> Iterator[Step]:
    task, name = (shown.local_id, node.key), f"{shown.local_id}.{node.key}"
    given = outbox.dispatches.get(task, [])
    if node.dispatched_at and not given:
        yield Step(node.dispatched_at, Begin(task), name)
    yield from (Step(made(sent), Begin(task, sent), name) for sent in given)
    if node.status in ENDED:
        at = node.completed_at or _latest(shown)  # an open circuit has no time in the DAG
        yield Step(at, Close(task, node.status, result or node.result_summary), name)


def _latest(shown: Shown) -> str:
    """The latest time in a task.md."""
    nodes = [moment for node in shown.written.dag for moment in (node.dispatched_at, node.completed_at)]
    return max(shown.written.created_at, shown.written.updated_at, *nodes)
