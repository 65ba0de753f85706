"""What the engine needs of the database: record decisions, load views, find what is ready or due.

One writer at a time: every change stands inside `transaction()`, which is BEGIN IMMEDIATE. The queries are in the
modules beside this one, by what they ask about.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mailboxd.core.events import Event
from mailboxd.errors import StoreError
from mailboxd.store import log
from mailboxd.store.db import connect, is_the_worlds, migrate, transaction
from mailboxd.store.messages import MessageQueries
from mailboxd.store.outbox import EFFECTS, Order, OutboxQueries
from mailboxd.store.ready import ReadyQueries
from mailboxd.store.rows import read_task
from mailboxd.store.tasks import TaskQueries

__all__ = ["EFFECTS", "Order", "Store", "read_task"]


class Store(TaskQueries, MessageQueries, OutboxQueries, ReadyQueries):
    """The database of one workspace."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self._tip = log.Tip(0, log.GENESIS)

    @classmethod
    def open(cls, path: Path | None, now: str) -> Store:
        """Open (and migrate) the database at `path`; None is one in memory. Raises WorldError."""
        db = connect(path)
        migrate(db, now)
        return cls(db)

    def close(self) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction, and in it the only right to write. Raises WorldError."""
        with transaction(self.db):
            self._tip = log.tip(self.db)  # a command may have written since
            yield

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction that can fail alone: an exception undoes it and goes on to the caller."""
        self.db.execute("SAVEPOINT part")
        try:
            yield
        except BaseException as error:
            # A full disk makes SQLite undo the whole transaction: then nothing may go on as if it were still there.
            if not self.db.in_transaction or (isinstance(error, sqlite3.Error) and is_the_worlds(error)):
                raise StoreError(f"the database could not be written: {error}") from error
            self.db.execute("ROLLBACK TO part")
            self.db.execute("RELEASE part")
            self._tip = log.tip(self.db)
            raise
        self.db.execute("RELEASE part")

    def append(self, event: Event, now: str) -> int:
        if not self.db.in_transaction:
            raise AssertionError("an event is only ever recorded inside a transaction")
        self._tip = log.append(self.db, event, now, self._tip)
        return self._tip.seq

    def meta(self, name: str) -> str | None:
        row = self.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def set_meta(self, name: str, value: str) -> None:
        self.db.execute("INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2", (name, value))
