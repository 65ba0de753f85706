"""Server-sent events, one stream per open page, that tell the page when to reload its parts.

An event says only that something changed; the page then requests itself. While nothing happens, polling a workspace
costs one pragma, which reads no database page, and every few seconds a check of the daemon's health.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd import health
from mailboxd.clock import Clock
from mailboxd.errors import MailboxdError
from mailboxd.host.loopback import Ending
from mailboxd.mailbox import lock
from mailboxd.store.reports import Report, opened
from mailboxd.store.task_lists import version
from mailboxd.web.workspaces import WebWorkspace

INTERVAL = 0.5
"""Seconds between two polls."""
_HEALTH_INTERVAL = 3.0
_KEEPALIVE_INTERVAL = 15.0
_RETRY_MS = 2_000
MAX_STREAMS = 24
"""Maximum number of concurrent streams; further pages poll."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class _Watched:
    """A workspace with an open connection and what was last seen. `file` identifies the database file."""

    report: Report
    held: ExitStack
    file: tuple[int, int]
    version: int = -1
    seq: int = 0
    grade: str = ""
    polled_at: float = -1e9
    health_at: float = -1e9


@dataclass(slots=True)
class ChangeWatcher:
    """Detects changes in workspaces. Used only in the event loop's thread."""

    clock: Clock
    streams: int = 0
    _known: dict[Path, _Watched] = field(default_factory=dict)

    def signature(self, workspaces: Sequence[WebWorkspace]) -> str:
        """A text that changes with every change of these workspaces' records or daemons' health."""
        return " ".join(self._of(workspace) for workspace in workspaces)

    def close(self) -> None:
        for watched in self._known.values():
            watched.held.close()
        self._known.clear()

    def _of(self, workspace: WebWorkspace) -> str:
        now = self.clock.monotonic()
        try:
            watched = self._watched(workspace)
            if watched is None:
                return f"{workspace.key}:none"
            if now - watched.polled_at >= INTERVAL * 0.9:
                watched.polled_at = now
                seen = version(watched.report)
                if seen != watched.version:
                    watched.version, watched.seq = seen, watched.report.last_event()
            if now - watched.health_at >= _HEALTH_INTERVAL:
                watched.health_at = now
                pid = lock.holder(workspace.ws)
                watched.grade = health.read(workspace.ws, pid, self.clock.now(), now)[0].value
        except (MailboxdError, OSError) as error:
            _log.debug("%s cannot be watched: %s", workspace.path, error)
            self._forget(workspace)
            return f"{workspace.key}:none"
        return f"{workspace.key}:{watched.seq}:{watched.grade}"

    def _watched(self, workspace: WebWorkspace) -> _Watched | None:
        root = workspace.ws.root
        try:
            status = workspace.ws.database.stat()
        except OSError:
            self._forget(workspace)
            return None
        file = (status.st_dev, status.st_ino)
        if root in self._known and self._known[root].file != file:
            self._forget(workspace)  # the database was replaced
        if root not in self._known:
            held = ExitStack()
            self._known[root] = _Watched(held.enter_context(opened(workspace.ws.database)), held, file)
        return self._known[root]

    def _forget(self, workspace: WebWorkspace) -> None:
        watched = self._known.pop(workspace.ws.root, None)
        if watched is not None:
            watched.held.close()


async def changes(watcher: ChangeWatcher, workspaces: Sequence[WebWorkspace], ending: Ending) -> AsyncIterator[str]:
    """The events of one stream: the signature immediately and on each change."""
    yield f"retry: {_RETRY_MS}\n\n"
    sent, quiet = "", 0.0
    while not ending.asked():
        now = watcher.signature(workspaces)
        if now != sent:
            sent, quiet = now, 0.0
            yield f"event: version\ndata: {now}\n\n"
        elif quiet >= _KEEPALIVE_INTERVAL:
            quiet = 0.0
            yield ": keepalive\n\n"
        await asyncio.sleep(INTERVAL)
        quiet += INTERVAL
