"""When the inbox and tasks/ are scanned: after a notification, when a deferred file may be ready, and by a timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mailboxd.formats.mailbox.task_files import TaskFileChanges
from mailboxd.host.clock import Clock

_SLOW_SCAN = 0.02
"""A scan of tasks/ that takes longer, in seconds, is followed by a pause of `_PAUSE_FACTOR` times its length."""
_PAUSE_FACTOR = 50.0
_LONGEST_PAUSE = 30.0
_SHORTEST_WAIT = 0.02
_EARLY = 1 / 3
"""Fraction of the rescan interval by which a scan may be early if another timer has ended the sleep."""


@dataclass(slots=True)
class ScanSchedule:
    """Which directories to scan in the next round, and when to scan without a notification (monotonic clock).

    tasks/ may be large. It is skipped if only mail arrived, and for a while after a slow scan, because the daemon's own
    writes there cause notifications as well. The timer makes both be scanned.
    """

    mail: bool = True
    tasks: bool = True
    at: float = 0.0
    tasks_at: float = 0.0
    tasks_paused_until: float = 0.0
    """Until then, notifications cause no scan of tasks/; 0 = they do."""
    file_ready_at: float | None = None
    """When a deferred file may be ready."""
    _early: float = 0.0

    @property
    def next(self) -> float:
        """When the next scan is due without any notification."""
        at = min(self.at, self.tasks_at)
        if self.tasks and self.tasks_paused_until:
            at = min(at, self.tasks_paused_until)
        return at if self.file_ready_at is None else min(at, self.file_ready_at)

    def is_due(self, mono: float) -> bool:
        """Whether this round scans."""
        if mono >= self.next:
            self.request_all()
        return self.mail

    def request_all(self) -> None:
        self.mail = self.tasks = True
        self.tasks_paused_until = 0.0

    def scan_tasks(self, clock: Clock, look: Callable[[], TaskFileChanges]) -> TaskFileChanges:
        """Scan tasks/ if that is due; returns what changed."""
        begun = clock.monotonic()
        if not self.tasks or begun < self.tasks_paused_until:
            return TaskFileChanges()
        seen = look()
        ended = clock.monotonic()
        spent = ended - begun
        is_slow = spent >= _SLOW_SCAN and not seen.truncated  # a truncated scan is continued first
        self.tasks_paused_until = ended + min(spent * _PAUSE_FACTOR, _LONGEST_PAUSE) if is_slow else 0.0
        # while a file waits to settle, tasks/ is scanned each time: otherwise it would be forgotten
        self.tasks = seen.truncated or seen.next_scan_at is not None
        return seen

    def restart_timer(self, mono: float, seconds: float) -> None:
        """Set the next scan without a notification, of what this one scans, to `seconds` from now."""
        self.at, self._early = mono + seconds, seconds * _EARLY
        self.tasks_at = self.at if self.tasks else self.tasks_at

    def rescan_in(self, mono: float, seconds: list[float]) -> None:
        """Scan when the first deferred file may be ready; `seconds` are counted from `mono`."""
        if seconds:
            self.file_ready_at = mono + max(min(seconds), _SHORTEST_WAIT)

    def timer_fired(self, mono: float) -> None:
        """Scan the mail before any timeout is judged: a reply may be there although its notification is not.

        A scan that is due soon is made now as well, so that it does not cut the next sleep short.
        """
        self.mail = True
        if mono >= min(self.at, self.tasks_at) - self._early:
            self.request_all()

    def notify(self, everything: bool) -> None:
        """Scan the inbox in the next round; with `everything`, tasks/ as well."""
        self.mail, self.tasks = True, self.tasks or everything
