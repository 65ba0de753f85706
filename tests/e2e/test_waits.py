"""What work waits for at a peer is told to its sender: by `why`, in the inbox, and again when it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task
from tests.web.serve import served

PLAN = {"x": {"agent": "beta", "description": "X", "expected_output": "One line."}}
ALPHA: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Text."}}
BREAKS = {"match": {"kind": "work"}, "times": "3", "fail": {"kind": "transient", "error": "it broke"}}
BETA: dict[str, Any] = {"mailbox": "true", "rules": [BREAKS], "default": {"reply": "Mended."}}


def causes(agent: Agent, name: str) -> str:
    return " ".join(cause["text"] for cause in agent.json("why", name)["because"])


@pytest.mark.slow
def test_a_sender_hears_that_its_work_waits_for_a_person_at_the_peer_and_that_it_goes_on(found: Found) -> None:
    company = found({"alpha": ALPHA, "beta": BETA}, daemons=["alpha", "beta"], synthesis="concat")
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", plan=PLAN))
    eventually(lambda: "waits for a person at beta: stopped because" in causes(alpha, "job"), 40, alpha.last_words)
    assert "it broke" in causes(alpha, "job")
    assert "has not replied" not in causes(alpha, "job")
    said = "job.x waits for a person at beta: stopped because"
    assert alpha.json("show", "job")["at_peers"][0].startswith(said)
    assert f"at a peer    {said}" in alpha.call("show", "job").stdout
    tree = alpha.json("show", "job", "--tree")
    assert tree["waits_at_peer"].startswith(said)
    assert tree["children"][0]["waits_at_peer"].startswith("waits for a person at beta: ")
    assert "waits for a person at beta" in alpha.call("show", "job", "--tree").stdout.split("\n")[0]
    file = alpha.root / "tasks" / "job" / "task.md"
    eventually(lambda: "- job.x: waits for a person at beta: stopped because" in file.read_text(), 20, file.read_text)
    (item,) = [item for item in alpha.json("inbox") if item["kind"] == "peer"]
    assert item["task"] == "job.x"
    assert item["text"].startswith("waits for a person at beta: ")
    assert len(beta.sent("progress")) == 1
    beta.kill()
    beta.start()
    alpha.kill()
    alpha.start()
    assert "waits for a person at beta" in causes(alpha, "job"), "durable"
    beta.call("retry", beta.json("ls")[0]["local_id"])
    assert "Mended." in alpha.until("job")["result"]
    assert [item for item in alpha.json("inbox") if item["kind"] == "peer"] == []
    assert len(beta.sent("progress")) <= 2, "once for each change, whatever restarts"
    company.at_rest()


@pytest.mark.slow
def test_a_sender_hears_that_its_work_goes_on_while_that_takes_long(found: Found) -> None:
    slow = {**BETA, "default": {"reply": "Mended.", "delay": "15"}}
    company = found({"alpha": ALPHA, "beta": slow}, daemons=["alpha", "beta"], synthesis="concat")
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", plan=PLAN))
    eventually(lambda: "waits for a person at beta" in causes(alpha, "job"), 40, alpha.last_words)
    beta.call("retry", beta.json("ls")[0]["local_id"])
    eventually(lambda: "waits for a person" not in causes(alpha, "job"), 40, alpha.last_words)
    (taken,) = [row["local_id"] for row in beta.json("ls")]
    name = f"beta has taken it as {taken} (attempt 1, "
    assert name in causes(alpha, "job")
    assert name in alpha.call("show", "job.x").stdout
    with served(alpha.root, company.env) as page:
        assert name in page.get(f"/w/{page.key()}/t/job").words
    assert alpha.json("inbox") == []
    assert alpha.phase("job") == "executing"
    alpha.until("job")
    company.at_rest()


@pytest.mark.slow
def test_the_beginning_of_a_chain_hears_where_its_work_waits_for_a_person(found: Found) -> None:
    passes_on = {"match": {"kind": "work"}, "times": "1", "plan": {"y": {**PLAN["x"], "agent": "gamma"}}}
    agents = {"alpha": ALPHA, "beta": {**ALPHA, "rules": [passes_on]}, "gamma": BETA}
    company = found(agents, daemons=list(agents), synthesis="concat")
    for agent in company.agents.values():
        agent.start()
    alpha, gamma = company["alpha"], company["gamma"]
    alpha.drop("go.md", task("job", plan=PLAN))
    eventually(lambda: "waits for a person at gamma: stopped because" in causes(alpha, "job"), 60, alpha.last_words)
    assert "waits for a person at beta: " in causes(alpha, "job")
    gamma.call("retry", gamma.json("ls")[0]["local_id"])
    assert "Mended." in alpha.until("job")["result"]
    assert [item for item in alpha.json("inbox") if item["kind"] == "peer"] == []
    company.at_rest()
