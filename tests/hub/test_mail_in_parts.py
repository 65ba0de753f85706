"""Mail in the hub process, part by part and without a server: pauses, keys, what is put off, and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError

from mailboxd.core.inputs import WorkForgotten
from mailboxd.formats.keys import PrivateKey, signed
from mailboxd.host.clock import ManualClock
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.server import revoke
from mailboxd.hub.files.spool import NEW, SENT, Forgotten, Spool
from mailboxd.hub.files.view import HubInfo, HubView
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.hub import Hub
from mailboxd.hub.process.receiving import DIGEST, ID
from mailboxd.hub.process.tracking import Question, Tracking
from mailboxd.hub.process.under_way import UnderWay
from mailboxd.hub.process.workspaces import Local
from mailboxd.hub.wire.mail import GRACE, LONGEST, Known
from mailboxd.hub.wire.members import Invited
from mailboxd.hub.wire.presence import AgentCard, Card, HostSigns
from mailboxd.hub.wire.receipts import Receipt, ReceiptStage, digest
from mailboxd.hub.wire.sealing import seal
from mailboxd.ledger.reports import Report, opened
from mailboxd.perform.hub_mail import HubMail
from tests.cli.stage import Stage as Desk
from tests.cli.stage import make
from tests.hub.farm import founder

MAIL = "---\ntype: task\ntask_id: t\nfrom: {}\nto: {}\nmessage_id: {}\n{}---\n# Task: Work\n"


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """The hub process of alpha, which has founded a hub, with one agent, main; beta is its other host."""
    host = founder(tmp_path, "alpha", "--accept", "*", "--send", "*")
    made = Hub.of(Membership.of(host.env), host.env)
    ws = make(tmp_path / "main").ws
    Spool(ws).create()
    made.workspaces.local["main"] = Local(ws, "main", Spool(ws))
    return made


def joins(hub: Hub) -> PrivateKey:
    """A host of the name beta is let in: another one each time."""
    key = PrivateKey.new()
    hub.here.membership.change("beta", None) if "beta" in hub.here.keys.members().hosts else None
    hub.here.membership.change("beta", key.public)
    return key


def test_what_is_there_is_asked_about_ever_more_rarely() -> None:
    clock = ManualClock()
    way = UnderWay(clock)
    way.sent("m")
    asked = []
    for second in range(0, 7_200, 5):
        if way.may_ask("m"):
            asked.append(second)
            way.is_there("m")
        clock.advance(5)
    assert asked[:4] == [GRACE, 3 * GRACE, 7 * GRACE, 15 * GRACE]
    assert len(asked) < 20, "in two hours"
    way.sent("m")
    assert not way.may_ask("m"), "a new copy begins anew"


@pytest.mark.slow
def test_a_receiver_that_cannot_take_mail_is_offered_it_after_pauses_and_at_once_when_it_is_well_again(
    hub: Hub,
) -> None:
    clock, presence = ManualClock(), hub.presence

    def stands(run: str, health: str) -> None:
        presence.hosts["beta"] = HostSigns(
            card=Card(host="beta", at="", run=run, agents={"Writer": AgentCard(health=health)})
        )

    def waits() -> bool:
        way.due_again(presence.is_back)
        return "m" in way.waiting

    way = UnderWay(clock)
    stands("1", "red")
    for pause in (GRACE, 2 * GRACE, 4 * GRACE):
        way.offer_later("m", "its disk is full", "beta.Writer", presence.standing("beta.writer"))
        clock.advance(pause - 1)
        assert waits()
        clock.advance(1)
        assert not waits()
    way.offer_later("m", "its disk is full", "beta.Writer", presence.standing("beta.writer"))
    stands("2", "red")
    assert waits()
    stands("2", "green")
    assert not waits()


def test_a_message_for_a_host_that_was_invited_again_fails_with_that_reason(hub: Hub) -> None:
    joins(hub)
    one = hub.workspaces.local["main"]
    for name in ("msg_1", "msg_2"):
        one.spool.put(name, MAIL.format("alpha.main", "beta.writer", name, "").encode())
    raw = one.spool.message("msg_1") or b""
    assert hub.sending.receiver(one, raw)
    joins(hub)
    assert hub.sending.receiver(one, raw) is None
    asyncio.run(hub.sending._publish(one, "msg_1"))
    receipt = one.spool.receipt("msg_1")
    assert receipt is not None
    assert "another one has its name now" in receipt.refused
    assert one.spool.names(NEW) == ["msg_2"]
    assert hub.sending.receiver(one, one.spool.message("msg_2") or b""), "it was never sent to the other"


class Arriving:
    """Mail of beta arrives at alpha; what is told to beta about it."""

    def __init__(self, hub: Hub, key: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hub, self.key = hub, key
        self.told: list[Receipt] = []
        self.left: list[str] = []

        async def send(receipt: Receipt) -> bool:
            self.told.append(receipt)
            return True

        async def done(message: Msg, **_: Any) -> None:
            self.left.append(message.subject)

        monkeypatch.setattr(type(hub.receipts), "send", lambda _, receipt: send(receipt))
        for verb in ("ack", "nak", "in_progress"):
            monkeypatch.setattr(Msg, verb, done)

    async def come(self, *names: str, more: str = "") -> list[ReceiptStage]:
        hub = self.hub
        for name in names:
            raw = signed(MAIL.format("beta.writer", "alpha.main", name, more).encode(), self.key)
            headers = {ID: name, DIGEST: digest(raw)}
            reply = "$JS.ACK.MAILBOXD2.alpha.1.1.1.1700000000000000000.0"
            sealed = seal(raw, {"alpha": hub.here.key.public})
            await hub.receiving._take(Msg(Client(), "mb.v2.alpha.mail.beta", reply, sealed, headers), set())
        await asyncio.gather(*hub.receiving.fetching.values())
        return [receipt.stage for receipt in self.told]


def test_mail_that_cannot_be_written_is_put_off_with_the_reason(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    arriving = Arriving(hub, joins(hub), monkeypatch)
    inbox = hub.workspaces.local["main"].ws.inbox
    inbox.rename(inbox.with_name("away"))
    assert asyncio.run(arriving.come("msg_1")) == [ReceiptStage.LATER]
    assert str(inbox) in arriving.told[0].reason
    assert not arriving.told[0].is_final
    inbox.with_name("away").rename(inbox)
    asyncio.run(arriving.come("msg_1"))
    assert [path.name for path in inbox.iterdir() if not path.name.startswith(".")] == ["msg_1.md"]
    assert ("main", "beta", "msg_1") in hub.receipts.owed


def test_mail_whose_files_do_not_come_is_put_off_and_only_so_many_wait_for_them(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    arriving = Arriving(hub, joins(hub), monkeypatch)

    async def lasts(*_: Any) -> bool:
        return False

    monkeypatch.setattr(type(hub.attachments), "lacking", lambda *_: "the server does not have its file")
    monkeypatch.setattr(type(hub.attachments), "is_fetching", lasts)
    stages = asyncio.run(arriving.come(*(f"msg_{number}" for number in range(10))))
    assert stages == [ReceiptStage.LATER] * 10
    reasons = [receipt.reason for receipt in arriving.told]
    assert sum("other messages of beta wait for their files" in why for why in reasons) == 2
    assert reasons.count("the server does not have its file") == 8
    assert not hub.receiving.fetching


def test_mail_of_a_host_that_may_have_just_joined_is_put_off_until_the_founder_was_heard(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    arriving = Arriving(hub, PrivateKey.new(), monkeypatch)
    monkeypatch.setattr(type(hub.here), "is_founder", False)
    assert asyncio.run(arriving.come("msg_1")) == [ReceiptStage.LATER]
    hub.presence._founder_at = hub.here.clock.monotonic() + 1
    asyncio.run(arriving.come("msg_1"))
    assert hub.here.counts["refused"] == 1


def test_what_is_here_is_answered_and_its_receipt_is_owed_again(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    arriving = Arriving(hub, joins(hub), monkeypatch)
    asyncio.run(arriving.come("msg_1"))
    one, wanted = hub.workspaces.local["main"], {"msg_1": "digest", "msg_2": "digest", "../x": "digest"}
    hub.receipts.owed.clear()
    found = hub.tracking._answers(one, "beta", wanted, receipts=True)
    assert found == {"msg_1": Known.INBOX, "msg_2": Known.UNKNOWN}
    assert set(hub.receipts.owed) == {("main", "beta", "msg_1")}
    one.ws.inbox.rename(one.ws.inbox.with_name("away"))
    assert hub.tracking._answers(one, "beta", wanted, receipts=True) == {}, "what cannot be read is not unknown"


class Answered(Tracking):
    """The other host answers so."""

    answers: Mapping[str, Any] | None = {}

    async def _ask_at_once(self, host: str, batch: list[Question], *, receipts: bool) -> Mapping[str, Any] | None:
        return self.answers


def tracking_in(hub: Hub) -> Answered:
    parts = (hub.receipts, hub.presence, hub.jobs_given, hub.sending, hub.requests)
    return Answered(hub.here, hub.workspaces, hub.under_way, *parts)


def test_only_what_was_asked_about_and_is_unknown_is_sent_again(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    joins(hub)
    one, way = hub.workspaces.local["main"], hub.under_way
    tracking = tracking_in(hub)
    for name in ("msg_1", "msg_2", "msg_3", "msg_4"):
        one.spool.put(name, MAIL.format("alpha.main", "beta.writer", name, "").encode())
        one.spool.stored(name)
        way.sent(name)
        way.sent_at[name] -= LONGEST
    known = {"msg_1": "inbox", "msg_2": "committed", "msg_3": "unknown", "msg_4": "?", "msg_5": "unknown"}
    monkeypatch.setattr(Answered, "answers", known)

    async def held(*_: Any) -> int:
        return 0

    monkeypatch.setattr(Tracking, "_held", held)
    asyncio.run(tracking.tend())
    assert (one.spool.names(NEW), one.spool.names(SENT)) == (["msg_3"], ["msg_1", "msg_2", "msg_4"])
    assert way.asked == {"msg_1": 1, "msg_2": 1}


def test_what_waits_for_the_receipt_of_a_host_that_is_revoked_is_offered_again_and_so_fails(hub: Hub) -> None:
    joins(hub)
    one, tracking = hub.workspaces.local["main"], tracking_in(hub)
    one.spool.put("msg_1", MAIL.format("alpha.main", "beta.writer", "msg_1", "").encode())
    one.spool.stored("msg_1")
    asyncio.run(tracking.tend())
    assert one.spool.names(SENT) == ["msg_1"]
    hub.here.membership.change("beta", None)
    asyncio.run(tracking.tend())
    assert one.spool.names(NEW) == ["msg_1"]


@pytest.mark.parametrize("is_put_off", [True, False])
@pytest.mark.parametrize("is_withdrawn", [True, False])
def test_what_was_sent_to_a_revoked_host_fails_at_once_also_if_its_name_is_invited_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, is_put_off: bool, is_withdrawn: bool
) -> None:
    joins(hub)
    one, tracking = hub.workspaces.local["main"], tracking_in(hub)
    one.spool.put("msg_1", MAIL.format("alpha.main", "beta.writer", "msg_1", "").encode())
    monkeypatch.setattr(Client, "is_connected", True)
    monkeypatch.setattr(ThisHost, "js", Stored())
    asyncio.run(hub.sending.publish_new())
    assert one.spool.names(SENT) == ["msg_1"]
    asyncio.run(tracking.tend())
    if is_put_off:
        one.spool.again("msg_1")
        hub.under_way.offer_later("msg_1", "its disk is full", "beta.writer", ("", ""))
    revoke(hub.here.membership, "beta")
    hub.here.membership.invite("beta", Invited(str(PrivateKey.new().public), "2999-01-01T00:00:00.000Z"))
    if is_withdrawn:
        hub.here.membership.invite("beta", None)
    asyncio.run(tracking.tend())
    asyncio.run(hub.sending.publish_new())
    assert one.spool.names(NEW) == one.spool.names(SENT) == []
    receipt = one.spool.receipt("msg_1")
    assert receipt is not None
    assert receipt.refused.startswith("beta.writer is on no host of the hub: it was revoked")


class Stored:
    """The server stores everything."""

    async def publish(self, *_: Any, **__: Any) -> None: ...


def given(monkeypatch: pytest.MonkeyPatch, *rows: tuple[str, str]) -> None:
    """Other agents have taken these messages, and have not finished the work."""
    found = [
        {"message_id": name, "sha256": "", "receiver": receiver, "attempt": f"att_{name}", "task": f"tsk_{name}"}
        for name, receiver in rows
    ]
    monkeypatch.setattr(Report, "given_to_hosts", lambda _: found)


def test_work_that_a_revoked_host_has_is_left_to_a_person_at_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    joins(hub)
    one, tracking = hub.workspaces.local["main"], tracking_in(hub)
    monkeypatch.setattr(Report, "agents", lambda _: ["main", "local.agent"])
    given(monkeypatch, ("msg_1", "Beta.writer"), ("msg_2", "local.agent"), ("msg_3", "beta.poet"))
    asyncio.run(tracking.tend())
    assert one.spool.forgotten() == {}
    one.spool.put("msg_3", MAIL.format("alpha.main", "beta.poet", "msg_3", "").encode())
    revoke(hub.here.membership, "beta")
    asyncio.run(tracking.tend())
    why = "the host beta, which had taken this work, was revoked"
    assert one.spool.forgotten() == {"msg_1": Forgotten("tsk_msg_1", "att_msg_1", "beta", why)}, "msg_3 is under way"
    monkeypatch.setattr(HubView, "info", HubInfo("alpha"))
    view = HubView(one.ws, "main", hub.here.membership.state)
    assert [*HubMail(view).forgotten()] == [("tsk_msg_1", WorkForgotten("att_msg_1", why))]
    one.spool.recorded_forgotten("msg_1")
    given(monkeypatch)
    asyncio.run(tracking_in(hub).tend())
    assert one.spool.forgotten() == {}


def test_work_that_the_earlier_holder_of_a_name_has_is_left_to_a_person(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins(hub)
    one, tracking = hub.workspaces.local["main"], tracking_in(hub)
    given(monkeypatch, ("msg_1", "beta.writer"))
    asyncio.run(tracking.tend())
    joins(hub)
    asyncio.run(tracking.tend())
    assert "another one has its name now" in one.spool.forgotten()["msg_1"].why
    one.spool.recorded_forgotten("msg_1")
    given(monkeypatch, ("msg_2", "beta.writer"))
    tracking._looks_at = 0.0
    asyncio.run(tracking.tend())
    assert one.spool.forgotten() == {}, "the new host has this"


def test_a_host_that_is_not_on_its_own_list_gives_nothing_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking, one = tracking_in(hub), hub.workspaces.local["main"]
    given(monkeypatch, ("msg_1", "beta.writer"))
    (hub.here.membership.folder / "hosts.json").unlink()
    asyncio.run(tracking.tend())
    assert one.spool.forgotten() == {}


def test_what_other_hosts_have_is_found_among_the_open_tasks(hub: Hub) -> None:
    with opened(hub.workspaces.local["main"].ws.database) as report:
        ran: list[str] = []
        report.db.set_trace_callback(ran.append)
        assert report.given_to_hosts() == report.given_to_host("beta") == []
        report.db.set_trace_callback(None)
        for sql in ran:
            steps = [row[3] for row in report.db.execute(f"EXPLAIN QUERY PLAN {sql}")]
            assert any("tasks_open" in step for step in steps), steps
            assert not any(step.startswith(("SCAN a", "SCAN m")) for step in steps), steps


def test_a_file_of_an_earlier_version_about_forgotten_work_is_read() -> None:
    assert Forgotten.parse(b'{"task": "t", "attempt": "a", "host": "beta"}') == Forgotten("t", "a", "beta")


@pytest.mark.parametrize("has_database", [True, False])
@pytest.mark.parametrize(("answers", "asked"), [({}, "2"), (None, "1")])
def test_a_host_that_has_begun_anew_is_asked_until_it_answers(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, has_database: bool, answers: Mapping[str, Any] | None, asked: str
) -> None:
    joins(hub)
    tracking, rows = tracking_in(hub), [{"message_id": "msg_1", "sha256": "", "receiver": "beta.writer", "path": ""}]
    if not has_database:
        hub.workspaces.local["main"].ws.database.unlink()
    monkeypatch.setattr(Report, "said_to_host", lambda *_: rows)
    for run, said in (("1", {}), ("2", answers)):
        hub.presence.hosts["beta"] = HostSigns(card=Card(host="beta", at="", run=run))
        monkeypatch.setattr(Answered, "answers", said)
        asyncio.run(tracking.tend())
    assert tracking._runs["beta"][0] == (asked if has_database else "2")


def test_what_was_forgotten_waits_in_the_spool_until_the_daemon_has_recorded_it(tmp_path: Path) -> None:
    spool = Spool(make(tmp_path / "alpha").ws)
    assert spool.forgotten() == {}, "an earlier version made no place for it"
    spool.create()
    spool.forget("msg_1", Forgotten("tsk_1", "att_1", "beta"))
    assert spool.forgotten() == {"msg_1": Forgotten("tsk_1", "att_1", "beta")}
    spool.recorded_forgotten("msg_1")
    assert spool.forgotten() == {}


def test_a_host_that_does_not_read_its_receipts_costs_a_try_now_and_then(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    class Full:
        async def publish(self, subject: str, *_: Any, **__: Any) -> None:
            tries.append(subject)
            raise APIError(code=503, err_code=10077, description="maximum messages per subject exceeded")

    monkeypatch.setattr(ThisHost, "js", Full())

    async def sends() -> list[bool]:
        said = [hub.receipts.make("msg_1", b"", host, "no") for host in ("beta", "gamma") for _ in range(50)]
        return [await hub.receipts.send(receipt) for receipt in said]

    assert not any(asyncio.run(sends()))
    assert tries == ["mb.v2.beta.receipt.alpha", "mb.v2.gamma.receipt.alpha"]


def test_what_another_host_sent_under_the_same_id_is_not_the_message_that_comes(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = joins(hub)
    arriving, one = Arriving(hub, key, monkeypatch), hub.workspaces.local["main"]
    daemon = Desk(one.ws, ManualClock(), lambda _: None)
    foreign = MAIL.format("gamma.spy", "alpha.main", "msg_1", "").encode()
    (one.ws.inbox / "msg_1.md").write_bytes(foreign)
    assert asyncio.run(arriving.come("msg_1")) == [ReceiptStage.LATER], "until the daemon has read that"
    assert daemon.receive() == "accepted"
    asyncio.run(arriving.come("msg_1"))
    assert [receipt.stage for receipt in arriving.told] == [ReceiptStage.LATER]
    own = (one.ws.inbox / "msg_1.md").read_bytes()
    assert daemon.receive() == "accepted"
    with opened(one.ws.database) as report:
        assert report.committed("gamma", ["msg_1"]) == {"msg_1": digest(foreign)}
        assert report.committed("beta", ["msg_1"]) == {"msg_1": digest(own)}
    asyncio.run(hub.receipts.send_owed())
    assert arriving.told[-1].stage is ReceiptStage.TAKEN
