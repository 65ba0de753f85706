"""The spec of a task in sections: of a message, of a text that a person edits, of a drafting turn (protocol section 2).

Explicit sections win, what is missing is derived. `read_spec(render_spec(spec)) == spec` for every spec that was read.
"""

from __future__ import annotations

from collections.abc import Callable

from mailboxd.core.actions import Action
from mailboxd.core.specs import DERIVED_CRITERION, criteria
from mailboxd.core.types import Check, Spec
from mailboxd.messages.actions import read_actions, render_actions
from mailboxd.messages.checks import claimed, parse_checks, render_checks
from mailboxd.messages.sections import Section, join_body, split_body
from mailboxd.messages.text import clean

Sections = tuple[tuple[str, str], ...]
"""Headings with their texts."""
_FIELDS = {
    "Goal": "goal",
    "Context": "context",
    "Instructions": "instructions",
    "Expected Output": "expected_output",
    "Acceptance Criteria": "acceptance_criteria",
    "Checks": "checks",
    "Scope In": "scope_in",
    "Scope Out": "scope_out",
    "Inputs": "inputs",
    "Outputs": "outputs",
    "Risks": "risks",
    "Planned Actions": "planned_actions",
}
"""The sections of a spec in the order in which they are shown, with their fields."""
SPEC_SECTIONS = (*_FIELDS, "DAG")
"""The sections of a task that mean something to mailboxd. All others are read as part of the instructions."""
_NAMES = frozenset(name.casefold() for name in SPEC_SECTIONS)


def derive_spec(title: str, preamble: str, sections: tuple[Section, ...], section: Callable[[str], str]) -> Spec:
    """The spec that these parts of a task message state; `section` finds the text under a heading.

    Raises MessageError when a section `## Checks` claims to hold checks that cannot be read.
    """
    declared = next((s for s in sections if s.is_called("Checks") and claimed(s.text)), None)
    known = _NAMES if declared else _NAMES - {"checks"}
    unknown = [f"## {s.heading}\n\n{s.text}" for s in sections if s.name not in known]
    # Sections we do not know are work that somebody described: dropping them would drop work.
    instructions = "\n\n".join(filter(None, [preamble, section("Instructions"), *unknown]))
    expected, context = section("Expected Output"), section("Context")
    return Spec(
        goal=section("Goal") or title,
        instructions=instructions,
        context=context,
        expected_output=expected,
        scope_in=section("Scope In") or instructions,
        scope_out=section("Scope Out"),
        inputs=section("Inputs") or context,
        outputs=section("Outputs") or expected,
        acceptance_criteria=criteria(section("Acceptance Criteria")) or ((expected,) if expected else ()),
        risks=section("Risks"),
        planned_actions=actions_in(sections),
        checks=parse_checks(declared.text, path="Checks", first_line=declared.line) if declared else (),
    )


def rewritten(spec: Spec, text: str) -> Spec | None:
    """`spec` as the sections in `text` rewrite it; None when there is no section of a spec in it.

    A section counts as it stands, also an empty one; what is left out stays as it was, or follows what it was derived
    from. Raises MessageError when the checks cannot be read.
    """
    found = _own_sections(text)
    if not found:
        return None
    said = {field: next(s for s in found if s.is_called(name)) for name, field in _FIELDS.items() if _has(found, name)}

    def new(field: str) -> str:
        return said[field].text if field in said else str(getattr(spec, field))

    def follows(field: str, base: str) -> str:
        own = new(field) if field in said or getattr(spec, field) != getattr(spec, base) else ""
        return own or new(base)

    expected = new("expected_output")
    return Spec(
        goal=new("goal"),
        instructions=new("instructions"),
        context=new("context"),
        expected_output=expected,
        scope_in=follows("scope_in", "instructions"),
        scope_out=new("scope_out"),
        inputs=follows("inputs", "context"),
        outputs=follows("outputs", "expected_output"),
        acceptance_criteria=_criteria(spec, said.get("acceptance_criteria"), expected),
        risks=new("risks"),
        planned_actions=actions_in(found) if "planned_actions" in said else spec.planned_actions,
        checks=_checks(said["checks"]) if "checks" in said else spec.checks,
    )


def actions_in(sections: tuple[Section, ...]) -> tuple[Action, ...]:
    """The planned actions that the sections declare. Raises MessageError when they claim to and cannot be read."""
    section = next((section for section in sections if section.is_called("Planned Actions")), None)
    return read_actions(section.text, path="Planned Actions", first_line=section.line) if section else ()


def _criteria(spec: Spec, said: Section | None, expected: str) -> tuple[str, ...]:
    if said is None and spec.acceptance_criteria not in ((), (DERIVED_CRITERION,), (spec.expected_output,)):
        return spec.acceptance_criteria
    return (criteria(said.text) if said else ()) or ((expected,) if expected else ())


def _checks(section: Section) -> tuple[Check, ...]:
    return parse_checks(section.text, path="Checks", first_line=section.line) if section.text else ()


def _has(found: tuple[Section, ...], name: str) -> bool:
    return any(section.is_called(name) for section in found)


def _own_sections(text: str) -> tuple[Section, ...]:
    return tuple(s for s in split_body(clean(text)).sections if any(map(s.is_called, _FIELDS)))


def is_spec_section(heading: str, text: str) -> bool:
    """Whether a section of a task.md is a part of its spec, other than the instructions."""
    name = heading.rstrip(" #:").casefold()
    known = any(name == known.casefold() for known in _FIELDS if known != "Instructions")
    return known and (name != "checks" or claimed(text))


def shown_sections(spec: Spec, title: str) -> Sections:
    """The spec as the task.md of a task called `title` shows it below the instructions."""
    return tuple(item for item in spec_sections(spec, title) if item[0] != "Instructions")


def spec_sections(spec: Spec, title: str = "") -> Sections:
    """What the spec says, as sections with their texts, without what is derived from another of them."""
    derived = {
        "Goal": spec.goal.strip() == title.strip(),
        "Acceptance Criteria": spec.acceptance_criteria in ((DERIVED_CRITERION,), (spec.expected_output,)),
        "Scope In": spec.scope_in == spec.instructions,
        "Inputs": spec.inputs == spec.context,
        "Outputs": spec.outputs == spec.expected_output,
    }
    texts = {name: _text(spec, field) for name, field in _FIELDS.items()}
    return tuple((name, text) for name, text in texts.items() if text.strip() and not derived.get(name))


def _text(spec: Spec, field: str) -> str:
    if field == "acceptance_criteria":
        return "\n".join(f"- {criterion}" for criterion in spec.acceptance_criteria)
    if field == "checks":
        return f"```yaml\n{render_checks(spec.checks)}\n```" if spec.checks else ""
    if field == "planned_actions":
        return render_actions(spec.planned_actions)
    return str(getattr(spec, field))


def render_spec(spec: Spec) -> str:
    """The spec as a person edits it: a section for each part, also for those that say nothing yet."""
    said = dict(spec_sections(spec))
    return join_body("", "", [Section(name, said.get(name, "")) for name in _FIELDS])
