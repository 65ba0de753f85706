"""What models answer: every case of the corpus in answers/ has one meaning, and gets it.

A case says which turn was asked (`turn`, and `answers` if one of them had to be declared) and its `text`. `meaning` is
result, plan, question, failure, review, vote, spec, ack, silence, or unclear: it is asked again, and with `claim` a
`status: done` alone confirms it. `whole`: all of the text is the result. `contains` and `lacks` are about what is
passed on, `problem` about what is asked. The agents beta, gamma and delta exist; alpha answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mailboxd.core.json_codec import to_json
from mailboxd.core.outcomes import (
    Acknowledged,
    Answer,
    Correction,
    Drafted,
    Failure,
    Planned,
    Question,
    Results,
    Reviewed,
    Silence,
    Unclear,
)
from mailboxd.core.vocabulary import Turn
from mailboxd.formats.protocol.answer import Asked, read_answer

CASES: list[dict[str, Any]] = [
    case
    for file in sorted(Path(__file__).parent.glob("answers/*.yaml"))
    for case in yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
]
KINDS: dict[str, type[Any]] = {
    "result": Results,
    "plan": Planned,
    "question": Question,
    "failure": Failure,
    "review": Reviewed,
    "vote": Results,
    "spec": Drafted,
    "ack": Acknowledged,
    "silence": Silence,
    "unclear": Unclear,
}
AGENTS = ("alpha", "beta", "gamma", "delta")


def asked_by(case: dict[str, Any], correction: Correction | None = None) -> Asked:
    return Asked(Turn(case["turn"]), AGENTS, answers=tuple(case.get("answers", ())), correction=correction)


def names(cases: list[dict[str, Any]]) -> list[str]:
    return [case["name"] for case in cases]


def test_no_two_cases_have_the_same_name() -> None:
    assert len(set(names(CASES))) == len(CASES) >= 220


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_an_answer_has_its_one_meaning(case: dict[str, Any]) -> None:
    said = read_answer(case["text"], asked_by(case))
    assert isinstance(said, KINDS[case["meaning"]]), said
    passed = passed_on(said)
    for part in case.get("contains", ()):
        assert part in passed
    for part in case.get("lacks", ()):
        assert part not in passed
    match said:
        case Results(text, answer):
            assert answer == case.get("answer", "")
            assert not case.get("whole") or text == case["text"].strip()
        case Planned(plan):
            assert [as_listed(child) for child in plan.children] == case["plan"]
        case Reviewed(verdict, _, findings):
            assert (verdict, [finding.severity for finding in findings]) == (case["verdict"], case["severities"])
            assert "place" not in case or [findings[0].file, findings[0].line] == case["place"]
        case Drafted(spec):
            assert len(spec.acceptance_criteria) == case["criteria"]
        case Unclear(problems, text, is_claim):
            assert text == case["text"].strip(), "nothing of it is lost"
            assert len(problems) >= case.get("problems", 1)
            assert case.get("problem", "") in " ".join(problems)
            assert "claim" not in case or is_claim == case["claim"]


def as_listed(child: Any) -> dict[str, Any]:
    listed = {"id": child.key, "agent": child.agents[0] if len(child.agents) == 1 else list(child.agents)}
    return listed | ({"after": list(child.depends_on)} if child.depends_on else {})


def passed_on(said: Answer) -> str:
    """Everything of the answer that somebody reads."""
    match said:
        case Results(text) | Question(text) | Failure(text):
            return text
        case Reviewed(_, summary, findings):
            return "\n".join([summary, *(finding.message for finding in findings)])
        case Drafted(spec):
            return str(to_json(spec))
    return ""


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
def test_an_answer_that_is_asked_again_is_told_what_to_write(case: dict[str, Any]) -> None:
    said = read_answer(case["text"], asked_by(case))
    if isinstance(said, Unclear):
        for problem in said.problems:
            assert problem == " ".join(problem.split()), "one paragraph"
            assert problem[-1] in ".!?", problem


CLAIMS = [case for case in CASES if case["meaning"] == "unclear" and case.get("claim")]


@pytest.mark.parametrize("case", CLAIMS, ids=names(CLAIMS))
def test_the_second_answer_counts_as_it_stands(case: dict[str, Any]) -> None:
    """A repeated refusal is a failure and never done; a bare `status: done` makes the first answer the result."""
    first = read_answer(case["text"], asked_by(case))
    assert isinstance(first, Unclear)
    again = asked_by(case, Correction(first.problems, 1, first.text))
    for confirmation in (
        "---\ntype: reply\nstatus: done\n---\n",
        "status: done",
        '{"status": "done"}',
        "Yes, this is the result.",
    ):
        confirmed = read_answer(confirmation, again)
        assert isinstance(confirmed, Results), (confirmation, confirmed)
        assert confirmed.text
    repeated = read_answer(case["text"], again)
    assert not isinstance(repeated, Unclear) or case["name"].startswith("plan-"), repeated
