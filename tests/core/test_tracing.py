"""Ids of traces and spans: W3C's rules, and the same for whoever makes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.formats.protocol.headers import TRACEPARENT
from mailboxd.host import ids
from mailboxd.host.ids import Parent

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


def test_a_header_says_trace_span_and_flags() -> None:
    assert ids.parse(GIVEN) == Parent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00-x",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        GIVEN.upper(),
        f"{GIVEN}-more",
    ],
)
def test_what_the_standard_has_ignored_is_none(header: str | None) -> None:
    assert ids.parse(header) is None
    assert ids.trace_of("tsk_1", header) == ids.trace_of("tsk_1", None)


def test_a_trace_goes_on_where_a_message_brought_one() -> None:
    passed = ids.parse(ids.passed_on("tsk_1", GIVEN, "att_1"))
    assert passed == Parent("0af7651916cd43dd8448eb211c80319c", ids.span_of("att_1"), "00")


@given(st.text(), st.text())
def test_what_is_passed_on_is_a_header_and_leads_to_the_same_trace(root: str, attempt: str) -> None:
    header = ids.passed_on(root, None, attempt)
    assert TRACEPARENT.fullmatch(header)
    said = ids.parse(header)
    assert said is not None
    assert said.trace == ids.trace_of(root, None)
    assert ids.trace_of("another root, at the peer's", header) == said.trace
    assert said.span == ids.span_of(attempt)


def test_different_things_have_different_spans() -> None:
    names = [("a",), ("b",), ("a", "b"), ("ab",), ("a", "turn", "1"), ("a", "turn", "2")]
    assert len({ids.span_of(*name) for name in names}) == len(names)
