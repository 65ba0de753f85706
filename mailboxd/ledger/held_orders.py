"""Orders that end work and are held for some seconds, so that they can be taken back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mailboxd.ledger.task_cache import TaskCache


@dataclass(frozen=True, slots=True)
class HeldOrder:
    """An order that is carried out at `due`; `name` is a row of `core.operator_orders`, or `reject`."""

    id: str
    task: str
    name: str
    said: Mapping[str, Any]
    """The values of its fields."""
    approval: str | None
    """The request that is rejected."""
    by: str
    """The operator's user name."""
    at: str
    due: str


_SELECT = "SELECT id, task, name, said, approval, by, at, due FROM held_orders"


class HeldOrders:
    """The held orders of a workspace, oldest first."""

    def __init__(self, db: sqlite3.Connection, cache: TaskCache) -> None:
        self._db = db
        self._cache = cache

    def any(self) -> bool:
        return self._db.execute("SELECT 1 FROM held_orders LIMIT 1").fetchone() is not None

    def of_task(self, task: str) -> list[HeldOrder]:
        return [_held(row) for row in self._db.execute(f"{_SELECT} WHERE task = ? ORDER BY id", (task,))]

    def together(self, at: str, name: str, by: str) -> list[HeldOrder]:
        """The orders of this name that this user gave at once, at this time."""
        sql = f"{_SELECT} WHERE at = ? AND name = ? AND by = ? ORDER BY id"
        return [_held(row) for row in self._db.execute(sql, (at, name, by))]

    def due(self, now: str) -> list[HeldOrder]:
        if self._cache.is_quiet(now):
            return []
        return [_held(row) for row in self._db.execute(f"{_SELECT} WHERE due <= ? ORDER BY due, id", (now,))]


def _held(row: Sequence[Any]) -> HeldOrder:
    id_, task, name, said, approval, by, at, due = row
    return HeldOrder(id_, task, name, json.loads(said), approval, by, at, due)
