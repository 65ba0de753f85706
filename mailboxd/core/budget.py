"""Budgets: what a task and all tasks below it may cost. Over budget, a task is put on hold for the operator.

A budget covers the tree below its task; a budget further down is a limit inside it. Every root also has limits for its
tree: turns, and tasks that agents plan. Over budget, no further turn starts; running turns finish and their results
count. The limit on the turns of one task counts that task alone. A plan written by a person is consent up to its size:
`consented` adds it to the limits of its tree.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `status` needs two functions of this module and none of these
    from mailboxd.core.inputs import Unblock
    from mailboxd.core.model import Policy, Spent, Usage
    from mailboxd.core.task_view import Limits

TURNS_OF_OWN = 10
"""Turns that each task of a person's own plan adds to the limit of its tree."""
_LIMIT = re.compile(r"\((limits\.\w+)\)$")
_WITHIN_AN_HOUR = re.compile(r"planned (\d+) tasks within an hour")


def money(usd: float) -> str:
    """US dollars as text, exact to a millionth, without trailing zeros: `0.25 USD`."""
    return f"{usd:.6f}".rstrip("0").rstrip(".") + " USD"


def over(policy: Policy, spent: Spent) -> str:
    """Why no further turn may start, in a sentence; empty while it may."""
    if policy.budget_usd is not None and spent.usd >= policy.budget_usd:
        said = f"it has cost {money(spent.usd)} of {money(policy.budget_usd)}"
        return f"over budget: {said}" + _configured(policy, "budget_usd", "limits.usd_per_task")
    if policy.budget_tokens is not None and spent.tokens >= policy.budget_tokens:
        said = f"it has used {spent.tokens} of {policy.budget_tokens} tokens"
        return f"over budget: {said}" + _configured(policy, "budget_tokens", "limits.tokens_per_task")
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


def _configured(policy: Policy, budget: str, key: str) -> str:
    """The configuration key that sets this budget, in brackets; empty if the task has its own."""
    return "" if policy.named is None or budget in policy.named else f" ({key})"


def planned_too_much(limits: Limits, lately: int) -> str:
    """Why a new plan is put on hold, or empty; `lately`: tasks that agents planned within an hour, including it."""
    if not limits.planned_hour or lately <= limits.planned_hour:
        return ""
    said = f"agents have planned {lately} tasks within an hour, {limits.planned_hour} are allowed"
    return f"over budget: {said} (limits.planned_per_hour)"


def limit_of(held: str) -> str:
    """The configuration key that a hold names; empty for the task's own budget."""
    found = _LIMIT.search(held)
    return found[1] if found else ""


PAUSED = "paused by "
"""How the hold of a task begins that a person has paused."""


def paused_by(who: str, note: str) -> str:
    """The hold of a task that a person has paused."""
    return f"{PAUSED}{who}" + (f": {note}" if note.strip() else "")


def is_paused(held: str) -> bool:
    """Whether a person paused the task; only a person ends that."""
    return held.startswith(PAUSED)


def lifted(policy: Policy, limits: Limits, configured: Policy | None = None) -> Policy:
    """The policy with the limits and budgets that the configuration has raised since; none is lowered."""

    def higher(own: int, now: int) -> int:
        return max(own, now) if own and now else 0

    return replace(
        policy,
        max_turns=higher(policy.max_turns, limits.turns),
        max_tree_turns=higher(policy.max_tree_turns, limits.tree_turns),
        max_tree_tasks=higher(policy.max_tree_tasks, limits.planned),
        **(_lifted_budgets(policy, configured) if configured is not None else {}),
    )


def _lifted_budgets(policy: Policy, configured: Policy) -> dict[str, Any]:
    """The budgets that are the configuration's, as that has them now if it allows more."""
    changes: dict[str, Any] = {}
    for name in ("budget_usd", "budget_tokens"):
        own, now = getattr(policy, name), getattr(configured, name)
        if own is not None and policy.named is not None and name not in policy.named:
            changes[name] = None if now is None else max(own, now)
    return changes


def still_held(held: str, policy: Policy, spent: Spent, limits: Limits) -> str:
    """Why the task stays on hold under the `lifted` policy, or empty; only raising the limit that it names ends it."""
    limit = limit_of(held)
    if not limit:
        return held
    if found := _WITHIN_AN_HOUR.search(held):
        return (planned_too_much(limits, int(found[1])) and held) or over(policy, spent)
    why = over(policy, spent)
    return held if limit_of(why) == limit else why


def consented(policy: Policy, tasks: int) -> Policy:
    """The policy of a root with a plan of this many tasks that a person wrote."""
    turns = policy.max_tree_turns and policy.max_tree_turns + TURNS_OF_OWN * tasks
    return replace(policy, max_tree_turns=turns, max_tree_tasks=policy.max_tree_tasks and policy.max_tree_tasks + tasks)


def raised(policy: Policy, spent: Spent, order: Unblock, limits: Limits) -> dict[str, Any]:
    """The budgets that the order sets; each limit that is used up is extended by the same amount."""
    changes: dict[str, Any] = {}
    if order.budget_usd is not None:
        changes["budget_usd"] = order.budget_usd
    if order.budget_tokens is not None:
        changes["budget_tokens"] = order.budget_tokens
    if changes and policy.named is not None:
        changes["named"] = policy.named | frozenset(changes)
    if policy.max_turns and spent.turns >= policy.max_turns:
        changes["max_turns"] = limits.turns and spent.turns + limits.turns
    if policy.max_tree_turns and spent.tree_turns >= policy.max_tree_turns:
        changes["max_tree_turns"] = limits.tree_turns and spent.tree_turns + limits.tree_turns
    if policy.max_tree_tasks and spent.tree_tasks > policy.max_tree_tasks:
        changes["max_tree_tasks"] = limits.planned and spent.tree_tasks + limits.planned
    return changes


def tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)
