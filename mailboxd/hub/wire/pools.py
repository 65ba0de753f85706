"""The protocol of pools, as pure functions: a role that several hosts serve, and each job done once.

A job is a message `to: pool:ROLE`. Two tables at the server know of it, each with the last message of a subject; both
may be lost or set back at any time. The sender's spool keeps the job until its attempt is over.

    jobs     mb.pool.v2.<role>.<sender>.<job>            put there by its sender, and removed by it alone
    claims   mb.claim.v2.<role>.<sender>.<job>.<host>    whose turn it is: the last of a job

A host writes a claim only if nobody has written one since it looked: the server's sequence orders claims, no clock
does. It claims a job before it does it, again every ten seconds while it is at it, and once more as finished before it
sends the result: so who was frozen and finishes late finds another's claim. Others take over what was claimed and not
claimed again for a lease. The sender takes a result from the host of the last claim only, and then closes the job.

Nothing is known by its place in the server's store, which may count from one again: a claim that is gone is made again
by who holds the job, a job that is gone is put there again by its sender, and what is over and came back is closed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.hub.wire.mail import GRACE
from mailboxd.hub.wire.subjects import API, CLAIMS, JOBS, JobSubject, claims_of, jobs_of

LEASE = 30.0
"""Seconds without a new claim after which a job goes to another host."""
RENEWAL = LEASE / 3
"""Seconds between two claims of a job that a host holds."""
UNTAKEN = 2 * LEASE
"""Seconds without a holder after which a job is offered again, and named."""


def rights(host: str, roles: tuple[str, ...]) -> list[str]:
    """What a host may publish so that its agents can give work to pools, and serve pools of these roles (`*`: all)."""
    return [
        jobs_of(sender=host),
        claims_of(sender=host, host=host),
        *(f"{API}.STREAM.INFO.{stream}" for stream in (JOBS, CLAIMS)),
        f"{API}.STREAM.MSG.GET.{CLAIMS}",
        *(claims_of(role, host=host) for role in roles),
        *(f"{API}.DIRECT.GET.{JOBS}.{jobs_of(role)}" for role in roles),
    ]


# Claims


class JobStage(StrEnum):
    HELD = "held"
    FINISHED = "finished"
    """The holder has the result and sends it."""
    DONE = "done"
    """The sender has the holder's result: nobody takes the job over, even while the sender is away."""
    CLOSED = "closed"
    """By the sender: the job is done, or no longer wanted."""
    OPEN = "open"
    """By the sender, which had closed it, or had its result, and was set back: it is wanted again; nobody holds it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The last claim of a job."""

    host: str
    stage: JobStage = JobStage.HELD
    of: str = ""
    """The host whose claim the sender has closed."""
    revision: int = 0
    """Its sequence at the server."""

    def to_bytes(self) -> bytes:
        return json.dumps({"stage": self.stage, "of": self.of}).encode()

    @classmethod
    def parse(cls, host: str, raw: bytes, revision: int) -> Claim:
        """Nonsense counts as a claim: its writer will not renew it."""
        try:
            found = json.loads(raw)
            return cls(host, JobStage(found["stage"]), str(found["of"]), revision)
        except (ValueError, TypeError, KeyError, RecursionError):
            return cls(host, revision=revision)


def is_closed(claim: Claim | None, sender: str) -> bool:
    """Only the job's sender can close it."""
    return claim is not None and claim.stage is JobStage.CLOSED and claim.host == sender


def holder(claim: Claim | None) -> str:
    """The host that holds a job by this claim; empty if none does."""
    return claim.host if claim is not None and claim.stage in (JobStage.HELD, JobStage.FINISHED, JobStage.DONE) else ""


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long a claim was seen not to be renewed."""

    revision: int
    at: float
    seconds: float = 0.0

    @classmethod
    def after(cls, before: Silence | None, claim: Claim | None, now: float) -> Silence:
        """The silence at another look, by a clock that only goes forward.

        A long time between two looks counts as a short one: the server was away, and its holder could not renew it.
        """
        revision = claim.revision if claim else 0
        if before is None or before.revision != revision:
            return cls(revision, now)
        return cls(revision, now, before.seconds + min(now - before.at, RENEWAL))

    @property
    def is_lapsed(self) -> bool:
        return self.seconds >= LEASE


# The holder's rules


def may_take(own: str, sender: str, claim: Claim | None, *, is_lapsed: bool) -> bool:
    """Whether a host may claim a job. Its own claim may be left from before a crash."""
    if claim is None or holder(claim) == "":
        return not is_closed(claim, sender)
    return claim.stage is not JobStage.DONE and (claim.host == own or is_lapsed)


def in_turn(jobs: Iterable[JobSubject]) -> list[JobSubject]:
    """The order in which jobs are taken: the oldest of each sender, then the next of each; none delays the others."""
    turns: Counter[str] = Counter()
    numbered: list[tuple[int, JobSubject]] = []
    for job in sorted(jobs, key=lambda job: job.job):  # ids are ordered by time
        turns[job.sender] += 1
        numbered.append((turns[job.sender], job))
    return [job for _, job in sorted(numbered, key=lambda one: one[0])]


class Holding(StrEnum):
    """What became of a job that a host has claimed."""

    HELD = "held"
    TAKEN_OVER = "taken over"
    """Another host holds it, which may fail too."""
    CLOSED = "closed"
    """Its sender needs no result any more, and nobody else took it: a late one does no harm."""
    FENCED = "fenced"
    """It was closed after another host took it over: its result is not sent."""


def holding(own: str, sender: str, claim: Claim | None) -> Holding:
    """What became of a job, by its last claim. A claim that the server has lost can be written again."""
    if claim is not None and is_closed(claim, sender):
        return Holding.CLOSED if claim.of in ("", own) else Holding.FENCED
    return Holding.HELD if holder(claim) in ("", own) else Holding.TAKEN_OVER


# The sender's rules


def closing(sender: str, claim: Claim | None) -> Claim:
    """The claim that closes a job, for whoever claims it to see."""
    return Claim(sender, JobStage.CLOSED, holder(claim))


def is_taken(host: str, sender: str, claim: Claim | None) -> bool:
    """Whether a result for a job that is open is taken: its host holds the job, or did when that was closed."""
    return host == (claim.of if claim is not None and is_closed(claim, sender) else holder(claim))


def must_reopen(sender: str, claim: Claim | None) -> bool:
    """Whether a job that its sender has open, and waits for, was over before the sender was set back."""
    return claim is not None and (claim.stage is JobStage.DONE or is_closed(claim, sender))


def must_offer(waited: float, untaken: float, *, is_there: bool, is_busy: bool) -> bool:
    """Whether to offer an open job again, this number of seconds after the last offer.

    `untaken`: the seconds for which nobody has held it. `is_there`: the server has it; `is_busy`: the hosts of the
    pool are known to have as many jobs as they take.
    """
    if not is_there:
        return waited >= GRACE
    return not is_busy and min(waited, untaken) >= UNTAKEN
