"""How a file came: what is known, and what its name claims."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.entrance import PROGRAMS, Entrance, Owner, Way, claimed_by, prepared_name, told


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_told_by_the_name_under_which_it_prepares_a_file(program: str) -> None:
    assert claimed_by(prepared_name(program, "12-0123456789abcdef")) == program
    assert claimed_by(prepared_name("", "12-0123456789abcdef")) == ""


@given(st.text())
def test_no_other_name_claims_anything(name: str) -> None:
    assert claimed_by(name) in ("", *PROGRAMS)
    assert claimed_by(f".mailboxd-{name}-1.tmp") in ("", *PROGRAMS)
    assert claimed_by(f"x.mailboxd-hub-{name}.tmp") == ""


def test_what_is_claimed_is_told_as_a_claim() -> None:
    came = Entrance(Owner(1000, "ann"), Way.RENAMED, "command")
    assert told(came.columns()) == "owned by ann (uid 1000), renamed in, as its name says, by a command"
    assert told(Entrance(Owner(4)).columns()) == "owned by uid 4"
    assert told(Entrance(None, Way.AT_START).columns()) == "found at the start"


def test_what_is_not_known_is_not_recorded() -> None:
    assert Entrance().columns() == {}
    assert told({}) == told({"owner_uid": None, "came": None, "claimed": None}) == ""
    assert told({"came": "made up", "claimed": "root"}) == ""
