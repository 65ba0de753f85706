"""What became of messages: this host asks the receivers of its own, and answers those that ask here.

Mail without a receipt is asked about after a while and then ever more rarely; only what is unknown there is sent again.
When another host has begun anew, and now and then, it is also asked about what it took and what is not done: so that a
host which was restored from a backup is noticed however young that was. Work that it has forgotten may have begun
there, so it is left to a person; everything else that it missed is sent again. What a host has that is revoked is left
to a person, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nats.errors import Error as NatsError

from mailboxd.core.times import to_epoch, to_text
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MailboxdError, MessageError, UnavailableError
from mailboxd.formats.mailbox.files import directory, lstat, read_file, world_errors
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.hub.files.spool import FORGOTTEN, NEW, SENT, Forgotten
from mailboxd.hub.process.here import ThisHost, logged
from mailboxd.hub.process.jobs_given import JobsGiven
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.receipts import Receipts
from mailboxd.hub.process.requests import Requests
from mailboxd.hub.process.sending import Sending
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import mail, names, subjects
from mailboxd.hub.wire.mail import Known
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.receipts import digest
from mailboxd.hub.wire.sealing import SealError
from mailboxd.ledger.reports import Row, opened

_AT_ONCE = 500
"""Messages in a question."""
_PATIENCE = 5.0
"""Seconds for an answer."""
_EVERY = 300.0
"""Seconds between two questions about what a host has taken, if it does not begin anew."""
_TOLD = 30 * 86_400.0
"""Seconds: how far back a host that has forgotten gets again what it was told."""
_LARGEST = 2 << 20
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Question:
    """One message that a host is asked about."""

    message_id: str
    agent: str
    sha256: str


@dataclass(slots=True)
class Tracking:
    """The questions about messages of one hub process."""

    here: ThisHost
    workspaces: Workspaces
    under_way: UnderWay
    receipts: Receipts
    presence: Presence
    jobs_given: JobsGiven
    sending: Sending
    requests: Requests
    _sent: dict[str, tuple[Address, str, str]] = field(default_factory=dict)
    """The messages without a receipt by their ids: receiver, digest, and the key of the receiver's host."""
    _runs: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The run of each host that was asked what it took, and when."""
    _members: dict[str, str] = field(default_factory=dict)
    """The keys of all hosts when this was last looked at."""
    _looks_at: float = 0.0
    """When it is looked at again whether hosts that have work were revoked, if the list stays as it is."""

    def __post_init__(self) -> None:
        self.requests.handlers["messages"] = self._answer

    async def tend(self) -> None:
        """Ask what is due, and send again what the server has lost. Raises NatsError, WorldError."""
        waiting: dict[str, dict[str, Local]] = {}
        found: set[str] = set()
        for one in self.workspaces.spools():
            with logged(f"read what {one.agent} has sent"):
                given = self.jobs_given.of(one)
                for message_id in one.spool.names(SENT):
                    if message_id not in given and (to := self._receiver(one, message_id)) is not None:
                        found.add(message_id)
                        waiting.setdefault(to.host, {})[message_id] = one
        self._sent = {name: known for name, known in self._sent.items() if name in found}
        self._leave_to_persons()
        hosts = {*waiting, *self.presence.hosts}
        await asyncio.gather(*(self._ask_all(host, waiting.get(host, {})) for host in hosts))

    async def _ask_all(self, host: str, sent: Mapping[str, Local]) -> None:
        """Ask one host; another one that does not answer delays none."""
        try:
            await self._ask_about_mail(host, sent)
            await self._ask_about_work(host)
        except (TimeoutError, NatsError, MailboxdError) as error:
            _log.debug("asked again: %s: %s", host, error)

    def _receiver(self, one: Local, message_id: str) -> Address | None:
        known = self._sent.get(message_id)
        if known is None or str(self.here.keys(known[0].host)) != known[2]:  # a host may be revoked at any time
            raw = one.spool.message(message_id) or b""
            to = self.sending.receiver(one, raw)
            if to is None:
                one.spool.again(message_id)  # it can be sent no more: that is found when it is sent
                return None
            self._sent[message_id] = to, digest(raw), str(self.here.keys(to.host))
        return self._sent[message_id][0]

    # mail without a receipt

    async def _ask_about_mail(self, host: str, sent: Mapping[str, Local]) -> None:
        way, is_new = self.under_way, self._is_new_run(host)
        due = [name for name in sent if way.may_ask(name) or is_new]
        questions = [Question(name, self._sent[name][0].agent, self._sent[name][1]) for name in due]
        answers = await self._ask(host, questions, receipts=True)
        if not answers:
            return
        held = await self._held(host) if Known.UNKNOWN in answers.values() else 0
        now = self.here.clock.monotonic()
        for name, known in answers.items():
            if name not in way.sent_at:
                continue  # its receipt has come meanwhile
            if known is not Known.UNKNOWN:
                way.is_there(name)
            elif mail.must_resend(known, now - way.sent_at[name], held, way.copies[name]):
                _log.info("sending %s again: %s does not know it, %d held", name, host, held)
                sent[name].spool.again(name)
                self.here.woken.set()

    async def _held(self, host: str) -> int:
        wanted = str(subjects.mail_subject(host, self.here.settings.host))
        stored = (await self.here.js.stream_info(subjects.STREAM, subjects_filter=wanted)).state.subjects or {}
        return sum(stored.values())

    # work and words that were taken

    def _leave_to_persons(self) -> None:
        """Give up the work that hosts have which were revoked: they will not answer. It may have begun there."""
        members, own, now = self.here.keys.members(), self.here.settings.host, self.here.clock.monotonic()
        keys = {host: str(members.key(host)) for host in members.hosts}
        if own not in keys or (keys == self._members and now < self._looks_at):
            return
        replaced = {host for host, key in self._members.items() if keys.get(host, key) != key}
        local, looked_at = list(self.workspaces.local.values()), 0
        for one in local:
            with logged(f"read what {one.agent} gave to other hosts"):
                with suppress(UnavailableError):  # its daemon has never run
                    self._leave(one, keys.keys(), replaced)
                looked_at += 1
        if looked_at == len(local):
            self._members, self._looks_at = keys, now + _EVERY

    def _leave(self, one: Local, members: Set[str], replaced: Set[str]) -> None:
        """Give up what an agent gave to hosts that are no members, or were replaced. Raises MailboxdError."""
        with opened(one.ws.database) as report:
            # these come first, whatever their names are
            local = {*self.workspaces.local, *(name.lower() for name in report.agents())}
            work = [row for row in report.given_to_hosts() if row["receiver"].lower() not in local]
        under_way = {name for place in (NEW, SENT, FORGOTTEN) for name in one.spool.names(place)}
        for row in work:
            to, name = Address.parse(row["receiver"]), row["message_id"]
            if to is None or name in under_way or (to.host in members and to.host not in replaced):
                continue
            why = f"the host {to.host}, which had taken this work, was revoked"
            if to.host in replaced:
                why = f"the host {to.host}, which had taken this work, was invited again: another one has its name now"
            _log.warning("%s is left to a person: %s", name, why)
            one.spool.forget(name, Forgotten(row["task"], row["attempt"], to.host, why))
            self.workspaces.wake(one.agent.lower())

    def _is_new_run(self, host: str) -> bool:
        return self._runs.get(host, ("", 0.0))[0] != self.presence.run_of(host)

    async def _ask_about_work(self, host: str) -> None:
        """Ask a host what it still knows of what it took."""
        now, run, is_new = self.here.clock.monotonic(), self.presence.run_of(host), self._is_new_run(host)
        if not run or not (is_new or now - self._runs[host][1] >= _EVERY):
            return
        for one in list(self.workspaces.local.values()):
            under_way, work, said = set[str](), dict[str, Row](), dict[str, Row]()
            with (
                logged(f"read what {one.agent} gave to {host}"),
                suppress(UnavailableError),
                opened(one.ws.database) as report,
            ):
                under_way = {*one.spool.names(NEW), *one.spool.names(SENT)}
                work = {row["message_id"]: row for row in report.given_to_host(host)}
                said = {row["message_id"]: row for row in report.said_to_host(host, self._since())} if is_new else {}
            asked = [name for name in (work | said) if name not in under_way]
            rows = work | said
            answers = await self._ask(host, [_question(name, rows[name]) for name in asked], receipts=False)
            if answers is None:
                return  # it does not answer: again in a moment
            for name, known in answers.items():
                if known is not Known.UNKNOWN:
                    continue
                if name in work:
                    _log.warning("the host %s has forgotten %s, which it had taken", host, name)
                    one.spool.forget(name, Forgotten(work[name]["task"], work[name]["attempt"], host))
                    self.workspaces.wake(one.agent.lower())
                else:
                    self._say_again(one, name, said[name]["path"])
        self._runs[host] = run, now

    def _since(self) -> str:
        return to_text(to_epoch(self.here.clock.now()) - _TOLD)

    def _say_again(self, one: Local, message_id: str, path: str) -> None:
        """Send once more what a host has forgotten: an answer, a result. It is fenced there if it comes too late."""
        *folders, name = path.split("/")
        with suppress(OSError, MessageError), directory(one.ws.mailbox, *folders) as folder:
            raw = read_file(folder, name, _LARGEST)
            if raw and not parse_message(raw, "message").message.attachments:  # its files were removed with its receipt
                _log.info("sending %s again: its receiver has forgotten it", message_id)
                one.spool.put(message_id, raw)
                self.here.woken.set()

    # asking and answering

    async def _ask(self, host: str, about: Iterable[Question], *, receipts: bool) -> dict[str, Known] | None:
        """What a host knows of messages, but for those of which it says nothing; None if it does not answer."""
        questions, answers = list(about), dict[str, Known]()
        for start in range(0, len(questions), _AT_ONCE):
            batch = questions[start : start + _AT_ONCE]
            if (said := await self._ask_at_once(host, batch, receipts=receipts)) is None:
                return None
            wanted = {one.message_id for one in batch}
            for name, known in said.items():
                with suppress(ValueError):
                    if name in wanted:
                        answers[name] = Known(known)
        return answers

    async def _ask_at_once(self, host: str, batch: list[Question], *, receipts: bool) -> Mapping[str, Any] | None:
        about: dict[str, dict[str, str]] = {}
        for one in batch:
            about.setdefault(one.agent, {})[one.message_id] = one.sha256
        try:
            found = await self.requests.ask(host, "messages", {"about": about, "receipts": receipts}, _PATIENCE)
        except (TimeoutError, NatsError, UnavailableError, SealError):
            return None
        known = found.get("known")
        return known if isinstance(known, dict) else {}

    async def _answer(self, host: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        known: dict[str, Known] = {}
        if isinstance(asked := content.get("about"), dict):
            for agent, wanted in asked.items():
                one = self.workspaces.local.get(self.here.server_of(names.role_of(agent)) or agent)
                if isinstance(wanted, dict) and one is not None:
                    known |= self._answers(one, host, wanted, receipts=content.get("receipts") is True)
        return {"known": known}

    def _answers(self, one: Local, host: str, wanted: Mapping[str, Any], *, receipts: bool) -> dict[str, Known]:
        """What the agent here knows; nothing of what cannot be read now."""
        ids = [name for name, sha256 in wanted.items() if is_id(name) and isinstance(sha256, str)][:_AT_ONCE]
        try:
            with world_errors(f"read {one.ws.inbox}"), directory(one.ws.root, "mailbox", "inbox") as inbox:
                waiting = {name for name in ids if lstat(inbox, f"{name}.md") is not None}
            committed = self._committed(one, host, ids)
        except MailboxdError as error:
            _log.warning("%s is not told what %s knows: %s", host, one.agent, error)
            return {}
        known = {
            name: mail.known(wanted[name], in_inbox=name in waiting, committed=committed.get(name)) for name in ids
        }
        if receipts:
            for name, state in known.items():
                if state is not Known.UNKNOWN:
                    self.receipts.owe(one.agent.lower(), name, host, wanted[name], is_told=True)
        return known

    def _committed(self, one: Local, host: str, ids: Iterable[str]) -> dict[str, str]:
        """Unlike for a message that comes, a database that cannot be read is not one that knows nothing."""
        try:
            with opened(one.ws.database) as report:
                return report.committed(host, ids)
        except UnavailableError:  # its daemon has never run
            return {}


def _question(message_id: str, row: Mapping[str, Any]) -> Question:
    to = Address.parse(row["receiver"])
    return Question(message_id, to.agent if to else "", row["sha256"])
