"""Claims: which live work writes the paths that a task wants to write too.

Two pieces of work with overlapping claims in one workspace never run at the same time. Work that is split claims
nothing itself: its parts do. An attempt of unknown outcome keeps its claims, because it may still be writing.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from mailboxd.core.schedule import overlapping
from mailboxd.ledger.conditions import RUNNABLE
from mailboxd.ledger.meta import PEERS

_LIVE = (
    "SELECT t.id, t.local_id, t.executor, t.claims FROM tasks t WHERE t.claims <> '[]' AND t.kids = 0 AND"
    " (t.phase = 'executing' OR (t.phase IN ('execution_ready', 'circuit_open') AND"
    " (SELECT a.status FROM attempts a WHERE a.task = t.id AND a.ordinal = t.attempt) = 'unknown')) ORDER BY t.seq"
)
_WAITING = f"SELECT id, executor, claims FROM tasks WHERE claims <> '[]' AND kids = 0 AND {RUNNABLE} ORDER BY seq"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A task that has to wait, and why: another one writes `path`, which overlaps with its own claim."""

    task: str
    holder: str
    """The local id of the other task."""
    path: str


def conflicts(db: sqlite3.Connection, task_id: str | None = None) -> list[Conflict]:
    """The runnable tasks, or one task, that would write what live work writes."""
    one = "SELECT id, executor, claims FROM tasks WHERE id = ? AND claims <> '[]' AND kids = 0"
    waiting = db.execute(_WAITING) if task_id is None else db.execute(one, (task_id,))
    if not (wanted := waiting.fetchall()) or not (live := db.execute(_LIVE).fetchall()):
        return []
    places = _places(db)
    found = []
    for task, executor, claims in wanted:
        place, own = places.get(executor.lower(), executor.lower()), json.loads(claims)
        others = (
            Conflict(task, local_id, path)
            for other, local_id, agent, held in live
            if other != task and places.get(agent.lower(), agent.lower()) == place
            for path in json.loads(held)
            if any(overlapping(path, mine) for mine in own)
        )
        found += [conflict for conflict in (next(others, None),) if conflict is not None]
    return found


def _places(db: sqlite3.Connection) -> dict[str, str]:
    """The workspace of each agent, as OpenClaw said; two agents may share one."""
    row = db.execute("SELECT value FROM meta WHERE name = ?", (PEERS,)).fetchone()
    known = json.loads(row[0]).get("known", {}) if row else {}
    return {name.lower(): workspace for name, (_, workspace) in known.items() if workspace}
