"""Pools with real daemons, hub processes and a real server: each job is done once, whoever dies or freezes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
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


def freeze(host: Host, signal_: signal.Signals = signal.SIGSTOP) -> None:
    """The hub process and the daemons of a host, at once."""
    for process in (host.process, *(agent.process for agent in host.agents.values())):
        assert process is not None
        os.kill(process.pid, signal_)


def kill(host: Host) -> None:
    host.kill_hub()
    for agent in host.agents.values():
        agent.kill()


def held(host: Host) -> int:
    path = host.folder / "jobs.json"
    return sum(job["stage"] == "held" for job in json.loads(path.read_text()).values()) if path.exists() else 0


def known(host: Host) -> dict[str, Any]:
    """The jobs of pools that a host remembers."""
    path = host.folder / "jobs.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def until_served(farm: Farm, *hosts: str) -> None:
    """The sender knows who serves the pool."""
    peers = farm["alpha"].folder / "peers.json"

    def are_known() -> bool:
        pools = peers.read_text().partition('"pools"')[2] if peers.exists() else ""
        return all(f'"{host}"' in pools for host in hosts)

    eventually(are_known, 30, farm.last_words)


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


def test_why_and_status_say_who_has_a_job_or_that_no_one_does(joined: Joined) -> None:
    slow = {"mailbox": "true", "default": {"reply": "The outcome.", "delay": 300}}
    farm = joined({"alpha": {"main": WORK}, "beta": {"rev": slow}})
    serves(farm["beta"], "rev", slots=1)
    farm.start()
    until_served(farm, "beta")
    alpha, main = farm["alpha"], farm["alpha"]["main"]
    main.drop("go.md", task("job", plan=jobs(2)))
    eventually(lambda: "1 with beta" in alpha.hub("status").stdout, 30, farm.last_words)
    assert "1 with no host yet" in alpha.hub("status").stdout
    assert "pool:reviewer here: rev has 1 of at most 1 jobs" in farm["beta"].hub("status").stdout
    eventually(lambda: "the host beta has it" in main.call("why", "job").stdout, 30, farm.last_words)
    assert "no host has taken it yet; pool:reviewer is served by beta" in main.call("why", "job").stdout


@pytest.mark.soak
def test_work_for_a_pool_that_nobody_serves_is_not_planned(joined: Joined) -> None:
    farm = joined({"alpha": {"main": WORK}, "beta": {"rev": WORK}})
    farm.start()
    main = farm["alpha"]["main"]
    main.drop("go.md", task("job", plan=jobs(1)))
    eventually(lambda: main.rejections().get("go.md") == "unknown-agent", 30, farm.last_words)


def test_cancelled_work_is_cancelled_where_it_is_and_taken_by_nobody_else(joined: Joined) -> None:
    slow = {"mailbox": "true", "default": {"reply": "The outcome.", "delay": 60}}
    farm = joined({"alpha": {"main": WORK}, "beta": {"rev": slow}})
    serves(farm["beta"], "rev", slots=1)
    farm.start()
    until_served(farm, "beta")
    main, rev = farm["alpha"]["main"], farm["beta"]["rev"]
    main.drop("go.md", task("job", plan=jobs(2)))
    eventually(lambda: "1 with beta" in farm["alpha"].hub("status").stdout, 30, farm.last_words)
    assert main.call("cancel", "job", "--now").returncode == 0
    eventually(lambda: list(rev.phases().values()) == ["cancelled"], 30, farm.last_words)
    eventually(lambda: not farm["alpha"].spooled("sent"), 30, farm.last_words)
    eventually(lambda: not held(farm["beta"]), 30, farm.last_words)
    assert len(rev.mail("accepted")) == 2, "the job and its cancel"


HOLDERS = {
    name: {"rev": WORK | {"default": {"reply": "The outcome.", "delay": 1}}} for name in ("beta", "gamma", "delta")
}


def test_a_host_that_freezes_and_one_that_dies_cost_a_lease_and_no_second_effect(joined: Joined) -> None:
    farm, count = joined({"alpha": {"main": WORK}, **HOLDERS}), 30
    main, beta, gamma = farm["alpha"]["main"], farm["beta"], farm["gamma"]
    for name in ("beta", "gamma", "delta"):
        serves(farm[name], "rev", slots=4)
    farm.start()
    until_served(farm, "beta", "gamma", "delta")
    main.drop("go.md", task("job", plan=jobs(count)))
    eventually(lambda: held(beta) and held(gamma), 60, farm.last_words)
    freeze(beta)
    kill(gamma)
    main.until("job", seconds=60 + 3 * count)
    freeze(beta, signal.SIGCONT)
    eventually(lambda: not (beta.spooled("new") + beta.spooled("sent")) and not held(beta), 90, farm.last_words)
    replies = [row for row in main.mail() if row["sender"] in ("beta.rev", "gamma.rev", "delta.rev")]
    assert [row["verdict"] for row in replies] == ["accepted"] * count, "each job has one result, and none came late"
    done = Counter(
        entry["task_id"] for name in ("beta", "gamma", "delta") for entry in farm[name].executions(agent="rev")
    )
    assert len(done) == count
    again = sum(done.values()) - count
    assert again <= 8, "only what the two hosts had was begun again"
    for name in ("alpha", "delta"):
        farm[name].at_rest()


@pytest.mark.soak  # test_claims.py states it for every order of steps
@pytest.mark.parametrize("rewound", [False, True], ids=["lost", "rewound"])
def test_jobs_under_way_end_although_the_server_lost_its_store(joined: Joined, *, rewound: bool) -> None:
    farm, count = joined({"alpha": {"main": WORK}, **{name: HOLDERS[name] for name in ("beta", "gamma")}}), 6
    main, store = farm["alpha"]["main"], farm.server.folder / "store"
    for name in ("beta", "gamma"):
        serves(farm[name], "rev")
    farm.start()
    until_served(farm, "beta", "gamma")
    if rewound:  # to when it had other jobs under the same numbers
        main.drop("before.md", task("before", plan=jobs(2)))
        main.until("before")
        farm.server.kill()
        shutil.copytree(store, store.with_name("old"))
        farm.server.start()
    main.drop("go.md", task("job", plan=jobs(count)))
    eventually(lambda: held(farm["beta"]) and held(farm["gamma"]), 60, farm.last_words)
    farm.server.kill()
    shutil.rmtree(store)
    if rewound:
        store.with_name("old").rename(store)
    farm.server.start()
    main.until("job", seconds=90)
    eventually(lambda: not any(known(farm[name]) for name in ("beta", "gamma")), 40, farm.last_words)
    replies = [row for row in main.mail() if row["sender"] in ("beta.rev", "gamma.rev")]
    assert [row["verdict"] for row in replies] == ["accepted"] * (2 * rewound + count), "each job has one result"
    farm.at_rest()
