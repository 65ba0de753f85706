"""What is counted for instruments: numbers of one moment, and the events of the kinds that are asked for, in order."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from mailboxd.core.events import Kind
from mailboxd.store.reports import Report, Row
from mailboxd.store.row_mapping import OPEN, RUNNABLE

BATCH = 1000
"""Events that are read at once."""

_OLDEST = {
    "ready_task": f"SELECT min(coalesce(not_before, updated_at)) FROM tasks WHERE {RUNNABLE} AND held = ''",
    "effect": "SELECT min(coalesce(not_before, at)) FROM outbox WHERE state = 'pending'",
    "approval": "SELECT min(at) FROM approvals WHERE status = 'pending'",
    "filing": "SELECT min(at) FROM messages WHERE path IS NULL",
}


@dataclass(frozen=True, slots=True)
class Happened:
    """One event, as far as an instrument needs it."""

    seq: int
    at: str
    kind: Kind
    task: str | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """A task among its relatives, as it was created; `first_traceparent` is what its root's first message carried."""

    id: str
    local_id: str
    parent: str | None
    root: str
    executor: str
    sender: str
    depth: int
    created_at: str
    traceparent: str | None
    root_traceparent: str | None


def oldest(report: Report) -> dict[str, str | None]:
    """When the oldest of each queue began to wait; None where none waits. What has to wait counts from its moment."""
    return {queue: report.db.execute(sql).fetchone()[0] for queue, sql in _OLDEST.items()}


def breakers(report: Report, limit: int) -> list[tuple[str, str, int]]:
    """Agent, state and faults in a row, the agents whose breaker is not closed first."""
    rows = report.db.execute(
        "SELECT agent, state, failures FROM breakers ORDER BY state = 'closed', agent LIMIT ?", (limit,)
    )
    return list(rows)


def running_attempts(report: Report) -> int:
    """Attempts that are under way."""
    sql = "SELECT count(*) FROM tasks t JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
    return int(report.db.execute(f"{sql} WHERE {OPEN} AND a.status = 'running'").fetchone()[0])


def happened(report: Report, after: int, kinds: Collection[Kind], limit: int = BATCH) -> Iterator[Happened]:
    """Events after number `after`, of these kinds, at most `limit`, oldest first."""
    marks = ", ".join("?" * len(kinds))
    rows = report.db.execute(
        f"SELECT seq, at, kind, task, data FROM events WHERE seq > ? AND kind IN ({marks}) ORDER BY seq LIMIT ?",
        (after, *kinds, limit),
    )
    for seq, at, kind, task, data in rows:
        yield Happened(seq, at, Kind(kind), task, json.loads(data))


def ordered_at(report: Report, ended: Happened) -> str | None:
    """When the turn was ordered whose end this `turn.ended` is; None where that is not known (a rebuilt database)."""
    data = ended.data
    row = report.db.execute(
        "SELECT at FROM outbox WHERE task = ?1 AND kind = 'run_turn' AND at <= ?2"
        " AND json_extract(data, '$.turn') = ?3 AND json_extract(data, '$.attempt_id') = ?4"
        " AND (?5 LIKE 'acp:%' OR lower(agent) = lower(?5)) ORDER BY seq DESC LIMIT 1",
        (ended.task or "", ended.at, data["turn"], data["attempt"], data["agent"]),
    ).fetchone()
    return None if row is None else str(row[0])


def family(report: Report, task_id: str) -> Family | None:
    """The task's place in its tree; None for an unknown id."""
    rows: list[Row] = report.rows(
        "SELECT t.id, t.local_id, t.parent, t.root, t.executor, t.sender, t.depth, t.created_at,"
        f" {_FIRST.format('t.id')} AS traceparent, {_FIRST.format('t.root')} AS root_traceparent"
        " FROM tasks t WHERE t.id = ?",
        task_id,
    )
    return Family(**rows[0]) if rows else None


_FIRST = (
    "(SELECT json_extract(e.data, '$.task.origin.traceparent') FROM events e"
    " WHERE e.task = {} AND e.kind = 'task.created' ORDER BY e.seq LIMIT 1)"
)
"""The first dispatch's, from the log: the same whenever it is asked, whatever came later."""


def attempt_began(report: Report, attempt_id: str) -> Row | None:
    """What is on record about an attempt; None for an unknown id."""
    columns = "task, ordinal, executor, runtime, status, started_at, model, worker_ref"
    rows = report.rows(f"SELECT {columns} FROM attempts WHERE id = ?", attempt_id)
    return rows[0] if rows else None


def approval_asked(report: Report, approval_id: str) -> Row | None:
    """What is on record about an approval; None for an unknown id."""
    rows = report.rows("SELECT purpose, side_effect_kind, at, status FROM approvals WHERE id = ?", approval_id)
    return rows[0] if rows else None
