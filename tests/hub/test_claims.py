"""The protocol of pools: names, claims, and every order of what may happen to jobs that two hosts may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.hub.wire.mail import GRACE
from mailboxd.hub.wire.names import is_host, role_of
from mailboxd.hub.wire.pools import (
    Claim,
    Holding,
    Stage,
    Step,
    following,
    holding,
    is_closed,
    must_offer,
    on_delivery,
    taken,
)
from mailboxd.hub.wire.subjects import (
    CLAIM_SUBJECTS,
    JOB_SUBJECTS,
    SUBJECTS,
    JobSubject,
    claims_of,
    consumer_of,
    jobs_of,
)
from tests.hub.exploring import arriving, explore
from tests.hub.test_protocol import agents, hosts, matches

# Names and claims


@given(agents, hosts, agents)
def test_a_job_has_one_subject_which_is_read_back(role: str, sender: str, job: str) -> None:
    subject = JobSubject(role, sender, job)
    assert JobSubject.parse(str(subject)) == subject
    assert [matches(pattern, str(subject)) for pattern in (JOB_SUBJECTS, jobs_of(role), *SUBJECTS)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not matches(jobs_of(f"{role}x"), str(subject))
    assert not matches(jobs_of(role, f"{sender}x"), str(subject))
    assert matches(CLAIM_SUBJECTS, claims_of(job, sender))
    assert not is_host(consumer_of(role)), "a host of that name would read the pool's jobs"


def test_what_is_a_pool() -> None:
    assert role_of("pool:Reviewer") == "reviewer"
    assert [role_of(text) for text in ("reviewer", "pool:", "pool:a:b", "pool:../x", "Pool:x")] == [""] * 5


@given(st.sampled_from(Stage), st.integers(0, 9), st.integers(0, 9), st.integers(1, 9))
def test_a_claim_is_read_back(stage: Stage, copy: int, delivery: int, revision: int) -> None:
    claim = Claim("beta", stage, copy, delivery, revision)
    assert Claim.parse("beta", claim.to_bytes(), revision) == claim


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"stage": "x"}', b"[" * 100_000, b"\xff"])
def test_nonsense_is_a_claim_that_lapses(raw: bytes) -> None:
    assert Claim.parse("gamma", raw, 7) == Claim("gamma", revision=7)


def test_a_host_takes_over_after_two_deliveries_without_a_renewal() -> None:
    held = Claim("beta", Stage.HELD, copy=1, delivery=3)
    assert on_delivery("gamma", "alpha", None, 1, 1) is Step.TAKE
    assert [on_delivery("gamma", "alpha", held, 1, delivery) for delivery in (4, 5)] == [Step.LEAVE, Step.TAKE]
    assert [on_delivery("gamma", "alpha", held, 2, delivery) for delivery in (1, 2)] == [Step.LEAVE, Step.TAKE]
    assert on_delivery("beta", "alpha", held, 1, 4) is Step.TAKE, "its own"


def test_only_the_sender_can_close_a_job() -> None:
    assert on_delivery("gamma", "alpha", Claim("alpha", Stage.CLOSED), 1, 1) is Step.DROP
    assert on_delivery("gamma", "alpha", Claim("beta", Stage.CLOSED), 1, 1) is Step.LEAVE
    assert not is_closed(Claim("beta", Stage.CLOSED), "alpha")


def test_who_no_longer_holds_a_job_may_not_finish_it() -> None:
    taken_over, finished = Claim("gamma", copy=1, delivery=4), Claim("beta", Stage.FINISHED, copy=1, delivery=2)
    for claim, expected in (
        (Claim("beta", copy=1, delivery=2), Holding.HELD),
        (None, Holding.HELD),  # the server has lost the claim: it is made again
        (taken_over, Holding.TAKEN_OVER),
        (following("alpha", Stage.CLOSED, taken_over), Holding.FENCED),
        (following("alpha", Stage.CLOSED, finished), Holding.CLOSED),
        (following("alpha", Stage.CLOSED, None), Holding.CLOSED),
    ):
        assert holding("beta", "alpha", claim, 1, 2) is expected, claim
    over = following("alpha", Stage.CLOSED, taken_over)
    assert holding("beta", "alpha", over, 0, 0) is Holding.CLOSED, "of an earlier version"


def test_a_job_is_offered_again_only_if_the_server_has_lost_it() -> None:
    assert must_offer(GRACE, queued=False)
    assert not must_offer(GRACE - 1, queued=False)
    assert not must_offer(100 * GRACE, queued=True)


# Every interleaving: two hosts with one slot each, one or two jobs. The steps are those of `hub.pools`.

MOST_STATES = 400_000
HOSTS = ("beta", "gamma")
_LOST = "lost"


@dataclass(frozen=True, slots=True)
class Part:
    """What one host knows of a job."""

    looked: tuple[str, Claim | None, int, int] | None = None
    """What it is about to do (`take` or `send`), and the claim, copy and delivery that it has seen."""
    stage: str = ""
    """In its jobs.json; empty = it holds nothing."""
    claimed: tuple[int, int] = (0, 0)
    """The copy and the delivery on which it was claimed, in its jobs.json."""
    executed: bool = False
    reply: str = ""
    """Where the result is: new, sent, gone."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all know of a job."""

    spool: str = "new"
    """Where the sender keeps it: new, sent, gone."""
    copy: int = 0
    """The copy in the queue; 0 = none."""
    copies: int = 0
    delivery: int = 0
    leased: bool = False
    """It was handed over, and the lease has not lapsed."""
    claim: Claim | None = None
    mail: int = 0
    """Copies of results on their way to the sender."""
    accepted: int = 0
    parts: tuple[Part, Part] = (Part(), Part())


@dataclass(frozen=True, slots=True)
class World:
    jobs: tuple[Job, ...]
    frozen: int | None = None
    old: tuple[Job, ...] | None = None
    """A copy of the server's store; empty = none is ever made."""
    faults: int = 0


def with_job(world: World, n: int, job: Job) -> World:
    return replace(world, jobs=(*world.jobs[:n], job, *world.jobs[n + 1 :]))


def with_part(job: Job, h: int, **changes: object) -> Job:
    part = replace(job.parts[h], **changes)  # type: ignore[arg-type]
    return replace(job, parts=(part, job.parts[1]) if h == 0 else (job.parts[0], part))


def written(job: Job, claim: Claim, known: Claim | None) -> Job | None:
    """Compare and set; None if another claim was made since."""
    now = job.claim.revision if job.claim else 0
    if now != (known.revision if known else 0):
        return None
    return replace(job, claim=replace(claim, revision=now + 1))


def dropped(job: Job) -> Job:
    return replace(job, copy=0, delivery=0, leased=False)


def is_renewed(world: World, job: Job) -> bool:
    """Whether a live holder renews the lease, or a live host is about to claim it."""
    if any(part.looked and part.looked[0] == "take" and world.frozen != h for h, part in enumerate(job.parts)):
        return True
    if job.claim is None or job.claim.host not in HOSTS:
        return False
    h = HOSTS.index(job.claim.host)
    return world.frozen != h and job.parts[h].stage in (Stage.HELD, Stage.FINISHED)


def steps(world: World) -> Iterator[World]:
    for n, job in enumerate(world.jobs):
        for after in (
            *sender_steps(job),
            *(after for h in (0, 1) if world.frozen != h for after in host_steps(world, job, h)),
        ):
            yield with_job(world, n, after)
        if job.leased and not is_renewed(world, job):
            yield with_job(world, n, replace(job, leased=False))


def sender_steps(job: Job) -> Iterator[Job]:
    offers = job.spool == "new" or (job.spool == "sent" and must_offer(GRACE, queued=job.copy > 0))
    if offers:
        fresh = {"copy": job.copies + 1, "copies": job.copies + 1, "delivery": 0, "leased": False}
        yield replace(job, spool="sent", **({} if job.copy else fresh))  # type: ignore[arg-type]
    if job.mail:  # it takes one result of its attempt; another is late
        yield replace(job, mail=job.mail - 1, accepted=job.accepted + (not job.accepted))
    if job.accepted and job.spool != "gone":
        made = following("alpha", Stage.CLOSED, job.claim)
        over = job if is_closed(job.claim, "alpha") else written(job, made, job.claim)
        assert over is not None
        yield replace(over, spool="gone")


def host_steps(world: World, job: Job, h: int) -> Iterator[Job]:
    own, part = HOSTS[h], job.parts[h]
    has_slot = not any(one.parts[h].stage == Stage.HELD for one in world.jobs)
    if job.copy and not job.leased and has_slot and part.looked is None:
        seen = ("take", job.claim, job.copy, job.delivery + 1)
        yield with_part(replace(job, delivery=job.delivery + 1, leased=True), h, looked=seen)
    if part.looked is not None:
        yield acted(with_part(job, h, looked=None), h, *part.looked)
    if part.stage and not part.executed:
        yield with_part(job, h, executed=True, reply="new")
    if part.reply == "new" and part.looked is None:
        yield with_part(job, h, looked=("send", job.claim, 0, 0))
    if part.reply == "sent" and not job.mail:
        yield with_part(job, h, reply="gone" if job.accepted else "new")  # its receipt, or it is sent again
    if part.stage in (Stage.HELD, Stage.FINISHED):  # it renews, and looks whether it still holds it
        match holding(own, "alpha", job.claim, *part.claimed):
            case Holding.CLOSED:
                yield dropped(with_part(job, h, stage=""))
            case Holding.FENCED | Holding.TAKEN_OVER:
                yield with_part(job, h, stage=_LOST)


def acted(job: Job, h: int, what: str, known: Claim | None, copy: int, delivery: int) -> Job:
    """Do what was decided on what was seen before."""
    own, part = HOSTS[h], job.parts[h]
    if what == "take":
        step = on_delivery(own, "alpha", known, copy, delivery)
        if step is Step.DROP:
            return dropped(job) if job.copy == copy else job
        made = taken(own, known, copy, delivery)
        claimed = written(job, made, known) if step is Step.TAKE else None
        return job if claimed is None else with_part(claimed, h, stage=made.stage, claimed=(copy, delivery))
    how = holding(own, "alpha", known, *part.claimed)
    if part.stage and (how is Holding.FENCED or (how is Holding.CLOSED and part.stage == _LOST)):
        return with_part(job, h, stage="", reply="gone")
    if part.stage and how is Holding.TAKEN_OVER:
        return with_part(job, h, stage=_LOST)
    if part.stage and how is Holding.HELD and (known is None or known.stage is not Stage.FINISHED):
        made = following(own, Stage.FINISHED, known)
        finished = written(job, made, known)
        if finished is None:
            return job
        job = with_part(finished, h, stage=Stage.FINISHED, claimed=(made.copy, made.delivery))
    return with_part(replace(job, mail=min(job.mail + 1, 2)), h, reply="sent")


def faults(world: World) -> Iterator[World]:
    if world.frozen is not None:
        yield replace(world, frozen=None)  # it thaws: whatever it was about to do, it does now
    if not world.faults:
        return
    less = replace(world, faults=world.faults - 1)
    for h in (0, 1):
        if world.frozen is None:
            yield replace(less, frozen=h)
        parts = [with_part(job, h, looked=None) for job in world.jobs]
        if tuple(parts) != world.jobs:
            yield replace(less, jobs=tuple(parts))  # it crashes
    yield replace(less, jobs=tuple(at_server(job, Job()) for job in world.jobs))  # the store is deleted
    if world.old == ():
        pass
    elif world.old is None:
        yield replace(world, old=tuple(at_server(Job(), job) for job in world.jobs))
    else:
        yield replace(less, jobs=tuple(at_server(job, old) for job, old in zip(world.jobs, world.old, strict=True)))
    for n, job in enumerate(world.jobs):
        if job.leased:
            yield with_job(less, n, replace(job, leased=False))  # a renewal is late
        if job.mail:
            yield with_job(less, n, replace(job, mail=job.mail - 1))
            yield with_job(less, n, replace(job, mail=2))


def at_server(job: Job, other: Job) -> Job:
    """The job, with the server's store as it was in the other one."""
    return replace(
        job, copy=other.copy, delivery=other.delivery, leased=other.leased, claim=other.claim, mail=other.mail
    )


def law(count: int, may_fail: int, *, rewinds: bool = True) -> int:
    """Never two results of a job, and from each state all are done, even if one host stays frozen."""
    before = explore(World((Job(),) * count, None, None if rewinds else (), may_fail), steps, faults, MOST_STATES)
    for world in before:
        for job in world.jobs:
            assert job.accepted <= 1, "a job had two effects"
            assert job.spool != "gone" or job.accepted, "a job left its sender before it was done"
            if world.faults == may_fail and world.frozen is None and not world.old:
                assert sum(part.executed for part in job.parts) <= 1, "a job was done twice without a fault"
    arrives = arriving(before, lambda world: all(job.spool == "gone" and job.accepted == 1 for job in world.jobs))
    for world in before.keys() - arrives:
        raise AssertionError(f"in some state a job is lost: {world}")
    return len(before)


@pytest.mark.slow
@pytest.mark.parametrize(("may_fail", "rewinds"), [(1, True), (2, False)])
def test_one_job_is_neither_lost_nor_done_twice(
    may_fail: int, rewinds: bool, record_property: Callable[[str, object], None]
) -> None:
    states = law(1, may_fail, rewinds=rewinds)
    record_property("states", states)
    print(f"{states} states")


def test_two_jobs_are_neither_lost_nor_done_twice(record_property: Callable[[str, object], None]) -> None:
    states = law(2, 0)
    record_property("states", states)
    print(f"{states} states")
