"""What the task.md of a task shows: the store's words, as the record that is rendered."""

from __future__ import annotations

from mailboxd.core.status import child_status, task_status
from mailboxd.core.terms import SELF, Mode
from mailboxd.core.types import PlannedChild, Task
from mailboxd.engine import Engine
from mailboxd.messages.plan import DagNode
from mailboxd.messages.spec import shown_sections
from mailboxd.messages.taskfile import TaskFile
from mailboxd.taskfiles.blocked import blocked_section


def picture(engine: Engine, task: Task) -> TaskFile:
    """What the task.md of a task shows."""
    children = engine.store.children(task.id) if task.mode is Mode.COORDINATING else []
    needs = engine.store.needs_by_key(task.id) if children else {}
    blocked = blocked_section(engine.store, task, children, engine.clock.now())
    return TaskFile(
        task_id=task.task_id,
        title=task.title,
        mode=task.mode,
        status=_status(task),
        sender=task.sender,
        created_at=task.created_at,
        updated_at=task.updated_at,
        instructions=task.spec.instructions,
        notes=task.notes,
        results=task.result or task.error if task.mode is Mode.DIRECT else "",
        dag=tuple(_node(engine, child, tuple(needs.get(child.key, ()))) for child in children),
        subtask_results=tuple((c.key, c.result or c.error) for c in children if c.phase.is_terminal),
        synthesised=task.result if task.mode is Mode.COORDINATING else "",
        extra_headers=task.extra,
        extra_sections=shown_sections(task.spec, task.title) + blocked + task.sections,
    )


def _node(engine: Engine, child: Task, needs: tuple[str, ...]) -> DagNode:
    copies = tuple(copy.executor for copy in engine.store.children(child.id)) if child.broadcast else ()
    return DagNode(
        _planned(child, engine.settings.agent, needs, copies),
        status=child_status(child.phase, attempted=child.attempt > 0),
        dispatched_at=child.dispatched_at or "",
        completed_at=child.completed_at or "",
        result_summary=child.result_summary or child.error,
    )


def _status(task: Task) -> str:
    """clawflow's word for where a task stands."""
    return task_status(task.phase, task.mode, attempted=task.attempt > 0, has_result=bool(task.result))


def _planned(task: Task, own: str, needs: tuple[str, ...], copies: tuple[str, ...] = ()) -> PlannedChild:
    """A child as its plan would name it now; `own` is the agent that is `self` here."""
    spec, given_to = task.spec, task.stronger.instead_of or task.executor
    return PlannedChild(
        key=task.key,
        agents=copies or (SELF if given_to == own else given_to,),
        description=spec.goal,
        depends_on=needs,
        instructions=spec.instructions if spec.instructions != spec.goal else "",
        expected_output=spec.expected_output,
        checks=spec.checks,
        planned_actions=spec.planned_actions,
        overrides=task.said,
        extra=task.extra,
    )
