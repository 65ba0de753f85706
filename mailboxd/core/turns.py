"""Whether a turn that was ordered is still what its task waits for."""

from __future__ import annotations

from mailboxd.core import mending, reviews
from mailboxd.core.effects import RunTurn
from mailboxd.core.terms import AttemptStatus, Phase, Turn
from mailboxd.core.types import Attempt, Task


def is_wanted(task: Task, attempt: Attempt | None, effect: RunTurn) -> bool:
    """False when it was cancelled, answered or overtaken while it was pending."""
    if effect.turn is Turn.REVIEW:
        at_gate = effect.gate is not None and task.phase.value == effect.gate.value
        return at_gate and effect.attempt_id == reviews.fence(task, attempt)
    if effect.turn is Turn.ANSWER and (attempt is None or attempt.question != effect.note):
        return False  # somebody else has answered
    if effect.turn is Turn.DRAFT:
        return task.phase is Phase.SPEC_DRAFT and effect.attempt_id == mending.fence(task.mending.drafts)
    return (
        task.phase is Phase.EXECUTING
        and attempt is not None
        and attempt.id == effect.attempt_id
        and attempt.status is AttemptStatus.RUNNING
    )
