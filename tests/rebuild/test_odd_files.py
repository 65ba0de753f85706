"""One file of which nothing can be made is named, and all the others make a database: a rebuild is the last resort."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.mailbox.layout import Workspace
from mailboxd.rebuild import files, make
from mailboxd.rebuild.make import Account
from mailboxd.rebuild.timeline import timeline
from tests.e2e.support import task
from tests.rebuild.compare import read
from tests.rebuild.mailroom import SETTINGS, Mailroom
from tests.rebuild.test_histories import NOW, play

DAY = "2026-03-01"
REASON = {"name": "y.md", "rejected_at": f"{DAY}T08:00:00.000Z", "message": "msg_1", "rule": "r", "problem": "p"}


@pytest.fixture
def room(tmp_path: Path) -> Mailroom:
    """One task that has come."""
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t").encode())
    room.look()
    room.settle()
    room.close()
    return room


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole history; to be copied, not changed."""
    return play(tmp_path_factory.mktemp("history") / "ws", 1).ws.root


def rebuilt(ws: Workspace) -> Account:
    account = make.make(ws, SETTINGS, NOW, ws.root.parent / "one.db")
    assert ("t",) in read(Path(account.database))["tasks"]
    return account


def drop(ws: Workspace, path: bytes, raw: bytes) -> bytes:
    file = os.fsencode(ws.mailbox) + b"/" + path
    os.makedirs(os.path.dirname(file), exist_ok=True)
    Path(os.fsdecode(file)).write_bytes(raw)
    return file


@pytest.mark.parametrize("moment", [2**40, 253402300799, -(2**40)])
def test_a_sender_may_date_a_file_as_he_likes(room: Mailroom, moment: int) -> None:
    """Some file systems keep such a time (tmpfs, btrfs), and archive/ keeps what it was."""
    file = drop(room.ws, f"archive/{DAY}/odd.md".encode(), task("odd").encode())
    os.utime(file, (moment, moment))
    if os.stat(file).st_mtime != moment:
        pytest.skip("this file system keeps no such time")
    assert rebuilt(room.ws).problems == []


@pytest.mark.parametrize("path", [f"archive/{DAY}/x\udcff.md", "archive/\udcff/x.md", "outbox/x\udcff.md"])
def test_a_name_that_is_no_text_is_named(room: Mailroom, path: str) -> None:
    drop(room.ws, os.fsencode(path), task("odd").encode())
    problems = rebuilt(room.ws).problems
    assert problems == [("mailbox/" + path.replace("\udcff", "%FF"), "its name is not UTF-8")]


def test_a_name_that_is_no_text_is_named_in_rejected_too(room: Mailroom) -> None:
    drop(room.ws, b"rejected/x\xff.md", b"x")
    drop(room.ws, b"rejected/x\xff.md.reason.json", json.dumps(REASON).encode())
    assert rebuilt(room.ws).problems == [("mailbox/rejected/x%FF.md", "its name is not UTF-8")]


@pytest.mark.parametrize("day", ["2026-99-99", "9999-12-31", "0001-01-01"])
def test_a_directory_that_is_no_day_is_no_days(room: Mailroom, day: str) -> None:
    drop(room.ws, f"archive/{day}/odd.md".encode(), task("odd").encode())
    assert rebuilt(room.ws).problems == []


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(REASON | {"rejected_at": "yesterday"}).encode(),
        json.dumps(REASON | {"rejected_at": "9999-12-31T23:59:59.999Z"}).encode(),
        json.dumps(REASON | {"problem": "\ud800"}).encode(),
        json.dumps(REASON | {"line": "x"}).encode(),
        json.dumps(REASON | {"field": [1]}).encode(),
        json.dumps(REASON | {"sha256": 5}).encode(),
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_reason_that_says_nothing_usable_is_named(room: Mailroom, raw: bytes) -> None:
    drop(room.ws, b"rejected/y.md", b"x")
    drop(room.ws, b"rejected/y.md.reason.json", raw)
    said = "its .reason.json is missing or cannot be read"
    assert rebuilt(room.ws).problems == [("mailbox/rejected/y.md", said)]


@pytest.mark.parametrize("odd", ["yesterday", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize("name", ["created_at", "updated_at", "dispatched_at", "completed_at"])
def test_a_moment_that_cannot_be_is_named_with_its_file(played: Path, tmp_path: Path, name: str, odd: str) -> None:
    ws = _copied(played, tmp_path)
    file = _change_one(ws, name, lambda _: odd)
    account = make.make(ws, SETTINGS, NOW, tmp_path / "one.db")
    ((path, problem),) = account.problems
    assert path == str(file.relative_to(ws.root))
    assert "time" in problem
    assert odd[:10] in problem


@pytest.mark.parametrize("name", ["created_at", "updated_at", "dispatched_at", "completed_at"])
def test_moments_as_clawflow_writes_them_are_moments(played: Path, tmp_path: Path, name: str) -> None:
    ws = _copied(played, tmp_path)
    _change_one(ws, name, lambda said: re.sub(r"\.\d+Z", "Z", said))
    assert make.make(ws, SETTINGS, NOW, tmp_path / "one.db").problems == []


def _copied(played: Path, folder: Path) -> Workspace:
    shutil.copytree(played, folder / "ws", copy_function=shutil.copy2)
    return Workspace(folder / "ws")


def _change_one(ws: Workspace, name: str, change: Callable[[str], str]) -> Path:
    """The first task.md that has such a moment, with another one there."""
    for file in sorted(ws.tasks.glob("*/task.md")):
        text = file.read_text()
        found = re.search(rf'{name}: "?([0-9TZ:.-]+)"?', text)
        if found is not None:
            file.write_text(text[: found.start(1)] + change(found[1]) + text[found.end(1) :])
            return file
    raise AssertionError(f"no task.md has {name}")


def test_a_task_md_without_a_moment_came_when_it_was_written(room: Mailroom) -> None:
    """Somebody made it while no daemon ran, and the database was lost before one began."""
    folder = room.ws.tasks / "mine"
    folder.mkdir()
    (folder / "task.md").write_text("# Task: Mine\n\n## Instructions\n\nDo it.\n")
    os.utime(folder / "task.md", (1772352000, 1772352000))
    account = rebuilt(room.ws)
    assert (account.problems, account.differences) == ([], [])
    assert read(Path(account.database))["tasks"]["mine",]["created_at"] == "2026-03-01T08:00:00.000Z"


@pytest.mark.parametrize("said", ["", "completed_at: 9999-12-31T00:00:00Z\n"])
def test_a_message_in_outbox_that_does_not_say_when_it_was_made_is_named(room: Mailroom, said: str) -> None:
    raw = f"---\ntype: reply\nmessage_id: x1\ntask_id: t\nfrom: alpha\nstatus: done\n{said}---\n\n## Results\n\nDone.\n"
    drop(room.ws, b"outbox/x1.reply.t.md", raw.encode())
    ((path, problem),) = rebuilt(room.ws).problems
    assert path == "mailbox/outbox/x1.reply.t.md"
    assert "time" in problem


def test_a_moment_of_a_file_that_no_text_can_say_is_the_nearest_that_can() -> None:
    assert files.of_file(2**40) == "8999-12-31T23:59:59.999Z"
    assert files.of_file(-5.0) == files.EARLIEST
    assert files.of_file(1772352000.5) == "2026-03-01T08:00:00.500Z"


def test_a_copy_of_a_message_that_was_sent_is_named(played: Path, tmp_path: Path) -> None:
    ws = _copied(played, tmp_path)
    first, *_ = sorted(ws.outbox.glob("*.task.*.md"))
    copy = first.with_name(f"{first.stem}.copy.md")
    shutil.copy2(first, copy)
    account = make.make(ws, SETTINGS, NOW, tmp_path / "one.db")
    said = f"it has the id of another one ({first.name.split('.')[0]}): it is a copy"
    assert account.problems == [(f"mailbox/outbox/{copy.name}", said)]


def test_a_copy_of_a_rejected_message_is_named(room: Mailroom) -> None:
    for name in ("x.md", "y.md"):
        drop(room.ws, f"rejected/{name}".encode(), b"x")
        drop(room.ws, f"rejected/{name}.reason.json".encode(), json.dumps(REASON).encode())
    said = "it has the id of another one (msg_1): it is a copy"
    assert rebuilt(room.ws).problems == [("mailbox/rejected/y.md", said)]


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"---\ntype: nothing\n---\n")])
def test_a_message_that_changes_while_it_is_read_is_named(
    room: Mailroom, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    """It is read a second time where not all of them fit into memory."""
    drop(room.ws, f"archive/{DAY}/odd.md".encode(), task("odd").encode())
    monkeypatch.setattr(files.Sources, "keep", lambda *_: None)
    monkeypatch.setattr(make, "timeline", lambda found: (change(room.ws.archive / DAY / "odd.md"), timeline(found))[1])
    (difference,) = rebuilt(room.ws).differences
    assert difference.startswith(f"mailbox/archive/{DAY}/odd.md: it has changed while it was read: ")
