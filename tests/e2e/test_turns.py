"""How turns end: failures, retries, circuits, hangs, lost answers, rubbish, programs that are missing."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Company, eventually, message, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}


def ends(company: Company) -> list[str]:
    return [entry["status"] for entry in company.entries() if entry["event"] == "end"]


def test_a_child_with_an_open_circuit_blocks_its_dependants_and_nothing_else(found: Found) -> None:
    plan = {
        "bad": {"agent": "beta", "description": "Bad"},
        "next": {"agent": "self", "description": "Next", "depends_on": ["bad"]},
        "other": {"agent": "self", "description": "Other"},
    }
    company = found({"alpha": WORK, "beta": {"default": {"fail": {"error": "no"}}}})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=plan))
    alpha.run()
    phases = alpha.phases()
    assert phases["job.bad"] == "circuit_open"
    assert phases["job.next"] == "execution_ready"
    assert phases["job.other"] == "completed"
    assert phases["job"] == "executing"
    company.at_rest()


def test_a_program_that_is_missing_costs_no_attempt_and_is_tried_again(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    program = company.root / "openclaw"
    alpha.config.write_text(alpha.config.read_text().replace("command:\n  - ", f"command:\n  - {program}\n  - ", 1))
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: alpha.task("job").get("stalls", 0) >= 2, 20, alpha.last_words)
    assert alpha.phase("job") != "failed"
    program.write_text('#!/bin/sh\nexec "$@"\n')
    program.chmod(0o755)
    alpha.until("job")
    assert alpha.task("job")["failures"] == 0
    company.at_rest()


def test_twenty_answers_that_are_lost_together_are_looked_up_and_nothing_is_done_again(found: Found) -> None:
    """What a gateway leaves that goes away in the middle of twenty turns."""
    company = found(
        {"alpha": {"default": {"reply": "Found.", "delay": 1, "lose_reply": "true"}}},
        limits={"turns": 20, "turns_per_agent": 20},
    )
    alpha = company["alpha"]
    names = [f"t{number}" for number in range(20)]
    for name in names:
        alpha.drop(f"{name}.md", task(name))
    alpha.start()
    for name in names:
        assert alpha.until(name)["result"] == "Found."
    assert len(company.executions()) == 20
    assert all(len(alpha.attempts(name)) == 1 for name in names)
    company.at_rest()


def test_an_answer_that_cannot_be_read_is_unknown_and_looked_up(found: Found) -> None:
    """The scripted ledger says that the turn succeeded and knows its text; nothing is done twice."""
    company = found({"alpha": {"default": {"garbage": ""}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: alpha.phase("job") in ("completed", "circuit_open", "failed"), 20, alpha.last_words)
    assert len(company.executions()) == 1
    company.at_rest()


DONE = "---\ntype: reply\nstatus: done\n---\n## Results\n\nAll.\n\n"
TWO = DONE + "---\ntype: reply\nstatus: failed\n---\n## Error\n\nNothing.\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (TWO, "two answers in one text"),
        ('{"subtasks": {"a": {"agent": "self"}}}', "child a has no description"),
    ],
    ids=["two answers", "a plan that is none"],
)
def test_two_answers_in_one_text_or_another_form_are_asked_for_again_and_kept(
    found: Found, said: str, told: str
) -> None:
    """The second answer is given only to a prompt that says what was wrong with the first."""
    rules = [{"match": ".", "times": 1, "reply": said}, {"match": {"text": told}, "reply": "Better."}]
    company = found({"alpha": {"rules": rules, "default": {"fail": "it was not told"}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    assert alpha.until("job", "completed")["result"] == "Better."
    assert [attempt["status"] for attempt in alpha.attempts("job")] == ["succeeded"]
    first, second = company.executions()
    assert first["session_key"] == second["session_key"], "the same session"
    (kept,) = alpha.query("SELECT body FROM v_artifacts WHERE kind = 'other'")
    assert kept["body"].strip() == said.strip()
    company.at_rest()


def test_a_turn_that_somebody_killed_is_unknown_and_not_repeated(found: Found) -> None:
    """SIGKILL of the call: it may go on in the gateway, so it is looked up and not repeated."""
    company = found({"alpha": {"default": {"hang": 30, "reply": "Never."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    (turn,) = eventually(company.executions)
    os.kill(turn["pid"], signal.SIGKILL)
    eventually(lambda: [row for row in alpha.attempts("job") if row["waiting_for"] == "lookup"])
    assert len(company.executions()) == 1
    assert alpha.phase("job") == "executing"


def test_a_cancelled_turn_is_stopped(found: Found) -> None:
    company = found({"alpha": {"default": {"hang": 30, "reply": "Never."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(company.executions)
    alpha.drop("stop.md", message("cancel", "job", "Not needed."))
    alpha.until("job", "cancelled")
    eventually(lambda: ends(company) == ["cancelled"])
    company.at_rest()


@pytest.mark.soak
def test_results_that_do_not_fit_are_cut_with_a_mark_and_an_event(found: Found) -> None:
    long = "0123456789" * 800
    plan = {
        "x": {"agent": "beta", "description": "X"},
        "y": {"agent": "gamma", "description": "Y", "depends_on": ["x"]},
    }
    company = found(
        {"alpha": WORK, "beta": {"default": {"reply": long}}, "gamma": {"default": {"reply": "Got: {context}"}}},
        limits={"context_bytes": 2048},
        synthesis="concat",
    )
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=plan))
    alpha.run()
    got = alpha.task("job.y")["result"]
    assert len(got) < 4096
    (cut,) = alpha.events("context.cut")
    assert cut["data"]["size"] == 8000
    assert cut["data"]["sha256"] in got
    assert cut["data"]["path"] in got
    assert (alpha.root / cut["data"]["path"]).read_text().strip() == long
    company.at_rest()


def test_a_result_that_no_message_can_hold_is_answered_with_the_file_that_holds_it(found: Found) -> None:
    text = "\n".join(f"## part {number}\nx" for number in range(6000))
    company = found({"alpha": {"rules": [{"reply": text}]}})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.drop("next.md", task("next"))
    alpha.run()
    assert alpha.phases() == {"job": "completed", "next": "completed"}
    assert all("is in the file tasks/" in sent for sent in alpha.sent("reply"))
    company.at_rest()


def test_an_agent_that_its_gateway_has_locked_out_costs_nothing_and_goes_on_when_a_turn_passes(found: Found) -> None:
    locked = {"fail": {"kind": "locked_out"}}
    company = found({"alpha": {"default": locked}}, breaker={"open_seconds": 0.4}, retry={"max_attempts": 2})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("one.md", task("one"))
    alpha.drop("two.md", task("two"))
    eventually(lambda: len(alpha.events("breaker.opened")) >= 4, why=alpha.last_words)
    status = alpha.call("status", "--json")
    assert status.returncode == 1
    (trouble,) = json.loads(status.stdout)["health"]["troubles"]
    assert (trouble["slug"], trouble["grade"]) == ("agents", "red")
    assert "openclaw gateway restart" in trouble["why"]
    assert [alpha.task(name)["failures"] for name in ("one", "two")] == [0, 0]
    eventually(lambda: "openclaw gateway restart" in alpha.call("why", "two").stdout)
    company.gives_up_locked_out = True
    with pytest.raises(AssertionError, match="gateway refuses every turn"):
        alpha.until("one")
    company.gives_up_locked_out = False
    company.rewrite({"alpha": WORK})
    alpha.until("one")
    alpha.until("two")
    eventually(lambda: alpha.call("status").returncode == 0, why=alpha.last_words)
    company.at_rest()


def test_while_the_gateway_is_away_nothing_is_tried_and_all_goes_on_within_seconds_of_its_return(found: Found) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    down = {"default": {"fail": {"kind": "not_started", "error": "down"}}}
    company = found(
        {"alpha": down}, openclaw={"discovery": "true"}, breaker={"failures": 1, "open_seconds": 600},
        retry={"backoff_seconds": 0.2}, limits={"turns_per_agent": 2},
    )  # fmt: skip
    company.gateway_port = port
    company.rewrite({"alpha": down})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("one.md", task("one"))

    def troubles() -> set[tuple[str, str]]:
        health = json.loads(alpha.call("status", "--json").stdout)["health"]
        return {(trouble["slug"], trouble["grade"]) for trouble in health["troubles"]}

    eventually(lambda: ("gateway", "red") in troubles(), why=alpha.last_words)
    alpha.drop("two.md", task("two"))
    eventually(lambda: alpha.phases().keys() == {"one", "two"}, why=alpha.last_words)
    (cause, *_) = eventually(lambda: [c for c in alpha.json("why", "two")["because"] if c["kind"] == "gateway"])
    assert "refused" in cause["text"]
    tries = len(company.entries())
    assert tries <= 4
    company.rewrite({"alpha": WORK})
    with HTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler) as gateway:
        serving = threading.Thread(target=gateway.serve_forever, args=(0.05,))
        serving.start()
        try:
            alpha.until("one")
            alpha.until("two")
            eventually(lambda: not troubles(), why=alpha.last_words)
        finally:
            gateway.shutdown()
            serving.join()
    assert all(alpha.task(name)["failures"] == 0 for name in ("one", "two"))
    company.at_rest()
