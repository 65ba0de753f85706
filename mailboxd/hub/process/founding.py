"""What only the founder's hub process does: streams and consumers, letting hosts in, and removing what one left."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

from mailboxd.core.vocabulary import POOL
from mailboxd.errors import MailboxdError
from mailboxd.formats.keys import PublicKey
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.hub.files.server import configure, revoke
from mailboxd.hub.process import attachments
from mailboxd.hub.process.api import all_of
from mailboxd.hub.process.here import ThisHost, reason_of
from mailboxd.hub.process.pool_tables import streams
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.wire.members import Invited, Members, answered
from mailboxd.hub.wire.names import untoken
from mailboxd.hub.wire.subjects import (
    CLAIMS,
    FILES,
    JOBS,
    STREAM,
    claims_of,
    files_of,
    guest,
    incoming,
    is_inbox_of,
    jobs_of,
    mail_subject,
    receipt_subject,
    stored_of,
)

PER_SUBJECT = 256
"""Messages of one host for another in the server's store; more wait in the sender's spool."""
_MOST_AGE = 30 * 86_400.0
"""Seconds that the server keeps a message; its sender sends it again."""
_UNACKNOWLEDGED = 256
_ACK_WAIT = 30.0
_MOST_DELIVERIES = 20
"""Of a message that ends the process each time; its sender asks about it, and sends it again ever more rarely."""
_TRIES, _PAUSE = 10, 0.3
T = TypeVar("T")
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Founding:
    """The founder's part of one hub process."""

    here: ThisHost
    presence: Presence
    _made: int = -1
    """The version of the list for whose hosts there are consumers."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One change at a time."""

    @property
    def _api(self) -> JetStreamContext:
        return all_of(self.here.nc, self.here.key)

    # what the server stores

    async def prepare(self) -> None:
        """Create the streams and a consumer for each host; remove what revoked hosts left. Raises NatsError."""
        async with self._one:
            members = self.here.keys.members()
            consumers = await self._make_streams(members)
            self._forget_expired()
            if (self._made, consumers) == (members.version, len(members.hosts)):
                return
            known = {name async for name in self._consumers()}
            for host in members.hosts.keys() - known:
                await self._api.add_consumer(STREAM, consumer_of(host))
            for host in known - members.hosts.keys():
                await self._remove(host)
            self._made = members.version

    async def _make_streams(self, members: Members) -> int:
        """Returns the number of hosts that can read mail."""
        consumers = 0
        for wanted in streams_for(members, self.here.settings.replicas, self.here.settings.store_bytes):
            try:
                found = await self._api.add_stream(wanted)
            except BadRequestError:  # it is there, with other settings
                found = await self._api.update_stream(wanted)
            if wanted.name == STREAM:
                consumers = found.state.consumer_count
        return consumers

    def _forget_expired(self) -> None:
        """Have the server no longer know invitations that have expired."""
        membership, now = self.here.membership, self.here.clock.now()
        over = [host for host, one in membership.invited().items() if one.is_over(now)]
        for host in over:
            _log.info("the invitation of %s has expired", host)
            membership.invite(host, None)
        if over:
            configure(membership)

    async def _consumers(self) -> AsyncIterator[str]:
        start = 0
        while page := await self._api.consumers_info(STREAM, start):
            for one in page:
                yield one.name
            start += len(page)

    # letting in

    async def hear(self, message: Msg) -> None:
        """A host asks to be let in."""
        host, here = message.subject.rpartition(".")[2], self.here
        invited = here.membership.invited().get(host)
        key = invited.asker(host, message.data) if invited is not None else None
        if invited is None or key is None or not is_inbox_of(guest(host), message.reply):
            _log.warning("something came on %s without an invitation", message.subject[:200])
            return
        before = here.keys.members()
        said = self._let_in(host, invited, key)
        await here.nc.publish(message.reply, answered(here.key, key, said))
        if isinstance(said, Members) and said != before:
            await here.nc.flush()  # a server that reads its configuration forgets whom it owes an answer
            configure(here.membership)
            await self._again(self.prepare)
            await self.presence.say()
            _log.info("the host %s has joined", host)

    def _let_in(self, host: str, invited: Invited, key: PublicKey) -> Members | str:
        """The list, with that host on it, or why it is refused."""
        membership, now = self.here.membership, self.here.clock.now()
        members = self.here.keys.members()
        if refused := invited.refusal(host, key, now):
            _log.warning("another host asks to be let in as %s: %s", host, refused)
            membership.invite(host, replace(invited, refused=now))
            return refused
        if members.key(host) == key:
            return members
        membership.invite(host, replace(invited, used_by=str(key)))
        return membership.change(host, key, invited.pools)

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do this, if need be again: a server that reads its configuration refuses some of it. Raises NatsError."""
        for _ in range(_TRIES):
            with suppress(NatsError, asyncio.TimeoutError):
                return await work()
            await asyncio.sleep(_PAUSE)
        return await work()

    # revoking

    async def revoke(self, host: str, export: str = "") -> dict[str, dict[str, int]]:
        """Take a host off the list, and remove all that the server has from and for it; returns what that was.

        `export`: a directory into which it is written before. Raises NatsError, Refused, ConfigError, WorldError.
        """
        async with self._one:
            members = revoke(self.here.membership, host)
            await self._again(lambda: self._make_streams(members))  # first: so nothing comes after what is removed
            return await self._again(lambda: self._remove(host, export))

    async def revoked(self, host: str, export: str) -> dict[str, object]:
        """For the command: what was removed, or why it is not."""
        try:
            return {"removed": await self.revoke(host, export)}
        except (TimeoutError, MailboxdError, NatsError) as error:
            return {"failed": reason_of(error)}

    async def _traces(self, host: str) -> dict[str, dict[str, int]]:
        """How many messages the server has from and for a host, by kind and the other host."""
        found: dict[str, dict[str, int]] = {}
        for kind, stream, wanted in traces_of(host):
            subjects = (await self._api.stream_info(stream, subjects_filter=wanted)).state.subjects or {}
            others: Counter[str] = Counter()
            for subject, count in subjects.items():
                others[_other(kind, subject)] += count
            found |= {kind: dict(others)} if others else {}
        return found

    async def _remove(self, host: str, export: str = "") -> dict[str, dict[str, int]]:
        found = await self._traces(host)
        for kind, stream, wanted in traces_of(host):
            if kind in found:
                if export:
                    await self._export(Path(export) / kind, stream, wanted)
                await self._api.purge_stream(stream, subject=wanted)
        with suppress(NotFoundError):
            await self._api.delete_consumer(STREAM, host)
        _log.info("removed from the server what %s left: %s", host, json.dumps(found))
        return found

    async def _export(self, folder: Path, stream: str, wanted: str) -> None:
        """Each message as a file: what the server has of it."""
        with world_errors(f"write to {folder}"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = 1
            while True:
                try:
                    one = await self._api.get_msg(stream, number, subject=wanted, next=True)
                except NotFoundError:
                    return
                number = (one.seq or number) + 1
                (folder / f"{one.seq:012}.md").write_bytes(one.data or b"")
                about = {"subject": one.subject, "headers": one.headers or {}}
                (folder / f"{one.seq:012}.json").write_text(json.dumps(about, indent=1))


def streams_for(members: Members, replicas: int, most: int) -> list[StreamConfig]:
    """The streams, each of at most so many bytes. They take only what is for hosts of the hub."""
    mail, files = stored_of(members.hosts)
    wanted = StreamConfig(
        name=STREAM,
        subjects=mail,
        retention=RetentionPolicy.WORK_QUEUE,
        storage=StorageType.FILE,
        discard_new_per_subject=True,
        max_msgs_per_subject=PER_SUBJECT,
        max_age=_MOST_AGE,
        num_replicas=replicas,
    )
    others = (attachments.stream(replicas).evolve(subjects=files), *streams(replicas))
    return [one.evolve(max_bytes=most, discard=DiscardPolicy.NEW) for one in (wanted, *others)]


def consumer_of(host: str) -> ConsumerConfig:
    """The subjects of the stream that a host reads."""
    return ConsumerConfig(
        name=host,
        durable_name=host,
        filter_subject=incoming(host),
        ack_wait=_ACK_WAIT,
        max_deliver=_MOST_DELIVERIES,
        max_ack_pending=_UNACKNOWLEDGED,
    )


def traces_of(host: str) -> list[tuple[str, str, str]]:
    """Where a host leaves something at the server: kind, stream and subjects."""
    return [
        ("mail-from", STREAM, str(mail_subject("*", host))),
        ("mail-for", STREAM, str(mail_subject(host, "*"))),
        ("receipts-from", STREAM, str(receipt_subject("*", host))),
        ("receipts-for", STREAM, str(receipt_subject(host, "*"))),
        ("jobs-from", JOBS, jobs_of(sender=host)),
        ("claims-of", CLAIMS, claims_of(host=host)),
        ("claims-for", CLAIMS, claims_of(sender=host)),
        ("files-from", FILES, files_of(sender=host)),
        ("files-for", FILES, files_of(host)),
    ]


def _other(kind: str, subject: str) -> str:
    """Whom a message concerns beside the host: another host, a pool, or nobody."""
    parts = subject.split(".")
    match kind:
        case "jobs-from":
            return f"{POOL}{untoken(parts[3])}"
        case "claims-of" | "claims-for":
            return ""
        case "files-from" | "files-for":
            return parts[3] if kind == "files-from" else parts[4]
        case _:
            return parts[2] if kind.endswith("-from") else parts[4]
