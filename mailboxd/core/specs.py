"""What a new task must achieve and under which rules: taken from what was said, the rest derived or inherited."""

from __future__ import annotations

from dataclasses import replace

from mailboxd.core.terms import SELF
from mailboxd.core.text import first_line
from mailboxd.core.types import Overrides, PlannedChild, Policy, Spec

DERIVED_CRITERION = "The instructions are carried out, and the result says what was done."


def derive(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """Fill in mechanically what a spec must have and its sender left out; names what was derived (section 2).

    The goal is the first line of the instructions. A spec without a goal and without instructions stays weak.
    """
    derived: list[str] = []
    if "goal" in spec.missing and first_line(spec.instructions):
        spec = replace(spec, goal=first_line(spec.instructions))
        derived.append("goal")
    if spec.goal.strip() and "acceptance_criteria" in spec.missing:
        spec = replace(spec, acceptance_criteria=(DERIVED_CRITERION,))
        derived.append("acceptance_criteria")
    return spec, tuple(derived)


def child_spec(planned: PlannedChild) -> Spec:
    instructions = planned.instructions or planned.description
    return Spec(
        goal=planned.description.strip() or planned.key,
        instructions=instructions,
        expected_output=planned.expected_output,
        scope_in=instructions,
        outputs=planned.expected_output,
        acceptance_criteria=(planned.expected_output,) if planned.expected_output.strip() else (),
    )


def executor_of(agent: str, own: str) -> str:
    """Who carries a child out: `self` and our own name are this agent. OpenClaw's ids are the same in any case."""
    return own if agent.lower() in (SELF, own.lower()) else agent


def child_title(planned: PlannedChild) -> str:
    return first_line(planned.description) or planned.key


def inherit(policy: Policy, said: Overrides) -> Policy:
    """A child's policy: its parent's, overridden by what the plan says of it. Joins and budgets are not inherited."""
    base = replace(policy, join=Policy().join, budget_usd=None)
    return apply(base, said)


def apply(policy: Policy, said: Overrides) -> Policy:
    """`policy` with every value that was said put in its place."""
    values = {name: getattr(said, name) for name in Overrides.__dataclass_fields__}
    return replace(policy, **{name: value for name, value in values.items() if value is not None})
