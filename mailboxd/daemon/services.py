"""What the loop calls, and when: a service has a moment on the monotonic clock, or is marked by what concerns it.

Which services are due and how long the loop may sleep are read from the same attributes, so the two cannot differ.
There are a dozen services: to look at each costs less than to keep a heap of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mailboxd.formats.health import Component
from mailboxd.host.clock import Clock
from mailboxd.ledger.database import LARGEST_WAL
from mailboxd.ledger.store import Store

NEVER = float("inf")
RELAXED = 15.0
"""The slack of what need not wake the loop: a heartbeat does by then."""


@dataclass(slots=True)
class Service:
    """Work that the loop does from time to time."""

    perform: Callable[[], float | None]
    """Does it; returns when it is due again (0.0 = at once), None = when it is marked. Raises WorldError."""
    where: Component | None = None
    """Where a failure is reported, and when it works again; None = a failure ends the process."""
    slack: float = 0.0
    """Seconds by which it may be late, so that it shares a wake-up with others."""
    due: float = 0.0

    def mark(self, at: float = 0.0) -> None:
        """Have it called at that moment at the latest; without one, in this round or the next."""
        self.due = min(self.due, at)


# Checkpoints of the write-ahead log: when nothing has been recorded for a while, or when the log is large.
#
# SQLite makes one after every thousand pages, unless there is a reader, and never for the last pages. In an idle
# workspace the latest changes would then be in the log alone, and a copy of the main file would lack them.

QUIET = 2.0
"""Seconds without a commit after which a checkpoint is made."""
AGAIN = 5.0
"""Seconds after which a checkpoint that a reader blocked is tried again."""


@dataclass(slots=True)
class Checkpoints:
    """The checkpoints of one daemon."""

    store: Store
    clock: Clock
    _seen: tuple[int, int] = (0, 0)

    def perform(self) -> float | None:
        """Make a checkpoint if nothing was committed since the last call, or the log is large; returns when to call
        again. None = the log is empty. Raises WorldError.
        """
        before, self._seen = self._seen, self.store.wal()
        if not self._seen[0]:
            return None
        mono = self.clock.monotonic()
        if self._seen != before and self._seen[0] < LARGEST_WAL:
            return mono + QUIET
        made = self.store.checkpoint()
        self._seen = self.store.wal()
        return None if made else mono + AGAIN
