"""Deadlines in the words of people: a date, a weekday, `tomorrow`, `in 3 days`, a time with the name of a zone.

A day means its end, at the place of the person; a time of day without a zone is that of the person, too. What may mean
two things (`12/11/2026`, `thursday` on a Thursday, `end of week`) is refused and never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mailboxd.core.sanitize import excerpt
from mailboxd.core.times import to_epoch, to_text
from mailboxd.errors import MessageError

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_BEGINNING, _END = time(0), time(23, 59, 59)
_UNITS = {"minute": 60, "min": 60, "hour": 3600, "h": 3600}
_RELATIVE = {"today": 0, "tonight": 0, "eod": 0, "end of day": 0, "tomorrow": 1, "day after tomorrow": 2}
_IN = re.compile(r"(?:with)?in (?P<count>[0-9]{1,4}|an?|one) (?P<unit>minute|min|hour|h|day|week)s?")
_ISO = re.compile(r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})")
_DOTTED = re.compile(r"(?P<day>[0-9]{1,2})\. ?(?P<month>[0-9]{1,2})\. ?(?P<year>[0-9]{4})")
_NAMED = re.compile(
    r"(?:(?P<day>[0-9]{1,2})(?:st|nd|rd|th|\.)? (?P<name>[a-z]{3,9})\.?"
    r"|(?P<name2>[a-z]{3,9})\.? (?P<day2>[0-9]{1,2})(?:st|nd|rd|th)?),? (?P<year>[0-9]{4})"
)
_CLOCK = re.compile(
    r"(?:,? (?:at )?|t)(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]{1,9})?)?)?"
    r" ?(?P<half>am|pm|h|uhr)?(?P<zone>(?: ?z| ?utc| ?gmt| ?[+-][0-9]{2}:?[0-9]{2}| \(?[a-z_]+/[a-z_/+-]+\)?)?)"
)
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
HINT = (
    "Write a day or a time that can mean only one thing, like `2026-12-01`, `2026-12-01 17:00 Europe/Berlin`,"
    " `tomorrow`, `friday 17:00` or `in 3 days`."
)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The time at which a text was written (as in `core.times`), and the zone of who wrote it.

    `zone` None is the zone of this machine.
    """

    now: str
    zone: tzinfo | None = None

    @property
    def today(self) -> date:
        return datetime.fromtimestamp(to_epoch(self.now), UTC).astimezone(self.zone).date()

    def moment(self, day: date, at: time, zone: tzinfo | None = None) -> str:
        """The time of day `at` on `day`, in `zone` or the zone of who wrote it, as UTC."""
        place = zone or self.zone
        return to_text(datetime.combine(day, at, place).astimezone(UTC).timestamp())


def read_deadline(text: str, calendar: Calendar, of_day: time = _END) -> str:
    """The deadline that `text` names, as UTC with milliseconds; a day means its time `of_day`.

    Raises MessageError(`bad-time`).
    """
    said = " ".join(text.split()).casefold()
    try:
        if counted := _IN.fullmatch(said):
            return _counted(counted, calendar)
        day, rest = _day(said, calendar)
        if not rest:
            return calendar.moment(day, of_day)
        clock = _CLOCK.fullmatch(rest)
        if clock is None:
            raise ValueError(rest)
        return calendar.moment(day, _time(clock), _zone(clock["zone"].strip(" ()"), text))
    except (ValueError, OverflowError):
        raise MessageError("bad-time", f"{excerpt(text)} is not a definite time", HINT) from None


def read_beginning(text: str, calendar: Calendar) -> str:
    """The same for when something begins: a day means its beginning. Raises MessageError(`bad-time`)."""
    return read_deadline(text, calendar, _BEGINNING)


def _counted(found: re.Match[str], calendar: Calendar) -> str:
    count = int(found["count"]) if found["count"].isdigit() else 1
    if seconds := _UNITS.get(found["unit"]):
        return to_text(to_epoch(calendar.now) + count * seconds)
    return calendar.moment(calendar.today + timedelta(days=count * (7 if found["unit"] == "week" else 1)), _END)


def _day(said: str, calendar: Calendar) -> tuple[date, str]:
    """The day that a text begins with, and the rest of it. Raises ValueError."""
    for words, days in _RELATIVE.items():
        if said == words or said.startswith(words + " "):
            return calendar.today + timedelta(days=days), said[len(words) :]
    name = re.match(r"(?:by |on |this )?([a-z]{3,9})\b\.?", said)
    if name and (weekday := _index(name[1], _DAYS)) is not None:
        ahead = (weekday - calendar.today.weekday()) % 7
        if not ahead:
            raise ValueError("today, or in a week")
        return calendar.today + timedelta(days=ahead), said[name.end() :]
    for form in (_ISO, _DOTTED):
        if found := form.match(said):
            return date(int(found["year"]), int(found["month"]), int(found["day"])), said[found.end() :]
    if found := _NAMED.match(said):
        month = _index(found["name"] or found["name2"], _MONTHS)
        if month is not None:
            return date(int(found["year"]), month + 1, int(found["day"] or found["day2"])), said[found.end() :]
    raise ValueError(said)


def _index(word: str, names: tuple[str, ...]) -> int | None:
    """The position of a name, or of its abbreviation of three letters or more."""
    return next((at for at, name in enumerate(names) if len(word) >= 3 and name.startswith(word)), None)


def _time(clock: re.Match[str]) -> time:
    hour, half = int(clock["hour"]), clock["half"]
    if clock["minute"] is None and half is None:
        raise ValueError("a bare number")
    if half in ("am", "pm"):
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, int(clock["minute"] or 0), int(clock["second"] or 0))


def _zone(name: str, text: str) -> tzinfo | None:
    """The zone that a text names; None if it names none. Raises MessageError, ValueError."""
    if not name:
        return None
    if name in ("z", "utc", "gmt"):
        return UTC
    if offset := _OFFSET.fullmatch(name):
        return datetime.strptime("".join(offset.groups()), "%z").tzinfo
    try:
        # The names of zones are files, and their directories are named in upper case.
        return ZoneInfo("/".join("_".join(map(_capital, part.split("_"))) for part in name.split("/")))
    except (ZoneInfoNotFoundError, OSError):
        problem = f"{excerpt(text)} names a time zone that is not known here"
        raise MessageError("bad-time", problem, "Write a name like `Europe/Berlin`, or `UTC`.") from None


def _capital(word: str) -> str:
    small = ("of", "es", "au", "in")
    return "-".join(part if part in small else part.capitalize() for part in word.split("-"))
