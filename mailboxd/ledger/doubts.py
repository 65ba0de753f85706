"""What messages, plans and task.md may have meant otherwise, until a person dismisses it."""

from __future__ import annotations

import sqlite3

from mailboxd.ledger.conditions import BELOW

_MOST = 20
"""Doubts that a reply has."""


class Doubts:
    """The doubts of a workspace. Those about a message are in its row (`Messages.to_look_at`)."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def to_look_at(self, name: str) -> dict[str, str]:
        """Ids, and the tasks, of the doubts that were not dismissed and that are called
        so: by the task, or else by the end of their id. Empty: all.
        """
        for condition in ("?1 IN ('', t.local_id)", "lower(substr(d.id, -length(?1))) = lower(?1)"):
            rows = self._db.execute(
                "SELECT d.id, d.task FROM doubts d JOIN tasks t ON t.id = d.task"
                f" WHERE d.dismissed IS NULL AND {condition} ORDER BY d.at, d.id",
                (name,),
            )
            if found := dict(rows.fetchall()):
                return found
        return {}

    def open_below(self, task_id: str) -> list[str]:
        """What is doubtful about a task and its descendants and was not dismissed, oldest first, 20 at most."""
        rows = self._db.execute(
            f"{BELOW} SELECT text FROM ("
            " SELECT m.at, m.name || ': ' || m.notice AS text FROM below b JOIN messages m ON m.task = b.id"
            " WHERE m.notice IS NOT NULL AND m.dismissed IS NULL"
            " UNION ALL SELECT d.at, d.about || ': ' || d.text FROM below b JOIN doubts d ON d.task = b.id"
            f" WHERE d.dismissed IS NULL) ORDER BY at LIMIT {_MOST}",
            (task_id,),
        )
        return [row[0] for row in rows]
