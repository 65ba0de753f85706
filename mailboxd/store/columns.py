"""Records of the core as columns of a table: what the statements that write them are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from pydantic_core import to_json

from mailboxd.core import wire
from mailboxd.core.approvals import Approval
from mailboxd.core.types import Attempt, Task

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
    plain = {field.name: wire.to_json(field.default) for field in fields(kind)}
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
