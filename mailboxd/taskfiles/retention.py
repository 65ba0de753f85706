"""Finished tasks leave `tasks/` for `tasks/.archive/` after a configured time. Mail and events are never touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mailboxd.core.events import Event, Kind
from mailboxd.core.times import plus
from mailboxd.engine import Engine
from mailboxd.workspace.taskfiles import TaskFiles

_EVERY = 3600.0
_BATCH = 500


@dataclass(slots=True)
class Retention:
    """`keep` is in seconds, counted from the end of the whole tree that a task belongs to."""

    engine: Engine
    files: TaskFiles
    keep: float
    reports: list[Callable[[], None]]
    _next: float = 0.0

    def perform(self) -> int:
        """Once an hour, put away what is over; returns how many directories were moved. Raises WorldError."""
        mono = self.engine.clock.monotonic()
        if mono < self._next:
            return 0
        limit = plus(self.engine.clock.now(), -self.keep)
        moved = 0
        for local_id in self.files.directories():
            ended = self.engine.store.ended_at(local_id)
            if ended is None or ended > limit:
                continue
            place = self.files.put_away(local_id)
            if place is not None:
                self.reports.append(partial(self._record, local_id, place))
                moved += 1
            if moved == _BATCH:
                return moved
        self._next = mono + _EVERY
        return moved

    def _record(self, local_id: str, place: str) -> None:
        # of no task: an event of a task has its task.md written again
        data = {"at": self.engine.now, "local_id": local_id, "path": place}
        self.engine.record(Event(Kind.TASK_PUT_AWAY, None, data))
