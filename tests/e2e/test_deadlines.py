"""Deadlines: moments of the wall clock at which what is not finished fails, with that reason, wherever it runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import eventually, task

pytestmark = pytest.mark.slow

SLOW = {"default": {"hang": 15, "reply": "Too late."}}
WORK = {"default": {"reply": "Result of {title}."}}


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_when_it_passes_the_running_turn_is_stopped_and_the_task_fails(found: Found) -> None:
    company = found({"alpha": SLOW})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", deadline=soon(1.5)))
    ended = alpha.until("job", "failed")
    assert "deadline" in ended["error"]
    (attempt,) = alpha.attempts("job")
    assert attempt["status"] == "aborted"
    eventually(lambda: [e for e in company.entries() if e["event"] == "end" and e["status"] == "cancelled"])
    company.at_rest()


def test_a_deadline_that_passes_while_the_daemon_is_dead_is_enforced_by_the_next(found: Found) -> None:
    company = found({"alpha": {"default": {"question": "Which?"}}})
    alpha = company["alpha"]
    alpha.start()
    moment = soon(2.0)
    alpha.drop("go.md", task("job", deadline=moment))
    eventually(lambda: alpha.attempts("job") and alpha.attempts("job")[0]["waiting_for"] == "answer")
    alpha.kill()
    eventually(lambda: soon(0) > moment)
    alpha.start()
    assert "deadline" in alpha.until("job", "failed")["error"]
    eventually(lambda: len(alpha.sent("reply")) == 1)
    company.at_rest()


def test_a_deadline_goes_down_to_the_daemon_of_a_peer_and_its_passing_calls_the_work_back(found: Found) -> None:
    company = found(
        {"alpha": {"mailbox": "true", **WORK}, "beta": {"mailbox": "true", **SLOW}}, daemons=("alpha", "beta")
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", plan={"x": {"agent": "beta", "description": "X"}}, deadline=soon(4)))
    eventually(lambda: beta.phase("job.x") == "executing", why=beta.last_words)
    assert beta.task("job.x")["deadline"] == alpha.task("job")["deadline"]
    alpha.until("job", "failed")
    eventually(lambda: beta.phase("job.x") in ("failed", "cancelled"), why=beta.last_words)
    company.at_rest()
