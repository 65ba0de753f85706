"""When a change of the configuration is recorded, by whom, and under which policy an approval was decided."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.approvals import ApprovalDecision, PermissionAsked, Resolve
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.policy import HIDDEN
from mailboxd.engine.policy import KEY, PolicyRecord
from mailboxd.errors import Refused
from mailboxd.formats.config import load
from mailboxd.formats.keys import Keyring, PublicKey
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.process import name as user
from mailboxd.ledger import event_log, task_queries
from mailboxd.ledger.reports import opened
from tests.core.desk import Desk

NOW = "2026-11-01T00:00:00.000Z"
KEYS = [PublicKey(bytes([number]) * 32) for number in range(3)]


@dataclass
class Place:
    """A workspace with its configuration, and who reads it."""

    root: Path
    desk: Desk

    def __post_init__(self) -> None:
        Workspace.create(self.root)
        self.ws = Workspace(self.root)
        self.environ = {"HOME": str(self.root), "XDG_STATE_HOME": str(self.root / "state")}
        self.says("agent: main\n")

    def says(self, text: str) -> None:
        """Replace the file: two changes within one tick of the file system's clock differ by their inode."""
        fresh = self.ws.config.with_name("config.new")
        fresh.write_text(text)
        fresh.chmod(0o600)
        fresh.rename(self.ws.config)

    def daemon(self) -> PolicyRecord:
        return PolicyRecord(self.desk.engine, self.ws, load(self.ws.config), self.environ, "daemon", lives=True)

    def command(self) -> PolicyRecord:
        return PolicyRecord(self.desk.engine, self.ws, load(self.ws.config), self.environ, "command")

    def looks(self, record: PolicyRecord) -> int:
        with self.desk.engine.batch():
            return record()

    def events(self) -> list[dict[str, Any]]:
        found = [one for one in event_log.read(self.desk.store.db) if one.event.kind == "config.changed"]
        return [dict(one.event.data) for one in found]

    @property
    def keyring(self) -> Keyring:
        return Keyring.of(self.root, self.environ)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    desk = Desk(database=tmp_path / "mailboxd.db")
    yield Place(tmp_path / "ws", desk)
    desk.store.close()


def test_at_the_first_start_all_of_it_is_recorded_once(place: Place) -> None:
    place.looks(place.daemon())
    place.looks(place.daemon())
    (first,) = place.events()
    assert (first["first"], first["by"]) == (True, "daemon")
    assert first["owner"] == {"uid": os.geteuid(), "name": user()}
    assert first["changes"]["approvals.approvers"] == {"old": None, "new": []}
    assert first["changes"]["gates.quorum"] == {"old": None, "new": "all"}
    assert first["changes"]["limits.day_caps_hold"] == {"old": None, "new": False}


def test_a_start_with_another_configuration_records_what_has_changed(place: Place) -> None:
    place.looks(place.daemon())
    place.says("agent: main\napprovals:\n  approvers: [ann]\nnotify:\n  command: [/bin/tell, s3cret]\n")
    place.looks(place.daemon())
    place.looks(place.daemon())
    _, second = place.events()
    assert second["changes"] == {
        "approvals.approvers": {"old": [], "new": ["ann"]},
        "notify.command": {"old": [], "new": "/bin/tell (+1)"},
    }
    place.says("agent: main\napprovals:\n  approvers: [ann]\nnotify:\n  command: [/bin/tell, other]\n")
    place.looks(place.daemon())
    third = place.events()[-1]
    assert third["changes"] == {"notify.command": {"old": "/bin/tell (+1)", "new": "/bin/tell (+1)"}}
    assert "s3cret" not in json.dumps(place.events())


def test_a_daemon_that_runs_records_what_it_takes_while_it_runs_and_nothing_else(place: Place) -> None:
    running = place.daemon()
    first = place.looks(running)
    place.says("agent: main\ngates:\n  quality_gate: true\nlimits:\n  day_usd: 5\n")
    assert place.looks(running) != first
    assert place.events()[-1]["changes"] == {
        "limits.day_caps_hold": {"old": False, "new": True},
        "limits.day_usd": {"old": 20.0, "new": 5.0},
    }
    assert "owner" not in place.events()[-1]  # it is not that file that counts
    place.keyring.trust("bob", KEYS[0], NOW)
    seq = place.looks(running)
    assert place.events()[-1]["changes"] == {"trusted.bob": {"old": None, "new": [KEYS[0].fingerprint]}}
    place.keyring.trust("bob", KEYS[1], NOW)
    place.looks(running)
    place.keyring.untrust("bob")
    place.looks(running)
    both = sorted(key.fingerprint for key in KEYS[:2])
    assert [one["changes"] for one in place.events()[-2:]] == [
        {"trusted.bob": {"old": [KEYS[0].fingerprint], "new": both}},
        {"trusted.bob": {"old": both, "new": None}},
    ]
    (place.root / ".config" / "mailboxd").mkdir(parents=True)
    (place.root / ".config" / "mailboxd" / "host.yaml").write_text("day_usd: 7\n")
    assert place.looks(running) > seq
    assert place.events()[-1]["changes"]["host.day_usd"] == {"old": None, "new": 7.0}
    count = len(place.events())
    place.says("agent: [broken")
    place.looks(running)
    assert len(place.events()) == count  # it goes on with what it has
    place.looks(running)


def test_what_cannot_be_read_is_recorded_as_such(place: Place) -> None:
    place.keyring.trust("bob", KEYS[0], NOW)
    place.looks(place.daemon())
    (place.keyring.folder / place.keyring.trusted_file).write_text("{")
    place.looks(place.daemon())
    assert place.events()[-1]["changes"] == {
        "trusted.bob": {"old": [KEYS[0].fingerprint], "new": None},
        "trusted.file": {"old": None, "new": "cannot be read"},
    }


def test_an_event_that_was_rolled_back_is_recorded_again(place: Place) -> None:
    record = place.daemon()

    def fails() -> None:
        with place.desk.engine.batch():
            record()
            raise Refused("nothing", "nothing is kept")

    with pytest.raises(Refused):
        fails()
    assert place.events() == []
    place.looks(record)
    assert len(place.events()) == 1


def test_without_its_key_nothing_is_said_of_what_is_hidden(place: Place) -> None:
    place.says("agent: main\nnotify:\n  channel: telegram\n  target: ann\n")
    place.looks(place.daemon())
    assert place.events()[0]["changes"]["notify.target"]["new"] == HIDDEN
    key = place.ws.state / KEY
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    place.says("agent: main\nnotify:\n  channel: telegram\n  target: bob\n")
    place.looks(place.daemon())
    assert place.events()[-1]["changes"] == {}
    place.looks(place.daemon())
    assert len(place.events()) == 2


def test_the_same_secret_has_another_digest_under_another_key(place: Place) -> None:
    place.says("agent: main\nnotify:\n  channel: telegram\n  target: ann\n")
    place.looks(place.daemon())
    (place.ws.state / KEY).unlink()
    place.looks(place.daemon())
    one, other = (event["digests"]["notify.target"] for event in place.events())
    assert one != other


@pytest.mark.parametrize("sees", [False, True])
def test_a_command_does_not_judge_what_the_daemon_alone_reads(place: Place, sees: bool) -> None:
    place.keyring.trust("bob", KEYS[0], NOW)
    (place.root / ".config" / "mailboxd").mkdir(parents=True)
    (place.root / ".config" / "mailboxd" / "host.yaml").write_text("day_usd: 7\n")
    seq = place.looks(place.daemon())
    if not sees:  # another user, or a bare environment
        place.environ = {"HOME": str(place.root / "elsewhere")}
    assert place.looks(place.command()) == seq
    place.says("agent: main\napprovals:\n  approvers: [ann]\n")
    after = place.looks(place.command())
    assert place.events()[-1]["changes"] == {"approvals.approvers": {"old": [], "new": ["ann"]}}
    assert place.desk.store.policies.at(after).fields["trusted.bob"] == [KEYS[0].fingerprint]
    assert place.desk.store.policies.at(after).fields["host.day_usd"] == 7.0


def test_what_a_command_records_first_is_completed_by_the_daemon(place: Place) -> None:
    place.keyring.trust("bob", KEYS[0], NOW)
    place.looks(place.command())
    place.looks(place.daemon())
    first, second = place.events()
    assert "trusted.bob" not in first["changes"]
    assert second["changes"] == {"trusted.bob": {"old": None, "new": [KEYS[0].fingerprint]}}


# Under which policy an approval was decided


def asked(desk: Desk) -> str:
    """A request for approval; its id."""
    desk.give()
    desk.handle("t", PermissionAsked("apr_1", "trn_1", "write /etc/hosts", "a diff"))
    return "apr_1"


def decided(place: Place) -> dict[str, Any]:
    found = [one for one in event_log.read(place.desk.store.db) if one.event.kind == "approval.resolved"]
    return dict(found[-1].event.data)


def test_a_decision_names_the_event_of_the_policy_that_counted_for_whoever_took_it(place: Place) -> None:
    desk = place.desk
    running = place.daemon()
    seq = place.looks(running)
    place.says("agent: main\napprovals:\n  approvers: [ann]\n")  # the daemon has not been restarted
    approval = asked(desk)
    desk.engine.settings = replace(desk.engine.settings, approvers=("ann",))
    desk.engine.policy = place.command()
    desk.handle("t", Resolve(approval, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    by_command = desk.store.policies.latest()[0]
    assert decided(place)["policy"] == by_command > seq
    assert place.events()[-1]["by"] == "command"
    assert desk.store.policies.at(by_command).fields["approvals.approvers"] == ["ann"]
    assert desk.store.policies.at(seq).fields["approvals.approvers"] == []
    assert place.looks(running) == seq  # what counts for the daemon is what it was started with


def test_where_nothing_records_the_policy_a_decision_names_none(place: Place) -> None:
    approval = asked(place.desk)
    place.desk.handle("t", Resolve(approval, ApprovalDecision.REJECTED), Role.OPERATOR, "ann")
    assert "policy" not in decided(place)


def test_an_approval_that_became_void_shows_the_policy_that_made_it_so(place: Place) -> None:
    desk = place.desk
    approval = asked(desk)
    desk.engine.policy = place.command()
    desk.handle("t", Resolve(approval, ApprovalDecision.APPROVED), Role.OPERATOR, "ann")
    place.says("agent: main\napprovals:\n  approvers: [bob]\n")
    desk.engine.policy = place.command()
    void = {"status": "expired", "void": True, "resolved_by": "mailboxd", "note": "", "resolved_at": NOW}
    with desk.engine.batch():
        seq = desk.engine.policy()
        data = {"at": NOW, "approval": approval, "changes": void, "policy": seq}
        desk.engine.record(Event(Kind.APPROVAL_RESOLVED, desk.task("t").id, data))
    with opened(place.root.parent / "mailboxd.db") as report:
        found = task_queries.approval_report(report, approval)
    policy = found["policy"]
    assert policy is not None
    assert (policy["event"], policy["fields"]["approvals.approvers"]) == (seq, ["bob"])
