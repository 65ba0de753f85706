"""A person pauses a task and all below it: running turns finish, no other starts, until it is resumed."""

from __future__ import annotations

import pytest

from mailboxd.core.events import Kind
from mailboxd.core.inputs import Cancel, Pause, Remedy, Resume, Retry, Unblock
from mailboxd.core.model import Policy
from mailboxd.core.operator_orders import Situation, sensible
from mailboxd.core.outcomes import Failed
from mailboxd.core.vocabulary import Phase
from tests.core.desk import DONE, Desk, child, plan, refused, with_policy

HELD = "paused by operator: until Monday"


def coordinating() -> Desk:
    """A task whose first subtask runs; the second waits for it."""
    desk = Desk()
    desk.give(plan=plan(child("a"), child("b", "self", "a")))
    return desk


def test_a_running_turn_finishes_and_nothing_below_starts_until_it_is_resumed() -> None:
    desk = coordinating()
    desk.command("t", Pause("until Monday"))
    assert desk.task("t").held == HELD
    desk.ends("t.a", DONE)
    desk.start()
    assert (desk.task("t.a").phase, desk.task("t.b").phase) == (Phase.COMPLETED, Phase.EXECUTION_READY)
    desk.command("t", Resume("they are back"))
    desk.start()
    assert desk.task("t").held == ""
    assert desk.task("t.b").phase is Phase.EXECUTING


def test_it_is_an_event_with_the_note_and_the_persons_name() -> None:
    desk = coordinating()
    (event,) = desk.command("t", Pause("until Monday"))
    assert (event.kind, event.data["note"], event.role, event.actor) == (
        Kind.TASK_AMENDED,
        HELD,
        "operator",
        "operator",
    )


def test_only_resume_ends_a_pause() -> None:
    desk = coordinating()
    desk.command("t.b", Pause())
    assert desk.task("t.b").held == "paused by operator"
    for order in (Unblock(Remedy.RETRY, budget_usd=9.0), Unblock(Remedy.FAIL), Pause("again")):
        with refused(desk, "held"):
            desk.command("t.b", order)
    with refused(desk, "not-failed"):
        desk.command("t.b", Retry())
    desk.look_again()
    assert desk.task("t.b").held == "paused by operator"


def test_over_budget_it_is_held_again_when_it_is_resumed() -> None:
    desk = Desk(Policy(budget_tokens=0))
    desk.give()
    assert desk.task("t").held.startswith("over budget")
    with refused(desk, "held"):
        desk.command("t", Pause())
    with refused(desk, "not-paused"):
        desk.command("t", Resume())


def test_an_ended_task_is_not_paused_and_a_paused_one_can_be_cancelled() -> None:
    desk = coordinating()
    desk.command("t", Pause())
    desk.command("t", Cancel("operator"))
    assert (desk.task("t").phase, desk.task("t").held) == (Phase.CANCELLED, "")
    with refused(desk, "ended"):
        desk.command("t", Pause())


def test_a_paused_task_whose_circuit_is_open_is_retried_and_stays_paused() -> None:
    desk = Desk(with_policy(max_attempts=2))
    desk.give()
    desk.ends("t", Failed("overloaded"))
    desk.wait(1000)
    desk.command("t", Pause())
    desk.ends("t", Failed("overloaded"))
    assert desk.task("t").phase is Phase.CIRCUIT_OPEN
    desk.command("t", Unblock(Remedy.RETRY))
    assert desk.task("t").held == "paused by operator"


@pytest.mark.parametrize(
    ("situation", "offered"),
    [
        (Situation(Phase.EXECUTING), ["pause", "cancel"]),
        (Situation(Phase.EXECUTING, HELD), ["resume", "cancel"]),
        (Situation(Phase.EXECUTING, "over budget"), ["unblock-retry", "cancel"]),
        (Situation(Phase.EXECUTING, asks=True), ["answer", "cancel"]),
        (Situation(Phase.CIRCUIT_OPEN), ["unblock-retry", "unblock-fail", "cancel"]),
        (
            Situation(Phase.CIRCUIT_OPEN, has_result=True),
            ["unblock-retry", "unblock-accept", "unblock-fail", "cancel"],
        ),
    ],
)
def test_what_is_offered(situation: Situation, offered: list[str]) -> None:
    assert [order.name for order in sensible(situation)] == offered
