"""Names of tasks in this agent's own store: what people type, and what stands in tasks/ (protocol section 2)."""

from __future__ import annotations

import hashlib

_LONGEST = 128


def root_local_id(task_id: str, subtask_id: str | None) -> str:
    """`task_id` for a root task, `task_id.subtask_id` for work that a coordinator sent."""
    return _fit(task_id if subtask_id is None else f"{task_id}.{subtask_id}")


def child_local_id(parent_local_id: str, key: str) -> str:
    return _fit(f"{parent_local_id}.{key}")


def distinct(local_id: str, ordinal: int) -> str:
    """The `ordinal`-th name to try when another sender already uses `local_id`; 1 is the name itself."""
    return local_id if ordinal == 1 else _fit(f"{local_id}-{ordinal}")


def _fit(name: str) -> str:
    """Names past the limit keep their beginning and end in a hash of the whole, so that they stay distinct."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 13].rstrip('.')}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
