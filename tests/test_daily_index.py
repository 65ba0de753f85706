"""The index of a day lists what came and went, and is made whole by the next daemon whatever was lost of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.daily_index import EVERY, DailyIndex
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.ledger.store import Store

NOW = "2026-11-21T10:15:02.000Z"
REVIEW = b"---\ntype: review\ntask_id: q3\nfrom: editor\nverdict: blocked\n---\n"


class Room:
    def __init__(self, root: Path) -> None:
        Workspace.create(root)
        self.ws = Workspace(root)
        self.clock = ManualClock(NOW)
        self.engine = Engine(Store.open(None, NOW), Settings("alpha"), self.clock)
        self.store = self.engine.store
        self.ids = (f"msg_{number:03}" for number in count())
        self.begin()

    def begin(self) -> None:
        """Another daemon."""
        self.index = DailyIndex(self.store, self.ws, self.clock)
        self.catch_up()

    def catch_up(self) -> None:
        while self.index.due is None or self.index.due <= self.clock.monotonic():
            self.index.perform(self.store.last_event())
            if self.index.due is None:
                break

    def file(self, path: str, raw: bytes = b"x", **said: object) -> None:
        file = self.ws.mailbox / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(raw)
        row = {"id": next(self.ids), "direction": "in", "verdict": "accepted", "name": file.name, "stamp": {}}
        with self.engine.batch():
            self.store.messages.keep_body(str(row["id"]), raw)
            message = row | {"sender": "beta", "receiver": "alpha", "type": "task", "task_id": "q3"} | said
            self.engine.record(Event(Kind.MESSAGE_RECEIVED, None, {"at": NOW, "message": message}))
            self.engine.record(Event(Kind.MESSAGE_FILED, None, {"at": NOW, "id": row["id"], "path": path}))

    @property
    def path(self) -> Path:
        return self.ws.archive / "2026-11-21" / "INDEX.md"

    def rows(self) -> list[list[str]]:
        lines = [line for line in self.path.read_text().splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.store.close()


def test_each_message_of_a_day_has_a_line_with_its_decision_and_a_link(room: Room) -> None:
    room.file("archive/2026-11-21/go.md")
    room.file("archive/2026-11-21/review.md", REVIEW, type="review", sender="editor")
    room.file("rejected/2026-11-21/bad one.md", verdict="rejected", subtask_id="a")
    room.clock.advance(EVERY)
    room.catch_up()
    assert room.rows() == [
        ["10:15:02", "beta", "alpha", "task", "q3", "accepted", "", "[go.md](go.md)"],
        ["10:15:02", "editor", "alpha", "review", "q3", "accepted", "blocked", "[review.md](review.md)"],
        ["10:15:02", "beta", "alpha", "task", "q3.a", "rejected", "",
         "[bad one.md](../../rejected/2026-11-21/bad%20one.md)"],
    ]  # fmt: skip


def test_lines_are_appended_once_and_not_at_once(room: Room) -> None:
    room.file("archive/2026-11-21/one.md")
    room.clock.advance(EVERY)
    room.catch_up()
    inode = room.path.stat().st_ino
    room.file("archive/2026-11-21/two.md")
    room.index.perform(room.store.last_event())
    assert len(room.rows()) == 1
    assert room.index.due is not None
    room.clock.advance(EVERY)
    room.catch_up()
    assert [row[-1] for row in room.rows()] == ["[one.md](one.md)", "[two.md](two.md)"]
    assert room.path.stat().st_ino == inode
    assert room.index.due is None


def test_a_message_that_was_listed_as_sent_and_is_not_delivered_has_another_line(room: Room) -> None:
    for name in ("early", "late"):
        room.file(f"outbox/2026-11-21/{name}.md", direction="out", verdict="sent", type="note")
        if name == "late":
            room.clock.advance(EVERY)
            room.catch_up()
        with room.engine.batch():
            room.engine.record(
                Event(Kind.MESSAGE_UNDELIVERED, None, {"at": NOW, "id": f"msg_{int(name == 'late'):03}"})
            )
    room.clock.advance(EVERY)
    room.catch_up()
    told = [(row[5], row[-1].split("]")[0]) for row in room.rows()]
    assert told == [("undelivered", "[early.md"), ("sent", "[late.md"), ("undelivered", "[late.md")]
    room.begin()
    told = [(row[5], row[-1].split("]")[0]) for row in room.rows()]
    assert told == [("undelivered", "[early.md"), ("undelivered", "[late.md")]


@pytest.mark.parametrize("left", [None, b"", b"# Messages of 2026-11-21\n\n| torn"])
def test_what_a_crash_took_is_written_again_by_the_next_daemon(room: Room, left: bytes | None) -> None:
    room.file("archive/2026-11-20/earlier.md")
    room.file("archive/2026-11-21/one.md")
    room.clock.advance(EVERY)
    room.catch_up()
    written = room.path.read_bytes()
    room.path.unlink()
    if left is not None:
        room.path.write_bytes(left)
    if left == b"":
        room.path.write_bytes(written.rpartition(b"| 10:15:02")[0])
    room.begin()
    assert room.path.read_bytes() == written


def test_a_hostile_name_is_a_cell_and_no_more(room: Room) -> None:
    room.file("archive/2026-11-21/a|b](http:) <i>.md", sender="x\n| y")
    room.clock.advance(EVERY)
    room.catch_up()
    (line,) = room.path.read_text().splitlines()[6:]
    assert line.count("\\|") == 2
    assert "[a\\|b\\](http:) \\<i\\>.md](a%7Cb%5D%28http%3A%29%20%3Ci%3E.md)" in line


def test_a_message_or_link_with_its_name_is_left_alone(room: Room, tmp_path: Path) -> None:
    room.file("archive/2026-11-21/INDEX.md", b"hello")
    room.file("archive/2026-11-20/one.md")
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", room.ws.archive / "2026-11-20" / "INDEX.md")
    room.begin()
    room.file("archive/2026-11-21/two.md")
    room.clock.advance(EVERY)
    room.catch_up()
    assert (room.path.read_bytes(), (tmp_path / "secret").read_text()) == (b"hello", "secret")
