"""Quiet hours in local time, and when notices of one kind are told together."""

from __future__ import annotations

from datetime import UTC, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.notices import APART, GATHERED, QuietHours, due, named, read_quiet
from mailboxd.core.times import plus, to_text

NOW = "2026-11-21T12:00:00.000Z"
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("at", "until"),
    [
        ("2026-11-21T20:59:59.999Z", None),
        ("2026-11-21T21:00:00.000Z", "2026-11-22T06:00:00.000Z"),
        ("2026-11-22T00:30:00.000Z", "2026-11-22T06:00:00.000Z"),
        ("2026-11-22T06:00:00.000Z", None),
        ("2026-10-24T21:00:00.000Z", "2026-10-25T06:00:00.000Z"),  # summer time ends in that night
        ("2026-03-28T22:30:00.000Z", "2026-03-29T05:00:00.000Z"),  # and begins in this one
    ],
)
def test_quiet_hours_go_past_midnight_and_over_both_changes_of_the_clock(at: str, until: str | None) -> None:
    assert read_quiet("22:00-07:00").until(at, BERLIN) == until


def test_quiet_hours_within_a_day() -> None:
    noon = read_quiet("12:00 to 13:30")
    assert noon == QuietHours(time(12), time(13, 30))
    assert noon.until(NOW, UTC) == "2026-11-21T13:30:00.000Z"
    assert noon.until("2026-11-21T13:30:00.000Z", UTC) is None


@pytest.mark.parametrize("text", ["", "22-7", "22:00", "25:00-07:00", "07:00-07:00", "always"])
def test_other_words_are_no_quiet_hours(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is the configuration's
        read_quiet(text)


@given(st.times(), st.times(), st.integers(1_700_000_000, 1_900_000_000))
def test_what_waits_is_told_within_a_day_and_not_in_quiet_hours(begins: time, ends: time, at: int) -> None:
    begins, ends = begins.replace(second=0, microsecond=0), ends.replace(second=0, microsecond=0)
    if begins == ends:
        return
    hours, now = QuietHours(begins, ends), to_text(float(at))
    until = hours.until(now, BERLIN)
    if until is not None:
        assert now < until <= plus(now, 25 * 3600.0)
        assert hours.until(until, UTC) is None or hours.until(until, BERLIN) is None


@pytest.mark.parametrize(
    ("at", "until"),
    [
        ("2026-10-25T00:10:00.000Z", "2026-10-25T00:30:00.000Z"),  # 02:10, the first time
        ("2026-10-25T01:05:00.000Z", "2026-10-25T01:30:00.000Z"),  # 02:05, the second time
        ("2026-10-25T01:30:00.000Z", None),
    ],
)
def test_quiet_hours_that_end_in_the_repeated_hour_end_later_than_now(at: str, until: str | None) -> None:
    assert read_quiet("22:00-02:30").until(at, BERLIN) == until


_CHANGES = (
    ("Europe/Berlin", "2026-10-25T01:00:00.000Z"),
    ("Europe/Berlin", "2026-03-29T01:00:00.000Z"),
    ("America/Havana", "2026-11-01T05:00:00.000Z"),  # 01:00 becomes midnight
    ("America/Havana", "2026-03-08T05:00:00.000Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00.000Z"),  # by half an hour
)


@given(st.integers(0, 23), st.integers(0, 16), st.sampled_from(_CHANGES), st.integers(-18, 18))
def test_quiet_hours_never_end_in_the_past(begins: int, ends: int, change: tuple[str, str], after: int) -> None:
    zone, changed = change
    now = plus(changed, after * 600.0)  # up to three hours before and after
    hours = QuietHours(time(begins, 1), time(ends // 4, ends % 4 * 15))
    until = hours.until(now, ZoneInfo(zone))
    assert until is None or until > now


@pytest.mark.parametrize(
    ("oldest", "newest", "last", "at"),
    [
        (0.0, 0.0, None, GATHERED),
        (0.0, 2.0, None, 2 + GATHERED),
        (0.0, 59.0, None, APART),  # not longer, however many follow
        (0.0, 0.0, -20.0, APART - 20),  # at most one message a minute
        (0.0, 0.0, -600.0, GATHERED),
        (-600.0, 0.0, None, -600 + APART),  # long due
    ],
)
def test_what_happens_at_once_is_told_at_once(oldest: float, newest: float, last: float | None, at: float) -> None:
    sent = None if last is None else plus(NOW, last)
    assert due(plus(NOW, oldest), plus(NOW, newest), sent) == plus(NOW, at)


def test_names_are_cut_with_a_count() -> None:
    assert named(["a", "b"]) == "a, b"
    assert named([*"abcdefgh"]) == "a, b, c, d, e and 3 more"
