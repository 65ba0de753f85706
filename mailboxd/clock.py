"""The only wall clock. All other code gets the time passed in, so that a simulation controls it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from mailboxd.core.times import plus, to_epoch, to_text


class Clock(Protocol):
    """Tells the time as text: ISO-8601 UTC with milliseconds (`mailboxd.core.times`)."""

    def now(self) -> str: ...

    def monotonic(self) -> float:
        """Seconds that never decrease, for timeouts within one process."""
        ...


JUMP = 5.0
"""Seconds by which the wall clock and the monotonic clock may differ between two calls."""


@dataclass(slots=True)
class JumpWatch:
    """Detects that the wall clock was set, or that the machine slept."""

    _last: tuple[float, float] | None = None

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
