"""A doubt about a plan reaches the people on both sides of the work, and stays until they have seen it."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import eventually, task

pytestmark = pytest.mark.slow

PLANS = {
    "reply": "Two steps.\n\n```yaml\nsubtasks:\n  - title: Dig\n    priority: high\n    estimate: 2 days\n"
    "  - title: Sow\n    priority: urgent\n    blocked_by: Dig\n```\n"
}
BETA = {"rules": [{"match": {"kind": "work", "task": r".*\.x"}, **PLANS}], "default": {"reply": "Sown in rows."}}
DOUBTS = ("only the order of the priorities was kept", "estimate has no effect here")


def test_a_doubt_about_a_peers_plan_is_in_its_reply_and_in_that_of_the_whole_task(found: Found) -> None:
    company = found(
        {"alpha": {"mailbox": "true", "default": {"reply": "Sown."}}, "beta": {"mailbox": "true", **BETA}},
        daemons=("alpha", "beta"),
        synthesis="concat",
    )
    alpha, beta = company["alpha"], company["beta"]
    beta.start()
    alpha.start()
    alpha.drop("go.md", task("field", plan={"x": {"agent": "beta", "description": "X"}}))
    alpha.until("field")
    (answered,) = beta.sent("reply")
    assert "\n[mailboxd] In doubt: the plan: only the order of the priorities was kept" in answered
    result = alpha.task("field.x")["result"]
    assert "In doubt" not in result, "what the agent answered is not touched"
    (told,) = eventually(lambda: alpha.sent("reply"), why=alpha.last_words)
    for agent, at in ((beta, "field.x"), (alpha, "field.x")):
        (item,) = [item for item in agent.json("inbox") if item["kind"] == "warning"]
        assert item["task"] == at
        for doubt in DOUBTS:
            assert doubt in item["text"]
            assert doubt in told
            assert doubt in agent.json("show", at)["doubts"][0]["text"]
    for agent in (alpha, beta):
        agent.kill()
        agent.start()
        assert agent.call("inbox", "--dismiss", "field.x").returncode == 0
        assert [item for item in agent.json("inbox") if item["kind"] == "warning"] == []
        assert agent.call("db", "verify").returncode == 0
