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


@pytest.mark.parametrize("criterion", ["", "works well", "good quality, etc."])
def test_a_weak_spec_is_drafted_in_one_turn_and_then_the_work_begins(found: Found, criterion: str) -> None:
    company = found({"alpha": DRAFTS}, spec={"weak": "draft"})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku", criterion))
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    assert kinds(company) == ["draft", "work"]
    assert spec(alpha, "haiku")["acceptance_criteria"] == ["haiku.txt has 17 syllables"]
    company.at_rest()


def test_a_complete_spec_costs_no_turn(found: Found) -> None:
    company = found({"alpha": DRAFTS}, spec={"weak": "draft"})
    company["alpha"].drop("go.md", weak("haiku", "haiku.txt has three lines"))
    company["alpha"].run()
    assert kinds(company) == ["work"]
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


def test_reply_skip_lets_the_work_begin_with_what_is_derived(found: Found) -> None:
    company = found({"alpha": WORK}, spec={"weak": "ask"})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku"))
    alpha.run()
    alpha.drop("skip.md", message("answer", "haiku", "REPLY_SKIP"))
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    company.at_rest()


def test_after_five_questions_it_is_held_and_a_person_writes_it(found: Found) -> None:
    company = found({"alpha": WORK}, spec={"weak": "ask"})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", weak("haiku"))
    for turn in range(1, 6):
        eventually(lambda: len(alpha.sent("question")) == turn)  # noqa: B023
        alpha.drop(f"{turn}.md", message("answer", "haiku", "- good quality" + "!" * turn))  # other bytes each time
    eventually(lambda: "good quality" in alpha.task("haiku")["reason"])
    eventually(alpha.has_nothing_to_do)
    assert len(alpha.sent("question")) == 5
    refused = alpha.call("answer", "haiku", "fine")
    assert refused.returncode == 1
    (alpha.root / "spec.md").write_text("## Acceptance Criteria\n\n- haiku.txt exists\n")
    assert alpha.call("edit", "haiku", "--file", "spec.md").returncode == 0
    alpha.until("haiku")
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


def test_the_spec_of_work_that_has_begun_can_no_longer_change(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku"))
    alpha.run()
    (alpha.root / "spec.md").write_text("## Acceptance Criteria\n\n- haiku.txt exists\n")
    refused = alpha.call("edit", "haiku", "--file", "spec.md")
    assert (refused.returncode, "spec-fixed" in refused.stderr) == (1, True)
    (alpha.root / "spec.md").write_text("just words")
    refused = alpha.call("edit", "haiku", "--file", "spec.md")
    assert (refused.returncode, "takes no new instructions" in refused.stderr) == (1, True)
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
    changes = "---\ntype: review\nverdict: changes_requested\n---\n## Summary\n\nWhich season?\n"
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


def test_a_spec_that_a_review_sent_back_is_held_for_its_sender_where_nobody_drafts(found: Found) -> None:
    changes = "---\ntype: review\nverdict: changes_requested\n---\n## Summary\n\nWhich season?\n"
    company = found(
        {
            "alpha": WORK,
            "critic": {
                "rules": [
                    {"match": "autumn", "reply": changes.replace("changes_requested", "approved")},
                    {"reply": changes},
                ]
            },
        },
        gates={"spec_review": "true", "reviewers": ["critic"]},
    )
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku"))
    alpha.run()
    assert alpha.phase("haiku") == "spec_draft"
    assert "Which season?" in alpha.sent("question")[0]
    alpha.drop("answer.md", message("answer", "haiku", "- it names autumn"))
    alpha.run()
    assert alpha.phase("haiku") == "completed"
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


def test_a_draft_that_fails_is_tried_again_and_then_its_sender_is_asked(found: Found) -> None:
    failing = {"rules": [{"match": {"kind": "draft"}, "fail": {"kind": "transient", "error": "overloaded"}}], **WORK}
    company = found({"alpha": failing}, spec={"weak": "draft"})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku"))
    alpha.run()
    assert alpha.phase("haiku") == "spec_draft"
    assert len([entry for entry in company.entries() if entry["event"] == "begin"]) == 3
    assert len(alpha.sent("question")) == 1
    assert alpha.attempts("haiku") == []
    company.at_rest()


def test_a_draft_whose_answer_is_lost_is_looked_up_and_not_repeated(found: Found) -> None:
    lossy = {"rules": [{"match": {"kind": "draft"}, "lose_reply": "true", "reply": DRAFT}], **WORK}
    company = found({"alpha": lossy}, spec={"weak": "draft"})
    alpha = company["alpha"]
    alpha.drop("go.md", weak("haiku"))
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    assert kinds(company) == ["draft", "work"]
    company.at_rest()


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


def test_a_daemon_that_is_killed_while_a_question_is_open_takes_the_answer_afterwards(found: Found) -> None:
    company = found({"alpha": WORK}, spec={"weak": "ask"})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", weak("haiku"))
    eventually(lambda: alpha.sent("question"))
    alpha.kill()
    alpha.drop("answer.md", message("answer", "haiku", "- three lines"))
    alpha.run()
    assert alpha.phase("haiku") == "completed"
    assert len(alpha.sent("question")) == 1
    company.at_rest()


def test_a_child_that_had_not_started_comes_back_as_a_draft_of_its_spec(found: Found) -> None:
    """Cancelled with its parent before its spec was complete: a retry must not let it execute without one."""
    fails = {
        "rules": [{"match": {"task": "job.bad"}, "fail": {"kind": "permanent", "error": "no"}, "times": "1"}],
        **WORK,
    }
    company = found({"alpha": fails}, spec={"weak": "ask"}, synthesis="concat")
    alpha = company["alpha"]
    plan = {
        "bad": {"agent": "self", "description": "Bad", "expected_output": "bad.txt"},
        "weak": {"agent": "self", "description": "Weak"},
    }
    alpha.start()
    alpha.drop("go.md", task("job", plan=plan))
    eventually(lambda: alpha.phase("job") == "failed")
    eventually(lambda: alpha.phase("job.weak") == "cancelled")
    assert alpha.call("retry", "job").returncode == 0
    eventually(lambda: alpha.phase("job.bad") == "completed")
    assert alpha.phase("job.weak") == "spec_draft"
    assert alpha.call("answer", "job.weak", "weak.txt has one line").returncode == 0
    alpha.until("job")
    company.at_rest()
