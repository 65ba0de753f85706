"""How the work on a task went: every attempt of it and of all below it, as times."""

from __future__ import annotations

from typing import Any

from mailboxd.store.report import BELOW, Report, Row


def course(report: Report, task_id: str) -> Row:
    """The task and all below it, in the order of its tree, each with its attempts.

    `rows` holds `task` (local id), `key`, `depth` (0: the task itself), `agent`, `phase`, `title`, `created_at`,
    `completed_at` and `attempts`; `began` and `ended` are the first and the last moment that is known (`ended` is None
    while something is under way). Times are ISO-8601 UTC.
    """
    with report.snapshot():
        tasks = report.rows(
            f"{BELOW} SELECT t.id, t.parent, t.local_id AS task, t.key, t.executor AS agent, t.phase, t.title,"
            " t.created_at, t.completed_at FROM below b JOIN tasks t ON t.id = b.id ORDER BY t.depth, t.seq",
            task_id,
        )
        attempts = report.rows(
            f"{BELOW} SELECT a.task, a.ordinal, a.executor AS agent, a.status, a.waiting_for, a.started_at,"
            " a.finished_at, a.error_summary AS error FROM below b JOIN attempts a ON a.task = b.id"
            " ORDER BY a.task, a.ordinal",
            task_id,
        )
    of_task: dict[str, list[Row]] = {}
    for attempt in attempts:
        of_task.setdefault(attempt.pop("task"), []).append(attempt)
    rows = _in_order(tasks, of_task)
    under_way = any(row["completed_at"] is None for row in rows[:1])
    moments = [moment for row in rows for moment in _moments(row)]
    return {
        "task": rows[0]["task"],
        "began": min(moments),
        "ended": None if under_way else max(moments),
        "rows": rows,
    }


def _moments(row: Row) -> list[str]:
    ends = [attempt["finished_at"] for attempt in row["attempts"]]
    return [at for at in (row["created_at"], row["completed_at"], *ends) if at]


def _in_order(tasks: list[Row], attempts: dict[str, list[Row]]) -> list[Row]:
    children: dict[str, list[Row]] = {}
    for task in tasks[1:]:
        children.setdefault(task["parent"], []).append(task)
    rows: list[dict[str, Any]] = []
    stack = [(tasks[0], 0)]
    while stack:
        task, depth = stack.pop()
        stack += [(child, depth + 1) for child in reversed(children.get(task["id"], []))]
        named = {name: value for name, value in task.items() if name not in ("id", "parent")}
        rows.append({**named, "depth": depth, "attempts": attempts.get(task["id"], [])})
    return rows
