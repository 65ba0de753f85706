"""Writing a whole new database out of what was decided: the log, and the tables as the log adds up to them.

The log is read again from the file as it grows: its chain is followed, and the tables are made of nothing else. So what
they say can be compared with what the engine saw, and is its proof.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mailboxd.core.events import Event
from mailboxd.errors import WorldError
from mailboxd.store import log
from mailboxd.store.db import connect, migrate, transaction, worlds_errors
from mailboxd.store.projection import project
from mailboxd.store.whole import fingerprint

BESIDE = ("outbox", "stale_files", "meta")
"""Tables that no events add up to."""
_CACHE_KIB = 32 << 10
"""What is kept of the file: its indexes are added to in all places, and by default 2 MB are kept."""

_OFTEN = 6000
"""Events after which they are committed: each commit writes the leaves of all indexes in which something was added."""


class Told(NamedTuple):
    """What is to be written: rows of the log without text and hash, and bytes of messages by their ids."""

    events: list[log.Row]
    bodies: list[tuple[str, bytes]]


class Scribe:
    """Writes the new database at `path`, which is not durable before it was closed as one file. Raises WorldError."""

    def __init__(self, path: Path, now: str) -> None:
        self._db = connect(path)
        migrate(self._db, now)
        self._file = connect(path, read_only=True)  # as others see it
        self._tip = self._proven = log.Tip(0, log.GENESIS)
        with worlds_errors(self._db):
            self._for_later = log.drop_what_only_queries_need(self._db)
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")

    def close(self) -> None:
        self._file.close()
        self._db.close()

    def write(self, told: Told) -> None:
        """Add to the log, and let the tables follow what it says then. Raises WorldError."""
        before = self._tip.seq
        with worlds_errors(self._db):
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO bodies VALUES (?, ?)", told.bodies)
            self._tip = log.write(self._db, told.events, self._tip)
            texts = self._db.execute("SELECT data FROM events WHERE seq > ? ORDER BY seq", (before,))
            for (seq, _, kind, task, role, actor, data), (text,) in zip(told.events, texts, strict=True):
                project(self._db, seq, [Event(kind, task, _read(text, data), role, actor)])
        if self._tip.seq - self._proven.seq >= _OFTEN:
            self._prove()

    def _prove(self) -> None:
        """Commit, and see that the log which others can read now ends in what was written."""
        with worlds_errors(self._db):
            self._db.execute("COMMIT")
            found = log.follow_chain(self._file, self._proven)
        if found != self._tip:
            raise WorldError(f"the audit trail does not hold: {found}")
        self._proven = self._tip

    def complete(self, beside: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Add the rows of the other tables, and all indexes in one go each; then it can be read. Raises WorldError."""
        if self._db.in_transaction:
            self._prove()
        with transaction(self._db):
            for table, rows in beside.items():
                if rows:
                    self._db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            for sql in self._for_later:
                self._db.execute(sql)

    def finish(self) -> str:
        """The fingerprint of what was written, which is closed. Raises WorldError."""
        with worlds_errors(self._db):
            made = fingerprint(self._db)
        self.close()
        return made


def _read(text: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the text of an event says: in the order of its author where it says the same, for the log sorts it."""
    found: Mapping[str, Any] = json.loads(text)
    return said if found == said else found
