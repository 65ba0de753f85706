"""task.md is what a person reads, and an input: dropped, edited, written by an agent (protocol section 3)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, message, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
SLOW = {"default": {"delay": 1.5, "reply": "Result of {title}."}}
TREE = {
    "one": {"agent": "beta", "description": "One"},
    "two": {"agent": "self", "description": "Two", "depends_on": ["one"]},
    "three": {"agent": "self", "description": "Three", "depends_on": ["one"]},
}


def dag(plan: dict[str, dict[str, str]]) -> str:
    return f"## DAG\n\n```yaml\n{yaml.safe_dump({'subtasks': plan}, sort_keys=False)}```\n"


def face(agent: Agent, local_id: str) -> Path:
    return agent.root / "tasks" / local_id / "task.md"


def shows(agent: Agent, local_id: str, *texts: str) -> str:
    """Wait until a task.md shows all these texts, and return it."""

    def read() -> str:
        path = face(agent, local_id)
        return path.read_text() if path.exists() else ""

    return eventually(lambda: text if all(part in (text := read()) for part in texts) else "", 20, read)


def edit(agent: Agent, local_id: str, *changes: tuple[str, str]) -> str:
    """Edit a task.md in place, as an editor does; the text that was written."""
    text = face(agent, local_id).read_text()
    for old, new in changes:
        assert old in text, f"{old!r} is not in\n{text}"
        text = text.replace(old, new, 1)
    face(agent, local_id).write_text(text)
    return text


def refused(agent: Agent) -> list[str]:
    return [event["data"]["why"] for event in agent.events("task.edit_refused")]


def kept(agent: Agent, local_id: str) -> list[Path]:
    return sorted((agent.root / "tasks" / local_id).glob("task.rejected-*.md"))


def test_a_task_md_that_a_person_drops_starts_the_task(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    (alpha.root / "tasks" / "hello").mkdir()
    face(alpha, "hello").write_text("# Say hello\n\n## Instructions\n\nTo everybody.\n")
    row = alpha.until("hello")
    assert (row["title"], row["sender"]) == ("Say hello", "operator")
    shows(alpha, "hello", "status: done", "Result of Say hello.", "To everybody.")
    company.at_rest()


@pytest.mark.soak
def test_a_task_md_with_a_dag_is_carried_out(found: Found) -> None:
    plan = {"book": {"agent": "beta", "description": "Book"}}
    plan["pack"] = {"agent": "self", "description": "Pack", "depends_on": "book"}
    text = f"# Task: Trip\n\n{dag(plan)}"
    company = found({"alpha": WORK, "beta": WORK}, synthesis="concat")
    alpha = company["alpha"]
    (alpha.root / "tasks" / "trip").mkdir()
    face(alpha, "trip").write_text(text)
    alpha.run()
    assert alpha.phases() == dict.fromkeys(("trip", "trip.book", "trip.pack"), "completed")
    shown = shows(alpha, "trip", "### book", "### pack", "Synthesised Output")
    assert "mode: coordinating" in shown
    company.at_rest()


def test_a_task_md_that_cannot_be_read_is_kept_beside_and_an_event_says_why(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    (alpha.root / "tasks" / "bad").mkdir()
    face(alpha, "bad").write_text("---\nfrom: a\nfrom: b\n---\n\n# Task\n")
    alpha.run()
    assert len(refused(alpha)) == 1
    assert alpha.phases() == {}
    assert [path.read_text() for path in kept(alpha, "bad")] == ["---\nfrom: a\nfrom: b\n---\n\n# Task\n"]


def test_an_agent_may_write_its_plan_into_its_task_md(found: Found) -> None:
    """It writes the file from memory, without the instructions: they are not lost by that."""
    text = "---\ntask_id: job\nmode: coordinating\n---\n\n# Task: job\n\n"
    text += dag({"part": {"agent": "beta", "description": "Part"}})
    rules = [
        {
            "match": {"kind": "work", "task": "job"},
            "writes": {"tasks/job/task.md": text},
            "reply": "The plan stands in task.md.",
        }
    ]
    company = found({"alpha": {"rules": rules, **WORK}, "beta": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.phases() == dict.fromkeys(("job", "job.part"), "completed"), refused(alpha)
    assert len(company.executions(kind="work")) == 1
    assert "Do job." in shows(alpha, "job", "status: done", "### part")
    company.at_rest()


@pytest.mark.soak
def test_an_agent_may_write_its_results_into_its_task_md(found: Found) -> None:
    text = "---\ntask_id: job\nstatus: done\n---\n\n# Task: job\n\n## Instructions\n\nDo job.\n\n"
    text += "## Results\n\nThe long result, in full.\n"
    rules = [{"writes": {"tasks/job/task.md": text}, "reply": "Done, see task.md."}]
    company = found({"alpha": {"rules": rules}})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert refused(alpha) == []
    assert alpha.task("job")["result"] == "The long result, in full."
    company.at_rest()


def test_legal_edits_of_a_running_task_are_taken(found: Found) -> None:
    """A child is added, a pending one is rewritten, another one is cancelled, and notes are written."""
    company = found({"alpha": WORK, "beta": SLOW}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=TREE))
    shows(alpha, "job", "status: dispatched")
    edit(
        alpha,
        "job",
        ("description: Two", "description: Two and a half"),
        (
            "    status: pending\n  three:",
            "    status: pending\n  four:\n    agent: beta\n    description: Four\n  three:",
        ),
    )
    eventually(lambda: alpha.phase("job.four"))
    text = shows(alpha, "job", "four:", "Two and a half", "rendered:")
    head, three, tail = text.partition("  three:")
    tail = tail.replace("status: pending", "status: cancelled", 1)
    face(alpha, "job").write_text(f"{head}{three}{tail}\n## Working Notes\n\nMind the gap.\n")
    eventually(lambda: alpha.phase("job.three") == "cancelled", 10, lambda: f"{refused(alpha)}\n{text}")
    alpha.until("job")
    assert refused(alpha) == []
    assert alpha.task("job.two")["result"] == "Result of Two and a half."
    assert alpha.task("job.four")["result"] == "Result of Four."
    assert "Mind the gap." in alpha.task("job")["notes"]
    told = alpha.call("log", "job", "--tree").stdout
    assert "job.two: edited in the parent's task.md" in told
    assert "its dependencies were edited" not in told
    assert "job.three: cancelled (cancelled by operator: as the parent's task.md says)" in told
    company.at_rest()


@pytest.mark.soak
def test_who_saves_twice_from_the_same_buffer_has_edited_once(found: Found) -> None:
    """The editor holds the text from before it was rendered again: a second save is the difference to the first."""
    company = found({"alpha": WORK, "beta": SLOW}, synthesis="concat", tasks={"render_seconds": 1})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=TREE))
    shows(alpha, "job", "status: dispatched")
    head, _, tail = face(alpha, "job").read_text().partition("  three:")
    cut = tail.index("```")
    first = f"{head}  four:\n    agent: beta\n    description: Four\n{tail[cut:]}"
    face(alpha, "job").write_text(first)
    eventually(lambda: alpha.phase("job.four") and alpha.phase("job.three") == "cancelled")
    face(alpha, "job").write_text(first + "\n## Working Notes\n\nSaved again.\n")
    eventually(lambda: alpha.task("job")["notes"] or refused(alpha))
    assert refused(alpha) == []
    assert alpha.task("job")["notes"] == "Saved again."
    alpha.until("job")
    company.at_rest()


def test_an_illegal_edit_changes_nothing_and_is_kept_beside(found: Found) -> None:
    company = found({"alpha": WORK, "beta": SLOW}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=TREE))
    shows(alpha, "job", "status: dispatched")
    written = edit(alpha, "job", ("status: dispatched", "status: done"))
    eventually(lambda: refused(alpha))
    assert [path.read_text() for path in kept(alpha, "job")] == [written]
    eventually(lambda: face(alpha, "job").read_text() != written)
    alpha.until("job")
    company.at_rest()


def test_an_edit_that_is_half_legal_changes_nothing_at_all(found: Found) -> None:
    """One child is cancelled, and another one is added in a cycle: neither happens."""
    company = found({"alpha": WORK, "beta": SLOW}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job", plan=TREE))
    text = shows(alpha, "job", "status: dispatched")
    loop = "".join(
        f"  {one}:\n    agent: self\n    description: X\n    depends_on: [{other}]\n" for one, other in ("ab", "ba")
    )
    head, _, tail = text.rpartition("status: pending\n")
    face(alpha, "job").write_text(f"{head}status: cancelled\n{loop}{tail}")
    (why,) = eventually(lambda: refused(alpha))
    assert "a" in why
    assert alpha.phase("job.three") != "cancelled"
    alpha.until("job")
    assert alpha.phase("job.three") == "completed"
    company.at_rest()


@pytest.mark.soak
def test_what_is_said_of_the_spec_while_it_is_executed_is_kept_beside_and_the_rest_is_taken(found: Found) -> None:
    company = found({"alpha": {"default": {"delay": 3, "reply": "Result."}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job") + "\n## Risks\n\nFew.\n")
    eventually(company.executions)
    shows(alpha, "job", "Few.", "status: in-progress")
    edit(alpha, "job", ("Few.", "Many."), ("## Working Notes\n", "## Working Notes\n\nA note.\n"))
    shows(alpha, "job", "Few.", "A note.")
    assert ["the rest is taken (spec-fixed)" in why for why in refused(alpha)] == [True]
    assert ["Many." in path.read_text() for path in kept(alpha, "job")] == [True]
    assert alpha.until("job")["result"] == "Result."
    company.at_rest()


def test_an_edit_of_what_the_task_waits_for_is_undone_and_reported(found: Found) -> None:
    company = found({"alpha": {"default": {"reply": "---\ntype: question\n---\n\nWhich?\n"}}})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    alpha.until("job", "executing")
    eventually(lambda: face(alpha, "job").exists() and "## Waiting For" in face(alpha, "job").read_text())
    edit(alpha, "job", ("asks operator", "asks nobody"))
    (why,) = eventually(lambda: refused(alpha))
    assert "Waiting For says what the task waits for" in why
    eventually(lambda: "asks operator" in face(alpha, "job").read_text())
    assert "asks nobody" in kept(alpha, "job")[0].read_text()
    edit(alpha, "job", ("asks operator", "asks nobody"), ("## Working Notes\n", "## Working Notes\n\nI know.\n"))
    eventually(lambda: "I know." in alpha.task("job")["notes"])
    assert len(refused(alpha)) == 2


def test_a_child_that_is_edited_into_a_cycle_is_refused(found: Found) -> None:
    company = found({"alpha": WORK, "beta": SLOW}, synthesis="concat")
    alpha = company["alpha"]
    alpha.start()
    alpha.drop(
        "go.md", task("job", plan={**TREE, "three": {"agent": "self", "description": "Three", "depends_on": ["two"]}})
    )
    text = shows(alpha, "job", "status: dispatched")
    head, middle, tail = text.partition("  two:")
    face(alpha, "job").write_text(head + middle + tail.replace("depends_on: [one]", "depends_on: [one, three]", 1))
    (why,) = eventually(lambda: refused(alpha))
    assert "two" in why
    alpha.until("job")
    company.at_rest()


def test_a_task_md_that_is_deleted_is_written_again(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.start()
    alpha.drop("go.md", task("job"))
    alpha.until("job")
    before = shows(alpha, "job", "status: done", "Result of job.")
    face(alpha, "job").unlink()
    assert shows(alpha, "job", "status: done") == before
    company.at_rest()


def test_an_edit_while_the_daemon_is_down_is_taken_by_the_next_one(found: Found) -> None:
    company = found({"alpha": WORK, "beta": {"mailbox": "true"}}, synthesis="concat")
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan=TREE))
    alpha.run()
    edit(alpha, "job", ("description: Two", "description: Two and a half"))
    alpha.run()
    assert alpha.task("job.two")["title"] == "Two and a half", refused(alpha)
    company.at_rest()


@pytest.mark.soak
def test_a_finished_task_cannot_be_rewritten(found: Found) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    alpha.drop("go.md", task("job"))
    alpha.run()
    edit(alpha, "job", ("Result of job.", "Something else."))
    alpha.run()
    assert alpha.task("job")["result"] == "Result of job."
    shows(alpha, "job", "status: done", "Result of job.")
    assert len(refused(alpha)) == len(kept(alpha, "job")) == 1
    company.at_rest()


def test_a_task_directory_that_is_a_link_leads_nowhere(found: Found, tmp_path: Path) -> None:
    company = found({"alpha": WORK})
    alpha = company["alpha"]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "task.md").write_text("# Steal\n")
    (alpha.root / "tasks" / "job").symlink_to(outside)
    alpha.drop("go.md", task("job"))
    alpha.run()
    assert alpha.phase("job") == "completed"
    assert (outside / "task.md").read_text() == "# Steal\n"
    assert [path.name for path in outside.iterdir()] == ["task.md"]


def test_what_a_person_answers_by_file_reaches_a_child(found: Found) -> None:
    """A question of a child goes to the operator, who answers with the ids that stand in it."""
    rules = [
        {"match": {"text": "Blue one"}, "reply": "Blue it is."},
        {"match": {"task": r"job\.x"}, "question": "Which?"},
    ]
    company = found({"alpha": {"rules": rules, **WORK}}, synthesis="concat")
    alpha = company["alpha"]
    alpha.drop("go.md", task("job", plan={"x": {"agent": "self", "description": "X"}}))
    alpha.run()
    assert len(alpha.sent("question")) == 1
    alpha.drop("a.md", message("answer", "job", "Blue one.", subtask_id="x"))
    alpha.run()
    assert "Blue it is." in alpha.task("job")["result"]
    company.at_rest()
