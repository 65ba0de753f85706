"""Root tasks that follow others, as the files that brought them say.

Such a task begins when all that it follows is completed. It waits in vain for what has failed or was cancelled, and for
what nobody has sent a minute later: then it is on hold, and a person says whether it may begin all the same. It goes on
by itself when what it follows arrives, or is done again.
"""

from __future__ import annotations

from mailboxd.core.decision_builder import DecisionBuilder
from mailboxd.core.events import Kind
from mailboxd.core.followed import IN_VAIN, LOST, TOGETHER, is_in_vain
from mailboxd.core.lifecycle import BEFORE_EXECUTION
from mailboxd.core.task_view import Followed, TaskView
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Notice, Phase


def hold(builder: DecisionBuilder) -> None:
    """Put the task on hold while it waits in vain, unless it is on hold for something else."""
    task = builder.view.task
    if task.phase not in BEFORE_EXECUTION or (task.held and not is_in_vain(task.held)):
        return
    why = _in_vain(builder.view, builder.ctx.now)
    if why == task.held:
        return
    builder.amend(why or "it no longer waits in vain", held=why)
    if why:
        builder.notify(Notice.HOLD)


def let_go(builder: DecisionBuilder) -> None:
    """Begin without what the task waits for in vain, as a person says."""
    kept = tuple(one for one in builder.view.followed if not _lost(one))
    unmet = sum(one.phase is not Phase.COMPLETED for one in kept)
    builder.record(Kind.NEEDS_CHANGED, needs=[one.id for one in kept], note="it begins without what it was to follow")
    builder.see(followed=kept, unmet=unmet)


def _in_vain(view: TaskView, now: str) -> str:
    """Why the task can never begin; empty while it may, and while what is not known may still come."""
    task, lost = view.task, [one for one in view.followed if _lost(one)]
    if not lost:
        return ""
    may_come = not is_in_vain(task.held) and now < plus(task.updated_at, TOGETHER)
    if may_come and all(one.phase is None for one in lost):
        return ""
    said = (f"{one.name}, which {_told(one.phase)}" for one in lost)
    return IN_VAIN + "; and ".join(said)


def _lost(one: Followed) -> bool:
    return one.phase is None or one.phase in LOST


def _told(phase: Phase | None) -> str:
    return "is not known here" if phase is None else phase.told
