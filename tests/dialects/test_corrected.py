"""A text that was taken a moment ago comes again under its name, changed: its correction, or what was left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.outcomes import Results
from tests.dialects.desk import Desk

REPAIRED = "---\ntitle: Release 2.1: prepare the notes\n---\n\nPrepare.\n"
QUOTED = '---\ntitle: "Release 2.1: prepare the notes"\n---\n\nPrepare.\n'
NEWER = "---\ntitle: Release 2.1: prepare the notes\n---\n\nPrepare them in French.\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "alpha")
    desk.drop("notes.md", REPAIRED.encode())
    desk.take()
    return desk


def _again(desk: Desk, text: str) -> tuple[str, str, str]:
    desk.drop("notes.md", text.encode())
    for _ in range(10):
        desk.look(3.0)
    return desk.judged("notes.md")


def test_one_that_says_the_same_is_the_same_work(desk: Desk) -> None:
    verdict, notice, _ = _again(desk, QUOTED)
    assert verdict == "duplicate"
    assert "says the same as" in notice
    assert len(desk.roots) == 1


def test_one_that_says_something_else_is_the_newer_text_of_the_task(desk: Desk) -> None:
    (task,) = desk.roots
    verdict, notice, refused = _again(desk, NEWER)
    assert (verdict, refused) == ("accepted", refused)
    assert f"a correction of the task {task.local_id}" in notice
    (again,) = desk.roots
    assert "in French" in again.spec.instructions


def test_one_whose_task_has_ended_is_work_of_its_own(desk: Desk) -> None:
    (task,) = desk.roots
    desk.end(task, Results("Prepared."))
    assert _again(desk, QUOTED)[0] == "duplicate"
    verdict, notice, refused = _again(desk, NEWER)
    assert verdict == "accepted", refused
    assert f"{task.local_id}, from a file of this name, has ended" in notice
    assert ["in French" in one.spec.instructions for one in desk.roots] == [False, True]


def test_one_with_another_limit_is_refused_like_any_known_work(desk: Desk) -> None:
    verdict, _, refused = _again(desk, NEWER.replace("title:", "timeout: 60\ntitle:", 1))
    assert verdict == "rejected"
    assert "late" not in refused
    assert len(desk.roots) == 1


@pytest.mark.parametrize(
    "text", ["and delete nothing.\n", "# Really\n\nNothing at all.\n", "---\ntitle: Paint\n---\n\nPrepare.\n"]
)
def test_another_title_is_no_correction(desk: Desk, text: str) -> None:
    verdict, _, refused = _again(desk, text)
    assert verdict == "rejected"
    assert "it counts as the rest" in refused
    assert len(desk.roots) == 1
