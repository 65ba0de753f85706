"""Rows of SQLite and values of the core."""

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
from mailboxd.core.repetition import Repetition

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# Records of the core as columns.

TASK_COLUMNS = tuple(field.name for field in fields(Task))
ATTEMPT_COLUMNS = tuple(field.name for field in fields(Attempt))
APPROVAL_COLUMNS = tuple(field.name for field in fields(Approval))
REPETITION_COLUMNS = tuple(field.name for field in fields(Repetition))
STRUCTURES: Mapping[str, frozenset[str]] = {
    "tasks": frozenset(
        {
            *("stronger", "spec", "policy", "origin", "said", "extra", "sections", "mending", "planned_actions"),
            *("flow", "body", "claims"),
        }
    ),
    "attempts": frozenset({"usage", "verdicts"}),
    "approvals": frozenset({"action"}),
    "reviews": frozenset({"findings"}),
    "messages": frozenset({"stamp", "reason"}),
}
"""The JSON columns of each table."""
_AS_IT_IS = frozenset({str, int, float, type(None)})
"""Types that SQLite stores as they are."""


def _column(plain: Any) -> Any:
    """A value of an event as SQLite stores it: structures as JSON."""
    kind = type(plain)
    if kind is bool:
        return int(plain)
    if kind is dict or kind is list:
        return to_json(plain).decode()
    return str(plain) if isinstance(plain, str) else plain  # an enum member is slow to bind


def columns_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record in an event, as SQLite stores them."""
    return {name: value if type(value) in _AS_IT_IS else _column(value) for name, value in plain.items()}


def row_of(kind: type, plain: Mapping[str, Any]) -> tuple[Any, ...]:
    """The columns of a record in an event, in the order of its fields. Raises KeyError for unknown or missing ones.

    Reads the plain values rather than the record; `to_json` omitted the defaults, so they are filled in.
    """
    defaults, needed = _defaults(kind)
    if unknown := plain.keys() - defaults.keys():
        raise KeyError(f"{kind.__name__} has no {sorted(unknown)}")
    if missing := needed - plain.keys():
        raise KeyError(f"{kind.__name__} needs {sorted(missing)}")
    return tuple({**defaults, **columns_of(plain)}.values())


@cache
def _defaults(kind: type) -> tuple[dict[str, Any], frozenset[str]]:
    """The columns of a record with their defaults, and the names of those without one."""
    plain = {field.name: json_codec.to_json(field.default) for field in fields(kind)}
    needed = frozenset(name for name, value in plain.items() if value is MISSING)
    return {name: None if name in needed else _column(value) for name, value in plain.items()}, needed


@cache
def insert(table: str, columns: tuple[str, ...]) -> str:
    """The INSERT for these columns. Raises ValueError for bad names."""
    if not all(name.isidentifier() for name in columns):
        raise ValueError(f"bad column names for {table}: {columns}")
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


T = TypeVar("T", bound="DataclassInstance")

TASK = ", ".join(f"t.{name}" for name in TASK_COLUMNS)
"""The columns of a task in `tasks t`."""
ATTEMPT = ", ".join(ATTEMPT_COLUMNS)
APPROVAL = ", ".join(APPROVAL_COLUMNS)
COUNTS = (
    "t.seq, t.by_person, t.unmet, t.kids, t.kids_completed, t.kids_failed, t.kids_cancelled,"
    " (SELECT group_concat(o.id, ' ') FROM outbox o WHERE o.task = t.id"
    " AND o.kind IN ('run_turn', 'look_up', 'run_check') AND o.state = 'pending'),"
    " (SELECT group_concat(o.id, ' ') FROM outbox o"
    " WHERE o.task = t.id AND o.kind = 'create_children' AND o.state = 'pending'),"
    " EXISTS (SELECT 1 FROM approvals WHERE approvals.task = t.id),"
    " t.spent_tokens, t.spent_usd, t.turns, t.tree_turns, t.tree_tasks"
)
"""What nearly every decision needs besides the task in `tasks t`: `task_cache.Counts`."""
_BOOL = {
    "circuit_open",
    "broadcast",
    "cancelled_with_parent",
    "skipped",
    "token_echoed",
    "acknowledged",
    "silent",
    "checked",
    "void",
}
_ENUMS = {"executor_kind", "mode", "runtime", "phase", "status", "waiting_for", "purpose", "side_effect_kind", "state"}


_SHARED = frozenset(
    {
        "stronger",
        "policy",
        "said",
        "extra",
        "sections",
        "usage",
        "verdicts",
        "mending",
        "planned_actions",
        "flow",
        "claims",
    }
)
"""Structures that many rows share: parsed once and, being frozen, reused."""


def read_task(row: Sequence[Any]) -> Task:
    return _read(Task, row)


def read_attempt(row: Sequence[Any]) -> Attempt:
    return _read(Attempt, row)


def read_approval(row: Sequence[Any]) -> Approval:
    return _read(Approval, row)


def _read(kind: type[T], row: Sequence[Any]) -> T:
    values = list(row)
    for index, reader in _readers(kind):
        values[index] = reader(values[index])
    return kind(*values)


_Reader = Callable[[Any], Any]


@cache
def _readers(kind: Callable[..., Any]) -> tuple[tuple[int, _Reader], ...]:
    """The columns that need conversion, each with its reader."""
    names, structured = _COLUMNS[kind]
    readers: list[tuple[int, _Reader]] = []
    for index, name in enumerate(names):
        if name in structured:
            readers.append((index, partial(_shared if name in _SHARED else _recent, kind, name)))
        elif name in _ENUMS:
            readers.append((index, partial(read_field, kind, name)))
        elif name in _BOOL:
            readers.append((index, bool))
    return tuple(readers)


def _parse(kind: Callable[..., Any], name: str, text: str | None) -> Any:
    return None if text is None else read_field(kind, name, json.loads(text))


_shared = lru_cache(maxsize=4096)(_parse)
_recent = lru_cache(maxsize=64)(_parse)
"""For structures that rows do not share: a round reads the same few tasks several times."""
_COLUMNS: dict[Callable[..., Any], tuple[Sequence[str], frozenset[str]]] = {
    Task: (TASK_COLUMNS, STRUCTURES["tasks"]),
    Attempt: (ATTEMPT_COLUMNS, STRUCTURES["attempts"]),
    Approval: (APPROVAL_COLUMNS, STRUCTURES["approvals"]),
}
