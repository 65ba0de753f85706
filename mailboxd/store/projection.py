"""From events to tables: what each kind of event changes. The only code that writes to the replayed tables."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from mailboxd.core.draft import created_task
from mailboxd.core.events import Event, Kind
from mailboxd.core.terms import TERMINAL, Phase
from mailboxd.core.types import Attempt, Origin, Overrides, Policy, Task, Usage
from mailboxd.core.wire import from_json, to_json

TASK_COLUMNS = tuple(field.name for field in fields(Task))
ATTEMPT_COLUMNS = tuple(field.name for field in fields(Attempt))
_KIDS = {Phase.COMPLETED: "kids_completed", Phase.FAILED: "kids_failed", Phase.CANCELLED: "kids_cancelled"}


def project(db: sqlite3.Connection, seq: int, event: Event) -> None:
    """Apply one event to the tables."""
    writer = _WRITERS.get(event.kind)
    if writer is not None:
        writer(db, seq, event)


def column(value: Any) -> Any:
    """A value of the core as SQLite keeps it: scalars as they are, structures as JSON."""
    if type(value) in _STRUCTURES:
        return _structure(value)
    return _column(to_json(value))


def _column(plain: Any) -> Any:
    if isinstance(plain, bool):
        return int(plain)
    return json.dumps(plain, ensure_ascii=False, sort_keys=True) if isinstance(plain, dict | list) else plain


_STRUCTURES = frozenset({Policy, Overrides, Origin, Usage})


@lru_cache(maxsize=4096)
def _structure(value: Any) -> Any:
    """Many rows share these; being frozen, each is written out once."""
    return _column(to_json(value))


def _insert(table: str, columns: tuple[str, ...]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


_INSERT_TASK = _insert("tasks", (*TASK_COLUMNS, "seq", "unmet", "parent_live", "priority"))
_INSERT_ATTEMPT = _insert("attempts", ATTEMPT_COLUMNS)


def _task_created(db: sqlite3.Connection, seq: int, event: Event) -> None:
    task = created_task(event)
    needs = event.data["needs"]
    unmet, parent_live = 0, 1
    if needs:
        db.executemany("INSERT OR IGNORE INTO dependencies VALUES (?, ?)", [(task.id, need) for need in needs])
        unmet = _unmet(db, task.id)
    if task.parent is not None:
        db.execute("UPDATE tasks SET kids = kids + 1 WHERE id = ?", (task.parent,))
        row = db.execute("SELECT phase = 'executing' FROM tasks WHERE id = ?", (task.parent,)).fetchone()
        parent_live = row[0]
    values = (column(getattr(task, name)) for name in TASK_COLUMNS)
    db.execute(_INSERT_TASK, (*values, seq, unmet, parent_live, task.policy.priority))


def _unmet(db: sqlite3.Connection, task: str) -> int:
    # A need that has no row yet is a later sibling of the same plan: not completed.
    row = db.execute(
        "SELECT count(*) FROM dependencies d LEFT JOIN tasks t ON t.id = d.needs"
        " WHERE d.task = ? AND (t.phase IS NULL OR t.phase <> 'completed')",
        (task,),
    ).fetchone()
    return int(row[0])


def _task_changed(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    changes: Mapping[str, Any] = event.data["changes"]
    unknown = set(changes) - set(TASK_COLUMNS)
    if unknown:
        raise ValueError(f"{event.kind} changes unknown columns {sorted(unknown)}")
    columns = {name: _column(value) for name, value in changes.items()}
    if "policy" in changes:
        columns["priority"] = changes["policy"].get("priority", 0)
    assignments = "".join(f", {name} = ?" for name in columns)
    values = list(columns.values())
    db.execute(f"UPDATE tasks SET updated_at = ?{assignments} WHERE id = ?", (event.data["at"], *values, event.task))


def _task_transitioned(db: sqlite3.Connection, seq: int, event: Event) -> None:
    _task_changed(db, seq, event)
    source, target = Phase(event.data["from"]), Phase(event.data["to"])
    step = (target is Phase.COMPLETED) - (source is Phase.COMPLETED)
    if step:
        db.execute(
            "UPDATE tasks SET unmet = unmet - ? WHERE id IN (SELECT task FROM dependencies WHERE needs = ?)",
            (step, event.task),
        )
    for phase, by in ((source, -1), (target, 1)):
        if phase in TERMINAL:
            name = _KIDS[phase]
            db.execute(
                f"UPDATE tasks SET {name} = {name} + ? WHERE id = (SELECT parent FROM tasks WHERE id = ?)",
                (by, event.task),
            )
    if Phase.EXECUTING in (source, target):
        db.execute("UPDATE tasks SET parent_live = ? WHERE parent = ?", (target is Phase.EXECUTING, event.task))


def _needs_changed(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    db.execute("DELETE FROM dependencies WHERE task = ?", (event.task,))
    db.executemany("INSERT OR IGNORE INTO dependencies VALUES (?, ?)", [(event.task, n) for n in event.data["needs"]])
    db.execute("UPDATE tasks SET unmet = ? WHERE id = ?", (_unmet(db, str(event.task)), event.task))


def _attempt_started(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    attempt = from_json(Attempt, event.data["attempt"])
    db.execute(_INSERT_ATTEMPT, tuple(column(getattr(attempt, name)) for name in ATTEMPT_COLUMNS))


def _attempt_changed(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    changes: Mapping[str, Any] = event.data.get("changes", {})
    if set(changes) - set(ATTEMPT_COLUMNS):
        raise ValueError(f"{event.kind} changes unknown columns {sorted(set(changes) - set(ATTEMPT_COLUMNS))}")
    if changes:
        assignments = ", ".join(f"{name} = ?" for name in changes)
        values = [_column(value) for value in changes.values()]
        db.execute(f"UPDATE attempts SET {assignments} WHERE id = ?", (*values, event.data["attempt"]))


def _review_requested(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    data = event.data
    db.execute(
        "INSERT INTO review_requests VALUES (?, ?, ?, ?, 1)"
        " ON CONFLICT (task, gate, round, reviewer) DO UPDATE SET times = times + 1",
        (event.task, data["gate"], data["round"], data["reviewer"]),
    )


def _review_appended(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    review = {**event.data["review"], "task": event.task, "at": event.data["at"]}
    _insert_named(db, "reviews", review)


def _artifact_recorded(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    _insert_named(db, "artifacts", {**event.data["artifact"], "task": event.task, "at": event.data["at"]})


def _message_recorded(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    _insert_named(db, "messages", {**event.data["message"], "task": event.task, "at": event.data["at"]})


def _message_filed(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    db.execute("UPDATE messages SET path = ? WHERE id = ?", (event.data["path"], event.data["id"]))


def _message_undelivered(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    db.execute("UPDATE messages SET verdict = 'undelivered' WHERE id = ?", (event.data["id"],))


def _insert_named(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    names = tuple(row)
    if not all(name.isidentifier() for name in names):
        raise ValueError(f"bad column names for {table}: {names}")
    db.execute(_insert(table, names), tuple(_column(value) for value in row.values()))


_WRITERS: Mapping[Kind, Callable[[sqlite3.Connection, int, Event], None]] = {
    Kind.TASK_CREATED: _task_created,
    Kind.TASK_TRANSITIONED: _task_transitioned,
    Kind.TASK_AMENDED: _task_changed,
    Kind.NEEDS_CHANGED: _needs_changed,
    Kind.ATTEMPT_STARTED: _attempt_started,
    Kind.ATTEMPT_CHECKPOINT: _attempt_changed,
    Kind.ATTEMPT_FINISHED: _attempt_changed,
    Kind.REVIEW_REQUESTED: _review_requested,
    Kind.REVIEW_APPENDED: _review_appended,
    Kind.ARTIFACT_RECORDED: _artifact_recorded,
    Kind.MESSAGE_RECEIVED: _message_recorded,
    Kind.MESSAGE_REJECTED: _message_recorded,
    Kind.MESSAGE_SENT: _message_recorded,
    Kind.MESSAGE_FILED: _message_filed,
    Kind.MESSAGE_UNDELIVERED: _message_undelivered,
}
