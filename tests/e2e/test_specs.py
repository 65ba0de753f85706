"""Spec first: what is weak is drafted, asked about or held, and nothing executes before it is complete."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, message, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
DRAFT = "## Expected Output\n\nA file\n\n## Acceptance Criteria\n\n- haiku.txt has 17 syllables\n"
DRAFTS = {"rules": [{"match": {"kind": "draft"}, "reply": DRAFT}], **WORK}


def weak(task_id: str, criterion: str = "", **headers: object) -> str:
    body = "# Task: Write a haiku\n\n## Instructions\n\nWrite one.\n"
    if criterion:
        body += f"\n## Acceptance Criteria\n\n- {criterion}\n"
    return message("task", task_id, body, **headers)


def spec(agent: Agent, name: str) -> dict[str, object]:
    found: dict[str, object] = agent.json("show", name, "--spec")["spec"]
    return found


def kinds(company: Company) -> list[str]:
    return [entry["kind"] for entry in company.executions()]


def test_by_default_a_plain_clawflow_task_runs_as_it_is(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku", "works well"))
    alpha.drop("plain.md", "Write a limerick.\n")
    alpha.run()
    assert set(alpha.phases().values()) == {"completed"}
    assert kinds(company) == ["work", "work"]
    company.at_rest()


def test_a_weak_spec_is_drafted_in_one_turn_and_then_the_work_begins(found: Found) -> None:
    company = found({"alpha": DRAFTS}, spec={"weak": "draft"})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku", "works well"))
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    assert kinds(company) == ["draft", "work"]
    assert spec(alpha, "haiku")["acceptance_criteria"] == ["haiku.txt has 17 syllables"]
    company.at_rest()


def test_what_is_still_weak_is_asked_of_its_sender_and_the_answer_completes_it(found: Found) -> None:
    vague = {"rules": [{"match": {"kind": "draft"}, "reply": "I cannot say."}], **WORK}
    company = found({"alpha": vague, "beta": {"mailbox": "true"}}, spec={"weak": "draft"})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", weak("haiku", sender="beta", subtask_id="x"))
    (question,) = eventually(lambda: alpha.sent("question"))
    assert "no acceptance criterion and no expected output" in question
    assert "to: beta" in question
    why = alpha.call("why", "haiku.x").stdout
    assert "no acceptance criterion" in why
    assert "mailboxd edit haiku.x" in why
    assert alpha.phase("haiku.x") == "spec_draft"
    alpha.drop("no.md", message("answer", "haiku", "As you like.", sender="gamma", subtask_id="x"))
    alpha.drop("yes.md", message("answer", "haiku", "- three lines\n- a season", sender="beta", subtask_id="x"))
    alpha.until("haiku.x")
    assert spec(alpha, "haiku.x")["acceptance_criteria"] == ["three lines", "a season"]
    company.at_rest()


def test_an_answer_in_sections_counts_as_it_stands(found: Found) -> None:
    company = found({"alpha": WORK}, spec={"weak": "ask"})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku"))
    alpha.run()
    assert alpha.phase("haiku") == "spec_draft"
    answer = "## Goal\n\nA haiku about rain\n\n## Expected Output\n\nhaiku.txt\n"
    assert alpha.call("answer", "haiku", answer).returncode == 0
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    said = spec(alpha, "haiku")
    assert (said["goal"], said["acceptance_criteria"]) == ("A haiku about rain", ["haiku.txt"])
    company.at_rest()


def test_a_person_edits_the_spec_in_an_editor(found: Found) -> None:
    company = found({"alpha": WORK}, spec={"weak": "ask"})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku"))
    alpha.run()
    editor = alpha.root / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i "s/^## Acceptance Criteria/&\\n\\n- it rhymes with rain/" "$1"\n')
    editor.chmod(0o700)
    done = alpha.call("edit", "haiku", env={"EDITOR": str(editor), "VISUAL": ""})
    assert done.returncode == 0, done.stderr
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    assert spec(alpha, "haiku")["acceptance_criteria"] == ["it rhymes with rain"]
    written = [event for event in alpha.events("task.amended") if "rewrote" in event["data"]["note"]]
    assert [event["role"] for event in written] == ["operator"]
    late = alpha.call("edit", "haiku", "--file", "editor.sh")
    assert late.returncode != 0
    company.at_rest()


def test_sections_written_into_task_md_complete_the_spec(found: Found) -> None:
    company = found({"alpha": WORK}, spec={"weak": "ask"})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", weak("haiku"))
    eventually(lambda: alpha.phase("haiku") == "spec_draft")
    path = alpha.root / "tasks" / "haiku" / "task.md"
    eventually(path.exists)
    eventually(alpha.has_nothing_to_do)
    path.write_text(path.read_text() + "\n## Acceptance Criteria\n\n- haiku.txt has three lines\n")
    alpha.until("haiku")
    assert spec(alpha, "haiku")["acceptance_criteria"] == ["haiku.txt has three lines"]
    eventually(lambda: "- haiku.txt has three lines" in path.read_text())
    company.at_rest()


def test_a_review_of_the_spec_sends_it_back_to_the_draft_and_the_findings_with_it(found: Found) -> None:
    changes = "---\ntype: review\nverdict: changes_requested\n---\n## Findings\n\n- Which season?\n"
    approved = "---\ntype: review\nverdict: approved\n---\n## Summary\n\nClear.\n"
    rules = [
        {"match": {"kind": "draft", "text": "Which season"}, "reply": "## Acceptance Criteria\n\n- it names autumn\n"}
    ]
    critic = [
        {"match": {"kind": "review", "text": "autumn"}, "reply": approved},
        {"match": {"kind": "review"}, "reply": changes},
    ]
    company = found(
        {"alpha": {"rules": rules, **WORK}, "critic": {"rules": critic}},
        spec={"weak": "draft"},
        gates={"spec_review": "true", "reviewers": ["critic"]},
    )
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku", "haiku.txt has three lines"))
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    assert kinds(company) == ["review", "draft", "review", "work"]
    company.at_rest()


def test_a_peers_daemon_asks_about_the_spec_and_the_agent_that_gave_the_work_answers(found: Found) -> None:
    answers = {"rules": [{"match": {"kind": "answer"}, "reply": "- x.txt has two lines"}], **WORK}
    company = found({"alpha": {"mailbox": "true", **answers}, "beta": {"mailbox": "true", **WORK}}, synthesis="concat")
    alpha, beta = company["alpha"], company["beta"]
    beta.settle_in({"spec": {"weak": "ask"}})
    alpha.start(wait=False)
    beta.start(wait=False)
    alpha.drop("go.md", task("job", plan={"x": {"agent": "beta", "description": "X"}}))
    alpha.until("job")
    assert spec(beta, "job.x")["acceptance_criteria"] == ["x.txt has two lines"]
    assert len(beta.attempts("job.x")) == 1
    company.at_rest()


# ---------------------------------------------------------------- trouble


def test_a_daemon_that_is_killed_while_the_spec_is_drafted_goes_on_with_that_draft(found: Found) -> None:
    slow = {"rules": [{"match": {"kind": "draft"}, "delay": 1, "reply": DRAFT}], **WORK}
    company = found({"alpha": slow}, spec={"weak": "draft"})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", weak("haiku"))
    eventually(lambda: [entry for entry in company.entries() if entry["event"] == "begin"])
    alpha.kill()
    alpha.start()
    alpha.until("haiku")
    assert kinds(company) == ["draft", "work"]
    company.at_rest()
