"""The updates of a harness while it works, in any form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.perform.agents.acp.session_updates import SessionUpdates


def collecting() -> SessionUpdates:
    return SessionUpdates(session="s", listening=True)


def say(updates: SessionUpdates, kind: str, session: str = "s", /, **update: Any) -> None:
    updates.update({"sessionId": session, "update": {"sessionUpdate": kind, **update}})


def words(updates: SessionUpdates, text: str, session: str = "s") -> None:
    say(updates, "agent_message_chunk", session, content={"type": "text", "text": text})


def test_the_answer_is_the_text_after_the_last_tool_call() -> None:
    updates = collecting()
    words(updates, "I look around.")
    say(updates, "tool_call", toolCallId="1", kind="read", title="Read a")
    words(updates, "---\ntype: ")
    say(updates, "tool_call_update", toolCallId="1", status="completed")
    words(updates, "question\n---\nWhich?")
    assert updates.text == "---\ntype: question\n---\nWhich?"


def test_without_words_after_it_all_words_are_the_answer() -> None:
    updates = collecting()
    words(updates, "Done.")
    say(updates, "tool_call", toolCallId="1", kind="edit")
    assert updates.text == "Done."


def test_another_session_and_a_replay_are_not_listened_to() -> None:
    updates = collecting()
    words(updates, "not ours", session="t")
    updates.listening = False
    words(updates, "of an earlier turn")
    assert updates.text == ""


def test_touched_files_are_known_when_the_call_completes() -> None:
    updates = collecting()
    diff = {"type": "diff", "path": "/w/a", "oldText": "x", "newText": "y"}
    say(updates, "tool_call", toolCallId="1", kind="edit", title="Edit a", content=[diff], status="pending")
    say(updates, "tool_call", toolCallId="2", kind="read", locations=[{"path": "/w/b"}], status="completed")
    assert updates.touched == []
    say(updates, "tool_call_update", toolCallId="1", status="completed", title=None)
    assert (updates.touched, updates.diffs, updates.note) == (["/w/a"], [("/w/a", "x", "y")], "edit: Edit a")


def test_its_plan_and_its_costs_are_noted() -> None:
    updates = collecting()
    say(updates, "plan", entries=[{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}])
    say(updates, "usage_update", cost={"amount": 0.25, "currency": "USD"})
    assert (updates.note, updates.cost_usd) == ("1 of 2 steps done; b", 0.25)


def test_more_than_is_kept_is_marked_as_cut() -> None:
    updates = collecting()
    words(updates, "x" * 3_000_000)
    assert (len(updates.text), updates.cut) == (2 * 1024 * 1024, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "type", "text"]), inner),
    max_leaves=6,
)
KINDS = ["agent_message_chunk", "tool_call", "tool_call_update", "plan", "usage_update", "hologram", None, 7]
KEYS = ["content", "toolCallId", "kind", "title", "locations", "rawInput", "status", "entries", "cost"]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(KEYS), JSON)), max_size=5))
def test_nothing_that_it_may_say_is_an_error(sent: list[tuple[Any, dict[str, Any]]]) -> None:
    updates = collecting()
    for kind, update in sent:
        updates.update({"sessionId": "s", "update": {**update, "sessionUpdate": kind}})
    assert isinstance(updates.text, str)


MODEL = {"category": "model", "currentValue": "m-1"}


@pytest.mark.parametrize(
    ("said", "model"),
    [
        (
            {
                "configOptions": [
                    {"category": "mode", "currentValue": "x"},
                    {"category": "model", "currentValue": "m-1"},
                ]
            },
            "m-1",
        ),
        ({"models": {"currentModelId": "m-2"}}, "m-2"),
        ({"configOptions": "nonsense", "models": []}, ""),
        (None, ""),
    ],
)
def test_the_model_of_a_session_is_what_it_reports(said: object, model: str) -> None:
    updates = collecting()
    updates.configured(said)
    assert updates.model == model


def test_a_change_of_the_model_is_taken() -> None:
    updates = collecting()
    updates.configured({"models": {"currentModelId": "m-1"}})
    say(updates, "config_option_update", configOptions=[{"category": "model", "currentValue": "m-2"}])
    assert updates.model == "m-2"
