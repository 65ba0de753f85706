"""Specs as sections: edited by a person, corrected by an answer, completed by a draft."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mailboxd.core.approvals import Action, ActionKind
from mailboxd.core.model import Check, Spec
from mailboxd.core.outcomes import Drafted, Unclear
from mailboxd.core.specs import DERIVED_CRITERION
from mailboxd.core.vocabulary import Turn
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.spec import render_spec, rewritten, shown_sections

FULL = Spec(
    "A haiku",
    instructions="Write one.\n\n# About rain",
    context="It rains.",
    expected_output="haiku.txt",
    scope_in="three lines",
    scope_out="rhymes",
    inputs="rain",
    outputs="a file",
    acceptance_criteria=("17 syllables", "it names:\n  - a season"),
    risks="none",
    planned_actions=(Action("publish", ActionKind.COMMAND, argv=("make", "publish"), undo=("make", "back")),),
    checks=(Check("made", file="haiku.txt"),),
)
DERIVED = Spec(
    "A haiku",
    instructions="Write one.",
    context="It rains.",
    expected_output="haiku.txt",
    scope_in="Write one.",
    inputs="It rains.",
    outputs="haiku.txt",
    acceptance_criteria=("haiku.txt",),
)


@pytest.mark.parametrize("spec", [FULL, DERIVED, Spec("")])
def test_what_is_rendered_reads_back(spec: Spec) -> None:
    assert rewritten(Spec(""), render_spec(spec)) == spec
    assert rewritten(spec, render_spec(spec)) == spec


def test_a_section_that_is_left_out_stays_and_an_empty_one_is_emptied() -> None:
    assert rewritten(FULL, "## Risks\n\nmany") == replace(FULL, risks="many")
    assert rewritten(FULL, "## Scope Out\n\n## Checks\n") == replace(FULL, scope_out="", checks=())


def test_what_was_derived_follows_what_it_was_derived_from() -> None:
    mended = rewritten(
        DERIVED, "## Instructions\n\nWrite two.\n\n## Context\n\nSun.\n\n## Expected Output\n\ntwo.txt\n"
    )
    assert mended is not None
    assert (mended.scope_in, mended.inputs, mended.outputs) == ("Write two.", "Sun.", "two.txt")
    assert mended.acceptance_criteria == ("two.txt",)
    bare = Spec("g", acceptance_criteria=(DERIVED_CRITERION,))
    assert rewritten(bare, "## Risks\n\nnone") == replace(bare, risks="none", acceptance_criteria=())


def test_other_sections_are_not_part_of_a_spec() -> None:
    assert rewritten(FULL, "- two pages\n- a title") is None
    assert rewritten(FULL, "## Summary\n\nGood.") is None


def test_checks_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(MessageError, match="exactly one of"):
        rewritten(FULL, "## Checks\n\n- id: a\n")


def test_a_task_md_shows_the_written_spec_and_not_the_derived_parts() -> None:
    assert dict(shown_sections(DERIVED, "A haiku")) == {"Context": "It rains.", "Expected Output": "haiku.txt"}
    shown = dict(shown_sections(FULL, "Another title"))
    assert shown["Goal"] == "A haiku"
    assert shown["Acceptance Criteria"] == "- 17 syllables\n- it names:\n  - a season"
    assert "Instructions" not in shown


def test_a_draft_is_read_also_out_of_a_fence() -> None:
    text = "```markdown\n## Goal\n\nG\n\n## Acceptance Criteria\n\n- it exists\n- it is short\n```"
    draft = read_answer(text, Asked(Turn.DRAFT))
    assert isinstance(draft, Drafted)
    assert (draft.spec.goal, draft.spec.acceptance_criteria) == ("G", ("it exists", "it is short"))


@pytest.mark.parametrize("text", ["I cannot.", "", "## Checks\n\n- id: a\n"])
def test_a_draft_that_says_nothing_is_unreadable(text: str) -> None:
    assert isinstance(read_answer(text, Asked(Turn.DRAFT)), Unclear)
