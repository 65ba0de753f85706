"""A host that is restored from a backup, and an agent that cannot take its mail: one farm, one host after the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import eventually, task
from tests.hub.farm import Farm, Host

pytestmark = pytest.mark.slow

WORK: dict[str, Any] = {"mailbox": "true", "default": {"reply": "Result of {title}."}}
SLOW: dict[str, Any] = {"mailbox": "true", "default": {"delay": 600}}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    hosts = {"alpha": {"main": WORK}, "beta": {"writer": WORK, "poet": SLOW}}
    made = Farm(tmp_path_factory.mktemp("restored") / "farm", hosts)
    made.start()
    yield made
    made.close()


def gives_to(agent: str) -> dict[str, Any]:
    return {"x": {"agent": agent, "description": "Work", "expected_output": "One line."}}


def stop(host: Host) -> None:
    host.kill_hub()
    for agent in host.agents.values():
        agent.kill()


def start(host: Host) -> None:
    for agent in host.agents.values():
        agent.start(wait=False)
    host.start_hub()


def keep(host: Host, place: Path) -> None:
    """A backup of the workspaces of a host that does not run."""
    shutil.copytree(host.root / "ws", place / "ws", symlinks=True, ignore=shutil.ignore_patterns("socket"))


def restore(host: Host, place: Path) -> None:
    shutil.rmtree(host.root / "ws")
    shutil.copytree(place / "ws", host.root / "ws", symlinks=True)


def test_an_agent_that_cannot_take_its_mail_stops_no_other_and_its_sender_knows_why(farm: Farm) -> None:
    main, writer = farm["alpha"]["main"], farm["beta"]["writer"]
    inbox = writer.root / "mailbox" / "inbox"
    writer.kill()
    inbox.rename(inbox.with_name("away"))
    inbox.write_text("no directory")
    main.drop("stuck.md", task("stuck", plan=gives_to("beta.writer")))
    why = "the host beta cannot take it now"
    eventually(lambda: why in main.call("why", "stuck.x").stdout, 40, farm.last_words)
    main.drop("goes.md", task("goes", plan=gives_to("beta.poet")))
    farm["beta"]["poet"].until("goes.x", "executing")
    assert why in farm["alpha"].hub("status").stdout
    inbox.unlink()
    inbox.with_name("away").rename(inbox)
    writer.start()
    main.until("stuck", seconds=60)
    assert len(farm["beta"].executions(agent="writer")) == 1


def test_work_that_a_restored_host_has_forgotten_waits_for_a_person_at_once(farm: Farm, tmp_path: Path) -> None:
    alpha, beta, main = farm["alpha"], farm["beta"], farm["alpha"]["main"]
    stop(beta)
    keep(beta, tmp_path)
    start(beta)
    main.drop("lost.md", task("lost", plan=gives_to("beta.poet")))
    eventually(lambda: main.attempts("lost.x")[:1] and main.attempts("lost.x")[0]["acknowledged"], 30, farm.last_words)
    stop(beta)
    restore(beta, tmp_path)
    start(beta)
    forgot = "the host beta no longer knows of this work, which it had taken"
    eventually(lambda: forgot in main.call("inbox").stdout, 40, farm.last_words)
    found = main.json("inbox")
    (needed,) = [item for item in found if item["task"] == "lost.x"]
    assert needed["kind"] == "circuit"
    assert forgot in main.call("why", "lost.x").stdout
    assert not alpha.spooled("forgotten")
    assert main.call("cancel", "lost", "--now").returncode == 0


def test_a_restored_host_gets_again_the_results_that_it_has_forgotten(farm: Farm, tmp_path: Path) -> None:
    alpha, beta, main = farm["alpha"], farm["beta"], farm["alpha"]["main"]
    before = len(beta.executions(agent="writer"))
    beta["writer"].kill()
    main.drop("kept.md", task("kept", plan=gives_to("beta.writer")))
    eventually(beta["writer"].unread, why=farm.last_words)
    stop(alpha)
    keep(alpha, tmp_path)
    start(alpha)
    beta["writer"].start()
    main.until("kept")
    eventually(lambda: not beta.spooled("sent"), 20, farm.last_words)
    stop(alpha)
    restore(alpha, tmp_path)
    start(alpha)
    main.until("kept", seconds=40)
    assert len(beta.executions(agent="writer")) == before + 1
