"""Paged lists for the web page: tasks, events, results, messages."""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.store.reports import SUMMARY, Report, Row, summary
from mailboxd.store.row_mapping import ENDED

_PAGE_SUMMARY = f"{SUMMARY}, t.error, t.result_summary, t.parent, t.spent_usd, t.spent_tokens"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks to list; empty fields match any. `words` must occur in name or title; `parent` is an id.

    Without any field only root tasks, unless `children` is set.
    """

    phase: str = ""
    agent: str = ""
    words: str = ""
    parent: str = ""
    children: bool = False


def tasks(report: Report, wanted: Filter, *, limit: int, offset: int = 0) -> tuple[list[Row], int]:
    """A page of tasks, open ones first and then by last change, and the total number."""
    where, args = ["1"], []
    if wanted.parent:
        where.append("t.parent = ?")
        args.append(wanted.parent)
    elif not wanted.children and not (wanted.phase or wanted.agent or wanted.words):
        where.append("t.parent IS NULL")
    for column, value in (("t.phase = ?", wanted.phase), ("t.executor = ? COLLATE NOCASE", wanted.agent)):
        if value:
            where.append(column)
            args.append(value)
    for word in wanted.words.split()[:8]:
        where.append("(instr(lower(t.title), ?) OR instr(lower(t.local_id), ?))")
        args += [word.lower(), word.lower()]
    kept = " AND ".join(where)
    with report.snapshot():
        total = int(report.db.execute(f"SELECT count(*) FROM tasks t WHERE {kept}", args).fetchone()[0])
        order = f"t.phase IN {ENDED}, t.updated_at DESC, t.seq DESC"
        sql = f"SELECT {_PAGE_SUMMARY} FROM tasks t WHERE {kept} ORDER BY {order} LIMIT ? OFFSET ?"
        rows = report.rows(sql, *args, limit, offset)
    return [summary(row, as_child=row["parent"] is not None) for row in rows], total


def named(report: Report, name: str) -> str | None:
    """The id of the task with exactly this local id or id."""
    row = report.db.execute("SELECT id FROM tasks WHERE local_id = ?1 OR id = ?1", (name,)).fetchone()
    return None if row is None else str(row[0])


def agents(report: Report, limit: int) -> list[str]:
    """The agents that have or had tasks here."""
    rows = report.db.execute("SELECT DISTINCT executor FROM tasks ORDER BY executor LIMIT ?", (limit,))
    return [row[0] for row in rows]


def path_to(report: Report, task_id: str) -> list[Row]:
    """The ancestors of a task, the root first."""
    return report.rows(
        "WITH RECURSIVE above (id, step) AS (SELECT parent, 1 FROM tasks WHERE id = ? UNION ALL"
        " SELECT t.parent, step + 1 FROM above a JOIN tasks t ON t.id = a.id WHERE t.parent IS NOT NULL)"
        " SELECT t.local_id, CASE WHEN t.key = '' THEN t.local_id ELSE t.key END AS key, t.title FROM above a"
        " JOIN tasks t ON t.id = a.id ORDER BY step DESC",
        task_id,
    )


def latest_events(report: Report, task_id: str | None, limit: int) -> list[Row]:
    """The last events of a task, or of all, latest first; reply tokens are hidden."""
    scope = "" if task_id is None else " WHERE task = ?"
    args = () if task_id is None else (task_id,)
    row = report.db.execute(f"SELECT seq FROM events{scope} ORDER BY seq DESC LIMIT 1 OFFSET ?", (*args, limit))
    first = row.fetchone()
    return list(report.events(task_id, after=first[0] if first else 0))[::-1]


def count_events(report: Report, task_id: str) -> int:
    return int(report.db.execute("SELECT count(*) FROM events WHERE task = ?", (task_id,)).fetchone()[0])


def results(report: Report, task_id: str, limit: int, most: int) -> list[Row]:
    """The results of the last `limit` attempts, oldest first, each cut at `most` characters."""
    rows = report.rows(
        "SELECT r.id, a.ordinal, r.produced_by, r.at, substr(r.body, 1, ?) AS body, length(r.body) AS length"
        " FROM artifacts r LEFT JOIN attempts a ON a.id = r.attempt"
        " WHERE r.task = ? AND r.kind = 'primary_output' ORDER BY r.id DESC LIMIT ?",
        most,
        task_id,
        limit,
    )
    return rows[::-1]


def check_runs(report: Report, task_id: str, limit: int) -> list[Row]:
    """Results of the spec's checks, latest first."""
    return report.rows(
        "SELECT c.id, c.verdict, c.summary, c.at, a.ordinal FROM check_runs c LEFT JOIN attempts a ON a.id = c.attempt"
        " WHERE c.task = ? ORDER BY c.at DESC, c.id LIMIT ?",
        task_id,
        limit,
    )


def message(report: Report, row_id: str) -> Row | None:
    """A message by the id of its row, with its bytes (`raw`; None if they were not kept)."""
    rows = report.rows(
        'SELECT m.id, m.message_id, m.direction, m.type, m.sender AS "from", m.receiver AS "to", m.verdict, m.verified,'
        " m.signer, m.name, m.path, m.size, m.reason, m.at, t.local_id AS task, b.raw FROM messages m"
        " LEFT JOIN tasks t ON t.id = m.task LEFT JOIN bodies b ON b.message = m.id AND m.direction = 'in'"
        " WHERE m.id = ?",
        row_id,
    )
    return rows[0] if rows else None


def messages(report: Report, *, limit: int, offset: int = 0, verdict: str = "") -> tuple[list[Row], int]:
    """A page of messages, latest first, and the total number; `verdict` narrows them."""
    where, args = ("m.verdict = ?", [verdict]) if verdict else ("1", [])
    total = int(report.db.execute(f"SELECT count(*) FROM messages m WHERE {where}", args).fetchone()[0])
    rows = report.rows(
        'SELECT m.id, m.direction, m.type, m.sender AS "from", m.receiver AS "to", m.verdict, m.name, m.at,'
        f" t.local_id AS task FROM messages m LEFT JOIN tasks t ON t.id = m.task WHERE {where}"
        " ORDER BY m.at DESC, m.id DESC LIMIT ? OFFSET ?",
        *args,
        limit,
        offset,
    )
    return rows, total


def version(report: Report) -> int:
    """A number that changes when another connection commits; cheap to poll."""
    return int(report.db.execute("PRAGMA data_version").fetchone()[0])
