"""The jobs of pools in the hub process: those that it takes for agents here, and those that agents here gave to pools.

What this host holds is in jobs.json beside hub.yaml, written before a job is delivered into the inbox. So a hub process
that was killed renews the same leases, and a host that comes back late finds what it has lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from mailboxd import health
from mailboxd.core.vocabulary import POOL
from mailboxd.errors import MessageError, UnavailableError, WorldError
from mailboxd.hub.files.membership import HELD_JOBS
from mailboxd.hub.files.spool import NEW, SENT
from mailboxd.hub.files.view import PoolInfo
from mailboxd.hub.process.attachments import Attachments
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.presence import Presence
from mailboxd.hub.process.receiving import Receiving
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import names, pools, subjects
from mailboxd.hub.wire.mail import Refusal
from mailboxd.hub.wire.pools import LEASE, Claim, Holding, Stage, Step
from mailboxd.hub.wire.sealing import EarlierHolder, NotForHost, SealError
from mailboxd.hub.wire.subjects import CLAIM_SUBJECTS, CLAIMS, JOB_SUBJECTS, JOBS, JobSubject
from mailboxd.mailbox import lock
from mailboxd.protocol.messages import TaskMessage, parse_message
from mailboxd.store.reports import opened

_ACK_WAIT = LEASE / pools.DELIVERIES
RENEWAL = _ACK_WAIT / 3
_MOST_JOBS = 100_000
_MOST_AGE = 30 * 86_400.0
"""Seconds that the server keeps a job and its claims; a job that is still wanted then is offered again."""
_MOST_LOST = 1_000
_MOST_TRIES = 10
"""Deliveries of a job that makes the process fail; then it is refused."""
_FETCH = 2.0
_FULL, _CONFLICT = 10077, 10071
"""The server's codes for a subject that is full, and for a claim that another one has overtaken."""
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Job:
    """A job that this host has claimed."""

    role: str
    agent: str
    sender: str
    """The host that gave it to the pool."""
    renewed_on: str
    """The subject on which its lease is renewed."""
    stage: str = Stage.HELD
    """`lost` once another host has claimed it: its result is not sent."""
    copy: int = 0
    delivery: int = 0
    """The delivery on which it was claimed; 0 = an earlier version did not keep it."""


_LOST = "lost"


@dataclass(frozen=True, slots=True)
class Given:
    """A job that an agent here gave to a pool, and the attempt that waits for it."""

    role: str
    attempt: str


def is_queued(error: Exception) -> bool:
    """Whether the server refuses a job because it has it."""
    return isinstance(error, APIError) and error.err_code == _FULL


def streams(replicas: int) -> tuple[StreamConfig, ...]:
    """The streams and consumers that the founder creates at the server."""
    queue = StreamConfig(
        name=JOBS,
        subjects=[JOB_SUBJECTS],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        discard_new_per_subject=True,
        max_msgs=_MOST_JOBS,
    )
    last = StreamConfig(name=CLAIMS, subjects=[CLAIM_SUBJECTS])
    common = {"max_msgs_per_subject": 1, "max_age": _MOST_AGE, "storage": StorageType.FILE, "num_replicas": replicas}
    return tuple(one.evolve(**common) for one in (queue, last))


@dataclass(slots=True)
class Pools:
    """The part of one hub process in pools."""

    here: ThisHost
    workspaces: Workspaces
    presence: Presence
    under_way: UnderWay
    attachments: Attachments
    receiving: Receiving
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    """A slot has become free."""
    _jobs: dict[str, Job] | None = None
    _given: dict[str, Given | None] = field(default_factory=dict)
    """The job of each message under way; None = it is not a job."""

    @property
    def jobs(self) -> dict[str, Job]:
        """The claims of this host, by message id."""
        if self._jobs is None:
            found: dict[str, dict[str, Any]] = {}
            with suppress(ValueError, TypeError):
                found = json.loads(self.here.membership.state.read(HELD_JOBS) or b"{}")
            self._jobs = {job: Job(**values) for job, values in found.items()}
        return self._jobs

    def _keep(self, changes: dict[str, Job | None]) -> None:
        """Remember what is held now; None = it is over. Raises WorldError."""
        jobs = {name: job for name, job in (self.jobs | changes).items() if job is not None}
        lost = [name for name, job in jobs.items() if job.stage == _LOST]
        for name in lost[:-_MOST_LOST]:
            del jobs[name]
        with self.here.membership.state.writing() as folder:
            text = json.dumps({name: asdict(job) for name, job in jobs.items()})
            self.here.membership.state.write(folder, HELD_JOBS, text.encode())
        self._jobs = jobs
        self.freed.set()

    # claims at the server

    async def _claim(self, job: str) -> Claim | None:
        """The last claim of a job. Raises NatsError."""
        with suppress(NotFoundError):
            last = await self._stream.get_last_msg(CLAIMS, subjects.claims_of(job))
            host = (last.subject or "").rpartition(".")[2]
            return Claim.parse(host, last.data or b"", last.seq or 0)
        return None

    async def _write(self, job: str, claim: Claim, known: Claim | None) -> bool:
        """Claim a job, unless another claim was made after the known one; whether it was claimed. Raises NatsError."""
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(known.revision if known else 0),
            "Nats-Expected-Last-Subject-Sequence-Subject": subjects.claims_of(job),
        }
        try:
            subject = subjects.claims_of(job, self.here.settings.host)
            await self._stream.publish(subject, claim.to_bytes(), headers=headers)
        except APIError as error:
            if error.err_code != _CONFLICT:
                raise
            return False
        return True

    @property
    def _stream(self) -> JetStreamContext:
        return self.here.js

    # taking jobs

    async def prepare(self) -> None:
        """Create the consumers of the pools that this host serves. Raises NatsError."""
        for role in self.here.settings.pools:
            name = subjects.consumer_of(role)
            config = ConsumerConfig(
                name=name,
                durable_name=name,
                filter_subject=subjects.jobs_of(role),
                ack_wait=_ACK_WAIT,
                max_ack_pending=_MOST_JOBS,
            )
            await self._stream.add_consumer(JOBS, config)

    def _free(self, role: str) -> int:
        """How many jobs may be taken now: none if the agent's daemon does not work."""
        pool = self.here.settings.pools[role]
        one = self.workspaces.local.get(pool.agent.lower())
        if one is None or not self._works(one):
            return 0
        return pool.slots - sum(job.role == role and job.stage == Stage.HELD for job in self.jobs.values())

    def _works(self, one: Local) -> bool:
        """Whether the daemon runs and its loop is alive."""
        clock = self.here.clock
        grade, troubles = health.read(one.ws, lock.holder(one.ws), clock.now(), clock.monotonic())
        return grade is not health.Grade.OFF and all(each.where != health.Component.DAEMON for each in troubles)

    async def take(self) -> None:
        """Take jobs while there are free slots."""
        await asyncio.gather(*(self._serve(role) for role in self.here.settings.pools))

    async def _serve(self, role: str) -> None:
        consumer = await self._stream.pull_subscribe_bind(stream=JOBS, durable=subjects.consumer_of(role))
        try:
            while (free := self._free(role)) > 0:
                with suppress(NatsTimeout, asyncio.TimeoutError):
                    for message in await consumer.fetch(free, timeout=_FETCH):
                        await self._take(role, message)
                    continue
                return
        finally:
            with suppress(NatsError):
                await consumer.unsubscribe()

    async def _take(self, role: str, message: Msg) -> None:
        subject = JobSubject.parse(message.subject)
        try:
            if subject is None:
                raise Refusal("its subject is unknown; this mailboxd may be too old")
            step = await self._take_job(role, subject, message)
        except (Refusal, SealError) as refusal:
            step = Step.DROP
            if subject is not None:
                await self.receiving.refuse_job(subject, message, str(refusal))
        except (NatsError, WorldError) as error:
            _log.warning("a job of %s%s is left to others: %s", POOL, role, error)
            step = Step.LEAVE
        except Exception:
            _log.exception("a bug in mailboxd: a job on %s; please report it", message.subject[:200])
            step = Step.LEAVE
            if subject is not None and message.metadata.num_delivered >= _MOST_TRIES:
                await self.receiving.refuse_job(subject, message, "a bug in mailboxd: it cannot be handled")
                step = Step.DROP
        with suppress(NatsError):
            if step is Step.DROP:
                await message.ack()
            elif step is Step.LEAVE:
                await message.nak(delay=_ACK_WAIT)
            elif step is Step.LATER:
                await message.nak(delay=min(2.0 ** (message.metadata.num_delivered - 1), _ACK_WAIT))

    async def _take_job(self, role: str, subject: JobSubject, message: Msg) -> Step:
        """Claim a job, remember that, and deliver it into the inbox.

        Raises Refusal, SealError, NatsError, WorldError.
        """
        here, job, raw = self.here, subject.job, None
        with suppress(NotForHost, EarlierHolder):
            raw = here.unsealed(message.data)
        task = None if raw is None else self.receiving.verified(subject, job, raw)
        agent, own = here.settings.pools[role].agent.lower(), here.settings.host
        if task is not None and (not isinstance(task, TaskMessage) or names.role_of(task.to or "") != role):
            raise Refusal(f"it is no task for {POOL}{role}")
        copy, delivery = message.metadata.sequence.stream, message.metadata.num_delivered
        claim = await self._claim(job)
        step = pools.on_delivery(own, subject.sender, claim, copy, delivery)
        if step is not Step.TAKE:
            return step
        if task is None or raw is None:  # its sender finds it gone, and offers it to those who serve the pool now
            return Step.DROP
        one, is_own = self.workspaces.receiver(agent), task.from_.lower() == f"{own}.{agent}"
        permitted = not is_own and names.permits(here.settings.accept, task.from_)
        if not (permitted and not self.attachments.lacking(one, task, subject)):
            return Step.LATER if claim is None else Step.LEAVE
        made = pools.taken(own, claim, copy, delivery)
        if not await self._write(job, made, claim):
            return Step.LEAVE
        self._keep({job: Job(role, agent, subject.sender, message.reply, made.stage, copy, delivery)})
        self.receiving.put_in_inbox(one, subject, task, raw)
        self.workspaces.wake(agent)
        return step

    async def renew(self) -> None:
        """Renew the leases of what is held here, and give up what is not any more."""
        jobs = [(name, job) for name, job in self.jobs.items() if job.stage != _LOST]
        found = await asyncio.gather(*(self._renewed(name, job) for name, job in jobs))
        changes = {name: now for (name, job), now in zip(jobs, found, strict=True) if now != job}
        if changes:
            self._keep(changes)

    async def _renewed(self, name: str, job: Job) -> Job | None:
        """The job held now; None once its sender has closed it."""
        claim = await self._claim(name)
        match self._holding(job, claim):
            case Holding.CLOSED:
                await self.here.nc.publish(job.renewed_on, b"+ACK")
                return None
            case Holding.FENCED:
                _log.warning("another host has done %s, because this one was silent", name)
                return replace(job, stage=_LOST)
            case Holding.TAKEN_OVER:
                _log.warning(
                    "the host %s has taken over %s, because this one was silent", claim.host if claim else "?", name
                )
                return replace(job, stage=_LOST)
        one = self.workspaces.local.get(job.agent)
        if job.stage == Stage.FINISHED or (one is not None and self._works(one)):
            await self.here.nc.publish(job.renewed_on, b"+WPI")
        return job

    def _holding(self, job: Job, claim: Claim | None) -> Holding:
        return pools.holding(self.here.settings.host, job.sender, claim, job.copy, job.delivery)

    async def must_wait(self, name: str | None) -> str:
        """Claim a job as finished before its result is sent; why that has to wait if another host has it.

        That host may fail too, and then this result counts. Raises Refusal once it cannot any more, NatsError.
        """
        job = self.jobs.get(name or "")
        if job is None or name is None:
            return ""
        own, claim = self.here.settings.host, await self._claim(name)
        how = self._holding(job, claim)
        if how is Holding.FENCED or (how is Holding.CLOSED and job.stage == _LOST):
            self._keep({name: None})
            raise Refusal(f"another host has done this job of {POOL}{job.role}")
        if how is Holding.CLOSED:
            return ""  # its sender says what becomes of it
        if how is Holding.TAKEN_OVER:
            self._keep({name: replace(job, stage=_LOST)})
            return f"the host {claim.host if claim else '?'} has taken over this job of {POOL}{job.role}"
        if claim is None or claim.stage is not Stage.FINISHED:
            made = pools.following(own, Stage.FINISHED, claim)
            if not await self._write(name, made, claim):
                return f"another host is taking over this job of {POOL}{job.role}"
            claim = made
        # with the delivery that the server has: a crash may have kept a later one from jobs.json
        finished = replace(job, stage=Stage.FINISHED, copy=claim.copy, delivery=claim.delivery)
        if finished != job:
            self._keep({name: finished})
        return ""

    # giving jobs

    def given(self, one: Local) -> dict[str, Given]:
        """The jobs that an agent here gave to pools and that are not over. Raises WorldError."""
        names = _under_way(one)
        for name in names:
            if name not in self._given:
                self._given[name] = _given(one.spool.message(name) or b"")
        return {name: job for name in names if (job := self._given[name]) is not None}

    def holder(self, one: Local, attempt: str | None) -> str:
        """The host that has the job of an attempt; empty if none was heard of. Raises WorldError."""
        for name, job in self.given(one).items():
            if job.attempt == attempt and (holder := one.spool.holder(name)) is not None:
                return holder.host
        return ""

    async def tend(self) -> None:
        """Close the jobs that are over, and offer again what the server has lost."""
        under_way: set[str] = set()
        for one in self.workspaces.spools():
            under_way.update(_under_way(one))
            if given := self.given(one):
                await self._close(one, given)
                await self._offer_again(one, given)
        self._given = {name: job for name, job in self._given.items() if name in under_way}

    async def _close(self, one: Local, given: dict[str, Given]) -> None:
        over: set[str] = set()
        with suppress(UnavailableError), opened(one.ws.database) as report:
            over = report.over(job.attempt for job in given.values())
        for name in [name for name, job in given.items() if job.attempt in over]:
            if await self._closed(name):
                raw = one.spool.message(name) or b""
                self.attachments.remove(one, name, subjects.POOLS)
                one.spool.settle(
                    self.receiving.receipts.make(name, raw, self.here.settings.host, "its attempt is over")
                )
                self.workspaces.wake(one.agent.lower())

    async def _closed(self, name: str) -> bool:
        """Close a job: whoever gets it from the queue drops it."""
        claim, own = await self._claim(name), self.here.settings.host
        made = pools.following(own, Stage.CLOSED, claim)
        return pools.is_closed(claim, own) or await self._write(name, made, claim)

    async def _offer_again(self, one: Local, given: dict[str, Given]) -> None:
        queued: dict[str, Iterable[str]] = {}
        now, own = self.here.clock.monotonic(), self.here.settings.host
        for name in one.spool.names(SENT):
            if (job := given.get(name)) is None:
                continue
            if job.role not in queued:
                wanted = subjects.jobs_of(job.role, own)
                queued[job.role] = (await self._stream.stream_info(JOBS, subjects_filter=wanted)).state.subjects or {}
            waited = now - self.under_way.sent_at.setdefault(name, now)
            if pools.must_offer(waited, queued=str(JobSubject(job.role, own, name)) in queued[job.role]):
                _log.info("offering %s again: the server has lost it", name)
                one.spool.again(name)
                self.here.woken.set()

    # what is known

    def known(self) -> dict[str, PoolInfo]:
        """The pools of the hub, as reported to daemons."""
        settings = self.here.settings
        served = {host: set(signs.card.pools) for host, signs in self.presence.hosts.items() if signs.card}
        served[settings.host] = set(settings.pools)
        roles = sorted({role for each in served.values() for role in each})
        return {
            role: PoolInfo(
                tuple(sorted(host for host, each in served.items() if role in each)),
                names.permits(settings.send, f"{POOL}{role}"),
                settings.pools[role].agent.lower() if role in settings.pools else "",
            )
            for role in roles
        }

    def status(self) -> dict[str, object]:
        """For `mailboxd hub status`."""
        stages = Counter((job.role, job.stage) for job in self.jobs.values())
        served = {
            role: {**pool.model_dump(), "held": stages[role, Stage.HELD], "lost": stages[role, _LOST]}
            for role, pool in self.here.settings.pools.items()
        }
        given: dict[str, Counter[str]] = {}
        for role, host in self._holders():
            given.setdefault(role, Counter())[host] += 1
        return {"served": served, "given": given}

    def _holders(self) -> Iterator[tuple[str, str]]:
        """The role of each job that an agent here gave to a pool, and the host that has it; empty if none does."""
        for one in self.workspaces.local.values():
            with suppress(WorldError):
                for name, job in self.given(one).items():
                    holder = one.spool.holder(name)
                    yield job.role, holder.host if holder else ""


def _under_way(one: Local) -> list[str]:
    """The messages without receipt, and the jobs that are not over. Raises WorldError."""
    return [*one.spool.names(NEW), *one.spool.names(SENT)]


def _given(raw: bytes) -> Given | None:
    try:
        message = parse_message(raw, "message").message
    except MessageError:
        return None
    role = names.role_of(message.to or "")
    return Given(role, message.attempt_id or "") if role and isinstance(message, TaskMessage) else None
