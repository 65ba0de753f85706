"""The only wall clock. All other code gets the time passed in, so that a simulation controls it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as time_
from typing import Protocol

from mailboxd.core.times import plus, to_epoch, to_text


class Clock(Protocol):
    """Tells the time as text: ISO-8601 UTC with milliseconds (`mailboxd.core.times`)."""

    def now(self) -> str: ...

    def monotonic(self) -> float:
        """Seconds that never decrease, for timeouts within one process."""
        ...


@dataclass(frozen=True, slots=True)
class Day:
    """A calendar day at some place: its name, `2026-11-28`, and its bounds in UTC. It may have 23 or 25 hours."""

    name: str
    start: str
    end: str


def day_of(now: str, zone: tzinfo | None = None) -> Day:
    """The day of a time in this zone; None: that of this machine.

    A midnight that does not exist is the moment of the change, of one that occurs twice the first counts.
    """
    today = datetime.fromtimestamp(to_epoch(now), UTC).astimezone(zone).date()

    def midnight(day: date) -> str:
        return to_text(datetime.combine(day, time_(0), zone).astimezone(UTC).timestamp())

    return Day(today.isoformat(), midnight(today), midnight(today + timedelta(days=1)))


JUMP = 5.0
"""Seconds by which the wall clock and the monotonic clock may differ between two calls."""


@dataclass(slots=True)
class JumpWatch:
    """Detects that the wall clock was set, or that the machine slept."""

    _last: tuple[float, float] | None = None

    @property
    def has_begun(self) -> bool:
        return self._last is not None

    def look(self, now: str, monotonic: float) -> float:
        """Seconds by which the wall clock jumped since the last call; 0.0 if it did not."""
        wall = to_epoch(now)
        before, self._last = self._last, (wall, monotonic)
        jump = 0.0 if before is None else (wall - before[0]) - (monotonic - before[1])
        return jump if abs(jump) > JUMP else 0.0


class SystemClock:
    """The machine's clock. It may be set back: events are ordered by their number, not by their time."""

    def now(self) -> str:
        return to_text(time.time())

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class ManualClock:
    """A clock that moves only by `advance`, for simulations and tests."""

    text: str = "2026-01-01T00:00:00.000Z"

    def __post_init__(self) -> None:
        to_epoch(self.text)

    def now(self) -> str:
        return self.text

    def monotonic(self) -> float:
        return to_epoch(self.text)

    def advance(self, seconds: float) -> str:
        """Move the clock by `seconds`, back if negative; returns the new time."""
        self.text = plus(self.text, seconds)
        return self.text
