"""Deadlines as people write them: what can mean one thing only is read, everything else is refused."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from mailboxd.errors import MessageError
from mailboxd.protocol.deadlines import Calendar, read_deadline

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
    ],
)
def test_what_can_mean_one_time_only_is_read(text: str, moment: str) -> None:
    assert read_deadline(text, THURSDAY) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("thursday", "11/12/2026", "end of week", "asap", "soon", "december", "2026-02-30", "2026-12-04 17", "17"),
        *("2026-12-01 17:00 CET", "2026-12-01 25:00", "2026-12-01 13pm", "next friday", "Q4", "0", "2026-13-45", ""),
        *("2026-12-01 17:00+99:00", "2026-12-01 17:00 Mars/Olympus", "2026-12-01 17:00 ../etc/passwd", "9" * 5000),
    ],
)
def test_what_may_mean_two_times_or_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(MessageError) as refused:
        read_deadline(text, THURSDAY)
    assert refused.value.rule == "bad-time"
    assert "Europe/Berlin" in refused.value.hint


def test_a_day_is_that_of_the_person_and_not_that_of_the_machine() -> None:
    late = Calendar("2026-11-26T23:30:00.000Z", ZoneInfo("Europe/Berlin"))  # there it is Friday already
    assert read_deadline("today", late) == "2026-11-27T22:59:59.000Z"
    assert read_deadline("today", Calendar(late.now, UTC)) == "2026-11-26T23:59:59.000Z"
