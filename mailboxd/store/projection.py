"""From events to tables: what each kind of event changes. The only code that writes to the replayed tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from pydantic_core import to_json

from mailboxd.core import wire
from mailboxd.core.approvals import Approval
from mailboxd.core.events import Event, Kind
from mailboxd.core.terms import TERMINAL, Lost, Phase
from mailboxd.core.types import Attempt, Task
from mailboxd.store import spending

TASK_COLUMNS = tuple(field.name for field in fields(Task))
_TASK = frozenset(TASK_COLUMNS)
ATTEMPT_COLUMNS = tuple(field.name for field in fields(Attempt))
APPROVAL_COLUMNS = tuple(field.name for field in fields(Approval))
STRUCTURES: Mapping[str, frozenset[str]] = {
    "tasks": frozenset(
        {"stronger", "spec", "policy", "origin", "said", "extra", "sections", "mending", "planned_actions"}
    ),
    "attempts": frozenset({"usage"}),
    "approvals": frozenset({"action"}),
    "reviews": frozenset({"findings"}),
    "messages": frozenset({"stamp", "reason"}),
}
"""The columns of each table that are JSON."""
_AS_IT_IS = frozenset({str, int, float, type(None)})
"""Types of plain values that SQLite keeps as they are."""
_LOST = {Lost.UNREADABLE: "unreadable", Lost.FAILED: "failures", Lost.STALLED: "stalls"}
_KIDS = {Phase.COMPLETED: "kids_completed", Phase.FAILED: "kids_failed", Phase.CANCELLED: "kids_cancelled"}


_CHANGES = frozenset({Kind.TASK_TRANSITIONED, Kind.TASK_AMENDED})
_CONCERNS_OTHERS = TERMINAL | {Phase.EXECUTING}
"""Phases whose beginning and end change rows of the task's neighbours, too."""


def project(db: sqlite3.Connection, seq: int, events: Sequence[Event]) -> None:
    """Apply events that follow each other to the tables; `seq` is the number of the first.

    A task that passes several phases at once has its row written once.
    """
    first, held = seq, events[0]
    for number, event in enumerate(events[1:], seq + 1):
        if (both := _in_one(held, event)) is not None:
            held = both
        else:
            _write(db, first, held)
            first, held = number, event
    _write(db, first, held)


def _write(db: sqlite3.Connection, seq: int, event: Event) -> None:
    if (writer := _WRITERS.get(event.kind)) is not None:
        writer(db, seq, event)


def _in_one(before: Event, event: Event) -> Event | None:
    """A task's coming into being, or a change of it, and the change that follows: as one event, where that is the same.

    None where it is not.
    """
    if event.kind not in _CHANGES or event.task != before.task:
        return None
    data, more = before.data, event.data
    if before.kind is Kind.TASK_CREATED and more.get("to") not in _CONCERNS_OTHERS:
        task = {**data["task"], **more["changes"], "updated_at": more["at"]}
        return Event(Kind.TASK_CREATED, event.task, {**data, "task": task})
    if before.kind not in _CHANGES:
        return None
    both = {**data, **more, "changes": {**data["changes"], **more["changes"]}}
    if "from" in data:
        both["from"] = data["from"]
    return Event(Kind.TASK_TRANSITIONED if "to" in both else Kind.TASK_AMENDED, event.task, both)


def _column(plain: Any) -> Any:
    """A plain value, as an event carries it, as SQLite keeps it: scalars as they are, structures as JSON."""
    kind = type(plain)
    if kind is bool:
        return int(plain)
    if kind is dict or kind is list:
        return to_json(plain).decode()
    return str(plain) if isinstance(plain, str) else plain  # a name of the core: SQLite looks long for how to keep it


def _columns(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if type(value) in _AS_IT_IS else _column(value) for name, value in plain.items()}


def _row(kind: type, plain: Mapping[str, Any]) -> tuple[Any, ...]:
    """The columns of a record that an event carries, in the order of its fields. Raises KeyError for others.

    The record itself is not made: `to_json` has left out what is as by default, and so the defaults are columns too.
    """
    defaults, needed = _defaults(kind)
    if unknown := plain.keys() - defaults.keys():
        raise KeyError(f"{kind.__name__} has no {sorted(unknown)}")
    if missing := needed - plain.keys():
        raise KeyError(f"{kind.__name__} needs {sorted(missing)}")
    return tuple({**defaults, **_columns(plain)}.values())


@cache
def _defaults(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    """The columns of a record of which nothing is said, and the names of those of which something has to be."""
    plain = {field.name: wire.to_json(field.default) for field in fields(kind)}
    needed = frozenset(name for name, value in plain.items() if value is MISSING)
    return {name: None if name in needed else _column(value) for name, value in plain.items()}, needed


@cache
def _insert(table: str, columns: tuple[str, ...]) -> str:
    if not all(name.isidentifier() for name in columns):
        raise ValueError(f"bad column names for {table}: {columns}")
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


_INSERT_TASK = _insert("tasks", (*TASK_COLUMNS, "seq", "unmet", "parent_live", "priority", "deadline"))
_INSERT_APPROVAL = _insert("approvals", APPROVAL_COLUMNS)
_INSERT_ATTEMPT = _insert("attempts", ATTEMPT_COLUMNS)


def _task_created(db: sqlite3.Connection, seq: int, event: Event) -> None:
    task: Mapping[str, Any] = event.data["task"]
    needs, parent = event.data["needs"], task.get("parent")
    unmet, parent_live = 0, 1
    if needs:
        db.executemany("INSERT OR IGNORE INTO dependencies VALUES (?, ?)", [(task["id"], need) for need in needs])
        unmet = _unmet(db, task["id"])
    if parent is not None:
        db.execute("UPDATE tasks SET kids = kids + 1 WHERE id = ?", (parent,))
        row = db.execute("SELECT phase = 'executing' FROM tasks WHERE id = ?", (parent,)).fetchone()
        parent_live = row[0]
    policy: Mapping[str, Any] = task.get("policy", {})
    ranks = policy.get("priority", 0), policy.get("deadline")
    db.execute(_INSERT_TASK, (*_row(Task, task), seq, unmet, parent_live, *ranks))


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
    if unknown := changes.keys() - _TASK:
        raise ValueError(f"{event.kind} changes unknown columns {sorted(unknown)}")
    columns = _columns(changes)
    if "policy" in changes:
        columns["priority"] = changes["policy"].get("priority", 0)
        columns["deadline"] = changes["policy"].get("deadline")
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
    db.execute(_INSERT_ATTEMPT, _row(Attempt, event.data["attempt"]))


def _attempt_changed(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    _change(db, "attempts", ATTEMPT_COLUMNS, event.data["attempt"], event)


def _approval_requested(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    db.execute(_INSERT_APPROVAL, _row(Approval, event.data["approval"]))


def _approval_changed(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    _change(db, "approvals", APPROVAL_COLUMNS, event.data["approval"], event)


def _change(db: sqlite3.Connection, table: str, columns: tuple[str, ...], row_id: str, event: Event) -> None:
    """Apply the changes that the event carries to one row. Raises ValueError for columns that there are none of."""
    changes: Mapping[str, Any] = event.data.get("changes", {})
    if unknown := set(changes) - set(columns):
        raise ValueError(f"{event.kind} changes unknown columns {sorted(unknown)}")
    if changes:
        assignments = ", ".join(f"{name} = ?" for name in changes)
        db.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*_columns(changes).values(), row_id))


def _review_requested(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    data = event.data
    db.execute(
        "INSERT INTO review_requests VALUES (?, ?, ?, ?, 1, 0, 0, 0)"
        " ON CONFLICT (task, gate, round, reviewer) DO UPDATE SET times = times + 1",
        (event.task, data["gate"], data["round"], data["reviewer"]),
    )


def _review_lost(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    data = event.data
    column_ = _LOST[Lost(data["why"])]
    db.execute(
        f"UPDATE review_requests SET {column_} = {column_} + 1"
        " WHERE task = ? AND gate = ? AND round = ? AND reviewer = ?",
        (event.task, data["gate"], data["round"], data["reviewer"]),
    )


def _review_appended(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    review = {**event.data["review"], "task": event.task, "at": event.data["at"]}
    _insert_named(db, "reviews", review)


def _check_ended(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    _insert_named(db, "check_runs", {**event.data["check"], "task": event.task, "at": event.data["at"]})


def _artifact_recorded(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    _insert_named(db, "artifacts", {**event.data["artifact"], "task": event.task, "at": event.data["at"]})


def _message_recorded(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    _insert_named(db, "messages", {**event.data["message"], "task": event.task, "at": event.data["at"]})


def _message_filed(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    db.execute("UPDATE messages SET path = ? WHERE id = ?", (event.data["path"], event.data["id"]))


def _message_undelivered(db: sqlite3.Connection, _seq: int, event: Event) -> None:
    db.execute("UPDATE messages SET verdict = 'undelivered' WHERE id = ?", (event.data["id"],))


def _insert_named(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    db.execute(_insert(table, tuple(row)), tuple(_columns(row).values()))


_WRITERS: Mapping[Kind, Callable[[sqlite3.Connection, int, Event], None]] = {
    Kind.TASK_CREATED: _task_created,
    Kind.TASK_TRANSITIONED: _task_transitioned,
    Kind.TASK_AMENDED: _task_changed,
    Kind.NEEDS_CHANGED: _needs_changed,
    Kind.ATTEMPT_STARTED: _attempt_started,
    Kind.ATTEMPT_CHECKPOINT: _attempt_changed,
    Kind.ATTEMPT_FINISHED: _attempt_changed,
    Kind.TURN_ENDED: spending.usage_recorded,
    Kind.USAGE_REPORTED: spending.usage_recorded,
    Kind.BREAKER_OPENED: spending.breaker_moved,
    Kind.BREAKER_HALF_OPEN: spending.breaker_moved,
    Kind.BREAKER_CLOSED: spending.breaker_moved,
    Kind.REVIEW_REQUESTED: _review_requested,
    Kind.REVIEW_LOST: _review_lost,
    Kind.REVIEW_APPENDED: _review_appended,
    Kind.CHECK_ENDED: _check_ended,
    Kind.APPROVAL_REQUESTED: _approval_requested,
    Kind.APPROVAL_RESOLVED: _approval_changed,
    Kind.ACTION_STARTED: _approval_changed,
    Kind.ACTION_DELAYED: _approval_changed,
    Kind.ACTION_ENDED: _approval_changed,
    Kind.ARTIFACT_RECORDED: _artifact_recorded,
    Kind.MESSAGE_RECEIVED: _message_recorded,
    Kind.MESSAGE_REJECTED: _message_recorded,
    Kind.MESSAGE_SENT: _message_recorded,
    Kind.MESSAGE_FILED: _message_filed,
    Kind.MESSAGE_UNDELIVERED: _message_undelivered,
}
