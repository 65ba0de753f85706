"""Work that a harness does over ACP, with the real daemon, and a real agent that is built on the SDK."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, spawned, task

pytestmark = pytest.mark.slow

ODD = str(Path(__file__).resolve().parents[1] / "agents" / "acp" / "odd_agent.py")


def harness(*behaviour: str, **more: Any) -> dict[str, Any]:
    settings = {"capabilities": ["read", "edit"], "environment": ["ODD_LOG"], **more}
    return {"argv": [sys.executable, ODD, *behaviour], **settings}


class Shop:
    """An agent with harnesses, and what those have said to an outside witness."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.alpha: Agent = company["alpha"]
        self.log = company.root / "odd.log"
        company.env["ODD_LOG"] = str(self.log)

    def said(self, what: str) -> list[Any]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [entry[what] for line in lines if what in (entry := json.loads(line))]

    def start(self, name: str = "job", harness: str = "odd", **headers: Any) -> None:
        if self.alpha.process is None:
            self.alpha.start()
        self.alpha.drop(f"{name}.md", task(name, runtime="acp", harness=harness, **headers))

    def waiting(self) -> list[dict[str, Any]]:
        return self.alpha.query("SELECT * FROM v_approvals WHERE status = 'pending' ORDER BY id")

    def parked(self, number: int = 1) -> list[dict[str, Any]]:
        eventually(lambda: len(self.waiting()) == number, 20, self.alpha.last_words)
        return self.waiting()

    def decide(self, verb: str, row: Mapping[str, Any], *more: str) -> None:
        done = self.alpha.call(*verb.split(), row["id"][-6:].lower(), *more)
        assert done.returncode == 0, done.stderr

    def none_is_left(self) -> None:
        """No process of a harness is alive."""
        pids = {entry for what in ("pid", "child") for entry in self.said(what)}
        eventually(lambda: not any(map(alive, pids)), 10)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def shop(found: Found) -> Any:
    def open_(settings: Mapping[str, Any] | None = None, /, **harnesses: dict[str, Any]) -> Shop:
        acp = {"harnesses": harnesses or {"odd": harness()}}
        return Shop(found({"alpha": {}}, acp=acp, **(settings or {})))

    return open_


def test_a_harness_does_a_task(shop: Any, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    place = shop(odd=harness(f"until={seen}", "writes=notes.txt"))
    place.start()
    eventually(lambda: place.alpha.events("attempt.checkpoint"), 20, place.alpha.last_words)
    seen.touch()
    done = place.alpha.until("job")
    assert done["result"] == "I begin. The answer is 42."
    (attempt,) = place.alpha.attempts("job")
    assert (attempt["executor"], attempt["runtime"], attempt["worker_ref"]) == ("alpha", "acp", "odd")
    assert attempt["session_ref"] == "ses-1"
    assert json.loads(attempt["usage"])["input_tokens"] == 12
    (prompt,) = place.said("prompt")
    for words in ("task_id job", f"attempt_id {attempt['id']}", str(place.alpha.root), "read, edit", "Do job."):
        assert words in prompt
    (ended,) = place.alpha.events("attempt.ended")
    turn = ended["data"]["turn"]
    assert turn["prompt"] == {"sha256": sha256(prompt.encode()).hexdigest(), "size": len(prompt.encode())}
    assert (turn["agent"], turn["session"], turn["model"]) == ("acp:odd", "ses-1", None)
    (diff,) = place.alpha.query("SELECT * FROM v_artifacts WHERE kind = 'diff'")
    assert "notes.txt" in diff["summary"]
    assert [event["data"]["note"] for event in place.alpha.events("attempt.checkpoint")][:1] == ["I begin."]
    assert not place.company.entries()  # no turn of OpenClaw
    place.none_is_left()
    place.company.at_rest()


def test_it_sees_little_of_our_environment(shop: Any) -> None:
    place = shop()
    place.company.env["A_SECRET_OF_OURS"] = "x"
    place.start()
    place.alpha.until("job")
    (names,) = place.said("env")
    assert "ODD_LOG" in names
    assert "A_SECRET_OF_OURS" not in names


def test_an_unknown_harness_is_refused_with_those_that_there_are(shop: Any) -> None:
    place = shop(odd=harness(), other=harness())
    place.start(harness="codex")
    eventually(place.alpha.rejections)
    assert place.alpha.rejections() == {"job.md": "unknown-harness"}
    (row,) = place.alpha.mail("rejected")
    assert "odd, other" in row["reason"]


@pytest.mark.parametrize(
    ("child", "why"),
    [
        ({"agent": "self", "harness": "odd"}, "needs runtime: acp"),
        ({"agent": "self", "runtime": "acp"}, "needs a harness"),
        ({"agent": "beta", "runtime": "acp", "harness": "odd"}, "write `agent: self`"),
    ],
)
def test_a_plan_that_misuses_a_harness_is_refused(shop: Any, child: dict[str, str], why: str) -> None:
    place = shop()
    place.alpha.start()
    place.alpha.drop("go.md", task("job", plan={"a": {"description": "d", **child}}))
    eventually(place.alpha.rejections)
    assert why in place.alpha.mail("rejected")[0]["reason"]


def test_a_child_of_a_plan_goes_to_the_harness_and_the_rest_to_the_agent(shop: Any) -> None:
    place = shop()
    place.alpha.start()
    plan = {
        "code": {"agent": "self", "description": "d", "runtime": "acp", "harness": "odd"},
        "text": {"agent": "self", "description": "d", "depends_on": ["code"]},
    }
    place.alpha.drop("go.md", task("job", plan=plan))
    place.alpha.until("job")
    assert [row["worker_ref"] for row in place.alpha.attempts("job.code")] == ["odd"]
    assert [row["worker_ref"] for row in place.alpha.attempts("job.text")] == [""]
    shown = (place.alpha.root / "tasks" / "job" / "task.md").read_text()
    assert "runtime: acp" in shown
    assert "harness: odd" in shown


def test_a_parked_permission_is_decided_by_a_person_while_other_work_goes_on(shop: Any) -> None:
    place = shop(odd=harness("asks-twice"))
    place.start(timeout=3)
    rows = place.parked(2)
    assert {row["purpose"] for row in rows} == {"permission"}
    assert {row["requested_action"] for row in rows} == {"odd: execute: make first", "odd: execute: make second"}
    place.alpha.drop("other.md", task("other"))
    place.alpha.until("other")  # the one slot of the agent is free meanwhile
    eventually(lambda: place.alpha.phase("job") == "executing" and len(place.waiting()) == 2, 1)
    first, second = sorted(rows, key=lambda row: row["requested_action"])
    place.decide("approve", first)
    place.decide("reject", second, "--note", "not this one", "--now")
    place.alpha.until("job")
    assert dict(zip(place.said("asked"), place.said("answer"), strict=True)) == {"first": "yes", "second": "no"}
    assert (place.alpha.root / "first").exists()
    assert not (place.alpha.root / "second").exists()
    place.company.at_rest()


def test_a_turn_that_is_parked_longer_than_it_may_work_goes_on(shop: Any) -> None:
    place = shop(odd=harness("runs=made"))
    place.start(timeout=2)
    (row,) = place.parked()
    eventually(lambda: _seconds_since(row) > 5, 20)
    place.decide("approve", row)
    place.alpha.until("job")
    assert (place.alpha.root / "made").exists()


def _seconds_since(row: Mapping[str, Any]) -> float:
    from datetime import UTC, datetime

    return (datetime.now(UTC) - datetime.fromisoformat(row["at"])).total_seconds()


def test_a_permission_that_nobody_decides_is_refused_when_it_expires(shop: Any) -> None:
    place = shop({"approvals": {"expire_seconds": 2}}, odd=harness("runs=made"))
    place.start()
    place.alpha.until("job")
    assert place.said("answer") == ["no"]
    assert not (place.alpha.root / "made").exists()
    (row,) = place.alpha.query("SELECT * FROM v_approvals")
    assert row["status"] == "expired"


@pytest.mark.parametrize("decided", [pytest.param("before", marks=pytest.mark.soak), "after"])
def test_a_permission_survives_the_death_of_the_daemon(shop: Any, decided: str) -> None:
    place = shop(odd=harness("runs=made"))
    place.start()
    (row,) = place.parked()
    place.alpha.kill()
    if decided == "before":
        place.decide("approve", row)
        assert not (place.alpha.root / "made").exists()  # nobody is there to tell the harness
    place.alpha.start()
    if decided == "after":
        assert [again["id"] for again in place.parked()] == [row["id"]]
        place.decide("approve", row)
    place.alpha.until("job")
    assert (place.alpha.root / "made").exists()
    assert len(place.said("prompt")) == 1
    place.company.at_rest()


def test_a_cancel_ends_a_harness_that_ignores_it_with_all_its_processes(shop: Any) -> None:
    place = shop(odd=harness("stubborn"))
    place.start()
    eventually(lambda: place.said("child"))
    assert place.alpha.call("cancel", "job", "--now").returncode == 0
    place.alpha.until("job", "cancelled")
    place.none_is_left()
    place.company.at_rest()


def test_a_cancel_answers_what_is_parked(shop: Any) -> None:
    place = shop(odd=harness("runs=made"))
    place.start()
    place.parked()
    assert place.alpha.call("cancel", "job", "--now").returncode == 0
    place.alpha.until("job", "cancelled")
    eventually(lambda: place.said("answer"))
    assert place.said("answer") == ["cancelled"]
    (row,) = place.alpha.query("SELECT * FROM v_approvals")
    assert row["status"] == "expired"
    place.none_is_left()


def test_a_harness_that_dies_is_not_asked_again_and_a_person_decides(shop: Any) -> None:
    place = shop(odd=harness("dies"))
    place.start()
    opened = place.alpha.until("job", "circuit_open")
    assert "unknown" in opened["reason"]
    assert len(place.said("prompt")) == 1
    (attempt,) = place.alpha.attempts("job")
    assert attempt["status"] == "unknown"
    assert not place.company.entries()  # OpenClaw's ledger was not asked either


@pytest.mark.parametrize(("knows", "ends"), [(["knows"], "completed"), ([], "circuit_open")])
def test_a_harness_that_can_load_its_session_is_asked_what_became_of_it(shop: Any, knows: list[str], ends: str) -> None:
    place = shop(odd=harness("loads", "dies", *knows))
    place.start(max_attempts=2)
    ended = place.alpha.until("job", ends)
    assert place.said("load_session")[0] == "ses-1"
    if knows:
        assert ended["result"] == "It is all done: 42."
        assert len(place.said("prompt")) == 2
    else:
        attempts = place.alpha.attempts("job")
        assert [attempt["status"] for attempt in attempts] == ["failed", "failed"]
        assert "half of it" in attempts[0]["error_summary"]


def test_a_killed_program_leaves_no_harness_behind(shop: Any) -> None:
    place = shop(odd=harness("stubborn"))
    place.start()
    eventually(lambda: place.said("child"))
    (call,) = (place.alpha.root / ".mailboxd" / "turns").glob("trn_*")
    with suppress(ProcessLookupError):
        os.kill(spawned(call)["pid"], signal.SIGKILL)
    place.alpha.until("job", "circuit_open")
    place.none_is_left()
    assert len(place.said("prompt")) == 1


def test_failures_may_be_escalated_to_a_harness(found: Found) -> None:
    rules = {"from_attempt": 2, "runtime": "acp", "harness": "odd"}
    overloaded = {"default": {"fail": {"kind": "transient", "error": "overloaded"}}}
    company = found({"alpha": overloaded}, acp={"harnesses": {"odd": harness()}}, escalation=rules)
    place = Shop(company)
    place.alpha.start()
    place.alpha.drop("job.md", task("job"))
    place.alpha.until("job")
    first, second = place.alpha.attempts("job")
    assert (first["worker_ref"], second["worker_ref"]) == ("", "odd")
    assert second["escalated"] == "harness odd instead of alpha after 1 failure"
