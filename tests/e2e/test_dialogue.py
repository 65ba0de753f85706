"""Agents that talk about their work: acknowledge, reply late, ask, answer, steer, cancel."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import eventually, message, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
ONE = {"x": {"agent": "beta", "description": "X"}}


def test_a_late_reply_that_comes_while_the_daemon_is_down_is_taken_by_the_next(found: Found) -> None:
    company = found(
        {"alpha": WORK, "beta": {"default": {"late_reply": {"after": 2, "reply": "Late."}}}}, synthesis="concat"
    )
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=ONE))
    alpha.run()
    assert alpha.attempts("job.x")[0]["waiting_for"] == "reply"
    eventually(lambda: list(alpha.inbox.glob("*.md")))
    alpha.run()
    assert "Late." in alpha.task("job")["result"]
    company.at_rest()


def test_a_question_about_a_root_task_goes_to_its_sender_and_the_answer_lets_it_go_on(found: Found) -> None:
    rules = [
        {"match": {"text": "In EUR"}, "reply": "12 EUR."},
        {"match": {"kind": "work"}, "question": "Which currency?"},
    ]
    company = found({"alpha": {"rules": rules}})
    alpha = company["alpha"]
    alpha.drop("go.md", task("price"))
    alpha.run()
    (question,) = alpha.sent("question")
    assert "Which currency?" in question
    assert alpha.attempts("price")[0]["waiting_for"] == "answer"
    alpha.drop("answer.md", message("answer", "price", "In EUR."))
    alpha.run()
    assert alpha.task("price")["result"] == "12 EUR."
    assert len(alpha.attempts("price")) == 1
    company.at_rest()


def test_a_question_travels_between_two_daemons_and_so_does_the_answer(found: Found) -> None:
    """Beta asks alpha, who gave the work; alpha's agent answers in a turn; beta goes on with that answer."""
    rules = [
        {"match": {"text": "In EUR"}, "reply": "12 EUR."},
        {"match": {"kind": "work"}, "question": "Which currency?"},
    ]
    company = found(
        {"alpha": {"mailbox": "true", "default": {"reply": "In EUR."}}, "beta": {"mailbox": "true", "rules": rules}},
        daemons=("alpha", "beta"),
        synthesis="concat",
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.start(wait=False)
    beta.start(wait=False)
    alpha.drop("go.md", task("price", plan=ONE))
    assert "12 EUR." in alpha.until("price")["result"]
    assert len(beta.attempts("price.x")) == 1
    company.at_rest()


def test_a_cancelled_tree_takes_its_children_and_peers_with_it(found: Found) -> None:
    plan = {
        "here": {"agent": "self", "description": "Here"},
        "there": {"agent": "beta", "description": "There"},
        "later": {"agent": "self", "description": "Later", "depends_on": ["here"]},
    }
    hang = {"default": {"hang": 20, "reply": "Never."}}
    company = found(
        {"alpha": {"mailbox": "true", **hang}, "beta": {"mailbox": "true", **hang}}, daemons=("alpha", "beta")
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.start(wait=False)
    beta.start(wait=False)
    alpha.drop("go.md", task("job", plan=plan))
    eventually(lambda: len(company.executions()) == 2)
    eventually(lambda: [row for row in alpha.attempts("job.there") if row["waiting_for"] == "reply"])
    alpha.drop("stop.md", message("cancel", "job", "Enough."))
    alpha.until("job", "cancelled")
    assert set(alpha.phases().values()) == {"cancelled"}
    beta.until("job.there", "cancelled", 10)
    eventually(lambda: len([e for e in company.entries() if e["event"] == "end" and e["status"] == "cancelled"]) == 2)
    company.at_rest()


def test_a_failed_child_takes_its_siblings_with_it_and_tells_their_peers(found: Found) -> None:
    plan = {
        "bad": {"agent": "gamma", "description": "Bad", "max_attempts": 1},
        "there": {"agent": "beta", "description": "There"},
    }
    hang = {"mailbox": "true", "default": {"hang": 20, "reply": "Never."}}
    broken = {"default": {"delay": 2, "fail": {"error": "broken"}}}
    company = found({"alpha": {"mailbox": "true"}, "beta": hang, "gamma": broken}, daemons=("alpha", "beta"))
    alpha, beta = company["alpha"], company["beta"]
    alpha.start(wait=False)
    beta.start(wait=False)
    alpha.drop("go.md", task("job", plan=plan))
    alpha.until("job", "failed")
    beta.until("job.there", "cancelled", 10)
    company.at_rest()


def test_a_reply_that_cannot_be_handed_over_stays_in_outbox_and_an_event_says_so(found: Found) -> None:
    company = found({"alpha": WORK}, openclaw={"discovery": "true"})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", sender="stranger", subtask_id="x"))
    alpha.run()
    assert alpha.phase("job.x") == "completed"
    assert len(alpha.sent("reply")) == 1
    assert len(alpha.events("message.undelivered")) == 1
    company.at_rest()
