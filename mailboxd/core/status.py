"""clawflow's words for where a task stands: projections of its phase (protocol section 3)."""

from __future__ import annotations

from mailboxd.core.terms import Mode, Phase

RESTING = {
    Phase.COMPLETED: "done",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
    Phase.CIRCUIT_OPEN: "blocked",
    Phase.AWAITING_APPROVAL: "blocked",
}


def task_status(phase: Phase, mode: Mode, *, attempted: bool, has_result: bool) -> str:
    """The `status` that the task's own task.md shows."""
    if phase in RESTING:
        return RESTING[phase]
    if mode is Mode.DIRECT:
        return "in-progress" if attempted else "pending"
    if phase is Phase.EXECUTING:
        return "executing"
    return "aggregating" if has_result else "planning"


def child_status(phase: Phase, *, attempted: bool) -> str:
    """The `status` that the task has as a child in its parent's DAG."""
    return RESTING.get(phase) or ("dispatched" if attempted else "pending")
