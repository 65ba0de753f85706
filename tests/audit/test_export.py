"""`mailboxd export events` and `backup`: the recipient can verify them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import resource
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.audit import export_events, export_task, verify_export
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.reports import opened
from tests.e2e.support import Agent, task

Member = tuple[tarfile.TarInfo, bytes]


def exported(alpha: Agent, target: Path, local_id: str = "two") -> Path:
    ws = Workspace(alpha.root)
    with opened(ws.database) as report:
        export_task(ws, report, report.find(local_id), target)
    return target


def members(path: Path) -> list[Member]:
    with tarfile.open(path) as tar:
        return [(member, (tar.extractfile(member) or io.BytesIO()).read()) for member in tar]


def packed(path: Path, content: list[Member]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, raw in content:
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return path


def test_events_as_lines_prove_themselves(alpha: Agent, tmp_path: Path) -> None:
    done = alpha.call("export", "events", "-o", str(tmp_path / "all.jsonl"))
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert verify_export(tmp_path / "all.jsonl").finding is None
    assert alpha.call("export", "events").stdout.splitlines() == lines
    changed = "\n".join(lines).replace('"operator"', '"mallory"', 1)
    (tmp_path / "changed.jsonl").write_text(changed)
    finding = verify_export(tmp_path / "changed.jsonl").finding
    assert finding is not None
    assert "was changed" in finding.problem
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600


def test_an_export_that_the_disk_does_not_take_says_so_and_leaves_no_half_of_it(alpha: Agent, tmp_path: Path) -> None:
    ws, target = Workspace(alpha.root), tmp_path / "out"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(ws.database) as report:
        two = report.find("two")
        writers: tuple[Callable[[], int], ...] = (
            lambda: export_events(report, None, target),
            lambda: export_task(ws, report, two, target),
        )
        for write in writers:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
            try:
                with pytest.raises(WorldError, match=f"cannot write {target}: File too large"):
                    write()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert not target.exists()


def test_an_export_of_a_tree_notes_what_it_cannot_prove_and_an_empty_one_is_invalid(
    alpha: Agent, tmp_path: Path
) -> None:
    for words, loose in ((), False), (("two",), True):
        target = tmp_path / f"{len(words)}.jsonl"
        assert alpha.call("export", "events", *words, "-o", str(target)).returncode == 0
        account = verify_export(target)
        assert account.finding is None
        assert any("follow an event that was not exported" in note for note in account.notes) is loose
    (tmp_path / "empty.jsonl").write_bytes(b"")
    done = alpha.call("db", "verify", str(tmp_path / "empty.jsonl"))
    assert done.returncode == 1
    assert "it contains no event" in done.stderr


def test_the_events_of_a_tree_are_those_of_its_tasks(alpha: Agent) -> None:
    done = alpha.call("export", "events", "two")
    ids = {row["id"] for row in alpha.query("SELECT id FROM tasks WHERE local_id LIKE 'two%'")}
    assert {json.loads(line)["task"] for line in done.stdout.splitlines()} - {None} == ids


def test_an_archive_holds_all_that_belongs_to_a_tree(alpha: Agent, tmp_path: Path) -> None:
    content = members(exported(alpha, tmp_path / "two.tar.gz"))
    names = [member.name for member, _ in content]
    assert names[0] == "manifest.json"
    assert names[1:] == sorted(names[1:])
    assert {"events.jsonl", "tasks.json", "tasks/two/task.md"} <= set(names)
    assert sum(name.startswith("artifacts/") for name in names) == 3
    assert sum(name.startswith("mailbox/outbox/") for name in names) == 2
    assert next(name for name in names if name.startswith("mailbox/archive/")).endswith("/two.md")
    manifest = json.loads(content[0][1])
    listed = {item["path"]: item["sha256"] for item in manifest["files"]}
    assert listed == {member.name: hashlib.sha256(raw).hexdigest() for member, raw in content[1:]}
    for member, _ in content:
        assert (member.mode, member.mtime, member.uid, member.uname, member.isreg()) == (0o600, 0, 0, "", True)
    done = alpha.call("db", "verify", str(tmp_path / "two.tar.gz"))
    assert done.returncode == 0, done.stderr


def test_the_same_records_give_the_same_bytes(alpha: Agent, tmp_path: Path) -> None:
    one, two = exported(alpha, tmp_path / "one.tar.gz"), exported(alpha, tmp_path / "two.tar.gz")
    assert one.read_bytes() == two.read_bytes()
    with pytest.raises(UnavailableError):
        exported(alpha, one)


def _flipped(content: list[Member]) -> list[Member]:
    member, raw = content[3]
    return [*content[:3], (member, raw[:-2] + b"?\n"), *content[4:]]


def _without(content: list[Member]) -> list[Member]:
    return content[:-1]


def _with_more(content: list[Member]) -> list[Member]:
    return [*content, (tarfile.TarInfo("../../planted"), b"x")]


def _twice(content: list[Member]) -> list[Member]:
    return [*content, content[2]]


def _linked(content: list[Member]) -> list[Member]:
    member = tarfile.TarInfo(content[2][0].name)
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return [*content[:2], (member, b""), *content[3:]]


def _no_manifest(content: list[Member]) -> list[Member]:
    return content[1:]


def _broken_manifest(content: list[Member]) -> list[Member]:
    return [(content[0][0], b"[" * 100_000), *content[1:]]


@pytest.mark.parametrize(
    "change",
    [_flipped, _without, _with_more, _twice, _linked, _no_manifest, _broken_manifest],
    ids=lambda f: f.__name__,
)
def test_an_archive_that_was_changed(
    alpha: Agent, tmp_path: Path, change: Callable[[list[Member]], list[Member]]
) -> None:
    content = members(exported(alpha, tmp_path / "two.tar.gz"))
    assert verify_export(packed(tmp_path / "same.tar.gz", content)).finding is None
    assert verify_export(packed(tmp_path / "changed.tar.gz", change(content))).finding is not None


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x1f\x8b", gzip.compress(b"x" * 5000, mtime=0), b"\x00\xff" * 50, b"[]\n", b'{"seq": 1}\n'],
    ids=["nothing", "cut", "no-tar", "noise", "list", "no-event"],
)
def test_an_invalid_export_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "x").write_bytes(raw)
    assert verify_export(tmp_path / "x").finding is not None


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
        (known,) = db.execute("SELECT count(*) FROM events").fetchone()
    assert json.loads(alpha.call("db", "head", "--json").stdout)["seq"] > known

    state = alpha.root / ".mailboxd"
    for path in state.glob("mailboxd.db*"):
        path.unlink()
    (tmp_path / "copy.db").rename(state / "mailboxd.db")
    assert alpha.call("run", "--until-idle").returncode == 78, "what was done since would be done again"
    alpha.json("db", "accept-older")
    alpha.run()
    for row in alpha.query("SELECT local_id FROM tasks WHERE held <> ''"):
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
