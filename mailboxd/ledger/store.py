"""The database of one workspace: one writer at a time, and a component for each group of tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

from mailboxd.core.events import Event, Kind, evolve
from mailboxd.core.json_codec import from_json
from mailboxd.core.model import Task
from mailboxd.core.task_view import TaskView
from mailboxd.errors import OutdatedError, StoreError
from mailboxd.host.progress import Progress, silent
from mailboxd.ledger import event_log
from mailboxd.ledger.connection import Connection
from mailboxd.ledger.database import (
    BUSY_MS,
    connect,
    is_storage_error,
    migrate,
    path_of,
    storage_errors,
    store_error,
    transaction,
)
from mailboxd.ledger.doubts import Doubts
from mailboxd.ledger.handovers import Handovers
from mailboxd.ledger.held_orders import HeldOrders
from mailboxd.ledger.integrity import DatabaseFile, Seal, changed
from mailboxd.ledger.journal import Journal
from mailboxd.ledger.messages import Messages
from mailboxd.ledger.meta import Meta
from mailboxd.ledger.outbox import EFFECTS, Order, Outbox, StaleFiles
from mailboxd.ledger.policies import Policies
from mailboxd.ledger.prompts import Prompts
from mailboxd.ledger.refused_files import RefusedFiles
from mailboxd.ledger.remote_orders import RemoteOrders
from mailboxd.ledger.repetitions import Repetitions
from mailboxd.ledger.reports import Report
from mailboxd.ledger.row_mapping import read_task
from mailboxd.ledger.scheduling import Breakers, Budgets, Schedule
from mailboxd.ledger.spending import Spending
from mailboxd.ledger.task_cache import TaskCache
from mailboxd.ledger.tasks import Approvals, Tasks
from mailboxd.ledger.untold_notices import UntoldNotices
from mailboxd.ledger.written import Written

__all__ = ["EFFECTS", "Order", "Store", "read_task"]


class Store:
    """One connection to the database. Every change is made inside `transaction()`."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        self._tip = event_log.Tip(0, event_log.GENESIS)
        self._own: list[tuple[int, Event]] | None = None
        self.written = Written()
        self.cache = TaskCache(db)
        self.approvals = Approvals(db)
        self.tasks = Tasks(db, self.cache, self.approvals)
        self.budgets = Budgets(self.tasks)
        self.breakers = Breakers(db, self.cache)
        self.spending = Spending(db)
        self.outbox = Outbox(db, self.cache, self.written)
        self.schedule = Schedule(db, self.cache, self.outbox, self.tasks)
        self.messages = Messages(db, self.written)
        self.prompts = Prompts(db, self.written)
        self.stale_files = StaleFiles(db, self.tasks)
        self.refused_files = RefusedFiles(db)
        self.doubts = Doubts(db)
        self.handovers = Handovers(db, self.cache)
        self.untold_notices = UntoldNotices(db)
        self.held_orders = HeldOrders(db, self.cache)
        self.repetitions = Repetitions(db, self.cache)
        self.remote_orders = RemoteOrders(db)
        self.policies = Policies(db)
        self.meta = Meta(db, self.written)
        self.report = Report(db)
        """What people are told, also of what this transaction has written so far."""
        self.file: DatabaseFile | None = None
        self.keep_waiting: Callable[[], bool] = lambda: False
        """Whether to wait once more for a lock that was not released within `BUSY_MS`."""
        self.seal: Seal | None = None
        self.outdated = ""
        """How it is known that a newer database was in use here, if this one was opened nevertheless."""
        self._verified = -1
        """`PRAGMA data_version` when the log was verified."""
        self.journal: Journal | None = None

    @classmethod
    def open(cls, path: Path | None, now: str) -> Self:
        """Open and migrate the database at `path`; None opens one in memory. Raises WorldError."""
        db = connect(path)
        try:
            migrate(db, now)
        except BaseException:
            db.close()
            raise
        return cls(db)

    @classmethod
    def copy_of(cls, db: sqlite3.Connection, now: str) -> Self:
        """A copy in memory, on which something can be tried out. Raises WorldError."""
        copy = connect(None)
        try:
            db.backup(copy)
            migrate(copy, now)
        except BaseException:
            copy.close()
            raise
        return cls(copy)

    def close(self) -> None:
        seal, self.seal = self.seal, None
        if seal is not None:
            seal.detect_writes()
            if not self._is_sole_writer():
                seal.is_intact = False
        if self.journal is not None:
            self.journal.close()
        self.db.close()
        if seal is not None:
            seal.close(self._tip)

    def _is_sole_writer(self) -> bool:
        """Whether no other connection has written since the last transaction here."""
        with suppress(sqlite3.Error):
            return self.cache.data_version() == self.cache.version
        return False

    def transaction(self) -> AbstractContextManager[None]:
        """BEGIN IMMEDIATE ... COMMIT; an exception rolls back.

        Raises WorldError; OutdatedError if another program has changed a row or an event since the last commit.
        """
        return self._transaction(compares=True)

    @contextmanager
    def _transaction(self, *, compares: bool) -> Iterator[None]:
        seal, journal = self.seal, self.journal
        seen = None if self.file is None else self.file.require(self.db)
        try:
            with transaction(self.db, self.keep_waiting):
                self.written.begin(self.db)
                if (version := self.cache.data_version()) != self.cache.version:
                    self._follow_others(version)
                elif seal is not None:
                    seal.detect_writes(seen)
                if compares and seal is not None and seal.is_broken:
                    self._require_unchanged(seal)
                yield
                if journal is not None:
                    journal.sync()
                if seal is not None:
                    seal.hold()
            if seal is not None:
                seal.write(self._tip)
        except BaseException:
            self._undone()
            raise
        finally:
            if seal is not None:
                seal.let_go()
        if journal is not None:
            journal.append(self.db, self.written)

    def _follow_others(self, version: int) -> None:
        """Go on from what another connection has written."""
        if (last := event_log.tip(self.db)) != self._tip:
            self._tip = last
            self.cache.forget()
        self.cache.forget_orders()  # they change without events as well
        self.outbox.forget()
        self.cache.version = version
        if self.seal is not None:
            self.seal.compare(last)
        if self.journal is not None:
            self.journal.expect_more()  # the other process may have died before its lines

    def _require_unchanged(self, seal: Seal) -> None:
        """Compare log and tables where the seal was broken, before anything follows from them."""
        if self.file is not None:
            if problem := self._difference(silent):
                raise OutdatedError(changed(self.file.database, problem))
            seal.mend()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of the transaction that is rolled back alone if an exception leaves it."""
        tip = self._tip
        self.db.begin_part()
        try:
            yield
        except BaseException as error:
            # On a full disk SQLite rolls back the whole transaction, so the caller must not continue.
            if not self.db.in_transaction or (isinstance(error, sqlite3.Error) and is_storage_error(error)):
                if isinstance(error, sqlite3.Error):
                    raise store_error(error, "cannot be written", path_of(self.db)) from error
                raise StoreError(f"the database could not be written: {error}") from error
            self.db.undo_part()
            self._tip = tip
            self._undone()
            raise
        self.db.end_part()

    def wal(self) -> tuple[int, int]:
        """Size of the write-ahead log and its mtime in ns; zeros if there is none."""
        return (0, 0) if self.file is None else self.file.wal()

    def checkpoint(self) -> bool:
        """Move the contents of the write-ahead log into the database and truncate it. Call outside transactions.

        Returns False while another connection is active; what can be moved is moved even then. Raises WorldError.
        """
        with nullcontext() if self.seal is None else self.seal.held():
            if self.seal is not None:
                self.seal.detect_writes()
            with storage_errors(self.db):
                self.db.execute("PRAGMA busy_timeout = 0")  # the loop does not wait for readers
                try:
                    busy = self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                finally:
                    self.db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            if self.seal is not None and self._is_sole_writer():
                self.seal.write(self._tip)
        return not busy

    def is_sealed(self) -> bool:
        """Whether only mailboxd has written since the log was verified. Call outside transactions."""
        with self._transaction(compares=False):
            pass  # looks at the seal
        return self.seal is not None and self.seal.is_intact

    def verify_log(self, progress: Progress = silent) -> str:
        """Return the first error in the chain of events, or in tables that do not follow from them; or an empty string.

        The tables decide what runs next, so a changed row is as bad as a changed event. Replays the whole log. Call
        outside transactions. Raises WorldError.
        """
        self._verified = self.cache.data_version()
        return self._difference(progress)

    def _difference(self, progress: Progress) -> str:
        with storage_errors(self.db):
            total = self.last_event()
            broken = event_log.verify_chain(self.db, progress, total)
            return broken or next(iter(event_log.differences(self.db, progress, total)), "")

    def trust_log(self) -> None:
        """Seal what `verify_log` verified, unless another connection has written since. Raises WorldError."""
        with self._transaction(compares=False):
            if self.seal is not None:
                self.seal.is_intact = self.cache.version == self._verified
                self.seal.is_broken = self.seal.is_broken and not self.seal.is_intact

    def _undone(self) -> None:
        """Drop everything that was cached in a transaction that was rolled back."""
        self.meta.forget_reported()
        self.written.forget()
        self.stale_files.forget()
        self.outbox.forget()
        self.cache.version = -1
        self.cache.forget()
        if self._own is not None:
            self._own.clear()  # `recorded_since` then reads the log

    @property
    def last_recorded(self) -> int:
        """The number of the last event after the latest transaction of this process."""
        return self._tip.seq

    def append(
        self, events: Sequence[Event], now: str, left: TaskView | None = None, born: Iterable[Task] = ()
    ) -> None:
        """Record events. `left` is the state in which they leave their task, and `born` that of the tasks that they
        create, if the caller has them.
        """
        if not self.db.in_transaction:
            raise AssertionError("events must be recorded inside a transaction")
        first = self._tip.seq + 1
        known = {task.id: task for task in born}
        rows = event_log.append(self.db, events, now, self._tip, self.cache, known)
        self.written.events += rows
        if rows:
            self._tip = event_log.Tip(rows[-1][0], rows[-1][-1])
        self.cache.follow(events, left, known)
        if self._own is not None:
            self._own.extend(enumerate(events, first))

    def follow(self) -> None:
        """Keep events recorded from now on for `recorded_since`."""
        self._own = []

    def recorded_since(self, seq: int) -> Iterable[tuple[int, Event]]:
        """Events after `seq` with their numbers. Those that this process recorded are not read back."""
        own, self._own = self._own or [], [] if self._own is not None else None
        if own and own[0][0] == seq + 1 and own[-1][0] == seq + len(own):
            return own
        return ((recorded.seq, recorded.event) for recorded in event_log.read(self.db, after=seq))

    def task_as_of(self, task: Task, updated_at: str) -> Task:
        """The task as of `updated_at`, or as it was created if there is no such version."""
        match = version = None
        for recorded in event_log.read(self.db, task.id):
            event = recorded.event
            if event.kind is Kind.TASK_CREATED:
                version = from_json(Task, event.data["task"])
            if version is not None:
                version = evolve(version, event)
            if match is None or (version is not None and version.updated_at == updated_at):
                match = version
        return match or task

    def hash_at(self, seq: int) -> str | None:
        """The hash of an event, or None."""
        return event_log.hash_at(self.db, seq)

    def last_event(self) -> int:
        return int(self.db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def last_event_at(self) -> str:
        """When the latest event was recorded; empty if there is none."""
        row = self.db.execute("SELECT at FROM events WHERE seq = (SELECT max(seq) FROM events)").fetchone()
        return "" if row is None else str(row[0])
