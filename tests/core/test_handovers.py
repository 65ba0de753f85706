"""Chains of tasks that agents write into each other's inboxes: the decision, and what it makes of any ring."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.handovers import (
    MOST_STEPS,
    MOST_TIMES,
    STRANGERS,
    Bounds,
    Earlier,
    handed_on,
    is_held,
    let_go,
    path,
    step,
    why_held,
)
from mailboxd.core.model import Handover, Origin, Task
from tests.core.desk import Desk

NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])
TEXT = "0123456789abcdef"


def chain(*names: str) -> Handover:
    return Handover(names[-1], TEXT, "tsk_1", tuple(step(name, TEXT) for name in names))


@cache
def some_task() -> Task:
    desk = Desk()
    desk.arrive("t")
    return desk.task("t")


def root(executor: str, handover: Handover | None = None) -> Task:
    """A task of this executor that came so."""
    return replace(some_task(), executor=executor, origin=Origin(content=TEXT, handover=handover))


def test_the_fourth_return_is_held_and_the_way_is_shown() -> None:
    passed = ["beta", "alpha"] * 4
    assert why_held(chain(*passed[2:]), "beta", Earlier(), Bounds()) == "", "three times"
    why = why_held(chain(*passed), "beta", Earlier(), Bounds())
    assert "come back to beta for the 4th time" in why
    assert "(beta -> alpha -> beta -> alpha -> beta -> alpha -> beta -> alpha -> beta)" in why
    assert is_held(why)


def test_a_chain_may_be_as_deep_as_plans_may() -> None:
    names = [f"a{number}" for number in range(9)]
    assert why_held(chain(*names[:8]), "z", Earlier(), Bounds(depth=8)) == ""
    assert "9 times, and limits.depth is 8" in why_held(chain(*names), "z", Earlier(), Bounds(depth=8))


@pytest.mark.parametrize(
    ("known", "earlier", "held"),
    [
        (chain("alpha"), Earlier(same_text=3), "alpha has sent the same text 3 times before (alpha -> beta)"),
        (Handover("alpha", TEXT), Earlier(same_text=3), "alpha has sent the same text 3 times before within an hour"),
        (chain("alpha"), Earlier(same_text=2), ""),
        (Handover(STRANGERS), Earlier(same_text=9), ""),
        (chain("alpha"), Earlier(tasks=499), ""),
        (
            chain("alpha"),
            Earlier(tasks=500),
            "more tasks of alpha within an hour than limits.sender_hour_tasks allows (500)",
        ),
        (Handover(STRANGERS), Earlier(tasks=500), "more tasks of senders that OpenClaw does not know within an hour"),
        (chain("alpha"), Earlier(turns=1_000), "have taken more turns than limits.sender_hour_turns allows (1000)"),
        (Handover("operator", TEXT), Earlier(turns=5_000), ""),
        (Handover("operator", TEXT, counts=False), Earlier(tasks=5_000), ""),
    ],
)
def test_what_came_before_counts(known: Handover, earlier: Earlier, held: str) -> None:
    why = why_held(known, "beta", earlier, Bounds())
    assert held in why if held else why == ""


def test_a_limit_of_zero_is_none() -> None:
    assert why_held(chain("alpha"), "beta", Earlier(tasks=9_999, turns=9_999), Bounds(8, 0, 0)) == ""


@given(st.lists(NAMES, min_size=1, max_size=200), st.integers(1, 64))
def test_no_chain_goes_on_for_ever(hops: list[str], depth: int) -> None:
    """Whoever passes it to whom: it ends at the depth, and none has it more often than it may come back."""
    had: Counter[str] = Counter([hops[0]])
    task = root(hops[0])
    for number, (sender, receiver) in enumerate(pairwise(hops), 1):
        began, passed = handed_on(task)
        assert began == (task.origin.handover.began if task.origin.handover else task.id)
        came = Handover(sender, TEXT, began, passed)
        if why_held(came, receiver, Earlier(), Bounds(depth=depth)):
            break
        had[receiver] += 1
        assert number <= depth
        assert had[receiver] <= MOST_TIMES + 1
        task = replace(task, executor=receiver, origin=Origin(content=TEXT, handover=came))
    else:
        assert len(hops) - 1 <= depth


@given(st.lists(NAMES, min_size=1, max_size=MOST_STEPS))
def test_what_a_person_lets_go_on_begins_a_chain_of_its_own(names: list[str]) -> None:
    held = root("beta", chain(*names))
    freed = let_go(held, "2026-11-28T00:00:00.000Z")
    assert freed.handover is not None
    assert freed.handover.source == names[-1]
    began, passed = handed_on(replace(held, origin=freed))
    assert (began, passed) == (held.id, (step("beta", TEXT),))
    assert why_held(Handover("beta", TEXT, began, passed), "alpha", Earlier(), Bounds()) == ""


def test_a_long_way_is_shown_by_its_ends() -> None:
    names = [f"a{number}" for number in range(40)]
    assert path(names[:3]) == "a0 -> a1 -> a2"
    assert "a5 -> 28 more -> a34" in path(names)
