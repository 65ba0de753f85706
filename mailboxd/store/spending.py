"""From events to tables, as `projection`: what turns cost, up the tree, and how the breakers of agents stand."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from mailboxd.core.budget import tokens
from mailboxd.core.events import Event, Kind
from mailboxd.core.usage import Usage
from mailboxd.core.wire import from_json
from mailboxd.store.trees import ABOVE

_TURN = (
    "UPDATE tasks SET turns = turns + (id = ?1), tree_turns = tree_turns + (parent IS NULL)"
    " WHERE id IN (?1, (SELECT root FROM tasks WHERE id = ?1))"
)
"""On the account of the task, and on that of its tree, which its root has."""


def usage_recorded(db: sqlite3.Connection, event: Event) -> None:
    """A turn ended, or a peer says what it used: on the account of the task and of all above it."""
    data = event.data
    usage = from_json(Usage, data["usage"])
    used, cost = tokens(usage), usage.cost_usd or 0.0
    if event.task is not None and (used or cost):
        db.execute(
            f"UPDATE tasks SET spent_tokens = spent_tokens + ?2, spent_usd = spent_usd + ?3 WHERE id IN"
            f" ({ABOVE.replace('?', '?1')} SELECT id FROM above)",
            (event.task, used, cost),
        )
    if event.kind is Kind.TURN_ENDED:
        if event.task is not None and data["ran"]:
            db.execute(_TURN, (event.task,))
        _count_fault(db, data)


def _count_fault(db: sqlite3.Connection, data: Mapping[str, Any]) -> None:
    agent = data["agent"].lower()
    if data["fault"]:
        db.execute(
            "INSERT INTO breakers VALUES (?1, 'closed', 1, 0, NULL, ?2)"
            " ON CONFLICT (agent) DO UPDATE SET failures = failures + 1, reason = ?2",
            (agent, data["said"]),
        )
    elif data["outcome"] == "succeeded":
        db.execute("UPDATE breakers SET failures = 0 WHERE agent = ?", (agent,))


def breaker_moved(db: sqlite3.Connection, event: Event) -> None:
    data = event.data
    state = data["state"]
    db.execute(
        "INSERT INTO breakers (agent, state, failures, times, until, reason) VALUES (?, ?, 0, ?, ?, ?)"
        " ON CONFLICT (agent) DO UPDATE SET state = excluded.state, until = excluded.until, times = excluded.times,"
        " reason = excluded.reason, failures = CASE excluded.state WHEN 'closed' THEN 0 ELSE failures END",
        (data["agent"], state, data["times"], data["until"], data["reason"]),
    )
