"""The cards of this host and of the others, as the hub process says and hears them."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from nats.errors import Error as NatsError
from pydantic import ValidationError

from mailboxd.core.times import to_epoch, to_text
from mailboxd.errors import MessageError, UnavailableError, WorldError
from mailboxd.formats.health import Grade
from mailboxd.formats.keys import PublicKey
from mailboxd.formats.mailbox.identity import read_identity
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.hub.client.report import silence
from mailboxd.hub.files.spool import NEW, SENT
from mailboxd.hub.files.status import HeldMail
from mailboxd.hub.files.view import older
from mailboxd.hub.process.here import MOST_REFUSED, ThisHost
from mailboxd.hub.process.requests import Requests
from mailboxd.hub.process.under_way import Held
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import subjects
from mailboxd.hub.wire.members import Members, contradiction
from mailboxd.hub.wire.names import Address
from mailboxd.hub.wire.presence import (
    CARD_SECONDS,
    MOST_RUNS,
    MOST_SKEW,
    Card,
    HostSigns,
    MailCard,
    is_repeated,
    was_set_back,
)
from mailboxd.hub.wire.signed_json import signed_json, verified_json

_PASSING = ("at", "number", "hello")
"""What differs in each card."""
_PATIENCE, _MOST_WATCHED = 1.5, 50
"""Seconds for the card of a host, and waiting messages of a workspace whose receivers are asked for theirs."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Presence:
    """The hosts of the hub, as one hub process knows them."""

    here: ThisHost
    workspaces: Workspaces
    requests: Requests
    hosts: dict[str, HostSigns] = field(default_factory=dict)
    held: HeldMail = field(default_factory=lambda: HeldMail(held=0, again=0, stopped=0))
    """The messages that the server holds for this host, as in `MailCard`."""
    remembers: str = ""
    """When the last run noted that it is there."""
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _greeted: float | None = None
    """When this run first asked the others for their cards."""
    _heard: set[str] = field(default_factory=set)
    """The hosts whose cards have come in this run."""
    _founder_at: float = 0.0
    """When the founder's card came last, which has the list of hosts."""
    _strangers: dict[str, float] = field(default_factory=dict)
    """When hosts that are in no list were first met."""
    _stopped: int = 0
    _said: dict[str, object] = field(default_factory=dict)
    """The last card, but for what differs in each."""
    _connection: int = -1
    """How often the connection had been lost when the other hosts were asked for their cards."""
    _looked: float = -math.inf
    _to: dict[str, str] = field(default_factory=dict)
    """The receiving host of each message that was looked at."""
    _was_greeted: bool = False
    """Another host wants a card; many greetings get one answer."""
    _has_news: bool = False
    """The agents or pools differ from those reported to the daemons; many cards are reported at once."""

    def __post_init__(self) -> None:
        self.requests.handlers["card"] = self._tell_card

    def own(self, *, hello: bool = False) -> Card:
        here, agents = self.here, {}
        for one in self.workspaces.local.values():
            agents[one.agent] = self.workspaces.card(one).model_copy(update={"role": read_identity(str(one.ws.root))})
        return Card(
            host=here.settings.host, at=here.clock.now(), run=self.run, number=next(self.numbers),
            remembers=self.remembers, agents=agents, mail=self._mail(), hello=hello,
            pools={role: pool.slots for role, pool in here.settings.pools.items()},
        )  # fmt: skip

    def _mail(self) -> MailCard:
        out, since = 0, []
        for one in self.workspaces.spools():
            with suppress(WorldError):
                out += sum(len(one.spool.names(place)) for place in (NEW, SENT))
                since += [at] if (at := one.spool.waiting_since()) is not None else []
        return MailCard(
            out=out,
            since=to_text(min(since)) if since else "",
            held=self.held["held"],
            again=self.held["again"],
            repeats=self.here.counts["repeats"],
            refused=self.here.counts["refused"],
        )

    def is_complete(self) -> bool:
        """Whether all hosts have been heard, or those that have not had the time for it."""
        if self._greeted is None:
            return False
        others = self.here.keys.members().hosts.keys() - {self.here.settings.host}
        return others <= self._heard or self.here.clock.monotonic() - self._greeted > 1.5 * CARD_SECONDS

    def may_be_new(self, host: str) -> bool:
        """Whether a host that is not in the list here may have joined the hub: the founder has not been heard since."""
        if self.here.is_founder:
            return False
        if len(self._strangers) > MOST_REFUSED:
            self._strangers.clear()
        return self._founder_at <= self._strangers.setdefault(host, self.here.clock.monotonic())

    async def note_held(self, waiting: int, again: int) -> None:
        """How much the server holds for this host, and how much of that it no longer delivers: it did so in vain.

        Raises NatsError.
        """
        own = subjects.incoming(self.here.settings.host)
        stored = (await self.here.js.stream_info(subjects.STREAM, subjects_filter=own)).state.subjects or {}
        stopped, self._stopped = self._stopped, max(sum(stored.values()) - waiting, 0)
        # what has come between the two answers is not what was there before, too
        self.held = {"held": waiting, "again": again, "stopped": min(stopped, self._stopped)}

    def standing(self, to: str) -> tuple[str, str]:
        """How it stands with an agent of another host, in lower case: the run of its host, and its health as said."""
        host, _, agent = to.partition(".")
        signs = self.hosts.get(host, HostSigns())
        health = {name.lower(): card.health for name, card in signs.agents.items()}.get(agent, "")
        return signs.card.run if signs.card else "", health

    def is_back(self, held: Held) -> bool:
        """Whether a receiver that could not take a message is well again."""
        now = self.standing(held.to)
        return held.seen not in (None, now) and now[1] in (Grade.GREEN, Grade.AMBER)

    def _card(self, *, hello: bool = False) -> dict[str, Any]:
        content: dict[str, Any] = self.own(hello=hello).model_dump(exclude_defaults=True)
        if self.here.is_founder:
            content["members"] = asdict(self.here.keys.members())
        return content

    async def say(self) -> None:
        """Say how it stands here if that has changed; ask all for the same after a time without connection."""
        here = self.here
        is_new = here.nc.stats["reconnects"] != self._connection
        content = self._card(hello=is_new)
        lasting = {name: value for name, value in content.items() if name not in _PASSING}
        if is_new or lasting != self._said:
            await here.nc.publish(f"{subjects.CARDS}.{here.settings.host}", signed_json(here.key, content))
            self._said, self._connection = lasting, here.nc.stats["reconnects"]
            self._greeted = here.clock.monotonic() if self._greeted is None else self._greeted

    async def look(self) -> None:
        """Ask the hosts that were not heard of just now for their cards; those that are silent delay nothing much."""
        now, here = self.here.clock.monotonic(), self.here
        if now - self._looked < CARD_SECONDS or not here.nc.is_connected:
            return
        self._looked = now
        await self._ask(here.keys.members().hosts.keys() - {here.settings.host})

    async def watch(self) -> None:
        """Ask the hosts for which mail waits, so that its senders learn who is silent; the founder about strangers."""
        hosts: set[str] = set()
        for one in self.workspaces.spools():
            with suppress(WorldError):
                hosts |= {self._receiver(one, name) for name in one.spool.names(SENT)[:_MOST_WATCHED]}
        if any(self._founder_at <= met for met in self._strangers.values()):
            members = self.here.keys.members()
            hosts |= {host for host in members.hosts if str(members.key(host)) == self.here.settings.founder}
        await self._ask(hosts & self.here.keys.members().hosts.keys() - {self.here.settings.host})

    def _receiver(self, one: Local, message_id: str) -> str:
        if message_id not in self._to:
            with suppress(MessageError):
                to = Address.parse(parse_message(one.spool.message(message_id) or b"", "message").message.to or "")
                self._to[message_id] = to.host if to else ""
        return self._to.get(message_id, "")

    async def _ask(self, hosts: Collection[str]) -> None:
        stale = [host for host in hosts if self._age(host) > CARD_SECONDS]

        async def one(host: str) -> None:
            with suppress(NatsError, UnavailableError):
                self._take(host, await self.requests.ask(host, "card", {}, _PATIENCE))

        await asyncio.gather(*map(one, stale))

    def takes_news(self) -> bool:
        """Whether the agents or pools have changed since this was asked last."""
        has_news, self._has_news = self._has_news, False
        return has_news

    async def follow_up(self) -> None:
        """Answer the greetings that came."""
        if self._was_greeted:
            self._was_greeted, self._said = False, {}
            await self.say()

    def run_of(self, host: str) -> str:
        """The run of that host's hub process."""
        card = self.hosts[host].card if host in self.hosts else None
        return card.run if card is not None else ""

    def silence(self, host: str) -> str:
        """Why what is known of a host is stale; empty if it is not."""
        return silence(self.hosts.get(host, HostSigns()), self.here.clock.now(), self.here.trouble)

    def _age(self, host: str) -> float:
        """Seconds since a host was heard of."""
        at = self.hosts[host].at if host in self.hosts else ""
        return to_epoch(self.here.clock.now()) - to_epoch(at) if at else math.inf

    def hear_older(self, host: str) -> None:
        """A host of the earlier version of the wire says its card: nothing else can be said to it, or by it."""
        if self.here.keys(host) is not None and not (known := self.hosts.get(host, HostSigns())).is_older:
            _log.warning("%s", older(host))
            self.hosts[host] = known.model_copy(update={"is_older": True, "at": self.here.clock.now()})

    async def _tell_card(self, _host: str, _content: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._card()

    def hear(self, host: str, raw: bytes) -> None:
        """Take the card of another host, if that host signed it."""
        here = self.here
        if host == here.settings.host:
            return
        key = here.keys(host)
        if key is None:  # it was invited, and the founder's card has not come yet; or it was revoked
            return
        content = verified_json(raw, key)
        if content is None:
            here.note_foreign(f"{subjects.CARDS}.{host}")
            return
        self._take(host, content)

    def _take(self, host: str, content: Mapping[str, Any]) -> None:
        """Take what a host has signed as its card, if it is newer than what is known."""
        here = self.here
        try:
            card = Card.model_validate(content)
            skew = to_epoch(card.at) - to_epoch(here.clock.now())
        except (ValidationError, ValueError) as error:
            _log.debug("a card of %s cannot be read: %s", host, error)
            return
        known = self.hosts.get(host, HostSigns())
        if card.host != host or is_repeated(card, known.card, known.ended):
            return
        if host not in self.hosts:
            _log.info("found the host %s, with %s", host, ", ".join(sorted(card.agents)) or "no agents")
        if abs(skew) > MOST_SKEW and abs(known.skew) <= MOST_SKEW:
            _log.warning("the clock of the host %s differs from this one by %+.1f s", host, skew)
        now, set_back_at = here.clock.now(), known.set_back_at
        if was_set_back(known.card, card):
            _log.warning("the host %s has forgotten what it did after %s", host, card.remembers or "it was set up")
            set_back_at = now
        ended = known.ended
        if known.card is not None and known.card.run != card.run:
            ended = (*ended, known.card.run)[-MOST_RUNS:]
        signs = {"at": now, "skew": round(skew, 1), "set_back_at": set_back_at, "card": card, "ended": ended}
        self.hosts[host] = known.model_copy(update={**signs, "is_older": False})
        newer = Members.verified(content.get("members"), PublicKey.parse(here.settings.founder))
        if newer is not None and newer.version > here.keys.members().version:
            here.membership.update(newer)
            _log.info("the hub has the hosts %s", ", ".join(sorted(newer.hosts)))
        if newer is not None:
            here.fork = contradiction(here.keys.members(), newer)
        self._heard.add(host)
        if str(here.keys(host)) == here.settings.founder:
            self._founder_at = here.clock.monotonic()
        self._was_greeted = self._was_greeted or card.hello
        pools = known.card.pools if known.card else {}
        self._has_news |= card.agents.keys() != known.agents.keys() or card.pools != pools
