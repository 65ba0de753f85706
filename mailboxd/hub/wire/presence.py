"""Cards: each host reports its state to all others when it changes, and when it is asked; signed, and stored nowhere.

A card says who is there and how it stands in numbers, no texts: every host of the hub reads it. What waits for a
person, in words, is told to the hosts that `show` in hub.yaml names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mailboxd.core.sanitize import first_line
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import is_id
from mailboxd.formats.mailbox.identity import brief_role

CARD_SECONDS = 10.0
MOST_SKEW = 1.0
_MOST_AGENTS, MOST_RUNS = 1_000, 100
_FORGOTTEN = 60.0
"""Seconds that a host may have forgotten after a crash: it writes its state down more often than that."""


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
    until: Time | None = None
    """When it is decided without a person."""
    tasks: Annotated[int, Field(ge=1, le=10**12)] = 1
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
    is_older: bool = False
    """It speaks an earlier version of the wire, so that nothing can be sent to it."""
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
