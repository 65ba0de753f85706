"""When the write-ahead log is written into the database: once nothing is recorded for a while, or when it is large.

SQLite does so by itself after every thousand pages, unless somebody reads, and never for the last of them: what a
workspace at rest has done would stand in the log alone, and a copy of the main file would lack it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.clock import Clock
from mailboxd.store.db import LARGEST_WAL
from mailboxd.store.store import Store

QUIET = 2.0
"""Seconds without a commit after which a checkpoint is made."""
AGAIN = 5.0
"""Seconds after which one is tried again that a reader stood in the way of."""


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of one daemon. `due`: when the next one is, on the monotonic clock; None = the log is empty."""

    store: Store
    clock: Clock
    due: float | None = None
    _seen: tuple[int, int] = (0, 0)

    def perform(self) -> None:
        """Make a checkpoint if it is time to. Raises WorldError."""
        mono, wal = self.clock.monotonic(), self.store.wal()
        if not wal[0]:
            self.due = None
            return
        if self.due is None or (wal != self._seen and wal[0] < LARGEST_WAL):
            self.due = mono + QUIET
        self._seen = wal
        if mono >= self.due:
            self.due = None if self.store.checkpoint() else mono + AGAIN
            self._seen = self.store.wal()
