"""The hub process in parts, without a server: what it does with one message."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import RawStreamMsg

from mailboxd.formats.keys import PrivateKey
from mailboxd.hub.client.report import HubReport
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.process.hub import Hub
from mailboxd.hub.process.jobs_held import JobsHeld
from mailboxd.hub.process.pool_tables import PoolTables
from mailboxd.hub.process.receiving import Receiving
from mailboxd.hub.process.refused import MOST, MOST_BYTES, MOST_BYTES_OF_ONE, Kept, RefusedMail, surplus
from mailboxd.hub.process.requests import Allowances
from mailboxd.hub.wire.members import Members, contradiction
from mailboxd.hub.wire.pools import Claim
from mailboxd.hub.wire.sealing import seal
from mailboxd.hub.wire.signed_json import signed_json
from mailboxd.hub.wire.subjects import JobSubject, Subject
from tests.hub import farm
from tests.hub.farm import Host


def founder(tmp_path: Path) -> tuple[Host, Membership]:
    """The host beta, which has founded a hub."""
    host = farm.founder(tmp_path, "beta")
    return host, Membership.of(host.env)


def sealed(member: Membership) -> bytes:
    """Nonsense that this host can open."""
    return seal(b"?", {member.settings().host: member.key().public})


class Failing(Receiving):
    """It has a bug that one message finds."""

    def _take_mail(self, subject: Subject, message_id: str, raw: bytes, woken: set[str]) -> bool:
        raise ZeroDivisionError


@pytest.mark.parametrize(("deliveries", "refusals"), [(1, 0), (4, 0), (5, 1)])
def test_a_message_that_makes_the_process_fail_is_tried_again_then_refused(
    tmp_path: Path, deliveries: int, refusals: int
) -> None:
    host, member = founder(tmp_path)
    reply = f"$JS.ACK.MAILBOXD.beta.{deliveries}.1.1.1700000000000000000.0"

    async def take() -> int:
        hub = Hub.of(member, host.env)
        parts = (hub.here, hub.workspaces, hub.under_way, hub.attachments, hub.receipts, hub.presence, hub.jobs_given)
        failing = Failing(*parts)
        message = Msg(Client(), "mb.v2.beta.mail.alpha", reply, sealed(member), {"Mailboxd-Id": "msg_1"})
        await failing._take(message, set())
        return hub.here.counts["refused"]

    assert asyncio.run(take()) == refusals
    assert len(host.refused()) == refusals


@pytest.mark.slow
def test_without_a_hub_nats_is_loaded_by_no_other_command() -> None:
    """Neither by the daemon nor by any command but `hub run`."""
    source = (
        "import sys, importlib, pkgutil\n"
        "import mailboxd.cli.commands as commands, mailboxd.daemon.assemble, mailboxd.operate.doctor.diagnose\n"
        "for module in pkgutil.iter_modules(commands.__path__, commands.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        "assert not {'nats', 'nkeys', 'nacl'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_one_host_sends_does_not_fill_the_disk_nor_keep_out_the_refusals_of_others(tmp_path: Path) -> None:
    folder, junk = tmp_path / "refused", b"x" * (2 << 20)
    mail = RefusedMail(folder)
    mail.keep("2026-11-29T00:00:00.000Z", "msg_1", b"?", "mb.v2.beta.mail.alpha", "no such agent")
    for number in range(300):
        at = f"2026-11-29T00:00:00.{number:03}Z"
        mail.keep(at, f"msg_{number}", junk if number < 20 else b"?", "mb.v2.beta.mail.gamma", "junk" * 1_000)
        if number == 10:
            mail = RefusedMail(folder)  # the process begins again
        assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES_OF_ONE + 1_000
    ids = {json.loads(path.read_text())["message_id"] for path in folder.glob("*.json")}
    assert ids == {"msg_1", *(f"msg_{number}" for number in range(200, 300))}


def test_of_a_message_that_is_too_large_only_the_reason_is_kept(tmp_path: Path) -> None:
    RefusedMail(tmp_path).keep("2026-11-29T00:00:00.000Z", "m", b"x" * (9 << 20), "mb.v2.beta.mail.gamma", "junk")
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.slow
def test_many_hosts_together_keep_to_the_limit_and_those_with_the_most_lose_the_oldest() -> None:
    kept = [Kept(str(number), f"h{number % 12}", 8 << 10) for number in range(1_100)]
    kept += [Kept("last", "other", 1), *(Kept(f"big{number}", f"b{number}", 7 << 20) for number in range(10))]
    left = [one for one in kept if one not in surplus(kept)]
    assert len(left) <= MOST
    assert sum(one.size for one in left) <= MOST_BYTES
    assert any(one.name == "last" for one in left)


def test_a_host_that_floods_is_dropped_unread_and_named_and_others_are_heard(tmp_path: Path) -> None:
    host, member = founder(tmp_path)
    hub = Hub.of(member, host.env)
    heard = [hub.requests.is_read("gamma", b"?") for _ in range(1_000)]
    assert 100 <= sum(heard) < 150
    assert hub.requests.is_read("alpha", b"?" * (8 << 20))
    assert hub.here.flooding.keys() == {"gamma"}
    report = HubReport({**farm.SETTINGS, **hub.reporting.status()})
    assert any("flooding: the host gamma" in line for line in report.lines())


def test_what_is_read_of_a_host_grows_again_and_long_requests_count_more() -> None:
    allowances = Allowances()
    assert [allowances.allows("a", 1 << 20, 0.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert [allowances.allows("a", 0, 1.0) for _ in range(40)].count(True) == 35
    assert allowances.allows("a", 0, 2.0)


def test_a_founder_that_was_set_back_is_named_until_its_list_is_newer() -> None:
    own, key = PrivateKey.new(), PrivateKey.new().public
    first = Members().changed("alpha", own.public).signed(own)
    second, other = (first.changed(host, key).signed(own) for host in ("beta", "gamma"))
    assert [bool(contradiction(second, said)) for said in (first, second, other)] == [True, False, True]
    assert not contradiction(second, other.changed("beta", key).signed(own))


class FailingPools(JobsHeld):
    """It has a bug that one job finds."""

    async def _take_fit(self, job: JobSubject, found: RawStreamMsg, known: Claim | None) -> bool:
        raise ZeroDivisionError


class Tables(PoolTables):
    """A server that has every job."""

    async def job(self, job: JobSubject) -> RawStreamMsg:
        return RawStreamMsg(data=b"?")

    async def write(self, job: JobSubject, claim: Claim, known: Claim | None, seconds: float = 0.0) -> Claim:
        return claim


@pytest.mark.parametrize(("times", "refusals"), [(1, 0), (10, 1)])
def test_a_job_that_makes_the_process_fail_is_left_to_others_then_refused(
    tmp_path: Path, times: int, refusals: int
) -> None:
    host, member = founder(tmp_path)

    async def take() -> None:
        hub = Hub.of(member, host.env)
        failing = FailingPools(hub.here, hub.workspaces, hub.receiving, hub.jobs_given, Tables(hub.here))
        for _ in range(times):
            await failing._take(JobSubject("x", "alpha", "msg_1"), None)

    asyncio.run(take())
    assert len(host.refused()) == refusals


class Noting(Client):
    """A connection that only notes what is published."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects: list[str] = []

    async def publish(self, subject: str, *_: object, **__: object) -> None:
        self.subjects.append(subject)


def test_a_card_is_said_when_it_has_changed_and_to_whoever_greets(tmp_path: Path) -> None:
    host, member = founder(tmp_path)

    async def said() -> list[int]:
        hub = Hub.of(member, host.env)
        hub.here.nc = noting = Noting()
        counts = []
        for step in ("begin", "rest", "rest", "mail", "rest", "connection lost", "greeting"):
            if step == "mail":
                hub.here.counts["refused"] += 1
            elif step == "connection lost":
                noting.stats["reconnects"] += 1
            elif step == "greeting":
                hub.presence._was_greeted = True
                await hub.presence.follow_up()
            await hub.presence.say()
            counts.append(len(noting.subjects))
        return counts

    assert asyncio.run(said()) == [1, 1, 1, 2, 2, 3, 4]


def test_a_host_of_the_earlier_wire_is_named_until_it_is_upgraded(tmp_path: Path) -> None:
    host, member = founder(tmp_path)
    old, new = PrivateKey.new(), PrivateKey.new()
    member.change("alpha", old.public)
    hub = Hub.of(member, host.env)
    for stranger in ("alpha", "zeta"):
        hub.presence.hear_older(stranger)
    assert hub.presence.hosts.keys() == {"alpha"}
    (row,) = HubReport(farm.SETTINGS, dict(hub.presence.hosts)).rows(hub.here.clock.now())
    assert row["state"] == "silent"
    assert "older" in row["why"]
    card = {"host": "alpha", "at": hub.here.clock.now(), "run": "r1", "number": 1}
    hub.presence.hear("alpha", signed_json(new, card))
    assert hub.presence.hosts["alpha"].is_older
    hub.presence.hear("alpha", signed_json(old, card))
    assert not hub.presence.hosts["alpha"].is_older
