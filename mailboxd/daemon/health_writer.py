"""Writes the daemon's health to `.mailboxd/health.json`, and reports changes to the log and to systemd.

Readers use `mailboxd.formats.health`. The loop itself writes a heartbeat every 15 s. The file has a fixed size and is
overwritten in place through one open descriptor, which works on a full disk and when no descriptor is free.
"""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import suppress
from dataclasses import asdict, replace
from types import TracebackType
from typing import Self

from mailboxd.core.times import plus
from mailboxd.formats.health import FILE, SIZE, Component, Failed, Grade, Stopping, Trouble, failed_starts
from mailboxd.formats.mailbox.files import directory, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import Clock
from mailboxd.host.sdnotify import Notifier

EVERY = 15.0
"""The longest time, in seconds, between two heartbeats."""
_EARLY = 5.0
"""Seconds by which a heartbeat may be early if the loop is awake anyway, so that it need not wake for it."""
_WHY = 600
_NUMBER = re.compile(r"[0-9][0-9.,]*")
_log = logging.getLogger("mailboxd")


def forget_end(ws: Workspace) -> None:
    """Forget why the latest daemon ended, for an operator who has just mended that; call it with the lock of the
    workspace. Raises WorldError.
    """
    with world_errors(f"remove {ws.state / FILE}"):
        (ws.state / FILE).unlink(missing_ok=True)


class Health:
    """The health of one daemon. Nothing here raises: failing to write the health must not cause another failure."""

    def __init__(self, ws: Workspace, clock: Clock, notifier: Notifier, agent: str) -> None:
        self._ws = ws
        self._clock = clock
        self.notifier = notifier
        self._line = f"agent {agent}"
        self._troubles: dict[str, Trouble] = {}
        self._scanned: float | None = None
        """When the mailbox was last read (monotonic clock)."""
        self._written_at = float("-inf")
        self._told_at = float("-inf")
        """When the watchdog was last told that the loop is alive: a busy one would tell it a hundred times a second."""
        self._fd = -1
        self.failed = Failed()
        """The failed starts before this one."""
        self._starts = 0
        self._stopping: Stopping | None = None

    def __enter__(self) -> Self:
        self.failed = failed_starts(self._ws, self._clock.now(), self._clock.monotonic())
        self._starts = self.failed.starts + 1
        self._write(None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._write("" if error is None else str(error) or type(error).__name__)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def line(self) -> str:
        """One line for `systemctl status`: the worst problem, if there is any."""
        if self._stopping is not None:
            return f"stopping, waiting for {self._stopping.waits_for}" if self._stopping.waits_for else "stopping"
        worst = sorted(self._troubles.values(), key=lambda trouble: trouble.grade is not Grade.RED)
        return f"TROUBLE {worst[0].where}: {worst[0].why}" if worst else self._line

    @property
    def unread(self) -> str:
        """Why mail cannot be taken from the inbox; empty if it can."""
        found = (self._troubles.get(where) for where in (Component.SCANNING, Component.FILING))
        return next((trouble.why for trouble in found if trouble is not None), "")

    @property
    def is_green(self) -> bool:
        return not self._troubles

    def report(self, where: Component, why: str, grade: Grade = Grade.RED) -> bool:
        """Report a problem, or with an empty `why` that there is none; returns whether this ends a problem."""
        before = self._troubles.get(where)
        if not why:
            if where is Component.SCANNING:
                first, self._scanned = self._scanned is None, self._clock.monotonic()
                if first:
                    self._starts = 0
                    self._write(None)
            if self._troubles.pop(where, None) is not None:
                _log.info("%s: works again", where)
                self._publish()
            return before is not None
        if before is None or (before.why, before.grade) != (why, grade):
            since = before.since if before is not None else self._clock.now()
            self._troubles[where] = Trouble(where, why, grade, since)
            if before is None or _NUMBER.sub("", before.why) != _NUMBER.sub("", why):
                _log.log(logging.ERROR if grade is Grade.RED else logging.WARNING, "%s: %s", where, why)
            self._publish()
        return False

    def stop(self, said: Stopping) -> None:
        """Report that the daemon stops, and what it waits for."""
        if said != self._stopping:
            self._stopping = said
            self.notifier.stopping(self.line)
            self._write(None)

    def clear(self, where: Component) -> None:
        """Drop a problem without logging that it was resolved."""
        if self._troubles.pop(where, None) is not None:
            self._publish()

    def is_troubled(self, where: Component) -> bool:
        return where in self._troubles

    def beat(self) -> None:
        """Write a heartbeat if one is due. Call before every sleep."""
        now = self._clock.monotonic()
        if now - self._told_at >= min(_EARLY, (self.notifier.watchdog_seconds or EVERY) / 3):
            self._told_at = now
            self.notifier.watchdog()
        if self.next_beat - _EARLY <= now:
            self._write(None)

    @property
    def next_beat(self) -> float:
        """When the next heartbeat is due (monotonic clock)."""
        return self._written_at + EVERY

    def _publish(self) -> None:
        self.notifier.status(self.line)
        self._write(None)

    def _write(self, over: str | None) -> None:
        self._written_at = self._clock.monotonic()
        at = self._clock.now()
        said = {"pid": os.getpid(), "at": at, "monotonic": self._written_at, "over": over}
        said["starts"] = self._starts
        said["stopping"] = self._stopping and asdict(replace(self._stopping, waits_for=self._stopping.waits_for[:_WHY]))
        said |= {"scanned": None if self._scanned is None else plus(at, self._scanned - self._written_at)}
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
