"""How many calls may run at once: by number and by memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.schedule import Capacity

ids = st.lists(st.text("abc", min_size=1), max_size=8, unique=True).map(tuple)


@pytest.mark.parametrize(
    ("room", "left", "short"),
    [
        (Capacity(4), 4, False),
        (Capacity(4, ("a",)), 3, False),
        (Capacity(4, ("a", "b", "c", "d")), 0, False),
        (Capacity(4, ("a",), free_bytes=430, call_bytes=215), 2, False),
        (Capacity(4, ("a",), free_bytes=214, call_bytes=215), 0, True),
        (Capacity(4, (), free_bytes=0, call_bytes=215), 1, False),
        (Capacity(1, ("a",), free_bytes=0, call_bytes=215), 0, False),
    ],
)
def test_the_narrower_of_number_and_memory_counts(room: Capacity, left: int, short: bool) -> None:
    assert (room.left, room.is_short) == (left, short)


@given(st.integers(1, 8), ids, st.none() | st.integers(0, 2000), st.integers(1, 500))
def test_the_first_call_may_always_start_and_no_limit_is_ever_exceeded(
    most: int, running: tuple[str, ...], free: int | None, call: int
) -> None:
    room = Capacity(most, running, free, call)
    assert room.left >= (0 if running else 1)
    assert room.left <= max(most - len(running), 0 if running else 1)
    if running and free is not None:
        assert room.left * call <= free
