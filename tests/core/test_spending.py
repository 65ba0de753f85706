"""Caps on what a day may cost: sums are exact, and parallel turns do not exceed a cap by more than one turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.json_codec import to_json
from mailboxd.core.model import Usage
from mailboxd.core.spending import (
    NOTHING,
    UNKNOWN,
    Account,
    Spend,
    Standing,
    bar,
    doubled,
    estimate,
    of_cap,
    raising,
    sentence,
    standing_json,
    total,
)

USD = 1_000_000


@pytest.mark.parametrize(
    ("usage", "ran", "expected"),
    [
        (Usage(10, 5, 0.1), True, Spend(100_000, 15, 0)),
        (Usage(10, None, None), True, Spend(0, 10, 0)),
        (Usage(None, None, 0.25), True, Spend(250_000, 0, 0)),
        (Usage(), True, Spend(0, 0, 1)),
        (Usage(), False, NOTHING),
        (Usage(0, 0, 0.0), True, Spend(0, 0, 1)),
    ],
)
def test_a_turn_counts_what_it_reports_and_else_as_a_turn(usage: Usage, ran: bool, expected: Spend) -> None:
    assert Spend.of(to_json(usage), ran=ran) == expected


def test_ten_times_ten_cents_are_a_dollar() -> None:
    spent = total([Spend.of({"cost_usd": 0.1}, ran=True)] * 10)
    assert Account("a", Spend(USD), spent).is_reached


def test_the_estimate_is_the_median_else_that_of_others_else_a_dollar() -> None:
    assert estimate([], []) == UNKNOWN
    assert estimate([], [Spend(4, 10), Spend(5, 9)]) == Spend(5, 10)
    assert estimate([Spend(1, 10), Spend(5, 20), Spend(100, 30)], [Spend(7)]) == Spend(5, 20)
    assert estimate([Spend(1), Spend(2)]) == Spend(2)


def test_what_has_no_cap_never_holds() -> None:
    assert Account("a", NOTHING, Spend(10**12, 10**12, 10**6)).has_room(Spend(1, 1, 1))
    assert Account("a", Spend(USD), Spend(2 * USD), holds=False).has_room(Spend(1, 1, 1))


def test_the_last_turn_below_the_cap_begins_alone() -> None:
    account = Account("a", Spend(USD), Spend(900_000))
    assert account.has_room(Spend(300_000))
    beside = Account("a", Spend(USD), Spend(900_000), reserved=Spend(50_000))
    assert not beside.has_room(Spend(300_000))
    assert beside.has_room(Spend(50_000))
    assert not Account("a", Spend(USD), Spend(USD)).has_room(NOTHING)


@given(
    cap=st.integers(1, 50),
    costs=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    ends=st.lists(st.booleans(), min_size=120, max_size=120),
)
def test_parallel_turns_exceed_a_cap_by_less_than_one_turn(cap: int, costs: list[int], ends: list[bool]) -> None:
    spent, running, waiting = 0, list[int](), list(costs)
    for is_end in ends:
        if is_end and running:
            spent += running.pop(0)
        elif waiting:
            account = Account("a", Spend(cap), Spend(spent), Spend(sum(running)))
            if account.has_room(Spend(waiting[0])):
                running.append(waiting.pop(0))
    assert spent + sum(running) < cap + max(costs)


def test_the_words() -> None:
    account = Account("main", Spend(20 * USD, 20_000_000, 1000), Spend(3_100_000, 12_000))
    assert of_cap(account) == "3.10 of 20 USD today"
    assert bar(account) == "###................."
    assert of_cap(account, "tokens") == "12,000 of 20,000,000 tokens today"
    assert of_cap(Account("main", NOTHING, Spend(3_100_000))) == "3.10 USD today, without a cap"
    assert of_cap(Account("main", Spend(50_000), Spend(250))) == "under 0.01 of 0.05 USD today"
    assert of_cap(Account("main", Spend(5_000), Spend(250))) == "0.00025 of 0.005 USD today"
    mixed = Account("main", Spend(20 * USD, 0, 10), Spend(30_000, 0, 2))
    assert of_cap(mixed) == "0.03 of 20 USD today, and 2 turns without a known cost"
    assert of_cap(replace(mixed, spent=Spend(30_000, 0, 8))) == "8 of 10 turns without a known cost today"


def test_what_is_told_has_the_command_that_raises_it() -> None:
    reached = Account("main", Spend(20 * USD, 1000), Spend(21 * USD, 10))
    assert raising(reached) == "mailboxd caps --usd 42 --today"
    assert "no new turn begins" in sentence(reached)
    assert doubled(Account("", Spend(0, 1000, 10), Spend(5, 1000, 8))) == "--tokens 2000 --turns 20"
    assert raising(Account("", Spend(0, 1000), Spend(0, 900))) == "mailboxd caps --host --tokens 2000 --today"
    assert "not enforced until you run `mailboxd caps --confirm`" in sentence(
        Account("main", Spend(USD), Spend(USD), holds=False)
    )


def test_raising_never_lowers_and_gives_no_cap_where_there_is_none() -> None:
    assert Spend(10, 0, 5).raised(Spend(20, 7, 3)) == Spend(20, 0, 5)


@pytest.mark.parametrize(("agent", "host"), [(True, False), (False, True), (False, False)])
def test_what_makes_a_cap_hold_is_said_once(agent: bool, host: bool) -> None:
    cap = Spend(20 * USD)
    accounts = (Account("main", cap, Spend(), holds=agent), Account("", cap, Spend(), holds=host))
    texts = [one["text"] for one in standing_json(Standing("", "", *accounts), "mailboxd -w x")]
    assert sum("until you run `mailboxd -w x caps --confirm`" in text for text in texts) == 1
