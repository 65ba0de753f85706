"""A task.md that says more than "to be done": what it says was done, has failed or is with a peer, is taken over."""

from __future__ import annotations

from mailboxd.core.inputs import (
    Cancel,
    Imported,
    ImportedDispatched,
    ImportedDone,
    ImportedFailed,
    Start,
)
from mailboxd.core.terms import Mode
from mailboxd.core.types import Task
from mailboxd.engine import Engine
from mailboxd.messages.plan import DagNode
from mailboxd.messages.taskfile import TaskFile

_UNDER_WAY = ("executing", "aggregating", "done", "failed")
ACTOR = "task.md"


def take_over(engine: Engine, task: Task, written: TaskFile) -> None:
    """Bring a task that was just recorded, with its children, to where its file says they are; inside a batch.

    What was in progress here starts again, for nobody knows how far it came. Raises Refused.
    """
    if task.mode is Mode.COORDINATING and written.status in _UNDER_WAY:
        _children(engine, task, written)
    now = engine.store.task(task.id) or task
    if now.phase.is_terminal:
        return
    match written.status:
        case "done":
            result = written.synthesised if task.mode is Mode.COORDINATING else written.results
            engine.hear(task.id, ImportedDone(result), actor=ACTOR)
        case "failed":
            engine.hear(task.id, ImportedFailed(written.results), actor=ACTOR)
        case "cancelled":
            engine.hear(task.id, Cancel(task.sender, "it was cancelled before mailboxd came"), actor=ACTOR)


def _children(engine: Engine, task: Task, written: TaskFile) -> None:
    results = dict(written.subtask_results)
    nodes = {node.key: node for node in written.dag}
    children = engine.store.children(task.id)
    for child in children:
        found = _found(nodes[child.key], results.get(child.key, ""))
        if found is not None:
            engine.hear(child.id, found, actor=ACTOR)
    if written.status not in ("executing", "aggregating"):
        return
    engine.hear(task.id, Start())
    for child in children:
        if nodes[child.key].status == "dispatched" and child.executor != engine.settings.agent and not child.broadcast:
            engine.hear(child.id, ImportedDispatched(), actor=ACTOR)


def _found(node: DagNode, result: str) -> Imported | None:
    if node.status == "done":
        return ImportedDone(result or node.result_summary)
    if node.status == "failed":
        return ImportedFailed(result or node.result_summary)
    return None
