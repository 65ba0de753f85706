"""A look at the health of a database that changes nothing, and that a damaged one survives."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mailboxd.store.db import connect, migrations
from mailboxd.store.log import GENESIS, chain
from mailboxd.store.trees import OPEN

_NEWEST = 1_000
"""Events at the end of the chain that are checked; `mailboxd history --verify` checks all."""
_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found. `schema` is the database's version, `known` the newest one of this program."""

    path: str
    exists: bool
    schema: int = 0
    known: int = 0
    damage: tuple[str, ...] = ()
    """What SQLite itself finds wrong with the file."""
    broken: str = ""
    """Where the chain of events does not hold, of its newest 1,000."""
    latest: str = ""
    """When the newest event was recorded."""
    open_circuits: tuple[str, ...] = ()
    """Local ids of the tasks whose circuit is open, at most 1,000."""
    held: tuple[str, ...] = ()
    """Local ids of the tasks that are over their budget."""
    broken_agents: tuple[str, ...] = ()
    """Agents whose breaker is not closed."""


def examine(path: Path) -> Examination:
    """Examine the database at `path`. Raises WorldError when it cannot be opened."""
    if not path.exists():
        return Examination(str(path), exists=False)
    with closing(connect(path, read_only=True)) as db:
        try:
            return _examine(db, path)
        except sqlite3.Error as error:
            return Examination(str(path), exists=True, damage=(str(error),))


def _examine(db: sqlite3.Connection, path: Path) -> Examination:
    schema, known = int(db.execute("PRAGMA user_version").fetchone()[0]), len(migrations())
    found = [str(row[0]) for row in db.execute(f"PRAGMA quick_check({_PROBLEMS})")]
    damage = () if found == ["ok"] else tuple(found)
    if damage or schema != known:
        return Examination(str(path), exists=True, schema=schema, known=known, damage=damage)
    latest = db.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    circuits = db.execute("SELECT local_id FROM tasks WHERE phase = 'circuit_open' ORDER BY seq LIMIT 1000")
    held = db.execute(f"SELECT local_id FROM tasks WHERE held <> '' AND {OPEN} ORDER BY seq LIMIT 1000")
    breakers = db.execute("SELECT agent FROM breakers WHERE state <> 'closed' ORDER BY agent")
    return Examination(
        str(path),
        exists=True,
        schema=schema,
        known=known,
        held=tuple(row[0] for row in held),
        broken_agents=tuple(row[0] for row in breakers),
        broken=_break(db),
        latest=latest[0] if latest else "",
        open_circuits=tuple(row[0] for row in circuits),
    )


def _break(db: sqlite3.Connection) -> str:
    """The first of the newest events that does not follow from the one before; empty if all do."""
    rows = db.execute(
        "SELECT seq, at, kind, task, role, actor, data, hash FROM events ORDER BY seq DESC LIMIT ?", (_NEWEST + 1,)
    ).fetchall()[::-1]
    first = rows.pop(0) if len(rows) > _NEWEST else None
    last, before = (first[0], first[7]) if first else (0, GENESIS)
    for row in rows:
        if row[0] != last + 1:
            return f"event {last + 1} is missing"
        if chain(before, row[:7]) != row[7]:
            return f"event {row[0]} is not what was recorded"
        last, before = row[0], row[7]
    return ""
