"""The store of a rebuild: tables in memory, and a writer for the new database file.

The file has no other writer and is discarded if the rebuild is not finished.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from mailboxd.core.events import Event
from mailboxd.core.vocabulary import Mode, Phase
from mailboxd.errors import WorldError
from mailboxd.store import event_log
from mailboxd.store.backup import fingerprint
from mailboxd.store.database import connect, migrate, storage_errors, transaction
from mailboxd.store.messages import Messages
from mailboxd.store.projection import project
from mailboxd.store.row_mapping import ENDED
from mailboxd.store.store import Store

# The log is read back from the file as it grows, its chain is verified and the tables are derived from nothing else, so
# that they can be compared with those that the engine used.

OTHER_TABLES = ("outbox", "stale_files", "meta")
"""Tables that are not derived from events."""
_CACHE_KIB = 32 << 10
"""Page cache for the file: indexes are updated all over it, and the default is 2 MB."""

_OFTEN = 6000
"""Events per commit: each commit writes the changed leaves of all indexes."""


class LogBatch(NamedTuple):
    """What to write: rows of the log without text and hash, and bytes of messages by id."""

    events: list[event_log.Row]
    bodies: list[tuple[str, bytes]]


class DatabaseWriter:
    """Writes the new database at `path`. It is durable only after `finish`. Raises WorldError."""

    def __init__(self, path: Path, now: str) -> None:
        self._db = connect(path)
        migrate(self._db, now)
        self._file = connect(path, read_only=True)  # reads what is committed
        self._tip = self._proven = event_log.Tip(0, event_log.GENESIS)
        with storage_errors(self._db):
            self._for_later = event_log.drop_what_only_queries_need(self._db)
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")

    def close(self) -> None:
        self._file.close()
        self._db.close()

    def write(self, told: LogBatch) -> None:
        """Append to the log and apply the events that were read back to the tables. Raises WorldError."""
        before = self._tip.seq
        with storage_errors(self._db):
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO bodies VALUES (?, ?)", told.bodies)
            self._tip = event_log.write(self._db, told.events, self._tip)
            texts = self._db.execute("SELECT data FROM events WHERE seq > ? ORDER BY seq", (before,))
            for (seq, _, kind, task, role, actor, data), (text,) in zip(told.events, texts, strict=True):
                project(self._db, seq, [Event(kind, task, _read(text, data), role, actor)])
        if self._tip.seq - self._proven.seq >= _OFTEN:
            self._prove()

    def _prove(self) -> None:
        """Commit, and verify that the log as read by another connection ends where it should."""
        with storage_errors(self._db):
            self._db.execute("COMMIT")
            found = event_log.follow_chain(self._file, self._proven)
        if found != self._tip:
            raise WorldError(f"the audit trail does not hold: {found}")
        self._proven = self._tip

    def complete(self, other_tables: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Add the rows of the other tables and build the indexes. Raises WorldError."""
        if self._db.in_transaction:
            self._prove()
        with transaction(self._db):
            for table, rows in other_tables.items():
                if rows:
                    self._db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            for sql in self._for_later:
                self._db.execute(sql)

    def finish(self) -> str:
        """Close the database; return the fingerprint of its content. Raises WorldError."""
        with storage_errors(self._db):
            made = fingerprint(self._db)
        self.close()
        return made


def _read(text: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data of an event as read back, in the original key order if it is equal: the log sorts keys."""
    found: Mapping[str, Any] = json.loads(text)
    return said if found == said else found


# Few columns instead of whole tasks, for queries that a rebuild makes thousands of times.


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state of a task as shown in its task.md."""

    phase: Phase
    mode: Mode
    attempted: bool
    has_result: bool
    notes: str
    reason: str


class TaskStates:
    """Finds the state of tasks by their local ids."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def of(self, local_id: str) -> TaskState | None:
        row = self._db.execute(
            "SELECT phase, mode, attempt > 0, result <> '', notes, reason FROM tasks WHERE local_id = ?", (local_id,)
        ).fetchone()
        if row is None:
            return None
        phase, mode, attempted, has_result, notes, reason = row
        return TaskState(Phase(phase), Mode(mode), bool(attempted), bool(has_result), notes, reason)

    def phase(self, parent_local_id: str, key: str) -> Phase | None:
        """The phase of a child, or of the root task with the local id `key` if the parent is empty."""
        if parent_local_id:
            of_child = "SELECT t.phase FROM tasks p JOIN tasks t ON t.parent = p.id WHERE p.local_id = ? AND t.key = ?"
            row = self._db.execute(of_child, (parent_local_id, key)).fetchone()
        else:
            row = self._db.execute("SELECT phase FROM tasks WHERE local_id = ?", (key,)).fetchone()
        return None if row is None else Phase(row[0])

    def clear_ended(self, shown: Container[str]) -> None:
        """Leave out the stale task.md files of ended tasks whose local ids are in `shown`."""
        ended = self._db.execute(
            f"SELECT s.task, t.local_id FROM stale_files s JOIN tasks t ON t.id = s.task WHERE t.phase IN {ENDED}"
        ).fetchall()
        gone = [(task,) for task, local_id in ended if local_id in shown]
        self._db.executemany("DELETE FROM stale_files WHERE task = ?", gone)


_NOT_ASKED = (
    "events_by_task", "messages_by_path", "messages_by_task", "messages_unfiled_by_name",
    "tasks_deadline", "tasks_due", "tasks_heartbeat", "tasks_held", "tasks_open", "tasks_pausing", "tasks_runnable",
    "tasks_runnable_by_children",
)  # fmt: skip
"""Indexes that only a daemon and its commands use."""


class UnwrittenMessages(Messages):
    """Keeps the bytes of messages for the writer; they are not in the database in memory."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self.bodies: list[tuple[str, bytes]] = []
        self.size = 0
        """Bytes in `bodies`, or a little more."""

    def keep_body(self, message: str, raw: bytes) -> None:
        self.bodies.append((message, raw))
        self.size += len(raw)


class RebuildStore(Store):
    """Keeps what is recorded until `take`; its own log is empty."""

    messages: UnwrittenMessages

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self.messages = UnwrittenMessages(db)
        self.states = TaskStates(db)
        self._events: list[event_log.Row] = []

    @classmethod
    def empty(cls, now: str) -> Self:
        """A store over an empty database."""
        store = cls.open(None, now)
        for name in _NOT_ASKED:
            store.db.execute(f"DROP INDEX {name}")
        return store

    def events(self) -> int:
        """The number of events recorded."""
        return self._tip.seq

    def take(self) -> LogBatch:
        """What was recorded since the last call. Call outside savepoints."""
        told = LogBatch(self._events, self.messages.bodies)
        self._events, self.messages.bodies, self.messages.size = [], [], 0
        return told

    def other_tables(self) -> Mapping[str, Sequence[Sequence[Any]]]:
        """The rows of the tables that are not derived from events."""
        return {table: self.db.execute(f"SELECT * FROM {table}").fetchall() for table in OTHER_TABLES}

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        events, bodies = len(self._events), len(self.messages.bodies)
        try:
            with super().savepoint():
                yield
        except BaseException:
            del self._events[events:], self.messages.bodies[bodies:]
            raise

    def _end(self) -> event_log.Tip:
        return self._tip

    def _write(self, events: Sequence[Event], now: str) -> event_log.Tip:
        last = self._tip.seq
        self._events.extend(event_log.as_rows(events, now, last))
        project(self.db, last + 1, events)
        return event_log.Tip(last + len(events), "")
