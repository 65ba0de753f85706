"""Where tasks stand, asked of thousands in a row: the few columns that answer it, not the fifty of a whole task."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from mailboxd.core.terms import Mode, Phase
from mailboxd.store.db import Connected


@dataclass(frozen=True, slots=True)
class Standing:
    """What a task.md shows of how far its task is."""

    phase: Phase
    mode: Mode
    attempted: bool
    has_result: bool
    notes: str
    reason: str


class StandingQueries(Connected):
    def standing(self, local_id: str) -> Standing | None:
        row = self.db.execute(
            "SELECT phase, mode, attempt > 0, result <> '', notes, reason FROM tasks WHERE local_id = ?", (local_id,)
        ).fetchone()
        if row is None:
            return None
        phase, mode, attempted, has_result, notes, reason = row
        return Standing(Phase(phase), Mode(mode), bool(attempted), bool(has_result), notes, reason)

    def phase_of(self, parent_local_id: str, key: str) -> Phase | None:
        """The phase of a child, or of the root task with the local id `key` where the parent is empty."""
        if parent_local_id:
            of_child = "SELECT t.phase FROM tasks p JOIN tasks t ON t.parent = p.id WHERE p.local_id = ? AND t.key = ?"
            row = self.db.execute(of_child, (parent_local_id, key)).fetchone()
        else:
            row = self.db.execute("SELECT phase FROM tasks WHERE local_id = ?", (key,)).fetchone()
        return None if row is None else Phase(row[0])

    def leave_ended(self, shown: Container[str]) -> None:
        """The task.md files of what has ended need not be written where they are among those with these local ids."""
        ended = self.db.execute(
            "SELECT s.task, t.local_id FROM stale_files s JOIN tasks t ON t.id = s.task"
            " WHERE t.phase IN ('completed', 'failed', 'cancelled')"
        ).fetchall()
        gone = [(task,) for task, local_id in ended if local_id in shown]
        self.db.executemany("DELETE FROM stale_files WHERE task = ?", gone)
