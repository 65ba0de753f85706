"""What the next round looks at, and when one looks without being asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mailboxd.clock import Clock
from mailboxd.workspace.taskfiles import Look

_DEAR = 0.02
"""Seconds that a look at tasks/ takes from which on it is followed by a pause of `_SHARE` times its length."""
_SHARE = 50.0
_LATEST = 30.0
_SOONEST = 0.02
_SOON = 1 / 3
"""Part of the time between two looks by which one comes early when a timer has ended the sleep anyway."""


@dataclass(slots=True)
class Looks:
    """What the next round looks at, and when one looks without being asked, on the monotonic clock.

    tasks/ may be large: it is left out of a look for which only mail was heard, and for a while after a look at it that
    was dear, for we hear of what we make there ourselves. By the timer both are looked at.
    """

    mail: bool = True
    tasks: bool = True
    at: float = 0.0
    tasks_at: float = 0.0
    tasks_from: float = 0.0
    """Before that moment nothing that was heard is a reason to look at tasks/; 0: there is no such moment."""
    wait_until: float | None = None
    """When a file that waits may be ready."""
    awake_by: float = float("inf")
    """Who wakes later than that was stopped: much may have come meanwhile, and it counts before the clock does."""
    _soon: float = 0.0

    @property
    def next(self) -> float:
        """When it is time, whatever was heard."""
        at = min(self.at, self.tasks_at)
        if self.tasks and self.tasks_from:
            at = min(at, self.tasks_from)
        return at if self.wait_until is None else min(at, self.wait_until)

    def is_due(self, mono: float) -> bool:
        """Whether this round looks."""
        if mono >= self.next or mono > self.awake_by:
            self.everywhere()
        return self.mail

    def everywhere(self) -> None:
        self.mail = self.tasks = True
        self.tasks_from = 0.0

    def at_tasks(self, clock: Clock, look: Callable[[], Look]) -> Look:
        """What a look at tasks/ finds, if one is wanted now."""
        begun = clock.monotonic()
        if not self.tasks or begun < self.tasks_from:
            return Look()
        seen = look()
        ended = clock.monotonic()
        spent = ended - begun
        is_dear = spent >= _DEAR and not seen.truncated  # else the rest of it is looked at first
        self.tasks_from = ended + min(spent * _SHARE, _LATEST) if is_dear else 0.0
        # a file that waits is looked at each time, or the moment at which it is ready would be forgotten
        self.tasks = seen.truncated or seen.look_again is not None
        return seen

    def rest(self, mono: float, seconds: float) -> None:
        """The next look without being asked, at what this one looks at, is so many seconds away."""
        self.at, self._soon = mono + seconds, seconds * _SOON
        self.tasks_at = self.at if self.tasks else self.tasks_at

    def wait(self, mono: float, seconds: list[float]) -> None:
        """In so many seconds a file may be ready; the next look is when the first of them is."""
        if seconds:
            self.wait_until = mono + max(min(seconds), _SOONEST)

    def by_timer(self, mono: float) -> None:
        """A timer has ended the sleep: what is due soon comes now, or it would end the next sleep early."""
        if mono >= min(self.at, self.tasks_at) - self._soon:
            self.everywhere()

    def heard(self, more: bool) -> None:
        """Something happened; `more`: perhaps not in the inbox alone."""
        self.mail, self.tasks = True, self.tasks or more
