"""Calls of tools that a model wrote as text are asked about; what only looks like a call is the result."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mailboxd.core.outcomes import Correction, Results, Unclear
from mailboxd.core.vocabulary import Turn
from mailboxd.formats.protocol.answer import Asked, read_answer

_FILE = yaml.load(Path(__file__).with_name("calls.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
CALLS: list[str] = [text.strip() for text in _FILE["calls"]]
RESULTS: list[str] = [text.strip() for text in _FILE["results"]]


@pytest.mark.parametrize("turn", [Turn.WORK, Turn.SYNTHESIS, Turn.DISPATCH])
@pytest.mark.parametrize("text", CALLS, ids=range(len(CALLS)))
def test_a_call_is_no_result_however_often_it_is_sent(text: str, turn: Turn) -> None:
    first = read_answer(text, Asked(turn))
    assert isinstance(first, Unclear), first
    assert "tool call" in first.problems[0]
    again = read_answer(text, Asked(turn, correction=Correction(first.problems, 1, "")))
    assert isinstance(again, Unclear)


@pytest.mark.parametrize("text", CALLS, ids=range(len(CALLS)))
def test_a_call_is_no_result_of_a_task_that_has_subtasks(text: str) -> None:
    assert isinstance(read_answer(text, Asked(subtasks=("research",))), Unclear)


@pytest.mark.parametrize("text", RESULTS, ids=range(len(RESULTS)))
def test_code_documents_and_data_are_results(text: str) -> None:
    said = read_answer(text, Asked())
    assert isinstance(said, Results), said


def test_what_a_coding_agent_hands_in_as_its_completion_is_the_result() -> None:
    said = read_answer(
        "<attempt_completion>\n<result>\nThe sum is 17 < 18.\n</result>\n<command>open a.html</command>\n"
        "</attempt_completion>",
        Asked(),
    )
    assert said == Results("The sum is 17 < 18.")


@pytest.mark.parametrize(
    "call",
    [
        "<longcat_tool_call>read\n</longcat_tool_call>",
        "<minimax:tool_call>\n<invoke name='read'></invoke>\n</minimax:tool_call>",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"path":"a"}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        '[TOOL_REQUEST]{"name":"read","arguments":{}}[END_TOOL_REQUEST]',
    ],
)
def test_a_call_in_front_of_an_answer_is_no_part_of_it(call: str) -> None:
    assert read_answer(f"{call}\n\nThe sum is 17.", Asked()) == Results("The sum is 17.")
