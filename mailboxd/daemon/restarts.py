"""When a daemon that has ended is started again, by the rules of `systemd/user/mailboxd@.service`."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum, auto

from mailboxd.errors import EXIT_CONFIG, EXIT_LOCKED

PAUSE = 5.0
"""Seconds before it is started again (RestartSec)."""
MOST, WITHIN = 10, 600.0
"""Starts at most, within these seconds (StartLimitBurst, StartLimitIntervalSec)."""
_CLEAN = frozenset({0, *(-number for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE))})
"""What counts as an orderly end (SuccessExitStatus in systemd.service(5)); a negative number is a signal."""


class Then(Enum):
    """What follows the end of a daemon."""

    STOPPED = auto()
    """Nothing: somebody has stopped it."""
    AGAIN = auto()
    """It is started again after `PAUSE`."""
    LOCKED = auto()
    """It is started again once whoever holds its workspace has released it."""
    BROKEN = auto()
    """Nothing: no other start would help before a person has."""
    TOO_OFTEN = auto()
    """Nothing: it was started `MOST` times."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """The latest starts of one daemon, in seconds of the monotonic clock."""

    starts: tuple[float, ...] = ()

    def started(self, now: float) -> Restarts:
        return Restarts((*self._counted(now), now))

    def after(self, status: int, now: float) -> Then:
        """What follows its end with this exit status, or the negative number of a signal."""
        if status in _CLEAN:
            return Then.STOPPED
        if status == EXIT_LOCKED:
            return Then.LOCKED
        if status == EXIT_CONFIG:
            return Then.BROKEN
        return Then.AGAIN if len(self._counted(now + PAUSE)) < MOST else Then.TOO_OFTEN

    def _counted(self, now: float) -> tuple[float, ...]:
        return tuple(at for at in self.starts if at > now - WITHIN)
