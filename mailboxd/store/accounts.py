"""What was spent, up the tree, what is held for it, and the breakers of agents."""

from __future__ import annotations

from typing import Any

from mailboxd.core.allowance import Spent
from mailboxd.core.breaker import Breaker, State
from mailboxd.core.types import Policy, Task
from mailboxd.store.recent import RecentQueries

_BREAKER = "agent, state, failures, times, until, reason"


class AccountQueries(RecentQueries):
    def spent(self, task_id: str) -> Spent:
        """What the task and all below it used; the turns are its own."""
        row = self.db.execute("SELECT spent_tokens, spent_usd, turns FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return Spent(*row)

    def budgeted(self, task_id: str) -> list[Task]:
        """The task and those above it that have a budget and are not held yet, the nearest first."""
        return [task for task in self.above(task_id) if not task.held and _has_budget(task.policy)]

    def left(self, task_id: str) -> tuple[float | None, int | None]:
        """Dollars and tokens that are left of the tightest budget at or above the task; None = there is none."""
        usd: list[float] = []
        tokens_: list[int] = []
        for task in self.budgeted(task_id):
            spent = self.spent(task.id)
            if task.policy.budget_usd is not None:
                usd.append(max(task.policy.budget_usd - spent.usd, 0.0))
            if task.policy.budget_tokens is not None:
                tokens_.append(max(task.policy.budget_tokens - spent.tokens, 0))
        return min(usd, default=None), min(tokens_, default=None)

    def is_held(self, task_id: str) -> bool:
        """Whether the task, or one above it, waits for the operator to let it go on."""
        return any(task.held for task in self.above(task_id))

    def turns_since(self, agent: str, since: str) -> list[str]:
        """When turns of an agent were ordered after `since`, oldest first."""
        rows = self.db.execute(
            "SELECT at FROM outbox WHERE kind = 'run_turn' AND agent = ? AND at > ? ORDER BY seq", (agent, since)
        )
        return [row[0] for row in rows]

    # -------------------------------------------------------------- breakers

    def breaker(self, agent: str) -> Breaker:
        name = agent.lower()
        if (known := self._recent.breakers.get(name)) is not None and self._holds():
            return known
        row = self.db.execute(f"SELECT {_BREAKER} FROM breakers WHERE agent = ?", (name,)).fetchone()
        found = Breaker(name) if row is None else _breaker(row)
        if self.db.in_transaction:
            self._recent.breakers[name] = found
        return found

    def broken(self) -> list[Breaker]:
        """The breakers that are not closed."""
        rows = self.db.execute(f"SELECT {_BREAKER} FROM breakers WHERE state <> 'closed' ORDER BY agent")
        return [_breaker(row) for row in rows]


def _has_budget(policy: Policy) -> bool:
    return policy.budget_usd is not None or policy.budget_tokens is not None or policy.max_turns > 0


def _breaker(row: Any) -> Breaker:
    agent, state, failures, times, until, reason = row
    return Breaker(agent, State(state), failures, times, until, reason)
