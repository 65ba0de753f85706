"""Events: what happens at once is one event, and events of version 1 are read as the present ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mailboxd.core.events import VERSION, Event, Kind, Role, passed, upcast
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.model import Policy
from mailboxd.core.outcomes import Failed, Results, Succeeded
from mailboxd.core.vocabulary import Gate, Turn, Verdict
from tests.core.desk import Desk

AT = "2026-01-01T00:00:00.000Z"


def events(desk: Desk, name: str = "t") -> list[Event]:
    return desk.events(name)


def ways(desk: Desk) -> list[tuple[str, list[str]]]:
    """Each event of the task with the phases that it passed."""
    return [(event.kind.value, [step["to"] for step in passed(event)]) for event in events(desk)]


def test_the_history_of_work_without_reviews_is_three_events() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Results("Done."))
    assert ways(desk) == [
        ("task.created", ["spec_review", "execution_ready"]),
        ("attempt.started", ["executing"]),
        ("attempt.ended", ["spec_gate", "quality_gate", "completed"]),
    ]
    created, _, ended = events(desk)
    assert [step["reason"] for step in passed(created)] == ["the spec is complete", "the spec_review is off"]
    assert ended.data["turn"]["outcome"] == "succeeded"
    assert [artifact["body"] for artifact in ended.data["artifacts"]] == ["Done."]


def test_a_phase_that_follows_from_an_agents_report_is_not_the_agents_doing() -> None:
    desk = Desk()
    desk.give()
    ended_turn = TurnEnded(Turn.WORK, desk.attempt().id, "main", Succeeded("Done."), Results("Done."))
    desk.handle("t", ended_turn, actor="main")
    ended = events(desk)[-1]
    assert ended.actor == "main"
    assert [step.get("by") for step in passed(ended)] == [None, "mailboxd", "mailboxd"]


def test_a_failed_attempt_is_one_event_with_its_reason() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Failed("overloaded"))
    ended = events(desk)[-1]
    assert (ended.kind, ended.data["attempt_changes"]["error_summary"]) == (Kind.ATTEMPT_ENDED, "overloaded")
    assert [step["to"] for step in passed(ended)] == ["execution_ready"]


def test_a_gate_that_is_on_has_events_of_its_own() -> None:
    desk = Desk()
    desk.give(policy=Policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("rex",)))
    desk.ends("t", Results("Done."))
    desk.reviews("t", "rex", Verdict.APPROVED)
    assert ways(desk)[2:] == [
        ("attempt.ended", ["spec_gate", "quality_gate"]),
        ("review.requested", []),
        ("turn.ended", []),
        ("review.appended", []),
        ("task.transitioned", ["completed"]),
    ]


def test_what_did_not_change_is_not_recorded() -> None:
    desk = Desk()
    desk.give()
    assert events(desk)[0].data["changes"].keys() == {"phase", "reason", "mending"}


V1: list[tuple[str, dict[str, Any], Kind, dict[str, Any]]] = [
    (
        "task.transitioned",
        {"at": AT, "from": "a", "to": "b", "trigger": "t", "reason": "r", "changes": {"phase": "b"}},
        Kind.TASK_TRANSITIONED,
        {"passed": [{"from": "a", "to": "b", "trigger": "t", "reason": "r"}], "changes": {"phase": "b"}},
    ),
    (
        "attempt.finished",
        {"at": AT, "attempt": "att_1", "ordinal": 1, "changes": {"status": "failed"}},
        Kind.ATTEMPT_ENDED,
        {"attempt": "att_1", "ordinal": 1, "attempt_changes": {"status": "failed"}},
    ),
    (
        "attempt.checkpoint",
        {"at": AT, "attempt": "att_1", "note": "n", "changes": {"silent": True}},
        Kind.ATTEMPT_CHECKPOINT,
        {"attempt": "att_1", "note": "n", "attempt_changes": {"silent": True}},
    ),
    (
        "turn.ended",
        {"at": AT, "turn": "work", "agent": "bob", "usage": {}},
        Kind.TURN_ENDED,
        {"turn": {"purpose": "work", "agent": "bob", "usage": {}}},
    ),
    ("artifact.recorded", {"at": AT, "artifact": {"id": "a"}}, Kind.ARTIFACT_RECORDED, {"artifacts": [{"id": "a"}]}),
    ("task.steered", {"at": AT, "by": "bob"}, Kind.STEERED, {"by": "bob"}),
]


@pytest.mark.parametrize(("kind", "data", "present", "parts"), V1, ids=[row[0] for row in V1])
def test_an_event_of_version_1_is_read_as_a_present_one(
    kind: str, data: dict[str, Any], present: Kind, parts: dict[str, Any]
) -> None:
    assert upcast(kind, data) == (present, {"at": AT, **parts})


def test_an_event_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match=f"version {VERSION + 1} .* newer mailboxd"):
        upcast("task.created", {"v": VERSION + 1})


def test_every_event_in_the_log_has_the_version() -> None:
    desk = Desk()
    desk.give()
    ((data,), *_) = desk.sql("SELECT data FROM v_events ORDER BY seq")
    assert json.loads(data)["v"] == VERSION
    assert all(event.role is Role.ORCHESTRATOR for event in events(desk))
