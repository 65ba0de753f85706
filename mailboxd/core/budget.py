"""What a task and all below it may cost, and what happens when that is used up: it is held for the operator.

A budget covers the whole tree of the task that has it; one further down is a bound inside. Used up means: no further
turn starts. A turn that is running is let finish, and nothing is killed. The number of turns is counted per task.
"""

from __future__ import annotations

from typing import Any

from mailboxd.core.allowance import Spent
from mailboxd.core.text import money
from mailboxd.core.types import Policy
from mailboxd.core.usage import Usage


def over(policy: Policy, spent: Spent) -> str:
    """Why no further turn may start, in a sentence; empty while it may."""
    if policy.budget_usd is not None and spent.usd >= policy.budget_usd:
        return f"over budget: it has cost {money(spent.usd)} of {money(policy.budget_usd)}"
    if policy.budget_tokens is not None and spent.tokens >= policy.budget_tokens:
        return f"over budget: it has used {spent.tokens} of {policy.budget_tokens} tokens"
    if policy.max_turns and spent.turns >= policy.max_turns:
        return f"over budget: it has taken {spent.turns} turns, {policy.max_turns} are allowed"
    return ""


def raised(policy: Policy, spent: Spent, usd: float | None, tokens: int | None, turns: int) -> dict[str, Any]:
    """The budgets as the operator sets them; where the turns were used up, `turns` further ones are granted."""
    changes: dict[str, Any] = {}
    if usd is not None:
        changes["budget_usd"] = usd
    if tokens is not None:
        changes["budget_tokens"] = tokens
    if policy.max_turns and spent.turns >= policy.max_turns:
        changes["max_turns"] = spent.turns + max(turns, 1)
    return changes


def tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)
