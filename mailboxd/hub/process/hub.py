"""The hub process: carries mail and receipts between the workspaces of this user and the hub's server.

One per user and host. It keeps nothing that it cannot rebuild: mail is in the spools (`spool`), deliveries are in the
inboxes, what was committed is in the daemons' databases. So it may die anywhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from nats.js.errors import APIError

from mailboxd import config, user_state
from mailboxd.clock import SystemClock
from mailboxd.core.operator_orders import OPERATOR
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import to_text
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MailboxdError, MessageError, UnavailableError, WorldError
from mailboxd.health import Grade
from mailboxd.host import wakeup
from mailboxd.hub.client.decisions import operators_name, operators_spool, operators_workspace
from mailboxd.hub.files.membership import STATUS, HostKeys, Membership
from mailboxd.hub.files.settings import HubSettings
from mailboxd.hub.files.spool import NEW, SENT, Spool
from mailboxd.hub.files.view import HEARD, PEERS, Heard, HubInfo, PeerInfo
from mailboxd.hub.process.attachments import Attachments
from mailboxd.hub.process.pools import Pools, Refusal, is_queued
from mailboxd.hub.process.presence import Cards
from mailboxd.hub.process.talk import Talk
from mailboxd.hub.process.workspaces import Standings
from mailboxd.hub.wire import mail, names, receipts, subjects
from mailboxd.hub.wire.cards import HostSigns
from mailboxd.hub.wire.mail import Arrival
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.receipts import Receipt
from mailboxd.hub.wire.subjects import JobSubject, Subject
from mailboxd.keys import PrivateKey
from mailboxd.mailbox.files import Stamp, directory, lstat, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.maildir import deliver
from mailboxd.protocol.front_matter import canonical
from mailboxd.protocol.messages import AnyMessage, ReplyMessage, TaskMessage, parse_message
from mailboxd.store.reports import opened

_ID = "Mailboxd-Id"
"""The header with a message's id, for a receipt even if the message cannot be read."""
BATCH = 64
RETRY = 5.0
_FETCHING = 1.0
"""Seconds after which mail whose files are being fetched is looked at again."""
_MOST_REFUSED = 1_000
_MOST_TRIES = 5
"""Deliveries of a message that makes the process fail; then it is refused."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Local:
    """A workspace here."""

    ws: Workspace
    agent: str
    spool: Spool


@dataclass(slots=True)
class Hub:
    """The hub process of one user."""

    membership: Membership
    environ: Mapping[str, str]
    settings: HubSettings
    key: PrivateKey
    keys: HostKeys
    clock: SystemClock = field(default_factory=SystemClock)
    local: dict[str, Local] = field(default_factory=dict)
    """By agent id in lower case."""
    hosts: dict[str, HostSigns] = field(default_factory=dict)
    trouble: str = "the hub process is starting"
    refused_by_server: dict[str, tuple[float, str, str]] = field(default_factory=dict)
    """Until when a message is not offered again, and why it was refused, by its id."""
    sent_at: dict[str, float] = field(default_factory=dict)
    copies: Counter[str] = field(default_factory=Counter)
    """How often each message was sent that has no receipt."""
    owed: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Receipts to be sent once the daemon has committed: agent and message id -> sending host and digest."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("sent", "received", "refused", "repeats"), 0))
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    nc: Client = field(default_factory=Client)
    cards: Cards = field(init=False)
    talk: Talk = field(init=False)
    standings: Standings = field(init=False)
    operator: Local = field(init=False)
    """The spool of what a person here decides on other hosts."""
    pools: Pools = field(init=False)
    attachments: Attachments = field(init=False)
    foreign: dict[str, str] = field(default_factory=dict)
    """Subjects on which something came that their host did not sign, and when it came last."""
    held: dict[str, int] = field(default_factory=lambda: {"held": 0, "again": 0})
    """The messages that the server holds for this host, as in `MailCard`."""
    _agents_of: dict[Path, tuple[Stamp, str]] = field(default_factory=dict)
    _unread: dict[Path, str] = field(default_factory=dict)
    """Why a workspace takes no part: which agent it has is not known then."""
    _info: HubInfo | None = None
    _heard: Heard | None = None
    """The last report to the daemons."""

    def __post_init__(self) -> None:
        self.cards, self.talk, self.standings = Cards(self), Talk(self), Standings(self.clock)
        self.operator = Local(operators_workspace(self.membership), OPERATOR, operators_spool(self.membership))
        self.pools, self.attachments = Pools(self), Attachments(self)

    async def unless_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Do this until it ends, or until a signal asks to stop; returns whether it has ended."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self.stopping.wait())
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        for one in (task, stop):
            one.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return not self.stopping.is_set()

    def spools(self) -> list[Local]:
        """All from which mail is sent."""
        return [*self.local.values(), self.operator]

    def say_trouble(self, why: str) -> None:
        """Why nothing can be sent or received; empty if it can."""
        if why != self.trouble:
            _log.log(logging.WARNING if why else logging.INFO, "%s", why or f"connected to {self.server}")
            self.trouble = why
            self.tell_daemons()

    @property
    def server(self) -> str:
        return f"the server {' or '.join(self.settings.servers)}"

    # what is here

    def look_around(self) -> None:
        """Read the settings and find the workspaces again, and tell the daemons; stop if this host left the hub."""
        if not self.membership.exists():
            self.stopping.set()
            return
        with _logged("read its settings"):
            self.settings = self.membership.settings()
        self.find_workspaces()
        self.tell_daemons()

    def find_workspaces(self) -> None:
        """The workspaces of this user and their agents."""
        found: dict[str, Local] = {}
        unread: dict[Path, str] = {}
        for ws in user_state.workspaces(self.environ):
            try:
                stamp = Stamp.of(ws.config.stat())
                if self._agents_of.get(ws.root, (None,))[0] != stamp:
                    self._agents_of[ws.root] = stamp, config.load(ws.config).agent
                spool = Spool(ws)
                spool.create()
            except (OSError, MailboxdError) as error:
                unread[ws.root] = str(error)
                if unread[ws.root] != self._unread.get(ws.root):
                    _log.warning("the workspace %s takes no part in the hub: %s", ws.root, error)
                continue
            agent = self._agents_of[ws.root][1]
            found.setdefault(agent.lower(), Local(ws, agent, spool))
        self.local, self._unread = found, unread

    def tell_daemons(self) -> None:
        """Write what the daemons need to know, if it is news; nothing once this host has left the hub."""
        if not self.membership.exists():
            return
        send, hosts = self.settings.send, self.keys.members().hosts.keys() - {self.settings.host}
        peers = {
            f"{host}.{agent.lower()}": PeerInfo(card.role, names.permits(send, f"{host}.{agent}"))
            for host, state in self.hosts.items()
            for agent, card in state.agents.items()
        }
        info = HubInfo(self.settings.host, tuple(sorted(hosts)), peers, self.pools.known())
        signs = {host: self.hosts[host].at if host in self.hosts else "" for host in hosts}
        unwell = {
            f"{host}.{agent.lower()}": card.health
            for host, state in self.hosts.items()
            for agent, card in state.agents.items()
            if card.health in (Grade.RED, Grade.OFF)
        }
        refused = {to: why for _, why, to in self.refused_by_server.values() if to}
        heard = Heard(self.trouble, signs, refused, unwell)
        if (is_changed := info != self._info) or heard.is_news(self._heard):
            with _logged("tell the daemons"):
                if is_changed:
                    self._write(PEERS, info.to_bytes())
                self._write(HEARD, heard.to_bytes())
                self._info, self._heard = info, heard
            for agent in self.local:
                self.wake(agent)

    def _write(self, name: str, raw: bytes) -> None:
        with self.membership.state.writing() as folder:
            self.membership.state.write(folder, name, raw)

    def status(self) -> dict[str, object]:
        """For `mailboxd hub status`."""
        waiting: dict[str, dict[str, object]] = {}
        for one in self.spools():
            with suppress(WorldError):
                since = one.spool.waiting_since()
                counts = {place: len(one.spool.names(place)) for place in (NEW, SENT)}
                waiting[one.agent.lower()] = {**counts, "since": "" if since is None else to_text(since)}
        return {
            "pid": os.getpid(),
            "at": self.clock.now(),
            "host": self.settings.host,
            "servers": self.settings.servers,
            "send": self.settings.send,
            "accept": self.settings.accept,
            "trouble": self.trouble,
            "refused_by_server": sorted({why for _, why, _ in self.refused_by_server.values()}),
            "hosts": {
                host: self.hosts.get(host, HostSigns()).model_dump()
                for host in self.keys.members().hosts
                if host != self.settings.host
            },
            "foreign": self.foreign,
            "agents": waiting,
            "pools": self.pools.status(),
            "owed": len(self.owed),
            "counts": self.counts,
        }

    def write_status(self) -> None:
        with _logged("write its status"):
            if self.membership.exists():
                self._write(STATUS, json.dumps(self.status()).encode())

    def note_foreign(self, subject: str) -> None:
        """Something came that the host named in its subject did not sign: the server lets another publish there."""
        if subject not in self.foreign:
            _log.warning("something came on %s that its host did not sign", subject[:200])
        if subject in self.foreign or len(self.foreign) < _MOST_REFUSED:
            self.foreign[subject] = self.clock.now()

    def wake(self, agent: str) -> None:
        """Tell an agent's daemon that there is something new."""
        if agent in self.local:
            wakeup.poke(self.local[agent].ws.state)

    # sending

    async def publish_new(self, js: JetStreamContext) -> None:
        """Offer the server everything that it has not stored."""
        if not self.nc.is_connected:
            return
        now = self.clock.monotonic()
        self.refused_by_server = {name: said for name, said in self.refused_by_server.items() if said[0] > now}
        for one in self.spools():
            with _logged(f"send the mail of {one.agent}"):
                names = [name for name in one.spool.names(NEW) if name not in self.refused_by_server]
                for start in range(0, len(names), BATCH):
                    await asyncio.gather(*(self._publish(js, one, name) for name in names[start : start + BATCH]))
        self.tell_daemons()

    async def _publish(self, js: JetStreamContext, one: Local, message_id: str) -> None:
        raw = one.spool.message(message_id)
        if raw is None:
            return
        try:
            message = self._sendable(one, raw)
            route = self._route(one, message)
            if isinstance(message, ReplyMessage) and (why := await self.pools.must_wait(message.in_reply_to)):
                self.wait(message_id, why)
                return
            if not self.attachments.are_sent(one, message, route):
                return
        except NatsError as error:
            self.wait(message_id, f"the server does not say who has a job: {reason_of(error)}")
            return
        except Refusal as refusal:
            receipt = self.receipt(message_id, raw, self.settings.host, str(refusal))
            one.spool.settle(receipt)
            wakeup.poke(one.ws.state)
            return
        # a new id for each copy: the server would swallow a repetition after it has lost what it stored
        headers = {"Nats-Msg-Id": f"{message_id}.{secrets.token_hex(8)}", _ID: message_id}
        try:
            await js.publish(str(route), raw, headers=headers)
        except (NatsError, APIError) as error:
            if not (isinstance(route, JobSubject) and is_queued(error)):
                why = f"the server does not take mail for {message.to}: {reason_of(error)}"
                self.wait(message_id, why, message.to or "")
                return
        one.spool.stored(message_id)
        self.attachments.send_again(message_id)
        self.sent_at[message_id] = self.clock.monotonic()
        self.copies[message_id] += 1
        self.counts["sent"] += 1

    def wait(self, message_id: str, why: str, to: str = "") -> None:
        """Try a message again later; `to` is the receiver, if the server does not take its mail."""
        self.refused_by_server[message_id] = (self.clock.monotonic() + RETRY, why, to.lower())

    def _route(self, one: Local, message: AnyMessage) -> Subject | JobSubject:
        """Where it goes now. Raises Refusal."""
        role = names.role_of(message.to or "")
        if isinstance(message, TaskMessage) and role:
            return JobSubject(role, self.settings.host, message.message_id or "")
        return subjects.mail_subject(self._address(one, message).host, self.settings.host)

    def _address(self, one: Local, message: AnyMessage) -> Address:
        """The receiver; for a message about a job of a pool, the host that has it. Raises Refusal."""
        to = Address.parse(message.to or "")
        if to is None and (host := self.pools.holder(one, message.attempt_id)):
            to = Address(host, (message.to or "").lower())
        if to is None or self.keys(to.host) is None:
            raise Refusal(f"{message.to} is on no host of the hub")
        return to

    def _sendable(self, one: Local, raw: bytes) -> AnyMessage:
        """The message. Raises Refusal if it can never be sent."""
        try:
            message = parse_message(raw, "message").message
        except MessageError as error:
            raise Refusal(str(error)) from error
        if Address.parse(message.from_) != Address(self.settings.host, one.agent.lower()):
            raise Refusal(f"it claims to be from {message.from_}, but is in the spool of {one.agent}")
        return message

    async def resend_lost(self, js: JetStreamContext) -> None:
        """Send again what has no receipt, if the server holds none of this host's mail for its host."""
        held: dict[str, int] = {}
        for one in self.spools():
            with _logged(f"send mail of {one.agent} again"):
                given = self.pools.given(one)
                for message_id in one.spool.names(SENT):
                    if message_id not in given:
                        await self._resend_if_lost(js, one, message_id, held)

    async def _resend_if_lost(self, js: JetStreamContext, one: Local, message_id: str, held: dict[str, int]) -> None:
        now = self.clock.monotonic()
        waited = now - self.sent_at.setdefault(message_id, now)
        if waited < mail.GRACE:
            return
        try:
            host = self._address(one, self._sendable(one, one.spool.message(message_id) or b"")).host
        except Refusal:
            one.spool.again(message_id)  # its host was removed from the hub: that is found when it is sent
            return
        if host not in held:
            held[host] = await self._held(js, host)
        if mail.must_resend(waited, held[host], self.copies[message_id]):
            _log.info("sending %s again: no receipt for %.0f s, %d held", message_id, waited, held[host])
            one.spool.again(message_id)
            del self.sent_at[message_id]
            self.woken.set()

    async def _held(self, js: JetStreamContext, host: str) -> int:
        wanted = str(subjects.mail_subject(host, self.settings.host))
        held = (await js.stream_info(subjects.STREAM, subjects_filter=wanted)).state.subjects or {}
        return sum(held.values())

    # receiving

    async def receive(self, js: JetStreamContext) -> None:
        """Take what the server has for this host, until it has no more consumer for it."""
        consumer = await js.pull_subscribe_bind(stream=subjects.STREAM, durable=self.settings.host)
        try:
            while True:
                with suppress(NatsTimeout, asyncio.TimeoutError):
                    await self._take_all(await consumer.fetch(BATCH, timeout=RETRY))
        finally:
            with suppress(NatsError):
                await consumer.unsubscribe()

    async def _take_all(self, messages: Iterable[Msg]) -> None:
        woken: set[str] = set()
        for message in messages:
            await self._take(message, woken)
        for agent in woken:
            self.wake(agent)

    async def _take(self, message: Msg, woken: set[str]) -> None:
        """One message: acknowledged to the server once it is durable here, or refused; left there if the disk fails."""
        subject = Subject.parse(message.subject)
        raw, message_id = message.data, (message.headers or {}).get(_ID, "")
        try:
            if subject is None:
                raise Refusal(f"the subject {message.subject[:200]} is unknown; this mailboxd may be too old")
            if subject.kind == "receipt":
                await self._take_receipt(subject, raw, woken)
            elif not self._take_mail(subject, message_id, raw, woken):
                await self._leave(message, _FETCHING)
                return
        except Refusal as refusal:
            await self._refuse(subject, message_id, raw, message.subject, str(refusal))
        except WorldError as error:
            _log.warning("mail waits at the server: %s", error)
            await self._leave(message)
            return
        except Exception:
            _log.exception("a bug in mailboxd: %s on %s; please report it", message_id[:128], message.subject[:200])
            if message.metadata.num_delivered < _MOST_TRIES:
                await self._leave(message)
                return
            await self._refuse(subject, message_id, raw, message.subject, "a bug in mailboxd: it cannot be handled")
        with suppress(NatsError):
            await message.ack()

    async def _leave(self, message: Msg, seconds: float = RETRY) -> None:
        """Have the server deliver it again later."""
        with suppress(NatsError):
            await message.nak(delay=seconds)

    async def refuse_job(self, subject: JobSubject, raw: bytes, reason: str) -> None:
        self._keep_refused(subject.job, raw, str(subject), reason)
        if is_id(subject.job) and self.keys(subject.sender):
            await self._send_receipt(self.receipt(subject.job, raw, subject.sender, reason))

    async def _refuse(self, subject: Subject | None, message_id: str, raw: bytes, said: str, reason: str) -> None:
        """Keep it, and tell the host that sent it: its receipt names the bytes, so it settles no other message."""
        self._keep_refused(message_id, raw, said, reason)
        if subject is not None and subject.kind == "mail" and is_id(message_id) and self.keys(subject.sender):
            await self._send_receipt(self.receipt(message_id, raw, subject.sender, reason))

    def _take_mail(self, subject: Subject, message_id: str, raw: bytes, woken: set[str]) -> bool:
        """Deliver it; false if its files are not here yet."""
        message = self.verified(subject, message_id, raw)
        role, to = names.role_of(message.to or ""), Address.parse(message.to or "")
        if role in self.settings.pools:
            agent = self.settings.pools[role].agent.lower()
        elif to is not None and to.host == self.settings.host:
            agent = to.agent
        else:
            raise Refusal(f"it is addressed to {message.to}, but came for the host {self.settings.host}")
        woken.add(agent)
        return self.put_in_inbox(self.receiver(agent), subject, message, raw)

    def receiver(self, agent: str) -> Local:
        """The workspace of an agent here. Raises Refusal, WorldError."""
        one = self.local.get(agent)
        if one is None and self._unread:
            raise WorldError(f"{agent} may be the agent of {', '.join(map(str, self._unread))}")
        if one is None:
            raise Refusal(f"the host {self.settings.host} has no agent {agent}")
        return one

    def put_in_inbox(self, one: Local, subject: Subject | JobSubject, message: AnyMessage, raw: bytes) -> bool:
        """Deliver what a host sent, unless it is there; then its receipt is owed. False if its files are not here yet.

        Raises Refusal, WorldError.
        """
        agent, sender, message_id = one.agent.lower(), subject.sender, message.message_id or ""
        name, sha256 = f"{message_id}.md", receipts.digest(raw)
        with world_errors(f"read {one.ws.inbox}"), directory(one.ws.root, "mailbox", "inbox") as inbox:
            in_inbox = lstat(inbox, name) is not None
        arrival = mail.on_arrival(
            sha256, in_inbox=in_inbox, committed=self._committed(one, [message_id]).get(message_id)
        )
        if arrival is Arrival.CONFLICT:
            raise Refusal(f"{agent} has another message with the id {message_id}")
        if arrival is Arrival.DELIVER:
            if isinstance(message, TaskMessage) and not names.permits(self.settings.accept, message.from_):
                raise Refusal(f"hub.yaml of {self.settings.host} does not let {message.from_} give work to its agents")
            by_person = message.from_.lower() == operators_name(sender)
            if by_person and not names.permits(self.settings.decide, sender):
                raise Refusal(f"hub.yaml of {self.settings.host} does not let a person on {sender} decide")
            if not self.attachments.are_here(one.ws, message, subject):
                return False
            deliver(one.ws.inbox, name, raw, below=one.ws.root, renamed=True, program="hub")
            self.attachments.delivered(message_id)
            self.counts["received"] += 1
        else:
            self.counts["repeats"] += 1
        self.owed[agent, message_id] = (sender, sha256)
        return True

    def verified(self, subject: Subject | JobSubject, message_id: str, raw: bytes) -> AnyMessage:
        """The message, if the host that its subject names signed it. Raises Refusal."""
        host = subject.sender
        key = self.keys(host)
        if key is None:
            raise Refusal(f"{host} is not a host of the hub")
        try:
            message = parse_message(raw, "message").message
        except MessageError as error:
            raise Refusal(str(error)) from error
        sender = Address.parse(message.from_)
        if sender is None or sender.host != host:
            raise Refusal(f"it claims to be from {message.from_}, but came from the host {host}")
        if message.message_id is None or message.message_id != message_id:
            raise Refusal("its id is missing, or not the one that it came under")
        if not key.has_signed(canonical(raw), message.signature or ""):
            self.note_foreign(str(subject))
            raise Refusal(f"it is not signed by the host {host}, or was changed after that")
        return message

    async def _take_receipt(self, subject: Subject, raw: bytes, woken: set[str]) -> None:
        receipt, key = Receipt.parse(raw), self.keys(subject.sender)
        if receipt is None or key is None or not key.has_signed(receipt.content(), receipt.signature):
            self.note_foreign(str(subject))
            raise Refusal(f"this receipt is not signed by the host {subject.sender}")
        found = self._pending(receipt.message_id)
        if found is None:
            self.counts["repeats"] += 1
            return  # it was settled before
        agent, one, pending = found
        message = parse_message(pending, "message").message
        role, to = names.role_of(message.to or ""), Address.parse(message.to or "")
        host = to.host if to else subject.sender  # any host may have a job of a pool
        problem = receipts.settles(receipt, subject.sender, (host, receipts.digest(pending)))
        if problem or receipt.to != self.settings.host:
            raise Refusal(f"a receipt for {receipt.message_id} settles nothing: {problem or 'it is for another host'}")
        if role and isinstance(message, TaskMessage) and not receipt.refused:
            one.spool.taken(receipt, message.attempt_id or "")
            woken.add(agent)
            return
        self.attachments.remove(one, receipt.message_id, subjects.POOLS if role else host)
        one.spool.settle(receipt)
        self.sent_at.pop(receipt.message_id, None)
        del self.copies[receipt.message_id]
        woken.add(agent)

    def _pending(self, message_id: str) -> tuple[str, Local, bytes] | None:
        """The agent whose message waits for this receipt, and its bytes."""
        for one in self.spools():
            if (raw := one.spool.message(message_id)) is not None:
                return one.agent.lower(), one, raw
        return None

    def _keep_refused(self, message_id: str, raw: bytes, subject: str, reason: str) -> None:
        """Keep what was refused, with its reason, for a person to look at."""
        self.counts["refused"] += 1
        _log.warning("mail was refused: %s on %s: %s", message_id[:128] or "?", subject[:200], first_line(reason))
        folder = self.membership.folder / "refused"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if sum(1 for _ in folder.iterdir()) < 2 * _MOST_REFUSED:
                name = f"{self.clock.now().replace(':', '')}-{secrets.token_hex(4)}"
                (folder / f"{name}.md").write_bytes(raw)
                why = {"subject": subject, "message_id": message_id, "reason": reason}
                (folder / f"{name}.reason.json").write_text(json.dumps(why, indent=1))

    # receipts

    async def send_receipts(self) -> None:
        """Send the receipts of what the daemons have committed."""
        for agent, one in list(self.local.items()):
            names = [message_id for owner, message_id in self.owed if owner == agent]
            if not names:
                continue
            with _logged(f"read what {agent} has committed"):
                committed = list(self._committed(one, names).items())
                for start in range(0, len(committed), BATCH):
                    batch = committed[start : start + BATCH]
                    await asyncio.gather(*(self._pay(agent, message_id, sha256) for message_id, sha256 in batch))

    async def _pay(self, agent: str, message_id: str, sha256: str) -> None:
        """Send a receipt that is owed."""
        host, expected = self.owed[agent, message_id]
        refused = "" if sha256 == expected else f"{agent} has another message with the id {message_id}"
        receipt = Receipt(message_id, expected, self.settings.host, host, self.clock.now(), refused)
        if await self._send_receipt(receipt.signed(self.key.sign)):
            self.owed.pop((agent, message_id), None)

    def receipt(self, message_id: str, raw: bytes, to: str, refused: str) -> Receipt:
        reason, sha256 = receipts.shortened(refused), receipts.digest(raw)
        return Receipt(message_id, sha256, self.settings.host, to, self.clock.now(), reason).signed(self.key.sign)

    async def _send_receipt(self, receipt: Receipt) -> bool:
        subject = str(subjects.receipt_subject(receipt.to, self.settings.host))
        try:
            await self.nc.jetstream().publish(
                subject, receipt.to_bytes(), headers={"Nats-Msg-Id": secrets.token_hex(16)}
            )
        except (NatsError, APIError) as error:
            _log.debug("a receipt waits: %s", error)  # its sender will ask again, by sending the message again
            return False
        return True

    def _committed(self, one: Local, names: Iterable[str]) -> dict[str, str]:
        """The digests of the messages that the daemon has committed, by their ids."""
        with suppress(UnavailableError), opened(one.ws.database) as report:
            return report.committed(names)
        return {}


def reason_of(error: Exception) -> str:
    return getattr(error, "description", None) or first_line(str(error)) or type(error).__name__


@contextmanager
def _logged(doing: str) -> Iterator[None]:
    """Log what the disk refuses, and continue: it is tried again."""
    try:
        yield
    except (OSError, MailboxdError) as error:
        _log.warning("the hub process cannot %s: %s", doing, error)
