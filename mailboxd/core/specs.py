"""The spec and policy of a new task: as its sender wrote them, the rest derived or inherited."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mailboxd.core.json_codec import to_json
from mailboxd.core.model import NO_OVERRIDES, Overrides, PlannedChild, Policy, Spec
from mailboxd.core.sanitize import first_line
from mailboxd.core.tables import cells, is_rule
from mailboxd.core.vocabulary import SELF, Runtime, Synthesis, WeakSpec

# Lint: what makes a spec weak (protocol section 4).
#
# A spec is weak if it has no goal, or no way to tell that the work is done: no check, no expected output and
# no acceptance criterion, or only vague ones. A criterion is vague if it has one of the VAGUE words and nothing is left
# without these, the FILLERS and the words of the goal: "The report is good" adds nothing to "Write the report". One
# criterion that is not vague is enough.

VAGUE = (
    "acceptable", "adequate", "adequately", "all right", "appropriate", "appropriately", "as agreed", "as discussed",
    "as expected", "as necessary", "as needed", "as required", "asap", "best effort", "best practice",
    "best practices", "better", "clean", "complete", "completed", "correct", "correctly", "decent", "done", "etc",
    "excellent", "fine", "finished", "good", "great", "high quality", "in order", "n/a", "nice", "none", "ok", "okay",
    "perfect", "professional", "proper", "properly", "reasonable", "reasonably", "robust", "satisfactory",
    "satisfying", "sensible", "so on", "sound", "state of the art", "successful", "successfully", "sufficient",
    "suitable", "tba", "tbd", "thorough", "thoroughly", "to be agreed", "to be decided", "todo", "usable",
    "user friendly", "well",
)  # fmt: skip
"""Words that only say that it is good, or that it will be said later."""

FILLERS = (
    "a", "all", "an", "and", "any", "are", "as", "at", "be", "been", "by", "can", "code", "everything", "for", "has",
    "have", "if", "in", "is", "it", "its", "job", "looks", "made", "manner", "must", "of", "on", "or", "output",
    "outputs", "quality", "quite", "result", "results", "shall", "should", "task", "that", "the", "thing", "things",
    "this", "to", "very", "was", "way", "were", "when", "where", "which", "will", "with", "work", "working", "works",
)  # fmt: skip
"""Words without content of their own."""

GOAL, CRITERIA, CHECKS = "goal", "acceptance_criteria", "checks"

_WORD = re.compile(r"[^\W_]+(?:[/'’][^\W_]+)*")
_PHRASES = sorted((phrase.split() for phrase in VAGUE), key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """A problem of a spec: the field, and what is wrong with it."""

    field: str
    problem: str


def lint(spec: Spec, weak: WeakSpec, refused: tuple[str, ...] = ()) -> tuple[SpecProblem, ...]:
    """The problems of `spec`, most important first; empty if it is complete.

    If missing criteria are derived (`weak`), vague ones pass too. `refused`: why checks may not run here.
    """
    found = []
    if not spec.goal.strip():
        found.append(SpecProblem(GOAL, "it does not say what is to be achieved"))
    said = _criteria(spec)
    if not said and not spec.checks:
        found.append(SpecProblem(CRITERIA, "it has no acceptance criterion and no expected output"))
    elif weak is not WeakSpec.DERIVE and not spec.checks and all(is_vague(text, spec.goal) for text in said):
        quoted = "; ".join(dict.fromkeys(f'"{" ".join(text.split())[:80]}"' for text in said[:3]))
        found.append(SpecProblem(CRITERIA, f"nothing in its criteria can be checked: {quoted}"))
    return (*found, *(SpecProblem(CHECKS, why) for why in refused))


def _criteria(spec: Spec) -> list[str]:
    """The texts by which one can tell that the work is done."""
    return [text for text in (*spec.acceptance_criteria, spec.expected_output) if text.strip()]


def problems_text(found: tuple[SpecProblem, ...]) -> str:
    """All problems in one sentence."""
    return "; ".join(problem.problem for problem in found)


def is_vague(criterion: str, goal: str = "") -> bool:
    """Whether nothing in a criterion can be checked; true for one without words."""
    words = _words(criterion)
    left, vague = _without_phrases(words)
    nothing = {*FILLERS, *_words(goal)}
    return not words or (vague and all(word in nothing for word in left))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _without_phrases(words: list[str]) -> tuple[list[str], bool]:
    """`words` without the vague phrases among them, and whether there were any."""
    left: list[str] = []
    at = 0
    while at < len(words):
        phrase = next((p for p in _PHRASES if words[at : at + len(p)] == p), None)
        if phrase is None:
            left.append(words[at])
        at += len(phrase) if phrase else 1
    return left, len(left) < len(words)


# The spec and the policy of a new task: from its message or plan, the rest derived or inherited.

_ITEM = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(\S.*)")

DERIVED_CRITERION = "The instructions are carried out, and the result says what was done."


def derive(spec: Spec, weak: WeakSpec = WeakSpec.DERIVE) -> tuple[Spec, tuple[str, ...]]:
    """Fill in what the sender left out; also returns the names of the derived fields (section 2).

    The goal is the first line of the instructions; a criterion is derived only if the policy `weak` says so. A spec
    without goal and instructions stays weak.
    """
    derived: list[str] = []
    if not spec.goal.strip() and first_line(spec.instructions):
        spec = replace(spec, goal=first_line(spec.instructions))
        derived.append(GOAL)
    if spec.goal.strip() and weak is WeakSpec.DERIVE and not (_criteria(spec) or spec.checks):
        spec = replace(spec, acceptance_criteria=(DERIVED_CRITERION,))
        derived.append(CRITERIA)
    return spec, tuple(derived)


def drafted(spec: Spec, said: Spec, rework: bool) -> Spec:
    """`spec`, completed from a draft. The sender's goal, instructions and context are kept.

    The sender's other fields are kept too, unless they are vague or (`rework`) a review of the spec asked for changes.
    """
    expected = _chosen(spec.expected_output, said.expected_output, rework)
    vague = all(is_vague(text, spec.goal) for text in spec.acceptance_criteria)
    criteria = (said.acceptance_criteria if rework or vague else ()) or spec.acceptance_criteria
    return replace(
        spec,
        goal=_chosen(spec.goal, said.goal, False),
        expected_output=expected,
        acceptance_criteria=criteria or ((expected,) if expected else ()),
        scope_in=_chosen("" if spec.scope_in == spec.instructions else spec.scope_in, said.scope_in, rework)
        or spec.scope_in,
        scope_out=_chosen(spec.scope_out, said.scope_out, rework),
        inputs=_chosen(spec.inputs, said.inputs, rework),
        outputs=_chosen(spec.outputs, said.outputs, rework) or expected,
        risks=_chosen(spec.risks, said.risks, rework),
    )


def _chosen(own: str, said: str, rework: bool) -> str:
    return (said or own) if rework or not own.strip() else own


def answered(spec: Spec, text: str) -> Spec:
    """`spec`, completed by an answer in plain text: its instructions if it has no goal, else its criteria."""
    if not spec.goal.strip():
        return replace(spec, instructions="\n\n".join(filter(None, [spec.instructions, text])), scope_in=text)
    return replace(spec, acceptance_criteria=criteria(text))


def criteria(text: str) -> tuple[str, ...]:
    """The items of the list in `text`, without check boxes; a text without a list is one criterion.

    Deeper items and unmarked lines belong to the item above them. Prose before the list is a criterion of its own,
    unless it only introduces the list (ends with a colon).
    """
    rows = _table_rows(text)
    if rows:
        return rows
    prose: list[str] = []
    items: list[list[str]] = []
    base = 0
    for line in _COMMENT.sub("", text).split("\n"):
        item = _ITEM.fullmatch(line)
        if item and (not items or len(item[1]) <= base):
            base = len(item[1])
            said = _NUMBERED.sub("", item[2], 1)
            if items and _FOLLOWS.match(said) and _BEGINS.match(items[-1][0]):
                items[-1].append(said)  # given, when and then are one criterion
            else:
                items.append([said])
        elif items and line.strip():
            items[-1].append(line)
        elif line.strip():
            prose.append(line)
    lead = "\n".join(prose)
    if items and lead.rstrip().endswith(":"):
        lead = ""
    return (*filter(None, [lead]), *("\n".join(lines) for lines in items))


_COMMENT = re.compile(r"<!--[^\n]*?-->")
_NUMBERED = re.compile(r"#[0-9]{1,4}[ \t]+(?=\S)")
_BEGINS = re.compile(r"[*_]{0,2}(?:given|when)\b", re.IGNORECASE)
_FOLLOWS = re.compile(r"[*_]{0,2}(?:when|then|and|but)\b", re.IGNORECASE)
_COLUMNS = ("criterion", "criteria", "acceptance criterion", "acceptance criteria", "description", "requirement")


def _table_rows(text: str) -> tuple[str, ...]:
    """The criteria in the first table of a text: its column of that name, else all cells but numbers; else empty."""
    lines = text.split("\n")
    rule = next((at for at, line in enumerate(lines) if at and is_rule(line)), None)
    if rule is None:
        return ()
    names = [name.casefold() for name in cells(lines[rule - 1])]
    column = next((names.index(name) for name in _COLUMNS if name in names), None)
    rows = []
    for line in lines[rule + 1 :]:
        if "|" not in line:
            break
        row = cells(line)
        if column is not None and column < len(row):
            rows.append(row[column])
        else:
            rows.append(": ".join(cell for cell in row if cell and not cell.rstrip(".").isdigit()))
    return tuple(filter(None, rows))


def child_spec(planned: PlannedChild) -> Spec:
    instructions, expected = planned.instructions or planned.description, planned.expected_output
    return Spec(
        goal=planned.goal.strip() or planned.description.strip() or planned.key,
        instructions=instructions,
        context=planned.context,
        expected_output=expected,
        scope_in=planned.scope_in or instructions,
        scope_out=planned.scope_out,
        inputs=planned.inputs or planned.context,
        outputs=planned.outputs or expected,
        acceptance_criteria=planned.acceptance_criteria or ((expected,) if expected.strip() else ()),
        risks=planned.risks,
        checks=planned.checks,
        planned_actions=planned.planned_actions,
    )


def as_child(spec: Spec, key: str, agents: tuple[str, ...], description: str) -> PlannedChild:
    """A child with the texts of `spec`. Checks and planned actions are left out: they stay where they were declared."""
    return PlannedChild(
        key=key,
        agents=agents,
        description=description,
        instructions=spec.instructions,
        expected_output=spec.expected_output,
        goal=spec.goal,
        context=spec.context,
        scope_in=spec.scope_in,
        scope_out=spec.scope_out,
        inputs=spec.inputs,
        outputs=spec.outputs,
        acceptance_criteria=spec.acceptance_criteria,
        risks=spec.risks,
    )


def stated(spec: Spec) -> Spec:
    """`spec` as its author stated it: parts that were derived from others are empty."""
    derived = spec.acceptance_criteria in ((DERIVED_CRITERION,), (spec.expected_output,))
    return replace(
        spec,
        scope_in="" if spec.scope_in == spec.instructions else spec.scope_in,
        inputs="" if spec.inputs == spec.context else spec.inputs,
        outputs="" if spec.outputs == spec.expected_output else spec.outputs,
        acceptance_criteria=() if derived else spec.acceptance_criteria,
    )


def digest(spec: Spec) -> str:
    """A digest of the whole specification: what a verdict is about, beside the result."""
    return hashlib.sha256(json.dumps(to_json(spec), sort_keys=True).encode()).hexdigest()[:16]


def executor_of(agent: str, own: str) -> str:
    """The executor of a child: `self` and its own name mean this agent, in any case of letters."""
    return own if agent.lower() in (SELF, own.lower()) else agent


def child_title(planned: PlannedChild) -> str:
    return first_line(planned.description) or planned.key


@lru_cache(maxsize=1024)  # most children of a plan have the same overrides
def inherit(policy: Policy, said: Overrides) -> Policy:
    """A child's policy: its parent's, overridden by the plan.

    Joins, budgets, harnesses, models, the limits of a tree and a child named as synthesis are not inherited. An agent's
    plan can only tighten the deadline and lower the priority.
    """
    fresh = Policy()
    base = replace(policy, join=fresh.join, budget_usd=None, budget_tokens=None, not_before=None)
    if policy.synthesis not in tuple(Synthesis):  # it names a child of the parent
        base = replace(base, synthesis=fresh.synthesis)
    base = replace(base, runtime=fresh.runtime, harness=fresh.harness, model="", max_tree_turns=0, max_tree_tasks=0)
    if base.named is not None:
        base = replace(base, named=base.named - BUDGETS)
    own = apply(base, said)
    deadline = min(filter(None, (policy.deadline, own.deadline)), default=None)
    return replace(own, deadline=deadline, priority=min(policy.priority, own.priority))


def unknown_harness(known: Sequence[str], harness: str) -> str | None:
    """Why the harness is unknown; None if it is configured."""
    if harness in known:
        return None
    return f"no harness {harness} is configured here; there is {', '.join(known) or 'none'} (acp.harnesses)"


def refused_harness(policy: Policy, may_use: Callable[[str], str | None]) -> str | None:
    """Why no harness can work under this policy; None if one can, or none is needed."""
    if policy.runtime is Runtime.ACP and not policy.harness:
        return "runtime: acp needs a harness; name one"
    if policy.harness and policy.runtime is not Runtime.ACP:
        return f"the harness {policy.harness} needs runtime: acp"
    return may_use(policy.harness) if policy.harness else None


def refused_model(policy: Policy, known: Sequence[str]) -> str | None:
    """Why the task cannot have its model; None if it can, or names none."""
    if policy.model and policy.runtime is Runtime.ACP:
        return f"the model {policy.model} is not for a harness, which has its own"
    if policy.model and policy.model not in known:
        allowed = ", ".join(known) or "none"
        return f"the model {policy.model} may not be chosen here; allowed is {allowed} (openclaw.models)"
    return None


def refused_address(address: str, known: Sequence[str]) -> str | None:
    """Why this address is not allowed; None if it is. An allowed one that ends in `*` is a prefix."""
    if any(address == one or (one.endswith("*") and address.startswith(one[:-1])) for one in known):
        return None
    return f"replies may not go to {address}; allowed is {', '.join(known) or 'none'} (notify.reply_to)"


def apply(policy: Policy, said: Overrides) -> Policy:
    """`policy` with the overrides applied."""
    if said is NO_OVERRIDES or said == NO_OVERRIDES:
        return policy
    values = {name: value for name in Overrides.__dataclass_fields__ if (value := getattr(said, name)) is not None}
    named = None if policy.named is None else policy.named | (FOLLOWING & values.keys())
    return replace(policy, **values, named=named)


# What of a policy follows the configuration while the task is open, unless the task itself names it

BUDGETS = frozenset({"budget_usd", "budget_tokens"})
FOLLOWING = BUDGETS | {"gates", "reviewers"}


def reviewed_as(policy: Policy, configured: Policy) -> Policy:
    """The policy with the reviews that the configuration asks for now, except for what the task names itself."""
    known = policy.named is not None
    named = policy.named or frozenset()
    changes: dict[str, Any] = {"quorum": configured.quorum, "same_reviewer": configured.same_reviewer}
    if "reviewers" not in named and configured.reviewers:
        changes["reviewers"] = configured.reviewers
    if known and "gates" not in named:  # a gate is never dropped that the task may have asked for
        changes["gates"] = configured.gates
    return replace(policy, **changes)
