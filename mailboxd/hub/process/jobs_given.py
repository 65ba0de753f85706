"""The jobs that agents here gave to pools: offered until somebody takes them, and closed once they are over."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field

from nats.js.errors import APIError

from mailboxd.core.vocabulary import POOL
from mailboxd.errors import MessageError, UnavailableError, WorldError
from mailboxd.formats.protocol.messages import AnyMessage, TaskMessage, parse_message
from mailboxd.hub.files.spool import NEW, SENT
from mailboxd.hub.files.view import PoolInfo
from mailboxd.hub.process.attachments import Attachments
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.pool_tables import PoolTables
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.receipts import Receipts
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import names, pools, subjects
from mailboxd.hub.wire.pools import LEASE, UNTAKEN, Claim, JobStage
from mailboxd.hub.wire.subjects import JobSubject, claims_of, jobs_of
from mailboxd.ledger.reports import opened

_AT_REST = 60.0
"""Seconds between two looks at the server if no job is open."""
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Given:
    """A job that an agent here gave to a pool, and the attempt that waits for it."""

    role: str
    attempt: str
    task: tuple[str, str | None]
    """Its name: the ids of the task and of the subtask."""


@dataclass(slots=True)
class JobsGiven:
    """The sender's part in pools."""

    here: ThisHost
    workspaces: Workspaces
    under_way: UnderWay
    attachments: Attachments
    receipts: Receipts
    presence: Presence
    tables: PoolTables
    trouble: dict[str, str] = field(default_factory=dict)
    """Why jobs that were given to a pool from here are done by nobody, by role."""
    _given: dict[str, Given | None] = field(default_factory=dict)
    """The job of each message under way; None = it is not a job."""
    _unheld: dict[str, float] = field(default_factory=dict)
    """Since when nobody holds a job."""
    _looks_at: float = 0.0
    """When the server is asked next, if no job is open."""

    @property
    def _own_name(self) -> str:
        return self.here.settings.host

    def of(self, one: Local) -> dict[str, Given]:
        """The jobs that an agent here gave to pools and that are not over. Raises WorldError."""
        under_way = _under_way(one)
        for name in under_way:
            if name not in self._given:
                self._given[name] = _given(one.spool.message(name) or b"")
        return {name: job for name in under_way if (job := self._given[name]) is not None}

    def holder(self, one: Local, attempt: str | None) -> str:
        """The host that has the job of an attempt; empty if none was heard of. Raises WorldError."""
        for name, job in self.of(one).items():
            if job.attempt == attempt and (holder := one.spool.holder(name)) is not None:
                return holder.host
        return ""

    async def not_yet(self, host: str, one: Local, message: AnyMessage) -> str:
        """Why a message about a job that an agent here gave to a pool is not taken now; empty if it is.

        Only the host that holds the job has a say in it. Raises NatsError, WorldError.
        """
        for name, job in self.of(one).items():
            task = (message.task_id, getattr(message, "subtask_id", None))
            if message.attempt_id == job.attempt or (message.attempt_id is None and task == job.task):
                return await self.counts_not(host, JobSubject(job.role, self._own_name, name))
        return ""

    async def counts_not(self, host: str, job: JobSubject) -> str:
        """Why the word of a host about a job that was given from here does not count now. Raises NatsError."""
        claim = await self.tables.claim(job)
        if pools.is_taken(host, job.sender, claim):
            return ""
        return f"the job is with {pools.holder(claim) or 'no host'}, not with {host}"

    async def tend(self) -> None:
        """Close the jobs that are over, and offer again what the server has lost. Raises NatsError, WorldError."""
        now, own = self.here.clock.monotonic(), self._own_name
        self.tables.forget_full()
        if now < self._looks_at and not any(self.of(one) for one in self.workspaces.spools()):
            return  # nothing is open, and what came back with an old store can wait
        self._looks_at = now + _AT_REST
        there = await self.tables.jobs(jobs_of(sender=own))
        claimed = await self.tables.claims(claims_of(sender=own))
        under_way: set[str] = set()
        unheld: Counter[str] = Counter()
        for one in self.workspaces.spools():
            under_way.update(_under_way(one))
            if given := self.of(one):
                await self._close(one, given)
                unheld.update(await self._offer_again(one, self.of(one), there.keys(), claimed.keys()))
        self._given = {name: job for name, job in self._given.items() if name in under_way}
        self._unheld = {name: since for name, since in self._unheld.items() if name in under_way}
        self.trouble = {role: self._why_unheld(role, count) for role, count in unheld.items()}
        if self.workspaces.unread:
            return  # some of the jobs may be in their spools
        over = [job for job in there.keys() | claimed.keys() if job.job not in under_way]
        for job in over:
            if job in there or own not in claimed[job]:  # it came back with an old store, or was claimed again
                await self._closed(job)

    async def _close(self, one: Local, given: Mapping[str, Given]) -> None:
        over: set[str] = set()
        with suppress(UnavailableError), opened(one.ws.database) as report:
            over = report.over(job.attempt for job in given.values())
        for name in [name for name, job in given.items() if job.attempt in over]:
            if await self._closed(JobSubject(given[name].role, self._own_name, name)):
                raw = one.spool.message(name) or b""
                self.attachments.remove(one, name, subjects.POOLS)
                one.spool.settle(self.receipts.make(name, raw, self._own_name, "its attempt is over"))
                self.workspaces.wake(one.agent.lower())

    async def _closed(self, job: JobSubject) -> bool:
        """Close a job, and remove it from the server; false if it was claimed meanwhile. Raises NatsError."""
        claim = await self.tables.claim(job)
        made = pools.closing(self._own_name, claim)
        if not pools.is_closed(claim, self._own_name) and await self.tables.write(job, made, claim) is None:
            return False
        try:
            await self.tables.remove(job)
        except APIError as error:  # one that cannot be removed holds up no other
            _log.debug("%s is removed later: %s", job, error)
            return False
        return True

    async def _offer_again(
        self, one: Local, given: Mapping[str, Given], there: Set[JobSubject], claimed: Set[JobSubject]
    ) -> list[str]:
        """Offer again what is lost, or what nobody takes; returns the roles of the jobs that nobody holds."""
        now, unheld, busy, sent = self.here.clock.monotonic(), [], dict[str, bool](), one.spool.names(SENT)
        for name, job in given.items():
            subject = JobSubject(job.role, self._own_name, name)
            claim, silence = await self.tables.watched(subject) if subject in claimed else (None, None)
            was_over = pools.must_reopen(self._own_name, claim)
            if pools.holder(claim) and not was_over and silence is not None and not silence.is_lapsed:
                self._unheld.pop(name, None)
                seconds = 0.0
            else:
                seconds = now - self._unheld.setdefault(name, now)
            if seconds >= UNTAKEN and job.role not in busy:
                busy[job.role] = await self._is_busy(job.role)
            is_busy = busy.get(job.role, False)
            if seconds >= UNTAKEN and not is_busy:
                unheld.append(job.role)
            if was_over and seconds >= LEASE:
                await self.tables.write(subject, Claim(self._own_name, JobStage.OPEN), claim)
            waited = now - self.under_way.sent_at.setdefault(name, now)
            if name in sent and pools.must_offer(waited, seconds, is_there=subject in there, is_busy=is_busy):
                _log.info("offering %s again: the server has lost it, or nobody takes it", name)
                one.spool.again(name)
                self.here.woken.set()
        return unheld

    async def _is_busy(self, role: str) -> bool:
        """Whether the hosts that serve a pool have as many jobs as they take. Raises NatsError."""
        slots = sum(self._slots(role).values())
        claimed = await self.tables.claims(claims_of(role))
        return 0 < slots <= sum(job.sender not in hosts for job, hosts in claimed.items())

    def _slots(self, role: str) -> dict[str, int]:
        """The hosts that may and do serve a pool, and how many jobs each takes."""
        members, own = self.here.keys.members(), self.here.settings.pools
        slots = {host: signs.card.pools.get(role, 0) for host, signs in self.presence.hosts.items() if signs.card}
        slots[self._own_name] = own[role].slots if role in own else 0
        return {host: count for host, count in slots.items() if count and members.may_serve(host, role)}

    def _why_unheld(self, role: str, count: int) -> str:
        """Why nobody holds so many jobs, and what to do."""
        what = f"no host has taken {count} job{'s' * (count != 1)} of {POOL}{role} for a minute"
        if not (listed := self.here.keys.members().serving(role)):
            return f"{what}: {nobody_may_serve(role)}"
        if not (serving := sorted(self._slots(role))):
            return f"{what}: {', '.join(listed)} may serve it, and none has it under `pools` in its hub.yaml"
        return f"{what}: {', '.join(serving)} should; see `mailboxd hub status` there, and `accept` in its hub.yaml"

    # what is known

    def known(self) -> dict[str, PoolInfo]:
        """The pools of the hub, as reported to daemons."""
        settings, members = self.here.settings, self.here.keys.members()
        served = {host: set(signs.card.pools) for host, signs in self.presence.hosts.items() if signs.card}
        served[settings.host] = set(settings.pools)
        roles = {
            role: sorted(host for host, each in served.items() if role in each and members.may_serve(host, role))
            for role in sorted({role for each in served.values() for role in each})
        }
        return {
            role: PoolInfo(
                tuple(hosts),
                names.permits(settings.send, f"{POOL}{role}"),
                settings.pools[role].agent.lower() if role in settings.pools else "",
            )
            for role, hosts in roles.items()
            if hosts
        }

    def status(self) -> dict[str, dict[str, int]]:
        """How many jobs each host has, by role; no host = none has taken it yet."""
        given: dict[str, Counter[str]] = {}
        for role, host in self._holders():
            given.setdefault(role, Counter())[host] += 1
        return {role: dict(hosts) for role, hosts in given.items()}

    def _holders(self) -> Iterator[tuple[str, str]]:
        """The role of each job that an agent here gave to a pool, and the host that has it; empty if none does."""
        for one in self.workspaces.local.values():
            with suppress(WorldError):
                for name, job in self.of(one).items():
                    holder = one.spool.holder(name)
                    yield job.role, holder.host if holder else ""


def nobody_may_serve(role: str) -> str:
    """That the hub's list names no host for a pool, and what to do."""
    return f"no host of the hub may serve {POOL}{role}; on the host that founded it: mailboxd hub pools HOST {role}"


def _under_way(one: Local) -> list[str]:
    """The messages without receipt, and the jobs that are not over. Raises WorldError."""
    return [*one.spool.names(NEW), *one.spool.names(SENT)]


def _given(raw: bytes) -> Given | None:
    try:
        message = parse_message(raw, "message").message
    except MessageError:
        return None
    role = names.role_of(message.to or "")
    if not role or not isinstance(message, TaskMessage):
        return None
    return Given(role, message.attempt_id or "", (message.task_id or "", message.subtask_id))
