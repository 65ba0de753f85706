"""The jobs of pools that this host takes for agents here.

They are in jobs.json beside hub.yaml, written before a job is delivered into the inbox. So a hub process that was
killed claims the same jobs again, and a host that comes back late finds what it has lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace

from nats.errors import Error as NatsError
from nats.js.api import RawStreamMsg

from mailboxd.core.vocabulary import POOL
from mailboxd.errors import MessageError, UnavailableError, WorldError
from mailboxd.formats import health
from mailboxd.formats.mailbox import lock
from mailboxd.formats.protocol.messages import ReplyMessage, TaskMessage, parse_message
from mailboxd.hub.files.membership import HELD_JOBS
from mailboxd.hub.files.spool import NEW, SENT
from mailboxd.hub.files.status import ServedPool
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.jobs_given import JobsGiven
from mailboxd.hub.process.pool_tables import LOOK, PoolTables
from mailboxd.hub.process.receiving import DIGEST, Later, Receiving
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import names, pools
from mailboxd.hub.wire.mail import Refusal
from mailboxd.hub.wire.pools import UNTAKEN, Claim, Holding, JobStage
from mailboxd.hub.wire.sealing import EarlierHolder, NotForHost, SealError
from mailboxd.hub.wire.subjects import JobSubject, claims_of, jobs_of
from mailboxd.ledger.reports import opened

_MOST_LOST = 1_000
_MOST_TRIES = 10
"""Times that a job makes the process fail; then it is refused."""
_AT_ONCE = 16
"""Claims of others that are looked at, and oldest jobs among which hosts choose, at a time."""
_PASSED_OVER = 60.0
"""Seconds after which a job that is not for this host is looked at again: hub.yaml may have changed."""
_REFUSED = 600.0
"""Seconds after which a job that was refused is looked at again: the server may have lost the receipt."""
_SAID_AGAIN = 300.0
"""Seconds after which the receipt of a job that is held is sent again: the server may have lost it."""
_LOST, _BUG = "lost", "a bug in mailboxd: it cannot be handled"
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Job:
    """A job that this host has claimed."""

    role: str
    agent: str
    sender: str
    """The host that gave it to the pool."""
    stage: str = JobStage.HELD
    """`lost` once another host has claimed it: its result is not sent."""
    reply: str = ""
    """The message with its result, once there is one."""

    @classmethod
    def read(cls, raw: bytes) -> dict[str, Job]:
        """The jobs of jobs.json, by message id; fields of other versions are ignored."""
        with suppress(ValueError, TypeError, AttributeError):
            known = {one.name for one in fields(cls)}
            found = json.loads(raw).items()
            return {job: cls(**{key: one for key, one in values.items() if key in known}) for job, values in found}
        return {}


@dataclass(slots=True)
class JobsHeld:
    """The part of one hub process that serves pools."""

    here: ThisHost
    workspaces: Workspaces
    receiving: Receiving
    given: JobsGiven
    tables: PoolTables
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    """A slot has become free."""
    _jobs: dict[str, Job] | None = None
    _own: dict[str, Claim] = field(default_factory=dict)
    """This host's claims, as it wrote them last, by job."""
    _delivered: dict[str, float] = field(default_factory=dict)
    """When jobs that are held were delivered into the inbox."""
    _passed_over: dict[JobSubject, float] = field(default_factory=dict)
    """Until when a job is not looked at: it is not for this host."""
    _failing: dict[str, float] = field(default_factory=dict)
    """Until when no job of a pool is taken, because the disk refuses them."""
    _failed: Counter[str] = field(default_factory=Counter)
    """How often a job has made the process fail."""

    @property
    def jobs(self) -> dict[str, Job]:
        """The claims of this host, by message id."""
        if self._jobs is None:
            self._jobs = Job.read(self.here.membership.state.read(HELD_JOBS) or b"{}")
        return self._jobs

    def _keep(self, changes: Mapping[str, Job | None]) -> None:
        """Remember what is held now; None = it is over. Raises WorldError."""
        jobs = {name: job for name, job in {**self.jobs, **changes}.items() if job is not None}
        lost = [name for name, job in jobs.items() if job.stage == _LOST]
        for name in lost[:-_MOST_LOST]:
            del jobs[name]
        with self.here.membership.state.writing() as folder:
            text = json.dumps({name: asdict(job) for name, job in jobs.items()})
            self.here.membership.state.write(folder, HELD_JOBS, text.encode())
        for name in changes.keys() - jobs.keys():
            self._own.pop(name, None)
            self._delivered.pop(name, None)
        self._jobs = jobs
        self.freed.set()

    @property
    def _own_name(self) -> str:
        return self.here.settings.host

    # taking jobs

    def may_serve(self, role: str) -> bool:
        """Whether the hub's list lets this host serve a pool. Raises ConfigError, WorldError."""
        return self.here.keys.members().may_serve(self._own_name, role)

    def _free(self, role: str) -> int:
        """How many jobs may be taken now: none if the agent's daemon does not work."""
        pool = self.here.settings.pools[role]
        one = self.workspaces.local.get(pool.agent.lower())
        fails = self._failing.get(role, 0.0) > self.here.clock.monotonic()
        if one is None or fails or not self.may_serve(role) or not self._works(one):
            return 0
        return pool.slots - sum(job.role == role and job.stage == JobStage.HELD for job in self.jobs.values())

    def _works(self, one: Local) -> bool:
        """Whether the daemon runs and its loop is alive."""
        clock = self.here.clock
        grade, troubles = health.read(one.ws, lock.holder(one.ws), clock.now(), clock.monotonic())
        return grade is not health.Grade.OFF and all(each.where != health.Component.DAEMON for each in troubles)

    async def take(self) -> None:
        """Take jobs while there are free slots. Raises NatsError, WorldError."""
        await self._deliver_held()
        is_more = True
        while is_more:  # a batch of each in turn, also of those that had none before: junk for one delays no other
            taken = [
                await self._take_some(role, free) for role in self.here.settings.pools if (free := self._free(role)) > 0
            ]
            is_more = any(taken)

    async def _take_some(self, role: str, free: int) -> bool:
        """Take jobs that nobody holds; returns whether there may be more."""
        now = self.here.clock.monotonic()
        self._passed_over = {job: until for job, until in self._passed_over.items() if until > now}
        there = await self.tables.jobs(jobs_of(role))
        wanted = pools.in_turn(there.keys() - self._not_for_here(role, there.keys()))
        if not wanted:
            return False
        claimed = await self.tables.claims(claims_of(role))
        unclaimed = [job for job in wanted if job not in claimed][: max(_AT_ONCE, free)]
        chosen = random.sample(unclaimed, min(free, len(unclaimed)))  # other hosts choose others
        count = sum(await asyncio.gather(*(self._take(job, None) for job in chosen)))
        due = [job for job in wanted if job in claimed and self.tables.is_due(job)]
        for job in random.sample(due, min(len(due), _AT_ONCE)):
            claim, silence = await self.tables.watched(job)
            is_lapsed = silence.is_lapsed or not self._serves(claim, job.role)
            if count < free and pools.may_take(self._own_name, job.sender, claim, is_lapsed=is_lapsed):
                count += await self._take(job, claim)
        return bool(chosen) or count > 0

    def _serves(self, claim: Claim | None, role: str) -> bool:
        """Whether who claimed a job may still serve the pool."""
        return claim is None or self.here.keys.members().may_serve(claim.host, role)

    def _not_for_here(self, role: str, jobs: Set[JobSubject]) -> set[JobSubject]:
        """The jobs that this host has, passes over, or whose sender is its own agent. Raises WorldError."""
        held = {name for name, job in self.jobs.items() if job.stage != _LOST}
        one = self.workspaces.local.get(self.here.settings.pools[role].agent.lower())
        own = {JobSubject(role, self._own_name, name) for name in (self.given.of(one) if one is not None else ())}
        return own | self._passed_over.keys() | {job for job in jobs if job.job in held}

    async def _take(self, job: JobSubject, known: Claim | None) -> bool:
        """Claim a job, remember that, and deliver it into the inbox; returns whether it is held now."""
        found: RawStreamMsg | None = None
        try:
            found = await self.tables.job(job)
            if found is not None:
                return await self._take_fit(job, found, known)
        except (NatsError, WorldError) as error:
            _log.warning("a job of %s%s is left to others: %s", POOL, job.role, error)
        except Exception:
            if self._is_hopeless(job) and found is not None:
                await self._refuse(job, found, known, _BUG)
        self._passed_over[job] = self.here.clock.monotonic() + LOOK
        return False

    def _is_hopeless(self, job: JobSubject) -> bool:
        """Log the bug that a job has found; whether it has done so too often."""
        _log.exception("a bug in mailboxd: a job on %s; please report it", str(job)[:200])
        self._failed[job.job] += 1
        return self._failed[job.job] >= _MOST_TRIES

    async def _take_fit(self, job: JobSubject, found: RawStreamMsg, known: Claim | None) -> bool:
        here, agent = self.here, self.here.settings.pools[job.role].agent.lower()
        try:
            _, task = self._opened(job, found)
        except (NotForHost, EarlierHolder):
            task = None  # it was sealed for those who served the pool then: its sender offers it again
        except (Refusal, SealError) as refusal:
            if here.keys(job.sender) is not None:
                await self._refuse(job, found, known, str(refusal))
            self._passed_over[job] = here.clock.monotonic() + _REFUSED
            return False
        is_own = task is not None and task.from_.lower() == f"{self._own_name}.{agent}"
        one = self.workspaces.local.get(agent)
        if task is None or is_own or one is None or not names.permits(here.settings.accept, task.from_):
            self._passed_over[job] = here.clock.monotonic() + _PASSED_OVER
            return False
        reply = self.jobs[job.job].reply if job.job in self.jobs else ""
        is_done = bool(reply) and reply in _under_way(one)
        made = await self.tables.write(
            job, Claim(self._own_name, JobStage.FINISHED if is_done else JobStage.HELD), known
        )
        if made is None:
            return False
        self._own[job.job] = made
        self._keep({job.job: Job(job.role, agent, job.sender, made.stage, reply)})
        await self._deliver(job, found)
        return True

    def _opened(self, job: JobSubject, found: RawStreamMsg) -> tuple[bytes, TaskMessage]:
        """The job, if its sender sealed it for this host, and signed it for this pool. Raises Refusal, SealError."""
        raw = self.here.unsealed(found.data or b"")
        task = self.receiving.verified(job, job.job, raw)
        if not isinstance(task, TaskMessage) or names.role_of(task.to or "") != job.role:
            raise Refusal(f"it is no task for {POOL}{job.role}")
        return raw, task

    async def _refuse(self, job: JobSubject, found: RawStreamMsg, known: Claim | None, why: str) -> None:
        """Refuse a job for all hosts, as the one that holds it. Raises NatsError."""
        if await self.tables.write(job, Claim(self._own_name), known, seconds=UNTAKEN) is not None:
            await self._say_refused(job, found, why)

    async def _say_refused(self, job: JobSubject, found: RawStreamMsg, why: str) -> None:
        await self.receiving.refuse_job(job, found.data or b"", (found.headers or {}).get(DIGEST, ""), why)

    async def _deliver_held(self) -> None:
        """Deliver what is held and not in the inbox yet: its files were missing, or the process was killed."""
        due = self.here.clock.monotonic() - _SAID_AGAIN
        held = [(name, job) for name, job in self.jobs.items() if job.stage == JobStage.HELD]
        for name, job in held:
            if self._delivered.get(name, due) <= due:
                subject = JobSubject(job.role, job.sender, name)
                if (found := await self.tables.job(subject)) is not None:
                    await self._try_to_deliver(subject, found)

    async def _try_to_deliver(self, job: JobSubject, found: RawStreamMsg) -> None:
        try:
            await self._deliver(job, found)
        except (NatsError, WorldError) as error:
            _log.debug("%s is delivered later: %s", job.job, error)
        except Exception:
            if self._is_hopeless(job):
                await self._say_refused(job, found, _BUG)
                self._keep({job.job: None})

    async def _deliver(self, job: JobSubject, found: RawStreamMsg) -> None:
        """Put a job that is held into the inbox, or have its receipt sent again. Raises NatsError, WorldError."""
        try:
            raw, task = self._opened(job, found)
            one = self.workspaces.receiver(self.jobs[job.job].agent)
            if not self.receiving.put_in_inbox(one, job, task, raw):
                return  # its files are under way
            if _has_ended(one, job):
                raise Refusal(f"{self._own_name} has done it, and its result was taken: its sender was set back")
        except (Refusal, SealError) as refusal:
            await self._say_refused(job, found, str(refusal))
            self._keep({job.job: None})
            return
        except Later:
            return  # mail of the same id waits for its files, or lies in the inbox
        except WorldError as error:
            _log.warning("a job of %s%s is left to others: %s", POOL, job.role, error)
            self._failing[job.role] = self.here.clock.monotonic() + _PASSED_OVER
            raise
        self._delivered[job.job] = self.here.clock.monotonic()
        self.workspaces.wake(one.agent.lower())

    # keeping what is held

    async def renew(self) -> None:
        """Claim again what is held here, and give up what is not any more. Raises WorldError."""
        jobs = [*self.jobs.items()]
        found = await asyncio.gather(*(self._tried(name, job) for name, job in jobs))
        changes = {name: now for (name, job), now in zip(jobs, found, strict=True) if now != job}
        if changes:
            self._keep(changes)

    async def _tried(self, name: str, job: Job) -> Job | None:
        try:
            return await self._renewed(name, job)
        except NatsError as error:
            _log.debug("a claim of %s is tried again: %s", name, error)
            return job

    async def _renewed(self, name: str, job: Job) -> Job | None:
        """The job held now; None if it is over: its sender has the result, has closed it, or left the hub."""
        one = self.workspaces.local.get(job.agent)
        is_sent = one is not None and _is_sent(one, name, job)
        if self.here.keys(job.sender) is None or (job.stage == _LOST and is_sent):
            return None
        if job.stage == _LOST:
            return job
        subject = JobSubject(job.role, job.sender, name)
        stage = JobStage.DONE if job.stage == JobStage.FINISHED and is_sent else JobStage(job.stage)
        is_able = stage is not JobStage.HELD or (one is not None and self._can_do(one, name, job.role))
        renews = is_able and self.may_serve(job.role)
        own = Claim(self._own_name, stage)
        known = self._own.pop(name, None)
        made = await self.tables.write(subject, own, known) if known is not None and renews else None
        if made is None:
            known = await self.tables.claim(subject)
            if (after := self._checked(name, job, known)) != job or not renews:
                return after
            self._delivered.pop(name, None)  # the server may have lost its receipt, too
            made = await self.tables.write(subject, own, known)
        if made is not None:
            self._own[name] = made
        return None if made is not None and stage is JobStage.DONE else job

    def _can_do(self, one: Local, name: str, role: str) -> bool:
        """Whether the agent can do a job that is held: its daemon works, and the job could be delivered."""
        is_there = name in self._delivered or self._failing.get(role, 0.0) <= self.here.clock.monotonic()
        return is_there and self._works(one)

    def _checked(self, name: str, job: Job, claim: Claim | None) -> Job | None:
        """A job by its last claim."""
        match pools.holding(self._own_name, job.sender, claim):
            case Holding.CLOSED:
                return None
            case Holding.FENCED:
                _log.warning("another host has done %s, because this one was silent", name)
                return replace(job, stage=_LOST)
            case Holding.TAKEN_OVER:
                _log.warning(
                    "the host %s has taken over %s, because this one was silent", claim.host if claim else "?", name
                )
                return replace(job, stage=_LOST)
        return job

    async def must_wait(self, reply: ReplyMessage) -> str:
        """Claim a job as finished before its result is sent; why that has to wait if another host has it.

        That host may fail too, and then this result counts. Raises Refusal once it cannot any more, NatsError.
        """
        name = reply.in_reply_to or ""
        if (job := self.jobs.get(name)) is None:
            return ""
        job, subject = replace(job, reply=reply.message_id or ""), JobSubject(job.role, job.sender, name)
        claim = await self.tables.claim(subject)
        how = pools.holding(self._own_name, job.sender, claim)
        if how is Holding.FENCED or (how is Holding.CLOSED and job.stage == _LOST):
            self._keep({name: None})
            raise Refusal(f"another host has done this job of {POOL}{job.role}")
        if how is Holding.CLOSED:
            return ""  # its sender says what becomes of it
        if how is Holding.TAKEN_OVER:
            self._keep({name: replace(job, stage=_LOST)})
            return f"the host {claim.host if claim else '?'} has taken over this job of {POOL}{job.role}"
        made = await self.tables.write(subject, Claim(self._own_name, JobStage.FINISHED), claim)
        if made is None:
            return self.here.full or f"another host is taking over this job of {POOL}{job.role}"
        self._own[name] = made
        self._keep({name: replace(job, stage=JobStage.FINISHED)})
        return ""

    def status(self) -> dict[str, ServedPool]:
        """The pools that this host serves, by role."""
        stages = Counter((job.role, job.stage) for job in self.jobs.values())
        return {
            role: {
                "agent": pool.agent,
                "slots": pool.slots,
                "held": stages[role, JobStage.HELD],
                "lost": stages[role, _LOST],
                "may_serve": self.may_serve(role),
            }
            for role, pool in self.here.settings.pools.items()
        }


def _has_ended(one: Local, job: JobSubject) -> bool:
    """Whether the daemon has done a job, and its result was sent and taken."""
    with suppress(UnavailableError), opened(one.ws.database) as report:
        return report.has_ended(job.sender, job.job)
    return False


def _under_way(one: Local) -> list[str]:
    return [*one.spool.names(NEW), *one.spool.names(SENT)]


def _is_sent(one: Local, name: str, job: Job) -> bool:
    """Whether the sender of a job has its result. An earlier version did not note which message that is."""
    if job.reply or job.stage != JobStage.FINISHED:
        return bool(job.reply) and job.reply not in _under_way(one)
    return not any(_answers(one.spool.message(each) or b"", name) for each in _under_way(one))


def _answers(raw: bytes, job: str) -> bool:
    with suppress(MessageError):
        message = parse_message(raw, "message").message
        return isinstance(message, ReplyMessage) and message.in_reply_to == job
    return False
