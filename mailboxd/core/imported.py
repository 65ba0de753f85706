"""Work that was begun without mailboxd (by hand, or by another clawflow tool) and is taken over as it stands."""

from __future__ import annotations

from mailboxd.core.attempts import begin
from mailboxd.core.draft import Draft
from mailboxd.core.inputs import Imported, ImportedDispatched, ImportedDone, ImportedFailed
from mailboxd.core.lifecycle import Trigger
from mailboxd.core.settle import announce_end
from mailboxd.core.terms import Phase, Waiting
from mailboxd.core.text import first_line
from mailboxd.core.times import plus
from mailboxd.errors import Refused


def imported(draft: Draft, found: Imported) -> None:
    """Bring a task that was just recorded to where its file says it is. Its gates are not asked again."""
    match found:
        case ImportedDone(result):
            summary = first_line(result)
            draft.artifact("primary_output", result, summary, draft.task.executor)
            draft.move(Trigger.IMPORTED_DONE, "it was done before mailboxd came", result=result, result_summary=summary)
        case ImportedFailed(error):
            draft.move(Trigger.IMPORTED_FAILED, error or "it had failed before mailboxd came", error=error)
            announce_end(draft)
        case ImportedDispatched():
            _dispatched(draft)


def _dispatched(draft: Draft) -> None:
    """An attempt that nobody orders: its reply is waited for, as for one that was acknowledged."""
    view, task, ctx = draft.view, draft.task, draft.ctx
    if task.phase is not Phase.EXECUTION_READY or view.parent_phase is not Phase.EXECUTING or view.unmet:
        raise Refused("not-ready", f"{task.local_id} cannot be under way: it needs what is not done")
    draft.move(
        Trigger.ATTEMPT_STARTED,
        f"{task.executor} had it before mailboxd came; its reply is waited for",
        attempt=begin(draft, Waiting.REPLY),
        dispatched_at=ctx.now,
        due=plus(ctx.now, task.policy.reply_within),
    )
