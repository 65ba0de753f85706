"""Trees of work on the real gateway: chains, recursion, peers with and without a daemon, fan-outs."""

from __future__ import annotations

from tests.e2e.support import task
from tests.live.conftest import Found
from tests.live.model import Text, Write, plan, plan_yaml

SYNTHESIS = Text("Together.")


def test_a_peer_without_a_daemon_answers_and_fails_in_its_turn_and_is_asked_for_more_than_a_plan(found: Found) -> None:
    """Its turn is all there is of it, and nothing lands in its workspace."""
    company = found()
    alpha, model = company["alpha"], company.model
    model.on(Text("---\ntype: reply\nstatus: done\n---\n\n## Results\n\nGold.\n"), agent="beta")
    model.on(plan({"dig": {"agent": "gamma", "description": "Dig"}}), agent="beta", times=1)
    model.on(Text("---\ntype: reply\nstatus: failed\n---\n\n## Error\n\nThe ground is frozen.\n"), agent="gamma")
    model.on(SYNTHESIS, kind="synthesis")
    alpha.start()
    alpha.drop("go.md", task("peer", plan={"research": {"agent": "beta", "description": "Research"}}))
    alpha.until("peer")
    assert alpha.phases() == dict.fromkeys(("peer", "peer.research"), "completed")
    assert "carry the plan out yourself" in model.calls[1].text
    alpha.drop("2.md", task("peer2", plan={"dig": {"agent": "gamma", "description": "Dig", "max_attempts": 1}}))
    alpha.until("peer2", "failed")
    assert "The ground is frozen." in alpha.task("peer2.dig")["error"]
    assert [call.agent for call in model.calls] == ["beta", "beta", "alpha", "gamma"]
    assert not (company["beta"].root / "mailbox").exists()
    company.at_rest()


def test_a_plan_for_an_agent_that_may_not_be_reached_is_refused_with_those_that_may(found: Found) -> None:
    company = found(daemons=["narrow"], synthesis="concat")
    narrow, model = company["narrow"], company.model
    model.on(plan({"x": {"agent": "beta", "description": "X"}}), agent="narrow", task="said")
    model.on(plan({"x": {"agent": "gamma", "description": "X"}}), agent="narrow", task="said", times=1)
    narrow.start()
    narrow.drop("told.md", task("told", plan={"x": {"agent": "gamma", "description": "X"}}))
    narrow.drop("unknown.md", task("unknown", plan={"x": {"agent": "nobody", "description": "X"}}))
    narrow.drop("said.md", task("said"))
    narrow.drop("good.md", task("good", plan={"x": {"agent": "beta", "description": "X"}}))
    narrow.until("good")
    narrow.until("said")
    assert narrow.rejections() == {"told.md": "unknown-agent", "unknown.md": "unknown-agent"}
    first, second = model.made(agent="narrow", task="said")
    assert "gamma" not in first.text
    assert "There are narrow, beta, self. Write one of them." in second.text
    answers = {answer.partition("task_id: ")[2].partition("\n")[0]: answer for answer in narrow.sent("reply")}
    assert "may reach beta" in answers["told"]
    assert "there is no agent nobody; narrow may give work to beta" in answers["unknown"]
    assert model.per_attempt() == {
        ("narrow", "said", "1"): 2,
        ("beta", "said.x", "1"): 1,
        ("beta", "good.x", "1"): 1,
    }
    company.at_rest()


def test_an_agent_writes_its_plan_into_task_md_with_its_own_tool(found: Found) -> None:
    company = found(synthesis="concat")
    alpha, model = company["alpha"], company.model
    dag = plan_yaml({"part": {"agent": "beta", "description": "Part"}})
    text = f"---\ntask_id: written\nmode: coordinating\n---\n\n# Task: written\n\n## DAG\n\n```yaml\n{dag}```\n"
    model.on(Write("tasks/written/task.md", text), Text("The plan stands in task.md."), agent="alpha", task="written")
    model.on(Text("Part of it."), agent="beta")
    alpha.start()
    alpha.drop("go.md", task("written"))
    alpha.until("written")
    assert alpha.phases() == dict.fromkeys(("written", "written.part"), "completed")
    assert "Part of it." in alpha.task("written")["result"]
    assert model.per_attempt() == {("alpha", "written", "1"): 2, ("beta", "written.part", "1"): 1}
    company.at_rest()
