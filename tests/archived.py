"""A workspace whose archive is looked after."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mailboxd.core.events import Event, Kind
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import EVERY, Archiver, ArchiveWatch
from mailboxd.engine.reports import Reports
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.ledger import event_log
from mailboxd.ledger.reports import Report
from mailboxd.ledger.store import Store

DIGEST = hashlib.sha256(b"said").hexdigest()


class Room:
    """A workspace with one archived and one rejected message, and whoever looks after them."""

    def __init__(self, root: Path, *, keeps: bool = False) -> None:
        self.keeps = keeps
        """Whether the bytes are in the database, as they are of all that a daemon has judged."""
        Workspace.create(root)
        self.ws = Workspace(root)
        self.clock = ManualClock()
        self.engine = Engine(Store.open(None, self.clock.now()), Settings("alpha"), self.clock)
        self.reports = Reports(self.engine)
        self.begin()
        self.good = self.filed("good", "archive/2026-01-01/good.md", "accepted")
        self.bad = self.filed("bad", "rejected/2026-01-01/bad.md", "rejected")

    def begin(self) -> None:
        """Another daemon."""
        archive_watch = ArchiveWatch(self.engine, self.ws, self.reports)
        self.archive_watch = archive_watch
        self.archiving = Archiver(self.engine, self.ws, self.reports, archive_watch)

    def filed(self, name: str, path: str, verdict: str) -> Path:
        file = self.ws.mailbox / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"said")
        row = {"id": name, "direction": "in", "verdict": verdict, "name": f"{name}.md", "sha256": DIGEST, "size": 4}
        kind = Kind.MESSAGE_REJECTED if verdict == "rejected" else Kind.MESSAGE_RECEIVED
        now = self.clock.now()
        with self.engine.batch():
            self.engine.record(Event(kind, None, {"at": now, "message": {**row, "stamp": {}}}))
            if self.keeps:
                self.engine.store.messages.keep_body(name, b"said")
            self.engine.record(Event(Kind.MESSAGE_FILED, None, {"at": now, "id": name, "path": path}))
        return file

    def look(self) -> list[str]:
        """What is said of one look, a while after the one before."""
        self.clock.advance(EVERY)
        before = self.engine.store.last_event()
        self.archiving.try_again()
        while self.archive_watch.check():
            pass
        with self.engine.batch():
            self.reports.record_all()
        return [str(one.event.data["why"]) for one in event_log.read(self.engine.store.db, after=before)]

    def messages(self) -> dict[str, int]:
        """How many there are, by where they lie."""
        return Report(self.engine.store.db).messages()

    def verify(self) -> None:
        event_log.check(self.engine.store.db)
