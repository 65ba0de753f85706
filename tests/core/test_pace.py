"""How long to wait and who is next: backoff, jitter, slots, fairness. Values in, values out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.effects import RunTurn
from mailboxd.core.inputs import Retry
from mailboxd.core.lifecycle import is_exhausted
from mailboxd.core.model import Overrides, Policy, backoff
from mailboxd.core.outcomes import Failure, Results
from mailboxd.core.schedule import Ready, interleaved, pick
from mailboxd.core.vocabulary import Join
from tests.core.desk import Desk, child, plan, with_policy

agents = st.sampled_from(["a", "b", "c", "d"])


# ---------------------------------------------------------------- backoff


@pytest.mark.parametrize(("failures", "seconds"), [(0, 5), (1, 5), (2, 10), (3, 20), (8, 640), (9, 900), (10_000, 900)])
def test_backoff_doubles_up_to_its_bound(failures: int, seconds: float) -> None:
    assert backoff(Policy(backoff_base=5.0, backoff_max=900.0), failures, 0.5, 0.2) == pytest.approx(seconds)


@given(st.integers(0, 100), st.floats(0, 1, exclude_max=True), st.floats(0, 1), st.floats(0.1, 100))
def test_jitter_moves_the_pause_by_its_share_and_no_more(
    failures: int, jitter: float, share: float, base: float
) -> None:
    policy = Policy(backoff_base=base)
    plain = backoff(policy, failures, 0.5, 0.0)
    moved = backoff(policy, failures, jitter, share)
    assert plain * (1 - share) - 1e-9 <= moved <= plain * (1 + share) + 1e-9
    assert 0 <= moved <= policy.backoff_max * (1 + share)


def test_tasks_that_failed_together_do_not_come_back_together() -> None:
    assert backoff(Policy(), 3, 0.1, 0.2) != backoff(Policy(), 3, 0.9, 0.2)


@given(st.integers(1, 10), st.integers(0, 20))
def test_the_budget_is_used_up_at_max_attempts(most: int, failures: int) -> None:
    assert is_exhausted(Policy(max_attempts=most), failures) == (failures >= most)


# ---------------------------------------------------------------- slots


@st.composite
def moments(draw: st.DrawFn) -> tuple[list[Ready], dict[str, int], int, int]:
    rows = draw(st.lists(st.tuples(agents, st.booleans()), max_size=20))
    ready = [Ready(f"t{number}", agent, by_children) for number, (agent, by_children) in enumerate(rows)]
    return ready, draw(st.dictionaries(agents, st.integers(0, 3))), draw(st.integers(1, 8)), draw(st.integers(1, 3))


@given(moments())
def test_slots_are_kept_and_none_that_could_be_used_is_left_empty(
    moment: tuple[list[Ready], dict[str, int], int, int],
) -> None:
    ready, busy, slots, per_agent = moment
    picked = pick(ready, busy, slots, per_agent)
    rows = {item.task: item for item in ready}
    assert len(picked) == len(set(picked))
    assert {item.task for item in ready if item.by_children} <= set(picked), "waiting for children occupies nobody"
    turns = Counter(rows[task].executor for task in picked if not rows[task].by_children)
    for agent, count in turns.items():
        assert count + busy.get(agent, 0) <= per_agent
    free = slots - sum(busy.values()) - sum(turns.values())
    assert free >= 0 or not turns
    left = [item for item in ready if item.task not in picked]
    if free > 0:
        assert all(turns[item.executor] + busy.get(item.executor, 0) >= per_agent for item in left)


@given(moments())
def test_of_one_agent_the_preferred_task_is_first_and_no_agent_gets_two_before_another_has_one(
    moment: tuple[list[Ready], dict[str, int], int, int],
) -> None:
    ready, _, slots, _ = moment
    turns = [item for item in ready if not item.by_children]
    picked = pick(turns, {}, slots, 100)
    for agent in {item.executor for item in turns}:
        of_agent = [item.task for item in turns if item.executor == agent]
        assert [task for task in picked if task in of_agent] == of_agent[: len([t for t in picked if t in of_agent])]
    counts = Counter(item.executor for item in turns if item.task in picked)
    waiting = {item.executor for item in turns if item.task not in picked}
    assert all(counts[agent] >= max(counts.values(), default=0) - 1 for agent in waiting)


@st.composite
def queues(draw: st.DrawFn) -> list[Ready]:
    """What waits for one agent: new work, then retries, each by priority."""
    after = draw(st.booleans())
    rows = sorted(draw(st.lists(st.tuples(st.booleans(), st.integers(-2, 0)), max_size=30)))
    return [Ready(f"t{place}", "a", False, -low, again, after) for place, (again, low) in enumerate(rows)]


@given(queues())
def test_new_work_starts_after_at_most_as_many_retries_as_new_work_and_one(waiting: list[Ready]) -> None:
    served = list(interleaved(waiting))
    assert sorted(item.task for item in served) == sorted(item.task for item in waiting)
    for kind in (False, True):
        assert [item for item in served if item.again is kind] == [item for item in waiting if item.again is kind]
    for place, item in enumerate(served):
        before = [other for other in served[:place] if other.priority == item.priority]
        retries = sum(other.again for other in before)
        if not item.again:
            assert retries <= len(before) - retries + 1, "a retry more than its share"
            assert all(other.priority >= item.priority for other in served[:place]), "priority goes first"


@given(queues())
def test_one_turn_at_a_time_the_rule_is_the_same(waiting: list[Ready]) -> None:
    """The order does not depend on how many slots are free at once: the latest turn says who is next."""
    whole, left, after, one_by_one = list(interleaved(waiting)), waiting, bool(waiting and waiting[0].after_again), []
    while left:
        first = next(interleaved([replace(item, after_again=after) for item in left]))
        one_by_one.append(first.task)
        left, after = [item for item in left if item.task != first.task], first.again
    assert one_by_one == [item.task for item in whole]


def test_an_agents_backlog_does_not_starve_another_agent() -> None:
    desk = Desk(slots=1)
    many = [child(f"a{number}", "ada") for number in range(5)]
    desk.give(plan=plan(*many, child("b1", "bob"), child("b2", "bob")))
    served = []
    for _ in range(4):
        (turn,) = desk.orders(RunTurn)
        served.append(turn.agent)
        key = next(task.local_id for task in desk.children("t") if task.phase == "executing")
        desk.done(key)
    assert served == ["ada", "bob", "ada", "bob"]


def turns_before(desk: Desk, wanted: str, healthy: str = "") -> int:
    """How many turns are ordered before one of `wanted`: those of every task but `healthy` ones fail."""
    for served in range(1000):
        name = desk.name(desk.pending(RunTurn)[0])
        if name == wanted:
            return served
        desk.ends(name, Results("done") if healthy and name.startswith(healthy) else Failure("I cannot."))
        desk.wait(1.0)
    raise AssertionError(f"{wanted} starves")


def test_new_work_does_not_wait_for_all_retries_of_failing_work() -> None:
    """Ten tasks that fail three times each, one slot: what comes after the first failures waits for its share only."""
    desk = Desk(with_policy(backoff_base=0.0, max_attempts=3), slots=1, slots_per_agent=1)
    for number in range(10):
        desk.give(f"bad{number}")
    turns_before(desk, "bad2")
    desk.give("new")
    # before it: bad2 to bad9, which are as new and came first, and after each of them at most one retry
    assert turns_before(desk, "new") <= 2 * 8


def test_retries_are_not_starved_by_new_work_either() -> None:
    desk = Desk(with_policy(backoff_base=0.0, max_attempts=3), slots=1, slots_per_agent=1)
    desk.give("bad")
    desk.ends("bad", Failure("I cannot."))
    for number in range(20):
        desk.give(f"good{number}")
    desk.wait(1.0)
    assert desk.phase("bad") == "executing" or turns_before(desk, "bad", healthy="good") <= 1


@pytest.mark.parametrize("slots", [1, 2])
def test_the_failures_of_one_agent_do_not_keep_the_slots_from_another(slots: int) -> None:
    desk = Desk(with_policy(backoff_base=0.0, max_attempts=3), slots=slots, slots_per_agent=slots)
    desk.give(plan=plan(*(child(f"a{number}", "ada") for number in range(10)), child("z", "bob", "a0")))
    desk.give("later", plan=plan(child("b", "bob")))
    assert turns_before(desk, "later.b") <= slots


def test_a_higher_priority_goes_before_new_work() -> None:
    desk = Desk(slots=1, slots_per_agent=1)
    desk.give("urgent", policy=with_policy(priority=5, backoff_base=0.0))
    desk.give("new")
    desk.ends("urgent", Failure("I cannot."))
    assert desk.phases("urgent", "new") == ["executing", "execution_ready"]


def test_an_agent_has_one_call_at_a_time_by_default_and_the_next_follows_it() -> None:
    desk = Desk(slots=4, slots_per_agent=1)
    desk.give(plan=plan(child("a", "bob"), child("b", "bob"), child("c", "eve")))
    assert desk.phases("t.a", "t.b", "t.c") == ["executing", "execution_ready", "executing"]
    desk.done("t.a")
    assert desk.phases("t.a", "t.b") == ["completed", "executing"]


def test_priority_goes_before_age() -> None:
    desk = Desk(slots_per_agent=1)
    first, low = Overrides(priority=0), Overrides(priority=1)
    desk.give(
        plan=plan(child("first", "bob", overrides=first), child("low", "bob", overrides=low), child("high", "bob")),
        policy=with_policy(priority=9),
    )
    assert desk.phases("t.first", "t.low", "t.high") == ["execution_ready", "execution_ready", "executing"]


def test_a_start_that_ends_its_parent_takes_the_others_of_its_round_along() -> None:
    # retried as a tree: the broadcast starts, finds its copies disagree as before, and fails what is next to start
    desk = Desk(with_policy(max_attempts=1))
    copies = child("v", ("ada", "bob"), overrides=Overrides(join=Join.MAJORITY))
    desk.give(plan=plan(copies, child("z", "eve")))
    desk.ends("t.v.ada", Results("yes", "yes"))
    desk.ends("t.v.bob", Results("no", "no"))
    assert desk.phases("t", "t.v", "t.z") == ["failed", "failed", "cancelled"]
    desk.command("t", Retry())
    desk.start()
    assert desk.phases("t", "t.v", "t.z") == ["failed", "failed", "cancelled"]
