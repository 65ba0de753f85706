"""The only wall clock. Everything else is told what time it is, so that a simulation can tell it anything."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from mailboxd.core.times import plus, to_epoch, to_text


class Clock(Protocol):
    """Tells the time as text: ISO-8601 UTC with milliseconds (`mailboxd.core.times`)."""

    def now(self) -> str: ...

    def monotonic(self) -> float:
        """Seconds that only ever grow, for timeouts within one process."""
        ...


JUMP = 5.0
"""Seconds by which the wall clock and the steady one may drift apart between two looks."""


@dataclass(slots=True)
class JumpWatch:
    """Notices that the wall clock was set, or that the machine slept: deadlines are moments of the wall clock."""

    _last: tuple[float, float] | None = None

    def look(self, now: str, monotonic: float) -> float:
        """Seconds by which the wall clock has jumped since the last look; 0.0 if it has not."""
        wall = to_epoch(now)
        before, self._last = self._last, (wall, monotonic)
        jump = 0.0 if before is None else (wall - before[0]) - (monotonic - before[1])
        return jump if abs(jump) > JUMP else 0.0


class SystemClock:
    """The machine's clock as it is. It may be set back: events are ordered by their number, never by their time."""

    def now(self) -> str:
        return to_text(time.time())

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class ManualClock:
    """A clock that moves only when it is told to, for simulations and tests."""

    text: str = "2026-01-01T00:00:00.000Z"

    def __post_init__(self) -> None:
        to_epoch(self.text)

    def now(self) -> str:
        return self.text

    def monotonic(self) -> float:
        return to_epoch(self.text)

    def advance(self, seconds: float) -> str:
        """Moves the clock on by `seconds` (a jump back if negative) and returns the new time."""
        self.text = plus(self.text, seconds)
        return self.text
