"""The store of a database that is being made: the tables that decisions need, in memory; a `Scribe` writes the file.

Nobody else writes it, and who does not finish it throws it away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from mailboxd.core.events import Event
from mailboxd.store import log
from mailboxd.store.projection import project
from mailboxd.store.scribe import BESIDE, Told
from mailboxd.store.standing import StandingQueries
from mailboxd.store.store import Store

_NOT_ASKED = (
    "events_by_task", "messages_by_path", "messages_by_task", "messages_unfiled_by_name",
    "tasks_deadline", "tasks_due", "tasks_heartbeat", "tasks_held", "tasks_open", "tasks_pausing", "tasks_runnable",
    "tasks_runnable_by_children",
)  # fmt: skip
"""Indexes by which only a daemon and its commands find something."""


class FreshStore(Store, StandingQueries):
    """What is recorded is kept for the scribe, who is given it by `take`; the log here is empty."""

    _told: Told
    waiting: int
    """Bytes of bodies that `take` would give now, or a few more."""

    @classmethod
    def empty(cls, now: str) -> Self:
        """A store of a database that is still empty."""
        store = cls.open(None, now)
        store._told, store.waiting = Told([], []), 0
        for name in _NOT_ASKED:
            store.db.execute(f"DROP INDEX {name}")
        return store

    def events(self) -> int:
        """How many were recorded."""
        return self._tip.seq

    def take(self) -> Told:
        """What was recorded since the last time; outside of savepoints."""
        told, self._told, self.waiting = self._told, Told([], []), 0
        return told

    def beside(self) -> Mapping[str, Sequence[Sequence[Any]]]:
        """The rows of the tables that no events add up to."""
        return {table: self.db.execute(f"SELECT * FROM {table}").fetchall() for table in BESIDE}

    def keep_body(self, message: str, raw: bytes) -> None:
        self._told.bodies.append((message, raw))
        self.waiting += len(raw)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        events, bodies = len(self._told.events), len(self._told.bodies)
        try:
            with super().savepoint():
                yield
        except BaseException:
            del self._told.events[events:], self._told.bodies[bodies:]
            raise

    def _end(self) -> log.Tip:
        return self._tip

    def _write(self, events: Sequence[Event], now: str) -> log.Tip:
        last = self._tip.seq
        self._told.events.extend(log.as_rows(events, now, last))
        project(self.db, last + 1, events)
        return log.Tip(last + len(events), "")
