"""The archives of several agents against each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mailboxd.core.vocabulary import same_agent
from mailboxd.operate.auditor.chain import Chain
from mailboxd.operate.auditor.model import Check, Finding, Judged
from mailboxd.operate.auditor.place import Place
from mailboxd.operate.auditor.record import Message, Record

_TAKEN = frozenset({"accepted", "duplicate", "late", "orphan", "recovered"})


@dataclass(slots=True)
class Side:
    """One archive and what its journal says."""

    judged: Judged
    record: Record
    chain: Chain
    signed: Mapping[str, Place] = field(default_factory=dict)
    """Fingerprint -> the first head that is signed with this key."""
    grows: bool = False
    """A daemon has written to the journal while the archives were read: what is not there may be by now."""

    def is_called(self, name: str) -> bool:
        """Whether a sender or receiver is the agent of this archive, here or by its name on another host."""
        own = self.judged.agent
        return bool(own) and (same_agent(name, own) or same_agent(name.rpartition(".")[2], own))


@dataclass(slots=True)
class Crossed:
    """Messages between the archives that both have, with the same bytes."""

    both: int = 0
    direct: int = 0
    """Sent, and not in the receiver's archive: its agent answered without its mailbox, or it is still on its way."""


def compare(sides: Sequence[Side], crossed: Crossed) -> Iterator[tuple[Judged, Finding]]:
    """What two archives say differently, each with the archive that it is found in."""
    for one in sides:
        for other in sides:
            if one is not other and not same_agent(one.judged.agent, other.judged.agent):
                yield from _pair(one, other, crossed)
                yield from _one_key(one, other)
    yield from _same_agent(sides)


def _pair(sender: Side, receiver: Side, crossed: Crossed) -> Iterator[tuple[Judged, Finding]]:
    sent = {
        m.message_id: m for m in sender.record.messages.values() if m.is_sent and receiver.is_called(m.text("receiver"))
    }
    taken: dict[str, list[Message]] = {}
    for message in receiver.record.messages.values():
        if not message.is_sent and message.message_id and sender.is_called(message.text("sender")):
            taken.setdefault(message.message_id, []).append(message)
    for message_id, copies in taken.items():
        accepted = [copy for copy in copies if copy.text("verdict") in _TAKEN]
        original = sent.get(message_id)
        if original is None:
            if accepted and message_id.startswith("msg_") and sender.grows and copies[0].at > sender.record.last_at:
                crossed.direct += 1
            elif accepted and message_id.startswith("msg_"):
                yield receiver.judged, _not_sent(accepted[0], sender, receiver)
            continue
        for copy in accepted:
            if copy.sha256 == original.sha256:
                crossed.both += 1
            else:
                yield receiver.judged, _differs(copy, original, sender, receiver)
        yield from _attempt(original, copies[0], sender, receiver)
    for message_id, original in sent.items():
        if message_id not in taken:
            yield from _not_taken(original, sender, receiver, crossed)


def _one_key(one: Side, other: Side) -> Iterator[tuple[Judged, Finding]]:
    """A key is that of one agent: whoever has it could have written the archive of both."""
    us, them = one.judged.agent, other.judged.agent
    if not (us and them):
        return
    for fingerprint in sorted(one.signed.keys() & other.signed.keys()):
        problem = (
            f"heads of {us} here and of {them} ({other.signed[fingerprint]} of {them}) are signed with one key,"
            f" {fingerprint}: it cannot prove both"
        )
        yield one.judged, Finding(Check.HEADS, "shared-key", one.signed[fingerprint], problem)


def _not_sent(copy: Message, sender: Side, receiver: Side) -> Finding:
    us, them = receiver.judged.agent, sender.judged.agent
    text = f"{us} has the {copy.text('type')} {copy.message_id[:60]} from {them} ({copy.path or copy.text('name')})"
    if copy.at > sender.record.last_at:
        why = (
            f"{text}, and the journal of {them} ends before that, with event {sender.judged.events} of"
            f" {sender.record.last_at}: its end was cut off, or it was copied earlier"
        )
        return Finding(Check.MESSAGES, "sent-after-end", copy.where, why, missing=True)
    return Finding(
        Check.MESSAGES, "not-sent", copy.where, f"{text}, and the journal of {them} does not say that it was sent"
    )


def _differs(copy: Message, original: Message, sender: Side, receiver: Side) -> Finding:
    us, them = receiver.judged.agent, sender.judged.agent
    return Finding(
        Check.MESSAGES, "differs", copy.where,
        f"the {copy.text('type')} {copy.message_id[:60]} that {us} has from {them} has the SHA-256 {copy.sha256}, and"
        f" {them} sent {original.sha256} ({original.where} of {them})",
    )  # fmt: skip


def _attempt(original: Message, copy: Message, sender: Side, receiver: Side) -> Iterator[tuple[Judged, Finding]]:
    """The work that a dispatch gave out is, in the receiver's record, of an attempt that the sender started."""
    task = receiver.record.tasks.get(copy.task or "")
    given = sender.record.tasks.get(original.task or "")
    if copy.text("type") != "task" or task is None or given is None or task.message_id != original.message_id:
        return
    if task.attempt_id and task.attempt_id not in given.attempts and not sender.record.partial:
        us, them = receiver.judged.agent, sender.judged.agent
        taken = f"{us} took {task.local_id} as the attempt {task.attempt_id[:60]}"
        problem = f"{taken}, and {them} started none of that id for {given.local_id}"
        yield receiver.judged, Finding(Check.MESSAGES, "other-attempt", task.where, problem)


def _not_taken(original: Message, sender: Side, receiver: Side, crossed: Crossed) -> Iterator[tuple[Judged, Finding]]:
    """A message that its receiver's archive lacks: only an answer to it proves that it was taken there."""
    us, them = sender.judged.agent, receiver.judged.agent
    answer = None if original.undelivered or original.text("type") != "task" else _answer(original, sender, receiver)
    if answer is None or (receiver.grows and answer.at > receiver.record.last_at):
        crossed.direct += 1
        return
    what = (
        f"{us} sent the task {original.message_id[:60]} to {them}, which answered ({answer.where} of {us}), and the"
        f" journal of {them} does not say that it came"
    )
    yield sender.judged, Finding(Check.MESSAGES, "not-received", original.where, what, missing=True)


def _answer(original: Message, sender: Side, receiver: Side) -> Message | None:
    """A message of the receiver's daemon about the task of a dispatch, which no later dispatch can have caused."""
    for message in sender.record.about(original.task):
        if message.seq <= original.seq:
            continue
        if message.is_sent and message.text("type") == "task":
            return None
        is_theirs = not message.is_sent and receiver.is_called(message.text("sender"))
        if is_theirs and message.message_id.startswith("msg_") and message.text("verdict") in _TAKEN:
            return message
    return None


def _same_agent(sides: Sequence[Side]) -> Iterator[tuple[Judged, Finding]]:
    """Two archives of one agent have the same events, as far as both go."""
    for number, one in enumerate(sides):
        for other in sides[:number]:
            if one.judged.agent and same_agent(one.judged.agent, other.judged.agent):
                ids = one.chain.database, other.chain.database
                if all(ids) and ids[0] != ids[1]:
                    one.judged.notes.append(
                        f"it is of the database {ids[0]}, and {other.judged.given}, which is of {other.judged.agent} as"
                        f" well, of {ids[1]}: two agents of one name, or a workspace that was made anew. They were not"
                        " compared"
                    )
                    continue
                last = min(one.chain.tip.seq, other.chain.tip.seq)
                if last and one.chain.hash_at(last) != other.chain.hash_at(last):
                    low, high = 0, last
                    while high - low > 1:
                        middle = (low + high) // 2
                        if one.chain.hash_at(middle) == other.chain.hash_at(middle):
                            low = middle
                        else:
                            high = middle
                    what = f"event {high} is another one than in {other.judged.given} ({other.chain.place_of(high)})"
                    yield one.judged, Finding(Check.MESSAGES, "other-history", one.chain.place_of(high), what)
