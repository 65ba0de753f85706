"""Ids name their kind, sort by time, and repeat themselves in a simulation."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.times import to_text
from mailboxd.core.vocabulary import is_id
from mailboxd.host.ids import PREFIXES, Ids

NOW = "2026-11-21T02:07:53.120Z"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_id_is_a_prefix_and_a_ulid(prefix: str) -> None:
    text = Ids().new(prefix, NOW)
    assert re.fullmatch(prefix + "_[0-7][0-9A-HJKMNP-TV-Z]{25}", text)
    assert is_id(text)


def test_the_first_ten_characters_are_the_time() -> None:
    # the example of the ULID specification, 01ARZ3NDEKTSV4RRFFQ69G5FAV, was made at this time
    assert Ids().new("msg", "2016-07-30T23:54:10.259Z").startswith("msg_01ARZ3NDEK")


@given(st.lists(st.integers(min_value=0, max_value=5_000), min_size=2, max_size=50), st.integers())
def test_ids_are_increasing_whatever_the_clock_does(milliseconds: list[int], seed: int) -> None:
    ids = Ids(random.Random(seed).getrandbits)
    made = [ids.new("tsk", to_text(ms / 1000)) for ms in milliseconds]
    assert made == sorted(set(made))


def test_ids_are_increasing_even_when_the_random_part_is_full() -> None:
    ids = Ids(lambda bits: 2**bits - 1)
    first, second, third = (ids.new("att", NOW) for _ in range(3))
    assert first < second < third


def test_the_same_seed_gives_the_same_ids() -> None:
    one, other = (Ids(random.Random(7).getrandbits) for _ in range(2))
    assert [one.new("tsk", NOW) for _ in range(5)] == [other.new("tsk", NOW) for _ in range(5)]


def test_two_sources_do_not_meet() -> None:
    one, other = Ids(), Ids()
    assert not {one.new("tsk", NOW) for _ in range(100)} & {other.new("tsk", NOW) for _ in range(100)}


@pytest.mark.parametrize(("prefix", "now"), [("foo", NOW), ("tsk_", NOW), ("tsk", "1969-12-31T23:59:59.999Z")])
def test_an_unknown_kind_and_a_time_before_1970_are_refused(prefix: str, now: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of|before 1970"):
        Ids().new(prefix, now)
