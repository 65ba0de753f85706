"""A gives to B, B gives to C, each with its own daemon; the gateway's plugin carries every message without a model."""

from __future__ import annotations

import pytest

from tests.e2e.support import eventually, task
from tests.live.company import LiveCompany
from tests.live.conftest import FoundApart
from tests.live.gateway import run_of
from tests.live.model import Exec, Hang, Step, Text, plan

NAMES = ("alpha", "beta", "gamma")
TREE = {
    "alpha": {"mine": "completed", "mine.research": "completed"},
    "beta": {"mine.research": "completed", "mine.research.dig": "completed"},
    "gamma": {"mine.research.dig": "completed"},
}
TURNS = [
    ("alpha", "work", "mine"),
    ("beta", "work", "mine.research"),
    ("gamma", "work", "mine.research.dig"),
    ("beta", "synthesis", "mine.research"),
    ("alpha", "synthesis", "mine"),
]


def mining(found_apart: FoundApart, *digging: Step) -> LiveCompany:
    """Three daemons under way with a task whose work is done by gamma: so does the model dig."""
    company = found_apart(run_of(NAMES), daemons=NAMES, plugin=True)
    model = company.model
    model.on(plan({"research": {"agent": "beta", "description": "Research"}}), agent="alpha", kind="work")
    model.on(plan({"dig": {"agent": "gamma", "description": "Dig"}}), agent="beta", kind="work")
    model.on(*digging, agent="gamma")
    model.on(Text("Together: gold, 7 kg."), kind="synthesis")
    for name in NAMES:
        company[name].start(wait=False)
    company["alpha"].drop("go.md", task("mine"))
    return company


def carried(company: LiveCompany) -> list[tuple[str, str, str]]:
    """Every message that one agent sent to another: sender, receiver, type. What landed is what was sent."""
    found = []
    for name in NAMES:
        for sent in company[name].mail(direction="out"):
            if sent["receiver"] not in NAMES:
                continue
            found.append((name, sent["receiver"], sent["type"]))
            receiver = company[sent["receiver"]]
            (landed,) = [row for row in receiver.mail("accepted") if row["message_id"] == sent["message_id"]]
            file = receiver.root / "mailbox" / landed["path"]
            assert file.read_bytes() == (company[name].root / "mailbox" / sent["path"]).read_bytes()
    return sorted(found)


EACH_ONCE = [
    ("alpha", "beta", "task"),
    ("beta", "alpha", "reply"),
    ("beta", "gamma", "task"),
    ("gamma", "beta", "reply"),
]


@pytest.mark.soak
def test_work_goes_down_and_results_come_up_and_only_turns_cost_calls(found_apart: FoundApart) -> None:
    company = mining(found_apart, Text("Gold, 7 kg."))
    company["alpha"].until("mine")
    assert {name: company[name].phases() for name in NAMES} == TREE
    assert company["alpha"].task("mine")["result"] == "Together: gold, 7 kg."
    assert [(call.agent, call.kind, call.task) for call in company.model.calls] == TURNS
    company.at_rest()
    assert carried(company) == EACH_ONCE


@pytest.mark.soak
def test_all_daemons_and_the_gateway_die_in_the_middle_of_the_recursion(found_apart: FoundApart) -> None:
    company = mining(found_apart, Exec("echo x >> ran"), Hang("Gold, 7 kg."))
    gamma, model = company["gamma"], company.model
    eventually(lambda: any(call.steps for call in model.made(agent="gamma")), 300, gamma.last_words)
    for name in NAMES:
        company[name].kill()
    company.gateway.kill()
    model.release()
    company.gateway.start()
    for name in NAMES:
        company[name].start(wait=False)
    company["alpha"].until("mine")
    assert {name: company[name].phases() for name in NAMES} == TREE
    assert (gamma.root / "ran").read_text() == "x\n"
    assert [len(company[name].attempts(task)) for name, tasks in TREE.items() for task in tasks] == [1] * 5
    company.at_rest()
    assert carried(company) == EACH_ONCE
