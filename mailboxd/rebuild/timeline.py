"""In which order it all happened: steps with their moments, made of what the files say of each other.

Exact moments stand in the ids of what we sent, in task.md and in the reasons beside rejected files.
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

# ---------------------------------------------------------------------------------------------------------------------
# When each archived message was taken. Its day stands in its path; the moment is known where it led to something.
#
# What only its sender dates comes as early as its file was written, and after what it answers. The same message again
# comes after the first one.

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


# ---------------------------------------------------------------------------------------------------------------------
# In which order it all happened: steps with their moments, made of what the files say of each other.

ENDED = ("done", "failed", "cancelled", "blocked")
_PERHAPS_NEVER_BEGUN = ("", "pending", "planning", "cancelled")
"""What a task.md may say of a task that no attempt was made at: then no attempt is made up."""


@dataclass(frozen=True, slots=True)
class Receive:
    came: Came


@dataclass(frozen=True, slots=True)
class Refuse:
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Create:
    """A task that came as a task.md, unless a message has brought it by then.

    `whole`: it had ended when it came, for nobody was told of its end.
    """

    shown: Shown
    whole: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """The children that a task.md shows and no message named."""

    shown: Shown


@dataclass(frozen=True, slots=True)
class Begin:
    """An attempt began; `sent` is the message that gave it to a peer."""

    task: tuple[str, str]
    sent: Sent | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """The agent that works on a root task asked whoever gave it."""

    local_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """The task ended, as its file or our reply says."""

    task: tuple[str, str]
    status: str
    text: str


What = Receive | Refuse | Create | Adopt | Begin | Ask | Close
_RANK = (Receive, Refuse, Create, Adopt, Close, Begin, Ask)
"""What happens first of what happens at one moment: what ends makes room for what begins."""


@dataclass(frozen=True, slots=True)
class Step:
    """`task` of what is to be done is (parent's local id, key) for a child, ("", local id) for a root task."""

    at: str
    what: What
    name: str

    @property
    def order(self) -> tuple[bool, str, int, int, int, tuple[str, int, str]]:
        """Of ends at one moment those come first that others follow from: a child's, but a parent's cancellation.

        That a circuit is open has no moment in the files: it comes when all that is known has happened.
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
        steps += _earlier(outbox.replies[local_id], ("", local_id))  # its task.md is gone
    steps += _given_unshown(found, outbox)
    return sorted(steps, key=lambda step: step.order)


def _given_unshown(found: Sources, outbox: Outbox) -> Iterator[Step]:
    """What was given to peers and no task.md shows (yet, or any more): it counts as sent all the same."""
    shown = {(one.local_id, node.key) for one in found.shown.values() for node in one.written.dag}
    for work, given in outbox.dispatches.items():
        if work not in shown:
            for sent in given:
                if sent.of not in found.shown:
                    yield Step(made(sent), Begin(work, sent), sent.of)


def _children(found: Sources) -> set[str]:
    """The local ids that have a task.md of their own and stand in the DAG of another one."""
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
        yield Step(updated, Begin(task), local_id)  # it had ended, and was given out again or retried
    last = replies[-1] if replies and _is_told(written.status, replies[-1]) else None
    yield from _earlier(replies if last is None else replies[:-1], task)
    if written.status in ENDED:
        at = updated if last is None else made(last)
        text = written.synthesised if written.dag else written.results
        yield Step(at, Close(task, written.status, text), local_id)


def _is_told(status: str, reply: Sent) -> bool:
    """Whether the last reply is of the end that the file shows: who cancels what he gave gets none."""
    if status == "cancelled":
        return _tells_of_a_cancel(reply)
    return status in ENDED and status != "blocked"


def _tells_of_a_cancel(reply: Sent) -> bool:
    return reply.message.section("Error").startswith("cancelled by ")


def _earlier(replies: list[Sent], task: tuple[str, str]) -> Iterator[Step]:
    """Ends that were reported and did not last: the work was given out again, or a person retried it."""
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
        at = node.completed_at or _latest(shown)  # a circuit opens without a time in the DAG
        yield Step(at, Close(task, node.status, result or node.result_summary), name)


def _latest(shown: Shown) -> str:
    """The latest moment that a task.md shows."""
    nodes = [moment for node in shown.written.dag for moment in (node.dispatched_at, node.completed_at)]
    return max(shown.written.created_at, shown.written.updated_at, *nodes)
