"""What waits for somebody: work that may start, and tasks that a reviewer was asked about. Read-only."""

from __future__ import annotations

from mailboxd.store.report import Report, Row

_SHOWN = "t.local_id AS task, t.title, t.phase, t.executor AS agent, t.attempt"
_READY = "t.phase = 'execution_ready' AND t.unmet = 0 AND t.parent_live = 1"


def ready(report: Report, limit: int) -> list[Row]:
    """Tasks that start as soon as there is a slot, in the order of the scheduler."""
    return report.rows(f"SELECT {_SHOWN} FROM tasks t WHERE {_READY} ORDER BY t.priority DESC, t.seq LIMIT ?", limit)


def of_executor(report: Report, agent: str, limit: int) -> list[Row]:
    """The agent's own tasks that are ready, or under way."""
    return report.rows(
        f"SELECT {_SHOWN} FROM tasks t WHERE t.executor = ? COLLATE NOCASE AND (({_READY}) OR t.phase = 'executing')"
        " ORDER BY t.priority DESC, t.seq LIMIT ?",
        agent,
        limit,
    )


def at_gates(report: Report, agent: str, gates: tuple[str, ...]) -> list[Row]:
    """Tasks at one of `gates` about which the agent was ever asked there; with `id`. Whether still, a view tells."""
    marks = ", ".join("?" * len(gates))
    return report.rows(
        f"SELECT t.id, {_SHOWN} FROM tasks t WHERE t.phase IN ({marks}) AND EXISTS (SELECT 1 FROM review_requests r"
        "  WHERE r.task = t.id AND r.gate = t.phase AND r.reviewer = ? COLLATE NOCASE)"
        " ORDER BY t.priority DESC, t.seq",
        *gates,
        agent,
    )
