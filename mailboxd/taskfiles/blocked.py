"""The section of a task.md that says what is blocked in it, what was tried, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence

from mailboxd.core.picture import Cause
from mailboxd.core.terms import Phase
from mailboxd.core.types import Task
from mailboxd.core.why import explain
from mailboxd.store import picture
from mailboxd.store.store import Store

HEADING = "Blocked"
_MOST = 20


def blocked_section(store: Store, task: Task, children: Sequence[Task], now: str) -> tuple[tuple[str, str], ...]:
    """Every open circuit and every hold of the task and its children; nothing when there is none.

    It is told by the same explanation as `mailboxd why`: what was tried, by whom, for how long and at what cost.
    """
    lines = [line for one in (task, *children) if _is_blocked(one) for line in _lines(store, one, now)]
    return ((HEADING, "\n".join(lines[: _MOST * 4])),) if lines else ()


def _is_blocked(task: Task) -> bool:
    return task.phase is Phase.CIRCUIT_OPEN or bool(task.held and not task.phase.is_terminal)


def _lines(store: Store, task: Task, now: str) -> list[str]:
    # Of the task alone: what it waits for has a file, or an entry, of its own.
    told = explain(picture.load(store.db, [task.id], now, 0, neighbours=False), task.id)
    lines = [line for cause in told.causes[:_MOST] for line in _told(cause)]
    if task.stronger.why:
        lines.append(f"  - escalated: {task.stronger.why}")
    if task.result:
        lines.append(f"  - last good result: {task.result_summary}")
    return lines


def _told(cause: Cause) -> list[str]:
    indent = "  " * cause.depth
    when = f" (at {cause.at}: {cause.then})" if cause.at and cause.then else ""
    lines = [f"{indent}- {cause.task}: {cause.text}{when}"]
    return [*lines, f"{indent}  `{cause.hint}`"] if cause.hint else lines
