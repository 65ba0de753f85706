"""A text that was taken a moment ago comes again under its name, changed: its correction, or what was left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.inputs import Cancel
from mailboxd.core.model import Policy
from mailboxd.core.outcomes import Results
from mailboxd.core.vocabulary import Gate, Phase
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


@pytest.mark.parametrize("header", ["task_id: notes-2", "message_id: m-2", "task_id: notes-2\nsubtask_id: s"])
def test_one_with_an_id_of_its_own_is_no_correction(desk: Desk, header: str) -> None:
    (task,) = desk.roots
    verdict, notice, refused = _again(desk, NEWER.replace("title:", f"{header}\ntitle:", 1))
    assert "correction" not in notice, (verdict, refused)
    assert "in French" not in next(one.spec.instructions for one in desk.roots if one.id == task.id)


def test_one_of_a_task_that_was_cancelled_is_none(desk: Desk) -> None:
    (task,) = desk.roots
    desk.command(task, Cancel("ann"))
    assert _again(desk, QUOTED)[0] == "rejected"


def test_one_whose_task_waits_for_a_decision_about_its_result_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "alpha", Policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("eve",)))
    desk.drop("notes.md", REPAIRED.encode())
    desk.take()
    (task,) = desk.roots
    desk.end(task, Results("Prepared."))
    assert desk.roots[0].phase is Phase.QUALITY_GATE
    verdict, _, refused = _again(desk, NEWER)
    assert verdict == "rejected"
    assert "it counts as the rest" in refused
    assert "in French" not in desk.roots[0].spec.instructions


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
