"""Dates and times in the words of people: a date, a weekday, `tomorrow`, `in 3 days`, a time with the name of a zone.

A day means its end, or for a beginning its first minute, at the place of the person; a time of day without a zone is
that of the person, too. What may mean two things (`12/11/2026`, `thursday` on a Thursday, `end of week`) is refused and
never guessed. That is why no library reads them: those for human dates guess, and take the month for the day.
"""

from __future__ import annotations

import calendar as months
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from mailboxd.core.local_time import instant, local_of, told
from mailboxd.core.sanitize import excerpt
from mailboxd.core.times import plus
from mailboxd.errors import MessageError

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_BEGINNING, _END = time(0), time(23, 59, 59)
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_RELATIVE = {
    **dict.fromkeys(("today", "tonight", "eod", "end of day", "end of today", "end of the day"), 0),
    **dict.fromkeys(("tomorrow", "end of tomorrow"), 1),
    "day after tomorrow": 2,
    "the day after tomorrow": 2,
}
_ENDS = frozenset({"tonight", *(words for words in _RELATIVE if words.startswith(("eod", "end of")))})
"""Of these, the words for the end of a day, which is no time for something to begin."""
_HALVES = ("half an hour", "half hour", "half a day", "a half hour")
_COUNT = rf"(?P<count>[0-9]{{1,4}}(?:\.[0-9]{{1,2}})?|an?|{'|'.join(_NUMBERS)})"
_UNIT = r"(?P<unit>minutes?|mins?|hours?|hrs?|h|days?|d|weeks?|wks?|w|months?|years?)"
_IN = re.compile(rf"(?:(?:with)?in )?{_COUNT} ?{_UNIT}(?: from (?:now|today))?\b")
_ISO = re.compile(r"(?P<year>[0-9]{4})(?P<sep>[-/.])(?P<month>[0-9]{1,2})(?P=sep)(?P<day>[0-9]{1,2})(?![0-9])")
_DOTTED = re.compile(r"(?P<day>[0-9]{1,2})\. ?(?P<month>[0-9]{1,2})\.(?: ?(?P<year>[0-9]{4})(?![0-9:]))?")
_SLASHED = re.compile(r"(?P<a>[0-9]{1,2})(?P<sep>[/-])(?P<b>[0-9]{1,2})(?P=sep)(?P<year>[0-9]{4})(?![0-9])")
_NAMED = re.compile(
    r"(?:(?P<day>[0-9]{1,2})(?:st|nd|rd|th|\.)?[ -](?:of )?(?P<name>[a-z]{3,9})\.?"
    r"|(?P<name2>[a-z]{3,9})\.? (?P<day2>[0-9]{1,2})(?:st|nd|rd|th)?(?![0-9:]))"
    r"(?:,? ?-?(?P<year>[0-9]{4})(?![0-9:]))?"
)
ZONE = r"[a-z_]+/[a-z][a-z0-9_/+-]*"
"""The name of a zone in small letters, as a part of a pattern."""
_CLOCK = re.compile(
    r"(?:,? (?:at |by )?|t)(?:(?P<noon>noon|midday)|(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:\.[0-9]{1,9})?)?)?"
    r" ?(?P<half>am|pm|a\.m\.|p\.m\.|h|uhr)?)"
    rf"(?P<zone>(?: ?z| ?utc| ?gmt| ?[+-][0-9]{{2}}:?[0-9]{{2}}| \(?{ZONE}\)?)?)"
)
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
_MONTH_END = re.compile(r"(?:the )?(?:end of (?:the |this )?month|eom)\b")
_YEAR_END = re.compile(r"(?:the )?(?:end of (?:the |this )?year|eoy)\b")
_BEFORE = re.compile(r"(?:by |on |this |until |till |due |from |at )+")
_NEAR = 183
"""Days within which a date without a year is the coming one."""
HINT = (
    "Write a day or a time that can mean only one thing, like `2026-12-01`, `2026-12-01 17:00 Europe/Berlin`,"
    " `tomorrow`, `friday 17:00` or `in 3 days`."
)


class AmbiguousTime(MessageError):
    """A text names a time, and two of them."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The time at which a text was written (as in `core.times`), and the zone of who wrote it.

    `zone` None is the zone of this machine.
    """

    now: str
    zone: tzinfo | None = None

    @property
    def here(self) -> datetime:
        """The local time at which it was written."""
        return local_of(self.now, self.zone)

    @property
    def today(self) -> date:
        return self.here.date()

    def moment(self, day: date, at: time) -> str:
        """The time of day `at` on `day`, in the zone of who wrote it, as UTC."""
        return instant(datetime.combine(day, at), self.zone)

    def told(self, at: str) -> str:
        """A time as it is for who wrote the text."""
        return told(at, self.zone)


def read_deadline(text: str, calendar: Calendar, of_day: time = _END) -> str:
    """The deadline that `text` names, as UTC with milliseconds; a day means its time `of_day`.

    Raises MessageError(`bad-time`).
    """
    said = " ".join(text[:200].split()).casefold()
    try:
        if said.removeprefix("in ") in _HALVES:
            return plus(calendar.now, 43_200 if "day" in said else 1_800)
        if counted := _IN.match(said):
            return _counted(counted, said[counted.end() :], calendar, of_day, text)
        if clock := _CLOCK.fullmatch(" " + _BEFORE.sub("", said, count=1)):
            return _today(clock, calendar, text)
        day, rest = _day(said, calendar)
        if not rest:
            if of_day != _END and _BEFORE.sub("", said, count=1) in _ENDS:
                raise _Ambiguous("the beginning of that day or the end of it")
            return calendar.moment(day, of_day)
        clock = _clock(rest)
        there = _there(clock, calendar, text)
        return there.moment(_day(said, there)[0], clock_time(clock))
    except _Ambiguous as error:
        raise AmbiguousTime("bad-time", f"{excerpt(text)} may mean {error}", HINT) from None
    except (ValueError, OverflowError):
        raise MessageError("bad-time", f"{excerpt(text)} is not a definite time", HINT) from None


def read_beginning(text: str, calendar: Calendar) -> str:
    """The same for when something begins: a day means its beginning. Raises MessageError(`bad-time`)."""
    return read_deadline(text, calendar, _BEGINNING)


class _Ambiguous(ValueError):
    """A text has two meanings, which are its message."""


def _today(clock: re.Match[str], calendar: Calendar, text: str) -> str:
    """A time of day alone: today's, if that is to come."""
    there = _there(clock, calendar, text)
    at = there.moment(there.today, clock_time(clock))
    if at <= calendar.now:
        raise _Ambiguous("today, when it is over, or tomorrow")
    return at


def _counted(found: re.Match[str], rest: str, calendar: Calendar, of_day: time, text: str) -> str:
    """So many units from now; days and longer ones count to a day, whose time may follow."""
    word, unit = found["count"], found["unit"]
    count = 1.0 if word in ("a", "an") else _NUMBERS.index(word) + 1 if word in _NUMBERS else float(word)
    if seconds := 60 if unit.startswith("mi") else 3600 if unit[0] == "h" else 0:
        if rest:
            raise ValueError(rest)
        return plus(calendar.now, count * seconds)
    if count != int(count):
        raise ValueError("a part of a day")
    if not rest:  # what is to begin in a day does not begin at midnight
        day = _later(calendar.today, int(count), unit)
        return calendar.moment(day, of_day if of_day == _END else calendar.here.time())
    clock = _clock(rest)
    if clock["half"] == "h" and not rest.lstrip(" ,").startswith(("at ", "by ")):
        raise _Ambiguous("so many hours more, or a time of that day")
    there = _there(clock, calendar, text)
    return there.moment(_later(there.today, int(count), unit), clock_time(clock))


def _clock(rest: str) -> re.Match[str]:
    """The time of day that ends a text. Raises ValueError."""
    clock = _CLOCK.fullmatch(rest)
    if clock is None:
        raise ValueError(rest)
    return clock


def _there(clock: re.Match[str], calendar: Calendar, text: str) -> Calendar:
    """The calendar of the zone that stands behind a time of day: `today` is today there. Raises MessageError."""
    zone = _zone(clock["zone"].strip(" ()"), text)
    return calendar if zone is None else replace(calendar, zone=zone)


def _later(day: date, count: int, unit: str) -> date:
    if unit[0] in "dw":
        return day + timedelta(days=count * (7 if unit[0] == "w" else 1))
    ahead = day.year * 12 + day.month - 1 + count * (12 if unit[0] == "y" else 1)
    return date(_near(ahead // 12), ahead % 12 + 1, day.day)  # a day that the month does not have is refused


def _day(said: str, calendar: Calendar) -> tuple[date, str]:
    """The day that a text begins with, and the rest of it. Raises ValueError."""
    if before := _BEFORE.match(said):
        said = said[before.end() :]
    today = calendar.today
    for words, days in _RELATIVE.items():
        if said == words or said.startswith((words + " ", words + ",")):
            return today + timedelta(days=days), said[len(words) :]
    if found := _MONTH_END.match(said):
        return today.replace(day=months.monthrange(today.year, today.month)[1]), said[found.end() :]
    if found := _YEAR_END.match(said):
        return date(today.year, 12, 31), said[found.end() :]
    name = re.match(r"([a-z]{3,9})\b\.?", said)
    weekday = _index(name[1], DAYS) if name else None
    if name is None or weekday is None:
        return _date(said, today)
    rest = said[name.end() :]
    if dated := re.match(r",? (?=[0-9]{1,4}[-./ ]|[0-9]{1,2}(?:st|nd|rd|th)\b|[a-z]{3,9}\.? [0-9])", rest):
        day, rest = _date(rest[dated.end() :], today)
        if day.weekday() != weekday:
            raise _Ambiguous(f"the {DAYS[weekday].title()} or the date, which is a {DAYS[day.weekday()].title()}")
        return day, rest
    ahead = (weekday - today.weekday()) % 7
    if not ahead:
        clock = _CLOCK.fullmatch(rest)
        if clock is None or clock["zone"] or clock_time(clock) <= calendar.here.time():
            raise _Ambiguous("today, or in a week")
    return today + timedelta(days=ahead), rest


def _date(said: str, today: date) -> tuple[date, str]:
    """The date that a text begins with, and the rest of it. Raises ValueError."""
    for form in (_ISO, _DOTTED):
        if found := form.match(said):
            return _in_year(found["year"], int(found["month"]), int(found["day"]), today), said[found.end() :]
    if found := _SLASHED.match(said):
        first, second = int(found["a"]), int(found["b"])
        if first <= 12 and second <= 12 and first != second:
            one, other = (f"{n} {_MONTHS[m - 1].title()}" for n, m in ((first, second), (second, first)))
            raise _Ambiguous(f"{one} or {other}")
        day, month = max(first, second), min(first, second)
        return date(_near(int(found["year"])), month, day), said[found.end() :]
    if found := _NAMED.match(said):
        number = _index(found["name"] or found["name2"], _MONTHS)
        if number is not None:
            day = int(found["day"] or found["day2"])
            return _in_year(found["year"], number + 1, day, today), said[found.end() :]
    raise ValueError(said)


def _near(year: int) -> int:
    """A year that a person may mean; `12 dec 1030` is none. Raises ValueError."""
    if not 1970 <= year <= 2200:
        raise ValueError(year)
    return year


def _in_year(year: str | None, month: int, day: int, today: date) -> date:
    """The date; without a year the coming one, if that is near."""
    if year:
        return date(_near(int(year)), month, day)
    found = date(today.year, month, day)
    if found < today:
        found = date(today.year + 1, month, day)
    if (found - today).days > _NEAR:
        raise _Ambiguous(f"a day of {found.year - 1} or of {found.year}")
    return found


def _index(word: str, names: tuple[str, ...]) -> int | None:
    """The position of a name, or of its abbreviation of three letters or more."""
    if word == "sept":
        word = "sep"
    return next((at for at, name in enumerate(names) if len(word) >= 3 and name.startswith(word)), None)


def clock_time(clock: re.Match[str]) -> time:
    """The time of day that `_CLOCK` found. Raises ValueError."""
    if clock["noon"]:
        return time(12)
    hour, half = int(clock["hour"]), (clock["half"] or "").replace(".", "")
    if clock["minute"] is None and not half:
        raise ValueError("a bare number")
    if half in ("am", "pm"):
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, int(clock["minute"] or 0), int(clock["second"] or 0))


def read_clock(text: str) -> time:
    """A time of day without a zone, like `7:00`, `7am` or `noon`. Raises ValueError."""
    clock = _CLOCK.fullmatch(f" {text.strip().casefold()}")
    if clock is None or clock["zone"]:
        raise ValueError(text)
    return clock_time(clock)


def _zone(name: str, text: str) -> tzinfo | None:
    """The zone that a text names; None if it names none. Raises MessageError, ValueError."""
    if not name:
        return None
    if name in ("z", "utc", "gmt"):
        return UTC
    if offset := _OFFSET.fullmatch(name):
        return datetime.strptime("".join(offset.groups()), "%z").tzinfo
    return zone_called(name, text)


def zone_called(name: str, text: str) -> ZoneInfo:
    """The zone of a name in small letters, which `text` has. Raises MessageError(`bad-time`)."""
    try:
        return ZoneInfo(_zones()[name])
    except (KeyError, ZoneInfoNotFoundError, OSError):
        problem = f"{excerpt(text)} names a time zone that is not known here"
        raise MessageError("bad-time", problem, "Write a name like `Europe/Berlin`, or `UTC`.") from None


@cache
def _zones() -> dict[str, str]:
    """The zones that are known here, by their names in small letters."""
    return {name.casefold(): name for name in available_timezones()}
