"""When task.md files are rendered and finished tasks archived.

Changes within `every` seconds are rendered once. Many files are written in slices, so that nothing else waits for
long: one after the other while the daemon is idle, with pauses while it is busy. The file of a tree with ten thousand
children takes longer to write than a child takes to run, so it is followed by a pause of many times that length.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from mailboxd.core.events import Kind
from mailboxd.core.times import plus, to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Happened, Reports
from mailboxd.formats.mailbox.files import directory, world_errors
from mailboxd.formats.mailbox.layout import ATTACHMENTS, Workspace
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.host.clock import Clock

SLICE = 0.05
"""Seconds after which no further file is started."""
_SHARE = 3.0
"""While busy, the pause after many small files, in multiples of their writing time."""
_SHARE_OF_ONE = 100.0
"""The same for a single file: that of a running tree is out of date all the time."""
_LATEST = 10.0
"""Most seconds that the file of a large tree may be out of date."""
_IDLE_AFTER = 1.0
"""Seconds without an event after which the daemon counts as idle although turns run."""
_RETRY = 1.0
_TROUBLED = 5.0


@dataclass(slots=True)
class RenderSchedule:
    """`write(seconds)` writes files until the time is over and returns their number; `stale`: whether any is out of
    date; `more`: whether the last call left some; `last_event`: a number that grows with each event.
    """

    clock: Clock
    every: float
    write: Callable[[float], int]
    stale: Callable[[], bool]
    more: Callable[[], bool]
    is_troubled: Callable[[], bool]
    last_event: Callable[[], int]
    _next: float = 0.0
    """When it may write again, on the monotonic clock."""
    _while_busy: float = 0.0
    """The same, while busy."""
    _written: float = float("-inf")
    _event: int = -1
    _last_change: float = 0.0

    def perform(self, *, turns: bool, mail: bool = False) -> int:
        """Write files that are out of date, if it is time to; return their number. `turns`: turns are running. `mail`:
        more mail waits than one round takes; it comes first, but cannot delay the files forever.
        """
        started = self.clock.monotonic()
        if (event := self.last_event()) != self._event:
            self._event, self._last_change = event, started
        if started < self.due(turns=turns) or (mail and started < self._written + _LATEST):
            return 0
        written = self.write(SLICE)
        ended = self._written = self.clock.monotonic()
        spent, more = ended - started, self.more()
        pause = 0.0 if more else self.every
        if self.is_troubled():
            pause = _TROUBLED
        elif not written and self.stale():
            pause = max(pause, _RETRY)  # the file is being written by someone else
        self._next = self._while_busy = ended + pause
        if written == 1 or spent >= 2 * SLICE:  # the second if one of them alone took that long
            self._while_busy = max(self._next, ended + min(spent * _SHARE_OF_ONE, _LATEST))
        elif more:
            self._while_busy = max(self._next, ended + spent * _SHARE)
        return written

    def due(self, *, turns: bool) -> float:
        """When it may write again, on the monotonic clock."""
        return min(self._while_busy, max(self._next, self._last_change + _IDLE_AFTER)) if turns else self._next


# Finished tasks are moved to `tasks/.archive/` after a configured time, and files that came with mail from other hosts
# are removed; mail and events stay

_EVERY = 3600.0
_BATCH = 500


@dataclass(slots=True)
class Retention:
    """`keep` is in seconds: from the end of the whole tree, or since a file came."""

    engine: Engine
    ws: Workspace
    files: TaskFiles
    keep: float
    reports: Reports

    def perform(self) -> float:
        """Archive ended tasks and remove files; return when to do so again (monotonic clock). Raises WorldError."""
        limit = plus(self.engine.clock.now(), -self.keep)
        moved = 0
        for local_id in self.files.directories():
            ended = self.engine.store.tasks.tree_ended_at(local_id)
            if ended is None or ended > limit:
                continue
            place = self.files.move_to_archive(local_id)
            if place is not None:
                # of no task: an event of a task has its task.md written again
                self.reports.append(Happened(Kind.TASK_PUT_AWAY, None, {"local_id": local_id, "path": place}))
                moved += 1
            if moved == _BATCH:
                return 0.0
        if not self.ws.mail():  # unread mail may come with a file
            self._remove_attachments(to_epoch(limit))
        return self.engine.clock.monotonic() + _EVERY

    def _remove_attachments(self, limit: float) -> None:
        """Remove the files that came with mail before that, unless it is mail about an open task. Raises WorldError."""
        is_needed = self.engine.store.messages.is_of_open_task
        with (
            world_errors(f"remove files from {self.ws.mailbox / ATTACHMENTS}"),
            suppress(FileNotFoundError),
            directory(self.ws.root, self.ws.mailbox.name, ATTACHMENTS) as folder,
            os.scandir(folder) as entries,
        ):
            old = [one.name for one in entries if one.stat(follow_symlinks=False).st_mtime <= limit]
            for name in old:
                if not is_needed(name):
                    os.unlink(name, dir_fd=folder)
