"""What an edit of a task.md was made to: who saves a file has read it at some moment, and much may have come since.

New instructions, an answer or `mailboxd spec` change what the file shows of the spec. An edit of an older version takes
nothing of that back: its author has not seen it.
"""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core.types import Task
from mailboxd.engine import Engine
from mailboxd.messages.spec import Sections, is_spec_section, shown_sections
from mailboxd.messages.taskedit import TaskEdit
from mailboxd.messages.taskfile import TaskFile
from mailboxd.taskfiles.showing import picture


def as_read(engine: Engine, task: Task, current: TaskFile, written: TaskFile) -> TaskFile:
    """`current` with the spec as the file showed it to the author of `written`: `updated_at`, which he left, says when.

    Without it he counts as one who has read the first version.
    """
    if written.updated_at == current.updated_at:
        return current
    spec = engine.store.as_was(task, written.updated_at).spec
    read = picture(engine, replace(task, spec=spec))
    return replace(current, instructions=read.instructions, extra_sections=read.extra_sections)


def caught_up(task: Task, edit: TaskEdit, read: TaskFile) -> TaskEdit:
    """An edit that was made to `read`, as one of what the spec of the task says now."""
    now = TaskFile(instructions=task.spec.instructions, extra_sections=shown_sections(task.spec, task.title))
    said = edit.instructions
    if said is not None:
        said = _with_what_came(read.instructions, now.instructions, said)
    sections = edit.extra_sections
    if sections is not None:
        sections = _with_others_words(read.extra_sections, now.extra_sections, sections)
    return replace(edit, instructions=said if said != now.instructions else None, extra_sections=sections)


def _with_what_came(read: str, now: str, said: str) -> str:
    """New instructions are only ever put behind those before; where somebody wrote them anew, the last word counts."""
    came = now.removeprefix(read).strip() if now.startswith(read) else ""
    return said if came in said else f"{said}\n\n{came}"


def _with_others_words(read: Sections, now: Sections, said: Sections) -> Sections:
    """The sections as they are said, those of the spec that are as they were read as they are now."""
    texts = {heading.casefold(): text for heading, text in now}
    return tuple(
        (
            heading,
            texts.get(heading.casefold(), text) if (heading, text) in read and is_spec_section(heading, text) else text,
        )
        for heading, text in said
    )
