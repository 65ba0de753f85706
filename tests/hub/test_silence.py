"""What a daemon says of a host that mail waits for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mailboxd.core.effects import Send
from mailboxd.core.vocabulary import NOT_KNOWN_YET
from mailboxd.formats.user.state import UserState
from mailboxd.hub.files.spool import Spool
from mailboxd.hub.files.view import HEARD, PEERS, Heard, HubInfo, HubView, PeerInfo, PoolInfo
from mailboxd.ledger.store import Order
from mailboxd.perform.hub_mail import HubMail
from tests.cli.stage import make

NOON = "2026-11-21T12:00:00.000Z"


def test_a_silent_host_is_named_while_mail_waits_for_it(tmp_path: Path) -> None:
    ws, state = make(tmp_path / "alpha").ws, UserState(tmp_path, ("state",))
    Spool(ws).create()
    heard = {"beta": "2026-11-21T11:00:00.000Z", "gamma": ""}
    with state.writing() as folder:
        state.write(folder, PEERS, HubInfo("alpha", tuple(heard)).to_bytes())
        state.write(folder, HEARD, Heard(hosts=heard, unwell={"beta.writer": "off"}).to_bytes())
    view = HubView(ws, "alpha", state)
    assert "since 21 Nov 11:00 UTC" in view.silence("beta", "2026-11-21T12:00:00.000Z")
    assert view.silence("beta", "2026-11-21T11:01:00.000Z") == ""
    assert view.silence("gamma", "2026-11-21T12:00:00.000Z") == "nothing has been heard from the host gamma"
    assert view.unwell("beta.writer") == "the host beta says that no daemon runs for writer"
    assert view.unwell("beta.other") == view.unwell("writer") == ""
    mail = HubMail(view)
    assert "not running" in mail.trouble("2026-11-21T12:00:00.000Z"), "no mail could come"
    effect = Send("msg_1", "answer", "beta.writer", "Yes.")
    mail.put(Order("trn_1", "send", "", "beta.writer", effect, 0, "2026-11-21T11:00:00.000Z"), "msg_1", b"mail")
    assert "not running" in mail.trouble("2026-11-21T12:00:00.000Z"), "nobody carries it"


def told(tmp_path: Path, info: HubInfo, heard: Heard) -> HubView:
    """The view of an agent on alpha, after the hub process has said this; it runs."""
    ws, state = make(tmp_path / "alpha").ws, UserState(tmp_path, ("state",))
    with state.writing() as folder:
        state.write(folder, PEERS, info.to_bytes())
        state.write(folder, HEARD, heard.to_bytes())
    return HubView(ws, "main", state)


@pytest.mark.parametrize("name", ["gamma.writer", "pool:reviewer"])
@pytest.mark.parametrize(("is_complete", "runs"), [(False, True), (True, False)])
def test_a_host_or_pool_of_which_nothing_may_have_been_heard_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_complete: bool, runs: bool
) -> None:
    monkeypatch.setattr(HubView, "poke", lambda _view: runs)
    view = told(tmp_path, HubInfo("alpha", ("beta",), is_complete=is_complete), Heard())
    assert view.carries(name)
    assert not view.is_informed(name), "a task that names it is taken"
    assert view.refused(name), "and waits, with a reason"


def test_once_all_hosts_have_been_heard_unknown_names_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HubView, "poke", lambda _view: True)
    info = HubInfo("alpha", ("beta",), {"beta.writer": PeerInfo()}, {"poet": PoolInfo(("beta",))})
    view = told(tmp_path, info, Heard())
    assert not view.carries("gamma.writer")
    assert view.is_informed("pool:reviewer")
    assert view.refused("pool:reviewer") == "no host of the hub serves pool:reviewer; there is pool:poet"
    assert view.refused("pool:poet") is view.refused("beta.writer") is None


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        (Heard(), f"{NOT_KNOWN_YET}which agents the host beta has"),
        (Heard("no server"), f"{NOT_KNOWN_YET}which agents the host beta has; no server"),
        (Heard(hosts={"beta": NOON}), "the host beta has no agents"),
        (Heard(hosts={"beta": NOON}, older=("beta",)), f"{NOT_KNOWN_YET}which agents the host beta has"),
    ],
)
def test_a_host_that_was_never_heard_from_is_told_from_one_without_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard, said: str
) -> None:
    monkeypatch.setattr(HubView, "poke", lambda _view: True)
    assert told(tmp_path, HubInfo("alpha", ("beta",)), heard).refused("beta.writer") == said


def test_what_an_earlier_hub_process_has_written_is_complete(tmp_path: Path) -> None:
    kept = json.loads(HubInfo("alpha", ("beta",)).to_bytes())
    del kept["is_complete"]
    found = HubInfo.parse(json.dumps(kept).encode())
    assert found == HubInfo("alpha", ("beta",))
