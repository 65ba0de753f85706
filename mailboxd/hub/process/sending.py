"""Sending: messages go from the spools to the server."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from nats.errors import Error as NatsError
from nats.js.errors import APIError

from mailboxd.errors import MessageError
from mailboxd.formats.keys import PublicKey
from mailboxd.formats.protocol.messages import AnyMessage, ReplyMessage, TaskMessage, parse_message
from mailboxd.host import wakeup
from mailboxd.hub.files.spool import NEW
from mailboxd.hub.process.attachments import Attachments
from mailboxd.hub.process.here import ThisHost, logged, reason_of
from mailboxd.hub.process.jobs_given import JobsGiven, nobody_may_serve
from mailboxd.hub.process.jobs_held import JobsHeld
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.receipts import BATCH, Receipts
from mailboxd.hub.process.receiving import DIGEST, ID
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import names, subjects
from mailboxd.hub.wire.mail import Refusal
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.receipts import digest
from mailboxd.hub.wire.sealing import SealError, can_receive, seal
from mailboxd.hub.wire.subjects import JobSubject, Subject


@dataclass(slots=True)
class Sending:
    """The part of the hub process that sends mail."""

    here: ThisHost
    workspaces: Workspaces
    under_way: UnderWay
    attachments: Attachments
    receipts: Receipts
    presence: Presence
    jobs_given: JobsGiven
    jobs_held: JobsHeld
    _version: int = 0
    """Of the list of hosts when this was last done."""

    async def publish_new(self) -> None:
        """Offer the server everything that it has not stored."""
        if not self.here.nc.is_connected:
            return
        if (version := self.here.keys.members().version) != self._version:
            self.under_way.waiting.clear()  # what waits for a host that was revoked fails at once
            self._version = version
        self.under_way.due_again(self.presence.is_back)
        if not self.under_way.waiting:
            for stream in (subjects.STREAM, subjects.JOBS):
                self.here.full_of.pop(stream, None)
        for one in self.workspaces.spools():
            with logged(f"send the mail of {one.agent}"):
                names = [name for name in one.spool.names(NEW) if name not in self.under_way.waiting]
                for start in range(0, len(names), BATCH):
                    await asyncio.gather(*(self._publish(one, name) for name in names[start : start + BATCH]))

    async def _publish(self, one: Local, message_id: str) -> None:
        raw = one.spool.message(message_id)
        if raw is None:
            return
        try:
            message = self._sendable(one, raw)
            route = self._route(one, message)
            if isinstance(message, ReplyMessage) and (why := await self.jobs_held.must_wait(message)):
                self.under_way.wait(message_id, why)
                return
            receivers = self._receivers(route)
            if not receivers:
                why = nobody_may_serve(names.role_of(message.to or ""))
                self.under_way.wait(message_id, why, message.to or "")
                return
            if not self.attachments.are_sent(one, message, route, receivers):
                return
            sealed = seal(raw, receivers)
        except NatsError as error:
            self.under_way.wait(message_id, f"the server does not say who has a job: {reason_of(error)}")
            return
        except (Refusal, SealError) as refusal:
            receipt = self.receipts.make(message_id, raw, self.here.settings.host, str(refusal))
            one.spool.settle(receipt)
            wakeup.poke(one.ws.state)
            return
        # a new id for each copy: the server would swallow a repetition after it has lost what it stored
        stream = subjects.JOBS if isinstance(route, JobSubject) else subjects.STREAM
        copy = f"{message_id}.{secrets.token_hex(8)}"
        headers = {"Nats-Msg-Id": copy, ID: message_id, DIGEST: digest(raw)}
        try:
            await self.here.js.publish(str(route), sealed, headers=headers)
        except (NatsError, APIError) as error:
            said = reason_of(error)
            self.under_way.wait(message_id, f"the server does not take mail for {message.to}: {said}", message.to or "")
            if "per subject" not in said:  # that limit is one of this receiver alone
                self.here.full_of[stream] = f"{self.here.server} takes no mail: {said}"
            return
        self.here.full_of.pop(stream, None)
        one.spool.stored(message_id)
        self.attachments.send_again(message_id)
        self.under_way.sent(message_id)
        self.here.counts["sent"] += 1

    def _route(self, one: Local, message: AnyMessage) -> Subject | JobSubject:
        """Where it goes now. Raises Refusal."""
        role = names.role_of(message.to or "")
        if isinstance(message, TaskMessage) and role:
            return JobSubject(role, self.here.settings.host, message.message_id or "")
        return subjects.mail_subject(self._address(one, message).host, self.here.settings.host)

    def _receivers(self, route: Subject | JobSubject) -> dict[str, PublicKey]:
        """The hosts that may read what goes there now, and their keys."""
        members = self.here.keys.members()
        if isinstance(route, JobSubject):
            found = ((host, members.key(host)) for host in members.serving(route.role))
            return {host: key for host, key in found if key is not None and can_receive(key)}
        key = members.key(route.to)
        return {} if key is None else {route.to: key}

    def _address(self, one: Local, message: AnyMessage) -> Address:
        """The receiver; for a message about a job of a pool, the host that has it. Raises Refusal."""
        named = to = Address.parse(message.to or "")
        if to is None and (host := self.jobs_given.holder(one, message.attempt_id)):
            to = Address(host, (message.to or "").lower())
        key = None if to is None else self.here.keys(to.host)
        if to is None or key is None:
            raise Refusal(f"{message.to} is on no host of the hub: it was revoked, or never joined")
        if named and one.spool.pin(message.message_id or "", str(key)) != str(key):
            raise Refusal(
                f"the host {to.host} was invited again after this was first sent: another one has its name now"
            )
        return to

    def receiver(self, one: Local, raw: bytes) -> Address | None:
        """The receiver of a message in a spool; None if it can be sent no more."""
        try:
            return self._address(one, self._sendable(one, raw))
        except Refusal:
            return None

    def _sendable(self, one: Local, raw: bytes) -> AnyMessage:
        """The message. Raises Refusal if it can never be sent."""
        try:
            message = parse_message(raw, "message").message
        except MessageError as error:
            raise Refusal(str(error)) from error
        if Address.parse(message.from_) != Address(self.here.settings.host, one.agent.lower()):
            own = self.here.settings.host
            raise Refusal(
                f"it is from {message.from_}, and this host, now {own}, was not in the hub or had another name"
            )
        return message
