"""The policy as the events tell of it (`core.policy`)."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from mailboxd.core import policy
from mailboxd.core.policy import NOTHING, RecordedPolicy


class Policies:
    """The policies of a workspace, each by the number of the event that recorded the latest change."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: tuple[int, RecordedPolicy] = (0, NOTHING)

    def latest(self) -> tuple[int, RecordedPolicy]:
        """The latest event and the policy after it; 0 and nothing without one."""
        seq, known = self._known
        if not self.has(seq):  # what was recorded was rolled back
            seq, known = 0, NOTHING
        for number, data in self._after(seq, 1 << 62):
            seq, known = number, policy.after(known, data)
        self._known = seq, known
        return self._known

    def at(self, seq: int) -> RecordedPolicy:
        """The policy after the event with this number."""
        return policy.latest(data for _, data in self._after(0, seq))

    def has(self, seq: int) -> bool:
        """Whether this event recorded a policy."""
        sql = "SELECT 1 FROM events WHERE seq = ? AND kind = 'config.changed'"
        return self._db.execute(sql, (seq,)).fetchone() is not None

    def _after(self, seq: int, until: int) -> list[tuple[int, dict[str, Any]]]:
        rows = self._db.execute(
            "SELECT seq, data FROM events WHERE kind = 'config.changed' AND seq > ? AND seq <= ? ORDER BY seq",
            (seq, until),
        )
        return [(number, json.loads(data)) for number, data in rows]
