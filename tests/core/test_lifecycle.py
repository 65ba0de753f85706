"""The table of protocol section 4, row by row, and that what it does not have is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mailboxd.core.inputs import Cancel, Remedy, Retry, Unblock
from mailboxd.core.lifecycle import STATE_TRIGGERED, TRANSITIONS, Trigger, move
from mailboxd.core.model import Spec, Task
from mailboxd.core.outcomes import Failed, Failure, Permanence, Results, Unknown
from mailboxd.core.vocabulary import TERMINAL, Gate, Phase, Verdict
from mailboxd.errors import Refused
from tests.core.desk import DONE, PUBLISH, Desk, child, plan, refused, with_policy

ALL_GATES = with_policy(gates=frozenset(Gate), reviewers=("rex",), same_reviewer=True, max_rework=1, max_attempts=2)


def desk_at(gate: Gate) -> Desk:
    desk = Desk(ALL_GATES)
    desk.give()
    if gate is not Gate.SPEC_REVIEW:
        desk.reviews("t", "rex", Verdict.APPROVED)
        desk.start()
        desk.ends("t", DONE, agent="main")
    if gate is Gate.QUALITY_GATE:
        desk.reviews("t", "rex", Verdict.APPROVED)
    assert desk.phase().value == gate.value
    return desk


def reviewed(gate: Gate, verdict: Verdict) -> Desk:
    desk = desk_at(gate)
    desk.reviews("t", "rex", verdict)
    return desk


def reviewed_until_rework_is_used_up(gate: Gate) -> Desk:
    desk = reviewed(gate, Verdict.CHANGES_REQUESTED)
    desk.start()
    desk.ends("t", DONE, agent="main")
    if gate is Gate.QUALITY_GATE:
        desk.reviews("t", "rex", Verdict.APPROVED)
    desk.reviews("t", "rex", Verdict.CHANGES_REQUESTED)
    return desk


def worked(*ends: Failed | Failure | Results | Unknown) -> Desk:
    desk = Desk(with_policy(max_attempts=2))
    desk.give()
    for end in ends:
        desk.ends("t", end)
        desk.wait(1000)
    return desk


def unblocked(remedy: Remedy) -> Desk:
    desk = reviewed(Gate.SPEC_GATE, Verdict.BLOCKED)
    desk.command("t", Unblock(remedy))
    return desk


def with_a_failed_child() -> Desk:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("a")))
    desk.ends("t.a", Failure("no"))
    return desk


def incomplete() -> Desk:
    desk = Desk()
    desk.give(spec=Spec(goal=""))
    return desk


def with_planned_actions() -> Desk:
    return worked(Results("done", planned_actions=(PUBLISH,)))


SCENES: dict[str, tuple[Callable[[], Desk], str]] = {
    "an incomplete spec stays a draft": (incomplete, ""),
    "the spec is complete": (lambda: desk_at(Gate.SPEC_REVIEW), "spec_draft spec_review"),
    "the spec review asks for changes": (
        lambda: reviewed(Gate.SPEC_REVIEW, Verdict.CHANGES_REQUESTED),
        "spec_review spec_draft",
    ),
    "the spec review approves": (lambda: reviewed(Gate.SPEC_REVIEW, Verdict.APPROVED), "spec_review execution_ready"),
    "the spec review is off": (worked, "spec_draft spec_review execution_ready executing"),
    "an attempt starts": (worked, "execution_ready executing"),
    "the attempt failed and attempts are left": (lambda: worked(Failed("no")), "executing execution_ready executing"),
    "the attempt succeeded": (lambda: desk_at(Gate.SPEC_GATE), "executing spec_gate"),
    "a failure that a retry cannot fix": (lambda: worked(Failed("no", Permanence.PERMANENT)), "executing failed"),
    "a child failed": (with_a_failed_child, "executing failed"),
    "attempts used up": (lambda: worked(Failed("no"), Failed("no")), "executing circuit_open"),
    "outcome unknown and not idempotent": (
        lambda: worked(Unknown("lost"), Unknown("lost", looked_up=True)),
        "executing circuit_open",
    ),
    "the spec gate approves": (lambda: desk_at(Gate.QUALITY_GATE), "spec_gate quality_gate"),
    "gates that are off are passed through": (lambda: worked(DONE), "executing spec_gate quality_gate completed"),
    "the spec gate asks for changes": (
        lambda: reviewed(Gate.SPEC_GATE, Verdict.CHANGES_REQUESTED),
        "spec_gate execution_ready",
    ),
    "the spec gate blocks": (lambda: reviewed(Gate.SPEC_GATE, Verdict.BLOCKED), "spec_gate circuit_open"),
    "the quality gate blocks": (lambda: reviewed(Gate.QUALITY_GATE, Verdict.BLOCKED), "quality_gate circuit_open"),
    "rework is used up at the spec gate": (
        lambda: reviewed_until_rework_is_used_up(Gate.SPEC_GATE),
        "spec_gate circuit_open",
    ),
    "rework is used up at the quality gate": (
        lambda: reviewed_until_rework_is_used_up(Gate.QUALITY_GATE),
        "quality_gate circuit_open",
    ),
    "the quality gate approves": (lambda: reviewed(Gate.QUALITY_GATE, Verdict.APPROVED), "quality_gate completed"),
    "the quality gate asks for changes": (
        lambda: reviewed(Gate.QUALITY_GATE, Verdict.CHANGES_REQUESTED),
        "quality_gate execution_ready",
    ),
    "approved, and planned actions exist": (with_planned_actions, "quality_gate awaiting_approval"),
    "the operator unblocks: retry": (lambda: unblocked(Remedy.RETRY), "circuit_open execution_ready"),
    "the operator unblocks: accept the last good artifact": (
        lambda: unblocked(Remedy.ACCEPT),
        "circuit_open completed",
    ),
    "the operator unblocks: give up": (lambda: unblocked(Remedy.FAIL), "circuit_open failed"),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_row_of_the_table_can_be_walked(name: str) -> None:
    scene, path = SCENES[name]
    desk = scene()
    if path:
        # what follows by itself (the next attempt starts) may stand behind it
        assert f" {' '.join(desk.path('t'))} ".count(f" {path} ") == 1
    else:
        assert desk.phase() is Phase.SPEC_DRAFT


# From the protocol, row by row; the rows of approvals are walked where approvals are tested.
PROTOCOL = """
spec_draft -> spec_review
spec_review -> spec_draft execution_ready circuit_open
execution_ready -> executing spec_draft
executing -> execution_ready spec_gate failed circuit_open
spec_gate -> quality_gate execution_ready circuit_open
quality_gate -> completed execution_ready awaiting_approval circuit_open
awaiting_approval -> ready_to_resume execution_ready failed circuit_open
ready_to_resume -> completed circuit_open awaiting_approval
circuit_open -> execution_ready completed failed executing
failed -> execution_ready spec_draft
completed -> execution_ready
cancelled -> execution_ready spec_draft
"""


def test_the_table_has_the_rows_of_the_protocol_and_no_other() -> None:
    expected = {
        (source, target)
        for line in PROTOCOL.strip().splitlines()
        for source, targets in [line.split(" -> ")]
        for target in targets.split()
    }
    expected |= {(phase.value, "cancelled") for phase in Phase if phase not in TERMINAL}
    expected |= {(phase.value, "failed") for phase in Phase if phase not in {*TERMINAL, Phase.READY_TO_RESUME}}
    taken_over = ("spec_draft", "spec_review", "execution_ready", "spec_gate", "awaiting_approval")
    expected |= {(phase, "completed") for phase in taken_over}
    assert {(source.value, target.value) for (source, _), target in TRANSITIONS.items()} == expected


def test_ended_work_is_left_only_by_an_explicit_order() -> None:
    triggers = {trigger for (phase, trigger) in TRANSITIONS if phase in TERMINAL}
    assert triggers == {Trigger.OPERATOR_RETRY, Trigger.REOPENED, Trigger.REDISPATCHED, Trigger.RENEWED}


def task_in(phase: Phase) -> Task:
    return replace(Desk().give(), phase=phase)


@pytest.mark.parametrize("phase", Phase)
def test_where_the_table_has_no_row_the_trigger_is_refused(phase: Phase) -> None:
    task = task_in(phase)
    for trigger in Trigger:
        if (phase, trigger) not in TRANSITIONS:
            with pytest.raises(Refused, match="does not apply") as caught:
                move(task, trigger, "2026-01-01T00:00:00.000Z", "because")
            assert caught.value.rule == "illegal-transition"


def test_every_state_triggered_row_is_a_row_of_the_table() -> None:
    assert [row for row in STATE_TRIGGERED if (row.phase, row.trigger) not in TRANSITIONS] == []


@pytest.mark.parametrize(
    ("order", "rule"),
    [(Unblock(Remedy.RETRY), "not-blocked"), (Retry(), "not-failed")],
)
def test_an_order_that_does_not_apply_is_refused_and_nothing_happens(order: Retry | Unblock, rule: str) -> None:
    desk = worked()
    with refused(desk, rule):
        desk.command("t", order)


def test_only_what_has_stopped_can_be_resolved_and_the_refusal_says_what_it_does_instead() -> None:
    for desk, says in (
        (with_planned_actions(), "waits for your approval"),
        (worked(), "has not ended: it is under way"),
        (worked(DONE), "is done: there is nothing to resolve"),
    ):
        with pytest.raises(Refused, match=says) as caught:
            desk.command("t", Unblock(Remedy.FAIL))
        assert "`mailboxd " in caught.value.hint


def test_accepting_without_an_artifact_is_refused() -> None:
    desk = worked(Failed("no"), Failed("no"))
    with refused(desk, "no-artifact"):
        desk.command("t", Unblock(Remedy.ACCEPT))


@pytest.mark.parametrize("end", [DONE, Failed("no", Permanence.PERMANENT)])
def test_ended_work_cannot_be_cancelled(end: Results | Failed) -> None:
    desk = worked(end)
    with refused(desk, "ended"):
        desk.command("t", Cancel("operator"))


def test_a_gate_that_is_off_is_still_a_recorded_transition_with_that_reason() -> None:
    desk = worked(DONE)
    assert desk.task("t").reason == "the quality_gate is off"
    assert desk.path() == (
        ["spec_draft", "spec_review", "execution_ready", "executing", "spec_gate", "quality_gate", "completed"]
    )


def test_an_open_circuit_is_held_for_its_time_and_then_fails_upward() -> None:
    desk = reviewed(Gate.SPEC_GATE, Verdict.BLOCKED)
    desk.wait(ALL_GATES.circuit_hold - 1)
    assert desk.phase() is Phase.CIRCUIT_OPEN
    desk.wait(1)
    assert desk.phase() is Phase.FAILED
    assert "not decided in time" in desk.task("t").reason


def test_the_operator_retries_ended_work_with_a_fresh_budget() -> None:
    desk = worked(Failed("no"), Failed("no"))
    desk.command("t", Unblock(Remedy.RETRY, "read the manual"))
    desk.start()
    task = desk.task("t")
    assert (task.phase, task.failures, task.attempt) == (Phase.EXECUTING, 0, 3)
    assert "read the manual" in task.findings


def test_a_cancel_is_final() -> None:
    desk = worked()
    desk.command("t", Cancel("operator"))
    with refused(desk, "cancelled"):
        desk.command("t", Retry())
