"""What is said while work runs: questions and who answers them, signs of life, new instructions, cancels."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, message, reply, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
ONE = {"x": {"agent": "beta", "description": "X"}}
ASKS = {
    "rules": [
        {"match": {"text": "In EUR"}, "reply": "12 EUR."},
        {"match": {"text": "will not be answered"}, "reply": "12, in some currency."},
        {"question": "Which currency?"},
    ]
}


def waits_for(agent: Agent, local_id: str) -> str:
    attempts = agent.attempts(local_id)
    return str(attempts[-1]["waiting_for"]) if attempts else ""


def asked(agent: Agent) -> list[str]:
    return [event["data"]["to"] for event in agent.events("question.asked")]


# ---------------------------------------------------------------- questions


def test_a_childs_question_is_answered_by_a_turn_of_the_agent_that_gave_it_and_the_attempt_goes_on(
    found: Found,
) -> None:
    alpha_says = {"rules": [{"match": {"kind": "answer", "text": "Which currency"}, "reply": "In EUR."}], **WORK}
    company = found({"alpha": alpha_says, "beta": ASKS}, synthesis="concat")
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=ONE))
    alpha.run()
    assert alpha.task("job.x")["result"] == "12 EUR."
    (attempt,) = alpha.attempts("job.x")
    assert (attempt["question_turns"], asked(alpha)) == (1, ["alpha"])
    keys = [entry["session_key"] for entry in company.executions(agent="beta")]
    assert len(keys) == 2
    assert len(set(keys)) == 1, "the answer comes in the session of the question"
    company.at_rest()


@pytest.mark.parametrize("shrug", [{"question": "I do not know either."}, {"garbage": "?"}])
def test_what_that_agent_cannot_answer_the_operator_is_asked_and_a_restart_keeps_the_question(
    found: Found, shrug: dict[str, object]
) -> None:
    company = found(
        {"alpha": {"rules": [{"match": {"kind": "answer"}, **shrug}], **WORK}, "beta": ASKS}, synthesis="concat"
    )
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=ONE))
    eventually(lambda: asked(alpha) == ["alpha", "operator"], why=alpha.last_words)
    alpha.kill()
    alpha.start()
    eventually(lambda: alpha.sent("question"))
    (cause,) = [cause for cause in alpha.json("why", "job.x")["because"] if cause["kind"] == "question"]
    assert cause["text"] == "asks operator: Which currency?"
    assert alpha.call("answer", "job.x", "In EUR").returncode == 0
    assert alpha.until("job.x")["result"] == "12 EUR."
    company.at_rest()


def test_a_sender_that_does_not_answer_in_time_is_not_waited_for(found: Found) -> None:
    company = found({"alpha": ASKS, "boss": {"mailbox": "true"}}, reply_within_seconds=6)
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", sender="boss", subtask_id="x"))
    eventually(lambda: waits_for(alpha, "job.x") == "answer")
    assert alpha.json("why", "job.x")["because"][0]["then"] == "the operator is asked"
    eventually(lambda: asked(alpha) == ["boss", "operator"], why=alpha.last_words)
    assert alpha.task("job.x")["due"] is None
    alpha.call("answer", "job.x", "In EUR")
    assert alpha.until("job.x")["result"] == "12 EUR."
    company.at_rest()


def test_a_peer_whose_message_is_not_taken_is_told_why_twice_at_most_and_its_work_goes_on(found: Found) -> None:
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}, "gamma": WORK}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=ONE))
    eventually(lambda: waits_for(alpha, "job.x") == "reply")
    for number in range(4):
        both = reply("job", "x", "beta", f"Done {number}.\n\n## Error\n\nIt failed.")
        alpha.drop(f"both-{number}.md", both)
        eventually(lambda count=number + 1: len(alpha.rejections()) == count)  # type: ignore[misc]
    alpha.drop("stranger.md", reply("job", "x", "gamma", "Mine.\n\n## Error\n\nIt failed."))
    eventually(lambda: len(alpha.rejections()) == 5)
    told = eventually(lambda: alpha.sent("steer"))
    assert len(told) == 2
    assert all("to: beta" in text and "Your message was not taken" in text and "## Error" in text for text in told)
    assert len(alpha.attempts("job.x")) == 1
    alpha.drop("done.md", reply("job", "x", "beta"))
    alpha.until("job")
    company.at_rest()


# ---------------------------------------------------------------- signs of life


def test_a_silent_peer_is_noticed_once_and_forgiven_when_it_is_heard_from(found: Found) -> None:
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}}, heartbeat_seconds=3, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=ONE))
    eventually(lambda: alpha.events("peer.silent"), why=alpha.last_words)
    assert "has missed its heartbeat" in alpha.json("why", "job.x")["because"][0]["text"]
    alpha.kill()
    alpha.start()
    before = alpha.task("job.x")["due"]
    alpha.drop("p.md", message("progress", "job", "Half.", sender="beta", subtask_id="x"))
    eventually(lambda: alpha.task("job.x")["due"] > before)
    assert "has missed its heartbeat" not in alpha.json("why", "job.x")["because"][0]["text"]
    (heard,) = [one for one in alpha.events("message.received") if one["data"]["message"]["type"] == "progress"]
    silent = [one for one in alpha.events("peer.silent") if one["seq"] < heard["seq"]]
    assert len(silent) == 1, "noticed once, whatever restarts"
    eventually(lambda: len(alpha.events("peer.silent")) == 2)  # and anew after it was heard from
    alpha.drop("done.md", reply("job", "x", "beta"))
    alpha.until("job")
    company.at_rest()


def test_a_peer_with_a_daemon_tells_that_it_is_alive_and_so_is_never_given_up(found: Found) -> None:
    company = found(
        {"alpha": {"mailbox": "true", **WORK}, "beta": {"mailbox": "true", "default": {"delay": 6, "reply": "Slow."}}},
        daemons=("alpha", "beta"),
        heartbeat_seconds=1,
        reply_within_seconds=4,
        synthesis="concat",
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", plan=ONE))
    assert "Slow." in alpha.until("job")["result"]
    assert len(alpha.attempts("job.x")) == 1
    assert alpha.events("peer.silent") == []
    assert beta.sent("progress")
    company.at_rest()


# ---------------------------------------------------------------- new instructions


def test_a_running_turn_is_followed_by_another_one_in_the_same_session(found: Found) -> None:
    rules = [{"match": {"text": "Use blue"}, "reply": "Blue."}, {"delay": 8, "reply": "Red."}]
    company = found({"alpha": {"rules": rules}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: company.entries(), why=alpha.last_words)
    alpha.drop("steer.md", message("steer", "job", "Use blue."))
    assert alpha.until("job")["result"] == "Blue."
    assert "another turn of the same session" in alpha.events("task.steered")[0]["data"]["into"]
    assert len(alpha.attempts("job")) == 1
    keys = {entry["session_key"] for entry in company.executions()}
    assert (len(company.executions()), len(keys)) == (2, 1)
    company.at_rest()


def test_what_the_plugin_has_given_in_the_turn_itself_is_followed_by_no_other(found: Found) -> None:
    company = found({"alpha": {"default": {"delay": 8, "reply": "Blue."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: company.entries(), why=alpha.last_words)
    alpha.drop("steer.md", message("steer", "job", "Use blue."))
    place = alpha.root / ".mailboxd" / "steering"
    (file,) = eventually(lambda: list(place.glob("*.json")), why=alpha.last_words)
    said = json.loads(file.read_text())
    assert (said["text"], said["session"]) == ("Use blue.", alpha.attempts("job")[0]["session_key"])
    file.with_suffix(".given").write_text(json.dumps({"life": "x", "text": said["text"]}))
    alpha.until("job")
    assert len(company.executions()) == 1
    assert "new instructions, given in the running turn" in alpha.call("log", "job").stdout
    eventually(lambda: not list(place.iterdir()))
    company.at_rest()


def test_what_came_during_a_turn_that_failed_reaches_the_next_attempt_also_over_a_crash(found: Found) -> None:
    rules = [
        {"match": {"text": "Use blue"}, "reply": "Blue."},
        {"delay": 8, "fail": {"kind": "transient", "error": "overloaded"}},
    ]
    company = found({"alpha": {"rules": rules}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    eventually(lambda: company.entries())
    alpha.drop("steer.md", message("steer", "job", "Use blue."))
    eventually(lambda: alpha.events("task.steered"))
    alpha.kill()
    alpha.start()
    assert alpha.until("job")["result"] == "Blue."
    assert len(alpha.attempts("job")) == 2
    company.at_rest()


def test_new_instructions_go_on_to_the_daemon_that_has_the_work(found: Found) -> None:
    rules = [{"match": {"text": "Use blue"}, "reply": "Blue."}, {"delay": 15, "reply": "Red."}]
    company = found(
        {"alpha": {"mailbox": "true", **WORK}, "beta": {"mailbox": "true", "rules": rules}},
        daemons=("alpha", "beta"),
        synthesis="concat",
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", plan=ONE))
    eventually(lambda: waits_for(alpha, "job.x") == "reply" and company.executions(agent="beta") is not None)
    eventually(lambda: beta.phase("job.x") == "executing")
    assert "sent to beta, which has the work" in alpha.call("edit", "job.x", "Use blue.").stdout
    assert "Blue." in alpha.until("job")["result"]
    assert "another turn of the same session" in beta.events("task.steered")[0]["data"]["into"]
    company.at_rest()


# ---------------------------------------------------------------- cancel


def test_a_cancel_goes_down_through_two_daemons_to_the_third_and_what_comes_late_changes_nothing(found: Found) -> None:
    """Alpha gives to beta, who plans and gives to gamma; whoever kills a daemon on the way changes nothing."""
    beta_plans = {"rules": [{"match": {"kind": "work"}, "plan": {"y": {"agent": "gamma", "description": "Y"}}}], **WORK}
    company = found(
        {
            "alpha": {"mailbox": "true", **WORK},
            "beta": {"mailbox": "true", **beta_plans},
            "gamma": {"mailbox": "true", "default": {"hang": 15, "reply": "Too late."}},
        },
        daemons=("alpha", "beta", "gamma"),
    )
    alpha, beta, gamma = company["alpha"], company["beta"], company["gamma"]
    for agent in (alpha, beta, gamma):
        agent.start()
    alpha.drop("go.md", task("job", plan=ONE))
    eventually(lambda: gamma.phase("job.x.y") == "executing", why=beta.last_words)
    eventually(lambda: waits_for(beta, "job.x.y") == "reply" and waits_for(alpha, "job.x") == "reply")
    beta.kill()
    assert alpha.call("cancel", "job", "--now").returncode == 0
    alpha.until("job", "cancelled")
    eventually(lambda: alpha.sent("cancel"))
    beta.start()
    beta.until("job.x", "cancelled")
    gamma.until("job.x.y", "cancelled")
    eventually(lambda: [e for e in company.entries() if e["event"] == "end" and e["status"] == "cancelled"])
    attempt = alpha.attempts("job.x")[0]
    alpha.drop("late.md", reply("job", "x", "beta", "After all.", attempt_id=attempt["id"]))
    eventually(lambda: "late.md" in [row["name"] for row in alpha.mail("late")])
    assert (alpha.phase("job.x"), alpha.task("job.x")["result"]) == ("cancelled", "")
    assert "cancelled" in beta.call("retry", "job.x").stderr
    company.at_rest()
