"""`mailboxd edit`: shown, written from a file or an editor, refused when it is too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.errors import EXIT_BAD_MESSAGE, EXIT_NO
from tests.cli.stage import Stage

CRITERIA = "## Acceptance Criteria\n\n- two pages\n- a title\n"


def test_a_spec_is_shown_in_full(stage: Stage) -> None:
    stage.create("job")
    assert "job: " in stage.run("show", "job", "--spec").output
    found = stage.json("show", "job", "--spec")
    assert (found["task"], found["phase"], found["lacks"]) == ("job", "execution_ready", "")
    assert {"goal", "instructions", "acceptance_criteria", "checks"} <= set(found["spec"])


def test_a_spec_is_written_from_standard_input(stage: Stage) -> None:
    stage.create("job")
    done = stage.run("edit", "job", "--file", "-", text=CRITERIA)
    assert done.exit_code == 0, done.output
    assert stage.json("show", "job", "--spec")["spec"]["acceptance_criteria"] == ["two pages", "a title"]
    assert "the operator rewrote the spec" in stage.run("log", "job").output


def test_an_editor_that_changes_nothing_changes_nothing(stage: Stage) -> None:
    stage.create("job")
    before = stage.json("log", "job")
    assert "unchanged" in stage.run("edit", "job", env={"VISUAL": "true", "EDITOR": "true"}).output
    assert stage.json("log", "job") == before


def test_the_edited_file_becomes_the_spec(stage: Stage, tmp_path: Path) -> None:
    stage.create("job")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/^## Risks/&\\n\\nIt may rain/" "$1"\n')
    editor.chmod(0o700)
    done = stage.run("edit", "job", env={"VISUAL": str(editor)})
    assert done.exit_code == 0, done.output
    assert stage.json("show", "job", "--spec")["spec"]["risks"] == "It may rain"


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("## Checks\n\n- {id: a, file: ../x}\n", EXIT_BAD_MESSAGE, "`..`"),
        ("## Checks\n\n- {id: a, command: [make]}\n", EXIT_NO, "checks.commands"),
    ],
)
def test_a_text_that_is_no_spec_is_refused(stage: Stage, text: str, status: int, says: str) -> None:
    stage.create("job")
    done = stage.run("edit", "job", "--file", "-", text=text)
    assert (done.exit_code, says in done.output) == (status, True), done.output


def test_a_file_without_sections_adds_instructions(stage: Stage) -> None:
    stage.create("job")
    assert stage.run("edit", "job", "--file", "-", text="In two pages.\n").exit_code == 0
    assert stage.json("show", "job")["spec"]["instructions"].endswith("In two pages.")


def test_it_cannot_be_written_once_the_work_has_begun(stage: Stage) -> None:
    stage.create("job")
    stage.start()
    done = stage.run("edit", "job", "--file", "-", text=CRITERIA)
    assert (done.exit_code, "spec-fixed" in done.output) == (EXIT_NO, True), done.output
