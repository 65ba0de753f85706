"""Notices that have not reached people, until they do, apply no longer, or a person dismisses them."""

from __future__ import annotations

import sqlite3


class UntoldNotices:
    """The notices of a workspace that have failed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def has(self, order_id: str) -> bool:
        """Whether this notice has failed."""
        return self._db.execute("SELECT 1 FROM untold_notices WHERE id = ?", (order_id,)).fetchone() is not None

    def to_look_at(self) -> list[str]:
        """The addressees of those that were not dismissed."""
        rows = self._db.execute("SELECT DISTINCT addressee FROM untold_notices WHERE dismissed IS NULL ORDER BY 1")
        return [row[0] for row in rows]
