"""A rebuilt database equals the one that it replaces, over histories that a seed plays with real files."""

from __future__ import annotations

import re
import shutil
import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mailboxd.core.events import Kind
from mailboxd.errors import UnavailableError
from mailboxd.mailbox.layout import Workspace
from mailboxd.progress import Progress
from mailboxd.rebuild import finish, make
from mailboxd.rebuild.files import Came
from mailboxd.rebuild.make import Writing
from mailboxd.rebuild.replay import Mail, ReplayStore
from mailboxd.store import event_log
from mailboxd.store.database import connect
from tests.e2e.support import message, task
from tests.rebuild.compare import differences, read
from tests.rebuild.mailroom import SETTINGS, Mailroom

STEPS = 120
NOW = "2026-03-02T00:00:00.000Z"


def play(root: Path, seed: int) -> Mailroom:
    room = Mailroom.begin(root, seed)
    for _ in range(STEPS):
        room.step()
    room.settle()
    room.close()
    return room


SEEDS = [
    *range(4),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20)),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(20, 60)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_rebuilt_from_its_files_is_the_same(tmp_path: Path, seed: int) -> None:
    room = play(tmp_path / "ws", seed)
    account = make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert account.problems == []
    assert differences(room.ws.database, tmp_path / "one.db") == []
    assert account.differences == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_twice_the_same(tmp_path: Path, seed: int) -> None:
    room = play(tmp_path / "ws", seed)
    one = make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    room.ws.database.unlink()
    two = make.make(room.ws, SETTINGS, "2027-01-01T00:00:00.000Z", tmp_path / "two.db")
    assert one.fingerprint == two.fingerprint
    shutil.copytree(room.ws.root, tmp_path / "copy", copy_function=shutil.copy2)
    three = make.make(Workspace(tmp_path / "copy"), SETTINGS, NOW, tmp_path / "three.db")
    assert three.fingerprint == one.fingerprint


def test_where_a_message_lies_is_said_with_it(tmp_path: Path) -> None:
    """Not in an event of its own, which was a quarter of all events of a rebuild."""
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t").encode())
    room.put(b"---\ntype: nothing-known\n---\n")
    room.look()
    room.close()
    make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert differences(room.ws.database, tmp_path / "one.db") == []
    with closing(connect(tmp_path / "one.db", read_only=True)) as db:
        said = [recorded.event for recorded in event_log.read(db)]
    lies = {event.kind: event.data["message"]["path"] for event in said if "message" in event.data}
    assert set(lies) == {Kind.MESSAGE_RECEIVED, Kind.MESSAGE_REJECTED}
    assert all((room.ws.mailbox / path).is_file() for path in lies.values())
    assert Kind.MESSAGE_FILED not in {event.kind for event in said}


def test_no_attempt_is_made_up_for_work_that_was_cancelled_before_anybody_began_it(tmp_path: Path) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    for number in range(9):  # more than may run at once
        room.put(task(f"t{number}").encode())
    room.look()
    room.clock.advance(1.0)
    room.put(message("cancel", "t8", "No longer needed.").encode())
    room.look()
    room.settle()
    room.close()

    account = make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    rebuilt = read(tmp_path / "one.db")
    assert account.differences == []
    assert rebuilt["tasks"]["t8",]["phase"] == "cancelled"
    for database in (read(room.ws.database), rebuilt):
        assert "t8" not in {name for name, _ in database["attempts"]}


def test_a_database_has_its_name_when_it_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed before leaves none that looks like one, and the next run is not refused for it."""
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.close()
    into, seen = tmp_path / "one.db", set[str]()

    def watched(made: Writing, progress: Progress) -> str:
        assert not into.exists()
        seen.update(path.name for path in tmp_path.iterdir())
        return prove(made, progress)

    prove = Writing.prove
    monkeypatch.setattr(Writing, "prove", watched)
    (tmp_path / ".one.db.rebuilding").write_bytes(b"left by one that was killed")
    make.make(room.ws, SETTINGS, NOW, into)
    assert ".one.db.rebuilding" in seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.db", "ws"]


def test_a_name_that_is_taken_meanwhile_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.close()
    into, prove = tmp_path / "one.db", Writing.prove

    def taken(made: Writing, progress: Progress) -> str:
        into.write_text("mine")
        return prove(made, progress)

    monkeypatch.setattr(Writing, "prove", taken)
    with pytest.raises(UnavailableError, match="the file exists already"):
        make.make(room.ws, SETTINGS, NOW, into)
    assert into.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.db", "ws"]


def test_what_was_replayed_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables have it by then: memory is needed for the messages or for the tables, not for both."""
    room = play(tmp_path / "ws", 1)
    receive, came = Mail.receive, list[weakref.ref[Came]]()

    def watched(mail: Mail, one: Came) -> None:
        assert sum(ref() is not None for ref in came) <= 1
        came.append(weakref.ref(one))
        receive(mail, one)

    monkeypatch.setattr(Mail, "receive", watched)
    make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert len(came) > 5


def test_no_session_is_worked_out_for_open_work_where_no_call_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 99 for each task, and half of the time."""
    room = Mailroom.begin(tmp_path / "ws", 0)
    room.put(task("t").encode())
    room.look()
    room.close()
    monkeypatch.setattr(finish, "session_key", lambda *_: pytest.fail("a session was worked out"))
    assert make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db").counts["open"] == 1


def test_what_was_sent_counts_as_sent_where_no_task_md_shows_it(tmp_path: Path) -> None:
    room = play(tmp_path / "ws", 3)
    for path in room.ws.tasks.glob("*/task.md"):
        path.unlink()
    make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    sent = {name for (name,) in read(tmp_path / "one.db")["messages"] if str(name).startswith("outbox/")}
    attempts = {row["id"] for row in read(tmp_path / "one.db")["attempts"].values()}
    given = [path for path in room.ws.outbox.iterdir() if ".task." in path.name]
    assert {f"outbox/{path.name}" for path in given} <= sent
    planned = [path for path in given if ".p" not in path.name]  # of a plan that an agent made only task.md knows
    assert planned
    for path in planned:
        text = path.read_text()
        assert text.split("attempt_id: ")[1].split()[0].strip('"') in attempts, path.name


_LITERAL = re.compile(r"'(?:[^']|'')*'|\b\d+\b")
_ONCE = re.compile(r"SELECT id FROM tasks WHERE phase <> 'completed'|SELECT s\.task, t\.local_id FROM stale_files")
"""What a rebuild asks once, and not for each message."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_table_is_gone_through_for_each_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Not even while the indexes that only a daemon needs are missing."""
    asked: dict[str, str] = {}
    begun, beside = ReplayStore.empty, ReplayStore.other_tables
    gone_through = []

    def watched(now: str) -> ReplayStore:
        store = begun(now)
        store.db.set_trace_callback(lambda sql: asked.setdefault(_LITERAL.sub("?", sql), sql))
        return store

    def explained(store: ReplayStore) -> Mapping[str, Sequence[Sequence[Any]]]:
        store.db.set_trace_callback(None)
        for sql in asked.values():
            if re.match(r"(SELECT|UPDATE|WITH|DELETE|INSERT)\b", sql) and not _ONCE.match(sql):
                for *_, step in store.db.execute(f"EXPLAIN QUERY PLAN {sql}"):
                    if re.match(r"SCAN (?!CONSTANT|\(subquery|json_each|below|b\b|\d)", step):
                        gone_through.append(f"{step}: {sql[:200]}")
        return beside(store)

    room = play(tmp_path / "ws", seed)
    monkeypatch.setattr(ReplayStore, "empty", staticmethod(watched))
    monkeypatch.setattr(ReplayStore, "other_tables", explained)
    make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert asked
    assert gone_through == []
