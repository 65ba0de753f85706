"""The life of a task in a few lines, whatever happened to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mailboxd.core.explain.milestones import MOST, milestones
from mailboxd.ledger.reports import opened
from mailboxd.ledger.task_queries import details, questions, split
from tests.cli.stage import Stage, child


def _at(minute: int) -> str:
    return f"2026-11-21T12:{minute:02}:00.000Z"


def _task(**known: Any) -> Any:
    return {
        "created_at": _at(0), "updated_at": _at(59), "completed_at": None, "from": "operator", "phase": "executing",
        "error": "", "reason": "", "attempts": [], "reviews": [], "approvals": [], **known,
    }  # fmt: skip


def _attempt(ordinal: int, status: str, error: str = "") -> Mapping[str, Any]:
    return {
        "ordinal": ordinal, "executor": "writer", "status": status, "error_summary": error, "started_at": _at(ordinal),
        "finished_at": None if status == "running" else _at(ordinal + 1),
    }  # fmt: skip


def _texts(task: Any, asked: Any = ()) -> list[str]:
    return [milestone.text for milestone in milestones(task, {"children_total": 0, "children_since": None}, asked)]


def test_failures_in_a_row_are_one_line() -> None:
    attempts = [_attempt(1, "failed", "away"), _attempt(2, "failed", "still away"), _attempt(3, "running")]
    assert _texts(_task(attempts=attempts)) == [
        "Received from operator",
        "Attempts 1 to 2 by writer failed: still away",
        "writer at work, attempt 3",
    ]


def test_the_order_is_that_of_time() -> None:
    by = {"gate": "quality_gate", "reviewer": "critic", "given_at": None}
    reviews = [
        {**by, "verdict": "changes_requested", "summary": "No sum.", "at": _at(5)},
        {**by, "verdict": "approved", "summary": "Fine.", "at": _at(9)},
    ]
    task = _task(
        attempts=[_attempt(1, "succeeded"), _attempt(6, "succeeded")],
        reviews=reviews, phase="completed", completed_at=_at(10),
    )  # fmt: skip
    asked = {"at": _at(1), "to": "operator", "text": "Which quarter?\nmore", "by": None, "ended_at": None}
    assert _texts(task, [asked]) == [
        "Received from operator",
        "Asked operator: Which quarter?",
        "Quality gate: changes requested by critic: No sum.",
        "Attempts 1 to 6 by writer succeeded",
        "Quality gate: approved by critic",
        "Done",
    ]


def test_a_long_life_keeps_its_beginning_and_its_end() -> None:
    attempts = [_attempt(n, "failed" if n % 2 else "aborted") for n in range(1, 40)]
    told = _texts(_task(attempts=attempts, phase="failed", error="no more", completed_at=_at(58)))
    assert len(told) == MOST
    assert told[0] == "Received from operator"
    assert told[2] == "34 steps between are in the log"
    assert told[-1] == "Failed", "the page has the error by itself"


def test_the_error_of_the_task_is_not_repeated_by_its_attempts() -> None:
    task = _task(
        attempts=[_attempt(1, "failed", "the disk is full")], phase="failed", error="gives up: the disk is full"
    )
    assert _texts(task) == ["Received from operator", "Attempt 1 by writer failed", "Failed"]


def test_a_question_is_one_line_with_its_answer_whoever_was_asked() -> None:
    first = {"at": _at(1), "to": "alpha", "text": "Which quarter?", "by": None, "ended_at": None}
    again = {**first, "at": _at(2), "to": "operator"}
    assert _texts(_task(), [first, again]) == ["Received from operator", "Asked alpha, then operator: Which quarter?"]
    ended = {**again, "by": "franz", "ended_at": _at(3)}
    assert _texts(_task(), [first, ended])[1:] == ["Asked alpha, then operator: Which quarter? Answered by franz"]


def test_a_task_of_the_store_is_told(tmp_path: Any, stage: Stage) -> None:
    stage.create("q3", child("a"), child("b"))
    stage.start()
    with opened(stage.ws.database) as report:
        task_id = report.find("q3")
        told = milestones(details(report, task_id), split(report, task_id), questions(report, task_id, 4))
    assert [milestone.text for milestone in told] == [
        "Received from operator", "Split into 2 subtasks", "Subtasks under way",
    ]  # fmt: skip


def test_an_approval_that_became_void_has_not_expired() -> None:
    row = {
        "at": _at(1),
        "status": "expired",
        "void": True,
        "approved_by": "root",
        "resolved_by": "mailboxd",
        "resolved_at": _at(2),
        "finished_at": None,
        "requested_action": "write a",
        "note": "root is no longer an approver",
    }
    said = "Approved by root, and void since: write a: root is no longer an approver"
    assert said in _texts(_task(approvals=[row]))
