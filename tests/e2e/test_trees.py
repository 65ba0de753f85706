"""Trees of work, carried out by real daemons: chains, fan-outs, diamonds, plans inside plans, one daemon per agent."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.core.plans import step
from tests.e2e.conftest import Found
from tests.e2e.support import task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
SYNTHESIS = {"match": {"kind": "synthesis"}, "reply": "Together: {title}."}


def test_the_result_of_a_dependency_stands_in_the_context_of_its_dependant(found: Found) -> None:
    plan = {
        "collect": {"agent": "beta", "description": "Collect"},
        "write": {"agent": "gamma", "description": "Write", "depends_on": ["collect"]},
    }
    company = found(
        {
            "alpha": WORK,
            "beta": {"default": {"reply": "Forty-two elephants."}},
            "gamma": {"default": {"reply": "I was told: {context}"}},
        },
        synthesis="concat",
    )
    alpha = company["alpha"]
    alpha.drop("go.md", task("report", plan=plan))
    alpha.run()
    assert "Forty-two elephants." in alpha.task("report.write")["result"]
    assert "collect" in alpha.task("report.write")["result"]
    company.at_rest()


def test_a_fan_out_runs_at_once_within_the_limits(found: Found) -> None:
    plan = {f"part{n}": {"agent": "beta" if n % 2 else "gamma", "description": f"Part {n}"} for n in range(6)}
    slow = {"default": {"delay": 1.0, "reply": "{title} is done."}}
    company = found(
        {"alpha": WORK, "beta": slow, "gamma": slow}, synthesis="concat", limits={"turns": 3, "turns_per_agent": 2}
    )
    alpha = company["alpha"]
    alpha.drop("go.md", task("report", plan=plan))
    alpha.run()
    assert alpha.phase("report") == "completed"
    assert all(f"Part {n} is done." in alpha.task("report")["result"] for n in range(6))
    assert max(most_at_once(company.entries(), name) for name in ("beta", "gamma")) == 2
    assert most_at_once(company.entries(), None) == 3
    company.at_rest()


def most_at_once(entries: list[dict[str, object]], agent: str | None) -> int:
    running: set[object] = set()
    most = 0
    for entry in entries:
        if entry["event"] == "begin" and agent in (None, entry["agent"]):
            running.add(entry["run_id"])
        elif entry["event"] == "end":
            running.discard(entry["run_id"])
        most = max(most, len(running))
    return most


@pytest.mark.soak
def test_plans_inside_plans_nest_in_one_store_with_a_single_daemon(found: Found) -> None:
    """The agent answers with a plan, whose child answers with a plan, whose child has one written into it."""
    deepest = {
        "leaf": {"agent": "beta", "description": "Leaf"},
        "after": {"agent": "self", "description": "After", "depends_on": ["leaf"]},
    }
    rules = [
        {"match": {"kind": "work", "task": "root"}, "plan": {"one": {"agent": "self", "description": "One"}}},
        {
            "match": {"kind": "work", "task": r"root\.one"},
            "plan": {"two": {"agent": "self", "description": "Two", "subtasks": deepest}},
        },
        SYNTHESIS,
    ]
    company = found({"alpha": {"rules": rules, **WORK}, "beta": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", task("root"))
    alpha.run()
    names = ("root", "root.one", "root.one.two", "root.one.two.leaf", "root.one.two.after")
    assert alpha.phases() == dict.fromkeys(names, "completed")
    assert [row["depth"] for row in alpha.query("SELECT depth FROM v_tasks ORDER BY depth, seq")] == [0, 1, 2, 3, 3]
    assert len(company.executions(kind="synthesis")) == 3
    company.at_rest()


def test_a_peer_without_a_daemon_that_answers_with_a_plan_is_asked_for_its_result(found: Found) -> None:
    plan = {"dig": {"agent": "gamma", "description": "Dig"}}
    rules = [{"match": {"subtask": "research"}, "times": 1, "plan": plan}]
    company = found(
        {"alpha": {"rules": [SYNTHESIS], **WORK}, "beta": {"rules": [*rules, SYNTHESIS], **WORK}, "gamma": WORK}
    )
    alpha = company["alpha"]
    alpha.drop("go.md", task("report", plan={"research": {"agent": "beta", "description": "Research"}}))
    alpha.run()
    assert alpha.phases() == dict.fromkeys(("report", "report.research"), "completed")
    assert len(company.executions(agent="beta")) == 2
    assert not company.executions(agent="gamma")
    company.at_rest()


def test_one_daemon_per_agent_passes_work_down_and_results_up(found: Found) -> None:
    """A gives to B, B gives to C; each has its own daemon, mailbox and store."""
    rules_a = [
        {"match": {"kind": "work"}, "plan": {"research": {"agent": "beta", "description": "Research"}}},
        SYNTHESIS,
    ]
    rules_b = [{"match": {"kind": "work"}, "plan": {"dig": {"agent": "gamma", "description": "Dig"}}}, SYNTHESIS]
    company = found(
        {
            "alpha": {"mailbox": "true", "rules": rules_a},
            "beta": {"mailbox": "true", "rules": rules_b},
            "gamma": {"mailbox": "true", "default": {"reply": "Gold, 7 kg."}},
        },
        daemons=("alpha", "beta", "gamma"),
    )
    for agent in company.agents.values():
        agent.start(wait=False)
    company["alpha"].drop("go.md", task("mine"))
    company["alpha"].until("mine")
    assert company["alpha"].phases() == dict.fromkeys(("mine", "mine.research"), "completed")
    assert company["beta"].phases() == dict.fromkeys(("mine.research", "mine.research.dig"), "completed")
    assert company["gamma"].phases() == {"mine.research.dig": "completed"}
    assert "Gold, 7 kg." in company["beta"].task("mine.research.dig")["result"]
    company.at_rest()
    assert len(company.executions()) == 5  # three turns of work, two syntheses; nothing twice


def test_two_children_of_one_parent_at_the_same_peer_are_two_pieces_of_work(found: Found) -> None:
    """The hole in clawflow: it took the second for a duplicate of the first."""
    plan = {key: {"agent": "beta", "description": f"Extract {key}"} for key in ("q1", "q2")}
    company = found(
        {
            "alpha": {"mailbox": "true", **WORK},
            "beta": {"mailbox": "true", "default": {"reply": "Numbers of {title}."}},
        },
        daemons=("alpha", "beta"),
        synthesis="concat",
    )
    for agent in company.agents.values():
        agent.start(wait=False)
    company["alpha"].drop("go.md", task("year", plan=plan))
    result = company["alpha"].until("year")["result"]
    assert "Numbers of Extract q1." in result
    assert "Numbers of Extract q2." in result
    company.at_rest()


def test_agents_that_hand_work_to_each_other_for_ever_are_stopped_by_the_depth(found: Found) -> None:
    """A plans for B, B plans for A, always something else: the depth goes with the message, through any daemons."""

    def hands(peer: str) -> list[dict[str, Any]]:
        plans = ({"x": {"agent": peer, "description": f"More for {peer}, {number}"}} for number in range(6))
        return [{"match": {"kind": "work"}, "times": 1, "plan": plan} for plan in plans]

    company = found(
        {
            "alpha": {"mailbox": "true", "rules": hands("beta")},
            "beta": {"mailbox": "true", "rules": hands("alpha")},
        },
        daemons=("alpha", "beta"),
        limits={"depth": 4},
        retry={"max_attempts": 1},
    )
    for agent in company.agents.values():
        agent.start(wait=False)
    company["alpha"].drop("go.md", task("ball"))
    company["alpha"].until("ball", "failed")
    assert "depth" in company["alpha"].task("ball")["error"]
    company.at_rest()
    assert len(company.executions(kind="work")) == 7  # depths 0 to 4, and the last one is asked again twice


def test_a_child_may_not_be_given_to_an_agent_that_openclaw_does_not_let_us_reach(found: Found) -> None:
    company = found({"alpha": {"allow": ["beta"], **WORK}, "beta": WORK, "gamma": WORK}, openclaw={"discovery": "true"})
    alpha = company["alpha"]
    alpha.drop("1.md", task("good", plan={"x": {"agent": "beta", "description": "X"}}, synthesis="concat"))
    alpha.drop("2.md", task("bad", plan={"x": {"agent": "gamma", "description": "X"}}))
    alpha.drop("3.md", task("worse", plan={"x": {"agent": "nobody", "description": "X"}}))
    alpha.run()
    assert alpha.phases() == {"good": "completed", "good.x": "completed"}
    assert alpha.rejections() == {"2.md": "unknown-agent", "3.md": "unknown-agent"}
    assert company.executions(agent="gamma") == []
    company.at_rest()


# ---------------------------------------------------------------- work that comes back, and failures that are final


def test_work_that_two_daemons_would_hand_to_and_fro_is_refused_and_the_planner_told(found: Found) -> None:
    gives = {"match": {"kind": "work", "task": "job"}, "plan": {"x": {"agent": "beta", "description": "Write"}}}
    told = {"match": {"kind": "work", "text": "alpha -> beta -> alpha"}, "reply": "Written after all."}
    returns = {"match": {"kind": "work"}, "plan": {"y": {"agent": "alpha", "description": "The report"}}}
    company = found(
        {"alpha": {"mailbox": "true", "rules": [gives]}, "beta": {"mailbox": "true", "rules": [told, returns]}},
        daemons=("alpha", "beta"), synthesis="concat", retry={"backoff_seconds": 0.1},
    )  # fmt: skip
    alpha, beta = company["alpha"], company["beta"]
    alpha.start()
    beta.start()
    alpha.drop("go.md", task("job", "The report"))
    alpha.until("job")
    (attempt,) = beta.attempts("job.x")
    assert attempt["status"] == "succeeded"
    (asked,) = beta.events("answer.unclear")
    assert "come back to alpha with the same goal: alpha -> beta -> alpha" in asked["data"]["problems"][0]
    assert set(alpha.phases()) == {"job", "job.x"}
    company.at_rest()


def test_work_that_comes_back_past_daemons_that_do_not_look_is_refused_by_the_one_that_gave_it(found: Found) -> None:
    company = found({"alpha": WORK, "boss": {"mailbox": "true"}})
    alpha = company["alpha"]
    path = f"[{step('alpha', 'The report')}, {step('boss', 'Write')}]"
    alpha.drop("go.md", task("job", "The report", sender="boss", subtask_id="x", delegation_path=path))
    alpha.run()
    assert alpha.rejections() == {"go.md": "delegation-loop"}
    (answer,) = alpha.sent("reply")
    assert "failure: permanent" in answer
    assert "alpha -> boss -> alpha" in answer
    company.at_rest()
