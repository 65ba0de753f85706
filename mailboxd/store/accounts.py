"""What was spent, up the tree, what is held for it, and the breakers of agents."""

from __future__ import annotations

from typing import Any

from mailboxd.core.allowance import Spent
from mailboxd.core.breaker import Breaker, State
from mailboxd.core.budget import over
from mailboxd.core.types import Policy, Task
from mailboxd.store.recent import RecentQueries

_SPENT = "spent_tokens, spent_usd, turns, tree_turns, tree_tasks"
_BREAKER = "agent, state, failures, times, until, reason"


class AccountQueries(RecentQueries):
    def spent(self, task_id: str) -> Spent:
        """What the task and all below it used, or its tree; `turns` are its own."""
        return Spent(*self.db.execute(f"SELECT {_SPENT} FROM tasks WHERE id = ?", (task_id,)).fetchone())

    def used_up(self, task_id: str) -> list[str]:
        """Of the task and those above it, the nearest first, the ids of those whose budget is used up and that are not
        held for it yet.
        """
        bound = {task.id: task for task in self.above(task_id) if not task.held and _is_bound(task, task_id)}
        if not bound:
            return []
        marks = ", ".join("?" * len(bound))
        rows = self.db.execute(f"SELECT id, {_SPENT} FROM tasks WHERE id IN ({marks})", tuple(bound))
        spent = {name: Spent(*row) for name, *row in rows}
        return [name for name, task in bound.items() if over(task.policy, spent[name])]

    def left(self, task_id: str) -> tuple[float | None, int | None]:
        """Dollars and tokens that are left of the tightest budget at or above the task; None = there is none."""
        usd: list[float] = []
        tokens_: list[int] = []
        for task in self.above(task_id):
            if task.held or not _has_budget(task.policy):
                continue
            spent = self.spent(task.id)
            if task.policy.budget_usd is not None:
                usd.append(max(task.policy.budget_usd - spent.usd, 0.0))
            if task.policy.budget_tokens is not None:
                tokens_.append(max(task.policy.budget_tokens - spent.tokens, 0))
        return min(usd, default=None), min(tokens_, default=None)

    def is_held(self, task_id: str) -> bool:
        """Whether the task, or one above it, waits for the operator to let it go on."""
        return any(task.held for task in self.above(task_id))

    def latest_turn(self, agent: str, number: int) -> str | None:
        """When the agent's latest turn but `number` - 1 was ordered; None if it never had so many."""
        row = self.db.execute(
            "SELECT at FROM outbox WHERE kind = 'run_turn' AND agent = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (agent, number - 1),
        ).fetchone()
        return None if row is None else row[0]

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
    return policy.budget_usd is not None or policy.budget_tokens is not None


def _is_bound(task: Task, turn_of: str) -> bool:
    """Whether a turn of the task `turn_of`, or a plan of it, can use up what this one is bounded by."""
    own = task.policy.max_turns > 0 and task.id == turn_of
    tree = task.parent is None and (task.policy.max_tree_turns > 0 or task.policy.max_tree_tasks > 0)
    return own or tree or _has_budget(task.policy)


def _breaker(row: Any) -> Breaker:
    agent, state, failures, times, until, reason = row
    return Breaker(agent, State(state), failures, times, until, reason)
