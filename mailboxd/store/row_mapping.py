"""Rows of SQLite <-> values of the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import to_json

from mailboxd.core import json_codec
from mailboxd.core.approvals import Approval
from mailboxd.core.json_codec import read_field
from mailboxd.core.model import Attempt, Task

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# ---------------------------------------------------------------------------------------------------------------------
# Records of the core as columns of a table: what the statements that write them are made of.

TASK_COLUMNS = tuple(field.name for field in fields(Task))
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


def _column(plain: Any) -> Any:
    """A plain value, as an event carries it, as SQLite keeps it: scalars as they are, structures as JSON."""
    kind = type(plain)
    if kind is bool:
        return int(plain)
    if kind is dict or kind is list:
        return to_json(plain).decode()
    return str(plain) if isinstance(plain, str) else plain  # a name of the core: SQLite looks long for how to keep it


def columns_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record, as an event carries them, as SQLite keeps them."""
    return {name: value if type(value) in _AS_IT_IS else _column(value) for name, value in plain.items()}


def row_of(kind: type, plain: Mapping[str, Any]) -> tuple[Any, ...]:
    """The columns of a record that an event carries, in the order of its fields. Raises KeyError for others.

    The record itself is not made: `to_json` has left out what is as by default, and so the defaults are columns too.
    """
    defaults, needed = _defaults(kind)
    if unknown := plain.keys() - defaults.keys():
        raise KeyError(f"{kind.__name__} has no {sorted(unknown)}")
    if missing := needed - plain.keys():
        raise KeyError(f"{kind.__name__} needs {sorted(missing)}")
    return tuple({**defaults, **columns_of(plain)}.values())


@cache
def _defaults(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    """The columns of a record of which nothing is said, and the names of those of which something has to be."""
    plain = {field.name: json_codec.to_json(field.default) for field in fields(kind)}
    needed = frozenset(name for name, value in plain.items() if value is MISSING)
    return {name: None if name in needed else _column(value) for name, value in plain.items()}, needed


@cache
def insert(table: str, columns: tuple[str, ...], worked_out: tuple[tuple[str, str], ...] = ()) -> str:
    """The statement that makes a row of these columns, and of those that SQLite works out by what stands beside them.

    Raises ValueError for what cannot be a column.
    """
    if not all(name.isidentifier() for name in columns):
        raise ValueError(f"bad column names for {table}: {columns}")
    names = ", ".join([*columns, *(name for name, _ in worked_out)])
    values = ", ".join([*"?" * len(columns), *(how for _, how in worked_out)])
    return f"INSERT INTO {table} ({names}) VALUES ({values})"


@cache
def update(table: str, columns: tuple[str, ...]) -> str:
    """The statement that gives these columns of a row other values; its last parameter is the row's id."""
    return f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?"


# ---------------------------------------------------------------------------------------------------------------------
# Rows of SQLite <-> values of the core.

T = TypeVar("T", bound="DataclassInstance")

TASK = ", ".join(f"t.{name}" for name in TASK_COLUMNS)
"""The columns of a task, of a table aliased as t."""
ATTEMPT = ", ".join(ATTEMPT_COLUMNS)
APPROVAL = ", ".join(APPROVAL_COLUMNS)
BESIDE = (
    "SELECT t.unmet, t.kids, t.kids_completed, t.kids_failed, t.kids_cancelled,"
    " (SELECT count(*) FROM outbox o WHERE o.task = t.id AND o.kind IN ('run_turn', 'look_up', 'run_check')"
    " AND o.state = 'pending'),"
    " EXISTS (SELECT 1 FROM approvals WHERE approvals.task = t.id),"
    " t.spent_tokens, t.spent_usd, t.turns, t.tree_turns, t.tree_tasks FROM tasks t WHERE t.id = ?"
)
"""What nearly every decision needs beside the task itself, in one statement: asking costs more than answering."""
_BOOL = {
    "circuit_open",
    "broadcast",
    "cancelled_with_parent",
    "token_echoed",
    "acknowledged",
    "silent",
    "checked",
    "void",
}
_ENUMS = {"mode", "runtime", "phase", "status", "waiting_for", "purpose", "side_effect_kind", "state"}


_SHARED = frozenset(
    {"stronger", "policy", "said", "origin", "extra", "sections", "usage", "mending", "planned_actions"}
)
"""Structures that many rows have in common: read once and, being frozen, used by all of them."""


def read_task(row: Sequence[Any]) -> Task:
    return _read(Task, row)


def read_attempt(row: Sequence[Any]) -> Attempt:
    return _read(Attempt, row)


def read_approval(row: Sequence[Any]) -> Approval:
    return _read(Approval, row)


def _read(kind: type[T], row: Sequence[Any]) -> T:
    values = list(row)
    for place, reader in _readers(kind):
        values[place] = reader(values[place])
    return kind(*values)


_Reader = Callable[[Any], Any]


@cache
def _readers(kind: Callable[..., Any]) -> tuple[tuple[int, _Reader], ...]:
    """The columns that SQLite does not keep as they are: which of them, and how each is read."""
    names, structured = _COLUMNS[kind]
    found: list[tuple[int, _Reader]] = []
    for place, name in enumerate(names):
        if name in structured:
            found.append((place, partial(_shared if name in _SHARED else _recent, kind, name)))
        elif name in _ENUMS:
            found.append((place, partial(read_field, kind, name)))
        elif name in _BOOL:
            found.append((place, bool))
    return tuple(found)


def _parse(kind: Callable[..., Any], name: str, text: str) -> Any:
    return read_field(kind, name, json.loads(text))


_shared = lru_cache(maxsize=4096)(_parse)
_recent = lru_cache(maxsize=64)(_parse)
"""For what rows do not have in common: the same few tasks are read several times in one round."""
_COLUMNS: dict[Callable[..., Any], tuple[Sequence[str], frozenset[str]]] = {
    Task: (TASK_COLUMNS, STRUCTURES["tasks"]),
    Attempt: (ATTEMPT_COLUMNS, STRUCTURES["attempts"]),
    Approval: (APPROVAL_COLUMNS, STRUCTURES["approvals"]),
}


# ---------------------------------------------------------------------------------------------------------------------
# Pieces of SQL that several queries share: walks of a tree of tasks, and what may run.

ABOVE = (
    "WITH RECURSIVE above (id, parent) AS (SELECT id, parent FROM tasks WHERE id = ?"
    " UNION ALL SELECT t.id, t.parent FROM above a JOIN tasks t ON t.id = a.parent)"
)
"""The task and all that it is below; its parameter is the task's id."""
BELOW = "WITH RECURSIVE below (id) AS (SELECT ?1 UNION ALL SELECT t.id FROM tasks t JOIN below b ON t.parent = b.id)"
"""The task and all that is below it; ?1 is the task's id."""
ENDED = "('completed', 'failed', 'cancelled')"
"""The phases of tasks that have ended."""
_HELD = (
    "(WITH RECURSIVE below (id) AS (SELECT id FROM tasks WHERE held <> '' UNION ALL"
    " SELECT t.id FROM below b JOIN tasks t ON t.parent = b.id) SELECT id FROM below)"
)
"""The tasks that the operator has to let go on, with all below them."""
RUNNABLE = "phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
"""Tasks that wait for nobody else: as the partial indexes of such tasks say it, or SQLite does not use them."""
OPEN = "phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled'"
"""Tasks that have not ended, as their partial indexes say it: without a list, of which SQLite would make a table."""
GONE = "json_each((SELECT value FROM meta WHERE name = 'gone'))"
"""The agents that work waits for although there is none of that name, by `key`, and why, by `value`."""
STUCK = (
    "FROM tasks t LEFT JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
    f" WHERE {OPEN}"
    " AND (t.phase IN ('awaiting_approval', 'circuit_open') OR t.held <> ''"
    "  OR (a.status = 'running' AND a.waiting_for = 'answer')"
    "  OR (t.phase IN ('spec_draft', 'spec_review', 'spec_gate', 'quality_gate') AND NOT EXISTS"
    "      (SELECT 1 FROM outbox o WHERE o.task = t.id AND o.state = 'pending'))"
    "  OR (t.phase = 'execution_ready' AND t.unmet = 0 AND t.parent_live = 1 AND t.kids = 0"
    f"      AND t.executor IN (SELECT key FROM {GONE})))"
)
"""Tasks (`t`) that go on only when somebody does something. It costs O(open tasks)."""


def is_free(task: str) -> str:
    """Whether the task of that column need not be let go on by the operator. Costs nothing while none is held."""
    return f"(NOT EXISTS (SELECT 1 FROM tasks WHERE held <> '') OR {task} NOT IN {_HELD})"
