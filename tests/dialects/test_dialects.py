"""What the scripted agents say in dialects is what they mean, or is asked about; it is never anything else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailboxd.core.model import Finding, Overrides, Plan, PlannedChild
from mailboxd.core.outcomes import (
    Acknowledged,
    Answer,
    Correction,
    Failure,
    Planned,
    Question,
    Results,
    Reviewed,
    Unclear,
)
from mailboxd.core.vocabulary import Turn, Verdict
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.perform.agents.scripted.dialects import ANY, DIALECTS, EVASIONS, ScriptedReply, names, respelled, say

AGENTS = ("alpha", "beta", "gamma", "delta")
MEADOW = Plan(
    (
        PlannedChild("seed", ("beta",), "Order the seed", expected_output="The bill"),
        PlannedChild("sow", ("self",), "Sow it", ("seed",), instructions="Evenly.\n\nBy hand."),
        PlannedChild("water", ("gamma", "delta"), "Water it: twice", ("seed", "sow"), overrides=Overrides(timeout=60)),
    ),
    "water",
)
FEE = Finding("major", "The fee is 14 and not 41", "fees.md", 3)
SPACES = Finding("minor", "Two spaces after the colon")
YES_NO = ("yes", "no")
MEANINGS: dict[str, tuple[Turn, tuple[str, ...], Answer]] = {
    "a sentence": (Turn.WORK, (), Results("Forty chairs are needed: five rows of eight.")),
    "a document": (Turn.WORK, (), Results("# Found\n\n- one\n- two\n\n```sh\nls\n```\n\nThat is all.")),
    "a table": (Turn.SYNTHESIS, (), Results("Both lists:\n\n| a | b |\n|---|---|\n| 1 | 2 |")),
    "a peer's work": (Turn.DISPATCH, (), Results("Forty chairs are needed.")),
    "an answer to a question": (Turn.ANSWER, (), Results("The blue database.")),
    "yes": (Turn.WORK, YES_NO, Results("Both doors were tested.", "yes")),
    "no, with two paragraphs": (Turn.DISPATCH, YES_NO, Results("The paint is wet.\n\nA coat is missing.", "no")),
    "revise": (Turn.DISPATCH, ("approve", "revise"), Results("It is too long.", "revise")),
    "unsolved": (Turn.WORK, ("solved", "unsolved"), Results("Nobody knows this error.", "unsolved")),
    "a failure": (Turn.WORK, (), Failure("There is no network.")),
    "a final failure": (Turn.WORK, (), Failure("There is no network.", "Half of the list", permanent=True)),
    "a peer's failure": (Turn.DISPATCH, (), Failure("The file is empty.")),
    "a question": (Turn.WORK, (), Question("Which of the two databases?")),
    "a peer's question": (Turn.DISPATCH, (), Question("Which of the two databases?")),
    "a question to the operator": (Turn.ANSWER, (), Question("Which of the two databases?")),
    "an acknowledgement": (Turn.DISPATCH, (), Acknowledged()),
    "a plan": (Turn.WORK, (), Planned(MEADOW)),
    "a plan of one": (Turn.SYNTHESIS, (), Planned(Plan(MEADOW.children[:1]))),
    "an approval": (Turn.REVIEW, (), Reviewed(Verdict.APPROVED, "It is complete.")),
    "an approval with a remark": (Turn.REVIEW, (), Reviewed(Verdict.APPROVED, "It is complete.", (SPACES,))),
    "two findings": (Turn.REVIEW, (), Reviewed(Verdict.CHANGES_REQUESTED, "Two are wrong.", (FEE, SPACES))),
    "a block": (Turn.REVIEW, (), Reviewed(Verdict.BLOCKED, "It breaks the law.")),
}


def asked_for(turn: Turn, answers: tuple[str, ...], correction: Correction | None = None) -> Asked:
    return Asked(turn, AGENTS, answers=answers, correction=correction)


def core_of(answer: Answer) -> Answer:
    """What follows from an answer: of a vote its word, of a review all but its summary."""
    match answer:
        case Results(_, word) if word:
            return Results("", word)
        case Reviewed(verdict, _, findings):
            return Reviewed(verdict, "", findings)
    return answer


def check(meaning: Answer, turn: Turn, answers: tuple[str, ...], dialect: str, seed: str) -> None:
    said = say(meaning, asked_for(turn, answers), dialect, seed)
    assert said is not None
    read = read_answer(said.text, asked_for(turn, answers))
    if said.evades:
        assert isinstance(read, Unclear), said.text
        form = say(meaning, asked_for(turn, answers), "form", seed)
        assert form is not None
        claim = read.text if read.is_claim else ""
        read = read_answer(form.text, asked_for(turn, answers, Correction(read.problems, 1, claim)))
    assert core_of(read) == core_of(meaning), said.text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("meaning", MEANINGS)
def test_a_meaning_survives_each_dialect(meaning: str, dialect: str) -> None:
    turn, answers, answer = MEANINGS[meaning]
    for seed in "abc":
        check(answer, turn, answers, dialect, seed)


@pytest.mark.parametrize("meaning", MEANINGS)
def test_a_meaning_survives_habits_in_any_combination(meaning: str) -> None:
    turn, answers, answer = MEANINGS[meaning]
    for seed in range(40):
        check(answer, turn, answers, ANY, str(seed))


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(st.sampled_from(sorted(MEANINGS)), st.integers())
def test_a_meaning_survives_habits_in_every_combination(meaning: str, seed: int) -> None:
    turn, answers, answer = MEANINGS[meaning]
    check(answer, turn, answers, ANY, str(seed))


PARTS = [
    "the fee is 14",
    "yes",
    "no",
    "approved",
    "blocked",
    "major",
    "status: done",
    "---",
    "```",
    "subtasks:",
    "None",
]
PARTS += [
    ": ",
    "- ",
    "\n",
    "\n\n",
    "# ",
    "| a |",
    " ",
    "<think>",
    "NO_REPLY",
    "I cannot ",
    "but ",
    "?",
    '"',
    "'",
    "{",
    "é",
]
WORDS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map(lambda parts: f"Word {''.join(parts)}")


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(WORDS, st.sampled_from(names()), st.integers())
def test_whatever_a_text_holds_it_is_never_taken_for_something_else(text: str, dialect: str, seed: int) -> None:
    """It may be asked about: `Which one?` reads like a question."""
    for turn, answers, meaning in (
        (Turn.WORK, (), Results(text.strip())),
        (Turn.WORK, YES_NO, Results(text.strip(), "no")),
        (Turn.WORK, (), Failure(text.strip())),
        (Turn.WORK, (), Question(text.strip())),
        (Turn.REVIEW, (), Reviewed(Verdict.CHANGES_REQUESTED, "No.", (Finding("major", " ".join(text.split())),))),
        (Turn.WORK, (), Planned(Plan((PlannedChild("one", ("beta",), " ".join(text.split())),)))),
    ):
        said = say(meaning, asked_for(turn, answers), dialect, str(seed))
        assert said is not None
        read = read_answer(said.text, asked_for(turn, answers))
        assert isinstance(read, (type(meaning), Unclear)), said.text
        if isinstance(read, Results) and isinstance(meaning, Results):
            assert read.answer == meaning.answer, said.text
        if isinstance(read, Reviewed):
            assert read.verdict is Verdict.CHANGES_REQUESTED, said.text


def test_the_same_seed_says_the_same_and_seeds_differ() -> None:
    texts = {seed: say(Planned(MEADOW), Asked(), ANY, seed) for seed in map(str, range(30))}
    assert texts == {seed: say(Planned(MEADOW), Asked(), ANY, seed) for seed in texts}
    assert len({said.text for said in texts.values() if said is not None}) > 20


def test_every_evasion_is_said_of_some_meaning_and_only_there() -> None:
    said = {
        name: [
            meaning
            for meaning, (turn, answers, answer) in MEANINGS.items()
            if EVASIONS[name](answer, Asked(turn, answers=answers))
        ]
        for name in EVASIONS
    }
    assert all(said.values())
    assert said["cut"] == ["a plan", "a plan of one"]
    assert "an approval" not in said["partial"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("---\ntype: reply\nstatus: perhaps\n---\n", "work"),
        ("## Goal\n\nA sign\n", "draft"),
        ("Forty chairs are needed.", "reply"),
        ("Sent.\n\n## Planned Actions\n\n```yaml\n- {id: p, kind: command, argv: [make]}\n```\n", "work"),
    ],
    ids=["no single meaning", "a draft", "no answer is wanted", "actions"],
)
def test_what_has_no_other_spelling_is_left_as_it_is(text: str, kind: str) -> None:
    assert respelled(text, kind, (), "json", "a") is None


def test_a_raw_answer_is_read_and_said_in_the_dialect() -> None:
    raw = "---\ntype: reply\nstatus: done\nanswer: yes\n---\n## Results\n\nBoth doors were tested.\n"
    assert respelled(raw, "task", YES_NO, "json", "a") is not None
    said = respelled(raw, "work", YES_NO, "prose", "a")
    assert said is not None
    assert "status" not in said.text
    assert respelled(raw, "work", YES_NO, "contradiction", "a") == ScriptedReply("yes and no", evades=True)
