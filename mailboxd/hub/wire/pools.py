"""The protocol of pools, as pure functions: a role that several hosts serve, and each job done once.

A job is a message `to: pool:ROLE`. Three things know of it, and each may be lost or set back but the last:

    queue     the server's store of jobs, each once: it hands a job to one host, and to another when that one is silent
    claim     whose turn it is: the last of `mb.claim.v2.<job>.*`, written only if nothing was since it was read
    sender    keeps the job in its spool until its attempt is over, and takes one result for it

A host claims a job before it does it, renews its lease with the queue while it is at it, and sends the result only
after it has claimed the job once more as finished: so who was frozen and finishes late finds another's claim. The
server's sequence orders claims; no clock does. A host takes over after two deliveries without a renewal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.hub.wire.mail import GRACE

LEASE = 30.0
"""Seconds of silence after which a job goes to another host."""
DELIVERIES = 2
"""Deliveries in a lease: what a live holder missed because the server was away costs it nothing."""


# Claims


class Stage(StrEnum):
    HELD = "held"
    FINISHED = "finished"
    """The holder has the result and sends it."""
    CLOSED = "closed"
    """By the sender: the job is done, or no longer wanted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The last claim of a job."""

    host: str
    stage: Stage = Stage.HELD
    copy: int = 0
    """Which copy in the queue it was made on, and which delivery of that."""
    delivery: int = 0
    revision: int = 0
    """Its sequence at the server."""

    def to_bytes(self) -> bytes:
        return json.dumps({"stage": self.stage, "copy": self.copy, "delivery": self.delivery}).encode()

    @classmethod
    def parse(cls, host: str, raw: bytes, revision: int) -> Claim:
        """Nonsense counts as a claim: its writer will not renew it."""
        try:
            found = json.loads(raw)
            return cls(host, Stage(found["stage"]), int(found["copy"]), int(found["delivery"]), revision)
        except (ValueError, TypeError, KeyError, RecursionError):
            return cls(host, revision=revision)


def is_closed(claim: Claim | None, sender: str) -> bool:
    """Only the job's sender can close it."""
    return claim is not None and claim.stage is Stage.CLOSED and claim.host == sender


# The holder's rules


class Step(StrEnum):
    """The decision about a job that the queue hands over."""

    TAKE = "take"
    """Claim it; whoever fails to leaves it."""
    LEAVE = "leave"
    """Another host holds it and may be alive: hand it over again after part of a lease, unless it is renewed."""
    LATER = "later"
    """No host holds it, and this one does not take it now: hand it over again soon."""
    DROP = "drop"
    """It is no longer wanted: remove it from the queue."""


def on_delivery(own: str, sender: str, claim: Claim | None, copy: int, delivery: int) -> Step:
    if is_closed(claim, sender):
        return Step.DROP
    if claim is None or claim.host == own:
        return Step.TAKE
    since = delivery - (claim.delivery if claim.copy == copy else 0)
    return Step.TAKE if since >= DELIVERIES else Step.LEAVE


def taken(own: str, claim: Claim | None, copy: int, delivery: int) -> Claim:
    """The claim to write when a job is taken."""
    again = claim is not None and claim.host == own and claim.stage is Stage.FINISHED
    return Claim(own, Stage.FINISHED if again else Stage.HELD, copy, delivery)


def following(own: str, stage: Stage, claim: Claim | None) -> Claim:
    """The claim that finishes or closes a job. It names the delivery on which the job was claimed last: one that closes
    it so fences off all who claimed it on another.
    """
    return Claim(own, stage, claim.copy if claim else 0, claim.delivery if claim else 0)


class Holding(StrEnum):
    """What became of a job that a host has claimed."""

    HELD = "held"
    TAKEN_OVER = "taken over"
    """Another host holds it, which may fail too."""
    CLOSED = "closed"
    """Its sender needs no result any more, and nobody else took it: a late one does no harm."""
    FENCED = "fenced"
    """It was closed after another host took it over: its result is not sent."""


def holding(own: str, sender: str, claim: Claim | None, copy: int, delivery: int) -> Holding:
    """What became of the job that was claimed on this delivery of this copy, by its last claim.

    A claim that the server has lost can be written again.
    """
    if claim is None:
        return Holding.HELD
    if is_closed(claim, sender):
        is_known = claim.copy > 0 and copy > 0
        return Holding.FENCED if is_known and (claim.copy, claim.delivery) != (copy, delivery) else Holding.CLOSED
    return Holding.HELD if claim.host == own else Holding.TAKEN_OVER


# The sender's rule


def must_offer(waited: float, *, queued: bool) -> bool:
    """Whether to offer an open job again, this number of seconds after the last offer."""
    return waited >= GRACE and not queued
