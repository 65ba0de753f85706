"""What makes a spec weak is a rule, not a matter of taste."""

from __future__ import annotations

import pytest

from mailboxd.core.model import Check, Spec
from mailboxd.core.specs import FILLERS, VAGUE, is_vague, lint
from mailboxd.core.vocabulary import WeakSpec

STRICT = (WeakSpec.DRAFT, WeakSpec.ASK)


@pytest.mark.parametrize(
    "criterion",
    [
        "",
        "...",
        "works well",
        "It works well.",
        "Good quality",
        "The quality is good, and everything is done properly.",
        "as appropriate",
        "etc.",
        "TBD",
        "n/a",
        "OK",
        "The result should be of high quality.",
        "The code is clean and robust, state of the art.",
        "The report is good",
        "A good report, finished as expected",
    ],
)
def test_words_that_cannot_be_checked_are_vague(criterion: str) -> None:
    assert is_vague(criterion, "Write the report")


@pytest.mark.parametrize(
    "criterion",
    [
        "The report has two pages",
        "works on Python 3.11",
        "All tests pass",
        "One line.",
        "A report",
        "The tests are good",
        "No word is misspelt, etc.",
        "Er ist gut",
        "完了",
        "report.md",
        "42",
    ],
)
def test_words_that_say_something_are_not(criterion: str) -> None:
    assert not is_vague(criterion, "Write the report")


@pytest.mark.parametrize("word", VAGUE)
def test_every_vague_word_alone_is_vague(word: str) -> None:
    assert is_vague(word)
    assert is_vague(f"It is {word.upper()}.")
    assert not is_vague(f"{word} and 17 syllables")


def test_the_lists_are_in_order_and_do_not_overlap() -> None:
    assert list(VAGUE) == sorted(set(VAGUE))
    assert list(FILLERS) == sorted(set(FILLERS))
    assert not set(VAGUE) & set(FILLERS)


@pytest.mark.parametrize(
    ("spec", "lenient", "strict"),
    [
        (Spec("g", acceptance_criteria=("two pages",)), (), ()),
        (Spec("g", expected_output="two pages"), (), ()),
        (Spec("g", checks=(Check("a", file="x"),)), (), ()),
        (Spec(" ", expected_output="two pages"), ("goal",), ("goal",)),
        (Spec("g"), ("acceptance_criteria",), ("acceptance_criteria",)),
        (Spec(""), ("goal", "acceptance_criteria"), ("goal", "acceptance_criteria")),
        (Spec("g", acceptance_criteria=("works well",)), (), ("acceptance_criteria",)),
        (Spec("g", acceptance_criteria=("works well", "two pages")), (), ()),
        (Spec("g", acceptance_criteria=("works well",), expected_output="two pages"), (), ()),
        (Spec("g", acceptance_criteria=("works well",), expected_output="fine"), (), ("acceptance_criteria",)),
        (Spec("g", acceptance_criteria=("works well",), checks=(Check("a", file="x"),)), (), ()),
    ],
)
def test_a_spec_is_weak_without_a_goal_or_without_anything_to_check(
    spec: Spec, lenient: tuple[str, ...], strict: tuple[str, ...]
) -> None:
    assert tuple(one.field for one in lint(spec, WeakSpec.DERIVE)) == lenient
    for weak in STRICT:
        assert tuple(one.field for one in lint(spec, weak)) == strict


def test_a_check_that_may_not_run_is_a_weakness_under_every_policy() -> None:
    for weak in WeakSpec:
        (found,) = lint(Spec("g", expected_output="x"), weak, ("the check a may not run here",))
        assert (found.field, found.problem) == ("checks", "the check a may not run here")
