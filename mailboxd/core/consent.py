"""What people's decisions about planned actions, and what became of these, add up to for their task."""

from __future__ import annotations

from collections.abc import Callable

from mailboxd.core.approvals import ApprovalStatus, Performed
from mailboxd.core.view import View


def all_approved(view: View) -> str | None:
    """By whom, when every planned action is approved."""
    rows = view.live_approvals
    if len(rows) < len(view.task.planned_actions) or any(row.status is not ApprovalStatus.APPROVED for row in rows):
        return None
    return "approved by " + ", ".join(dict.fromkeys(row.resolved_by for row in rows))


def one_is(*statuses: ApprovalStatus) -> Callable[[View], str | None]:
    """The reason, when one of the planned actions was decided so."""

    def holds(view: View) -> str | None:
        row = next((row for row in view.live_approvals if row.status in statuses), None)
        if row is None:
            return None
        note = f": {row.note}" if row.note else ""
        return f"{row.requested_action}: {row.status} by {row.resolved_by}{note}"

    return holds


def all_performed(view: View) -> str | None:
    """How many, when every planned action has happened."""
    rows = view.live_approvals
    if len(rows) < len(view.task.planned_actions) or any(row.state is not Performed.DONE for row in rows):
        return None
    return f"{len(rows)} action{'s' * (len(rows) > 1)} performed"


def one_uncertain(view: View) -> str | None:
    """Which one failed, or may have happened and nobody can tell."""
    for row in view.live_approvals:
        if row.state is Performed.FAILED or (row.state is Performed.UNKNOWN and row.checked):
            return f"{row.requested_action} ({row.short_id}): {row.state}: {row.summary}"
    return None
