"""The breaker of an agent, as a table, and what counts as a fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mailboxd.core.breaker import (
    TABLE,
    Breaker,
    BreakerState,
    Signal,
    after_turn,
    is_fault,
    ordered,
    pause_over,
    trouble,
    turns_at_once,
)
from mailboxd.core.events import Role
from mailboxd.core.model import BreakerRules
from mailboxd.core.outcomes import Aborted, Failed, Outage, Outcome, Permanence, Results, Succeeded, Unknown
from mailboxd.core.times import plus
from tests.core.desk import Desk, with_policy

NOW = "2026-01-01T00:00:00.000Z"
RULES = BreakerRules(failures=3, pause=10.0, longest=35.0)
LOCKED = Failed("Agent database execution admission is closed", started=False, outage=Outage.LOCKED_OUT)
CLOSED, OPEN, HALF = (Breaker("bob", state) for state in BreakerState)


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (Failed("overloaded"), True),
        (Failed("timed out"), True),
        (Failed("connection refused", started=False), True),
        (Failed("unauthorized", Permanence.PERMANENT, started=False), True),
        (Failed("HTTP 401", Permanence.PERMANENT, retry_after=60), True),
        (Failed("HTTP 400", Permanence.PERMANENT), False),
        (Failed("context_overflow", Permanence.PERMANENT), False),
        (Failed("locked out", started=False, outage=Outage.LOCKED_OUT), False),
        (Succeeded("done"), False),
        (Aborted("SIGTERM"), False),
        (Unknown("lost"), False),
    ],
)
def test_a_fault_is_the_agents_or_its_providers(outcome: Outcome, fault: bool) -> None:
    assert is_fault(outcome) is fault


@pytest.mark.parametrize(
    ("breaker", "outcome", "state", "pause"),
    [
        (replace(CLOSED, failures=2), Failed("down"), None, None),
        (replace(CLOSED, failures=3), Failed("down"), "open", 10.0),
        (replace(CLOSED, failures=3), Failed("down", Permanence.PERMANENT), None, None),
        (replace(CLOSED, failures=1), Failed("429", retry_after=30), "open", 30.0),
        (replace(CLOSED, failures=3), Failed("429", retry_after=5), "open", 10.0),
        (replace(CLOSED, failures=1), Succeeded("ok"), None, None),
        (replace(OPEN, failures=4, times=1), Failed("down"), None, None),
        (replace(OPEN, failures=4, times=1), Succeeded("ok"), "closed", None),
        (replace(OPEN, failures=4, times=1), Unknown("lost"), None, None),
        (replace(HALF, failures=4, times=1), Failed("down"), "open", 20.0),
        (replace(HALF, failures=9, times=5), Failed("down"), "open", 35.0),
        (replace(HALF, failures=9, times=5), Failed("down", retry_after=90), "open", 90.0),
        (replace(HALF, failures=4, times=1), Succeeded("ok"), "closed", None),
        (replace(HALF, failures=4, times=1), Aborted("SIGTERM"), None, None),
        (replace(HALF, failures=4, times=1), Failed("HTTP 400", Permanence.PERMANENT), None, None),
        (replace(CLOSED, failures=1), LOCKED, "open", 10.0),
        (replace(HALF, failures=9, times=5), LOCKED, "open", 10.0),
        (replace(OPEN, failures=9, times=5), LOCKED, None, None),
    ],
)
def test_what_the_end_of_a_turn_does(
    breaker: Breaker, outcome: Outcome, state: str | None, pause: float | None
) -> None:
    event = after_turn(breaker, outcome, NOW, RULES)
    assert (event and event.data["state"]) == state
    if event is not None:
        assert event.data["until"] == (None if pause is None else plus(NOW, pause))
        assert event.data["times"] == (breaker.times + 1 if state == "open" else 0)


def test_it_can_be_switched_off() -> None:
    off = BreakerRules(failures=0)
    assert after_turn(replace(CLOSED, failures=99), Failed("down", retry_after=9), NOW, off) is None


def test_time_lets_one_turn_through_and_a_person_closes_it() -> None:
    later = replace(OPEN, until=plus(NOW, 1), times=3)
    assert pause_over(later, NOW) is None
    half = pause_over(later, plus(NOW, 1))
    assert half is not None
    assert (half.data["state"], half.data["times"], half.data["until"]) == ("half_open", 3, None)
    by_hand = ordered(later, NOW, "ann")
    assert by_hand is not None
    assert (by_hand.data["state"], by_hand.role, by_hand.actor) == ("closed", Role.OPERATOR, "ann")
    assert ordered(CLOSED, NOW, "ann") is None


def test_an_agent_that_is_locked_out_says_what_to_do_until_a_turn_goes_through() -> None:
    event = after_turn(replace(CLOSED, failures=1), LOCKED, NOW, RULES)
    assert event is not None
    opened = replace(OPEN, reason=event.data["reason"], until=event.data["until"], times=1)
    assert opened.is_locked_out
    half = pause_over(opened, plus(NOW, 60))
    assert half is not None
    assert replace(HALF, reason=half.data["reason"]).is_locked_out
    why, lasts = trouble([replace(OPEN, agent="al", reason="3 faults in a row"), opened])
    assert lasts
    assert why.startswith("bob gets no turns: its gateway refuses every turn")
    assert "openclaw gateway restart" in why
    assert trouble([replace(OPEN, agent="al", reason="3 faults in a row")]) == (
        "al gets no turns: 3 faults in a row", False,
    )  # fmt: skip
    assert trouble([]) == ("", False)


@pytest.mark.parametrize("state", BreakerState)
def test_where_the_table_has_no_row_nothing_happens(state: BreakerState) -> None:
    reached = {signal for (source, signal) in TABLE if source is state}
    expected: dict[BreakerState, set[Signal]] = {
        BreakerState.CLOSED: {Signal.TRIPPED},
        BreakerState.OPEN: {Signal.PAUSE_OVER, Signal.SUCCESS, Signal.ORDERED},
        BreakerState.HALF_OPEN: {Signal.SUCCESS, Signal.TRIPPED, Signal.ORDERED},
    }
    assert reached == expected[state]


def test_how_many_turns_it_lets_through() -> None:
    assert [turns_at_once(breaker, 4) for breaker in (CLOSED, OPEN, HALF)] == [4, 0, 1]


# ---------------------------------------------------------------- in the engine


def broken(**settings: Any) -> Desk:
    desk = Desk(with_policy(max_attempts=9, backoff_base=0.1))
    desk.configured(breaker=replace(RULES, **settings), slots_per_agent=2)
    return desk


def test_faults_are_counted_over_tasks_and_forgotten_after_a_success() -> None:
    desk = broken()
    desk.give("a")
    desk.give("b")
    desk.ends("a", Failed("down"))
    desk.ends("b", Failed("down"))
    desk.wait(1)
    desk.ends("a", Results("fine"))
    desk.wait(1)
    desk.ends("b", Failed("down"))
    assert desk.breaker().failures == 1
    desk.wait(1)
    for _ in range(2):
        desk.ends("b", Failed("down"))
        desk.wait(1)
    assert desk.breaker("MAIN").state is BreakerState.OPEN
    desk.verify()


def test_an_open_one_starts_nothing_and_a_half_open_one_starts_one() -> None:
    desk = broken(failures=1)
    for name in "abc":
        desk.give(name)
    desk.ends("a", Failed("down"))
    desk.ends("b", Failed("down"))  # was under way, and opens nothing again
    assert desk.breaker().times == 1
    desk.wait(9)
    assert desk.phases("a", "b", "c") == ["execution_ready"] * 3
    assert [desk.task(name).failures for name in "abc"] == [1, 1, 0]
    desk.wait(1)
    assert desk.phases("a", "b", "c").count("executing") == 1
    desk.ends("a", Results("fine"))
    assert desk.phases("a", "b", "c") == ["completed", "executing", "executing"]
    desk.verify()


def test_an_agent_that_is_locked_out_costs_no_task_an_attempt_and_returns_with_a_turn_that_passes() -> None:
    desk = broken(pause=10.0)
    desk.give()
    for _ in range(4):
        desk.ends("t", LOCKED)
        assert desk.breaker().state is BreakerState.OPEN
        desk.wait(10)
    task = desk.task("t")
    assert (task.failures, task.stalls, task.phase) == (0, 0, "executing")
    desk.ends("t", Results("fine"))
    assert desk.breaker().state is BreakerState.CLOSED
    desk.verify()
