"""Deadlines as people write them: what can mean one thing only is read, everything else is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from mailboxd.core.local_time import instant, local_of
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.deadlines import Calendar, read_beginning, read_deadline
from mailboxd.formats.protocol.head import Place
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.formats.protocol.repeats import read_repeat

THURSDAY = Calendar("2026-11-26T09:00:00.000Z", ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("today", "2026-11-26T22:59:59.000Z"),
        ("Tomorrow", "2026-11-27T22:59:59.000Z"),
        ("tomorrow 9am", "2026-11-27T08:00:00.000Z"),
        ("day after tomorrow", "2026-11-28T22:59:59.000Z"),
        ("friday", "2026-11-27T22:59:59.000Z"),
        ("by Wed 17:00", "2026-12-02T16:00:00.000Z"),
        ("in 3 days", "2026-11-29T22:59:59.000Z"),
        ("in 2 hours", "2026-11-26T11:00:00.000Z"),
        ("in a week", "2026-12-03T22:59:59.000Z"),
        ("2026-12-04", "2026-12-04T22:59:59.000Z"),
        ("2026-07-01", "2026-07-01T21:59:59.000Z"),  # summer time
        ("11.12.2026", "2026-12-11T22:59:59.000Z"),
        ("4 December 2026", "2026-12-04T22:59:59.000Z"),
        ("Dec 4, 2026", "2026-12-04T22:59:59.000Z"),
        ("2026-12-01 17:00", "2026-12-01T16:00:00.000Z"),
        ("2026-12-01 17:00 Europe/Berlin", "2026-12-01T16:00:00.000Z"),
        ("2026-12-01 17:00 America/New_York", "2026-12-01T22:00:00.000Z"),
        ("2026-12-01 17:00 UTC", "2026-12-01T17:00:00.000Z"),
        ("2026-12-01T17:00+02:00", "2026-12-01T15:00:00.000Z"),
        ("Thu 17:00", "2026-11-26T16:00:00.000Z"),  # today, and still to come
        ("17:00", "2026-11-26T16:00:00.000Z"),
        ("tomorrow noon", "2026-11-27T11:00:00.000Z"),
        ("Fri, 5pm", "2026-11-27T16:00:00.000Z"),
        ("Monday, 30 November 2026 at 9:30", "2026-11-30T08:30:00.000Z"),
        ("Nov 30", "2026-11-30T22:59:59.000Z"),
        ("5 January", "2027-01-05T22:59:59.000Z"),
        ("30.11. 17:00", "2026-11-30T16:00:00.000Z"),
        ("30/11/2026", "2026-11-30T22:59:59.000Z"),
        ("11/30/2026 5 pm", "2026-11-30T16:00:00.000Z"),
        ("12/12/2026", "2026-12-12T22:59:59.000Z"),
        ("2026/12/1", "2026-12-01T22:59:59.000Z"),
        ("30-Nov-2026", "2026-11-30T22:59:59.000Z"),
        ("in 2 months", "2027-01-26T22:59:59.000Z"),
        ("in two weeks at 17:00", "2026-12-10T16:00:00.000Z"),
        ("in 1.5 hours", "2026-11-26T10:30:00.000Z"),
        ("90 min", "2026-11-26T10:30:00.000Z"),
        ("in half an hour", "2026-11-26T09:30:00.000Z"),
        ("end of the month", "2026-11-30T22:59:59.000Z"),
        ("2027-03-28 02:30", "2027-03-28T01:00:00.000Z"),  # skipped: the next valid minute
        ("2027-10-31 02:30", "2027-10-31T00:30:00.000Z"),  # twice: the first
    ],
)
def test_what_can_mean_one_time_only_is_read(text: str, moment: str) -> None:
    assert read_deadline(text, THURSDAY) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("thursday", "11/12/2026", "end of week", "asap", "soon", "december", "2026-02-30", "2026-12-04 17", "17"),
        *("2026-12-01 17:00 CET", "2026-12-01 25:00", "2026-12-01 13pm", "next friday", "Q4", "0", "2026-13-45", ""),
        *(
            "thu 9:00",
            "9:00",
            "midnight",
            "tomorrow morning",
            "Tue 30 Nov 2026",
            "July 1",
            "31 Nov 2026",
            "in 3 months ago",
        ),
        *("in 0.5 days", "in 99 moons", "before friday", "friday 17", "30 Nov 26", "11-12-2026", "2026-W49", "fri sat"),
        *("2026-12-01 17:00+99:00", "2026-12-01 17:00 Mars/Olympus", "2026-12-01 17:00 ../etc/passwd", "9" * 5000),
    ],
)
def test_what_may_mean_two_times_or_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(MessageError) as refused:
        read_deadline(text, THURSDAY)
    assert refused.value.rule == "bad-time"
    assert "Europe/Berlin" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01", "2026-11-30T23:00:00.000Z"),
        ("tomorrow", "2026-11-26T23:00:00.000Z"),
        ("in 2 weeks", "2026-12-10T09:00:00.000Z"),
        ("mon 8:00", "2026-11-30T07:00:00.000Z"),
        ("in 1 day", "2026-11-27T09:00:00.000Z"),
        ("from friday", "2026-11-26T23:00:00.000Z"),
    ],
)
def test_a_day_on_which_something_begins_means_its_first_minute_and_in_a_day_this_time_of_the_day(
    text: str, moment: str
) -> None:
    assert read_beginning(text, THURSDAY) == moment


@pytest.mark.parametrize(
    "text", ["tonight", "EOD", "by eod", "end of day", "end of today", "end of the day", "end of tomorrow"]
)
def test_the_end_of_a_day_is_a_deadline_and_no_time_for_something_to_begin(text: str) -> None:
    assert read_deadline(text, THURSDAY).endswith("T22:59:59.000Z")
    with pytest.raises(MessageError, match="the beginning of that day or the end of it"):
        read_beginning(text, THURSDAY)
    assert read_beginning("tonight 20:00", THURSDAY) == "2026-11-26T19:00:00.000Z"


@pytest.mark.parametrize("head", ["start: tonight", "begin: in 2 days 4h", "scheduled_for: thursday"])
def test_a_beginning_in_the_words_of_another_tool_that_may_mean_two_times_does_not_begin_at_once(head: str) -> None:
    place = Place("beta", calendar=THURSDAY, now=THURSDAY.now)
    with pytest.raises(MessageError, match="may mean") as refused:
        parse_message(f"---\n{head}\n---\nPaint.\n".encode(), "paint.md", place=place)
    assert (refused.value.rule, refused.value.field) == ("bad-time", head.partition(":")[0])


@pytest.mark.parametrize("text", ["in 2 days 4h", "in 1 day 12h", "2 weeks, 3 h", "in 2 days 4:30 h"])
def test_hours_after_days_are_not_taken_for_a_time_of_the_day(text: str) -> None:
    with pytest.raises(MessageError, match="so many hours more, or a time of that day"):
        read_deadline(text, THURSDAY)
    assert read_deadline("in 2 days at 4h", THURSDAY) == "2026-11-28T03:00:00.000Z"


def test_each_zone_is_known_in_any_case_of_letters() -> None:
    for name in sorted(name for name in available_timezones() if "/" in name):
        there = instant(datetime(2026, 12, 1, 17), ZoneInfo(name))
        for said in (name, name.lower(), f"({name.upper()})"):
            assert read_deadline(f"2026-12-01 17:00 {said}", THURSDAY) == there
        assert read_repeat(f"daily at 07:00 {name}").zone == name


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("today 20:00 America/New_York", "2026-11-29T01:00:00.000Z"),
        ("today 20:00 -0500", "2026-11-29T01:00:00.000Z"),
        ("tomorrow 8:00 America/New_York", "2026-11-29T13:00:00.000Z"),
        ("in 2 days at 8:00 America/New_York", "2026-11-30T13:00:00.000Z"),
        ("mon 8:00 America/New_York", "2026-11-30T13:00:00.000Z"),
        ("20:00 America/New_York", "2026-11-29T01:00:00.000Z"),
        ("today 20:00", "2026-11-29T19:00:00.000Z"),
    ],
)
def test_a_day_with_a_zone_is_the_day_there(text: str, moment: str) -> None:
    night = Calendar("2026-11-28T23:30:00.000Z", ZoneInfo("Europe/Berlin"))  # there it is Sunday, and not in New York
    assert read_deadline(text, night) == moment


@pytest.mark.parametrize(
    "text", ["12 dec 1030", "dec 12 1030", "1030-12-12", "12.12.1030", "12/12/1030", "in 999 years"]
)
def test_a_year_that_nobody_means_is_refused(text: str) -> None:
    with pytest.raises(MessageError, match="is not a definite time"):
        read_deadline(text, THURSDAY)


def test_a_time_is_told_as_it_is_at_the_place_of_the_person() -> None:
    assert THURSDAY.told("2026-12-04T16:00:00.000Z") == "Fri 4 Dec 2026 17:00 CET"
    assert Calendar(THURSDAY.now, ZoneInfo("Asia/Kathmandu")).told(THURSDAY.now) == "Thu 26 Nov 2026 14:45 UTC+05:45"


def test_a_day_is_that_of_the_person_and_not_that_of_the_machine() -> None:
    late = Calendar("2026-11-26T23:30:00.000Z", ZoneInfo("Europe/Berlin"))  # there it is Friday already
    assert read_deadline("today", late) == "2026-11-27T22:59:59.000Z"
    assert read_deadline("today", Calendar(late.now, UTC)) == "2026-11-26T23:59:59.000Z"


@pytest.mark.parametrize(
    "zone",
    [
        "Europe/Berlin",
        *(
            pytest.param(zone, marks=pytest.mark.slow)
            for zone in ("America/New_York", "Australia/Lord_Howe", "America/St_Johns", "UTC")
        ),
    ],
)
def test_each_minute_of_a_year_means_one_time_and_later_ones_never_an_earlier_time(zone: str) -> None:
    place, minute, before = ZoneInfo(zone), datetime(2026, 1, 1), ""
    while minute.year == 2026:
        at = instant(minute, place)
        assert at >= before
        there = local_of(at, place).replace(tzinfo=None)
        assert there == minute or (there > minute and at == instant(there, place))  # that minute does not exist
        before, minute = at, minute + timedelta(minutes=10)
