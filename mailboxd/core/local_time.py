"""Local times as instants, right over both changes of the clock.

A local time that the change to summer time skips means the first minute after it; one that occurs twice, when the clock
is set back, means the first of both unless the second is asked for.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from mailboxd.core.times import to_epoch, to_text

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def instant(local: datetime, zone: tzinfo | None, *, second: bool = False) -> str:
    """The time, as in `core.times`, that a naive local time means in `zone`; None is the zone of the machine.

    `second`: of a time that occurs twice, the second one.
    Raises ValueError, OverflowError for years that cannot be written.
    """
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    other = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) != local.replace(fold=0):
        return to_text(_change_between(other, first, zone).timestamp())
    return to_text((other if second else first).timestamp())


def _change_between(early: datetime, late: datetime, zone: tzinfo | None) -> datetime:
    """When the zone's offset changes between two instants."""
    before = early.astimezone(zone).utcoffset()
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) / 2
        middle = middle.replace(microsecond=0) if middle.replace(microsecond=0) > early else middle
        if middle.astimezone(zone).utcoffset() == before:
            early = middle
        else:
            late = middle
    return late


def local_of(at: str, zone: tzinfo | None) -> datetime:
    """The time `at` (as in `core.times`) in `zone`, with its offset. Raises ValueError."""
    return datetime.fromtimestamp(to_epoch(at), UTC).astimezone(zone)


def told(at: str, zone: tzinfo | None) -> str:
    """A time for people, in their zone: `Fri 4 Dec 2026 17:00 CET`; with seconds where there are some."""
    local = local_of(at, zone)
    clock = f"{local:%H:%M}" if not local.second else f"{local:%H:%M:%S}"
    name = local.tzname() or ""
    if name[:1] in "+-":  # a zone without a name of its own
        name = f"UTC{name[:3]}" + (f":{name[3:]}" if name[3:] else "")
    return f"{_DAYS[local.weekday()]} {local.day} {_MONTHS[local.month - 1]} {local.year:04d} {clock} {name}".rstrip()
