"""The `meta` table: named values that are not part of the log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from mailboxd.core.schedule import Room

_PLANNED = "planned"
"""What agents planned within the last hour, as [time, number of tasks]."""


class Meta:
    """Reads and writes values by name. What `status` shows of a daemon is written only when it changes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._noted: dict[str, str] = {}

    def set_room(self, room: Room) -> None:
        """Keep what calls there is room for, for whoever looks from another process. Written only when it changes."""
        free = (room.free_bytes or 0) >> 24 << 24  # in steps of 16 MiB: else every look would be a write
        memory = [free, room.call_bytes] if room.is_short else None
        self._set_changed("room", json.dumps({"most": room.most, "running": room.running, "memory": memory}))

    def set_paced(self, paced: Mapping[str, str]) -> None:
        """Keep which agents have had all their turns of an hour, and until when. Written only when it changes."""
        self._set_changed("paced", json.dumps(paced, sort_keys=True))

    def set_limits(self, bounds: Mapping[str, int]) -> None:
        """Keep the limits that the daemon works under, for `status`. Written only when they change."""
        self._set_changed("limits", json.dumps(bounds))

    def set_gone(self, gone: Mapping[str, str]) -> bool:
        """Keep which agents work waits for although there is none of that name, and why; whether that is news."""
        return self._set_changed("gone", json.dumps(gone, sort_keys=True))

    def set_away(self, away: Mapping[str, str]) -> None:
        """Keep which agents that are waited for have no daemon beside them, and why that is known."""
        self._set_changed("away", json.dumps(away, sort_keys=True))

    def set_gateway(self, why: str) -> None:
        """Keep why the gateway takes no turns; empty: nothing is known against it."""
        self._set_changed("gateway", why)

    def _set_changed(self, name: str, text: str) -> bool:
        if self._noted.get(name) == text:
            return False
        self._noted[name] = text
        noted = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2 WHERE value <> ?2"
        return self._db.execute(noted, (name, text)).rowcount > 0

    def forget(self) -> None:
        """What was noted last may not have been kept."""
        self._noted.clear()

    def get(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def set(self, name: str, value: str) -> None:
        self._db.execute("INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2", (name, value))

    def delete(self, name: str) -> None:
        self._db.execute("DELETE FROM meta WHERE name = ?", (name,))

    def planned_since(self, since: str) -> int:
        """How many tasks agents have planned after `since`, within the last hour."""
        return sum(count for at, count in self._planned() if at > since)

    def add_planned(self, now: str, since: str, count: int) -> None:
        """Count what an agent has planned; of what came before, what is later than `since` is remembered."""
        kept = [[at, before] for at, before in self._planned() if at > since]
        self.set(_PLANNED, json.dumps([*kept, [now, count]]))

    def _planned(self) -> list[tuple[str, int]]:
        return [(at, count) for at, count in json.loads(self.get(_PLANNED) or "[]")]
