"""Three hosts, three servers, and kill -9 of everything at random: each piece of work is done once, and comes back."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import task
from tests.hub.farm import Farm

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}.", "delay": 0.2}}
NAMES = ("alpha", "beta", "gamma")


def plan(host: str, count: int) -> dict[str, Any]:
    """Work for the agents of the other hosts in turn."""
    others = [name for name in NAMES if name != host]
    names = [f"x{number}" for number in range(count)]
    agents = {name: f"{others[number % 2]}.worker" for number, name in enumerate(names)}
    return {name: {"agent": agents[name], "description": name, "expected_output": "One line."} for name in names}


def victims(farm: Farm) -> list[Callable[[], None]]:
    """What kills one process of the farm and starts it again."""

    def daemon(name: str) -> Callable[[], None]:
        def again() -> None:
            farm[name]["worker"].kill()
            farm[name]["worker"].start(wait=False)

        return again

    def hub(name: str) -> Callable[[], None]:
        def again() -> None:
            farm[name].kill_hub()
            farm[name].start_hub()

        return again

    def node(number: int) -> Callable[[], None]:
        def again() -> None:
            farm.servers[number].kill()
            farm.servers[number].start()

        return again

    nodes = range(len(farm.servers))
    return [*(daemon(name) for name in NAMES), *(hub(name) for name in NAMES), *(node(number) for number in nodes)]


def chaos(farm: Farm, roots: int, children: int, kills: int, seed: int) -> None:
    """Give out work on all hosts while processes are killed; everything has to end as if nothing had been."""
    farm.start()
    chance, pause = random.Random(seed), threading.Event()
    deaths = victims(farm)
    for number in range(max(roots, kills)):
        if number < roots:
            for name in NAMES:
                farm[name]["worker"].drop(f"{number}.md", task(f"job{number}", plan=plan(name, children)))
        if number < kills:
            chance.choice(deaths)()
        pause.wait(chance.uniform(0.2, 1.0))
    try:
        for name in NAMES:
            for number in range(roots):
                farm[name]["worker"].until(f"job{number}", seconds=180)
    except AssertionError as stuck:
        raise AssertionError(farm.last_words()) from stuck
    done = sum(len(farm[name].executions(kind="task")) + len(farm[name].executions(kind="work")) for name in NAMES)
    assert done == len(NAMES) * roots * children
    farm.at_rest()
    for name in NAMES:
        worker = farm[name]["worker"]
        assert not worker.mail("duplicate"), "the hub delivered a message twice"
        assert not worker.events("message.undelivered")
        assert worker.call("db", "verify").returncode == 0


@pytest.mark.slow
def test_nothing_is_lost_or_done_twice_while_everything_is_killed(tmp_path: Path) -> None:
    farm = Farm(tmp_path / "farm", {name: {"worker": WORK} for name in NAMES}, nodes=3)
    try:
        chaos(farm, roots=4, children=4, kills=20, seed=int(os.environ.get("SEED", "1")))
    finally:
        farm.close()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 7))
def test_nothing_is_lost_or_done_twice_for_long(tmp_path: Path, seed: int) -> None:
    farm = Farm(tmp_path / "farm", {name: {"worker": WORK} for name in NAMES}, nodes=3)
    try:
        chaos(farm, roots=20, children=6, kills=150, seed=seed)
    finally:
        farm.close()
