"""Pools with real daemons, hub processes and a real server: each job is done once, whoever dies or freezes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.support import eventually, task
from tests.hub.conftest import Joined
from tests.hub.farm import Farm, Host

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}


def serves(host: Host, agent: str, slots: int = 2) -> None:
    """As one would edit hub.yaml."""
    settings = host.folder / "hub.yaml"
    settings.write_text(
        settings.read_text().replace("pools: {}", f"pools: {{reviewer: {{agent: {agent}, slots: {slots}}}}}")
    )


def jobs(count: int) -> dict[str, Any]:
    names = [f"x{number}" for number in range(count)]
    return {name: {"agent": "pool:reviewer", "description": name, "expected_output": "One line."} for name in names}


def until_served(farm: Farm, *hosts: str) -> None:
    """The sender knows who serves the pool."""
    main = farm["alpha"]["main"]
    peers = main.root / ".mailboxd" / "hub" / "peers.json"
    eventually(
        lambda: all(f'"{host}"' in peers.read_text().partition('"pools"')[2] for host in hosts), 30, farm.last_words
    )


def test_a_job_goes_to_a_host_that_serves_the_pool_and_its_result_comes_back(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"rev": WORK}})
    serves(farm["beta"], "rev")
    farm.start()
    until_served(farm, "beta")
    main = farm["alpha"]["main"]
    main.drop("go.md", task("job", plan=jobs(3)))
    main.until("job")
    assert "Result of" in main.task("job.x0")["result"]
    assert len(farm["beta"].executions(agent="rev")) == 3
    farm.at_rest()
    eventually(lambda: farm["beta"].status()["pools"]["served"]["reviewer"]["held"] == 0, 30, farm.last_words)
