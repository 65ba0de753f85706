"""What a failure leads to, row by row of docs/when-work-counts.md, with a daemon; escalation; the open circuit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, reply, task

pytestmark = pytest.mark.slow

OVERLOADED = {"fail": {"kind": "transient", "error": "overloaded"}}
OFF = {"failures": 0}
SAID_FAILED = "---\ntype: reply\nstatus: failed\n---\n## Error\n\nIt cannot be found.\n\n## Partial Results\n\nHalf.\n"
CYCLE = {"a": {"agent": "self", "description": "A", "depends_on": ["b"]}}
CYCLE |= {"b": {"agent": "self", "description": "B", "depends_on": ["a"]}}


def triggers(agent: Agent, local_id: str) -> list[str]:
    """What moved a task away from executing, in order."""
    task_id = agent.task(local_id)["id"]
    events = agent.query("SELECT data FROM v_events WHERE task = ? ORDER BY seq", task_id)
    steps = [step for event in events for step in json.loads(event["data"]).get("passed", ())]
    return [step["trigger"] for step in steps if step["from"] == "executing"]


UNREADABLE = "---\ntype: plan\n---\n## DAG\n\n[[[\n"
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], str, int, str]] = {
    "a transient failure is repeated": (OVERLOADED, {}, "attempt failed, attempts are left", 1, "completed"),
    "a rate limit is repeated": (
        {"fail": {"kind": "transient", "error": "rate limit reached"}}, {}, "attempt failed, attempts are left", 1,
        "completed",
    ),
    "a turn that never reached its agent costs no attempt": (
        {"fail": {"kind": "not_started", "error": "down"}}, {}, "attempt failed, attempts are left", 0, "completed",
    ),
    "a permanent failure ends the task at once": (
        {"fail": {"kind": "permanent", "error": "context"}}, {}, "a failure that a retry cannot fix", 1, "failed",
    ),
    "with one attempt any failure ends it": (
        OVERLOADED, {"max_attempts": 1}, "a failure that a retry cannot fix", 1, "failed",
    ),
    "a plan that cannot be carried out is made anew": (
        {"plan": CYCLE}, {}, "attempt succeeded", 0, "completed",
    ),
    "an agent that says it failed is asked again": (
        {"reply": SAID_FAILED}, {}, "attempt failed, attempts are left", 1, "completed",
    ),
    "an answer that cannot be read is asked for again": (
        {"reply": UNREADABLE}, {}, "attempt succeeded", 0, "completed",
    ),
    "an answer that stays unreadable is a failed attempt": (
        {"reply": UNREADABLE, "times": 3}, {}, "attempt failed, attempts are left", 1, "completed",
    ),
    "a timeout is repeated": ({"hang": 9}, {"timeout": 1}, "attempt failed, attempts are left", 1, "completed"),
    "what the ledger knows to have succeeded is not repeated": (
        {"reply": "Text.", "lose_reply": "true"}, {}, "attempt succeeded", 0, "completed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table_of_failures(found: Found, row: str) -> None:
    first, headers, trigger, failures, phase = ROWS[row]
    company = found(
        {"alpha": {"rules": [{"match": ".", "times": 1, **first}], "default": {"reply": "Text."}}}, breaker=OFF
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", **headers))
    ended = alpha.until("job", phase)
    assert triggers(alpha, "job")[0] == trigger
    assert sum(attempt["status"] in ("failed", "unknown") for attempt in alpha.attempts("job")) == failures
    assert len(alpha.attempts("job")) == (1 if phase == "failed" or trigger == "attempt succeeded" else 2)
    assert ended["failures"] == (failures if phase == "failed" else 0)
    company.at_rest()


def lost(idempotent: bool) -> dict[str, Any]:
    return {"idempotent": str(idempotent).lower()}


def test_an_outcome_that_stays_unknown_is_repeated_only_if_the_work_says_that_it_may_be(found: Found) -> None:
    rules = [{"match": ".", "times": 2, "garbage": "what?"}]
    company = found({"alpha": {"rules": rules, "default": {"reply": "Text."}}}, breaker=OFF, reply_within_seconds=1)
    alpha = company["alpha"]
    plan = {"may": {"agent": "beta", "description": "May", "idempotent": True}}
    plan |= {"not": {"agent": "beta", "description": "Not"}}
    company.rewrite({"alpha": {"default": {"reply": "Text."}}, "beta": {"mailbox": "true"}})
    alpha.start()
    alpha.drop("go.md", task("job", plan=plan))
    alpha.until("job.not", "circuit_open")
    assert triggers(alpha, "job.not") == ["outcome unknown, work not idempotent"]
    eventually(lambda: len(alpha.attempts("job.may")) > 1, why=alpha.last_words)
    assert alpha.attempts("job.may")[0]["status"] == "unknown"
    assert len({attempt["session_key"] for attempt in alpha.attempts("job.may")}) == 1
    company.at_rest()


# ---------------------------------------------------------------- escalation


def broken_until(strong: str) -> dict[str, Any]:
    return {"rules": [{"match": {"attempt": "[12]"}, **OVERLOADED}], "default": {"reply": f"{strong}."}}


def models(company: Company) -> list[str]:
    return [entry["model"] for entry in company.entries() if entry["event"] == "begin"]


def test_from_the_third_try_on_another_model_is_asked_and_that_is_on_record(found: Found) -> None:
    company = found({"alpha": broken_until("Strong")}, escalation={"model": "big/brain"}, breaker=OFF)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    alpha.until("job")
    assert models(company) == ["", "", "big/brain"]
    one, _, three = alpha.attempts("job")
    assert (one["escalated"], three["model"]) == ("", "big/brain")
    assert three["escalated"] == "model big/brain after 2 failures"
    shown = alpha.json("show", "job")
    assert shown["escalated"]["why"] == shown["attempts"][2]["escalated"] == three["escalated"]
    assert "with big/brain" in alpha.call("show", "job").stdout
    company.at_rest()


def test_another_agent_gets_it_and_only_that_one_may_reply(found: Found) -> None:
    gamma = {"mailbox": "true"}
    company = found(
        {"alpha": {"default": {"reply": "Put together."}}, "beta": {"default": OVERLOADED}, "gamma": gamma},
        escalation={"agent": "gamma", "from_attempt": 2},
        breaker=OFF,
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan={"x": {"agent": "beta", "description": "X"}}))
    eventually(lambda: len(alpha.attempts("job.x")) == 2 and alpha.attempts("job.x")[1]["waiting_for"] == "reply")
    first, second = alpha.attempts("job.x")
    assert (first["executor"], second["executor"]) == ("beta", "gamma")
    assert second["escalated"] == "agent gamma instead of beta after 1 failure"
    assert "agent: beta" in (alpha.root / "tasks/job/task.md").read_text(), "the plan says whom it was given to"
    alpha.drop("old.md", reply("job", "x", "beta", "Mine."))
    alpha.drop("late.md", reply("job", "x", "beta", "Mine.", attempt_id=first["id"]))
    eventually(lambda: alpha.rejections() and alpha.mail("late"))
    assert alpha.rejections() == {"old.md": "wrong-agent"}
    alpha.kill()
    alpha.start()
    alpha.drop("new.md", reply("job", "x", "gamma", "Gamma's.", attempt_id=second["id"]))
    assert alpha.until("job.x")["result"] == "Gamma's."
    alpha.until("job")
    company.at_rest()


def test_a_root_task_is_escalated_to_the_daemon_of_another_agent_and_back_comes_its_reply(found: Found) -> None:
    company = found(
        {
            "alpha": {"mailbox": "true", "default": OVERLOADED},
            "gamma": {"mailbox": "true", "default": {"reply": "Mine."}},
        },
        daemons=("alpha", "gamma"),
        escalation={"agent": "gamma", "from_attempt": 2},
        breaker=OFF,
    )
    alpha, gamma = company["alpha"], company["gamma"]
    alpha.start()
    gamma.start()
    alpha.drop("go.md", task("job"))
    alpha.drop("part.md", task("other", sender="boss", subtask_id="x"))
    assert alpha.until("job")["result"] == "Mine."
    assert alpha.until("other.x")["result"] == "Mine."
    assert alpha.attempts("job")[1]["executor"] == "gamma"
    company.at_rest()


# ---------------------------------------------------------------- the open circuit


def test_an_open_circuit_shows_what_was_tried_and_how_to_go_on_and_is_held_over_a_restart(found: Found) -> None:
    company = found({"alpha": {"default": OVERLOADED}}, breaker=OFF, circuit={"hold_seconds": 10})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    opened = alpha.until("job", "circuit_open")
    eventually(lambda: "## Waiting For" in (alpha.root / "tasks/job/task.md").read_text(), why=alpha.last_words)
    alpha.kill()
    because = alpha.json("why", "job")["because"]
    (circuit,) = [cause for cause in because if cause["kind"] == "circuit"]
    assert circuit["hint"] == "mailboxd retry job  # or mailboxd resolve job --failed"
    tried = [cause["text"] for cause in because if cause["kind"] == "attempt"]
    assert len(tried) == 3
    assert all("by alpha: failed after" in text and "overloaded" in text for text in tried)
    attempts = alpha.json("show", "job")["attempts"]
    assert all(attempt["seconds"] is not None and attempt["error_summary"] for attempt in attempts)
    text = (alpha.root / "tasks/job/task.md").read_text()
    assert "attempt 3 by alpha" in text
    assert "mailboxd retry job" in text
    alpha.start()
    eventually(lambda: alpha.phase("job") == "failed", why=alpha.last_words)
    ended = alpha.task("job")
    assert ended["reason"].startswith("not decided in time")
    assert ended["completed_at"] >= opened["due"]
    eventually(lambda: len(alpha.sent("reply")) == 1)
    eventually(lambda: "status: failed" in (alpha.root / "tasks/job/task.md").read_text())
    assert "## Waiting For" not in (alpha.root / "tasks/job/task.md").read_text()
    company.at_rest()


def test_killed_in_the_backoff_it_goes_on_counting_where_it_was(found: Found) -> None:
    company = found(
        {"alpha": broken_until("Third")}, retry={"backoff_seconds": 1.5, "backoff_max_seconds": 2}, breaker=OFF
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: alpha.task("job").get("failures") == 1)
    alpha.kill()
    before = alpha.task("job")["not_before"]
    alpha.start()
    eventually(lambda: len(alpha.attempts("job")) == 2)
    assert alpha.attempts("job")[1]["started_at"] >= before
    assert alpha.until("job")["result"] == "Third."
    company.at_rest()
