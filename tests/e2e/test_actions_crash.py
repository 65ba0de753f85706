"""kill -9 of the runner and of the daemon, at every change of the world: an effect happens at most once.

A witness outside counts: every effect appends a line. `done` means that there is one, and only what was begun and not
ended may be `unknown`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import (
    ALONE,
    WORK,
    acting,
    approve,
    approved,
    asked,
    effect,
    happened,
    killed_at,
    row,
    rows,
    runner,
    runner_pids,
)
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, environment, eventually

KILLS = int(os.environ.get("MAILBOXD_KILLS", "6"))
SEED = int(os.environ.get("MAILBOXD_SEED", "7"))
RUNNER_MOMENTS = 15
"""Changes of the world that a runner makes."""
DAEMON_MOMENTS = 56
"""Changes that a daemon makes between a yes and the end, about."""

pytestmark = pytest.mark.slow


def moments(most: int) -> list[Any]:
    return every_third(sorted(random.Random(SEED).sample(range(1, most + 1), min(KILLS, most))))


def every_third(points: Iterable[int]) -> list[Any]:
    """Every third point; `make soak` tries those between as well."""
    return [pytest.param(point, marks=pytest.mark.soak if number % 3 else ()) for number, point in enumerate(points)]


def ended(agent: Agent) -> bool:
    return agent.phase("job") in ("completed", "circuit_open")


def daemon_killed_at(agent: Agent, point: int) -> None:
    words = killed_at(point)
    subprocess.run([*words, "run", "--until-idle"], cwd=agent.root, env=environment(), capture_output=True, timeout=300)


def test_a_runner_makes_no_more_changes_than_that(found: Found, tmp_path: Path) -> None:
    """The next test kills it at each of them."""
    company = found({"alpha": WORK}, approvals=ALONE)
    process = runner(company["alpha"], approved(company, [effect(tmp_path / "witness")]), *killed_at(0))
    _, said = process.communicate(timeout=300)
    assert int(said.rpartition("changes: ")[2]) <= RUNNER_MOMENTS


@pytest.mark.parametrize("point", every_third(range(2, RUNNER_MOMENTS + 1)))
def test_a_runner_that_is_killed_at_this_change_of_the_world(found: Found, tmp_path: Path, point: int) -> None:
    company, witness = found({"alpha": WORK}, approvals=ALONE), tmp_path / "witness"
    alpha = company["alpha"]
    name = approved(company, [effect(witness)])
    runner(alpha, name, *killed_at(point)).wait(30)
    before = row(alpha)["state"]
    alpha.start()
    eventually(lambda: ended(alpha), 40, alpha.last_words)
    eventually(lambda: not runner_pids(alpha, name), 10)
    state, times = row(alpha)["state"], happened(witness)
    assert times <= 1
    assert (state, times, alpha.phase("job")) == ("done", 1, "completed") or (
        (state, alpha.phase("job")) == ("unknown", "circuit_open") and before == "started"
    )
    company.at_rest()


@pytest.mark.parametrize("point", moments(DAEMON_MOMENTS))
def test_a_daemon_that_is_killed_while_it_performs_does_it_once(found: Found, tmp_path: Path, point: int) -> None:
    company, witness = found({"alpha": WORK}, approvals=ALONE), tmp_path / "witness"
    alpha = company["alpha"]
    approved(company, [effect(witness, "sleep 0.2")])
    daemon_killed_at(alpha, point)
    alpha.start()
    alpha.until("job", seconds=60)
    assert happened(witness) == 1
    assert row(alpha)["state"] == "done"
    company.at_rest()


@pytest.mark.parametrize("point", moments(78))
def test_a_daemon_that_is_killed_while_it_asks_asks_once(found: Found, tmp_path: Path, point: int) -> None:
    company, witness = found({"alpha": WORK}, approvals=ALONE), tmp_path / "witness"
    alpha = company["alpha"]
    conf = {"id": "conf", "kind": "file", "path": str(tmp_path / "conf"), "content": "x"}
    alpha.drop("job.md", acting("job", [effect(witness), conf]))
    daemon_killed_at(alpha, point)
    alpha.start()

    def waits() -> bool:
        looks_up = alpha.query("SELECT 1 FROM v_outbox WHERE kind = 'look_up' AND state = 'pending' AND tries > 0")
        return (alpha.phase("job") == "awaiting_approval" and len(rows(alpha)) == 2) or bool(looks_up)

    eventually(waits, 60, alpha.last_words)
    if rows(alpha):  # else the turn that did the work is looked up, for 45 s
        assert [found["state"] for found in rows(alpha)] == ["", ""]
        approve(alpha, *asked(alpha, 2))
        alpha.until("job", seconds=60)
        assert happened(witness) == 1
        assert (tmp_path / "conf").read_text() == "x"
    else:
        assert happened(witness) == 0


def test_many_effects_under_many_kills_happen_at_most_once_each(found: Found, tmp_path: Path) -> None:
    """Daemon and runners die again and again, at moments that nobody chose, alone and together."""
    chance, many = random.Random(SEED), 2 * KILLS
    company = found({"alpha": WORK}, approvals=ALONE, limits={"turns_per_agent": 4})
    alpha = company["alpha"]
    witnesses = {f"job{number}": tmp_path / f"witness{number}" for number in range(many)}
    for name, witness in witnesses.items():
        alpha.drop(f"{name}.md", acting(name, [effect(witness, "sleep 0.2")]))
    alpha.run(seconds=120)
    approve(alpha, *asked(alpha, many))
    pause = threading.Event()

    def kill_runners() -> None:
        for found_ in rows(alpha):
            for pid in runner_pids(alpha, found_["id"]):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def over() -> bool:
        return all(phase in ("completed", "circuit_open") for phase in alpha.phases().values())

    for _ in range(2 * KILLS):
        alpha.start()
        pause.wait(chance.uniform(0.1, 1.5))
        if chance.random() < 0.6:
            kill_runners()
        alpha.kill()
        if over():
            break
    alpha.start()
    eventually(over, 120, alpha.last_words)
    for found_ in rows(alpha):
        name = next(name for name in witnesses if f'{witnesses[name]}"' in found_["action"])
        times, state = happened(witnesses[name]), found_["state"]
        assert times <= 1, f"{name} happened {times} times"
        assert (state == "done" and times == 1) or state == "unknown" or (state == "failed" and times == 0), found_
    company.at_rest()
