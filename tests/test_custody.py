"""What was filed is looked after: a file that is gone or changed is an alarm, once, and forgotten when it is back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mailboxd.clock import ManualClock
from mailboxd.core.events import Event, Kind
from mailboxd.engine import Engine
from mailboxd.inbox.archiving import Archiving
from mailboxd.inbox.custody import EVERY, Custody
from mailboxd.settings import Settings
from mailboxd.store import log
from mailboxd.store.report import Report
from mailboxd.store.store import Store
from mailboxd.workspace.layout import Workspace


class Room:
    """A workspace with one archived and one rejected message, and whoever looks after them."""

    def __init__(self, root: Path) -> None:
        Workspace.create(root)
        self.ws = Workspace(root)
        self.clock = ManualClock()
        self.engine = Engine(Store.open(None, self.clock.now()), Settings("alpha"), self.clock)
        self.reports: list[Callable[[], None]] = []
        self.begin()
        self.good = self._filed("good", "archive/2026-01-01/good.md", "accepted")
        self.bad = self._filed("bad", "rejected/bad.md", "rejected")

    def begin(self) -> None:
        """Another daemon."""
        custody = Custody(self.engine, self.ws, self.reports)
        self.archiving = Archiving(self.engine, self.ws, self.reports, custody)

    def _filed(self, name: str, path: str, verdict: str) -> Path:
        file = self.ws.mailbox / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"said")
        row = {"id": name, "direction": "in", "verdict": verdict, "name": f"{name}.md", "sha256": name, "size": 4}
        kind = Kind.MESSAGE_REJECTED if verdict == "rejected" else Kind.MESSAGE_RECEIVED
        now = self.clock.now()
        with self.engine.batch():
            self.engine.record(Event(kind, None, {"at": now, "message": {**row, "stamp": {}}}))
            self.engine.record(Event(Kind.MESSAGE_FILED, None, {"at": now, "id": name, "path": path}))
        return file

    def look(self) -> list[str]:
        """What is said of one look, a while after the one before."""
        self.clock.advance(EVERY)
        before = self.engine.store.last_event()
        self.archiving.try_again()
        with self.engine.batch():
            for report in self.reports:
                report()
        self.reports.clear()
        return [str(one.event.data["why"]) for one in log.read(self.engine.store.db, after=before)]


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_as_long_as_everything_is_there_nothing_is_said(room: Room) -> None:
    assert room.look() == []
    assert Report(room.engine.store.db).messages() == {"judged": 2, "archived": 1, "rejected": 1, "sent": 0}


def _delete(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    file.write_bytes(b"s")


def _exchange(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("tamper", "said"),
    [(_delete, "No such file"), (_cut, "has 1 bytes, and 4 were filed"), (_exchange, "is no file any more")],
)
@pytest.mark.parametrize("which", ["good", "bad"])
def test_what_is_tampered_with_is_an_alarm_once_and_not_again_after_a_restart(
    room: Room, which: str, tamper: Callable[[Path], None], said: str
) -> None:
    tamper({"good": room.good, "bad": room.bad}[which])
    (why,) = room.look()
    assert said in why
    assert f"{which}.md" in why
    assert room.look() == []
    room.begin()
    assert room.look() == []
    log.check(room.engine.store.db)


def test_what_comes_back_and_goes_again_is_another_alarm(room: Room) -> None:
    room.good.unlink()
    assert len(room.look()) == 1
    room.good.write_bytes(b"said")
    assert room.look() == []
    room.good.unlink()
    assert len(room.look()) == 1


def test_a_whole_archive_that_is_gone_is_one_alarm(room: Room) -> None:
    room.good.unlink()
    room.bad.unlink()
    (why,) = room.look()
    assert "and 1 more" in why
