"""Rows of SQLite <-> values of the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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
_BOOL = {"circuit_open", "broadcast", "cancelled_with_parent", "token_echoed"}
_ENUMS = {"mode", "runtime", "phase", "status", "waiting_for"}


def read_task(row: Sequence[Any]) -> Task:
    return _read(Task, TASK_COLUMNS, _JSON_TASK, row)


def _read(kind: Callable[..., T], names: Sequence[str], structured: set[str], row: Sequence[Any]) -> T:
    values = {}
    for name, value in zip(names, row, strict=True):
        if name in structured:
            value = read_field(kind, name, json.loads(value))
        elif name in _BOOL:
            value = bool(value)
        elif value is not None and name in _ENUMS:
            value = read_field(kind, name, value)
        values[name] = value
    return kind(**values)


def read_attempt(row: Sequence[Any]) -> Attempt:
    return _read(Attempt, ATTEMPT_COLUMNS, _JSON_ATTEMPT, row)
