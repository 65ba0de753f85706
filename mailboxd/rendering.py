"""When task.md files are written again: coalesced, and never for a large part of the time.

A file of a tree with ten thousand children takes longer to write than a child takes to run. So what changed within
`every` seconds becomes one writing, and a writing that took long is followed by a pause of many times its length,
as long as turns run. When nothing runs, it costs nobody anything, and the file is right at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mailboxd.clock import Clock

_SHARE = 20.0
"""While turns run, at most one part in this many of the time goes into writing task files."""
_CHEAP = 0.05
"""Seconds of a writing that is no large part of anything: what a rebuild reads from the files is then there at once."""
_LATEST = 10.0
"""Seconds that a file of a large tree may be behind, at most."""
_HELD_UP = 1.0
_TROUBLED = 5.0


@dataclass(slots=True)
class Rendering:
    """`write` writes what is out of date and says how many files; `stale` says whether anything is."""

    clock: Clock
    every: float
    write: Callable[[], int]
    stale: Callable[[], bool]
    is_troubled: Callable[[], bool]
    _next: float = 0.0
    """When it may write again, on the monotonic clock."""
    _while_busy: float = 0.0
    """The same, while turns run."""

    def perform(self, *, busy: bool) -> int:
        """Write what is out of date, if it is time to. `busy`: turns run that wait for nobody else."""
        begun = self.clock.monotonic()
        if begun < self.due(busy=busy):
            return 0
        written = self.write()
        ended = self.clock.monotonic()
        pause = self.every
        if self.is_troubled():
            pause = _TROUBLED
        elif not written and self.stale():
            pause = max(pause, _HELD_UP)  # somebody is writing that very file
        self._next = ended + pause
        spent = ended - begun
        self._while_busy = self._next
        if spent >= _CHEAP:
            self._while_busy = max(self._next, ended + min(spent * _SHARE, _LATEST))
        return written

    def due(self, *, busy: bool) -> float:
        """When it may write again, on the monotonic clock."""
        return self._while_busy if busy else self._next
