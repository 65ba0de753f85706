"""Times are text: one form, one width, whole milliseconds."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.times import plus, to_epoch, to_text
from mailboxd.host.clock import ManualClock, SystemClock

MOMENTS = st.integers(min_value=0, max_value=200_000_000_000_000).map(lambda ms: to_text(ms / 1000))
SPANS = st.integers(min_value=0, max_value=50_000_000_000_000).map(lambda ms: ms / 1000)


def test_a_time_is_iso_8601_utc_with_milliseconds() -> None:
    moment = datetime(2026, 11, 21, 2, 7, 53, 120_000, tzinfo=UTC).timestamp()
    assert to_text(moment) == "2026-11-21T02:07:53.120Z"
    assert to_epoch("2026-11-21T02:07:53.120Z") == moment


@given(MOMENTS)
def test_text_and_number_say_the_same(text: str) -> None:
    assert to_text(to_epoch(text)) == text


@given(MOMENTS, MOMENTS)
def test_times_sort_as_text(first: str, second: str) -> None:
    assert (first < second) == (to_epoch(first) < to_epoch(second))


@given(MOMENTS, SPANS)
def test_adding_and_taking_away_a_span_changes_nothing(text: str, seconds: float) -> None:
    assert plus(plus(text, seconds), -seconds) == text


def test_a_leap_day_is_a_day() -> None:
    assert plus("2028-02-28T23:59:59.999Z", 0.001) == "2028-02-29T00:00:00.000Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21",
        "2026-11-21T02:07:53Z",
        "2026-11-21T02:07:53.120",
        "2026-11-21T02:07:53.120+00:00",
        "2026-13-45T02:07:53.120Z",
        "2026-11-21T02:07:53.120Z\n",
        "٢٠٢٦-11-21T02:07:53.120Z",
    ],
)
def test_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|day|month|hour|range"):
        to_epoch(text)


@pytest.mark.parametrize("epoch", [float("inf"), float("-inf"), float("nan"), 1e12, -1e12])
def test_what_text_cannot_say_is_refused(epoch: float) -> None:
    with pytest.raises(ValueError, match=r"year|seconds|NaN"):
        to_text(epoch)


def test_the_system_clock_tells_the_time_of_the_machine() -> None:
    before = datetime.now(UTC).timestamp()
    told = to_epoch(SystemClock().now())
    after = datetime.now(UTC).timestamp()
    assert before - 0.001 <= told <= after + 0.001


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock("2026-11-21T00:00:00.000Z")
    assert clock.now() == clock.now()
    assert clock.advance(90.5) == "2026-11-21T00:01:30.500Z"
    assert clock.now() == "2026-11-21T00:01:30.500Z"


def test_timeouts_are_measured_on_a_clock_that_only_grows() -> None:
    system, manual = SystemClock(), ManualClock()
    assert system.monotonic() <= system.monotonic()
    before = manual.monotonic()
    manual.advance(1.5)
    assert manual.monotonic() - before == 1.5


def test_a_manual_clock_refuses_a_start_that_is_no_time() -> None:
    with pytest.raises(ValueError, match="is not a time"):
        ManualClock("yesterday")
