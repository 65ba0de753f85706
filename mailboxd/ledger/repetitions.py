"""Work that repeats, and its runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from mailboxd.core.repetition import Missed, Repetition
from mailboxd.ledger.conditions import LIVE, OPEN

if TYPE_CHECKING:
    from mailboxd.ledger.task_cache import TaskCache

_COLUMNS = ", ".join(field.name for field in fields(Repetition))
_SELECT = f"SELECT {_COLUMNS} FROM repetitions"
_LATEST = 20
"""Runs that are looked at for one that is open: an older one is open only if a person has reopened it."""
_IS_OPEN = (
    f"SELECT 1 FROM (SELECT task FROM repetition_runs WHERE repetition = ? ORDER BY number DESC LIMIT {_LATEST}) r"
    f" JOIN tasks t ON t.id = r.task WHERE {OPEN} LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a repetition: the time that it is for, and what became of its task."""

    number: int
    at: str
    task: str
    local_id: str
    phase: str
    made_at: str


class Repetitions:
    """The repetitions of a workspace."""

    def __init__(self, db: sqlite3.Connection, cache: TaskCache | None = None) -> None:
        self._db = db
        self._cache = cache

    def named(self, name: str) -> Repetition | None:
        """The one of this name or id that goes on, else the latest."""
        if self._cache is not None and self._db.in_transaction and self._cache.nothing_repeats():
            return None
        row = self._db.execute(
            f"{_SELECT} WHERE name = ?1 OR id = ?1 ORDER BY ended = '' DESC, rowid DESC LIMIT 1", (name,)
        ).fetchone()
        return None if row is None else _read(row)

    def of_work(self, sender: str, name: str) -> Repetition | None:
        """The one that goes on of this sender and id."""
        row = self._db.execute(f"{_SELECT} WHERE name = ? AND sender = ? AND ended = ''", (name, sender)).fetchone()
        return None if row is None else _read(row)

    def going_on(self) -> list[Repetition]:
        """Those that have not ended, by their next time."""
        rows = self._db.execute(f"{_SELECT} WHERE ended = '' ORDER BY paused <> '', next_at, rowid")
        return [_read(row) for row in rows]

    def due(self, now: str) -> list[Repetition]:
        """Those whose next time has come."""
        if self._cache is not None and self._cache.is_quiet(now):
            return []
        rows = self._db.execute(f"{_SELECT} WHERE {LIVE} AND next_at <= ? ORDER BY next_at, rowid", (now,))
        return [_read(row) for row in rows.fetchall()]

    def is_open(self, repetition: str) -> bool:
        """Whether one of its latest runs has not ended."""
        return self._db.execute(_IS_OPEN, (repetition,)).fetchone() is not None

    def runs(self, repetition: str, most: int) -> list[Run]:
        """Its runs, the latest first."""
        rows = self._db.execute(
            "SELECT r.number, r.at, r.task, t.local_id, t.phase, r.made_at FROM repetition_runs r"
            " JOIN tasks t ON t.id = r.task WHERE r.repetition = ? ORDER BY r.number DESC LIMIT ?",
            (repetition, most),
        )
        return [Run(*row) for row in rows]


def _read(row: Sequence[Any]) -> Repetition:
    values = dict(zip((field.name for field in fields(Repetition)), row, strict=True))
    flags = {name: bool(values[name]) for name in ("overlap", "counts")}
    return Repetition(**{**values, "missed": Missed(values["missed"]), **flags})
