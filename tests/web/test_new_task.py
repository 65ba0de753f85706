"""The form of a new task: who does it and who reviews it is picked, and each wrong field is explained beside itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.stage import Stage, make
from tests.web.inside import Inside, inside


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = make(tmp_path / "alpha")
    made.knows(known={name: [name, ""] for name in ("alpha", "beta", "critic")}, allowed=["alpha", "beta"])
    return made


@pytest.fixture
def page(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return inside(stage, tmp_path / "state")


def _sends(page: Inside, **fields: str) -> None:
    said = {"send": "task", "workspace": page.key(), "instructions": "Count the trees", **fields}
    answer = page.form("/new", None, **said)
    assert answer.status == 303, answer.words
    assert "&sent=msg_" in answer.headers["location"]


def test_agents_are_picked_from_those_that_may_get_work(stage: Stage, page: Inside) -> None:
    text = page.get("/new").text
    offered = re.findall(r'<option value="([^"]+)"', text)
    assert offered == [page.key(), f"{page.key()} beta"]
    assert re.findall(r'name="(reviewer-[^"]+)"', text) == ["reviewer-beta", "reviewer-critic", "reviewer-operator"]


def test_a_task_for_another_agent_becomes_one_subtask_whose_result_is_the_answer(stage: Stage, page: Inside) -> None:
    _sends(page, workspace=f"{page.key()} beta", expected_output="A number")
    assert stage.receive() == "accepted"
    stage.start()
    (parent, child) = stage.sql("SELECT local_id, executor, title FROM v_tasks ORDER BY depth")
    assert (parent["executor"], child["executor"]) == ("alpha", "beta")
    assert child["title"] == parent["title"] == "Count the trees"


def test_budget_reviewers_deadline_beginning_and_plan_are_sent(stage: Stage, page: Inside) -> None:
    plan = "subtasks:\n  a: {agent: beta, description: Count oaks}\n  b: {agent: self, description: Count elms}\n"
    when = {"not_before": "2099-01-02", "deadline": "2099-02-02"}
    _sends(page, budget_usd="2.5", plan=plan, **when, **{"reviewer-critic": "1"})
    assert stage.receive() == "accepted"
    (name,) = (row["local_id"] for row in stage.sql("SELECT local_id FROM v_tasks WHERE parent IS NULL"))
    policy = stage.task(name).policy
    assert policy.budget_usd == 2.5
    assert policy.reviewers == ("critic",)
    assert "quality_gate" in policy.gates
    assert (policy.deadline or "")[:7] == "2099-02"
    assert (policy.not_before or "")[:7] == "2099-01"


def test_each_wrong_field_is_explained_beside_itself_and_nothing_is_lost(stage: Stage, page: Inside) -> None:
    said = {
        "instructions": "Count <b>trees</b>", "title": "Trees", "budget_usd": "much", "deadline": "11/12/2099",
        "repeat": "daily", "plan": "subtasks:\n  a: {agent: nobody, description: x}\n", "reviewer-critic": "1",
    }  # fmt: skip
    answer = page.form("/new", None, send="task", workspace=page.key(), **said)
    assert answer.status == 409
    for name in ("budget_usd", "deadline", "repeat", "plan"):
        assert f'aria-describedby="wrong-{name}"' in answer.text, name
        assert f'id="wrong-{name}"' in answer.text, name
    assert "nobody" in answer.text.partition('id="wrong-plan"')[2].partition("</p>")[0]
    for kept in (
        "Count &lt;b&gt;trees&lt;/b&gt;",
        'value="Trees"',
        'value="much"',
        'value="11/12/2099"',
        "agent: nobody",
    ):
        assert kept in answer.text
    assert 'name="reviewer-critic" value="1" checked' in answer.text
    assert list(stage.ws.inbox.iterdir()) == []


def test_what_was_not_offered_is_refused(stage: Stage, page: Inside) -> None:
    for fields in ({"workspace": f"{page.key()} critic"}, {"reviewer-nobody": "1"}, {"instructions": " "}):
        said = {"send": "task", "workspace": page.key(), "instructions": "Count the trees", **fields}
        answer = page.form("/new", None, **said)
        assert answer.status == 409, fields
        assert "wrong-" in answer.text
    two = {"workspace": f"{page.key()} beta", "plan": "subtasks:\n  a: {agent: beta, description: x}\n"}
    assert page.form("/new", None, send="task", instructions="Count", **two).status == 409
    assert list(stage.ws.inbox.iterdir()) == []


def test_a_task_that_was_sent_opens_once_it_is_read(stage: Stage, page: Inside) -> None:
    said = {"send": "task", "workspace": page.key(), "instructions": "Count the trees"}
    there = page.form("/new", None, **said).headers["location"]
    assert page.get(there).status == 200
    assert stage.receive() == "accepted"
    (row,) = stage.sql("SELECT local_id FROM v_tasks")
    went = page.get(there)
    assert (went.status, went.headers["location"]) == (303, f"/w/{page.key()}/t/{row['local_id']}?done=taken")
    assert "Sent and read" in page.get(went.headers["location"]).words


def test_who_does_it_does_not_review_it(stage: Stage, page: Inside) -> None:
    said = {"send": "task", "workspace": f"{page.key()} beta", "instructions": "Count", "reviewer-beta": "1"}
    refused = page.form("/new", None, **said)
    assert refused.status == 409
    assert "done by beta" in refused.text.partition('id="wrong-reviewers"')[2].partition("</p>")[0]
    assert list(stage.ws.inbox.iterdir()) == []
