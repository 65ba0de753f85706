"""What the daemon says of what it records: trouble as warnings, what happens automatically only when asked."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.explain.describe import describe, summarize
from mailboxd.core.model import Policy
from mailboxd.core.outcomes import Question
from mailboxd.core.vocabulary import Gate, Verdict
from mailboxd.daemon.assemble import report_missing
from mailboxd.daemon.event_logging import TaskLabels, level_of
from mailboxd.formats.config import Config
from tests.core.desk import DONE, Desk


def to(*phases: str) -> dict[str, Any]:
    return {
        "passed": [{"from": a, "to": b, "trigger": "x", "reason": f"reason {b}"} for a, b in pairwise(phases)],
        "changes": {},
    }


@pytest.mark.parametrize(
    ("kind", "data", "level"),
    [
        (Kind.CIRCUIT_OPENED, {}, "WARNING"),
        (Kind.BREAKER_OPENED, {}, "WARNING"),
        (Kind.MESSAGE_REJECTED, {}, "WARNING"),
        (Kind.MESSAGE_UNDELIVERED, {}, "WARNING"),
        (Kind.ALARM, {}, "WARNING"),
        (Kind.ATTEMPT_ENDED, {"attempt_changes": {"status": "failed"}}, "WARNING"),
        (Kind.ATTEMPT_ENDED, {"attempt_changes": {"status": "aborted"}, **to("executing", "cancelled")}, "INFO"),
        (Kind.ATTEMPT_ENDED, {"attempt_changes": {"status": "succeeded"}, **to("executing", "completed")}, "INFO"),
        (Kind.CHECK_ENDED, {"check": {"verdict": "failed"}}, "WARNING"),
        (Kind.CHECK_ENDED, {"check": {"verdict": "passed"}}, "INFO"),
        (Kind.ACTION_ENDED, {"changes": {"state": "unknown"}}, "WARNING"),
        (Kind.TASK_AMENDED, {"changes": {"held": "over budget"}}, "WARNING"),
        (Kind.TASK_AMENDED, {"changes": {"notes": "x"}}, "DEBUG"),
        (Kind.TASK_TRANSITIONED, to("spec_draft", "spec_review", "execution_ready"), "DEBUG"),
        (Kind.TASK_TRANSITIONED, to("spec_gate", "quality_gate", "failed"), "WARNING"),
        (Kind.TASK_TRANSITIONED, to("quality_gate", "awaiting_approval"), "INFO"),
        (Kind.MESSAGE_FILED, {}, "DEBUG"),
    ],
)  # fmt: skip
def test_trouble_is_loud_and_routine_is_quiet(kind: Kind, data: dict[str, Any], level: str) -> None:
    assert logging.getLevelName(level_of(Event(kind, "t", data))) == level


def test_what_the_operator_orders_is_told() -> None:
    moved = Event(Kind.TASK_TRANSITIONED, "t", to("failed", "execution_ready"), Role.OPERATOR, "ann")
    assert level_of(moved) == 20


def test_gates_that_are_off_are_not_told_unless_asked() -> None:
    desk = Desk(Policy(max_attempts=1))
    desk.give("t")
    desk.ends("t", DONE)
    told = desk.events()
    short = [summarize(event, "t") for event in told if level_of(event) >= 20]
    assert any(line.endswith("; completed") for line in short), short
    assert not any("is off" in line or "->" in line for line in short), short
    assert any("is off" in describe(event, "t") for event in told)


def test_a_program_that_is_missing_is_an_error_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    harnesses = {"gem": {"argv": ["/bin/true"]}, "lost": {"argv": ["no-such-harness", "--acp"]}}
    config = {"agent": "alpha", "openclaw": {"command": ["/no/such/openclaw"]}, "acp": {"harnesses": harnesses}}
    report_missing(Config.model_validate(config))
    assert [(record.levelname, record.message.partition(" was ")[0]) for record in caplog.records] == [
        ("ERROR", "openclaw.command: '/no/such/openclaw'"),
        ("ERROR", "acp.harnesses.lost.argv: 'no-such-harness'"),
    ]


def test_the_line_of_a_turn_names_its_attempt() -> None:
    desk = Desk(Policy(gates=frozenset({Gate.QUALITY_GATE}), reviewers=("dora",)))
    desk.give("t")
    desk.ends("t", DONE)
    desk.reviews("t", "dora", Verdict.APPROVED)
    about, events = TaskLabels(desk.store), desk.events()
    turns = [event for event in events if "turn" in event.data]
    assert {event.kind for event in turns} == {Kind.ATTEMPT_ENDED, Kind.TURN_ENDED}
    assert {about.of(event)["attempt"] for event in turns} == {desk.attempt("t").id}


def test_a_question_is_told() -> None:
    desk = Desk()
    desk.give()
    desk.ends("t", Question("Which colour?"))
    about = TaskLabels(desk.store)
    asked = desk.events(kind=Kind.QUESTION_ASKED)
    assert [about.of(event)["task"] for event in asked] == ["t"]
