"""The gateway goes away: before, in and after a turn, alone or together with the daemon. Nothing is done twice.

What is counted is a side effect: the model orders `echo x >> ran` as its first step, so `ran` has a line for each time
the work was really carried out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.support import Agent, eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import FoundApart
from tests.live.gateway import run_of
from tests.live.model import Exec, Fault, Hang, Text

PAIR: Mapping[str, Any] = run_of(["alpha", "beta"])


def executed(agent: Agent) -> int:
    """How often the side effect happened in this agent's workspace."""
    path = agent.root / "ran"
    return len(path.read_text().splitlines()) if path.exists() else 0


def in_the_middle(company: LiveCompany, local_id: str) -> None:
    """Let alpha begin work whose side effect has happened and whose model then hangs."""
    alpha, model = company["alpha"], company.model
    model.on(Exec("echo x >> ran"), Hang("It ran."), task=local_id)
    alpha.start()
    alpha.drop("go.md", task(local_id))
    eventually(lambda: any(call.steps for call in model.made(task=local_id)), 180, alpha.last_words)
    assert executed(alpha) == 1


def waits_for_the_gateway(alpha: Agent, local_id: str) -> bool:
    because = alpha.json("why", local_id)["because"]
    return any("when the gateway is back" in cause["then"] or cause["kind"] == "gateway" for cause in because)


def test_work_waits_for_a_gateway_that_is_down_and_no_attempt_is_used_up(found_apart: FoundApart) -> None:
    company = found_apart(PAIR, retry={"backoff_seconds": 1, "backoff_max_seconds": 3})
    company.gateway.stop()
    alpha, model = company["alpha"], company.model
    model.on(Text("At last."))
    alpha.start()
    alpha.drop("go.md", task("early", max_attempts=2))
    eventually(lambda: waits_for_the_gateway(alpha, "early"), 180, alpha.last_words)
    assert model.calls == []
    company.gateway.start()
    row = alpha.until("early")
    assert (row["result"], row["failures"]) == ("At last.", 0)
    assert len(model.calls) == 1
    company.at_rest()


def test_a_turn_whose_gateway_is_killed_is_looked_up_and_not_repeated(found_apart: FoundApart) -> None:
    company = found_apart(PAIR)
    alpha, model = company["alpha"], company.model
    in_the_middle(company, "cut")
    company.gateway.kill()
    model.release()
    company.gateway.start()
    row = alpha.until("cut")
    assert row["result"] == "It ran."
    assert executed(alpha) == 1
    assert len(alpha.attempts("cut")) == 1
    company.at_rest()


@pytest.mark.soak
def test_while_its_gateway_is_away_a_turn_is_neither_repeated_nor_given_up(found_apart: FoundApart) -> None:
    """Nobody can say what was done, so nothing is decided until somebody can be asked."""
    company = found_apart(PAIR, daemons=["alpha"], openclaw={"turn_timeout_seconds": 20})
    alpha, model = company["alpha"], company.model
    in_the_middle(company, "gone")
    company.gateway.kill()
    eventually(lambda: waits_for_the_gateway(alpha, "gone"), 180, alpha.last_words)
    assert [attempt["status"] for attempt in alpha.attempts("gone")] == ["running"]
    assert executed(alpha) == 1
    assert len(model.calls) == 2


@pytest.mark.soak
def test_daemon_and_gateway_die_together_in_the_middle(found_apart: FoundApart) -> None:
    company = found_apart(PAIR)
    alpha, model = company["alpha"], company.model
    in_the_middle(company, "both")
    alpha.kill()
    company.gateway.kill()
    model.release()
    company.gateway.start()
    alpha.start()
    row = alpha.until("both")
    assert row["result"] == "It ran."
    assert executed(alpha) == 1
    assert len(alpha.attempts("both")) == 1
    company.at_rest()


@pytest.mark.soak
def test_a_daemon_that_is_killed_finds_its_turn_again(found_apart: FoundApart) -> None:
    """The gateway and the client of the turn live on; the next daemon waits for that turn."""
    company = found_apart(PAIR)
    alpha, model = company["alpha"], company.model
    in_the_middle(company, "orphan")
    alpha.kill()
    alpha.start()
    model.release()
    assert alpha.until("orphan")["result"] == "It ran."
    assert executed(alpha) == 1
    assert model.per_attempt() == {("alpha", "orphan", "1"): 2}
    company.at_rest()


@pytest.mark.soak
def test_a_gateway_that_is_restarted_loses_nothing(found_apart: FoundApart) -> None:
    """In order (SIGTERM), with a turn under way and another task waiting."""
    company = found_apart(PAIR, retry={"backoff_seconds": 1, "backoff_max_seconds": 3})
    alpha, model = company["alpha"], company.model
    in_the_middle(company, "first")
    alpha.drop("2.md", task("second"))
    model.release()
    company.gateway.restart()
    alpha.until("first")
    alpha.until("second")
    assert executed(alpha) == 1
    company.at_rest()


@pytest.mark.soak
def test_a_model_that_fails_for_a_while_costs_one_attempt(found_apart: FoundApart) -> None:
    """HTTP 500: OpenClaw itself repeats for about two minutes, all within our first attempt."""
    company = found_apart(PAIR)
    alpha, model = company["alpha"], company.model
    model.on(Fault(500), task="broken", attempt="1")
    model.on(Text("Mended."), task="broken", attempt="2")
    alpha.start()
    alpha.drop("go.md", task("broken", timeout=300))
    assert alpha.until("broken")["result"] == "Mended."
    assert [row["status"] for row in alpha.attempts("broken")] == ["failed", "succeeded"]
    calls = model.per_attempt()
    assert calls.pop(("alpha", "broken", "2")) == 1
    assert list(calls) == [("alpha", "broken", "1")]
    company.at_rest()


def test_a_configuration_of_the_old_form_is_understood(found_apart: FoundApart) -> None:
    """`agents.list`, as before 2026.8.1: who there is and whom each may reach."""
    rules: Mapping[str, Any] = {"alpha": {"subagents": {"allowAgents": ["beta"]}}, "beta": {}, "gamma": {}}
    company = found_apart(rules, listed=True, synthesis="concat")
    alpha, model = company["alpha"], company.model
    model.on(Text("Found."), agent="beta")
    alpha.start()
    alpha.drop("good.md", task("good", plan={"x": {"agent": "beta", "description": "X"}}))
    alpha.drop("bad.md", task("bad", plan={"x": {"agent": "gamma", "description": "X"}}))
    alpha.until("good")
    assert alpha.rejections() == {"bad.md": "unknown-agent"}
    assert model.per_attempt() == {("beta", "good.x", "1"): 1}
    assert "list" in json.loads(company.gateway.config.read_text())["agents"]  # it has not been migrated meanwhile
    company.at_rest()
