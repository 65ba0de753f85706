"""What a new task must achieve and under which rules: taken from what was said, the rest derived or inherited."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from mailboxd.core import weakness
from mailboxd.core.terms import SELF, Runtime, Weak
from mailboxd.core.text import first_line
from mailboxd.core.types import Overrides, PlannedChild, Policy, Spec

_ITEM = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(\S.*)")

DERIVED_CRITERION = "The instructions are carried out, and the result says what was done."
_NOTHING_SAID = Overrides()


def derive(spec: Spec, weak: Weak = Weak.DERIVE) -> tuple[Spec, tuple[str, ...]]:
    """Fill in mechanically what a spec must have and its sender left out; names what was derived (section 2).

    The goal is the first line of the instructions; a criterion is derived only where the policy `weak` says so. A
    spec without a goal and without instructions stays weak.
    """
    derived: list[str] = []
    if not spec.goal.strip() and first_line(spec.instructions):
        spec = replace(spec, goal=first_line(spec.instructions))
        derived.append(weakness.GOAL)
    if (
        spec.goal.strip()
        and weak is Weak.DERIVE
        and weakness.CRITERIA in weakness.fields(weakness.weaknesses(spec, weak))
    ):
        spec = replace(spec, acceptance_criteria=(DERIVED_CRITERION,))
        derived.append(weakness.CRITERIA)
    return spec, tuple(derived)


def drafted(spec: Spec, said: Spec, mends: bool) -> Spec:
    """`spec` with what it lacks filled in from a draft. Goal, instructions and context are the sender's, and stand.

    What the sender wrote of the rest stands as well, unless it is too vague to count, or (`mends`) a review of the
    spec asked for changes.
    """
    expected = _chosen(spec.expected_output, said.expected_output, mends)
    vague = all(weakness.is_vague(text, spec.goal) for text in spec.acceptance_criteria)
    criteria = (said.acceptance_criteria if mends or vague else ()) or spec.acceptance_criteria
    return replace(
        spec,
        goal=_chosen(spec.goal, said.goal, False),
        expected_output=expected,
        acceptance_criteria=criteria or ((expected,) if expected else ()),
        scope_in=_chosen("" if spec.scope_in == spec.instructions else spec.scope_in, said.scope_in, mends)
        or spec.scope_in,
        scope_out=_chosen(spec.scope_out, said.scope_out, mends),
        inputs=_chosen(spec.inputs, said.inputs, mends),
        outputs=_chosen(spec.outputs, said.outputs, mends) or expected,
        risks=_chosen(spec.risks, said.risks, mends),
    )


def _chosen(own: str, said: str, mends: bool) -> str:
    return (said or own) if mends or not own.strip() else own


def answered(spec: Spec, text: str) -> Spec:
    """`spec` as an answer in plain text mends it.

    The text is the instructions where nothing was said of the work yet, else the acceptance criteria.
    """
    if not spec.goal.strip():
        return replace(spec, instructions="\n\n".join(filter(None, [spec.instructions, text])), scope_in=text)
    return replace(spec, acceptance_criteria=criteria(text))


def criteria(text: str) -> tuple[str, ...]:
    """The items of the list in `text`, check boxes removed; a text without a list is one criterion, none is none.

    Deeper items and unmarked lines belong to the item above them. Prose before the list is a criterion of its own,
    unless it only introduces the list (ends with a colon).
    """
    prose: list[str] = []
    items: list[list[str]] = []
    base = 0
    for line in text.split("\n"):
        item = _ITEM.fullmatch(line)
        if item and (not items or len(item[1]) <= base):
            base = len(item[1])
            items.append([item[2]])
        elif items and line.strip():
            items[-1].append(line)
        elif line.strip():
            prose.append(line)
    lead = "\n".join(prose)
    if items and lead.rstrip().endswith(":"):
        lead = ""
    return (*filter(None, [lead]), *("\n".join(lines) for lines in items))


def child_spec(planned: PlannedChild) -> Spec:
    instructions = planned.instructions or planned.description
    return Spec(
        goal=planned.description.strip() or planned.key,
        instructions=instructions,
        expected_output=planned.expected_output,
        scope_in=instructions,
        outputs=planned.expected_output,
        acceptance_criteria=(planned.expected_output,) if planned.expected_output.strip() else (),
        checks=planned.checks,
        planned_actions=planned.planned_actions,
    )


def executor_of(agent: str, own: str) -> str:
    """Who carries a child out: `self` and our own name are this agent. OpenClaw's ids are the same in any case."""
    return own if agent.lower() in (SELF, own.lower()) else agent


def child_title(planned: PlannedChild) -> str:
    return first_line(planned.description) or planned.key


@lru_cache(maxsize=1024)  # the children of one plan say much the same
def inherit(policy: Policy, said: Overrides) -> Policy:
    """A child's policy: its parent's, overridden by what the plan says of it.

    Joins, budgets, harnesses and the bounds of a whole tree are not inherited.

    A deadline can only be tightened and a priority only lowered: a plan is what an agent wrote.
    """
    fresh = Policy()
    base = replace(policy, join=fresh.join, budget_usd=None, budget_tokens=None)
    base = replace(base, runtime=fresh.runtime, harness=fresh.harness, max_tree_turns=0, max_tree_tasks=0)
    own = apply(base, said)
    deadline = min(filter(None, (policy.deadline, own.deadline)), default=None)
    return replace(own, deadline=deadline, priority=min(policy.priority, own.priority))


def unknown_harness(known: Sequence[str], harness: str) -> str | None:
    """Why there is no such harness here; None when there is."""
    if harness in known:
        return None
    return f"no harness {harness} is configured here; there is {', '.join(known) or 'none'} (acp.harnesses)"


def refused_harness(policy: Policy, may_use: Callable[[str], str | None]) -> str | None:
    """Why work under this policy has nobody to do it; None when it has."""
    if policy.runtime is Runtime.ACP and not policy.harness:
        return "runtime: acp needs a harness; name one"
    if policy.harness and policy.runtime is not Runtime.ACP:
        return f"the harness {policy.harness} needs runtime: acp"
    return may_use(policy.harness) if policy.harness else None


def apply(policy: Policy, said: Overrides) -> Policy:
    """`policy` with every value that was said put in its place."""
    if said == _NOTHING_SAID:
        return policy
    values = {name: getattr(said, name) for name in Overrides.__dataclass_fields__}
    return replace(policy, **{name: value for name, value in values.items() if value is not None})
