"""The breaker of an agent: a broken one gets no turns, no task loses its attempts to it, and it recovers by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, task

pytestmark = pytest.mark.slow

OVERLOADED = {"fail": {"kind": "transient", "error": "overloaded"}}
WELL = {"default": {"reply": "Text."}}
QUICK = {"failures": 2, "open_seconds": 0.4, "open_max_seconds": 1}


def breaker(agent: Agent, name: str) -> dict[str, Any]:
    return next(iter(agent.query("SELECT * FROM v_breakers WHERE agent = ?", name)), {})


def give(alpha: Agent, *names: str) -> None:
    for name in names:
        alpha.drop(f"{name}.md", task(name, max_attempts=9))


def accepted(company: Company) -> int:
    return sum(1 for entry in company.entries() if entry["event"] == "begin")


def test_faults_of_several_tasks_open_it_and_the_one_turn_that_is_let_through_closes_it(found: Found) -> None:
    rules = [{"match": ".", "times": 4, **OVERLOADED}, {"reply": "Text."}]
    company = found({"alpha": {"rules": rules}}, breaker=QUICK, limits={"turns_per_agent": 2})
    alpha = company["alpha"]
    alpha.start()
    give(alpha, "one", "two", "three")
    for name in ("one", "two", "three"):
        alpha.until(name)
    opened = alpha.events("breaker.opened")
    assert len(opened) >= 2, "a turn that fails while it is half open opens it again"
    assert "2 faults in a row" in opened[0]["data"]["reason"]
    assert opened[1]["data"]["times"] == 2
    assert alpha.events("breaker.half_open")
    assert alpha.events("breaker.closed")
    assert breaker(alpha, "alpha")["state"] == "closed"
    company.at_rest()


def test_while_it_is_open_no_turn_starts_and_no_attempt_is_lost_also_over_a_crash(found: Found) -> None:
    company = found({"alpha": {"default": OVERLOADED}}, breaker={**QUICK, "open_seconds": 600, "open_max_seconds": 600})
    alpha = company["alpha"]
    alpha.start()
    give(alpha, "one", "two")
    eventually(lambda: breaker(alpha, "alpha").get("state") == "open", why=alpha.last_words)
    turns = accepted(company)
    alpha.kill()
    company.rewrite({"alpha": WELL})
    alpha.start()
    give(alpha, "three")
    eventually(lambda: alpha.phase("three") == "execution_ready", why=alpha.last_words)
    (shut,) = alpha.json("status")["breakers"]
    assert (shut["agent"], shut["state"]) == ("alpha", "open")
    (cause, *_) = alpha.json("why", "three")["because"]
    assert (cause["kind"], cause["at"]) == ("breaker", shut["until"])
    assert "resume --agent alpha" in cause["hint"]
    assert (accepted(company), len(alpha.attempts("three"))) == (turns, 0)
    assert alpha.call("resume", "--agent", "alpha").returncode == 0
    for name in ("one", "two", "three"):
        alpha.until(name)
    assert alpha.call("resume", "--agent", "alpha").returncode == 1
    assert alpha.events("breaker.closed")[0]["role"] == "operator"
    company.at_rest()


def test_an_agent_gets_no_more_turns_than_its_hour_allows(found: Found) -> None:
    company = found({"alpha": WELL}, limits={"turns_per_agent_hour": 2})
    alpha = company["alpha"]
    alpha.start()
    give(alpha, "one", "two")
    alpha.until("one")
    alpha.until("two")
    give(alpha, "three")
    eventually(lambda: alpha.phase("three") == "execution_ready")
    eventually(lambda: alpha.json("why", "three")["because"][0]["kind"] == "pace", why=alpha.last_words)
    assert len(company.executions()) == 2
    company.at_rest()
