"""The jobs of pools in a hub process, with the server's tables in memory: who has a say in them, and how they end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import RawStreamMsg
from nats.js.errors import APIError

from mailboxd.errors import WorldError
from mailboxd.formats.keys import PrivateKey, signed
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.messages import ReplyMessage, parse_message
from mailboxd.host.clock import SystemClock
from mailboxd.hub.client.report import HubReport
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.spool import Spool
from mailboxd.hub.files.status import PoolsStatus, ServedPool
from mailboxd.hub.process.hub import Hub
from mailboxd.hub.process.jobs_given import JobsGiven
from mailboxd.hub.process.jobs_held import Job, JobsHeld
from mailboxd.hub.process.pool_tables import PoolTables
from mailboxd.hub.process.receiving import Later
from mailboxd.hub.process.workspaces import Local
from mailboxd.hub.wire.mail import GRACE
from mailboxd.hub.wire.pools import LEASE, UNTAKEN, Claim, JobStage, closing, is_closed
from mailboxd.hub.wire.presence import Card, HostSigns
from mailboxd.hub.wire.sealing import seal
from mailboxd.hub.wire.subjects import JobSubject
from tests.e2e.support import reply, task
from tests.hub.farm import SETTINGS, Host, founder

JOB = JobSubject("reviewer", "alpha", "msg_1")
CHILD: dict[str, Any] = {"subtask_id": "x0", "to": "pool:reviewer", "attempt_id": "att_1"}
NOW = "2026-11-29T01:00:00.000Z"


@dataclass
class Ahead(SystemClock):
    """A clock that goes forward only when it is told to."""

    at: float = 1_000.0

    def now(self) -> str:
        return NOW

    def monotonic(self) -> float:
        return self.at


@dataclass(slots=True)
class Memory(PoolTables):
    """The tables of a server that loses nothing by itself."""

    at: dict[JobSubject, bytes] = field(default_factory=dict)
    claimed: dict[JobSubject, Claim] = field(default_factory=dict)

    async def jobs(self, wanted: str) -> dict[JobSubject, set[str]]:
        return {job: {job.job} for job in self.at}

    async def claims(self, wanted: str) -> dict[JobSubject, set[str]]:
        return {job: {claim.host} for job, claim in self.claimed.items()}

    async def job(self, job: JobSubject) -> RawStreamMsg | None:
        return RawStreamMsg(data=self.at[job]) if job in self.at else None

    async def remove(self, job: JobSubject) -> None:
        self.at.pop(job, None)

    async def claim(self, job: JobSubject) -> Claim | None:
        return self.claimed.get(job)

    async def write(self, job: JobSubject, claim: Claim, known: Claim | None, seconds: float = 3_600.0) -> Claim | None:
        last = self.claimed.get(job)
        if (last.revision if last else 0) != (known.revision if known else 0):
            return None
        self.claimed[job] = replace(claim, revision=(last.revision if last else 0) + 1)
        return self.claimed[job]


class Working(JobsHeld):
    """The daemons here work."""

    def _works(self, one: Local) -> bool:
        return True


@dataclass(slots=True)
class Process:
    """The hub process of alpha, which founded a hub and has the agent main. beta may serve the pool."""

    hub: Hub
    clock: Ahead
    tables: Memory
    one: Local
    beta: PrivateKey
    host: Host

    @property
    def given(self) -> JobsGiven:
        return self.hub.jobs_given

    def tend(self, seconds: float = 0.0) -> None:
        """All that the process does for its jobs in this time."""
        asyncio.run(self.given.tend())
        until = self.clock.at + seconds
        while self.clock.at < until:
            self.clock.at += 5
            asyncio.run(self.given.tend())

    def gives(self) -> None:
        """main has given a job to the pool, and the server has it."""
        raw = task(
            "job", sender="alpha.main", subtask_id="x0", message_id="msg_1", to="pool:reviewer", attempt_id="att_1"
        )
        self.one.spool.put("msg_1", raw.encode())
        self.one.spool.stored("msg_1")
        self.tables.at[JOB] = b"?"

    def not_yet(self, host: str, **headers: str) -> str:
        """Why a reply from this host is not taken now."""
        raw = reply("job", "x0", f"{host}.rev", message_id="msg_2", to="alpha.main", **headers)
        return asyncio.run(self.given.not_yet(host, self.one, parse_message(raw.encode(), "reply").message))


@pytest.fixture
def alpha(tmp_path: Path) -> Process:
    host = founder(tmp_path, "alpha")
    member, beta = Membership.of(host.env), PrivateKey.new()
    list_ = member.members(member.settings().founder)
    list_ = list_.changed("alpha", member.key().public)
    for name, key in (("beta", beta), ("gamma", PrivateKey.new())):
        list_ = list_.changed(name, key.public, ("reviewer",) if name == "beta" else ())
    member.update(list_.signed(member.key()))
    hub, clock, ws = Hub.of(member, host.env), Ahead(), Workspace(tmp_path / "ws")
    for folder in (ws.state, ws.inbox):
        folder.mkdir(parents=True)
    hub.here.clock = clock
    one = hub.workspaces.local["main"] = Local(ws, "main", Spool(ws))
    one.spool.create()
    tables = hub.jobs_given.tables = Memory(hub.here)
    hub.jobs_held = Working(hub.here, hub.workspaces, hub.receiving, hub.jobs_given, tables)
    return Process(hub, clock, tables, one, beta, host)


# The sender


@pytest.mark.slow
def test_a_result_is_taken_from_the_host_that_holds_the_job_and_from_no_other(alpha: Process) -> None:
    alpha.gives()
    assert "the job is with no host, not with beta" in alpha.not_yet("beta", attempt_id="att_1"), (
        "nobody has claimed it"
    )
    alpha.tables.claimed[JOB] = Claim("beta", JobStage.FINISHED, revision=1)
    assert alpha.not_yet("beta", attempt_id="att_1") == ""
    assert "the job is with beta, not with gamma" in alpha.not_yet("gamma", attempt_id="att_1")
    assert "the job is with beta, not with gamma" in alpha.not_yet("gamma"), "it names no attempt, but the work"
    assert alpha.not_yet("gamma", attempt_id="att_0") == "", "of another attempt: the daemon says that it is late"


def test_what_came_back_with_an_old_store_is_closed_again(alpha: Process) -> None:
    alpha.tables.at[JOB], alpha.tables.claimed[JOB] = b"?", Claim("beta", revision=7)
    alpha.tend()
    assert JOB not in alpha.tables.at
    assert is_closed(alpha.tables.claimed[JOB], "alpha")


def test_nothing_is_closed_while_a_workspace_cannot_be_read(alpha: Process) -> None:
    alpha.tables.at[JOB] = b"?"
    alpha.hub.workspaces.unread[Path("/ws")] = "its configuration is damaged"
    alpha.tend()
    assert JOB in alpha.tables.at


def test_a_job_that_its_sender_has_open_again_is_opened_for_others(alpha: Process) -> None:
    alpha.gives()
    alpha.tables.claimed[JOB] = closing("alpha", Claim("beta", revision=3))
    alpha.tend(LEASE + 5)
    assert alpha.tables.claimed[JOB].stage is JobStage.OPEN


def test_a_job_that_the_server_has_lost_is_offered_again(alpha: Process) -> None:
    alpha.gives()
    del alpha.tables.at[JOB]
    alpha.tend(GRACE)
    assert alpha.one.spool.names("new") == ["msg_1"]


@pytest.mark.parametrize(
    ("slots", "role", "said"),
    [
        (0, "reviewer", "beta may serve it, and none has it under `pools` in its hub.yaml"),
        (2, "reviewer", "beta should; see `mailboxd hub status` there"),
        (2, "scribe", "no host of the hub may serve pool:reviewer; on the host that founded it: mailboxd hub pools"),
    ],
)
def test_a_job_that_nobody_takes_is_offered_again_and_named(alpha: Process, slots: int, role: str, said: str) -> None:
    here = alpha.hub.here
    if role != "reviewer":
        here.membership.update(here.keys.members().changed("beta", alpha.beta.public, (role,)).signed(here.key))
    alpha.hub.presence.hosts["beta"] = HostSigns(at=NOW, card=Card(host="beta", at=NOW, pools={"reviewer": slots}))
    alpha.gives()
    alpha.tend(UNTAKEN - 10)
    assert not alpha.given.trouble
    alpha.tend(15)
    assert said in alpha.given.trouble["reviewer"]
    assert alpha.one.spool.names("new") == ["msg_1"]


def test_jobs_that_wait_for_a_free_slot_are_no_trouble(alpha: Process) -> None:
    alpha.hub.presence.hosts["beta"] = HostSigns(at=NOW, card=Card(host="beta", at=NOW, pools={"reviewer": 1}))
    alpha.gives()
    other = replace(JOB, sender="gamma", job="msg_9")
    alpha.tables.claimed[other] = Claim("beta", revision=1)
    alpha.hub.workspaces.unread[Path("/ws")] = "so that it is not closed"
    alpha.tend(3 * UNTAKEN)
    assert not alpha.given.trouble


def test_a_server_without_room_for_claims_is_named_and_ends_nothing_else(
    alpha: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, tables = alpha.hub.here, PoolTables(alpha.hub.here)

    class Full:
        async def publish(self, *_: object, **__: object) -> None:
            raise APIError(code=503, err_code=10077, description="maximum bytes exceeded")

    monkeypatch.setattr(type(here), "js", Full())
    assert asyncio.run(tables.write(JOB, Claim("alpha"), None)) is None
    assert "takes no claims of jobs: maximum bytes exceeded" in here.full
    monkeypatch.setattr(Memory, "write", lambda _, *args: tables.write(*args))
    alpha.gives()
    alpha.tables.at[replace(JOB, job="msg_0")] = b"?"  # it is to be closed
    alpha.tend(UNTAKEN + 5)
    assert "reviewer" in alpha.given.trouble
    alpha.clock.at += 1_000
    tables.forget_full()
    assert not here.full, "nothing was refused for long"


# The host that serves


def serves(alpha: Process, agent: str = "main") -> JobsHeld:
    settings = alpha.hub.here.membership.folder / "hub.yaml"
    text = settings.read_text().replace("pools: {}", f"pools: {{reviewer: {{agent: {agent}, slots: 2}}}}")
    settings.write_text(text.replace("accept: []", 'accept: ["*"]'))
    here = alpha.hub.here
    here.settings = here.membership.settings()
    here.membership.update(here.keys.members().changed("alpha", here.key.public, ("reviewer",)).signed(here.key))
    return alpha.hub.jobs_held


def offered(alpha: Process, name: str = "msg_5") -> JobSubject:
    """beta has given a job to the pool."""
    raw = task("job", sender="beta.main", message_id=name, **CHILD)
    job = JobSubject("reviewer", "beta", name)
    alpha.tables.at[job] = seal(signed(raw.encode(), alpha.beta), {"alpha": alpha.hub.here.key.public})
    return job


def held(alpha: Process) -> dict[str, str]:
    raw = (alpha.hub.here.membership.folder / "jobs.json").read_bytes()
    return {name: job["stage"] for name, job in json.loads(raw).items()}


def test_an_offered_job_is_claimed_and_delivered(alpha: Process) -> None:
    jobs, job = serves(alpha), offered(alpha)
    asyncio.run(jobs.take())
    assert alpha.tables.claimed[job].host == "alpha"
    assert held(alpha) == {"msg_5": "held"}
    assert [path.name for path in alpha.one.ws.inbox.iterdir()] == ["msg_5.md"]


def test_the_agents_own_jobs_are_not_even_looked_at(alpha: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, looked = serves(alpha), list[JobSubject]()
    alpha.gives()

    async def job(_self: Memory, job: JobSubject) -> None:
        looked.append(job)

    monkeypatch.setattr(Memory, "job", job)
    asyncio.run(jobs.take())
    assert not looked


def test_a_host_that_is_not_listed_takes_nothing_and_says_so(alpha: Process) -> None:
    jobs, job = serves(alpha), offered(alpha)
    here = alpha.hub.here
    here.membership.update(here.keys.members().changed("alpha", here.key.public, ()).signed(here.key))
    asyncio.run(jobs.take())
    assert job not in alpha.tables.claimed
    assert jobs.status()["reviewer"]["may_serve"] is False


def test_jobs_that_are_not_for_this_host_delay_no_others(alpha: Process) -> None:
    jobs = serves(alpha)
    strange = [JobSubject("reviewer", "delta", f"msg_{number}") for number in range(40)]
    alpha.tables.at = dict.fromkeys(strange, b"?")
    job = offered(alpha, "msg_99")
    asyncio.run(jobs.take())
    assert alpha.tables.claimed.keys() == {job}


def test_junk_for_one_pool_delays_no_other_and_is_refused_once(alpha: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = serves(alpha)
    here = alpha.hub.here
    pool = here.settings.pools["reviewer"]
    here.settings = here.settings.model_copy(update={"pools": {"reviewer": pool, "editor": pool}})
    roles = ("reviewer", "editor")
    here.membership.update(here.keys.members().changed("alpha", here.key.public, roles).signed(here.key))
    junk = [JobSubject("reviewer", "beta", f"msg_{number:02}") for number in range(6)]
    alpha.tables.at = dict.fromkeys(junk, b"junk")
    seen: list[str] = []
    some = JobsHeld._take_some

    async def noted(self: JobsHeld, role: str, free: int) -> bool:
        seen.append(role)
        return await some(self, role, free)

    async def sends(*_: object) -> bool:
        return True

    monkeypatch.setattr(type(alpha.hub.receipts), "send", sends)
    monkeypatch.setattr(JobsHeld, "_take_some", noted)
    asyncio.run(jobs.take())
    assert seen[:4] == ["reviewer", "editor"] * 2, "the other is looked at again after each batch"
    assert here.counts["refused"] == len(junk)
    alpha.clock.at += 2 * UNTAKEN
    alpha.tables.claimed.clear()
    asyncio.run(jobs.take())
    assert here.counts["refused"] == len(junk), "what was refused is remembered"


def test_a_claim_that_the_server_has_lost_is_made_again(alpha: Process) -> None:
    jobs, job = serves(alpha), offered(alpha)
    asyncio.run(jobs.take())
    for _ in range(2):
        alpha.tables.claimed.clear()  # its numbers begin again, too
        asyncio.run(jobs.renew())
        assert alpha.tables.claimed[job].host == "alpha"
    alpha.tables.claimed[job] = Claim("gamma", revision=9)
    asyncio.run(jobs.renew())
    assert held(alpha) == {"msg_5": "lost"}


def test_a_job_whose_result_has_its_receipt_is_over_and_nobody_takes_it_again(alpha: Process) -> None:
    jobs, job = serves(alpha), offered(alpha)
    asyncio.run(jobs.take())
    raw = reply("job", "x0", "alpha.main", message_id="msg_6", to="beta.main", in_reply_to="msg_5").encode()
    alpha.one.spool.put("msg_6", raw)
    message = parse_message(raw, "reply").message
    assert isinstance(message, ReplyMessage)
    assert asyncio.run(jobs.must_wait(message)) == ""
    asyncio.run(jobs.renew())
    assert held(alpha) == {"msg_5": "finished"}
    alpha.one.spool.settle(alpha.hub.receipts.make("msg_6", raw, "alpha", ""))
    asyncio.run(jobs.renew())
    assert held(alpha) == {}
    assert alpha.tables.claimed[job].stage is JobStage.DONE


def test_a_disk_that_refuses_a_job_leaves_it_to_other_hosts(alpha: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, job = serves(alpha), offered(alpha)

    def refuses(*_: object) -> bool:
        raise WorldError("no space left on device")

    monkeypatch.setattr(type(alpha.hub.receiving), "put_in_inbox", refuses)
    asyncio.run(jobs.take())
    claim = alpha.tables.claimed[job]
    asyncio.run(jobs.renew())
    offered(alpha, "msg_7")
    asyncio.run(jobs.take())
    assert alpha.tables.claimed == {job: claim}, "it is not renewed, and no other is taken"


@pytest.mark.parametrize("problem", [Later("its files are under way"), ZeroDivisionError()])
def test_what_cannot_be_delivered_again_does_not_end_the_process(
    alpha: Process, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    jobs, _job = serves(alpha), offered(alpha)
    asyncio.run(jobs.take())

    def fails(*_: object) -> bool:
        raise problem

    monkeypatch.setattr(type(alpha.hub.receiving), "put_in_inbox", fails)
    alpha.clock.at += 1_000  # its receipt is said again
    for _ in range(9):
        asyncio.run(jobs.take())
    assert held(alpha) == {"msg_5": "held"}


def test_jobs_that_an_earlier_version_has_written_down_are_read() -> None:
    earlier = {"role": "r", "agent": "rev", "sender": "alpha", "renewed_on": "$JS.ACK", "copy": 1, "delivery": 2}
    assert Job.read(json.dumps({"msg_1": {**earlier, "stage": "finished"}}).encode()) == {
        "msg_1": Job("r", "rev", "alpha", "finished")
    }
    for damaged in (b"", b"[]", b'{"msg_1": 3}', b"{"):
        assert Job.read(damaged) == {}


@pytest.mark.slow
def test_status_names_jobs_that_nobody_takes_and_pools_that_may_not_be_served(alpha: Process) -> None:
    served = {"reviewer": ServedPool(agent="rev", slots=2, held=0, lost=0, may_serve=False)}
    trouble = {"scribe": "no host has taken 2 jobs"}
    pools = PoolsStatus(served=served, given={"scribe": {"": 2}}, trouble=trouble)
    said = list(HubReport({**SETTINGS, "host": "gamma", "pools": pools}).lines())
    assert "  pool:scribe: no host has taken 2 jobs" in said
    (why,) = [line for line in said if "does not let gamma serve pool:reviewer" in line]
    words = why.partition("on the host that founded the hub: ")[2].split()
    assert words[:2] == ["mailboxd", "hub"]
    alpha.host.ordered(*words[2:])
    assert alpha.hub.here.keys.members().may_serve("gamma", "reviewer")
