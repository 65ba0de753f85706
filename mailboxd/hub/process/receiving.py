"""Receiving: what comes for this host is verified and delivered into an inbox, or refused and kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout

from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MessageError, WorldError
from mailboxd.formats.mailbox.files import directory, holds, lstat, world_errors
from mailboxd.formats.mailbox.maildir import deliver
from mailboxd.formats.protocol.front_matter import canonical
from mailboxd.formats.protocol.messages import AnyMessage, TaskMessage, parse_message
from mailboxd.hub.client.decisions import operators_name
from mailboxd.hub.process.attachments import Attachments
from mailboxd.hub.process.here import RETRY, ThisHost
from mailboxd.hub.process.jobs_given import JobsGiven
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.receipts import BATCH, Receipts, committed
from mailboxd.hub.process.refused import RefusedMail
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import mail, names, receipts, subjects
from mailboxd.hub.wire.mail import Arrival, Refusal
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.receipts import Receipt, ReceiptStage
from mailboxd.hub.wire.sealing import SealError
from mailboxd.hub.wire.subjects import JobSubject, Subject

ID, DIGEST = "Mailboxd-Id", "Mailboxd-Sha256"
"""The headers with a message's id and digest, for a receipt even if the message cannot be opened."""
_ALIVE = 10.0
"""Seconds after which the server is told that mail whose files are being fetched is still wanted."""
_MOST_FETCHING = 8
"""Messages of one host that wait for their files at a time."""
_MOST_TRIES = 5
"""Deliveries of a message that makes the process fail; then it is refused."""
_log = logging.getLogger("mailboxd")


class Later(Exception):
    """Mail that cannot be taken now, and why: its sender keeps it and offers it again."""


@dataclass(slots=True)
class Receiving:
    """The part of the hub process that takes mail and receipts."""

    here: ThisHost
    workspaces: Workspaces
    under_way: UnderWay
    attachments: Attachments
    receipts: Receipts
    presence: Presence
    jobs_given: JobsGiven
    fetching: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)
    """Messages whose files are being fetched, by the hosts that sent them and their ids."""
    refused: RefusedMail = field(init=False)

    def __post_init__(self) -> None:
        self.refused = RefusedMail(self.here.membership.folder / "refused")

    async def receive(self) -> None:
        """Take what the server has for this host, until it has no more consumer for it."""
        consumer = await self.here.js.pull_subscribe_bind(stream=subjects.STREAM, durable=self.here.settings.host)
        try:
            while True:
                with suppress(NatsTimeout, asyncio.TimeoutError):
                    batch = await consumer.fetch(BATCH, timeout=RETRY)
                    await self.here.settled()  # a process that was frozen has mail that is another's by now
                    await self._take_all(batch)
        finally:
            with suppress(NatsError):
                await consumer.unsubscribe()

    async def _take_all(self, messages: Iterable[Msg]) -> None:
        woken: set[str] = set()
        for message in messages:
            await self._take(message, woken)
        for agent in woken:
            self.workspaces.wake(agent)

    async def _take(self, message: Msg, woken: set[str]) -> None:
        """One message: acknowledged to the server once it is durable here, refused, or to be offered later."""
        subject = Subject.parse(message.subject)
        raw, message_id = message.data, (message.headers or {}).get(ID, "")
        try:
            if subject is None:
                raise Refusal(f"the subject {message.subject[:200]} is unknown; this mailboxd may be too old")
            if subject.kind == "receipt":
                await self._take_receipt(subject, raw, woken)
            elif why := await self._not_yet(subject, self.here.unsealed(raw)):
                raise Later(why)
            elif not self._take_mail(subject, message_id, self.here.unsealed(raw), woken):
                self._hold(message, message_id, subject.sender)
                return
        except (Refusal, SealError) as refusal:
            await self._refuse(subject, message, message_id, str(refusal))
        except (Later, NatsError, WorldError) as error:
            if not await self._put_off(subject, message, message_id, str(error)):
                _log.warning("mail waits at the server: %s", error)
                await self._leave(message)
                return
        except Exception:
            _log.exception("a bug in mailboxd: %s on %s; please report it", message_id[:128], message.subject[:200])
            if message.metadata.num_delivered < _MOST_TRIES:
                await self._leave(message)
                return
            await self._refuse(subject, message, message_id, "a bug in mailboxd: it cannot be handled")
        with suppress(NatsError):
            await message.ack()

    async def _leave(self, message: Msg) -> None:
        """Have the server deliver it again later, a number of times."""
        with suppress(NatsError):
            await message.nak(delay=RETRY)

    async def _put_off(self, subject: Subject | None, message: Msg, message_id: str, reason: str) -> bool:
        """Tell the sender of mail that it cannot be taken now; whether it knows, and the server may forget it."""
        if subject is None or subject.kind != "mail" or not is_id(message_id):
            return False
        _log.info("mail is put off: %s of %s: %s", message_id, subject.sender, first_line(reason))
        sha256 = (message.headers or {}).get(DIGEST, "")[:64]
        receipt = self.receipts.make(message_id, message.data, subject.sender, reason, sha256, ReceiptStage.LATER)
        return await self.receipts.send(receipt)

    def _hold(self, message: Msg, message_id: str, sender: str) -> None:
        """Keep it, unacknowledged, while its files are being fetched. Raises Later."""
        if (sender, message_id) in self.fetching:
            return
        if sum(host == sender for host, _ in self.fetching) >= _MOST_FETCHING:
            raise Later(f"{_MOST_FETCHING} other messages of {sender} wait for their files")
        self.fetching[sender, message_id] = asyncio.create_task(self._take_with_files(message, message_id, sender))

    async def _take_with_files(self, message: Msg, message_id: str, sender: str) -> None:
        try:
            while await self.attachments.is_fetching(sender, message_id, _ALIVE):
                with suppress(NatsError):
                    await message.in_progress()
            await self._take_all([message])
        finally:
            self.fetching.pop((sender, message_id), None)

    async def refuse_job(self, job: JobSubject, raw: bytes, sha256: str, reason: str) -> None:
        """`sha256`: the digest of what cannot be opened, as its sender says."""
        with suppress(SealError):
            raw = self.here.unsealed(raw)
        self._keep_refused(job.job, raw, str(job), reason)
        if is_id(job.job) and self.here.keys(job.sender):
            await self.receipts.send(self.receipts.make(job.job, raw, job.sender, reason, sha256[:64]))

    async def _refuse(self, subject: Subject | None, message: Msg, message_id: str, reason: str) -> None:
        """Keep it, and tell the host that sent it: its receipt names the bytes, so it settles no other message."""
        raw = message.data
        with suppress(SealError):
            raw = self.here.unsealed(raw)
        self._keep_refused(message_id, raw, message.subject, reason)
        if subject is not None and subject.kind == "mail" and is_id(message_id) and self.here.keys(subject.sender):
            sha256 = (message.headers or {}).get(DIGEST, "")[:64]
            await self.receipts.send(self.receipts.make(message_id, raw, subject.sender, reason, sha256))

    async def _not_yet(self, subject: Subject, raw: bytes) -> str:
        """Why mail about a job of a pool is not taken now: its sender does not hold the job. Raises NatsError."""
        try:
            message = parse_message(raw, "message").message
        except MessageError:
            return ""  # it is refused
        to = Address.parse(message.to or "")
        one = self.workspaces.local.get(to.agent) if to is not None else None
        return await self.jobs_given.not_yet(subject.sender, one, message) if one is not None else ""

    def _take_mail(self, subject: Subject, message_id: str, raw: bytes, woken: set[str]) -> bool:
        """Deliver it; false if its files are being fetched. Raises Refusal, Later, WorldError."""
        if self.here.keys(subject.sender) is None and self.presence.may_be_new(subject.sender):
            raise Later(f"{self.here.settings.host} has not heard yet that {subject.sender} is a host of the hub")
        message = self.verified(subject, message_id, raw)
        to = Address.parse(message.to or "")
        if to is not None and to.host == self.here.settings.host:
            agent = to.agent
        elif not (agent := self.here.server_of(names.role_of(message.to or ""))):
            raise Refusal(f"it is addressed to {message.to}, but came for the host {self.here.settings.host}")
        woken.add(agent)
        return self.put_in_inbox(self.workspaces.receiver(agent), subject, message, raw)

    def put_in_inbox(self, one: Local, subject: Subject | JobSubject, message: AnyMessage, raw: bytes) -> bool:
        """Deliver what a host sent, unless it is there; then its receipt is owed. False if its files are not here yet.

        Raises Refusal, Later, WorldError.
        """
        agent, sender, message_id = one.agent.lower(), subject.sender, message.message_id or ""
        name, sha256 = f"{message_id}.md", receipts.digest(raw)
        with world_errors(f"read {one.ws.inbox}"), directory(one.ws.root, "mailbox", "inbox") as inbox:
            in_inbox = lstat(inbox, name) is not None
            is_another = in_inbox and not holds(inbox, name, raw)
        if is_another:
            raise Later(f"another message with the id {message_id} is in the inbox of {agent}")
        known = committed(one, sender, [message_id]).get(message_id)
        arrival = mail.on_arrival(sha256, in_inbox=in_inbox, committed=known)
        if arrival is Arrival.CONFLICT:
            raise Refusal(f"{agent} has another message with the id {message_id}")
        if arrival is Arrival.DELIVER:
            if isinstance(message, TaskMessage) and not names.permits(self.here.settings.accept, message.from_):
                raise Refusal(
                    f"hub.yaml of {self.here.settings.host} does not let {message.from_} give work to its agents"
                )
            by_person = message.from_.lower() == operators_name(sender)
            if by_person and not names.permits(self.here.settings.decide, sender):
                raise Refusal(f"hub.yaml of {self.here.settings.host} does not let a person on {sender} decide")
            if why := self.attachments.lacking(one, message, subject):
                if (sender, message_id) in self.fetching:
                    raise Later(why)
                return False
            deliver(one.ws.inbox, name, raw, below=one.ws.root, renamed=True, program="hub")
            self.attachments.delivered(sender, message_id)
            self.here.counts["received"] += 1
        else:
            self.here.counts["repeats"] += 1
        self.receipts.owe(agent, message_id, sender, sha256)
        return True

    def verified(self, subject: Subject | JobSubject, message_id: str, raw: bytes) -> AnyMessage:
        """The message, if the host that its subject names signed it. Raises Refusal."""
        host = subject.sender
        key = self.here.keys(host)
        if key is None:
            raise Refusal(f"{host} is not a host of the hub")
        try:
            message = parse_message(raw, "message").message
        except MessageError as error:  # its text may quote the message, and receipts are not sealed
            raise Refusal(f"it is no message that can be read ({error.rule})") from error
        sender = Address.parse(message.from_)
        if sender is None or sender.host != host:
            raise Refusal(f"it claims to be from {message.from_}, but came from the host {host}")
        if message.message_id is None or message.message_id != message_id:
            raise Refusal("its id is missing, or not the one that it came under")
        if not key.has_signed(canonical(raw), message.signature or ""):
            self.here.note_foreign(str(subject))
            raise Refusal(f"it is not signed by the host {host}, or was changed after that")
        return message

    async def _take_receipt(self, subject: Subject, raw: bytes, woken: set[str]) -> None:
        receipt, key = Receipt.parse(raw), self.here.keys(subject.sender)
        if receipt is None or key is None or not key.has_signed(receipt.content(), receipt.signature):
            self.here.note_foreign(str(subject))
            raise Refusal(f"this receipt is not signed by the host {subject.sender}")
        found = self._pending(receipt.message_id)
        if found is None:
            self.here.counts["repeats"] += 1
            return  # it was settled before
        agent, one, pending = found
        message = parse_message(pending, "message").message
        role, to = names.role_of(message.to or ""), Address.parse(message.to or "")
        host = to.host if to else subject.sender  # any host may have a job of a pool
        problem = receipts.settles(receipt, subject.sender, (host, receipts.digest(pending)))
        if problem or receipt.to != self.here.settings.host:
            raise Refusal(f"a receipt for {receipt.message_id} settles nothing: {problem or 'it is for another host'}")
        is_job = role and isinstance(message, TaskMessage)
        if is_job:
            job = JobSubject(role, self.here.settings.host, receipt.message_id)
            if why := await self.jobs_given.counts_not(subject.sender, job):
                _log.info("a receipt of %s for %s does not count: %s", subject.sender, receipt.message_id, why)
                return  # who holds the job sends it again
        if not receipt.is_final:
            if not is_job:
                self._note(one, receipt, message.to or "")
            return
        if is_job and not receipt.refused:
            one.spool.taken(receipt, message.attempt_id or "")
            woken.add(agent)
            return
        self.attachments.remove(one, receipt.message_id, subjects.POOLS if role else host)
        one.spool.settle(receipt)
        self.under_way.settled(receipt.message_id)
        woken.add(agent)

    def _note(self, one: Local, receipt: Receipt, to: str) -> None:
        """How far a message is at its receiver."""
        name = receipt.message_id
        if receipt.stage is ReceiptStage.ARRIVED:
            self.under_way.is_there(name)
            return
        one.spool.again(name)
        why = f"the host {receipt.sender} cannot take it now: {first_line(receipt.reason)}"
        self.under_way.offer_later(name, why, to, self.presence.standing(to.lower()))
        self.here.woken.set()

    def _pending(self, message_id: str) -> tuple[str, Local, bytes] | None:
        """The agent whose message waits for this receipt, and its bytes."""
        for one in self.workspaces.spools():
            if (raw := one.spool.message(message_id)) is not None:
                return one.agent.lower(), one, raw
        return None

    def _keep_refused(self, message_id: str, raw: bytes, subject: str, reason: str) -> None:
        """Keep what was refused, with its reason, for a person to look at."""
        self.here.counts["refused"] += 1
        _log.warning("mail was refused: %s on %s: %s", message_id[:128] or "?", subject[:200], first_line(reason))
        with suppress(OSError):
            self.refused.keep(self.here.clock.now(), message_id, raw, subject, reason)
