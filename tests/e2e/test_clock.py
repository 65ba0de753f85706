"""The wall clock is set, forwards and backwards, while things wait and run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import witness
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, environment, eventually, task

pytestmark = pytest.mark.slow

HOUR = 3600


def begin(alpha: Agent, clock: Path) -> Callable[[int], None]:
    """Start a daemon whose clock can be set; returns what sets it."""
    clock.write_text("0")
    words = [sys.executable, str(Path(__file__).with_name("jumping.py")), str(clock), "run"]
    with alpha.log.open("ab") as log:
        alpha.process = subprocess.Popen(words, cwd=alpha.root, env=environment(), stderr=log, start_new_session=True)
    alpha.until_ready()

    def jump(seconds: int) -> None:
        hidden = clock.with_suffix(".tmp")
        hidden.write_text(str(seconds))
        hidden.rename(clock)

    return jump


def at_rest(company: Company) -> None:
    """The witness compares our moments with those of the agents, whose clock was not set."""
    eventually(company["alpha"].has_nothing_to_do)
    assert company["alpha"].stop() == 0
    complaints = witness.complaints(company.homes(), company.ledger)
    assert [said for said in complaints if "ran before it was ordered" not in said] == []


@pytest.mark.parametrize("by", [400 * 24 * HOUR, -400 * 24 * HOUR], ids=str)
def test_work_that_runs_and_mail_that_comes_take_no_notice_of_a_jump(found: Found, by: int, tmp_path: Path) -> None:
    rules = [{"match": {"task": "long"}, "delay": 1.5, "reply": "Text."}]
    company = found({"alpha": {"rules": rules, "default": {"reply": "Result."}}}, inbox={"rescan_seconds": 1})
    alpha = company["alpha"]
    jump = begin(alpha, tmp_path / "clock")
    alpha.drop("1.md", task("long"))
    eventually(company.executions)
    jump(by)
    (alpha.inbox / "half.md").write_text("---\ntype: task\n")
    alpha.drop("2.md", task("short"))
    alpha.until("long", seconds=10)
    alpha.until("short", seconds=10)
    eventually(lambda: alpha.rejections() == {"half.md": "unterminated"}, 10, alpha.last_words)
    assert [event["data"]["what"] for event in alpha.events("alarm")] == ["clock"]
    assert alpha.json("status")["health"]["grade"] == "green"
    assert len(company.executions()) == 2
    at_rest(company)


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=str)
def test_a_pause_before_a_retry_is_over_in_time_whatever_the_clock_says(found: Found, by: int, tmp_path: Path) -> None:
    rules = [{"match": {"task": "job"}, "times": 1, "fail": {"error": "no"}}]
    company = found(
        {"alpha": {"rules": rules, "default": {"reply": "Result."}}},
        retry={"backoff_seconds": 3, "backoff_max_seconds": 3},
    )
    alpha = company["alpha"]
    jump = begin(alpha, tmp_path / "clock")
    alpha.drop("1.md", task("job"))
    eventually(lambda: alpha.attempts("job") and alpha.attempts("job")[0]["status"] != "running")
    jump(by)
    alpha.until("job", seconds=15)
    assert len(company.executions()) == 2
    at_rest(company)
