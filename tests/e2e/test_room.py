"""What a task waits for when there is no room for another call: said by `why` and `status`, with numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, task

pytestmark = pytest.mark.slow

SLOW: dict[str, Any] = {"default": {"hang": 4, "reply": "Text."}}
PLAN = {
    "one": {"agent": "beta", "description": "One", "expected_output": "One."},
    "two": {"agent": "gamma", "description": "Two", "expected_output": "Two."},
}


def reasons(alpha: Agent, *kinds: str) -> dict[str, str]:
    """Kind and words of why each open child waits; empty unless each of `kinds` is among them."""
    found = {}
    for name in ("job.one", "job.two"):
        if alpha.phase(name) in ("execution_ready", "executing"):
            cause = alpha.json("why", name)["because"][0]
            found[cause["kind"]] = cause["text"]
    return found if found.keys() >= set(kinds) else {}


def test_a_call_waits_for_memory_and_the_first_one_never(found: Found) -> None:
    company = found(
        {"alpha": SLOW, "beta": SLOW, "gamma": SLOW},
        limits={"call_bytes": 68_719_476_736, "turns": 4},
        synthesis="concat",
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=PLAN))
    told = eventually(lambda: reasons(alpha, "memory", "turn"), 15, alpha.last_words)
    assert told["memory"].startswith("waits for memory: ")
    assert "a call needs 65536 MiB; busy: " in told["memory"]
    assert "working on it" in told["turn"]
    status = alpha.json("status")["calls"]
    assert (status["running"], status["most"], status["memory"]["call"]) == (1, 4, 68_719_476_736)
    assert "not enough memory for another" in " ".join(alpha.call("status", "--all").stdout.split())
    alpha.until("job")
    company.at_rest()


def test_a_call_waits_for_a_slot(found: Found) -> None:
    company = found({"alpha": SLOW, "beta": SLOW, "gamma": SLOW}, limits={"turns": 1}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=PLAN))
    told = eventually(lambda: reasons(alpha, "slot"), 15, alpha.last_words)
    assert told["slot"].startswith("waits for a slot (1 of 1 are taken); busy: ")
    assert alpha.json("status")["calls"] == {
        "running": 1, "most": 1, "most_per_agent": 1, "lane": None, "memory": None,
    }  # fmt: skip
    alpha.until("job")
    company.at_rest()
