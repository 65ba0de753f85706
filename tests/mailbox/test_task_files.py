"""Protocol section 3: task.md is rendered by us, and edited by people and agents."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from mailboxd.errors import WorldError
from mailboxd.formats.mailbox import inbox, task_files
from mailboxd.formats.mailbox.files import ObstructedError, Stamp, lstat, open_regular
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.host.system import system as syncing
from tests.mailbox.killing import every_point

NOW = 1_800_000_000.0
TIME = "2026-11-21T02:07:53.120Z"


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


def edit(ws: Workspace, local_id: str, raw: bytes) -> Path:
    """Rewrites a task file in place, as an agent's `write` tool does."""
    path = ws.tasks / local_id / "task.md"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(raw)
    return path


def changes(files: TaskFiles, *among: str) -> dict[str, bytes]:
    return {change.local_id: change.raw for change in files.scan(NOW, among or None).changed}


def test_a_task_file_that_somebody_dropped_is_reported_once(ws: Workspace) -> None:
    files = TaskFiles(ws)
    edit(ws, "t1", b"a plan")

    assert changes(files) == {"t1": b"a plan"}
    assert changes(files) == {}


def test_a_rendering_is_no_change_but_an_edit_of_it_is(ws: Workspace) -> None:
    files = TaskFiles(ws)
    assert files.write("t1", b"rendered")
    assert files.write("t1", b"rendered again")
    assert changes(files) == {}
    assert (ws.tasks / "t1").stat().st_mode & 0o777 == 0o700
    assert (ws.tasks / "t1" / "task.md").stat().st_mode & 0o777 == 0o600

    edit(ws, "t1", b"edited here")
    assert changes(files) == {"t1": b"edited here"}


@pytest.mark.parametrize("many", [False, True])
def test_an_obstacle_of_one_task_delays_no_other(ws: Workspace, many: bool) -> None:
    files = TaskFiles(ws)
    assert files.write_all([("t1", b"first"), ("t2", b"first")], many=many) == [True, True]
    edit(ws, "t2", b"edited, and not looked at")
    (ws.tasks / "t3").write_text("no directory")

    first, second, third, fourth = files.write_all([(f"t{n}", b"second") for n in (1, 2, 3, 4)], many=many)
    assert (first, second, fourth) == (True, False, True)
    assert isinstance(third, ObstructedError)
    assert (ws.tasks / "t1" / "task.md").read_bytes() == b"second"
    assert changes(files) == {"t2": b"edited, and not looked at"}
    assert [path.name for path in ws.tasks.glob("*/.*")] == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("many", [False, True])
def test_a_file_that_cannot_be_written_holds_up_no_other_and_leaves_nothing(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, many: bool, code: int
) -> None:
    write = os.write

    def failing(fd: int, raw: memoryview) -> int:
        if bytes(raw) == b"2":
            raise OSError(code, os.strerror(code))
        return write(fd, raw)

    monkeypatch.setattr(os, "write", failing)
    first, second, third = TaskFiles(ws).write_all([(f"t{n}", b"%d" % n) for n in (1, 2, 3)], many=many)
    assert (first, third) == (True, True)
    assert isinstance(second, WorldError)
    assert isinstance(second.__cause__, OSError)  # the reserve is spent on a disk that is full
    assert [path.name for path in ws.tasks.glob("*/*")] == ["task.md"] * 2


def test_many_are_durable_before_the_first_has_its_name_and_have_their_names_before_it_is_reported(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, seen = TaskFiles(ws), []

    def sync(_fd: int) -> None:
        seen.append(sorted(path.name for path in ws.tasks.glob("*/*")))

    monkeypatch.setattr(syncing, "sync_reports_errors", lambda: True)
    monkeypatch.setattr(syncing, "sync_file_system", sync)
    assert files.write_all([("t1", b"x"), ("t2", b"x")], many=True) == [True, True]
    assert seen == [[".task.md.mailboxd.tmp"] * 2, ["task.md"] * 2]


def test_an_edit_while_many_files_are_written_is_not_overwritten(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TaskFiles(ws)
    monkeypatch.setattr(syncing, "sync_reports_errors", lambda: True)
    monkeypatch.setattr(syncing, "sync_file_system", lambda _fd: edit(ws, "t1", b"edited"))

    assert files.write_all([("t1", b"rendered"), ("t2", b"rendered")], many=True) == [False, True]
    assert changes(files) == {"t1": b"edited"}
    assert [path.name for path in ws.tasks.glob("*/.*")] == []


@pytest.mark.parametrize("reported", [False, True])
def test_where_syncing_all_says_nothing_of_errors_each_is_synced(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, reported: bool
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def one(fd: int) -> None:
        synced.append("one")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", one)
    monkeypatch.setattr(syncing, "sync_reports_errors", lambda: reported)
    monkeypatch.setattr(syncing, "sync_file_system", lambda _fd: synced.append("all"))
    assert TaskFiles(ws).write_all([("t1", b"x"), ("t2", b"x")], many=True) == [True, True]
    assert synced == (["all"] * 2 if reported else ["one"] * 6)


def test_a_rendering_never_clobbers_an_edit_that_was_not_looked_at(ws: Workspace) -> None:
    files = TaskFiles(ws)
    files.write("t1", b"rendered")
    edit(ws, "t1", b"edited")

    assert not files.write("t1", b"rendered anew")
    assert changes(files) == {"t1": b"edited"}
    assert files.write("t1", b"rendered anew")
    assert [path.name for path in (ws.tasks / "t1").iterdir()] == ["task.md"]


def test_a_dropped_file_that_was_never_seen_is_not_clobbered(ws: Workspace) -> None:
    edit(ws, "t1", b"dropped")

    assert not TaskFiles(ws).write("t1", b"rendered")
    assert (ws.tasks / "t1" / "task.md").read_bytes() == b"dropped"


def test_a_file_that_is_being_written_waits_and_is_not_clobbered(ws: Workspace) -> None:
    files = TaskFiles(ws)
    files.write("t1", b"rendered")
    path = ws.tasks / "t1" / "task.md"
    with path.open("r+b") as writer:
        assert not files.write("t1", b"anew")
        writer.write(b"half")
        writer.flush()
        assert changes(files) == {}
        writer.write(b" and half")

    assert changes(files) == {"t1": b"half and half"}


def test_after_a_restart_each_file_is_reported_once(ws: Workspace) -> None:
    TaskFiles(ws).write("t1", b"rendered")

    restarted = TaskFiles(ws)
    assert changes(restarted) == {"t1": b"rendered"}
    assert changes(restarted) == {}


def test_a_change_that_could_not_be_dealt_with_is_reported_again(ws: Workspace) -> None:
    files = TaskFiles(ws)
    edit(ws, "t1", b"edited")
    changes(files)
    files.forget("t1")

    assert changes(files) == {"t1": b"edited"}


def test_a_deleted_file_is_reported_until_it_is_rendered_again(ws: Workspace) -> None:
    files = TaskFiles(ws)
    files.write("t1", b"rendered")
    files.write("t2", b"rendered")
    files.write("t3", b"rendered")
    (ws.tasks / "t1" / "task.md").unlink()
    (ws.tasks / "t2" / "task.md").unlink()
    (ws.tasks / "t2").rmdir()

    assert files.scan(NOW).missing == ["t1", "t2"]
    assert files.scan(NOW, ["t2", "t3"]).missing == ["t2"]
    assert files.write("t1", b"rendered")
    assert files.write("t2", b"rendered")
    assert files.scan(NOW).missing == []
    assert changes(files) == {}


def test_links_directories_pipes_and_giants_are_reported_once_and_never_opened(ws: Workspace) -> None:
    files = TaskFiles(ws)
    secret = ws.root / "secret"
    secret.write_text("precious")
    for local_id in ("link", "dir", "pipe", "giant"):
        (ws.tasks / local_id).mkdir()
    (ws.tasks / "link" / "task.md").symlink_to(secret)
    (ws.tasks / "dir" / "task.md").mkdir()
    os.mkfifo(ws.tasks / "pipe" / "task.md")
    with (ws.tasks / "giant" / "task.md").open("wb") as writer:
        writer.truncate(10 << 30)

    found = files.scan(NOW)
    assert {it.local_id: it.error.rule for it in found.unusable} == {
        "link": "symlink",
        "dir": "not-regular",
        "pipe": "not-regular",
        "giant": "too-large",
    }
    assert found.changed == []
    assert files.scan(NOW).unusable == []

    assert files.write("link", b"rendered")
    assert files.write("pipe", b"rendered")
    assert secret.read_text() == "precious"
    with pytest.raises(ObstructedError, match="tasks/dir"):
        files.write("dir", b"rendered")
    kept = files.keep_rejected("dir", None, TIME)
    assert (ws.root / kept).is_dir()
    assert files.write("dir", b"rendered")


def test_a_rejected_text_is_kept_beside_the_file(ws: Workspace) -> None:
    files = TaskFiles(ws)

    first = files.keep_rejected("t1", b"illegal", TIME)
    assert files.keep_rejected("t1", b"illegal", TIME) == first == f"tasks/t1/task.rejected-{TIME}.md"
    second = files.keep_rejected("t1", b"illegal too", TIME)

    assert (ws.root / first).read_bytes() == b"illegal"
    assert (ws.root / second).read_bytes() == b"illegal too"
    assert changes(files) == {}


@pytest.mark.parametrize("local_id", ["..", "a/b", "/etc", "", ".hidden", "a..b", "x" * 300, "-x"])
def test_an_invalid_id_never_becomes_a_path(ws: Workspace, local_id: str) -> None:
    files = TaskFiles(ws)
    with pytest.raises(ValueError, match="is not an id"):
        files.write(local_id, b"text")
    with pytest.raises(ValueError, match="is not an id"):
        files.keep_rejected(local_id, b"text", TIME)
    assert files.scan(NOW, [local_id]).changed == []


@pytest.mark.parametrize("time", ["", "../x", "a b", "x" * 65])
def test_an_invalid_time_never_becomes_a_path(ws: Workspace, time: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        TaskFiles(ws).keep_rejected("t1", b"text", time)


def test_a_task_directory_that_is_a_link_is_neither_read_nor_written(ws: Workspace) -> None:
    elsewhere = ws.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "task.md").write_text("outside")
    (ws.tasks / "t1").symlink_to(elsewhere)
    files = TaskFiles(ws)

    assert changes(files) == {}
    assert changes(files, "t1") == {}
    with pytest.raises(ObstructedError, match="tasks/t1"):
        files.write("t1", b"rendered")
    with pytest.raises(ObstructedError, match="tasks/t1"):
        files.keep_rejected("t1", b"text", TIME)
    assert [path.name for path in elsewhere.iterdir()] == ["task.md"]
    assert (elsewhere / "task.md").read_text() == "outside"


def test_what_is_no_task_directory_is_passed_over(ws: Workspace) -> None:
    (ws.tasks / "notes.txt").write_text("x")
    (ws.tasks / "empty").mkdir()
    (ws.tasks / ".hidden").mkdir()
    (ws.tasks / ".hidden" / "task.md").write_text("x")
    (ws.tasks / os.fsdecode(b"\xff")).mkdir()

    assert changes(TaskFiles(ws)) == {}


def test_missing_tasks_are_the_worlds_fault(ws: Workspace) -> None:
    ws.tasks.rmdir()

    with pytest.raises(WorldError):
        TaskFiles(ws).scan(NOW)
    with pytest.raises(WorldError):
        TaskFiles(ws).write("t1", b"text")


def test_many_changes_come_a_few_at_a_time(ws: Workspace) -> None:
    for number in range(10):
        edit(ws, f"t{number}", b"x")
    files = TaskFiles(ws)

    looks = [files.scan(NOW, limit=6) for _ in range(3)]
    assert [(len(look.changed), look.truncated) for look in looks] == [(6, True), (4, True), (0, False)]
    assert all(look.missing == [] for look in looks)


def test_each_file_is_visited_once_however_many_have_changed(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart all of ten thousand are new: looked at from the start for each few of them it took minutes."""
    for number in range(40):
        edit(ws, f"t{number}", b"x")
    files, visited = TaskFiles(ws), []

    def counting(fd: int, name: str) -> os.stat_result | None:
        visited.append(name)
        return lstat(fd, name)

    monkeypatch.setattr(task_files, "lstat", counting)

    while files.scan(NOW, limit=4).truncated:
        pass
    assert len(visited) <= 2 * 40 + 10


def test_changes_behind_a_truncated_scan_are_found_by_the_next(ws: Workspace) -> None:
    for name in ("t1", "t2", "t3"):
        edit(ws, name, b"x")
    files = TaskFiles(ws)
    (first,) = files.scan(NOW, limit=1).changed
    edit(ws, first.local_id, b"edited again")
    edit(ws, "t4", b"made meanwhile")

    found = []
    while (look := files.scan(NOW, limit=1)).truncated:
        found += look.changed
    assert sorted((change.local_id, change.raw) for change in found) == sorted(
        [(name, b"x") for name in {"t1", "t2", "t3"} - {first.local_id}]
        + [(first.local_id, b"edited again"), ("t4", b"made meanwhile")]
    )


def test_what_was_read_before_a_look_failed_is_reported_by_the_next(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(ws, "t1", b"one")
    edit(ws, "t2", b"two")
    files, opened = TaskFiles(ws), []

    def failing(fd: int, name: str) -> int | None:
        opened.append(name)
        if len(opened) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_regular(fd, name)

    monkeypatch.setattr(inbox, "open_regular", failing)
    with pytest.raises(WorldError, match="Too many open files"):
        files.scan(NOW)
    assert changes(files) == {"t1": b"one", "t2": b"two"}


def test_rendering_survives_a_kill_at_every_point(ws: Workspace) -> None:
    path = ws.tasks / "t1" / "task.md"
    stamps: list[Stamp] = []

    def prepare() -> None:
        edit(ws, "t1", b"old")
        stamps[:] = [Stamp.of(path.lstat())]

    def files() -> TaskFiles:
        made = TaskFiles(ws)
        made.remember("t1", stamps[0])
        return made

    for point in every_point(lambda: files().write("t1", b"new"), prepare):
        assert path.read_bytes() in {b"old", b"new"}, point
        again = TaskFiles(ws)
        again.scan(NOW)
        assert again.write("t1", b"new")
        assert [entry.name for entry in path.parent.iterdir()] == ["task.md"], point


@pytest.mark.slow
def test_looking_at_two_thousand_unchanged_tasks_is_cheap(ws: Workspace) -> None:
    for number in range(2_000):
        edit(ws, f"t{number}", b"x")
    files = TaskFiles(ws)
    while files.scan(NOW, limit=10_000).truncated:
        pass

    begun = time.process_time()
    found = files.scan(NOW)

    assert (found.changed, found.missing, found.truncated) == ([], [], False)
    assert time.process_time() - begun < 0.2
