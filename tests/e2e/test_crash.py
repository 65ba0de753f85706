"""kill -9 at any moment: a restart goes on with no one's help, and nothing happens twice (protocol section 7)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e import witness
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, environment, eventually, task

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("MAILBOXD_KILLS", "8"))
SEED = int(os.environ.get("MAILBOXD_SEED", "7"))
MOMENTS = 80
"""Changes of the world that one run of `work` makes, about."""

WORK = {"default": {"reply": "Result of {title}."}}
PLAN = {
    "x": {"agent": "beta", "description": "X"},
    "y": {"agent": "self", "description": "Y", "depends_on": ["x"]},
}


def killed_at(agent: Agent, point: int | str) -> subprocess.CompletedProcess[str]:
    """A daemon that dies at its `point`-th change of the world."""
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed_at.py")), str(point), "run", "--until-idle"],
        cwd=agent.root,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


def executed(company: Company) -> Counter[str]:
    return Counter(entry["local_id"] for entry in company.executions())


def recovered(agent: Agent, *roots: str) -> bool:
    """Let the next daemon go on until the work is done, or only a look into the ledger is left to wait for."""

    def done() -> bool:
        return all(agent.phase(root) == "completed" for root in roots)

    def looks_up() -> bool:
        return bool(agent.query("SELECT 1 FROM v_outbox WHERE kind = 'look_up' AND state = 'pending' AND tries > 0"))

    agent.start(wait=False)
    eventually(lambda: done() or looks_up(), 30, agent.last_words)
    return done()


POINTS = sorted(random.Random(SEED).sample(range(1, MOMENTS), min(KILLS, MOMENTS - 1)))


@pytest.mark.parametrize(
    "point", [*POINTS[::2], *(pytest.param(point, marks=pytest.mark.soak) for point in POINTS[1::2])]
)
def test_a_daemon_that_is_killed_at_this_change_of_the_world_loses_and_repeats_nothing(
    found: Found, point: int
) -> None:
    company = found({"alpha": WORK, "beta": WORK}, synthesis="concat")
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=PLAN))
    alpha.drop("rubbish.md", b"---\ntype: rubbish\ntask_id: x\nfrom: beta\n---\n")
    killed_at(alpha, point)
    if recovered(alpha, "job"):
        company.at_rest()
        assert executed(company) == {"job.x": 1, "job.y": 1}
        assert len(alpha.sent("reply")) == 1
        assert len(alpha.sent("task")) == 1
    else:
        # The mark of a start was set and nobody can say whether the program ran: that is looked up, for 45 s.
        alpha.kill()
        assert witness.complaints(company.homes(), company.ledger, at_rest=False) == []
        assert all(times == 1 for times in executed(company).values())


def test_daemons_that_are_killed_again_and_again_finish_their_work_once(found: Found) -> None:
    """Three daemons over two levels, killed at moments that nobody chose."""
    slow = {"delay": 0.15}
    leaves = {f"leaf{n}": {"agent": "gamma", "description": f"Leaf {n}"} for n in range(3)}
    top = {
        "near": {"agent": "beta", "description": "Near"},
        "far": {"agent": "beta", "description": "Far"},
        "own": {"agent": "self", "description": "Own", "depends_on": ["near"]},
    }
    company = found(
        {
            "alpha": {"mailbox": "true", "default": {**slow, "reply": "Result of {title}."}},
            "beta": {"mailbox": "true", "rules": [{"match": {"kind": "work"}, **slow, "plan": leaves}], **WORK},
            "gamma": {"mailbox": "true", "default": {**slow, "reply": "Leaf of {title}."}},
        },
        daemons=("alpha", "beta", "gamma"),
        synthesis="concat",
    )
    chance = random.Random(SEED)
    pause = threading.Event()
    for agent in company.agents.values():
        agent.start(wait=False)
    company["alpha"].drop("go.md", task("job", plan=top))
    for _ in range(KILLS):
        victim = chance.choice(list(company.agents.values()))
        pause.wait(chance.uniform(0.05, 0.7))
        victim.kill()
        victim.start(wait=False)
    company["alpha"].until("job", seconds=75)
    company.at_rest()
    works = {"job.own": 1, "job.near": 1, "job.far": 1}
    works |= {f"job.{side}.leaf{n}": 1 for side in ("near", "far") for n in range(3)}
    assert executed(company) == works


@pytest.mark.parametrize("point", ["os.rmdir:1", "commit:6"])
def test_the_proof_that_a_call_ran_outlives_the_record_of_what_it_brought(found: Found, point: str) -> None:
    """Whose directory is removed before the commit is a call that never ran, and is made a second time."""
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    killed_at(alpha, point)
    alpha.run()
    assert executed(company) == {"job": 1}
    company.at_rest()


def test_a_turn_that_outlives_its_daemon_is_adopted_and_its_result_taken(found: Found) -> None:
    company = found({"alpha": {"default": {"hang": 1.5, "reply": "Worth waiting for."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(company.executions)
    alpha.kill()
    alpha.start()
    assert alpha.until("job")["result"] == "Worth waiting for."
    assert executed(company) == {"job": 1}
    company.at_rest()


def test_a_turn_that_ends_while_no_daemon_runs_is_taken_by_the_next_one(found: Found) -> None:
    company = found({"alpha": {"default": {"hang": 0.5, "reply": "Nobody was there."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(company.executions)
    alpha.kill()
    eventually(lambda: [entry for entry in company.entries() if entry["event"] == "end"])
    alpha.run()
    assert alpha.task("job")["result"] == "Nobody was there."
    assert executed(company) == {"job": 1}
    company.at_rest()


def test_many_restarts_leave_no_trace(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    before = len(alpha.query("SELECT seq FROM v_events"))
    for _ in range(3):
        alpha.run()
    assert len(alpha.query("SELECT seq FROM v_events")) == before
    company.at_rest()
