"""Which call of an answer tool counts: what the plugin kept, and what the run's own record says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mailboxd.core.outcomes import Failed, Succeeded
from mailboxd.perform.agents.answer_calls import Claim, RefusedTooOften, Submitted, ToolCall, parse_claim, prove
from mailboxd.perform.agents.outcome import classify
from tests.agents.recorded import printed, recorded

RIGHT = ToolCall("mailboxd_finish", {"result": "Done."})
OTHER = ToolCall("mailboxd_finish", {"result": "Not done."})


def user(text: str = "[mailboxd] work turn · task t · attempt 1\n\nDo.") -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(*calls: ToolCall, text: str = "") -> dict[str, Any]:
    said = [{"type": "text", "text": text}] if text else []
    made = [{"type": "toolCall", "id": "c", "name": call.tool, "arguments": call.arguments} for call in calls]
    return {"role": "assistant", "content": [*said, *made]}


RESULT = {"role": "toolResult", "toolName": "mailboxd_finish", "content": [{"type": "text", "text": "Taken."}]}


def kept(token: str = "trn_1", **more: Any) -> bytes:
    calls = [{"name": RIGHT.tool, "arguments": RIGHT.arguments}]
    return json.dumps({"token": token, "calls": calls, **more}).encode()


def test_the_plugins_file_is_read_for_its_own_turn_only() -> None:
    assert parse_claim(kept(), "trn_1") == Claim((RIGHT,))
    assert parse_claim(kept("trn_2"), "trn_1") is None
    refused = json.dumps({"token": "trn_1", "calls": [], "refusals": 5, "problems": ["result: is missing"]}).encode()
    assert parse_claim(refused, "trn_1") == Claim((), 5, ("result: is missing",))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"token": "trn_1"}',
        kept(calls="x"),
        kept(calls=[7, {"name": "exec", "arguments": {}}, {"name": "mailboxd_ask", "arguments": "x"}]),
        kept(calls=[], refusals=True),
    ],
)
def test_anything_else_in_its_place_claims_nothing(raw: bytes) -> None:
    assert parse_claim(raw, "trn_1") is None


def test_a_call_counts_if_the_session_holds_it() -> None:
    assert prove(Claim((RIGHT,)), [user(), reply(RIGHT, text="Here."), RESULT]) == Submitted(RIGHT, "Here.")


def test_a_forged_file_proves_nothing() -> None:
    assert prove(Claim((RIGHT,)), []) is None
    assert prove(Claim((RIGHT,)), [user(), reply(text="It is bad.")]) is None
    assert prove(Claim((RIGHT,)), [user(), reply(OTHER), RESULT]) is None
    by_shell = ToolCall("exec", {"command": json.dumps(RIGHT.arguments)})
    assert prove(Claim((RIGHT,)), [user(), reply(by_shell), {**RESULT, "role": "user"}]) is None


def test_a_call_of_an_earlier_turn_of_the_session_does_not_count() -> None:
    assert prove(Claim((RIGHT,)), [user(), reply(RIGHT), RESULT, user(), reply(OTHER), RESULT]) is None


def test_the_first_call_counts_also_when_a_resumed_run_submits_another() -> None:
    messages = [user(), reply(RIGHT), user("[System] Your previous turn was interrupted."), reply(OTHER), RESULT]
    assert prove(Claim((RIGHT, OTHER)), messages) == Submitted(RIGHT)


def test_a_call_that_the_record_lost_makes_room_for_the_next() -> None:
    assert prove(Claim((RIGHT, OTHER)), [user(), reply(OTHER), RESULT]) == Submitted(OTHER)


def test_two_different_calls_in_one_reply_contradict_each_other() -> None:
    assert prove(Claim((RIGHT, OTHER)), [user(), reply(RIGHT, OTHER)]) == Submitted(RIGHT, other=OTHER)
    assert prove(Claim((RIGHT,)), [user(), reply(RIGHT, RIGHT)]) == Submitted(RIGHT)
    assert prove(Claim((RIGHT,)), [user(), reply(OTHER, RIGHT)]) == Submitted(RIGHT)  # the other one was refused


def test_numbers_and_texts_are_the_same_as_openclaw_turns_one_into_the_other() -> None:
    said = ToolCall("mailboxd_verdict", {"verdict": "approved", "findings": [{"line": 3, "severity": "minor"}]})
    made = ToolCall("mailboxd_verdict", {"findings": [{"severity": "minor", "line": "3"}], "verdict": "approved"})
    assert prove(Claim((said,)), [user(), reply(made)]) == Submitted(made)


def test_too_many_refusals_need_as_many_calls() -> None:
    claim = Claim((), 5, ("result: is missing",))
    wrong = ToolCall("mailboxd_finish", {})
    assert prove(claim, [user(), *[reply(wrong)] * 5]) == RefusedTooOften(("result: is missing",))
    assert prove(claim, [user(), *[reply(wrong)] * 4]) is None


# What the run says of itself


def ended(**meta: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(recorded("ok").stdout)
    answer["result"]["payloads"] = []
    answer["result"]["meta"] |= {"stopReason": "toolUse", "finalAssistantVisibleText": None, **meta}
    return answer


def test_a_run_that_was_ended_by_an_answer_has_succeeded_without_a_text() -> None:
    summary = {"calls": 1, "tools": ["mailboxd_finish"], "failures": 0}
    outcome = classify(printed(ended(toolSummary=summary, intentionalTerminalCompletion="tool-batch")))
    assert isinstance(outcome, Succeeded)
    assert outcome.text == ""
    assert isinstance(classify(printed(ended(toolSummary=summary))), Failed)
    others = {**summary, "tools": ["exec"]}
    assert isinstance(classify(printed(ended(toolSummary=others, intentionalTerminalCompletion="tool-batch"))), Failed)


def test_a_call_that_is_nested_too_deep_is_none() -> None:
    nested: Any = 1
    for _ in range(800):
        nested = {"a": nested}
    call = ToolCall("mailboxd_finish", {"result": "Done.", "planned_actions": [nested]})
    claimed = {"token": "trn_1", "calls": [{"name": call.tool, "arguments": call.arguments}]}
    assert parse_claim(json.dumps(claimed).encode(), "trn_1") is None
    assert prove(Claim((RIGHT,)), [user(), reply(call)]) is None
