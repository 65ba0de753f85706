"""Rows of SQLite <-> values of the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from mailboxd.core.approvals import Approval
from mailboxd.core.changing import made
from mailboxd.core.types import Attempt, Task
from mailboxd.core.wire import read_field
from mailboxd.store.columns import APPROVAL_COLUMNS, ATTEMPT_COLUMNS, STRUCTURES, TASK_COLUMNS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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
    return made(kind, _COLUMNS[kind][0], values)


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
