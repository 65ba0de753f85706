"""Budgets: what a tree costs is summed up to its root; over budget it waits for the operator, and nothing is killed."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task

pytestmark = pytest.mark.slow

DEAR = {"default": {"reply": "Result of {title}.", "cost": 0.5}}
WORK = {"default": {"reply": "Text."}}
THREE = {name: {"agent": "beta", "description": name.upper()} for name in ("a", "b", "c")}


def held(alpha: Agent, name: str) -> str:
    return str(alpha.task(name).get("held", ""))


def test_what_a_tree_costs_is_summed_up_to_its_root_with_its_reviews_and_its_synthesis(found: Found) -> None:
    review = {
        "rules": [
            {"match": {"kind": "review"}, "reply": "---\ntype: review\nverdict: approved\n---\nFine.", "cost": 0.25}
        ]
    }
    company = found({"alpha": DEAR, "beta": DEAR, "rex": review})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=THREE, gates="quality_gate", reviewers="rex"))
    alpha.run()
    root = alpha.task("job")
    assert root["phase"] == "completed"
    turns = alpha.turns()
    assert {turn["purpose"] for turn in turns} == {"dispatch", "synthesis", "review"}
    assert root["spent_usd"] == pytest.approx(sum(turn["usage"].get("cost_usd", 0) for turn in turns))
    assert root["spent_usd"] == pytest.approx(3 * 0.5 + 0.5 + 4 * 0.25)  # children inherit the gate
    assert root["turns"] == 2
    assert alpha.json("show", "job")["spent"]["usd"] == root["spent_usd"]
    company.at_rest()


def test_over_budget_the_tree_waits_visibly_until_the_operator_raises_it(found: Found) -> None:
    company = found({"alpha": DEAR, "beta": DEAR}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=THREE, budget_usd="0.75"))
    eventually(lambda: held(alpha, "job"), why=alpha.last_words)
    eventually(alpha.has_nothing_to_do)
    assert sorted(alpha.phase(f"job.{name}") for name in "abc") == ["completed", "completed", "execution_ready"]
    (item,) = alpha.json("inbox")
    assert (item["kind"], item["command"]) == ("hold", "mailboxd retry job --budget-usd 1.75")
    assert "over budget" in item["text"]
    assert "over budget" in (alpha.root / "tasks/job/task.md").read_text()
    (waiting,) = [name for name in "abc" if alpha.phase(f"job.{name}") == "execution_ready"]
    assert alpha.json("why", f"job.{waiting}")["because"][0]["kind"] == "budget"
    refused = alpha.call("retry", "job")
    assert (refused.returncode, "over-budget" in refused.stderr) == (1, True)
    alpha.kill()
    alpha.start()
    assert held(alpha, "job"), "a restart lets nothing go on"
    assert alpha.call("retry", "job", "--budget-usd", "5").returncode == 0
    alpha.until("job")
    assert len(company.executions(agent="beta")) == 3
    company.at_rest()


def test_what_a_peer_with_a_daemon_says_it_cost_is_added_and_marked_as_its_word(found: Found) -> None:
    company = found(
        {"alpha": {"mailbox": "true", **DEAR}, "beta": {"mailbox": "true", **DEAR}},
        daemons=("alpha", "beta"),
        synthesis="concat",
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", plan={"a": THREE["a"]}, budget_usd="2"))
    alpha.until("job")
    (told,) = alpha.events("usage.reported")
    assert told["data"]["usage"]["cost_usd"] == pytest.approx(0.5)
    assert alpha.task("job")["spent_usd"] >= 0.5
    assert "cost_usd: 0.5" in beta.sent("reply")[0]
    assert json.loads(beta.task("job.a")["policy"])["budget_usd"] == pytest.approx(2)
    company.at_rest()


TEN = {f"c{number}": {"agent": "self", "description": "Plan more."} for number in range(10)}
TEN_EACH = {"plan": TEN}
"""Each turn plans ten children, and each of their turns ten more."""


def test_agents_that_plan_without_end_are_held_at_the_default_limit_with_the_way_on(found: Found) -> None:
    """With no limit but the depth, this made 2,281 tasks in 25 s."""
    company = found({"alpha": {"default": TEN_EACH}}, limits={"turns": 4, "turns_per_agent": 4})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: held(alpha, "job"), 60, alpha.last_words)
    eventually(alpha.has_nothing_to_do)
    count = len(alpha.phases()) - 1
    assert 200 < count <= 200 + 4 * 10, "what ran was let finish, and what it planned stands there"
    status = alpha.json("status")
    limits = {"planned_per_tree": 200, "planned_per_hour": 1000, "turns_per_task": 50, "turns_per_tree": 1000}
    hourly = {"turns_per_agent_hour": 1000, "sender_hour_tasks": 500, "sender_hour_turns": 1000}
    assert status["limits"] == {**limits, **hourly, "depth": 8}
    (item,) = status["attention"]
    assert item["text"].endswith("200 are allowed (limits.planned_per_tree)")
    assert item["command"].endswith(" retry job")
    cause = alpha.json("why", "job")["because"][0]
    assert "raise limits.planned_per_tree in .mailboxd/config.yaml and restart the daemon" in cause["hint"]
    text = alpha.call("status", "--all").stdout
    assert "planned_per_tree 200, planned_per_hour 1000" in text
    assert alpha.call("retry", "job").returncode == 0
    eventually(lambda: len(alpha.phases()) - 1 > count + 200 and held(alpha, "job"), 60, alpha.last_words)
    assert len(alpha.phases()) - 1 <= count + 240
    assert alpha.call("cancel", "job", "--now").returncode == 0
    alpha.until("job", "cancelled")
    company.at_rest()
