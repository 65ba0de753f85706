"""The daemon notes how it is, and says it in the log and to systemd; `health` is what others read of it.

Only the loop itself notes that it is alive, every 15 s. The file keeps its size and is written in its place, through
one descriptor: that works on a full disk, and when no descriptor is free.
"""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType
from typing import Self

from mailboxd.clock import Clock
from mailboxd.core.times import plus
from mailboxd.health import FILE, SIZE, Component, Failed, Grade, Trouble, failed_starts
from mailboxd.host.sdnotify import Notifier
from mailboxd.mailbox.files import directory
from mailboxd.mailbox.layout import Workspace

EVERY = 15.0
"""Seconds between two notes, at most."""
_EARLY = 5.0
"""Seconds by which a note may come before its time when the loop is awake anyway: it need not wake again for it."""
_WHY = 600
_NUMBER = re.compile(r"[0-9][0-9.,]*")
_log = logging.getLogger("mailboxd")


class Health:
    """The note of one daemon. Nothing here raises: health that cannot be written is not another failure."""

    def __init__(self, ws: Workspace, clock: Clock, notifier: Notifier, agent: str) -> None:
        self._ws = ws
        self._clock = clock
        self.notifier = notifier
        self._line = f"agent {agent}"
        self._troubles: dict[str, Trouble] = {}
        self._scanned: float | None = None
        """When the mailbox was last read, on the monotonic clock: each message is a reading, and few are noted."""
        self._noted_at = float("-inf")
        self._fd = -1
        self.failed = Failed()
        """The starts before this one that have failed."""
        self._starts = 0

    def __enter__(self) -> Self:
        self.failed = failed_starts(self._ws, self._clock.now(), self._clock.monotonic())
        self._starts = self.failed.starts + 1
        self._note(None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._note("" if error is None else str(error) or type(error).__name__)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def line(self) -> str:
        """One line for `systemctl status`: the worst there is."""
        worst = sorted(self._troubles.values(), key=lambda trouble: trouble.grade is not Grade.RED)
        return f"TROUBLE {worst[0].where}: {worst[0].why}" if worst else self._line

    @property
    def unread(self) -> str:
        """Why mail is left in the inbox; empty if none has to be."""
        found = (self._troubles.get(where) for where in (Component.SCANNING, Component.FILING))
        return next((trouble.why for trouble in found if trouble is not None), "")

    @property
    def is_green(self) -> bool:
        return not self._troubles

    def say(self, where: Component, why: str, grade: Grade = Grade.RED) -> bool:
        """`why` something does not work, or that it does (empty). True if it did not and now does."""
        before = self._troubles.get(where)
        if not why:
            if where is Component.SCANNING:
                first, self._scanned = self._scanned is None, self._clock.monotonic()
                if first:
                    self._starts = 0
                    self._note(None)
            if self._troubles.pop(where, None) is not None:
                _log.info("%s: works again", where)
                self._tell()
            return before is not None
        if before is None or (before.why, before.grade) != (why, grade):
            since = before.since if before is not None else self._clock.now()
            self._troubles[where] = Trouble(where, why, grade, since)
            if before is None or _NUMBER.sub("", before.why) != _NUMBER.sub("", why):
                _log.log(logging.ERROR if grade is Grade.RED else logging.WARNING, "%s: %s", where, why)
            self._tell()
        return False

    def forget(self, where: Component) -> None:
        """Drop a trouble without logging that it was resolved."""
        if self._troubles.pop(where, None) is not None:
            self._tell()

    def is_troubled(self, where: Component) -> bool:
        return where in self._troubles

    def beat(self) -> None:
        """The loop is alive; noted if it is time to. To be called before every sleep."""
        self.notifier.watchdog()
        if self.next_beat - _EARLY <= self._clock.monotonic():
            self._note(None)

    @property
    def next_beat(self) -> float:
        """When the next note is due, on the monotonic clock."""
        return self._noted_at + EVERY

    def _tell(self) -> None:
        self.notifier.status(self.line)
        self._note(None)

    def _note(self, over: str | None) -> None:
        self._noted_at = self._clock.monotonic()
        at = self._clock.now()
        said = {"pid": os.getpid(), "at": at, "monotonic": self._noted_at, "over": over}
        said["starts"] = self._starts
        said |= {"scanned": None if self._scanned is None else plus(at, self._scanned - self._noted_at)}
        troubles = [asdict(trouble) | {"why": trouble.why[:_WHY]} for trouble in self._troubles.values()]
        while len(raw := json.dumps(said | {"troubles": troubles}).encode()) >= SIZE and troubles:
            troubles.pop()
        with suppress(OSError):
            if self._fd < 0:
                self._fd = self._opened()
            os.pwrite(self._fd, raw[: SIZE - 1].ljust(SIZE - 1) + b"\n", 0)

    def _opened(self) -> int:
        with directory(self._ws.root, self._ws.state.name) as state:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            return os.open(FILE, flags, 0o600, dir_fd=state)
