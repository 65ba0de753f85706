"""The spec of a task message: explicit sections win, what is missing is derived (protocol section 2)."""

from __future__ import annotations

import re
from collections.abc import Callable

from mailboxd.core.types import Spec
from mailboxd.messages.sections import Section

SPEC_SECTIONS = (
    "Context",
    "Instructions",
    "Expected Output",
    "Scope In",
    "Scope Out",
    "Inputs",
    "Outputs",
    "Acceptance Criteria",
    "Risks",
    "Planned Actions",
    "DAG",
)
"""The sections of a task that mean something to mailboxd. All others are read as part of the instructions."""

_ITEM = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(\S.*)")


def derive_spec(title: str, preamble: str, sections: tuple[Section, ...], section: Callable[[str], str]) -> Spec:
    """The spec that these parts of a task message state; `section` finds the text under a heading."""
    unknown = [f"## {s.heading}\n\n{s.text}" for s in sections if not any(map(s.is_called, SPEC_SECTIONS))]
    # Sections we do not know are work that somebody described: dropping them would drop work.
    instructions = "\n\n".join(filter(None, [preamble, section("Instructions"), *unknown]))
    expected = section("Expected Output")
    return Spec(
        goal=title,
        instructions=instructions,
        context=section("Context"),
        expected_output=expected,
        scope_in=section("Scope In") or instructions,
        scope_out=section("Scope Out"),
        inputs=section("Inputs") or section("Context"),
        outputs=section("Outputs") or expected,
        acceptance_criteria=criteria(section("Acceptance Criteria")) or ((expected,) if expected else ()),
        risks=section("Risks"),
        planned_actions=section("Planned Actions"),
    )


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
