"""What turns have cost, by time, and the caps that a person has raised for a day. Both follow from the log."""

from __future__ import annotations

import json
import sqlite3

from mailboxd.core.events import Event
from mailboxd.core.spending import LATEST, NOTHING, Spend, quarter
from mailboxd.ledger.conditions import SPENT
from mailboxd.ledger.connection import Connection

_ADD = (
    "INSERT INTO spending VALUES (?1, ?2, ?3, ?4) ON CONFLICT (at)"
    " DO UPDATE SET usd = usd + ?2, tokens = tokens + ?3, turns = turns + ?4"
)
_RECENT = 200
"""Attempts that are looked through for the latest turns of agents."""


def turn_spent(db: Connection, event: Event) -> None:
    """Add what the turn in this event has cost to its quarter of an hour."""
    cost = Spend.of_turn(event.data["turn"])
    if cost:
        row = quarter(event.data["at"]), cost.usd, cost.tokens, cost.turns
        db.write_later("spending", _ADD, row)


def cap_raised(db: sqlite3.Connection, event: Event) -> None:
    caps = Spend.read(event.data["caps"])
    db.execute(
        "INSERT INTO raised_caps VALUES (?1, ?2, ?3, ?4)"
        " ON CONFLICT (day) DO UPDATE SET usd = ?2, tokens = ?3, turns = ?4",
        (event.data["day"], caps.usd, caps.tokens, caps.turns),
    )


class Spending:
    """Reads what was spent. A day is a few hundred rows at most, however long the log is."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def between(self, start: str, end: str) -> Spend:
        """What turns have cost that ended from `start` to before `end`; both begin a quarter of an hour."""
        return Spend(*self._db.execute(SPENT, (quarter(start), quarter(end))).fetchone())

    def raised(self, day: str) -> Spend:
        """What a person has raised the caps to for this day; 0: not raised."""
        row = self._db.execute("SELECT usd, tokens, turns FROM raised_caps WHERE day = ?", (day,)).fetchone()
        return NOTHING if row is None else Spend(*row)

    def latest(self) -> dict[str, list[Spend]]:
        """What the latest attempts of each agent have cost, the latest last: for the first estimates of a daemon."""
        sql = "SELECT executor, usage FROM attempts WHERE id > '' AND status <> 'running' ORDER BY id DESC LIMIT ?"
        found: dict[str, list[Spend]] = {}
        for agent, usage in self._db.execute(sql, (_RECENT,)):
            of_agent = found.setdefault(agent.lower(), [])
            if len(of_agent) < LATEST:
                of_agent.insert(0, Spend.of(json.loads(usage or "{}"), ran=True))
        return found
