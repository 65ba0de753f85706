"""Work that an agent gave away in one of its chats, as the gateway's plugin writes it: whose it is, and who is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, message

pytestmark = pytest.mark.slow

CHAT = "session:agent:alpha:main"


def given(task_id: str, **headers: Any) -> str:
    headers = {"sender": "alpha", "message_id": f"dlg-{task_id}", "reply_to": f"'{CHAT}'", **headers}
    asked = {"x-asked-in": "'agent:alpha:main'", "x-asked-run": "'run-1'", "x-asked-with": "'sessions_spawn'"}
    body = f"# Task: {task_id}\n\n## Instructions\n\nDo {task_id}.\n"
    return message("task", task_id, body, **headers, **asked)


def notices(alpha: Agent) -> list[str]:
    rows = alpha.query("SELECT t.local_id FROM v_outbox o JOIN v_tasks t ON t.id = o.task WHERE o.kind = 'notify'")
    return sorted(row["local_id"] for row in rows)


def test_work_for_another_agent_is_given_to_it_and_its_result_to_the_chat(found: Found) -> None:
    company = found({"alpha": {"default": {"reply": "No."}}, "beta": {"default": {"reply": "Counted: 7."}}})
    alpha = company["alpha"]
    alpha.drop("count.md", given("count", agent="beta"))
    alpha.drop("own.md", given("own"))
    alpha.run()
    assert alpha.task("count")["result"].endswith("Counted: 7.")
    assert len(company.executions(agent="beta")) == 1
    assert alpha.task("own")["result"] == "No."
    assert notices(alpha) == ["count", "own"]
    assert alpha.events("message.undelivered") == [], "the chat is told, and nobody else waits for it"
    (row,) = alpha.query("SELECT extra FROM tasks WHERE local_id = 'count'")
    assert ["x-asked-run", "run-1"] in json.loads(row["extra"]), "who asked stays with the work"
    assert "alpha:" in alpha.sent("task")[0].partition("delegation_path:")[2][:60], (
        "and the chain of hand-overs goes on"
    )


def test_the_same_file_again_is_the_same_work(found: Found) -> None:
    company = found({"alpha": {"default": {"reply": "Done."}}})
    alpha = company["alpha"]
    alpha.drop("task-own.md", given("own"))
    alpha.run()
    alpha.drop("task-own.md", given("own"))
    alpha.run()
    assert [row["verdict"] for row in alpha.mail()] == ["accepted", "duplicate"]
    assert len(alpha.attempts("own")) == 1
    assert notices(alpha) == ["own"]


@pytest.mark.parametrize(
    ("address", "sender", "mode"),
    [
        ("session:agent:alpha:main", "beta", "tool"),
        ("session:agent:alpha:main", "alpha", "off"),
        ("session:agent:alpha:mailboxd:t-1-0123", "alpha", "tool"),
        ("session:agent:alpha:subagent:1", "alpha", "tool"),
        ("session:agent:alphabet:main", "alpha", "tool"),
        ("wake:agent:beta:main", "alpha", "tool"),
        ("telegram:@ann", "alpha", "tool"),
    ],
)
def test_only_what_an_agent_gave_away_itself_is_answered_in_its_chats(
    found: Found, address: str, sender: str, mode: str
) -> None:
    company = found({"alpha": {"default": {"reply": "Done."}}}, openclaw={"delegate": mode})
    alpha = company["alpha"]
    alpha.drop("go.md", given("own", sender=sender, reply_to=f"'{address}'"))
    alpha.run()
    assert alpha.rejections() == {"go.md": "reply-to"}


def test_what_is_refused_after_all_is_a_failure_that_the_chat_is_told(found: Found) -> None:
    """The rules may have changed since the plugin read them, and a cap may have been reached."""
    company = found({"alpha": {"default": {"reply": "Done."}}})
    alpha = company["alpha"]
    alpha.drop("model.md", given("fine", model="none/such"))
    alpha.run()
    assert alpha.phase("fine") == "failed"
    assert "none/such" in alpha.task("fine")["error"]
    assert notices(alpha) == ["fine"]
    assert alpha.attempts("fine") == []
    assert len(alpha.rejections()) == 1


@pytest.mark.parametrize("mode", ["tool", "takeover", "off"])
def test_the_plugin_is_told_what_it_may_offer(found: Found, mode: str) -> None:
    company = found({"alpha": {"default": {"reply": "Done."}}}, openclaw={"delegate": mode, "discovery": "false"})
    alpha = company["alpha"]
    alpha.run()
    file = alpha.root / ".mailboxd" / "delegation.json"
    said = json.loads(file.read_text())
    assert (said["mode"], said["agent"], said["closed"], said["peers"]) == (mode, "alpha", "", {"*": ""})
    before = file.stat().st_mtime_ns
    alpha.run()
    assert file.stat().st_mtime_ns == before


def test_a_full_cap_is_said_before_anything_is_given_away(found: Found) -> None:
    limits = {"sender_open_tasks": 1}
    company = found({"alpha": {"default": {"reply": "---\ntype: question\n---\nWhich?\n"}}}, limits=limits)
    alpha = company["alpha"]
    alpha.drop("one.md", given("one"))
    alpha.run()
    alpha.run()
    assert (
        "alpha has 1 unfinished tasks"
        in json.loads((alpha.root / ".mailboxd" / "delegation.json").read_text())["closed"]
    )
