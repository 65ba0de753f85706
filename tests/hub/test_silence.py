"""What a daemon says of a host that mail waits for."""

from __future__ import annotations

from pathlib import Path

from mailboxd.core.effects import Send
from mailboxd.effects.hub_mail import HubMail
from mailboxd.hub.files.spool import Spool
from mailboxd.hub.files.view import HEARD, PEERS, Heard, HubInfo, HubView
from mailboxd.store.store import Order
from mailboxd.user_state import UserState
from tests.cli.stage import make


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
    assert mail.trouble("2026-11-21T12:00:00.000Z") == "", "no mail waits"
    effect = Send("msg_1", "answer", "beta.writer", "Yes.")
    mail.put(Order("trn_1", "send", "", "beta.writer", effect, 0, "2026-11-21T11:00:00.000Z"), "msg_1", b"mail")
    assert "not running" in mail.trouble("2026-11-21T12:00:00.000Z"), "nobody carries it"
