"""Numbers for metrics and events for traces."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from mailboxd.core.events import RENAMED, Kind, upcast
from mailboxd.ledger.conditions import OPEN, RUNNABLE, WAITING_FOR_PERSON
from mailboxd.ledger.reports import Report, Row

BATCH = 1000
"""Events read at a time."""

_OLDEST = {
    "ready_task": f"SELECT min(coalesce(not_before, updated_at)) FROM tasks WHERE {RUNNABLE} AND held = ''",
    "effect": "SELECT min(coalesce(not_before, at)) FROM outbox WHERE state = 'pending'",
    "approval": "SELECT min(at) FROM approvals WHERE status = 'pending'",
    "filing": "SELECT min(at) FROM messages WHERE path IS NULL",
}


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event, as far as metrics and traces need it."""

    seq: int
    at: str
    kind: Kind
    task: str | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """A task and its relatives. The traceparents are those of the first message about the task and about its root."""

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


def waiting_for_person(report: Report) -> int:
    """The number of tasks that wait for a person."""
    counted = f"SELECT count(*) FROM {WAITING_FOR_PERSON} WHERE need IS NOT NULL"
    return int(report.db.execute(counted).fetchone()[0])


def oldest_waiting(report: Report) -> dict[str, str | None]:
    """When the oldest item of each queue began to wait, or None. A delayed item waits from the end of its delay."""
    return {queue: report.db.execute(sql).fetchone()[0] for queue, sql in _OLDEST.items()}


def breakers(report: Report, limit: int) -> list[tuple[str, str, int]]:
    """Agent, state and consecutive failures, agents whose breaker is not closed first."""
    rows = report.db.execute(
        "SELECT agent, state, failures FROM breakers ORDER BY state = 'closed', agent LIMIT ?", (limit,)
    )
    return list(rows)


def running_attempts(report: Report) -> int:
    """The number of running attempts."""
    sql = "SELECT count(*) FROM tasks t JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
    return int(report.db.execute(f"{sql} WHERE {OPEN} AND a.status = 'running'").fetchone()[0])


def events_after(report: Report, after: int, kinds: Collection[str], limit: int = BATCH) -> Iterator[LoggedEvent]:
    """Up to `limit` events of these kinds after number `after`, oldest first."""
    kinds = [*kinds, *(former for former, kind in RENAMED.items() if kind in kinds)]
    marks = ", ".join("?" * len(kinds))
    rows = report.db.execute(
        f"SELECT seq, at, kind, task, data FROM events WHERE seq > ? AND kind IN ({marks}) ORDER BY seq LIMIT ?",
        (after, *kinds, limit),
    )
    for seq, at, kind, task, data in rows:
        present, values = upcast(kind, json.loads(data))
        yield LoggedEvent(seq, at, present, task, values)


def ordered_at(report: Report, ended: LoggedEvent) -> str | None:
    """When the turn that ended with this event was ordered; None if unknown (a rebuilt database)."""
    turn = ended.data["turn"]
    row = report.db.execute(
        "SELECT at FROM outbox WHERE task = ?1 AND kind = 'run_turn' AND at <= ?2"
        " AND json_extract(data, '$.turn') = ?3 AND json_extract(data, '$.attempt_id') = ?4"
        " AND (?5 LIKE 'acp:%' OR lower(agent) = lower(?5)) ORDER BY seq DESC LIMIT 1",
        (ended.task or "", ended.at, turn["purpose"], turn["attempt"], turn["agent"]),
    ).fetchone()
    return None if row is None else str(row[0])


def family(report: Report, task_id: str) -> Family | None:
    """The task and its relatives; None for an unknown id."""
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
"""From the log, because the task's own may change with a later message."""


def attempt_row(report: Report, attempt_id: str) -> Row | None:
    """The columns of an attempt; None for an unknown id."""
    rows = report.rows("SELECT ordinal, executor, runtime, started_at FROM attempts WHERE id = ?", attempt_id)
    return rows[0] if rows else None


def approval_row(report: Report, approval_id: str) -> Row | None:
    """The columns of an approval; None for an unknown id."""
    rows = report.rows("SELECT purpose, side_effect_kind, at, status FROM approvals WHERE id = ?", approval_id)
    return rows[0] if rows else None
