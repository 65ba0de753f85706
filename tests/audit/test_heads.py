"""The heads of the log: one on each day on which something happened, one at the end, signed where there is a key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mailboxd import log_checkpoints
from mailboxd.clock import ManualClock
from mailboxd.config.settings import Settings
from mailboxd.core.events import Event, Kind
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.errors import WorldError
from mailboxd.keys import Keyring
from mailboxd.mailbox.layout import Workspace
from mailboxd.store import event_log
from mailboxd.store.store import Store
from tests.e2e.support import Agent


class Stage:
    """An engine over a workspace, and the heads that its daemon would write."""

    def __init__(self, root: Path) -> None:
        Workspace.create(root)
        self.ws = Workspace(root)
        self.clock = ManualClock("2026-03-01T23:50:00.000Z")
        self.engine = Engine(Store.open(None, self.clock.now()), Settings("alpha"), self.clock)
        self.reports = Reports(self.engine)
        self.start()

    def start(self) -> None:
        self.heads = log_checkpoints.Heads(self.engine, self.ws, lambda _: None, self.reports)

    def happen(self) -> None:
        with self.engine.batch():
            self.engine.record(Event(Kind.ALARM, None, {"at": self.engine.now, "what": "x", "why": "y"}))

    def look(self) -> int:
        written = self.heads.perform()
        with self.engine.batch():
            self.reports.record_all()
        return written


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "ws")


def test_once_a_day_and_not_where_nothing_happened(stage: Stage) -> None:
    assert stage.look() == 0, "an empty log has no head"
    stage.happen()
    assert [stage.look(), stage.look()] == [1, 0]
    stage.happen()
    assert stage.look() == 0, "it was noted today"
    stage.clock.advance(1200)
    assert [stage.look(), stage.look()] == [1, 0]
    stage.clock.advance(86_400)
    assert stage.look() == 0
    assert [head.seq for head in log_checkpoints.read(stage.ws)] == [1, 2]
    assert json.loads(stage.engine.store.meta.get(log_checkpoints.NOTED) or "")[0] == 2


def test_a_restart_goes_on_with_the_last_line(stage: Stage) -> None:
    stage.happen()
    assert stage.look() == 1
    stage.start()
    assert stage.look() == 0
    stage.happen()
    assert stage.heads.write() == 1
    assert stage.heads.write() == 0
    first, second = log_checkpoints.read(stage.ws)
    assert second.before == log_checkpoints.digest(first)
    assert second.hash == event_log.tip(stage.engine.store.db).hash


def test_half_a_line_is_cut_off_before_the_next(stage: Stage) -> None:
    stage.happen()
    stage.look()
    path = stage.ws.state / log_checkpoints.FILE
    path.write_bytes(path.read_bytes() + b'{"at"')
    stage.start()
    stage.happen()
    assert stage.heads.write() == 1
    assert len(log_checkpoints.read(stage.ws)) == 2


@pytest.mark.parametrize("raw", [b"garbage\n", b"{}\n", b"[1]\n", b'{"seq": 1}\n', b"\n"])
def test_what_is_no_head_stops_nothing_but_is_said(stage: Stage, raw: bytes) -> None:
    (stage.ws.state / log_checkpoints.FILE).write_bytes(raw)
    stage.happen()
    with pytest.raises(WorldError, match="line 1"):
        stage.heads.perform()


def test_a_link_in_its_place_is_not_followed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (stage.ws.state / log_checkpoints.FILE).symlink_to(tmp_path / "target")
    stage.happen()
    with pytest.raises(WorldError):
        stage.heads.perform()
    assert (tmp_path / "target").read_text() == "mine"


@pytest.mark.slow
def test_with_a_key_they_are_signed_and_a_forged_one_is_found(alpha: Agent, tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    ws = Workspace(alpha.root)
    keyring = Keyring.of(ws.root, environment)
    keyring.create(keyring.own_file)
    alpha.drop("more.md", "# More\n\nDo more.\n")
    alpha.run(env=environment)
    assert alpha.call("audit", "verify", env=environment).returncode == 0
    last = log_checkpoints.read(ws)[-1]
    assert last.signature.startswith("ed25519:")

    lines = (ws.state / log_checkpoints.FILE).read_bytes().splitlines(keepends=True)
    forged = replace(last, signature=last.signature[:-8] + "AAAAAAAA")
    (ws.state / log_checkpoints.FILE).write_bytes(b"".join([*lines[:-1], forged.line()]))
    said = json.loads(alpha.call("audit", "verify", "--json", env=environment).stdout)
    assert "signature is invalid" in said["problem"]["problem"]
    unsigned = replace(last, seq=last.seq, before=log_checkpoints.digest(last), signature="")
    (ws.state / log_checkpoints.FILE).write_bytes(b"".join([*lines, unsigned.line()]))
    said = json.loads(alpha.call("audit", "verify", "--json", env=environment).stdout)
    assert said["problem"]["problem"] == "it is not signed"
