"""A refused task.md waits in the inbox, with reason and line, until it is corrected, removed or dismissed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mailboxd.core.times import to_epoch
from mailboxd.surfaces.web.page_models import PageModels
from mailboxd.surfaces.web.workspaces import FormActions, WebWorkspace, WebWorkspaces
from tests.cli.stage import Stage, child
from tests.cli.test_inbox import kinds, put

TWICE = "---\nfrom: a\nfrom: b\n---\n\n# Task\n"
CYCLE = "# Trip\n\n## DAG\n\n```yaml\nsubtasks:\n  a: {agent: self, description: A, depends_on: [a]}\n```\n"
SOUND = "# Trip\n\n## Instructions\n\nGo.\n"


def daemon(stage: Stage) -> None:
    stage.restart_with_task_files()
    stage.clock.advance(1)


def write(stage: Stage, text: str, name: str = "trip") -> Path:
    path = stage.ws.tasks / name / "task.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def kept(stage: Stage, name: str = "trip") -> list[str]:
    return sorted(path.read_text() for path in (stage.ws.tasks / name).glob("task.rejected-*.md"))


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        (TWICE, "tasks/trip/task.md:3", "from"),
        (CYCLE, "tasks/trip/task.md:7", "a"),
        ("# Trip\n\n## DAG\n\nno plan\n", "tasks/trip/task.md", ""),
        ("---\nbudget_usd: much\n---\n# Trip\n", "tasks/trip/task.md:2", "budget_usd"),
        ("---\nfrom: operator\nbudgt_usd: 2\n---\n# Trip\n", "tasks/trip/task.md:3", "Did you mean `budget_usd`?"),
        ("---\nreviewrs: beta\n---\n# Trip\n", "tasks/trip/task.md:2", "Did you mean `reviewers`?"),
    ],
)
def test_a_new_one_waits_with_its_line_and_reason(stage: Stage, text: str, place: str, why: str) -> None:
    path = write(stage, text)
    daemon(stage)
    item = stage.item("edit")
    assert item["text"].startswith(f"a new task is not taken: {place}")
    assert why in item["text"]
    assert item["command"].startswith(f"${{EDITOR:-vi}} {path}  # or mailboxd -w {stage.ws.root} inbox --dismiss trip")
    assert path.read_text() == text
    log = stage.run("log").stdout
    assert "tasks/trip/task.md is not taken, its text is saved as tasks/trip/task.rejected-" in log
    assert "reverted" not in log


def test_headers_that_are_not_settings_are_kept(stage: Stage) -> None:
    write(stage, "---\ncreated: 2026-11-01\nproject: q3\n---\n# Trip\n", "plain")
    write(stage, "---\nstatus: done\nbudgt_usd: 2\n---\n# Trip\n", "ended")
    daemon(stage)
    assert kinds(stage) == []


def test_a_restart_adds_neither_a_copy_nor_an_item_nor_an_event(stage: Stage) -> None:
    write(stage, TWICE)
    for _ in range(3):
        daemon(stage)
    assert kept(stage) == [TWICE]
    assert kinds(stage) == ["edit"]
    assert stage.run("log").stdout.count("is not taken") == 1
    write(stage, CYCLE)
    daemon(stage)
    write(stage, TWICE)
    daemon(stage)
    assert kept(stage) == sorted([TWICE, CYCLE]), "one of each content"
    assert kinds(stage) == ["edit"]


def test_the_printed_command_leads_to_a_correction_that_settles_it(stage: Stage) -> None:
    write(stage, TWICE)
    daemon(stage)
    fix = {**os.environ, "EDITOR": "sed -i 3d"}
    subprocess.run(stage.item("edit")["command"], shell=True, check=True, env=fix)
    daemon(stage)
    assert "edit" not in kinds(stage)
    assert stage.json("show", "trip")["from"] == "a"
    assert "is settled: a better one was taken" in stage.run("log").stdout


@pytest.mark.parametrize("running", [True, False])
def test_a_removed_one_is_settled(stage: Stage, running: bool) -> None:
    path = write(stage, TWICE)
    if running:
        with stage.task_files() as taskmd:
            taskmd.scan(to_epoch(stage.clock.now()))
            path.unlink()
            taskmd.scan(to_epoch(stage.clock.now()))
    else:
        daemon(stage)
        path.unlink()
        daemon(stage)
    assert kinds(stage) == []
    assert "is settled: removed" in stage.run("log").stdout


def test_a_dismissed_one_stays_away_until_its_text_changes(stage: Stage) -> None:
    write(stage, TWICE)
    daemon(stage)
    assert "dismissed by" in stage.run("inbox", "--dismiss", "trip").stdout
    daemon(stage)
    assert kinds(stage) == []
    write(stage, CYCLE)
    daemon(stage)
    assert kinds(stage) == ["edit"]
    assert FormActions(stage.clock).dismiss(WebWorkspace(stage.ws), "trip") == "dismissed"
    assert kinds(stage) == []


def test_what_is_no_file_waits_under_its_new_name(stage: Stage) -> None:
    (stage.ws.tasks / "trip").mkdir()
    (stage.ws.tasks / "trip" / "task.md").symlink_to("/etc/passwd")
    daemon(stage)
    item = stage.item("edit")
    assert "it is a symbolic link" in item["text"]
    assert "; it is now tasks/trip/task.rejected-" in item["text"]
    daemon(stage)
    assert kinds(stage) == ["edit"]
    assert stage.run("inbox", "--dismiss", "trip").exit_code == 0
    assert kinds(stage) == []


@pytest.mark.parametrize("ended", [False, True])
def test_a_refused_edit_waits_and_is_on_the_tasks_record(stage: Stage, ended: bool) -> None:
    stage.create("trip", child("a"), child("b"))
    stage.start()
    stage.end_turn("trip.a", "The outcome.")
    if ended:
        assert stage.run("cancel", "trip").exit_code == 0
    daemon(stage)
    path = stage.ws.tasks / "trip" / "task.md"
    edited = path.read_text().replace("description: Do a\n", "description: Do it otherwise\n", 1)
    assert edited != path.read_text()
    path.write_text(edited)
    daemon(stage)
    item = stage.item("edit")
    assert item["task"] == "trip"
    assert item["text"].startswith("an edit was refused: tasks/trip/task.md:")
    assert "; its text is kept as tasks/trip/task.rejected-" in item["text"]
    assert edited in kept(stage)
    assert "was reverted" in stage.run("log").stdout
    assert "an edit was refused" in stage.run("show", "trip").stdout
    page = PageModels(WebWorkspaces([stage.ws.root]), stage.clock).task(WebWorkspace(stage.ws), "trip")
    assert "an edit was refused" in page["doubts"][0]["text"]
    assert stage.run("inbox", "--dismiss", "trip").exit_code == 0
    assert "edit" not in kinds(stage)


def test_a_later_legal_edit_settles_a_refused_one(stage: Stage) -> None:
    stage.create("trip", child("a"), child("b"))
    stage.start()
    stage.end_turn("trip.a", "The outcome.")
    daemon(stage)
    path = stage.ws.tasks / "trip" / "task.md"
    path.write_text(path.read_text().replace("description: Do a\n", "description: Do it otherwise\n", 1))
    daemon(stage)
    assert kinds(stage) == ["edit"]
    path.write_text(path.read_text() + "\n## Working Notes\n\nQuickly.\n")
    daemon(stage)
    assert stage.json("show", "trip")["notes"] == "Quickly."
    assert kinds(stage) == []


def test_the_record_replays_to_the_same_items(stage: Stage) -> None:
    write(stage, TWICE)
    write(stage, CYCLE, "other")
    daemon(stage)
    stage.run("inbox", "--dismiss", "other")
    assert stage.run("db", "verify").exit_code == 0


@pytest.mark.parametrize("command", ["show", "why", "show --tree"])
def test_what_asks_for_the_task_of_a_refused_file_says_why_there_is_none(stage: Stage, command: str) -> None:
    write(stage, TWICE)
    daemon(stage)
    said = stage.run(*command.split(), "trip")
    assert said.exit_code == 69
    assert "there is no task trip, for tasks/trip/task.md is not taken: tasks/trip/task.md:3" in said.stderr
    assert f"`mailboxd -w {stage.ws.root} inbox` lists it" in said.stderr
    stage.run("inbox", "--dismiss", "trip")
    assert "it was dismissed" in stage.run(*command.split(), "trip").stderr


def test_why_names_a_refused_edit_until_it_is_dismissed(stage: Stage) -> None:
    stage.create("trip", child("a"), child("b"))
    stage.start()
    stage.end_turn("trip.a", "The outcome.")
    daemon(stage)
    path = stage.ws.tasks / "trip" / "task.md"
    path.write_text(path.read_text().replace("description: Do a\n", "description: Do it otherwise\n", 1))
    daemon(stage)
    assert "an edit was refused" in stage.run("why", "trip").stdout
    assert "kept as tasks/trip/task.rejected-" in stage.json("why", "trip")["notices"][-1]["text"]
    stage.run("inbox", "--dismiss", "trip")
    assert "an edit was refused" not in stage.run("why", "trip").stdout


def test_the_answers_of_a_task_are_in_its_file_and_are_read_from_a_new_one(stage: Stage) -> None:
    write(stage, "---\nchoices: yes, no\n---\n# Ready?\n", "mine")
    text = "---\ntype: task\ntask_id: theirs\nfrom: operator\nanswers: [yes, no]\n---\n\n# Task: Ready?\n\nLook.\n"
    assert put(stage, text, "theirs.md") == "accepted"
    daemon(stage)
    for name in ("mine", "theirs"):
        path = stage.ws.tasks / name / "task.md"
        assert 'answers: ["yes", "no"]\n' in path.read_text()
        assert stage.answers(name) == ("yes", "no")
        path.write_text(path.read_text().replace('answers: ["yes", "no"]\n', "answers: [now, later]\n"))
        daemon(stage)
        assert 'answers: ["yes", "no"]\n' in path.read_text()
    assert kinds(stage) == ["edit", "edit"]
    assert "the answers of an existing task cannot be changed here" in stage.json("inbox")[-1]["text"]
