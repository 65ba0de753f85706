"""How turns of a real agent end, and what each costs: silence, cuts, broken tools, refusals, timeouts, sizes."""

from __future__ import annotations

import json

import pytest

from tests.e2e.support import Agent, task
from tests.live.conftest import Found
from tests.live.model import Exec, Hang, Text, plan


def statuses(agent: Agent, local_id: str) -> list[str]:
    return [row["status"] for row in agent.attempts(local_id)]


@pytest.mark.soak
def test_silence_is_asked_about_and_by_openclaw_itself_where_it_is_no_text(found: Found) -> None:
    """REPLY_SKIP ends a turn; NO_REPLY and an empty answer OpenClaw asks about again by itself, and then it fails."""
    company = found()
    alpha, model = company["alpha"], company.model
    model.on(Text("REPLY_SKIP"), task="skip")
    model.on(Text("The list: one key."), task="skip", text="There was no answer")
    for name, word in (("mute", "NO_REPLY"), ("void", "")):
        model.on(Text(word), task=name, attempt="1")
        model.on(Text("The list: one key."), task=name, attempt="2")
    alpha.start()
    for name in ("skip", "mute", "void"):
        alpha.drop(f"{name}.md", task(name))
    for name in ("skip", "mute", "void"):
        assert alpha.until(name)["result"] == "The list: one key."
    assert statuses(alpha, "skip") == ["succeeded"]
    for name in ("mute", "void"):
        assert statuses(alpha, name) == ["failed", "succeeded"]
    calls = model.per_attempt()
    assert calls["alpha", "skip", "1"] == 2
    assert calls["alpha", "mute", "1"] > 1
    assert calls["alpha", "void", "1"] > 1
    assert [calls["alpha", name, "2"] for name in ("mute", "void")] == [1, 1]
    company.at_rest()


@pytest.mark.soak
def test_an_answer_after_a_silence_within_the_turn_is_the_answer(found: Found) -> None:
    company = found()
    alpha, model = company["alpha"], company.model
    model.on(Text("Second thoughts."), task="hesitant")
    model.on(Text("NO_REPLY"), task="hesitant", times=1)
    alpha.start()
    alpha.drop("go.md", task("hesitant"))
    assert alpha.until("hesitant")["result"] == "Second thoughts."
    assert model.per_attempt() == {("alpha", "hesitant", "1"): 2}
    company.at_rest()


def test_a_tool_that_failed_is_the_agents_business(found: Found) -> None:
    """What it says afterwards is its answer; what the turn used is recorded with the attempt."""
    company = found()
    alpha, model = company["alpha"], company.model
    model.on(Exec("exit 3"), Text("It does not work here, but here is the rest."), task="tool")
    alpha.start()
    alpha.drop("go.md", task("tool"))
    assert alpha.until("tool")["result"] == "It does not work here, but here is the rest."
    assert model.per_attempt() == {("alpha", "tool", "1"): 2}
    (attempt,) = alpha.attempts("tool")
    usage = json.loads(attempt["usage"])
    assert (usage["input_tokens"], usage["output_tokens"]) == (200, 20)
    assert usage["cost_usd"] > 0
    assert attempt["run_id"]
    company.at_rest()


@pytest.mark.soak
def test_a_tool_without_words_after_it_is_no_answer_and_asked_about(found: Found) -> None:
    """OpenClaw says `ok` and puts a sentence of its own in the place of the agent's answer."""
    company = found()
    alpha, model = company["alpha"], company.model
    model.on(Exec("echo x >> ran"), Text(""), task="wordless")
    model.on(Text("It ran."), task="wordless", text="There was no answer")
    alpha.start()
    alpha.drop("go.md", task("wordless"))
    assert alpha.until("wordless")["result"] == "It ran."
    assert statuses(alpha, "wordless") == ["succeeded"]
    assert (alpha.root / "ran").read_text() == "x\n"
    company.at_rest()


def test_a_turn_that_takes_too_long_is_stopped_and_repeated(found: Found) -> None:
    company = found()
    alpha, model = company["alpha"], company.model
    model.on(Hang(), task="slow", attempt="1")
    model.on(Text("In time."), task="slow", attempt="2")
    alpha.start()
    alpha.drop("go.md", task("slow", timeout=8))
    assert alpha.until("slow")["result"] == "In time."
    first, second = alpha.attempts("slow")
    assert (first["status"], second["status"]) == ("failed", "succeeded")
    assert "timed out" in first["error_summary"]
    assert model.per_attempt()["alpha", "slow", "2"] == 1
    company.at_rest()


@pytest.mark.soak
def test_a_tool_that_takes_too_long_is_a_timeout_although_openclaw_says_ok(found: Found) -> None:
    company = found()
    alpha, model = company["alpha"], company.model
    model.on(Exec("echo x >> ran; sleep 60"), Text("Slept."), task="sleeper", attempt="1")
    model.on(Text("Awake."), task="sleeper", attempt="2")
    alpha.start()
    alpha.drop("go.md", task("sleeper", timeout=8))
    assert alpha.until("sleeper")["result"] == "Awake."
    assert statuses(alpha, "sleeper") == ["failed", "succeeded"]
    assert (alpha.root / "ran").read_text() == "x\n"
    assert model.per_attempt() == {("alpha", "sleeper", "1"): 1, ("alpha", "sleeper", "2"): 1}
    company.at_rest()


@pytest.mark.soak
def test_a_message_of_a_megabyte_reaches_the_model_whole(found: Found) -> None:
    """1,048,576 bytes: the largest that an inbox takes by default."""
    company = found()
    alpha, model = company["alpha"], company.model
    empty = task("letter").replace("Do letter.", "")
    words = "".join(f"line {number} of the long letter\n" for number in range(40_000))
    words = words[: 1_048_576 - len(empty)].rstrip()
    words += "." * (1_048_576 - len(empty) - len(words))
    model.on(Text("Read."), task="letter")
    alpha.start()
    alpha.drop("go.md", task("letter").replace("Do letter.", words))
    assert alpha.until("letter")["result"] == "Read."
    (call,) = model.calls
    assert words in call.text
    assert [row["size"] for row in alpha.mail()] == [1_048_576]
    company.at_rest()


def test_a_message_over_the_limit_of_openclaw_fails_without_a_call(found: Found) -> None:
    company = found(limits={"message_bytes": 8_000_000})
    alpha, model = company["alpha"], company.model
    words = "\n".join(f"line {number} of the endless letter" for number in range(130_000))
    assert len(words) > 4_194_304
    alpha.start()
    alpha.drop("go.md", task("endless").replace("Do endless.", words))
    alpha.until("endless", "failed")
    assert "4194304" in alpha.task("endless")["error"]
    assert model.calls == []
    (answer,) = alpha.sent("reply")
    assert "4194304" in answer
    company.at_rest()


def test_an_unclear_answer_is_asked_for_again_in_the_session_that_gave_it(found: Found) -> None:
    """By this agent and by a peer without a daemon: the second prompt follows the first one and the refused answer."""
    company = found()
    alpha, model = company["alpha"], company.model
    unclear = "---\ntype: reply\nstatus: perhaps\n---\n\nSo so.\n"
    parts = {"own": {"agent": "self", "description": "One"}, "other": {"agent": "beta", "description": "Two"}}
    for name in ("job.own", "job.other"):
        model.on(Text("Clear."), task=name, text="last answer was not taken")
        model.on(Text(unclear), task=name, times=1)
    model.on(Text("Both."), task="job", kind="synthesis")
    model.on(plan(parts), task="job", kind="work")
    alpha.start()
    alpha.drop("go.md", task("job"))
    assert alpha.until("job")["result"] == "Both."
    for name in ("job.own", "job.other"):
        assert alpha.task(name)["result"] == "Clear."
        assert statuses(alpha, name) == ["succeeded"]
    calls = [call for call in model.calls if call.task in ("job.own", "job.other")]
    assert len(calls) == 4
    for first_words in ("You are alpha. Do this task", "# Task: Two"):
        first, second = (call for call in calls if first_words in call.text)
        assert "was not taken" not in first.text
        assert second.text.index(first_words) < second.text.index("last answer was not taken"), "the same session"
    assert len(alpha.events("answer.unclear")) == 2
    company.at_rest()
