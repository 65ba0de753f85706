"""What must hold of planned actions (protocol section 7.4), judged from the log by other code than the core's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DECIDERS = frozenset({"operator", "lobster"})


@dataclass(slots=True)
class Consents:
    """Every request so far, by its id, as the log has told it."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    """The idempotency keys under which something was begun."""

    def _approval_requested(self, task: str, data: dict[str, Any], role: str) -> None:
        row = data["approval"]
        assert role in ("orchestrator", "lobster", "operator"), "only these may ask for an approval"
        assert row["id"] not in self.rows, "a request is made once"
        assert row.get("status", "pending") == "pending" or row["state"] == "done", "nobody is asked, and nothing done"
        if row.get("state") == "done":
            done = [old for old in self.rows.values() if old["idempotency_key"] == row["idempotency_key"]]
            assert any(old.get("state") == "done" for old in done), "it counts as done, and nothing was"
        self.rows[row["id"]] = {**row, "task": task}

    def _approval_resolved(self, _task: str, data: dict[str, Any], role: str) -> None:
        row, changes = self.rows[data["approval"]], data["changes"]
        before, word = row.get("status", "pending"), changes["status"]
        if word == "expired":
            late = row["expires_at"] <= data["at"]
            assert late or changes.get("void"), "it has not expired"
            assert before == "pending" or (before == "approved" and not row.get("state")), "what was decided stays"
        else:
            assert role in DECIDERS, f"the role {role} has decided"
            assert before == "pending", "a person decides once"
            assert data["at"] < row["expires_at"], "decided after it had expired"
        row |= changes

    def _action_started(self, _task: str, data: dict[str, Any], _role: str) -> None:
        row = self.rows[data["approval"]]
        assert row.get("status") == "approved", "it is begun, and nobody approved it"
        assert row["purpose"] != "permission", "a permission is no action"
        assert not row.get("state"), "it is begun twice"
        assert row["idempotency_key"] not in self.keys, "its key was begun before"
        self.keys.add(row["idempotency_key"])
        row |= data["changes"]

    def _action_ended(self, _task: str, data: dict[str, Any], _role: str) -> None:
        row = self.rows[data["approval"]]
        assert row.get("state") not in ("done", "failed"), "what is known is not known better"
        row |= data["changes"]

    def of(self, task: str, attempt: str, actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The requests that count for these actions of an attempt, as far as there are any."""
        rows = [row for row in self.rows.values() if (row["task"], row["attempt"]) == (task, attempt)]
        rows = [row for row in rows if row["purpose"] == "action" and not row.get("void")]
        return [row for row in rows if row["action"] in actions]

    def moved(self, task: str, attempt: str, actions: list[dict[str, Any]], source: str, target: str) -> None:
        """A task with these actions goes from one phase to another."""
        rows = self.of(task, attempt, actions)
        if (source, target) == ("awaiting_approval", "ready_to_resume"):
            assert len(rows) == len(actions), "it goes on without having asked about every action"
            assert all(row.get("status") == "approved" for row in rows), "it goes on without approval"
        if (source, target) == ("ready_to_resume", "completed"):
            assert len(rows) == len(actions), "it is completed with actions that nobody was asked about"
            assert all(row.get("state") == "done" for row in rows), "it is completed, and not every action is done"
        if (source, target) == ("ready_to_resume", "circuit_open"):
            bad = [row for row in rows if row.get("state") in ("failed", "unknown")]
            assert bad, "its circuit opened, and every action is well"
