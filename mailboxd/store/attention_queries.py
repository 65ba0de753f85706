"""The rows for `mailboxd.attention`: everything in the database that waits for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from mailboxd.explain.model import Snapshot
from mailboxd.store.conditions import NEED, OPEN, WAITING_BY_PHASE, WAITING_FOR_PERSON
from mailboxd.store.reports import Report, Row

_LATEST = 1_000
"""Accepted messages with a notice that are looked at: those of tasks that have ended count no more."""
_APPROVALS = (
    "SELECT p.id, lower(substr(p.id, -6)) AS short_id, t.local_id AS task, p.requested_action AS text, p.at,"
    " p.expires_at FROM approvals p JOIN tasks t ON t.id = p.task WHERE p.status = 'pending'"
)
_REJECTED = "FROM messages WHERE verdict = 'rejected' AND dismissed IS NULL"
_NOTICED = (
    "FROM (SELECT id, name, sender, notice, at, task FROM messages WHERE notice IS NOT NULL AND dismissed IS NULL"
    f" ORDER BY id DESC LIMIT {_LATEST}) m JOIN tasks t ON t.id = m.task WHERE {OPEN}"
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The items that wait for a person: the oldest of each sort, and their number in all."""

    tasks: Sequence[str]
    """Ids, except of those that only wait for the decisions in `approvals`."""
    approvals: Sequence[Row]
    rejected: Sequence[Row]
    noticed: Sequence[Row]
    snapshot: Snapshot
    phases: dict[str, int]
    """The number of tasks that wait for a person, by phase."""
    total: int


def waiting_for_person(report: Report, now: str, daemon: int | None, most: int | None) -> Waiting:
    """The items that wait for a person, at most `most` (None: all) of each sort. Costs O(open tasks)."""
    limit = -1 if most is None else most
    with report.snapshot():
        counts = report.db.execute(WAITING_BY_PHASE).fetchall()
        tasks = report.db.execute(
            f"SELECT id FROM {WAITING_FOR_PERSON} WHERE need <> 'approval' ORDER BY updated_at, seq LIMIT ?", (limit,)
        ).fetchall()
        approvals = report.rows(f"{_APPROVALS} ORDER BY p.at, p.id LIMIT ?", limit)
        rejected = report.rows(f"SELECT id, name, path, sender, reason, at {_REJECTED} ORDER BY id LIMIT ?", limit)
        noticed = report.rows(
            f"SELECT m.id, m.name, m.sender, m.notice, m.at, t.local_id AS task {_NOTICED} ORDER BY m.id LIMIT ?", limit
        )
        found = [row[0] for row in tasks]
        snapshot = report.task_snapshot(found, now, daemon, neighbours=False)
        phases: dict[str, int] = {}
        for phase, _, count in counts:
            phases[phase] = phases.get(phase, 0) + count
        elsewhere = ("approval", "subtasks")
        total = sum(count for _, need, count in counts if need not in elsewhere) + report.pending_approvals()
        for of_messages in (_REJECTED, _NOTICED):
            total += report.db.execute(f"SELECT count(*) {of_messages}").fetchone()[0]
    parsed = [row | {"reason": json.loads(row["reason"] or "{}")} for row in rejected]
    return Waiting(found, approvals, parsed, noticed, snapshot, phases, total)


def need_of(report: Report, task_id: str) -> str | None:
    """Why the task waits for a person, as an `attention.Need`; None if it does not."""
    row = report.db.execute(f"SELECT {NEED} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()
    return None if row is None else row[0]


def pending_approval(report: Report, approval_id: str) -> Row | None:
    """The approval; None if it is decided."""
    return next(iter(report.rows(f"{_APPROVALS} AND p.id = ?", approval_id)), None)
