"""What waits for a person, and what became of approved actions."""

from __future__ import annotations

from mailboxd.core.approvals import Approval
from mailboxd.core.terms import Phase
from mailboxd.store.db import Connected
from mailboxd.store.rows import APPROVAL, read_approval

ASKING = frozenset({Phase.EXECUTING, Phase.AWAITING_APPROVAL, Phase.READY_TO_RESUME})
"""Where what was asked about a task counts for every decision about it."""
_ACTS = "('prepare', 'perform')"


class ApprovalQueries(Connected):
    def approval(self, approval_id: str) -> Approval | None:
        row = self.db.execute(f"SELECT {APPROVAL} FROM approvals WHERE id = ?", (approval_id,)).fetchone()
        return None if row is None else read_approval(row)

    def approvals_of(self, task_id: str) -> tuple[Approval, ...]:
        """All that was ever asked about a task, oldest first."""
        rows = self.db.execute(f"SELECT {APPROVAL} FROM approvals WHERE task = ? ORDER BY rowid", (task_id,))
        return tuple(map(read_approval, rows))

    def performed_under(self, key: str) -> tuple[Approval, ...]:
        """What was begun, in this workspace, under an idempotency key."""
        rows = self.db.execute(
            f"SELECT {APPROVAL} FROM approvals WHERE idempotency_key = ? AND started_at <> ''", (key,)
        )
        return tuple(map(read_approval, rows))

    def expired_approvals(self, now: str) -> list[tuple[str, str]]:
        """Task and id of the requests that nobody has decided in time."""
        return self.db.execute(
            "SELECT task, id FROM approvals WHERE status = 'pending' AND expires_at <= ? ORDER BY expires_at", (now,)
        ).fetchall()

    def ordered_acts(self, task_id: str) -> frozenset[str]:
        """What is ordered about the task's actions, see `core.view`."""
        rows = self.db.execute(
            "SELECT kind || ':' || coalesce(json_extract(data, '$.action.id'), json_extract(data, '$.approval_id'))"
            f" FROM outbox WHERE task = ? AND kind IN {_ACTS} AND state = 'pending'",
            (task_id,),
        )
        return frozenset(row[0] for row in rows)
