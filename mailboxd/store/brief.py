"""How a workspace stands, in four indexed questions: for looking at forty of them at once."""

from __future__ import annotations

from mailboxd.store.report import Report, Row
from mailboxd.store.trees import GONE, OPEN, STUCK


def brief(report: Report) -> Row:
    """`open`: how many tasks stand in each phase that is not an end; `approvals` and `blocked`: how many wait for
    somebody; `stuck`: the blocked task that changed last the longest ago; `latest`: when the newest event was recorded.

    Costs O(open tasks), however long the history is.
    """
    with report.snapshot():
        counts = report.db.execute(
            f"SELECT phase, count(*) FROM tasks WHERE {OPEN} GROUP BY phase ORDER BY phase"
        ).fetchall()
        stuck = report.rows(
            "SELECT t.local_id AS task, t.phase, t.updated_at AS since,"
            " CASE WHEN t.held <> '' THEN t.held WHEN t.phase <> 'execution_ready' THEN t.reason"
            f" ELSE (SELECT value FROM {GONE} WHERE key = t.executor) END AS why {STUCK}"
            " ORDER BY t.updated_at, t.seq LIMIT 1"
        )
        latest = report.db.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return {
            "open": dict(counts),
            "approvals": report.asked(),
            "blocked": report.blocked_count(),
            "stuck": stuck[0] if stuck else None,
            "latest": latest[0] if latest else None,
        }
