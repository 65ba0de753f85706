"""What somebody changed in a task.md, and whether it was theirs to change (protocol section 3).

Legal: adding children, editing or cancelling pending ones, Working Notes, Instructions, and what an agent writes of
its own work (Results, Synthesised Output, its status). Everything else is the store's. What an edited file leaves out
of headers and progress is not an edit: agents write files from memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.core.types import PlannedChild
from mailboxd.messages.plan import STATE, DagNode
from mailboxd.messages.spec import Sections, is_spec_section
from mailboxd.messages.taskfile import TaskFile

_PENDING = ("", "pending")
_FINAL = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class TaskEdit:
    """An edit of a task.md. None = left as it was. With any of `problems` it is illegal as a whole.

    `status` is what the editor claims of the task; it is a claim, not a state. `results` is the text under Results,
    or under Synthesised Output when only that was written.
    """

    added: tuple[PlannedChild, ...] = ()
    changed: tuple[PlannedChild, ...] = ()
    cancelled: tuple[str, ...] = ()
    notes: str | None = None
    results: str | None = None
    instructions: str | None = None
    status: str | None = None
    extra_sections: tuple[tuple[str, str], ...] | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == TaskEdit()


def compare(current: TaskFile, edited: TaskFile) -> TaskEdit:
    """How `edited` differs from `current`, the projection of the store at this moment."""
    added, changed, cancelled, problems = _compare_children(current, edited)
    problems = [*_compare_headers(current, edited), *problems]
    # A section that is left out is no edit: agents write the file from memory. It comes back when it is rendered.
    results = edited.results or current.results
    output = edited.synthesised or current.synthesised
    written = results if results != current.results else output if output != current.synthesised else None
    return TaskEdit(
        added=added,
        changed=changed,
        cancelled=cancelled,
        notes=_new(current.notes, edited.notes),
        results=written,
        instructions=_new(current.instructions, edited.instructions or current.instructions),
        status=edited.status if edited.status not in ("", current.status) else None,
        extra_sections=edited.extra_sections if edited.extra_sections != current.extra_sections else None,
        problems=tuple(problems),
    )


def _new(before: str, after: str) -> str | None:
    return after if after != before else None


def _compare_headers(current: TaskFile, edited: TaskFile) -> list[str]:
    problems = []
    for header, name in (("task_id", "task_id"), ("from", "sender"), ("created_at", "created_at"), ("title", "title")):
        before, after = getattr(current, name), getattr(edited, name)
        if after and after != before:
            problems.append(f"{header} is {before!r} and cannot become {after[:140]!r}")
    if current.status in _FINAL and edited.status not in ("", current.status):
        problems.append(f"the task is {current.status} and cannot become {edited.status}")
    for what, before, after in (
        ("policy", current.overrides, edited.overrides),
        ("extra headers", current.extra_headers, edited.extra_headers),
    ):
        if after and after != before:
            problems.append(f"the {what} of a task that is known cannot be changed here")
    return problems


def _compare_children(
    current: TaskFile, edited: TaskFile
) -> tuple[tuple[PlannedChild, ...], tuple[PlannedChild, ...], tuple[str, ...], list[str]]:
    problems: list[str] = []
    before = {node.key: node for node in current.dag}
    after = {node.key: node for node in edited.dag}
    if before and not after:
        return (), (), (), ["the DAG is gone; to cancel a child set its status to cancelled"]
    added = [node for key, node in after.items() if key not in before]
    problems += [f"{node.key} is new and cannot be {node.status}" for node in added if node.status not in _PENDING]
    changed, cancelled = [], []
    for key, node in before.items():
        if node.status not in _PENDING:
            problems += _rewritten(node, after.get(key))
        elif key not in after or after[key].status == "cancelled":
            cancelled.append(key)
        elif after[key].status not in _PENDING:
            problems.append(f"{key} is pending and cannot be made {after[key].status}")
        elif after[key].planned != node.planned:
            changed.append(after[key].planned)
    if edited.subtask_results and edited.subtask_results != current.subtask_results:
        problems.append("the results of children cannot be rewritten")
    if edited.dag and edited.synthesis is not None and edited.synthesis is not current.synthesis and current.dag:
        problems.append("synthesis cannot be changed while the children run")
    return tuple(node.planned for node in added), tuple(changed), tuple(cancelled), problems


def _rewritten(before: DagNode, after: DagNode | None) -> list[str]:
    """What is wrong with `after`, where `before` is a child that has been given out."""
    if after is None:
        return [f"{before.key} is {before.status} and cannot be removed"]
    if after.planned != before.planned:
        return [f"{before.key} is {before.status} and cannot be edited"]
    return [
        f"{before.key}: {name} is {getattr(before, name)!r} and cannot become {said[:140]!r}"
        for name in STATE
        if (said := getattr(after, name)) and said != getattr(before, name)
    ]


def of_spec(edited: Sections | None, shown: Sections) -> list[str]:
    """The headings of the spec under which an edit says something else than `shown`."""
    said = {heading.casefold(): text for heading, text in shown}
    return [name for name, text in edited or () if is_spec_section(name, text) and said.get(name.casefold()) != text]


def divide(edited: Sections | None, shown: Sections, *, writable: bool) -> tuple[Sections, Sections | None]:
    """What an edit of the extra sections says anew of the spec, and the other sections (None: not edited).

    `shown` is what the file showed of the spec, `writable` whether that may still change; where it may not, what was
    written into it does not count.
    """
    if edited is None:
        return (), None
    headings = {heading for heading, _ in shown}
    own = tuple(item for item in edited if item[0] in headings or (writable and is_spec_section(*item)))
    said = tuple(item for item in own if item not in shown) if writable else ()
    return said, tuple(item for item in edited if item not in own)
