"""What a task and all below it may cost, and what happens when that is used up: it is held for the operator.

A budget covers the whole tree of the task that has it; one further down is a bound inside. So do the limits of a tree,
which every root has: turns, and tasks that agents plan. Used up means: no further turn starts. A turn that is running
is let finish, its result counts, and nothing is killed or dropped. The number of turns of one task is counted for it
alone. What a person planned is consent up to its own size: `consented` adds it to the limits of its tree.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from mailboxd.core.inputs import Unblock
from mailboxd.core.model import Policy, Spent, Usage
from mailboxd.core.task_view import Limits

TURNS_OF_OWN = 10
"""What each task of a person's own plan adds to the turns that its tree may take."""
_LIMIT = re.compile(r"\((limits\.\w+)\)$")
_WITHIN_AN_HOUR = re.compile(r"planned (\d+) tasks within an hour")


def money(usd: float) -> str:
    """`usd` US dollars in words, exact to a millionth and without trailing zeros: `0.25 USD`."""
    return f"{usd:.6f}".rstrip("0").rstrip(".") + " USD"


def over(policy: Policy, spent: Spent) -> str:
    """Why no further turn may start, in a sentence; empty while it may."""
    if policy.budget_usd is not None and spent.usd >= policy.budget_usd:
        return f"over budget: it has cost {money(spent.usd)} of {money(policy.budget_usd)}"
    if policy.budget_tokens is not None and spent.tokens >= policy.budget_tokens:
        return f"over budget: it has used {spent.tokens} of {policy.budget_tokens} tokens"
    if policy.max_turns and spent.turns >= policy.max_turns:
        said = f"it has taken {spent.turns} turns, {policy.max_turns} are allowed"
        return f"over budget: {said} (limits.turns_per_task)"
    if policy.max_tree_turns and spent.tree_turns >= policy.max_tree_turns:
        said = f"its tree has taken {spent.tree_turns} turns, {policy.max_tree_turns} are allowed"
        return f"over budget: {said} (limits.turns_per_tree)"
    if policy.max_tree_tasks and spent.tree_tasks > policy.max_tree_tasks:
        said = f"agents have planned its tree up to {spent.tree_tasks} tasks, {policy.max_tree_tasks} are allowed"
        return f"over budget: {said} (limits.planned_per_tree)"
    return ""


def planned_too_much(limits: Limits, lately: int) -> str:
    """Why what an agent has just planned is held; `lately` counts what agents planned within an hour, with this."""
    if not limits.planned_hour or lately <= limits.planned_hour:
        return ""
    said = f"agents have planned {lately} tasks within an hour, {limits.planned_hour} are allowed"
    return f"over budget: {said} (limits.planned_per_hour)"


def limit_of(held: str) -> str:
    """The key of the configuration that a hold names; empty for the task's own budget."""
    found = _LIMIT.search(held)
    return found[1] if found else ""


def lifted(policy: Policy, limits: Limits) -> Policy:
    """The policy with those limits that the configuration has raised since it was made; none is lowered."""

    def higher(own: int, now: int) -> int:
        return max(own, now) if own and now else 0

    return replace(
        policy,
        max_turns=higher(policy.max_turns, limits.turns),
        max_tree_turns=higher(policy.max_tree_turns, limits.tree_turns),
        max_tree_tasks=higher(policy.max_tree_tasks, limits.planned),
    )


def still_held(held: str, policy: Policy, spent: Spent, limits: Limits) -> str:
    """What a task is held for from now on, `policy` being lifted; only raising what the hold names ends it."""
    limit = limit_of(held)
    if not limit:
        return held
    if found := _WITHIN_AN_HOUR.search(held):
        return (planned_too_much(limits, int(found[1])) and held) or over(policy, spent)
    why = over(policy, spent)
    return held if limit_of(why) == limit else why


def consented(policy: Policy, tasks: int) -> Policy:
    """The policy of a root whose plan of so many tasks a person wrote."""
    turns = policy.max_tree_turns and policy.max_tree_turns + TURNS_OF_OWN * tasks
    return replace(policy, max_tree_turns=turns, max_tree_tasks=policy.max_tree_tasks and policy.max_tree_tasks + tasks)


def raised(policy: Policy, spent: Spent, order: Unblock, limits: Limits) -> dict[str, Any]:
    """The budgets as the operator sets them; of what `limits` bound and is used up, as much again is granted."""
    changes: dict[str, Any] = {}
    if order.budget_usd is not None:
        changes["budget_usd"] = order.budget_usd
    if order.budget_tokens is not None:
        changes["budget_tokens"] = order.budget_tokens
    if policy.max_turns and spent.turns >= policy.max_turns:
        changes["max_turns"] = limits.turns and spent.turns + limits.turns
    if policy.max_tree_turns and spent.tree_turns >= policy.max_tree_turns:
        changes["max_tree_turns"] = limits.tree_turns and spent.tree_turns + limits.tree_turns
    if policy.max_tree_tasks and spent.tree_tasks > policy.max_tree_tasks:
        changes["max_tree_tasks"] = limits.planned and spent.tree_tasks + limits.planned
    return changes


def tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)
