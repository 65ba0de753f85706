"""Rows of SQLite <-> values of the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from mailboxd.core.types import Attempt, Task
from mailboxd.core.wire import read_field
from mailboxd.store.projection import ATTEMPT_COLUMNS, TASK_COLUMNS

T = TypeVar("T")

TASK = ", ".join(f"t.{name}" for name in TASK_COLUMNS)
"""The columns of a task, of a table aliased as t."""
ATTEMPT = ", ".join(ATTEMPT_COLUMNS)
_JSON_TASK = {"spec", "policy", "origin", "said", "extra", "sections"}
_JSON_ATTEMPT = {"usage"}
_BOOL = {"circuit_open", "broadcast", "cancelled_with_parent", "token_echoed", "acknowledged"}
_ENUMS = {"mode", "runtime", "phase", "status", "waiting_for"}


_SHARED = frozenset({"policy", "said", "origin", "extra", "sections", "usage"})
"""Structures that many rows have in common: read once and, being frozen, used by all of them."""


def read_task(row: Sequence[Any]) -> Task:
    return _read(Task, TASK_COLUMNS, _JSON_TASK, row)


def read_attempt(row: Sequence[Any]) -> Attempt:
    return _read(Attempt, ATTEMPT_COLUMNS, _JSON_ATTEMPT, row)


def _read(kind: Callable[..., T], names: Sequence[str], structured: set[str], row: Sequence[Any]) -> T:
    values = dict(zip(names, row, strict=True))
    for name in structured:
        values[name] = _shared(kind, name, values[name]) if name in _SHARED else _parse(kind, name, values[name])
    for name in _ENUMS & values.keys():
        values[name] = read_field(kind, name, values[name])
    for name in _BOOL & values.keys():
        values[name] = bool(values[name])
    return kind(**values)


def _parse(kind: Callable[..., Any], name: str, text: str) -> Any:
    return read_field(kind, name, json.loads(text))


_shared = lru_cache(maxsize=4096)(_parse)
