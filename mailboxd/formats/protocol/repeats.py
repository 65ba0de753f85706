"""How work is repeated, in the words of people or as a cron line, and the times of such a rule.

Words of a calendar become a cron line, whose times cronsim finds: over both changes of the clock as Debian's cron does.
An interval counts from an anchor. What lacks its time of the day, or may mean two things, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice

from cronsim import CronSim, CronSimError

from mailboxd.core.local_time import instant, local_of
from mailboxd.core.sanitize import excerpt
from mailboxd.core.times import plus, to_epoch, to_text
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.deadlines import DAYS, ZONE, read_clock, zone_called

HINT = (
    "Write `daily at 07:00`, `weekdays at 18:00`, `every monday 8:00`, `monthly on the 1st at 9:00`, `every 2 h`, or a"
    " cron line like `0 7 * * 1-5`."
)
_MACROS = {
    "@hourly": "0 * * * *",
    "hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}
_FIELD = r"[0-9a-z*,/#-]+"
_CRON = re.compile(rf"(?:[0-9*,/-]+ ){{2}}{_FIELD}(?: {_FIELD}){{2}}")  # five words, like `mon to fri at 9am`, are none
_LONGEST = 366 * 86_400
_SHORTEST = 60
_NUMBERS = {word: number for number, word in enumerate(("one", "two", "three", "four", "five", "six"), 1)}
_COUNTED = re.compile(
    rf"every (?:(?P<count>[0-9]{{1,4}}|other|{'|'.join(_NUMBERS)}) ?)?"
    r"(?P<unit>minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)\b(?P<rest>.*)"
)
_ZONE = re.compile(rf"(?P<rest>.*\S) \(?(?P<zone>{ZONE}|utc|gmt)\)?")
_AT = re.compile(r"(?P<what>.*?)(?:^|,? )(?:at )?(?P<times>[0-9]{1,2}(?::[0-9]{2}| ?(?:am|pm|uhr|h\b)).*|noon)")
_FIRST = re.compile(r"(?:at )?(?P<times>[0-9]{1,2}(?::[0-9]{2} ?(?:am|pm)?| ?(?:am|pm))) (?P<what>[a-z].*)")
_MONTHLY = re.compile(
    r"(?:monthly|every month|each month)(?: on)? (?:the )?(?P<day>[0-9]{1,2}(?:st|nd|rd|th)?|last day)"
    r"|(?:on )?(?:the )?(?P<day2>[0-9]{1,2}(?:st|nd|rd|th)|last day) of (?:every|each|the) month"
)
_DAYLESS = frozenset({"weekly", "every week", "each week", "monthly", "every month", "each month"})
_EVERY_DAY = frozenset({"daily", "day", "every day", "each day", "nightly", "every night", "every morning"})


_DAY_WORDS = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|weekday|workday|day|week|month|year|morning|evening|night|hour)s?"
    r"|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|tage?|wochen?|monate?|jahr|morgen|abend|stunden?"
    r"|(?:lun|mar|mercre|jeu|vendre|same)dis?|dimanches?|jours?|semaines?|mois|ans?|matins?|soirs?"
    r"|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?|días?|semanas?|mes(?:es)?|años?|mañanas?|noches?"
    r"|(?:segunda|terça|quarta|quinta|sexta)(?:-feira)?s?|dias?|manhãs?"
    r"|(?:lune|marte|mercole|giove|vener)dì|sabato|domenica|giorn[oi]|settiman[ae]|mattin[ae]"
    r"|(?:maan|dins|woens|donder|vrij|zater|zon)dag|dagen|dag|weken|week|maand"
    r"|poniedziałek|dzień|tydzień|miesiąc|pondělí|úterý|středu|čtvrtek|pátek|den|týden|měsíc"
    r"|понедельник|вторник|среду|четверг|пятницу|день|неделю|месяц|понеділка|понеділок|дня|тижня|тиждень|місяця|місяць"
    r"|pazartesi|salı|çarşamba|perşembe|cuma|gün|hafta|ay"
)
_OFTEN = re.compile(
    r"(?:every|each|jede[nrsm]?|alle|chaque|tous les|toutes les|cada|todos los|todas las|todos os|todas as|todo|toda|"
    r"ogni|elke|iedere|każdy|każdego|co|každý|každé|každou|каждый|каждую|каждое|кожного|кожен|her)"
    rf" (?:(?:other|second|single|zweiten?|[0-9]{{1,3}}) )?(?:{_DAY_WORDS})\b"
    r"|(?:daily|nightly|weekly|monthly|hourly)(?= (?:at|on) |[,:.]|\Z)"
    r"|(?:täglich|wöchentlich|monatlich|stündlich|codziennie|ежедневно|еженедельно|щодня|щотижня|щопонеділка)\b"
    r"|每(?:天|日|周|週|月|年|星期)|毎(?:日|週|月|朝|年)|매(?:일|주|월|년)|हर (?:दिन|रोज|सप्ताह|हफ|महीने|सोमवार)"
    r"|كل (?:يوم|أسبوع|شهر|صباح)",
    re.IGNORECASE,
)


def often_said(text: str) -> str:
    """The words at the beginning of one of the first lines of `text` that say how often work is done; empty if none."""
    lines = islice(filter(None, (line.strip(" \t#*_>-") for line in text[:2_000].split("\n"))), 2)
    return next((found[0] for line in lines if (found := _OFTEN.match(line))), "")


@dataclass(frozen=True, slots=True)
class Rule:
    """How something is repeated: a cron line, every so many `seconds`, or every so many `days` at a time of the day."""

    cron: str = ""
    seconds: int = 0
    days: int = 0
    at: time = time(0)
    weekday: int | None = None
    """The day of the week of the first one, for `days`."""
    zone: str = ""
    """The zone that it names; empty = that of who wrote it."""

    def __str__(self) -> str:
        """In one line, as `rule_of` reads it back."""
        if self.cron:
            said = self.cron
        elif self.seconds:
            said = f"every {self.seconds} s"
        else:
            on = "" if self.weekday is None else f" on {DAYS[self.weekday]}"
            said = f"every {self.days} days{on} at {self.at:%H:%M}"
        return said


def rule_of(stored: str) -> Rule:
    """The rule that `str` has written."""
    if found := re.fullmatch(r"every ([0-9]+) s", stored):
        return Rule(seconds=int(found[1]))
    if found := re.fullmatch(r"every ([0-9]+) days(?: on ([a-z]+))? at ([0-9]{2}):([0-9]{2})", stored):
        weekday = DAYS.index(found[2]) if found[2] else None
        return Rule(days=int(found[1]), weekday=weekday, at=time(int(found[3]), int(found[4])))
    return Rule(cron=stored)


def read_repeat(text: str) -> Rule:
    """The rule that `text` means. Raises MessageError(`bad-repeat`)."""
    said = " ".join(text[:200].split()).casefold().strip(" .")
    zone = ""
    if zoned := _ZONE.fullmatch(said):
        said, zone = zoned["rest"], _zone_called(zoned["zone"], text)
    try:
        rule = _read(said)
        if rule.cron:
            next(_crons(rule.cron, datetime(2026, 1, 1, tzinfo=UTC)))
    except _Untimed as error:
        problem = f"{excerpt(text)} does not say at what time of the day"
        like = f"{error} at 07:00 {zone}".rstrip()
        raise MessageError("bad-repeat", problem, f"Write `{like}`, with your time.") from None
    except _Dayless as error:
        like = f"{error} {zone}".rstrip()
        problem = f"{excerpt(text)} does not say on which day"
        raise MessageError("bad-repeat", problem, f"Write `{like}`, with your day.") from None
    except (ValueError, CronSimError, StopIteration):
        raise MessageError("bad-repeat", f"{excerpt(text)} does not say how it is repeated", HINT) from None
    return Rule(rule.cron, rule.seconds, rule.days, rule.at, rule.weekday, zone)


class _Untimed(ValueError):
    """A rule without a time of the day."""


class _Dayless(ValueError):
    """A rule of weeks or months without its day; the message is an example with one."""


def _zone_called(name: str, text: str) -> str:
    """The name of a zone in its own spelling. Raises MessageError."""
    return "UTC" if name in ("utc", "gmt") else zone_called(name, text).key or "UTC"


def _read(said: str) -> Rule:
    """Raises ValueError, CronSimError."""
    if cron := _MACROS.get(said):
        return Rule(cron)
    if _CRON.fullmatch(said) and not said.startswith("every"):
        return Rule(said)
    if counted := _COUNTED.fullmatch(said):
        word, unit, rest = counted["count"] or "1", counted["unit"], counted["rest"].strip()
        count = 2 if word == "other" else _NUMBERS.get(word) or int(word)
        if unit[0] in "mh":
            return _interval(count * (60 if unit[0] == "m" else 3600), rest)
        if unit[0] == "d" and count == 1:
            return _by_calendar("daily", rest, said)
        return _in_days(count, unit, rest, said)
    if other := re.fullmatch(r"every other ([a-z]+)\b(.*)", said):
        return Rule(days=14, weekday=_day(other[1]), at=_one_time(other[2], said))
    if first := _FIRST.fullmatch(said):
        return _by_calendar(first["what"], first["times"], said)
    found = _AT.fullmatch(said)
    return _by_calendar(found["what"] if found else said, found["times"] if found else "", said)


def _interval(seconds: int, rest: str) -> Rule:
    if rest or not _SHORTEST <= seconds <= _LONGEST:
        raise ValueError(rest)
    return Rule(seconds=seconds)


def _in_days(count: int, unit: str, rest: str, said: str) -> Rule:
    """Every so many days or weeks, perhaps on a day of the week."""
    weekday = None
    if unit[0] == "w":
        count *= 7
        on = re.fullmatch(r"(?:on )?([a-z]+)\b(.*)", rest)
        if on is None or on[1] in ("at", "noon"):
            raise _dayless(said.removesuffix(rest).strip(), "monday", rest)
        weekday, rest = _day(on[1]), on[2]
    if not 1 <= count <= 366:
        raise ValueError(count)
    return Rule(days=count, weekday=weekday, at=_one_time(rest, said))


def _dayless(what: str, day: str, times: str) -> ValueError:
    """The error for a rule that lacks its day, and perhaps its time of the day, too."""
    times = times.strip().removeprefix("at ").strip()
    return _Dayless(f"{what} on {day} at {times}") if times else _Untimed(f"{what} on {day}")


def _one_time(rest: str, said: str) -> time:
    text = rest.strip().removeprefix("at ").strip()
    if not text:
        raise _Untimed(said)
    return read_clock(text)


def _by_calendar(what: str, times: str, said: str) -> Rule:
    """A cron line of days and times of the day."""
    what = what.strip(" ,")
    if what in _DAYLESS:
        raise _dayless(what, "the 1st" if "month" in what else "monday", times)
    days = _days(what)
    if not times.strip():
        raise _Untimed(said.strip())
    at = [read_clock(one) for one in re.split(r",? and |, ?| & ", times.strip().removeprefix("at ")) if one.strip()]
    minutes = {one.minute for one in at}
    if len(minutes) != 1 or any(one.second for one in at):
        raise ValueError("times with different minutes")
    hours = ",".join(str(hour) for hour in sorted({one.hour for one in at}))
    return Rule(f"{minutes.pop()} {hours} {days}")


def _days(what: str) -> str:
    """The last three fields of a cron line. Raises ValueError."""
    if what in _EVERY_DAY:
        return "* * *"
    if monthly := _MONTHLY.fullmatch(what):
        day = monthly["day"] or monthly["day2"]
        if day == "last day":
            return "L * *"
        number = int(re.sub("[a-z]+", "", day))
        if number > 28:
            raise ValueError("a day that not every month has")
        return f"{number} * *"
    bare = re.sub(r"^(?:weekly|every week|each week)(?: on)? ", "", what)
    bare = re.sub(r"^(?:every|each|on) ", "", bare)
    if bare in ("weekday", "weekdays", "workday", "workdays", "working day", "working days"):
        return "* * 1-5"
    if bare in ("weekend", "weekends"):
        return "* * 0,6"
    numbers = set[int]()
    for part in re.split(r",? and |, ?| & ", bare):
        ends = [_day(name) for name in re.split(r" ?(?:-|–|\bto\b|\bthrough\b) ?", part.strip())]
        if len(ends) > 2:
            raise ValueError(part)
        numbers |= {day % 7 for day in range(ends[0], ends[-1] + 1 + (7 if ends[-1] < ends[0] else 0))}
    return "* * " + ",".join(str((day + 1) % 7) for day in sorted(numbers))


def _day(word: str) -> int:
    """The number of a day of the week, Monday is 0. Raises ValueError."""
    bare = word.removeprefix("on ").rstrip(".")
    bare = bare.removesuffix("s") if bare.endswith("days") else bare
    for number, name in enumerate(DAYS):
        if len(bare) >= 3 and name.startswith(bare):
            return number
    raise ValueError(word)


def _crons(line: str, start: datetime, *, back: bool = False) -> Iterator[datetime]:
    return CronSim(line, start, reverse=back)


@dataclass(frozen=True, slots=True)
class RuleTimes:
    """The times of a rule in a zone, as in `core.times`; those of intervals count from `anchor`, which is the first."""

    rule: Rule
    zone: tzinfo
    anchor: str

    def after(self, at: str) -> str:
        """The first one after `at`."""
        if self.rule.cron:
            return next(one for one in self._scheduled(at) if one > at)
        if self.rule.seconds:
            steps = int((to_epoch(at) - to_epoch(self.anchor)) // self.rule.seconds) + 1
            return plus(self.anchor, max(steps, 0) * self.rule.seconds)
        day = self._first_day
        ahead = (local_of(at, self.zone).date() - day).days // self.rule.days - 1
        day += timedelta(days=max(ahead, 0) * self.rule.days)
        while (found := self._on(day)) <= at or found < self.anchor:
            day += timedelta(days=self.rule.days)
        return found

    def before(self, at: str) -> str:
        """The last one before `at`; the first of all if there is none."""
        if self.rule.cron:
            return next(one for one in self._scheduled(at, back=True) if one < at)
        if self.rule.seconds:
            steps = -int((to_epoch(self.anchor) - to_epoch(at)) // self.rule.seconds) - 1
            return plus(self.anchor, max(steps, 0) * self.rule.seconds)
        day = self._first_day
        day += timedelta(days=((local_of(at, self.zone).date() - day).days // self.rule.days + 1) * self.rule.days)
        while self._on(day) >= at and day > self._first_day:
            day -= timedelta(days=self.rule.days)
        return self._on(day)

    def _scheduled(self, at: str, *, back: bool = False) -> Iterator[str]:
        # Near a change of the clock it begins some hours earlier or later: cronsim reads a local time there as one
        start, aside = local_of(at, self.zone), local_of(plus(at, 10_800.0 if back else -10_800.0), self.zone)
        other = local_of(plus(at, -10_800.0 if back else 10_800.0), self.zone)
        if not start.utcoffset() == aside.utcoffset() == other.utcoffset():
            start = aside
        for one in _crons(self.rule.cron, start, back=back):
            yield to_text(one.timestamp())

    @property
    def _first_day(self) -> date:
        day = local_of(self.anchor, self.zone).date()
        if self.rule.weekday is not None:
            day += timedelta(days=(self.rule.weekday - day.weekday()) % 7)
        return day

    def _on(self, day: date) -> str:
        return instant(datetime.combine(day, self.rule.at), self.zone)


def first_after(times: RuleTimes, now: str, not_before: str | None) -> str:
    """The first run: after now, and not before a time that was ordered."""
    if not_before is None or not_before <= now:
        return times.after(now)
    return times.after(plus(not_before, -0.001))
