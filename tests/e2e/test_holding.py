"""An order that ends work is held by the daemon: its death keeps the hold, which is taken back or carried out once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task

pytestmark = pytest.mark.slow
ASKING = {"alpha": {"rules": [{"match": "Do", "reply": "---\ntype: question\n---\n\nWhich figures?\n"}]}}


def killed_while_it_holds(agent: Agent) -> None:
    """A task waits for an answer, its cancelling is held, and the daemon is dead."""
    agent.start()
    agent.drop("job.md", task("job"))
    eventually(lambda: agent.json("show", "job")["question"])
    done = agent.call("cancel", "job", "--reason", "not wanted")
    assert done.returncode == 0, done.stderr
    agent.kill()
    assert held(agent) == ["cancel"]
    assert agent.phase("job") == "executing"


def held(agent: Agent) -> list[str]:
    return [row["name"] for row in agent.query("SELECT name FROM v_held_orders")]


def cancellations(agent: Agent) -> list[dict[str, Any]]:
    """The events by which a task was cancelled."""
    return agent.query("SELECT * FROM v_events WHERE data ->> '$.passed[#-1].to' = 'cancelled' ORDER BY seq")


def ways(agent: Agent) -> list[str]:
    return [event["data"]["how"] for event in agent.events("order.released")]


def test_a_restart_keeps_the_hold_and_undo_takes_it_back(found: Found) -> None:
    company = found(ASKING)
    alpha = company["alpha"]
    killed_while_it_holds(alpha)
    undone = alpha.call("undo", "job")
    assert undone.returncode == 0, undone.stderr
    alpha.start()
    company.at_rest()
    assert held(alpha) == []
    assert alpha.phase("job") == "executing"
    assert alpha.call("db", "verify").returncode == 0


def test_a_restart_carries_it_out_once_when_it_is_due(found: Found) -> None:
    company = found(ASKING)
    alpha = company["alpha"]
    killed_while_it_holds(alpha)
    (order,) = alpha.query("SELECT due FROM v_held_orders")
    alpha.start()
    alpha.until("job", "cancelled")
    (ended,) = cancellations(alpha)
    assert ended["at"] >= order["due"]
    alpha.kill()
    alpha.start()
    company.at_rest()
    assert ways(alpha) == ["carried out"]
    assert cancellations(alpha) == [ended]
    assert alpha.call("db", "verify").returncode == 0
