"""The same work to several agents: the first wins, or what most say, and nobody goes on for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import eventually, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}


def asked(join: str, *agents: str) -> dict[str, Any]:
    return {"ask": {"agent": list(agents), "description": "Ask", "join": join}}


def says(answer: str, text: str) -> dict[str, Any]:
    reply = f"---\ntype: reply\nstatus: done\nanswer: {answer}\n---\n## Results\n\n{text}\n"
    return {"default": {"reply": reply}}


def test_the_first_wins_and_a_peer_with_a_daemon_of_its_own_is_told_to_stop(found: Found) -> None:
    company = found(
        {
            "alpha": {"mailbox": "true", **WORK},
            "beta": {"default": {"delay": 1, "reply": "Quick."}},
            "gamma": {"mailbox": "true", "default": {"hang": 30, "reply": "Slow."}},
        },
        daemons=("alpha", "gamma"),
        synthesis="concat",
    )
    alpha, gamma = company["alpha"], company["gamma"]
    alpha.start(wait=False)
    gamma.start(wait=False)
    alpha.drop("go.md", task("race", plan=asked("first", "gamma", "beta")))
    alpha.until("race")
    assert alpha.task("race.ask")["result"] == "Quick."
    assert alpha.phase("race.ask.gamma") == "cancelled"
    gone = eventually(lambda: [name for name, phase in gamma.phases().items() if phase == "cancelled"])
    assert len(gone) == 1
    assert len(alpha.sent("cancel")) == 1
    company.at_rest()


def test_a_broadcast_that_a_crash_interrupts_asks_nobody_twice(found: Found) -> None:
    slow = {"default": {"delay": 1, "reply": "Blue."}}
    company = found({"alpha": WORK, "beta": slow, "gamma": slow, "delta": slow}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("colour", plan=asked("majority", "beta", "gamma", "delta")))
    eventually(lambda: len([entry for entry in company.entries() if entry["event"] == "begin"]) >= 2)
    alpha.kill()
    alpha.start()
    alpha.until("colour")
    begun = [entry["agent"] for entry in company.entries() if entry["event"] == "begin"]
    assert len(begun) == len(set(begun))
    company.at_rest()
