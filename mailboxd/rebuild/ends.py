"""What the words of a task.md say of how work ended."""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core.outcomes import Failed, Outcome, Permanence, Succeeded, Unknown
from mailboxd.core.terms import Phase
from mailboxd.messages.plan import DagNode
from mailboxd.messages.taskfile import TaskFile

UNTOLD = "an attempt that no file tells of"
"""The error of an attempt that must have failed, for there was a later one."""
_LOST = "the database was made again from files, which do not say how this turn ended"


def as_it_came(written: TaskFile) -> TaskFile:
    """Without the progress that it shows: that happens again, each at its moment."""
    dag = tuple(DagNode(node.planned) for node in written.dag)
    return replace(written, status="", results="", synthesised="", subtask_results=(), dag=dag)


def agrees(phase: Phase, status: str) -> bool:
    """Whether a task in this phase stands where this word of clawflow's says that it ended."""
    ends = {"done": Phase.COMPLETED, "failed": Phase.FAILED, "cancelled": Phase.CANCELLED}
    return ends.get(status, Phase.CIRCUIT_OPEN) is phase


def outcome_of(status: str, text: str) -> Outcome:
    """How the last turn of a task ended that ended so."""
    if status == "done":
        return Succeeded(text)
    if status == "failed":
        return Failed(text or _LOST, Permanence.PERMANENT)
    return Unknown(_LOST, looked_up=True)
