"""What several processes make of a mailbox is what one makes of it; and a process that fails is an error."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.core.events import Kind, Role
from mailboxd.errors import StoreError, WorldError
from mailboxd.mailbox.layout import Workspace
from mailboxd.rebuild import files, make
from mailboxd.rebuild.files import READER, Batch
from mailboxd.rebuild.workers import WorkerProcess
from mailboxd.store.database import connect
from mailboxd.store.rebuild_store import DatabaseWriter, LogBatch, RebuildStore
from tests.rebuild.mailroom import SETTINGS, Mailroom
from tests.rebuild.test_histories import NOW, play

pytestmark = pytest.mark.slow


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """However few files there are, and however few processors."""
    for module in (files, make):
        monkeypatch.setattr(module, "ENOUGH", 1)
        monkeypatch.setattr(module, "processors", lambda: 3)
    monkeypatch.setattr(files, "_BATCH", 4)
    monkeypatch.setattr(make, "_OFTEN", 7)
    return monkeypatch


@pytest.fixture
def room(tmp_path: Path) -> Mailroom:
    return play(tmp_path / "ws", 1)


def test_shared_out_it_is_the_same(room: Mailroom, tmp_path: Path, shared: pytest.MonkeyPatch) -> None:
    many = make.make(room.ws, SETTINGS, NOW, tmp_path / "many.db")
    shared.undo()
    alone = make.make(room.ws, SETTINGS, NOW, tmp_path / "alone.db")
    assert many.counts == alone.counts
    assert many.fingerprint == alone.fingerprint
    assert many.differences == alone.differences == []


def test_problems_are_named_in_the_same_order(room: Mailroom, tmp_path: Path, shared: pytest.MonkeyPatch) -> None:
    (day, *_) = sorted(room.ws.archive.iterdir())
    for number in range(9):
        (day / f"odd{number}.md").write_text("---\ntype: nonsense\n---\n")
        (room.ws.outbox / f"odd{number}.md").write_text("---\ntype: nonsense\n---\n")
    many = make.make(room.ws, SETTINGS, NOW, tmp_path / "many.db")
    shared.undo()
    alone = make.make(room.ws, SETTINGS, NOW, tmp_path / "alone.db")
    assert len(many.problems) == 18
    assert many.problems == alone.problems
    assert many.fingerprint == alone.fingerprint


@pytest.mark.parametrize("which", ["READER", "SCRIBE"])
def test_one_that_ends_before_it_is_done_is_an_error(
    room: Mailroom, tmp_path: Path, shared: pytest.MonkeyPatch, which: str
) -> None:
    shared.setattr(files if which == "READER" else make, which, "antigravity.nowhere")
    with pytest.raises(WorldError, match=r"ended with status 1 before it was done"):
        make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert not list(tmp_path.glob("one.db*"))


def test_what_a_reader_cannot_read_is_its_error(room: Mailroom) -> None:
    with WorkerProcess("reads files", READER, str(room.ws.root)) as hand:
        hand.tell([Batch("archive/2001-01-01", ["a.md"])])
        with pytest.raises(WorldError, match="cannot read mailbox/archive/2001-01-01: No such file"):
            hand.hear()


def test_a_table_that_is_not_what_the_events_add_up_to_is_seen(
    room: Mailroom, tmp_path: Path, shared: pytest.MonkeyPatch
) -> None:
    complete = make.Writing.complete

    def meddled(made: make.Writing) -> None:
        made._store.db.execute("UPDATE tasks SET title = 'another one' WHERE local_id = 't1'")
        complete(made)

    shared.setattr(make.Writing, "complete", meddled)
    with pytest.raises(WorldError, match="does not hold: tasks: 2 rows differ"):
        make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert not list(tmp_path.glob("one.db*"))


def test_large_messages_are_handed_on_at_once(tmp_path: Path) -> None:
    """Not 250 of them together: a message may have a megabyte, and each was held twice."""
    store = RebuildStore.empty(NOW)
    with closing(store.db), make.writing(store, tmp_path / "one.db", NOW, 1) as made:
        for number, size in enumerate((10, 5 << 20)):
            store.messages.keep_body(str(number), bytes(size))
            made.step()
        assert store.take() == ([], [])


def test_the_scribe_sees_an_event_that_is_missing(tmp_path: Path) -> None:
    at = "2026-11-21T00:00:00.000Z"
    event = (2, at, Kind.ALARM, None, Role.ORCHESTRATOR, "mailboxd", {"at": at, "what": "clock", "why": "a test"})
    with WorkerProcess("writes the database", make.SCRIBE, str(tmp_path / "one.db"), at) as hand:
        hand.tell(LogBatch([event], []))
        hand.tell(None)
        hand.tell({})
        with pytest.raises(WorldError, match="does not hold: event 1 is missing"):
            hand.hear()


def test_what_the_scribe_cannot_write_is_its_error(tmp_path: Path) -> None:
    with (
        WorkerProcess("writes the database", make.SCRIBE, str(tmp_path / "nowhere" / "one.db"), NOW) as hand,
        pytest.raises(WorldError, match="the database cannot be opened"),
    ):
        hand.hear()


@pytest.mark.parametrize("step", ["drop_what_only_queries_need", "write"])
def test_a_scribe_that_has_no_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Also where it has only begun: that was a traceback."""
    path = tmp_path / "one.db"

    def limited(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(f"mailboxd.store.event_log.{step}", limited)
    with pytest.raises(StoreError, match=r"one\.db: the database could not be read or written: .* full"):
        DatabaseWriter(path, NOW).write(LogBatch([], []))


@pytest.mark.parametrize("shares", [True, False])
def test_a_disk_that_damages_the_new_database_is_the_worlds_error(
    room: Mailroom, tmp_path: Path, shared: pytest.MonkeyPatch, shares: bool
) -> None:
    if not shares:
        shared.undo()
    complete = make.Writing.complete

    def damaged(made: make.Writing) -> None:
        complete(made)
        with closing(connect(made._path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tasks'").fetchone()[0]
        with made._path.open("r+b") as file:
            file.seek(4096 * (page - 1))
            file.write(b"\xff" * 4096)

    shared.setattr(make.Writing, "complete", damaged)
    shared.setattr(make, "require_sound", lambda *_: None)
    with pytest.raises(WorldError, match="malformed"):
        make.make(room.ws, SETTINGS, NOW, tmp_path / "one.db")
    assert not list(tmp_path.glob("one.db*"))


def test_a_bug_in_a_hand_is_a_bug_of_ours_and_not_the_worlds(tmp_path: Path) -> None:
    """To run it again does not help; and what is to be reported is in the report, not somewhere before it."""
    with WorkerProcess("writes the database", make.SCRIBE, str(tmp_path / "one.db"), NOW) as hand:
        hand.tell("this is nothing that can be written")
        with pytest.raises(RuntimeError, match=r"a process that writes the database: Traceback(?s:.*)AttributeError"):
            hand.hear()


@pytest.mark.timeout(60)
def test_a_long_last_word_is_heard_by_one_who_is_still_telling(tmp_path: Path) -> None:
    """Both pipes are full then: each waited for the other."""
    at = "2026-11-21T00:00:00.000Z"
    said = {"at": at, "changes": {"x" * 200_000: 1}}
    bad = LogBatch([(1, at, Kind.TASK_AMENDED, "t", Role.ORCHESTRATOR, "mailboxd", said)], [])
    with (
        WorkerProcess("writes the database", make.SCRIBE, str(tmp_path / "one.db"), NOW) as hand,
        pytest.raises(RuntimeError, match="changes unknown columns"),
    ):
        list(map(hand.tell, [bad, LogBatch([], [("a", bytes(8 << 20))])]))


def test_a_rebuild_that_dies_within_a_word_leaves_no_complaint(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", make.SCRIBE, str(tmp_path / "one.db"), NOW]
    word = pickle.dumps(LogBatch([], [("a", bytes(100))]), pickle.HIGHEST_PROTOCOL)
    for left in range(0, len(word), 20):
        ended = subprocess.run(argv, input=word[:left], capture_output=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b""), left


def test_when_the_rebuild_is_killed_its_hands_go(tmp_path: Path) -> None:
    Workspace.create(tmp_path / "ws")
    program = (
        "import sys; from mailboxd.rebuild.workers import WorkerProcess\n"
        f"with WorkerProcess('reads files', '{READER}', {str(tmp_path / 'ws')!r}) as hand:\n"
        "    print(hand._child.pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        hand = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    # an orphan is nobody's child here: its end can be seen, and not its status
    ended, _, _ = select.select([hand], [], [], 60)
    os.close(hand)
    assert ended
