"""What a harness says while it works, in whatever form."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mailboxd.agents.acp.session_updates import Hearing


def hearing() -> Hearing:
    return Hearing(session="s", listening=True)


def say(heard: Hearing, kind: str, session: str = "s", /, **update: Any) -> None:
    heard.update({"sessionId": session, "update": {"sessionUpdate": kind, **update}})


def words(heard: Hearing, text: str, session: str = "s") -> None:
    say(heard, "agent_message_chunk", session, content={"type": "text", "text": text})


def test_the_answer_is_what_it_says_after_its_last_tool_call() -> None:
    heard = hearing()
    words(heard, "I look around.")
    say(heard, "tool_call", toolCallId="1", kind="read", title="Read a")
    words(heard, "---\ntype: ")
    say(heard, "tool_call_update", toolCallId="1", status="completed")
    words(heard, "question\n---\nWhich?")
    assert heard.text == "---\ntype: question\n---\nWhich?"


def test_without_words_after_it_all_words_are_the_answer() -> None:
    heard = hearing()
    words(heard, "Done.")
    say(heard, "tool_call", toolCallId="1", kind="edit")
    assert heard.text == "Done."


def test_another_session_and_a_replay_are_not_listened_to() -> None:
    heard = hearing()
    words(heard, "not ours", session="t")
    heard.listening = False
    words(heard, "of an earlier turn")
    assert heard.text == ""


def test_what_it_touches_is_known_when_the_call_is_completed() -> None:
    heard = hearing()
    diff = {"type": "diff", "path": "/w/a", "oldText": "x", "newText": "y"}
    say(heard, "tool_call", toolCallId="1", kind="edit", title="Edit a", content=[diff], status="pending")
    say(heard, "tool_call", toolCallId="2", kind="read", locations=[{"path": "/w/b"}], status="completed")
    assert heard.touched == []
    say(heard, "tool_call_update", toolCallId="1", status="completed", title=None)
    assert (heard.touched, heard.diffs, heard.note) == (["/w/a"], [("/w/a", "x", "y")], "edit: Edit a")


def test_its_plan_and_its_costs_are_noted() -> None:
    heard = hearing()
    say(heard, "plan", entries=[{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}])
    say(heard, "usage_update", cost={"amount": 0.25, "currency": "USD"})
    assert (heard.note, heard.cost_usd) == ("1 of 2 steps done; b", 0.25)


def test_more_than_is_kept_is_marked_as_cut() -> None:
    heard = hearing()
    words(heard, "x" * 3_000_000)
    assert (len(heard.text), heard.cut) == (2 * 1024 * 1024, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["path", "type", "text"]), inner),
    max_leaves=6,
)
KINDS = ["agent_message_chunk", "tool_call", "tool_call_update", "plan", "usage_update", "hologram", None, 7]
KEYS = ["content", "toolCallId", "kind", "title", "locations", "rawInput", "status", "entries", "cost"]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(KEYS), JSON)), max_size=5))
def test_nothing_that_it_may_say_is_an_error(updates: list[tuple[Any, dict[str, Any]]]) -> None:
    heard = hearing()
    for kind, update in updates:
        heard.update({"sessionId": "s", "update": {**update, "sessionUpdate": kind}})
    assert isinstance(heard.text, str)
