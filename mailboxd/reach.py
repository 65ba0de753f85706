"""Which tasks an operator's retry concerns: what runs again, and what has to be opened again so that it can.

Nothing that completed is run again unless it is named, or needs what is (`Retry.with_dependants`). Whatever ended
above a task that runs again is opened as well: it puts its results together anew, and keeps those of the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from mailboxd.core.inputs import Retry
from mailboxd.core.terms import TERMINAL, Join, Phase, Waiting
from mailboxd.core.types import Task
from mailboxd.errors import Refused
from mailboxd.store.store import Store

_REOPENED = (Phase.COMPLETED, Phase.FAILED)
_PENDING = (Phase.SPEC_DRAFT, Phase.SPEC_REVIEW, Phase.EXECUTION_READY)


def retried(store: Store, task: Task, order: Retry) -> list[str]:
    """The ids of all tasks that a retry of `task` concerns, parents first. Raises Refused."""
    if order.only_failed:
        return _only_failed(store, task)
    above = _ended_above(store, task)
    top = above[-1] if above else task
    concerned = {one.id: one for one in (*above, task)}
    for fallen in store.fallen_below(top.id, also=task.id):
        concerned.setdefault(fallen, _load(store, fallen))
    if task.broadcast and task.phase is Phase.COMPLETED:
        concerned |= {copy.id: copy for copy in store.children(task.id)}
    if order.with_dependants:
        concerned |= _dependants(store, (task, *above), concerned)
    return _parents_first(concerned.values())


def _only_failed(store: Store, task: Task) -> list[str]:
    """What failed at or below the task, open circuits too. Raises Refused."""
    itself = task.phase in (Phase.FAILED, Phase.CIRCUIT_OPEN) or task.cancelled_with_parent
    fallen = [_load(store, one) for one in store.fallen_below(task.id, also="", open_circuits=True)]
    if task.phase is Phase.COMPLETED or not (fallen or itself):
        raise Refused("not-failed", f"nothing has failed at or below {task.local_id}", "See `mailboxd tree`.")
    return _parents_first((*_ended_above(store, task), *([task] if itself else []), *fallen))


def _ended_above(store: Store, task: Task) -> list[Task]:
    """The ancestors that ended, from the nearest up: without them the task could not run."""
    above: list[Task] = []
    below = task
    while below.parent is not None:
        parent = _load(store, below.parent)
        _may_reopen(store, parent, below)
        if parent.phase not in _REOPENED:
            break
        above.append(parent)
        below = parent
    return above


def _may_reopen(store: Store, parent: Task, child: Task) -> None:
    """Raise Refused where the parent has decided without the child, or is deciding just now."""
    if child.phase not in TERMINAL:
        return
    if parent.broadcast and parent.policy.join is not Join.ALL and parent.phase in _REOPENED:
        problem = f"{child.local_id} is one copy of the broadcast {parent.local_id}, which is decided"
        raise Refused("parent-ended", problem, f"Retry {parent.local_id} instead: all copies run again.")
    attempt = store.attempt(parent.id, parent.attempt)
    if parent.phase is Phase.EXECUTING and attempt is not None and attempt.waiting_for is not Waiting.CHILDREN:
        problem = f"{parent.local_id} is putting the results of its children together"
        raise Refused("parent-busy", problem, "Wait until it has ended, then retry.")


def _dependants(store: Store, sources: Iterable[Task], known: dict[str, Task]) -> dict[str, Task]:
    """Everything that needs one of `sources`, however indirectly, with all that was made below it. Raises Refused."""
    found: dict[str, Task] = {}
    waiting = [(source, False) for source in sources]  # each with whether what stands below it is meant, too
    while waiting:
        task, whole = waiting.pop()
        for one in (*store.dependants(task.id), *(store.children(task.id) if whole else ())):
            if one.id in found or one.phase in _PENDING or (one.phase is Phase.CANCELLED and one.id not in known):
                continue
            if one.phase not in (*_REOPENED, Phase.CANCELLED, Phase.CIRCUIT_OPEN):
                problem = f"{one.local_id} is {one.phase} with the result that would be replaced"
                raise Refused("dependant-running", problem, "Wait until it has ended, or retry without dependants.")
            found[one.id] = one
            fresh = [above for above in _ended_above(store, one) if above.id not in known and above.id not in found]
            found |= {above.id: above for above in fresh}
            waiting += [(one, True), *((above, False) for above in fresh)]
    return found


def _parents_first(tasks: Iterable[Task]) -> list[str]:
    return [task.id for task in sorted(tasks, key=lambda task: (task.depth, task.id))]


def _load(store: Store, task_id: str) -> Task:
    task = store.task(task_id)
    if task is None:
        raise AssertionError(f"{task_id} is named by another task and is not there")
    return task
