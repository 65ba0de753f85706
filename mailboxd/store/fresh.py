"""The store of a database that is being made: nobody else writes it, and who does not finish it throws it away."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from mailboxd.store.standing import StandingQueries
from mailboxd.store.store import Store

_CACHE_KIB = 32 << 10
"""What is kept of the file: its indexes are added to in all places, and by default 2 MB are kept."""


class FreshStore(Store, StandingQueries):
    """Nothing of it has to outlive the process before `whole.close_as_one_file` has made it durable."""

    @classmethod
    def open(cls, path: Path | None, now: str) -> Self:
        store = super().open(path, now)
        store.db.execute("PRAGMA synchronous = OFF")
        store.db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return store

    def commit_so_far(self) -> None:
        """Let others read what was recorded so far; inside a transaction, which goes on."""
        self.db.execute("COMMIT")
        self.db.execute("BEGIN IMMEDIATE")
