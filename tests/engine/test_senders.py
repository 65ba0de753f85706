"""How much one sender may bring in a minute: what is more waits, in order, and only its sender waits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.engine.intake.arrivals import SenderQuota

pytestmark = pytest.mark.slow

NOW = 60.0 * 1_000_000 + 7


def test_without_limits_nobody_waits() -> None:
    table = SenderQuota()
    assert [table.turn("a", f"{n}", 1 << 20, NOW) for n in range(1000)] == [None] * 1000


def test_what_is_more_waits_for_its_own_minute_and_is_then_taken() -> None:
    table = SenderQuota(messages=2)
    turns = [table.turn("a", f"{n}", 1, NOW) for n in range(5)]
    minute = NOW - 7
    assert turns == [None, None, minute + 60, minute + 60, minute + 120]
    assert table.turn("a", "2", 1, minute + 59) == minute + 60
    assert table.turn("a", "2", 1, minute + 60) is None
    assert table.turn("a", "new", 1, minute + 60) == minute + 120
    assert table.turn("a", "4", 1, minute + 120) is None


def test_senders_do_not_wait_for_each_other_and_letters_make_no_other_sender() -> None:
    table = SenderQuota(messages=1)
    assert table.turn("a", "1", 1, NOW) is None
    assert table.turn("b", "2", 1, NOW) is None
    assert table.turn("A", "3", 1, NOW) is not None


def test_bytes_count_as_well_and_what_is_larger_than_a_minute_allows_comes_all_the_same() -> None:
    table = SenderQuota(size=100)
    assert table.turn("a", "large", 500, NOW) is None
    assert table.turn("a", "small", 10, NOW) == NOW - 7 + 60
    assert table.turn("a", "large too", 500, NOW) == NOW - 7 + 120


def test_a_clock_that_is_set_back_makes_nobody_wait_longer() -> None:
    table = SenderQuota(messages=1)
    later = NOW + 86_400
    assert table.turn("a", "1", 1, later) is None
    assert table.turn("a", "2", 1, later) is not None
    assert table.turn("a", "2", 1, NOW) is None


@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 90)), max_size=60))
def test_nobody_brings_more_and_everything_comes(most: int, arrivals: list[tuple[str, float]]) -> None:
    table = SenderQuota(messages=most)
    now, waiting, taken = NOW, {}, Counter[tuple[str, int]]()
    for number, (sender, pause) in enumerate(arrivals):
        now += pause
        waiting[f"{number}"] = (sender, 0.0)
        for name, (whose, until) in list(waiting.items()):
            if until <= now:
                turn = table.turn(whose, name, 1, now)
                if turn is None:
                    taken[whose, int(now // 60)] += 1
                    del waiting[name]
                else:
                    assert turn > now
                    waiting[name] = (whose, turn)
    for name, (whose, until) in waiting.items():
        assert table.turn(whose, name, 1, max(now, until)) is None
