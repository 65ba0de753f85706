"""The cards of this host and of the others, as the hub process says and hears them."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count

from pydantic import ValidationError

from mailboxd.core.times import to_epoch, to_text
from mailboxd.errors import WorldError
from mailboxd.health import Grade
from mailboxd.hub.files.spool import NEW, SENT
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.under_way import Held
from mailboxd.hub.process.workspaces import Workspaces
from mailboxd.hub.wire import subjects
from mailboxd.hub.wire.cards import (
    MOST_RUNS,
    MOST_SKEW,
    Card,
    HostSigns,
    MailCard,
    is_repeated,
    opened,
    sealed,
    was_set_back,
)
from mailboxd.hub.wire.members import Members
from mailboxd.keys import PublicKey
from mailboxd.mailbox.identity import read_identity

_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Presence:
    """The hosts of the hub, as one hub process knows them."""

    here: ThisHost
    workspaces: Workspaces
    hosts: dict[str, HostSigns] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("held", "again", "stopped"), 0))
    """The messages that the server holds for this host, as in `MailCard`."""
    remembers: str = ""
    """When the last run noted that it is there."""
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _stopped: int = 0
    _was_greeted: bool = False
    """Another host wants a card; many greetings get one answer."""
    _has_news: bool = False
    """The agents or pools differ from those reported to the daemons; many cards are reported at once."""

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

    async def say(self, *, hello: bool = False) -> None:
        """Say how it stands here; with `hello`, the others are asked to do the same soon."""
        here = self.here
        content: dict[str, object] = self.own(hello=hello).model_dump(exclude_defaults=True)
        if here.is_founder:
            content["members"] = asdict(here.keys.members())
        await here.nc.publish(f"{subjects.CARDS}.{here.settings.host}", sealed(here.key, content))

    def takes_news(self) -> bool:
        """Whether the agents or pools have changed since this was asked last."""
        has_news, self._has_news = self._has_news, False
        return has_news

    async def follow_up(self) -> None:
        """Answer the greetings that came."""
        if self._was_greeted:
            self._was_greeted = False
            await self.say()

    def hear(self, host: str, raw: bytes) -> None:
        """Take the card of another host, if that host signed it and it is newer than what is known."""
        here = self.here
        if host == here.settings.host:
            return
        key = here.keys(host)
        if key is None:  # it was invited, and the founder's card has not come yet; or it was revoked
            return
        content = opened(raw, key)
        if content is None:
            here.note_foreign(f"{subjects.CARDS}.{host}")
            return
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
        self.hosts[host] = known.model_copy(update=signs)
        newer = Members.verified(content.get("members"), PublicKey.parse(here.settings.founder))
        if newer is not None and newer.version > here.keys.members().version:
            here.membership.update(newer)
            _log.info("the hub has the hosts %s", ", ".join(sorted(newer.hosts)))
        self._was_greeted = self._was_greeted or card.hello
        pools = known.card.pools if known.card else {}
        self._has_news |= card.agents.keys() != known.agents.keys() or card.pools != pools
