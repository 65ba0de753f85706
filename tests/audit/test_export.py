"""`mailboxd export archive` and `db backup`: the recipient can verify them."""

from __future__ import annotations

import hashlib
import json
import resource
import shlex
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.approvals import ApprovalDecision, PermissionAsked, Resolve
from mailboxd.core.events import Event, Kind, Role
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.formats.keys import PrivateKey, PublicKey
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.ledger.reports import opened
from mailboxd.operate.export import Export, export_task
from tests.core.desk import Desk
from tests.e2e.support import Agent, task


def exported(alpha: Agent, target: Path, **more: Any) -> Path:
    ws = Workspace(alpha.root)
    with opened(ws.database) as report:
        export_task(Export(ws, report.find("two"), **more), report, target)
    return target


def unpacked(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder


def events(folder: Path) -> list[dict[str, Any]]:
    """The lines of the log in an archive."""
    files = sorted((folder / "mailbox" / "archive" / "events").iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def follow(folder: Path) -> tuple[int, int]:
    """Check each hash that can be checked, as docs/audit.md says: how many there were, and how many were withheld."""
    before, last, checked, withheld = "", 0, 0, 0
    for said in events(folder):
        if "format" in said:
            last, before = said["after"][:2]
        elif "seq" in said:
            assert said["seq"] == last + 1
            if "data" in said:
                data = json.dumps(said["data"], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
                columns = [said[name] for name in ("seq", "at", "kind", "task", "role", "actor")]
                text = json.dumps([before, *columns, data], ensure_ascii=False, separators=(",", ":"))
                assert hashlib.sha256(text.encode()).hexdigest() == said["hash"]
                checked += 1
            else:
                assert set(said) == {"seq", "hash"}
                withheld += 1
            last, before = said["seq"], said["hash"]
    return checked, withheld


def test_an_archive_that_the_disk_does_not_take_says_so_and_leaves_no_half_of_it(alpha: Agent, tmp_path: Path) -> None:
    ws, before = Workspace(alpha.root), resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(ws.database) as report:
        export = Export(ws, report.find("two"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            with pytest.raises(WorldError, match=f"cannot write {tmp_path / 'out'}: File too large"):
                export_task(export, report, tmp_path / "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_archive_holds_all_that_belongs_to_a_tree_with_its_digests(alpha: Agent, tmp_path: Path) -> None:
    done = alpha.call("export", "archive", "two", "-o", str(tmp_path / "two.tar.gz"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "two.tar.gz") as tar:
        members = tar.getmembers()
    for member in members:
        assert (member.mode, member.mtime, member.uid, member.uname, member.isreg()) == (0o600, 0, 0, "", True)
    folder = unpacked(tmp_path / "two.tar.gz", tmp_path / "here")
    assert folder.name == "two"
    names = [member.name.removeprefix("two/") for member in members]
    assert names == [*sorted(names[:3]), *sorted(names[3:])]
    assert set(names[:3]) == {"README.txt", "SHA256SUMS", "export.json"}
    assert {"events.jsonl", "tasks.json", "tasks/two/task.md"} <= set(names)
    assert sum(name.startswith("artifacts/") for name in names) == 3
    assert sum(name.startswith("mailbox/outbox/") for name in names) == 2
    assert any(name.startswith("mailbox/archive/") and name.endswith("/two.md") for name in names)
    ids = {row["id"] for row in alpha.query("SELECT id FROM v_tasks WHERE local_id LIKE 'two%'")}
    own = [*map(json.loads, (folder / "events.jsonl").read_text().splitlines())]
    assert {event["task"] for event in own} - {None} == ids
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    checked = subprocess.run(check, cwd=folder, capture_output=True, text=True, check=True)
    assert len(checked.stdout.splitlines()) == len(names) - 2
    described = json.loads((folder / "export.json").read_text())
    assert described["sums"] == hashlib.sha256((folder / "SHA256SUMS").read_bytes()).hexdigest()
    assert (described["task"], described["ended"], described["whole"]) == ("two", True, False)


def test_of_other_work_an_archive_has_numbers_and_hashes_only(alpha: Agent, tmp_path: Path) -> None:
    folder = unpacked(exported(alpha, tmp_path / "two.tar.gz"), tmp_path / "here")
    described = json.loads((folder / "export.json").read_text())
    checked, withheld = follow(folder)
    assert (checked, withheld) == (described["events"], described["withheld"])
    assert checked
    assert withheld
    others = [row["id"] for row in alpha.query("SELECT id FROM v_tasks WHERE local_id NOT LIKE 'two%'")]
    text = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert others
    assert not [task for task in others if task in text]
    assert "only number and hash" in (folder / "README.txt").read_text()


@pytest.mark.parametrize("whole", [False, True])
def test_an_archive_has_the_policy_that_its_approvals_name(tmp_path: Path, whole: bool) -> None:
    root, place = tmp_path / "ws", Workspace(tmp_path / "ws")
    Workspace.create(root)
    desk = Desk(database=place.database)
    seqs = []

    def changes(*approvers: str) -> None:
        new = {"approvals.approvers": {"old": None, "new": list(approvers)}}
        data = {"at": desk.engine.now, "by": "daemon", "first": False, "changes": new, "digests": {}, "key": ""}
        desk.engine.record(Event(Kind.CONFIG_CHANGED, None, data))
        seqs.append(desk.store.last_recorded)

    with desk.engine.batch():
        changes("ann")
    desk.give("other")
    desk.give()
    with desk.engine.batch():
        changes("bob")
    desk.handle("t", PermissionAsked("apr_1", "trn_1", "write /etc/hosts", "a diff"))
    desk.engine.policy = lambda: seqs[1]
    desk.handle("t", Resolve("apr_1", ApprovalDecision.APPROVED), Role.OPERATOR, "bob")
    with desk.engine.batch():
        changes("carl")
    task_id = desk.task("t").id
    desk.store.close()
    with opened(place.database) as report:
        export = Export(place, task_id, whole=whole, even_open=True)
        export_task(export, report, tmp_path / "t.tar.gz")
    folder = unpacked(tmp_path / "t.tar.gz", tmp_path / "here")
    within = [said for said in events(folder) if said.get("kind") == "config.changed"]
    earlier = folder / "policy.jsonl"
    before = [json.loads(line) for line in earlier.read_text().splitlines()] if earlier.exists() else []
    assert [said["seq"] for said in [*before, *within]][:2] == seqs[:2]
    assert [said["seq"] for said in before] == ([] if whole else seqs[:1])
    assert "policy.jsonl" in (folder / "README.txt").read_text() or whole
    follow(folder)


def test_with_the_whole_log_every_hash_follows_from_the_first_event_on(alpha: Agent, tmp_path: Path) -> None:
    folder = unpacked(exported(alpha, tmp_path / "two.tar.gz", whole=True), tmp_path / "here")
    described = json.loads((folder / "export.json").read_text())
    assert (described["first"], described["before"], described["withheld"]) == (1, "0" * 64, 0)
    assert follow(folder) == (described["last"], 0)


def test_the_key_of_the_agent_signs_all_of_it(alpha: Agent, tmp_path: Path) -> None:
    key = PrivateKey.new()
    folder = unpacked(exported(alpha, tmp_path / "two.tar.gz", key=key), tmp_path / "here")
    described = json.loads((folder / "export.json").read_text())
    signature = described.pop("signature")
    raw = b"mailboxd-export-1\n" + json.dumps(described, sort_keys=True, separators=(",", ":")).encode()
    assert key.public.has_signed(raw, signature)
    assert not key.public.has_signed(raw.replace(b'"ended":true', b'"ended":false'), signature)
    (public,) = (folder / "keys").iterdir()
    assert str(PublicKey.parse(public.read_text().strip())) == str(key.public)
    assert described["key"] == key.public.fingerprint
    assert key.public.fingerprint in (folder / "README.txt").read_text()


def test_without_a_key_an_archive_says_that_nothing_is_signed(alpha: Agent, tmp_path: Path) -> None:
    folder = unpacked(exported(alpha, tmp_path / "two.tar.gz"), tmp_path / "here")
    assert "Nothing is signed" in (folder / "README.txt").read_text()
    assert json.loads((folder / "export.json").read_text())["signature"] == ""


def test_the_same_records_give_the_same_bytes(alpha: Agent, tmp_path: Path) -> None:
    key = PrivateKey.new()
    one = exported(alpha, tmp_path / "one.tar.gz", key=key)
    two = exported(alpha, tmp_path / "two.tar.gz", key=key)
    assert one.read_bytes() == two.read_bytes()
    with pytest.raises(UnavailableError):
        exported(alpha, one)


def test_a_message_that_was_changed_is_not_handed_out(alpha: Agent, tmp_path: Path) -> None:
    (path,) = (alpha.root / "mailbox" / "archive").rglob("two.md")
    path.write_bytes(b"something else")
    with pytest.raises(WorldError, match=r"two\.md differs from its record"):
        exported(alpha, tmp_path / "two.tar.gz")
    assert list(tmp_path.glob("*.tar.gz")) == []


def test_a_log_that_was_changed_is_not_handed_out(alpha: Agent, tmp_path: Path) -> None:
    with closing(sqlite3.connect(Workspace(alpha.root).database)) as db:
        db.execute("DROP TRIGGER IF EXISTS events_are_final")
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'events'"):
            db.execute(f"DROP TRIGGER {name}")
        where = "kind = 'task.created' AND task = (SELECT id FROM tasks WHERE local_id = 'two')"
        db.execute(f"UPDATE events SET actor = 'mallory' WHERE {where}")
        db.commit()
    with pytest.raises(WorldError, match=r"event \d+ is not what was recorded"):
        exported(alpha, tmp_path / "two.tar.gz")


@pytest.mark.slow
def test_work_that_goes_on_is_exported_only_if_that_is_asked_for(alpha: Agent, tmp_path: Path) -> None:
    with closing(sqlite3.connect(Workspace(alpha.root).database)) as db:
        db.execute("UPDATE tasks SET phase = 'executing' WHERE local_id = 'two.text'")
        db.commit()
    refused = alpha.call("export", "archive", "two", "-o", str(tmp_path / "two.tar.gz"))
    assert refused.returncode != 0
    assert "two.text, a subtask of two, has not ended" in refused.stderr
    assert "reply tokens" in refused.stderr
    assert not list(tmp_path.glob("*.tar.gz"))
    printed = shlex.split(refused.stderr.split("`")[1])
    assert printed[0] == "mailboxd"
    done = alpha.call(*printed[1:])
    assert done.returncode == 0, done.stderr
    folder = unpacked(tmp_path / "two.tar.gz", tmp_path / "here")
    assert json.loads((folder / "export.json").read_text())["ended"] is False
    assert "Keep it secret" in (folder / "README.txt").read_text()


# Backup


@pytest.mark.slow
def test_a_backup_under_load_can_be_restored(alpha: Agent, tmp_path: Path) -> None:
    alpha.start()
    for number in range(12):
        alpha.drop(f"more{number}.md", task(f"more{number}"))
    done = alpha.call("db", "backup", str(tmp_path / "copy.db"))
    assert done.returncode == 0, done.stderr
    for number in range(12):
        alpha.until(f"more{number}")
    assert alpha.stop() == 0
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "delete", "one file that can be copied anywhere"
        (known,) = db.execute("SELECT count(*) FROM v_events").fetchone()
    assert json.loads(alpha.call("db", "head", "--json").stdout)["seq"] > known

    state = alpha.root / ".mailboxd"
    for path in state.glob("mailboxd.db*"):
        path.unlink()
    (tmp_path / "copy.db").rename(state / "mailboxd.db")
    assert alpha.call("run", "--until-idle").returncode == 78, "what was done since would be done again"
    alpha.json("db", "accept-older")
    alpha.run()
    for row in alpha.query("SELECT local_id FROM v_tasks WHERE held <> ''"):
        assert alpha.call("retry", row["local_id"]).returncode == 0
    alpha.run()
    assert set(alpha.phases().values()) == {"completed"}
    assert alpha.call("db", "verify").returncode == 0


@pytest.mark.slow
def test_a_backup_replaces_nothing(alpha: Agent, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("mine")
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 69
    assert (tmp_path / "copy.db").read_text() == "mine"
    assert alpha.call("db", "backup", str(tmp_path / "nowhere" / "copy.db")).returncode == 75
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["copy.db"]
