"""`mailboxd export archive` and `db backup`: the recipient can verify them."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.errors import UnavailableError, WorldError
from mailboxd.export import export_task
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.reports import opened
from tests.e2e.support import Agent, task


def exported(alpha: Agent, target: Path) -> Path:
    ws = Workspace(alpha.root)
    with opened(ws.database) as report:
        export_task(ws, report, report.find("two"), target)
    return target


def test_an_archive_that_the_disk_does_not_take_says_so_and_leaves_no_half_of_it(alpha: Agent, tmp_path: Path) -> None:
    ws, before = Workspace(alpha.root), resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(ws.database) as report:
        two = report.find("two")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            with pytest.raises(WorldError, match=f"cannot write {tmp_path / 'out'}: File too large"):
                export_task(ws, report, two, tmp_path / "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "out").exists()


def test_an_archive_holds_all_that_belongs_to_a_tree_with_its_digests(alpha: Agent, tmp_path: Path) -> None:
    done = alpha.call("export", "archive", "two", "-o", str(tmp_path / "two.tar.gz"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "two.tar.gz") as tar:
        members = tar.getmembers()
        tar.extractall(tmp_path / "two", filter="data")
    for member in members:
        assert (member.mode, member.mtime, member.uid, member.uname, member.isreg()) == (0o600, 0, 0, "", True)
    first, *names = [member.name for member in members]
    assert (first, names) == ("SHA256SUMS", sorted(names))
    assert {"events.jsonl", "tasks.json", "tasks/two/task.md"} <= set(names)
    assert sum(name.startswith("artifacts/") for name in names) == 3
    assert sum(name.startswith("mailbox/outbox/") for name in names) == 2
    assert next(name for name in names if name.startswith("mailbox/archive/")).endswith("/two.md")
    ids = {row["id"] for row in alpha.query("SELECT id FROM v_tasks WHERE local_id LIKE 'two%'")}
    events = map(json.loads, (tmp_path / "two" / "events.jsonl").read_text().splitlines())
    assert {event["task"] for event in events} - {None} == ids
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    checked = subprocess.run(check, cwd=tmp_path / "two", capture_output=True, text=True, check=True)
    assert len(checked.stdout.splitlines()) == len(names)


def test_the_same_records_give_the_same_bytes(alpha: Agent, tmp_path: Path) -> None:
    one, two = exported(alpha, tmp_path / "one.tar.gz"), exported(alpha, tmp_path / "two.tar.gz")
    assert one.read_bytes() == two.read_bytes()
    with pytest.raises(UnavailableError):
        exported(alpha, one)


def test_a_message_that_was_changed_is_not_handed_out(alpha: Agent, tmp_path: Path) -> None:
    (path,) = (alpha.root / "mailbox" / "archive").rglob("two.md")
    path.write_bytes(b"something else")
    with pytest.raises(WorldError, match=r"two\.md differs from its record"):
        exported(alpha, tmp_path / "two.tar.gz")
    assert list(tmp_path.glob("*.tar.gz")) == []


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


def test_a_backup_replaces_nothing(alpha: Agent, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("mine")
    assert alpha.call("db", "backup", str(tmp_path / "copy.db")).returncode == 69
    assert (tmp_path / "copy.db").read_text() == "mine"
    assert alpha.call("db", "backup", str(tmp_path / "nowhere" / "copy.db")).returncode == 75
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["copy.db"]
