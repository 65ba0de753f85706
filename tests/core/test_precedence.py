"""Which ready task of an agent is next: by priority, people first, then by age; and that one that waits says so."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.effects import RunTurn
from mailboxd.core.inputs import Pause
from mailboxd.core.outcomes import Failure
from mailboxd.core.schedule import Ready, interleaved
from mailboxd.ledger.precedence import first_of
from tests.core.desk import Desk, child, plan, with_policy

HOUR = 3600.0


def one_slot(**settings: float) -> Desk:
    """A desk whose only slot is taken by the task `busy`."""
    desk = Desk(with_policy(backoff_base=0.0), slots=1, slots_per_agent=1).configured(**settings)
    desk.give("busy")
    return desk


def served(desk: Desk, *names: str) -> list[str]:
    """In which order these tasks get their turns."""
    order = []
    while waiting := desk.pending(RunTurn):
        name = desk.name(waiting[0])
        order.append(name)
        desk.done(name)
    return [name for name in order if name in names]


def test_a_persons_task_comes_before_those_of_agents_at_equal_priority() -> None:
    desk = one_slot()
    for name, sender, priority in (
        ("agents", "boss", 0), ("persons", "operator", 0), ("urgent", "boss", 1), ("other", "human", 0),
    ):  # fmt: skip
        desk.give(name, sender=sender, policy=with_policy(priority=priority))
    assert served(desk, "agents", "persons", "urgent", "other") == ["urgent", "persons", "other", "agents"]
    desk.verify()


def test_what_a_persons_task_is_split_into_is_a_persons_work_too() -> None:
    desk = Desk(slots=1, slots_per_agent=1)
    desk.give("agents", plan(child("x", "bob"), child("y", "bob")))
    desk.give("persons", plan(child("z", "bob")), sender="operator")
    assert served(desk, "agents.x", "agents.y", "persons.z") == ["agents.x", "persons.z", "agents.y"]


def test_a_task_says_how_many_of_higher_priority_it_waits_behind() -> None:
    desk = one_slot()
    for number in range(14):
        desk.give(f"urgent{number}", policy=with_policy(priority=5))
    desk.give("persons", sender="operator")
    desk.give("earlier")
    desk.give("late")
    (cause,) = desk.causes("late")
    assert cause.kind == "slot"
    assert "behind 14 tasks of higher priority, 1 of a person and 1 that came before" in cause.text
    assert "behind 14 tasks of higher priority" in desk.causes("persons")[0].text
    assert "behind 13 that came before" in desk.causes("urgent13")[0].text
    assert "behind" not in desk.causes("urgent0")[0].text


def test_what_is_paused_or_rests_is_not_what_others_wait_behind() -> None:
    desk = one_slot()
    desk.give("urgent", policy=with_policy(priority=5))
    desk.give("low")
    desk.command("urgent", Pause())
    assert "behind" not in desk.causes("low")[0].text


def test_an_endless_queue_is_counted_only_so_far() -> None:
    desk = one_slot()
    for number in range(1_002):
        desk.arrive(f"t{number}")
    desk.arrive("late")
    assert "behind more than 1000 tasks" in desk.causes("late")[0].text


def test_without_ageing_a_task_never_rises() -> None:
    desk = one_slot()
    desk.give("low", policy=with_policy(priority=-5))
    desk.clock.advance(1_000 * HOUR)
    desk.give("high")
    assert served(desk, "low", "high") == ["high", "low"]


@pytest.mark.parametrize(("hours", "order"), [(4.9, ["high", "low"]), (6.0, ["low", "high"])])
def test_with_ageing_a_task_rises_by_one_priority_for_each_such_time(hours: float, order: list[str]) -> None:
    desk = one_slot(ageing=HOUR)
    desk.give("low", policy=with_policy(priority=-5))
    desk.clock.advance(hours * HOUR)
    desk.give("high")
    assert served(desk, "low", "high") == order


def test_why_counts_what_has_risen_where_it_stands() -> None:
    desk = one_slot(ageing=HOUR)
    with desk.engine.batch():
        desk.store.meta.set_ageing(HOUR)
    desk.give("low", policy=with_policy(priority=-1))
    desk.clock.advance(3 * HOUR)
    desk.give("new")
    assert "behind 1 task of higher priority" in desk.causes("new")[0].text
    assert "behind" not in desk.causes("low")[0].text


@given(
    st.lists(
        st.tuples(st.integers(-2, 2), st.booleans(), st.integers(0, 3)),
        min_size=1, max_size=7,
    ),
    st.sampled_from([0.0, HOUR, 2 * HOUR]),
)  # fmt: skip
def test_the_next_is_the_one_that_stands_highest_and_longest(work: list[tuple[int, bool, int]], ageing: float) -> None:
    desk = one_slot(ageing=ageing)
    born = {}
    for number, (priority, person, hours) in enumerate(work):
        desk.arrive(f"t{number}", sender="operator" if person else "boss", policy=with_policy(priority=priority))
        born[f"t{number}"] = (priority, person, desk.clock.monotonic(), number)
        desk.clock.advance(hours * HOUR)
    now = desk.clock.monotonic()

    def place(name: str) -> tuple[float, bool, int]:
        priority, person, since, number = born[name]
        return -(priority + ((now - since) // ageing if ageing else 0)), not person, number

    assert served(desk, *born) == sorted(born, key=place)


def test_retries_and_new_work_take_turns_only_where_they_stand_equal() -> None:
    new = [Ready("n", "a", False, 0, by_person=True)]
    again = [Ready("r", "a", False, 0, again=True)]
    assert [item.task for item in interleaved([*new, *again])] == ["n", "r"]
    desk = one_slot()
    desk.ends("busy", Failure("I cannot."))
    desk.give("agents")
    desk.give("persons", sender="operator")
    assert Counter(served(desk, "busy", "agents", "persons")) == Counter(["busy", "agents", "persons"])


@pytest.mark.parametrize("ageing", [0.0, HOUR])
def test_the_next_is_searched_in_an_index_and_nothing_is_sorted(ageing: float) -> None:
    desk = one_slot()
    desk.give("waits", policy=with_policy(priority=1))
    said: list[str] = []
    desk.store.db.set_trace_callback(said.append)
    first_of(desk.store.db, "main", desk.clock.now(), ageing, again=False, most=4)
    desk.store.db.set_trace_callback(None)
    searches = [sql for sql in said if "by_person" in sql]
    assert searches
    for sql in searches:
        steps = [row[3] for row in desk.sql(f"EXPLAIN QUERY PLAN {sql}")]
        assert steps[0].startswith("SEARCH tasks USING INDEX tasks_runnable (executor=? AND <expr>=?"), steps
        assert not any("B-TREE" in step for step in steps), steps
