"""Foreign text on a line of ours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.text import first_line, on_one_line


@given(st.text(st.sampled_from("ab #>*-`_=.\x00\t\r\n\x85\u2028\u00a0ü")), st.integers(4, 12))
def test_the_first_line_is_the_same_whatever_follows_it(text: str, limit: int) -> None:
    line = first_line(text, limit)
    assert first_line(text + "\n", limit) == line  # the one is looked at in one step, the other line by line
    assert first_line(text + "\nmore", limit) == (line or "more")
    assert len(line) <= limit
    assert line == on_one_line(line).strip()
