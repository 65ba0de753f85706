"""The store of a database that is being made: nobody else writes it, and who does not finish it throws it away."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from mailboxd.store.standing import StandingQueries
from mailboxd.store.store import Store

_FOR_LATER = (
    "events_by_task", "messages_by_task", "messages_unfiled", "messages_unfiled_by_name", "tasks_deadline", "tasks_due",
    "tasks_heartbeat", "tasks_held", "tasks_open", "tasks_pausing", "tasks_runnable", "tasks_runnable_by_children",
)  # fmt: skip
"""Indexes by which only a daemon and its commands find something: made at the end, in one go each."""
_CACHE_KIB = 32 << 10
"""What is kept of the file: its indexes are added to in all places, and by default 2 MB are kept."""


class FreshStore(Store, StandingQueries):
    """Nothing of it has to outlive the process before `whole.close_as_one_file` has made it durable."""

    _for_later: list[str]

    @classmethod
    def open(cls, path: Path | None, now: str) -> Self:
        store = super().open(path, now)
        indexes = dict(store.db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'"))
        for name in _FOR_LATER:
            store.db.execute(f"DROP INDEX {name}")
        store._for_later = [indexes[name] for name in _FOR_LATER]
        store.db.execute("PRAGMA synchronous = OFF")
        store.db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return store

    def commit_so_far(self) -> None:
        """Let others read what was recorded so far; inside a transaction, which goes on."""
        self.db.execute("COMMIT")
        self.db.execute("BEGIN IMMEDIATE")

    def complete(self) -> None:
        """Make the indexes that were left for later; inside a transaction."""
        for sql in self._for_later:
            self.db.execute(sql)
