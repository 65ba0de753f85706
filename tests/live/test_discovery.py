"""Whom a plan may name, asked of the real OpenClaw: its configuration changes while the daemon runs."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.support import eventually, task
from tests.live.conftest import FoundApart
from tests.live.gateway import run_of
from tests.live.model import Text


def gives_to(agent: str) -> dict[str, Any]:
    return {"x": {"agent": agent, "description": "X", "expected_output": "One line."}}


def test_an_agent_that_is_added_to_openclaw_may_be_given_work_without_a_restart(found_apart: FoundApart) -> None:
    company = found_apart(run_of(["alpha", "beta"]), start=False, synthesis="concat", inbox={"rescan_seconds": 2})
    alpha, model, config = company["alpha"], company.model, company.gateway.config
    model.on(Text("The outcome."))
    full = config.read_text()
    lone = json.loads(full)
    del lone["agents"]["entries"]["beta"]
    config.write_text(json.dumps(lone))
    company.gateway.start()
    alpha.start()
    alpha.drop("1.md", task("before", plan=gives_to("beta")))
    eventually(lambda: alpha.rejections() == {"1.md": "unknown-agent"}, 60, alpha.last_words)
    named = json.loads(full)
    named["agents"]["entries"]["beta"]["identity"] = {"name": "Bea", "theme": "writes short reports"}
    config.write_text(json.dumps(named))
    alpha.drop("2.md", task("after", plan=gives_to("beta")))
    alpha.until("after", seconds=120)
    assert model.per_attempt()["beta", "after.x", "1"] == 1
    peers = json.loads(alpha.query("SELECT value FROM v_meta WHERE name = 'peers'")[0]["value"])
    assert peers["known"]["beta"] == ["Bea", str(company.gateway.workspace("beta"))]
    assert peers["roles"] == {"beta": "writes short reports"}
    assert peers["lane"] >= 8
    company.at_rest()
