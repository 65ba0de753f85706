"""Texts of task.md that were refused, until a better one is taken, the file is removed, or a person dismisses it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A refused text. `task` is None for a file that would have started one; `sha256` for one that was not read."""

    local_id: str
    task: str | None
    at: str
    why: str
    sha256: str | None


_SELECT = "SELECT local_id, task, at, why, sha256 FROM refused_files"


class RefusedFiles:
    """The refused texts of a workspace."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def get(self, local_id: str) -> RefusedFile | None:
        """The text that was refused last, dismissed or not."""
        row = self._db.execute(f"{_SELECT} WHERE local_id = ?", (local_id,)).fetchone()
        return None if row is None else RefusedFile(*row)

    def of_no_task(self) -> list[str]:
        """Local ids of files that would have started a task and still lie where they were."""
        rows = self._db.execute("SELECT local_id FROM refused_files WHERE task IS NULL AND sha256 IS NOT NULL")
        return [row[0] for row in rows]

    def to_look_at(self) -> list[str]:
        """Local ids of those that were not dismissed."""
        rows = self._db.execute("SELECT local_id FROM refused_files WHERE dismissed IS NULL ORDER BY at, local_id")
        return [row[0] for row in rows]
