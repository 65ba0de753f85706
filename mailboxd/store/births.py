"""Tasks that come into being, written together: a plan of 10,000 children is three statements, not 40,000."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mailboxd.core.events import Event
from mailboxd.core.types import Task
from mailboxd.store.columns import TASK_COLUMNS, insert, row_of

Birth = tuple[int, Event]
"""What records that a task came into being, with its number in the log."""

UNMET = (
    "(SELECT count(*) FROM dependencies d LEFT JOIN tasks n ON n.id = d.needs"
    " WHERE d.task = ?1 AND (n.phase IS NULL OR n.phase <> 'completed'))"
)
"""How many needs of the task `?1` are not met. One without a row is a later sibling of the same plan: not completed."""

_PARENT = f"?{TASK_COLUMNS.index('parent') + 1}"
_LIVE = f"CASE WHEN {_PARENT} IS NULL THEN 1 ELSE (SELECT phase = 'executing' FROM tasks WHERE id = {_PARENT}) END"
_INSERT = insert("tasks", (*TASK_COLUMNS, "seq", "priority", "deadline"), (("unmet", UNMET), ("parent_live", _LIVE)))


def bear(db: sqlite3.Connection, births: Sequence[Birth]) -> None:
    """Write the rows of new tasks and of what they need; parents come before their children."""
    tasks = [(seq, event.data["task"]) for seq, event in births]
    needs = [(event.data["task"]["id"], need) for _, event in births for need in event.data["needs"]]
    if needs:
        db.executemany("INSERT OR IGNORE INTO dependencies VALUES (?, ?)", needs)
    db.executemany(_INSERT, [_row(seq, task) for seq, task in tasks])
    parents = [task["parent"] for _, task in tasks if task["parent"] is not None]
    if parents:
        roots = Counter(task["root"] for _, task in tasks if task["parent"] is not None)
        db.executemany("UPDATE tasks SET tree_tasks = tree_tasks + ?2 WHERE id = ?1", roots.items())
        db.executemany("UPDATE tasks SET kids = kids + ?2 WHERE id = ?1", Counter(parents).items())


def _row(seq: int, task: Mapping[str, Any]) -> tuple[Any, ...]:
    policy: Mapping[str, Any] = task.get("policy", {})
    return (*row_of(Task, task), seq, policy.get("priority", 0), policy.get("deadline"))
