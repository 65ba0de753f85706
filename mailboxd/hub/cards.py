"""Cards: each host reports its state to all others every ten seconds, signed, and stored nowhere.

A card says who is there and how it stands in numbers, no texts: every host of the hub reads it. What waits for a
person, in words, is told by `talk` to the hosts that `show` in hub.yaml names.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mailboxd.core.sanitize import first_line
from mailboxd.core.times import to_epoch, to_text
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import WorldError
from mailboxd.hub import protocol
from mailboxd.hub.membership import Members
from mailboxd.hub.spool import NEW, SENT
from mailboxd.keys import PrivateKey, PublicKey
from mailboxd.mailbox.identity import brief_role, read_identity

if TYPE_CHECKING:
    from mailboxd.hub.process import Hub

CARD_SECONDS = 10.0
MOST_SKEW = 1.0
_MOST_AGENTS, _MOST_RUNS = 1_000, 100
_FORGOTTEN = 60.0
"""Seconds that a host may have forgotten after a crash: it writes its state down more often than that."""
_log = logging.getLogger("mailboxd")


# Cards of hosts, checked like all untrusted input


def _time(value: str) -> str:
    if value:
        to_epoch(value)
    return value


def _line(value: str) -> str:
    return first_line(value, 300)


def _agents(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in [*value.items()][:_MOST_AGENTS] if is_id(name)}


Time = Annotated[str, Field(max_length=40), AfterValidator(_time)]
Line = Annotated[str, AfterValidator(_line)]
Count = Annotated[int, Field(ge=0, le=10**12)]


class Said(BaseModel):
    """A card of another host; fields of a newer version are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class AgentCard(Said):
    """An agent and the state of its workspace."""

    role: Annotated[str, AfterValidator(brief_role)] = ""
    health: Annotated[str, Field(pattern="^[a-z]{0,16}$")] = ""
    """A `health.Grade`."""
    open: Count = 0
    waiting: Count = 0
    """The items that wait for a person."""


class MailCard(Said):
    """A host's mail."""

    out: Count = 0
    """Messages without a receipt, and since when the oldest waits."""
    since: Time = ""
    held: Count = 0
    """The messages that the server holds for this host."""
    again: Count = 0
    """Of that, what was delivered before and not acknowledged."""
    repeats: Count = 0
    refused: Count = 0
    """Numbers of repeated and refused messages since the hub process started."""


class Numbered(Said):
    """The cards of one run of a hub process are ordered by number, because its clock may be set back."""

    run: Annotated[str, Field(max_length=40)] = ""
    number: Count = 0


class Card(Numbered):
    """The card of a host about itself."""

    host: Line
    at: Time
    remembers: Time = ""
    """Until when it remembers its earlier runs."""
    agents: Annotated[dict[str, AgentCard], AfterValidator(_agents)] = Field(default_factory=dict)
    pools: Annotated[dict[Line, Count], Field(max_length=100)] = Field(default_factory=dict)
    """The roles of pools that it serves, and how many jobs at a time."""
    mail: MailCard = MailCard()
    hello: bool = False
    """The other hosts are asked for their cards."""


class Waiting(Said):
    """Something that waits for a person on another host: an `attention.Item`."""

    agent: Line
    kind: Line
    text: Line
    command: Annotated[str, Field(max_length=2_000)]
    """The command there that resolves it."""
    since: Time | None = None
    task: Line = ""
    id: Line = ""
    details: Annotated[str, Field(max_length=10_000)] = ""


class News(Numbered):
    """An item that waits for a person on another host, as reported by it."""

    items: Annotated[tuple[Waiting, ...], Field(max_length=1_000)] = ()
    may_decide: bool = False
    """A person here may decide there."""


class HostSigns(Said):
    """The known state of another host."""

    at: Time = ""
    """When its last card came, by the clock here."""
    skew: float = 0.0
    """Seconds that its clock is ahead of this one, as far as the card shows."""
    set_back_at: Time = ""
    """When it was found that it has forgotten what it did."""
    card: Card | None = None
    news: News = News()
    ended: tuple[str, ...] = ()
    """Earlier runs of its hub process, whose cards are ignored."""

    @property
    def agents(self) -> Mapping[str, AgentCard]:
        return self.card.agents if self.card else {}


def is_repeated(said: Numbered, last: Numbered | None, ended: Collection[str]) -> bool:
    """Whether this is older than the last card received."""
    return said.number <= last.number if last and last.run == said.run else said.run in ended


def was_set_back(known: Card | None, card: Card) -> bool:
    """Whether a host has forgotten what it did: it was restored from a backup or set up again, or a copy of it runs."""
    if known is None or known.run == card.run:
        return False
    return not card.remembers or to_epoch(known.at) - to_epoch(card.remembers) > _FORGOTTEN


# Signed JSON


def sealed(key: PrivateKey, content: Mapping[str, object]) -> bytes:
    """The content, signed."""
    text = json.dumps(content)
    return json.dumps({"text": text, "signature": key.sign(text.encode())}).encode()


def opened(raw: bytes, key: PublicKey) -> dict[str, Any] | None:
    """The content, if it was signed with this key."""
    try:
        outer = json.loads(raw)
        if not key.has_signed(outer["text"].encode(), outer["signature"]):
            return None
        content = json.loads(outer["text"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


# Saying and hearing them


@dataclass(slots=True)
class Cards:
    """The cards of one hub process."""

    hub: Hub
    remembers: str = ""
    """When the last run noted that it is there."""
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _was_greeted: bool = False
    """Another host wants a card; many greetings get one answer."""
    _has_news: bool = False
    """The agents or pools differ from those reported to the daemons; many cards are reported at once."""

    def own(self, *, hello: bool = False) -> Card:
        hub, agents = self.hub, {}
        for one in hub.local.values():
            agents[one.agent] = hub.standings.card(one).model_copy(update={"role": read_identity(str(one.ws.root))})
        return Card(
            host=hub.settings.host, at=hub.clock.now(), run=self.run, number=next(self.numbers),
            remembers=self.remembers, agents=agents, mail=self._mail(), hello=hello,
            pools={role: pool.slots for role, pool in hub.settings.pools.items()},
        )  # fmt: skip

    def _mail(self) -> MailCard:
        hub, out, since = self.hub, 0, []
        for one in hub.spools():
            with suppress(WorldError):
                out += sum(len(one.spool.names(place)) for place in (NEW, SENT))
                since += [at] if (at := one.spool.waiting_since()) is not None else []
        return MailCard(
            out=out,
            since=to_text(min(since)) if since else "",
            held=hub.held["held"],
            again=hub.held["again"],
            repeats=hub.counts["repeats"],
            refused=hub.counts["refused"],
        )

    async def say(self, *, hello: bool = False) -> None:
        """Say how it stands here; with `hello`, the others are asked to do the same soon."""
        hub = self.hub
        content: dict[str, object] = self.own(hello=hello).model_dump(exclude_defaults=True)
        if str(hub.key.public) == hub.settings.founder:
            content["members"] = asdict(hub.keys.members())
        await hub.nc.publish(f"{protocol.CARDS}.{hub.settings.host}", sealed(hub.key, content))

    async def follow_up(self) -> None:
        """Do what the cards that came ask for."""
        if self._has_news:
            self._has_news = False
            self.hub.tell_daemons()
        if self._was_greeted:
            self._was_greeted = False
            await self.say()

    def hear(self, host: str, raw: bytes) -> None:
        """Take the card of another host, if that host signed it and it is newer than what is known."""
        hub = self.hub
        if host == hub.settings.host:
            return
        key = hub.keys(host)
        if key is None:  # it was invited, and the founder's card has not come yet; or it was revoked
            return
        content = opened(raw, key)
        if content is None:
            hub.note_foreign(f"{protocol.CARDS}.{host}")
            return
        try:
            card = Card.model_validate(content)
            skew = to_epoch(card.at) - to_epoch(hub.clock.now())
        except (ValidationError, ValueError) as error:
            _log.debug("a card of %s cannot be read: %s", host, error)
            return
        known = hub.hosts.get(host, HostSigns())
        if card.host != host or is_repeated(card, known.card, known.ended):
            return
        if host not in hub.hosts:
            _log.info("found the host %s, with %s", host, ", ".join(sorted(card.agents)) or "no agents")
        if abs(skew) > MOST_SKEW and abs(known.skew) <= MOST_SKEW:
            _log.warning("the clock of the host %s differs from this one by %+.1f s", host, skew)
        now, set_back_at = hub.clock.now(), known.set_back_at
        if was_set_back(known.card, card):
            _log.warning("the host %s has forgotten what it did after %s", host, card.remembers or "it was set up")
            set_back_at = now
        ended = known.ended
        if known.card is not None and known.card.run != card.run:
            ended = (*ended, known.card.run)[-_MOST_RUNS:]
        signs = {"at": now, "skew": round(skew, 1), "set_back_at": set_back_at, "card": card, "ended": ended}
        hub.hosts[host] = known.model_copy(update=signs)
        newer = Members.verified(content.get("members"), PublicKey.parse(hub.settings.founder))
        if newer is not None and newer.version > hub.keys.members().version:
            hub.membership.update(newer)
            _log.info("the hub has the hosts %s", ", ".join(sorted(newer.hosts)))
        self._was_greeted = self._was_greeted or card.hello
        pools = known.card.pools if known.card else {}
        self._has_news |= card.agents.keys() != known.agents.keys() or card.pools != pools
