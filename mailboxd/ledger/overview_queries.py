"""The rows for `overview`: what has finished, what runs, what waits for a task, and what days have cost."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mailboxd.core.spending import Spend, quarter
from mailboxd.host.clock import Day
from mailboxd.ledger.attention_queries import Seen
from mailboxd.ledger.conditions import SPENT
from mailboxd.ledger.reports import Report, Row

MOST_BLOCKED = 1_000
"""Tasks that are counted as waiting for one task."""
_FINISHED = "FROM tasks t WHERE phase = 'completed' AND parent IS NULL AND subtask_id IS NULL"
"""Literally as in the index `tasks_finished`: work that is no part of other work, here or at the agent that sent it."""
_IS_READ = "(id, completed_at) IN (SELECT key, value FROM json_each(?))"
_RESULT = f"SELECT id, local_id, title, result_summary AS answer, executor AS agent, completed_at AS at {_FINISHED}"
_RUNS = (
    "FROM tasks t WHERE t.id IN (SELECT value FROM json_each(?))"
    " AND (t.subtask_id IS NULL OR lower(t.sender) NOT IN (SELECT value FROM json_each(?)))"
)
_WAITS_FOR = (
    "(WITH RECURSIVE up (id) AS (SELECT t.id UNION SELECT d.task FROM up u JOIN dependencies d ON d.needs = u.id"
    " UNION SELECT p.parent FROM up u JOIN tasks p ON p.id = u.id WHERE p.parent IS NOT NULL"
    f" LIMIT {MOST_BLOCKED}) SELECT count(*) - 1 FROM up)"
)
"""How many tasks wait for the task (`t`): those that need its result, and those that it is a part of, at any distance;
at most `MOST_BLOCKED`."""
_SIZES = (
    f"SELECT t.local_id, t.title, {_WAITS_FOR} + t.kids - t.kids_completed - t.kids_failed - t.kids_cancelled,"
    " r.spent_usd FROM tasks t JOIN tasks r ON r.id = t.root WHERE t.local_id IN (SELECT value FROM json_each(?))"
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much hangs on a task: the open tasks that wait for it, and what the work that it belongs to has cost."""

    title: str = ""
    blocks: int = 0
    usd: float = 0.0


def sizes(report: Report, names: Iterable[str]) -> Mapping[str, Size]:
    """The size of each of these tasks, by local id. Costs at most `MOST_BLOCKED` rows each."""
    rows = report.db.execute(_SIZES, (json.dumps(sorted(names)),))
    return {name: Size(title, blocks, usd) for name, title, blocks, usd in rows}


def unread(report: Report, seen: Seen, most: int | None) -> tuple[int, list[Row]]:
    """How many results the user has not read, and the latest ones. Counting reads an index only."""
    known = (seen.read_since, json.dumps(dict(seen.read)))
    where = f"AND completed_at > ? AND NOT {_IS_READ}"
    count = int(report.db.execute(f"SELECT count(*) {_FINISHED} {where}", known).fetchone()[0])
    sql = f"{_RESULT} {where} ORDER BY completed_at DESC LIMIT ?"
    return count, report.rows(sql, *known, -1 if most is None else most) if count else []


def oldest_unread(report: Report, seen: Seen) -> str | None:
    """When the oldest result came that the user has not read."""
    known = (seen.read_since, json.dumps(dict(seen.read)))
    sql = f"SELECT min(completed_at) {_FINISHED} AND completed_at > ? AND NOT {_IS_READ}"
    found = report.db.execute(sql, known).fetchone()[0]
    return None if found is None else str(found)


def latest_results(report: Report, most: int) -> list[Row]:
    """The results that came last, read or not."""
    return report.rows(f"{_RESULT} ORDER BY completed_at DESC LIMIT ?", most)


def finished_at(report: Report, task_id: str) -> str | None:
    """When the task was completed; None if it was not, or if it is a part of other work."""
    row = report.db.execute(f"SELECT completed_at {_FINISHED} AND id = ?", (task_id,)).fetchone()
    return None if row is None else str(row[0])


def running(
    report: Report, tasks: Sequence[str], companions: Collection[str], most: int | None
) -> tuple[int, list[Row]]:
    """How many of these root tasks, which run, are no part of the work of one of `companions` (agents); and the oldest.

    `tasks` are ids, as `OpenTasks.running` has them.
    """
    sql = (
        "SELECT count(*) OVER () AS total, t.id, t.local_id, t.title, t.executor AS agent, t.kids AS planned,"
        " t.kids_completed AS done, t.kids_failed AS failed, t.kids_cancelled AS skipped,"
        " coalesce((SELECT a.started_at FROM attempts a WHERE a.task = t.id AND a.ordinal = 1), t.created_at) AS since"
        f" {_RUNS} ORDER BY t.seq LIMIT ?"
    )
    others = json.dumps([name.lower() for name in companions])
    rows = report.rows(sql, json.dumps(tasks), others, -1 if most is None else most)
    return (int(rows[0]["total"]) if rows else 0), rows


def breakers(report: Report) -> list[Row]:
    """The breakers that are open or half-open: `agent`, `until` and `reason`."""
    return report.rows("SELECT agent, until, reason FROM breakers WHERE state <> 'closed' ORDER BY agent")


def spent_on(report: Report, days: Sequence[Day]) -> list[Spend]:
    """What turns have cost on each of these days: a search of one index for each."""
    if not report.has_table("spending"):
        return [Spend() for _ in days]
    return [Spend(*report.db.execute(SPENT, (quarter(day.start), quarter(day.end))).fetchone()) for day in days]
