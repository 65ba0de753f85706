"""The protocol of pools: names, claims, and every order of what may happen to jobs that two hosts may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.hub.wire.mail import GRACE
from mailboxd.hub.wire.names import role_of
from mailboxd.hub.wire.pools import (
    LEASE,
    RENEWAL,
    UNTAKEN,
    Claim,
    Holding,
    JobStage,
    Silence,
    closing,
    holder,
    holding,
    in_turn,
    is_closed,
    is_taken,
    may_take,
    must_offer,
    must_reopen,
    rights,
)
from mailboxd.hub.wire.subjects import CLAIM_SUBJECTS, JOB_SUBJECTS, SUBJECTS, JobSubject, jobs_of
from tests.hub.exploring import arriving, explore
from tests.hub.test_protocol import agents, hosts, matches

# Names and claims


@given(agents, hosts, agents, hosts)
def test_a_job_has_one_subject_which_is_read_back(role: str, sender: str, name: str, host: str) -> None:
    job = JobSubject(role, sender, name)
    assert JobSubject.parse(str(job)) == JobSubject.parse(job.claimed_by(host)) == job
    assert [matches(pattern, str(job)) for pattern in (JOB_SUBJECTS, jobs_of(role), *SUBJECTS)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not matches(jobs_of(f"{role}x"), str(job))
    assert not matches(jobs_of(role, f"{sender}x"), str(job))
    assert [matches(pattern, job.claimed_by(host)) for pattern in (CLAIM_SUBJECTS, *SUBJECTS)] == [True, False, False]
    assert matches(job.claimed_by("*"), job.claimed_by(host))


@given(hosts, hosts, agents)
def test_a_host_claims_under_its_own_name_and_only_jobs_of_pools_that_it_may_serve(
    host: str, sender: str, role: str
) -> None:
    job = JobSubject(role, sender, "msg_1")

    def may(publish: str, *roles: str) -> bool:
        return any(matches(pattern, publish) for pattern in rights(host, roles))

    assert may(job.claimed_by(host), role)
    assert may(job.claimed_by(host), "*")
    assert may(job.claimed_by(host)) == may(job.claimed_by(host), f"{role}x") == may(str(job), "*") == (host == sender)
    assert not may(job.claimed_by(f"{host}x"), "*")


def test_what_is_a_pool() -> None:
    assert role_of("pool:Reviewer") == "reviewer"
    assert [role_of(text) for text in ("reviewer", "pool:", "pool:a:b", "pool:../x", "Pool:x")] == [""] * 5


@given(st.sampled_from(JobStage), hosts, st.integers(1, 9))
def test_a_claim_is_read_back(stage: JobStage, of: str, revision: int) -> None:
    claim = Claim("beta", stage, of, revision)
    assert Claim.parse("beta", claim.to_bytes(), revision) == claim


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"stage": "x"}', b"[" * 100_000, b"\xff"])
def test_nonsense_is_a_claim_that_lapses(raw: bytes) -> None:
    assert Claim.parse("gamma", raw, 7) == Claim("gamma", revision=7)


def test_a_host_takes_over_what_was_not_claimed_again_for_a_lease() -> None:
    held = Claim("beta", revision=3)
    assert may_take("gamma", "alpha", None, is_lapsed=False)
    assert [may_take("gamma", "alpha", held, is_lapsed=lapsed) for lapsed in (False, True)] == [False, True]
    assert may_take("beta", "alpha", held, is_lapsed=False), "its own, from before a crash"
    assert may_take("gamma", "alpha", Claim("alpha", JobStage.OPEN), is_lapsed=False)


def test_a_sender_of_many_jobs_does_not_delay_those_of_others() -> None:
    many, few = [JobSubject("r", "alpha", f"msg_{n}") for n in range(5)], [JobSubject("r", "beta", "msg_9")]
    assert in_turn([*reversed(many), *few]) == [many[0], few[0], *many[1:]]


def looks(first: float, *at: float) -> Silence:
    """At these times, the claim was the same."""
    silence = Silence.after(None, Claim("beta", revision=1), first)
    for now in at:
        silence = Silence.after(silence, Claim("beta", revision=1), now)
    return silence


def test_a_lease_is_a_time_in_which_a_claim_was_seen_not_to_change() -> None:
    steps = [number * RENEWAL / 2 for number in range(100)]
    whole = looks(*[at for at in steps if at <= LEASE])
    assert whole.is_lapsed
    assert not looks(*[at for at in steps if at < LEASE]).is_lapsed
    assert not looks(0.0, RENEWAL / 2, 1_000 * LEASE).is_lapsed, "the server was away: that costs no live holder"
    assert not Silence.after(whole, Claim("beta", revision=2), 2 * LEASE).is_lapsed, "it was renewed"


def test_only_the_sender_can_close_a_job() -> None:
    assert not may_take("gamma", "alpha", Claim("alpha", JobStage.CLOSED), is_lapsed=True)
    assert not is_closed(Claim("beta", JobStage.CLOSED), "alpha")


def test_who_no_longer_holds_a_job_may_not_finish_it() -> None:
    for claim, expected in (
        (Claim("beta"), Holding.HELD),
        (None, Holding.HELD),  # the server has lost the claim: it is made again
        (Claim("alpha", JobStage.OPEN), Holding.HELD),
        (Claim("gamma"), Holding.TAKEN_OVER),
        (closing("alpha", Claim("gamma")), Holding.FENCED),
        (closing("alpha", Claim("beta", JobStage.FINISHED)), Holding.CLOSED),
        (closing("alpha", None), Holding.CLOSED),
    ):
        assert holding("beta", "alpha", claim) is expected, claim


def test_a_result_is_taken_from_the_holder_only() -> None:
    for claim, expected in (
        (Claim("beta", JobStage.FINISHED), True),
        (Claim("beta"), True),
        (None, False),  # the server has lost the claim: its holder makes it again
        (Claim("gamma"), False),
        (Claim("alpha", JobStage.OPEN), False),
        (closing("alpha", Claim("gamma")), False),  # also if the sender was set back, and has it open again
        (closing("alpha", Claim("beta")), True),
    ):
        assert is_taken("beta", "alpha", claim) is expected, claim


def test_a_job_is_offered_again_if_the_server_has_lost_it_or_nobody_takes_it_who_could() -> None:
    assert must_offer(GRACE, 0, is_there=False, is_busy=True)
    assert not must_offer(GRACE - 1, 0, is_there=False, is_busy=False)
    assert must_offer(UNTAKEN, UNTAKEN, is_there=True, is_busy=False)
    assert not must_offer(UNTAKEN, UNTAKEN, is_there=True, is_busy=True), "it waits for a free slot"
    assert not must_offer(UNTAKEN, UNTAKEN - 1, is_there=True, is_busy=False)
    assert not must_offer(UNTAKEN - 1, UNTAKEN, is_there=True, is_busy=False), "it was offered again just now"


# Every interleaving: two hosts with one slot each, one or two jobs. The steps are those of `hub.process.pools`. After
# its store was lost the server counts from one, so that another claim may get the number of one that is gone.

MOST_STATES = 2_000_000
HOSTS = ("beta", "gamma")
_LOST = "lost"


@dataclass(frozen=True, slots=True)
class Part:
    """What one host knows of a job."""

    looked: tuple[str, Claim | None] | None = None
    """What it is about to do (`take` or `send`), and the claim that it has seen."""
    stage: str = ""
    """In its jobs.json; empty = it holds nothing."""
    executed: bool = False
    reply: str = ""
    """Where the result is: new, sent, gone."""
    mail: bool = False
    """The result is on its way to the sender."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all know of a job."""

    spool: str = "new"
    """Where the sender keeps it: new, sent, gone."""
    is_there: bool = False
    """The server has it."""
    claim: Claim | None = None
    is_late: bool = False
    """A live holder has not renewed its claim for a lease."""
    accepted: str = ""
    """Whose result the sender has taken."""
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
    return replace(job, claim=replace(claim, revision=now + 1), is_late=False)


def is_renewed(world: World, job: Job) -> bool:
    """Whether a live holder renews the claim."""
    if (name := holder(job.claim)) not in HOSTS:
        return False
    h = HOSTS.index(name)
    return world.frozen != h and job.parts[h].stage in (JobStage.HELD, JobStage.FINISHED)


def steps(world: World) -> Iterator[World]:
    for n, job in enumerate(world.jobs):
        for after in (
            *sender_steps(job),
            *(after for h in (0, 1) if world.frozen != h for after in host_steps(world, job, h)),
        ):
            yield with_job(world, n, after)


def sender_steps(job: Job) -> Iterator[Job]:
    if job.spool == "new" or (job.spool == "sent" and must_offer(GRACE, 0, is_there=job.is_there, is_busy=False)):
        yield replace(job, spool="sent", is_there=True)
    for h, host in enumerate(HOSTS):
        if not job.parts[h].mail:
            continue
        if not is_taken(host, "alpha", job.claim) and job.spool != "gone":
            yield with_part(job, h, mail=False)  # not yet: it is sent again
        elif job.accepted:  # too late, and so its host is told
            yield with_part(job, h, mail=False, reply="gone")
        else:
            yield with_part(replace(job, accepted=host), h, mail=False)
    if job.spool == "sent" and not job.accepted and must_reopen("alpha", job.claim):
        assert job.claim is not None
        yield replace(job, claim=Claim("alpha", JobStage.OPEN, revision=job.claim.revision + 1))
    is_over = job.spool == "gone" and (job.is_there or (job.claim and not is_closed(job.claim, "alpha")))
    if (job.accepted and job.spool != "gone") or is_over:  # also what came back with an old store, or was made again
        over = job if is_closed(job.claim, "alpha") else written(job, closing("alpha", job.claim), job.claim)
        assert over is not None
        yield replace(over, spool="gone", is_there=False)


def host_steps(world: World, job: Job, h: int) -> Iterator[Job]:
    own, part = HOSTS[h], job.parts[h]
    has_slot = not any(one.parts[h].stage == JobStage.HELD for one in world.jobs)
    is_lapsed = not is_renewed(world, job) or job.is_late
    is_free = part.stage in ("", _LOST) and part.looked is None
    if job.is_there and has_slot and is_free and may_take(own, "alpha", job.claim, is_lapsed=is_lapsed):
        yield with_part(job, h, looked=("take", job.claim))
    if part.looked is not None:
        yield acted(with_part(job, h, looked=None), h, *part.looked)
    if part.stage and not part.executed:
        yield with_part(job, h, executed=True, reply="new")
    if part.reply == "new" and part.looked is None:
        yield with_part(job, h, looked=("send", job.claim))
    if part.reply == "sent" and not part.mail:
        yield with_part(job, h, reply="gone" if job.accepted == own else "new")  # its receipt, or it is sent again
    if part.stage == JobStage.HELD and part.executed and part.reply == "gone":
        yield with_part(job, h, reply="new")  # its sender was set back: it refuses the job
    if part.stage in (JobStage.HELD, JobStage.FINISHED):
        yield from renewed(job, h)
    if part.stage == _LOST and part.reply == "gone":
        yield with_part(job, h, stage="")


def renewed(job: Job, h: int) -> Iterator[Job]:
    """It claims the job again, or sees that it does not hold it."""
    own, stage = HOSTS[h], JobStage(job.parts[h].stage)
    match holding(own, "alpha", job.claim):
        case Holding.CLOSED:
            yield with_part(job, h, stage="")
        case Holding.FENCED | Holding.TAKEN_OVER:
            yield with_part(job, h, stage=_LOST)
        case Holding.HELD:
            is_done = stage is JobStage.FINISHED and job.parts[h].reply == "gone"
            again = written(job, Claim(own, JobStage.DONE if is_done else stage), job.claim)
            assert again is not None
            if is_done:
                yield with_part(again, h, stage="")
            elif job.claim is None or (job.claim.host, job.claim.stage) != (own, stage) or job.is_late:
                yield again


def acted(job: Job, h: int, what: str, known: Claim | None) -> Job:
    """Do what was decided on what was seen before."""
    own, part = HOSTS[h], job.parts[h]
    if what == "take":
        made = Claim(own, JobStage.FINISHED if part.reply in ("new", "sent") else JobStage.HELD)
        claimed = written(job, made, known)
        return job if claimed is None else with_part(claimed, h, stage=made.stage)
    how = holding(own, "alpha", known)
    if part.stage and (how is Holding.FENCED or (how is Holding.CLOSED and part.stage == _LOST)):
        return with_part(job, h, stage="", reply="gone")
    if part.stage and how is Holding.TAKEN_OVER:
        return with_part(job, h, stage=_LOST)
    if part.stage and how is Holding.HELD and (known is None or known.stage is not JobStage.FINISHED):
        finished = written(job, Claim(own, JobStage.FINISHED), known)
        if finished is None:
            return job
        job = finished
    if part.stage and how is Holding.HELD:
        job = with_part(job, h, stage=JobStage.FINISHED)
    return with_part(job, h, reply="sent", mail=True)


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
        for n, job in enumerate(world.jobs):  # the same between a claim and jobs.json
            if (looked := job.parts[h].looked) and looked[0] == "take":
                claimed = acted(with_part(job, h, looked=None), h, *looked)
                yield with_job(less, n, with_part(claimed, h, stage=job.parts[h].stage))
    lost = Job()
    for streams in (("jobs",), ("claims",), ("mail",), ("jobs", "claims", "mail")):  # stores are deleted
        yield replace(less, jobs=tuple(at_server(job, lost, *streams) for job in world.jobs))
    if world.old is None:
        yield replace(world, old=tuple(at_server(Job(), job, "jobs", "claims", "mail") for job in world.jobs))
    elif world.old:
        for streams in (("jobs",), ("claims",), ("jobs", "claims", "mail")):
            pairs = zip(world.jobs, world.old, strict=True)
            yield replace(less, jobs=tuple(at_server(job, old, *streams) for job, old in pairs))
    for n, job in enumerate(world.jobs):
        if job.accepted:
            yield with_job(less, n, replace(job, spool="sent", accepted=""))  # the sender is set back
        if job.claim and not job.is_late and is_renewed(world, job):
            yield with_job(less, n, replace(job, is_late=True))


def at_server(job: Job, other: Job, *streams: str) -> Job:
    """The job, with these streams of the server as they were in the other one."""
    if "jobs" in streams:
        job = replace(job, is_there=other.is_there)
    if "claims" in streams:
        job = replace(job, claim=other.claim, is_late=False)
    if "mail" in streams:
        for h, part in enumerate(other.parts):
            job = with_part(job, h, mail=part.mail)
    return job


def is_settled(job: Job) -> bool:
    """It has its result, and nothing is left of it: not at its sender, not at the server, not at a host."""
    is_left = any(part.stage or part.reply in ("new", "sent") for part in job.parts)
    return job.spool == "gone" and bool(job.accepted) and not job.is_there and not is_left


def law(count: int, may_fail: int, *, rewinds: bool = True) -> int:
    """Never two results of a job, and from each state all are done and nothing is left of them."""
    before = explore(World((Job(),) * count, None, None if rewinds else (), may_fail), steps, faults, MOST_STATES)
    for world in before:
        for job in world.jobs:
            assert job.spool != "gone" or job.accepted, "a job left its sender before it was done"
            if world.faults == may_fail and world.frozen is None and not world.old:
                assert sum(part.executed for part in job.parts) <= 1, "a job was done twice without a fault"
    arrives = arriving(before, is_over)
    for world in before.keys() - arrives:
        raise AssertionError(f"in some state a job stands for ever: {world}")
    return len(before)


def is_over(world: World) -> bool:
    """All are settled; a host that stays frozen may remember what it held."""
    for job in world.jobs:
        thawed = job
        if world.frozen is not None:
            thawed = with_part(job, world.frozen, stage="", reply="gone", mail=False)
        if not is_settled(thawed):
            return False
    return True


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
