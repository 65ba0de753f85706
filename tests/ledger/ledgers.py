"""The ledgers that the conformance suite is run on: whatever keeps the log, and the tables that follow from it.

Who writes another one adds it to LEDGERS; the suite then says what it lacks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Protocol

from mailboxd.core.events import Event
from mailboxd.core.model import Attempt, Task
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.ledger.opening import open_workspace
from mailboxd.operate.rebuild import rebuild

NOW = "2026-01-01T00:00:00.000Z"


class Tasks(Protocol):
    """Tasks and attempts as they are now."""

    def get(self, task_id: str) -> Task | None: ...

    def attempt(self, task_id: str, ordinal: int) -> Attempt | None: ...


class Ledger(Protocol):
    """One process's hold on the log of a workspace."""

    @property
    def tasks(self) -> Tasks:
        """What the events add up to, asked for in a transaction."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything that is appended in it, or nothing. Raises OutdatedError once another program has written."""

    def savepoint(self) -> AbstractContextManager[None]:
        """A part of a transaction that is taken back alone."""

    def append(self, events: Sequence[Event], now: str) -> None:
        """Record events and apply them to the tables; in a transaction."""

    def follow(self) -> None:
        """Events are asked for from now on."""

    def recorded_since(self, seq: int) -> Iterable[tuple[int, Event]]:
        """The events after a number, whoever recorded them."""

    def last_event(self) -> int:
        """The number of the last event, whoever recorded it."""

    def hash_at(self, seq: int) -> str | None: ...

    def verify_log(self) -> str:
        """What is wrong with the chain or with the tables; empty if nothing is."""

    def trust_log(self) -> None:
        """Seal what was verified."""

    def is_sealed(self) -> bool:
        """Whether nothing else has written since."""

    def checkpoint(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Implementation:
    open: Callable[[Workspace], Ledger]
    """Of a workspace that may be new. Raises OutdatedError for one whose database was exchanged for an older one."""
    tamper: Callable[[Workspace], None]
    """Another program changes what is recorded of the task `t`, and no event."""
    rebuild: Callable[[Workspace, Workspace], None]
    """Make the database of the second from the journal of the first."""


def _tamper(ws: Workspace) -> None:
    with closing(sqlite3.connect(ws.database)) as db:
        db.execute("UPDATE tasks SET title = 'Everything is fine.' WHERE local_id = 't'")
        db.commit()


def _rebuild(ws: Workspace, into: Workspace) -> None:
    account = rebuild(ws, Settings(agent="main"), ManualClock(NOW), into.database)
    assert account.problems == []


LEDGERS = {
    "sqlite": Implementation(lambda ws: open_workspace(ws.database, NOW), _tamper, _rebuild),
}
