"""When to look again: server-sent events, one stream per open page.

A stream says only that something changed, never what: the page then asks for itself. While nothing happens a look at
a workspace is one pragma that reads no page of the database, and every few seconds a look at the daemon's health.
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
from mailboxd.web.workspaces import Place

INTERVAL = 0.5
"""Seconds between two looks."""
_HEALTH = 3.0
_ALIVE = 15.0
_RETRY_MS = 2_000
MOST = 24
"""Streams at the same time; a page that gets none asks by itself now and then."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class _Watched:
    """One workspace: an open connection, and what was last seen. `file` tells whether it still is that database."""

    report: Report
    held: ExitStack
    file: tuple[int, int]
    version: int = -1
    seq: int = 0
    grade: str = ""
    looked: float = -1e9
    asked: float = -1e9


@dataclass(slots=True)
class Watch:
    """What changes. Used by the event loop's thread alone."""

    clock: Clock
    streams: int = 0
    _known: dict[Path, _Watched] = field(default_factory=dict)

    def signature(self, places: Sequence[Place]) -> str:
        """A text that is another one after each change of what these workspaces have on record, or of a daemon."""
        return " ".join(self._of(place) for place in places)

    def close(self) -> None:
        for watched in self._known.values():
            watched.held.close()
        self._known.clear()

    def _of(self, place: Place) -> str:
        now = self.clock.monotonic()
        try:
            watched = self._watched(place)
            if watched is None:
                return f"{place.key}:none"
            if now - watched.looked >= INTERVAL * 0.9:
                watched.looked = now
                seen = version(watched.report)
                if seen != watched.version:
                    watched.version, watched.seq = seen, watched.report.last_event()
            if now - watched.asked >= _HEALTH:
                watched.asked = now
                pid = lock.holder(place.ws)
                watched.grade = health.read(place.ws, pid, self.clock.now(), now)[0].value
        except (MailboxdError, OSError) as error:
            _log.debug("%s cannot be watched: %s", place.path, error)
            self._forget(place)
            return f"{place.key}:none"
        return f"{place.key}:{watched.seq}:{watched.grade}"

    def _watched(self, place: Place) -> _Watched | None:
        root = place.ws.root
        try:
            status = place.ws.database.stat()
        except OSError:
            self._forget(place)
            return None
        file = (status.st_dev, status.st_ino)
        if root in self._known and self._known[root].file != file:
            self._forget(place)  # restored, or made anew
        if root not in self._known:
            held = ExitStack()
            self._known[root] = _Watched(held.enter_context(opened(place.ws.database)), held, file)
        return self._known[root]

    def _forget(self, place: Place) -> None:
        watched = self._known.pop(place.ws.root, None)
        if watched is not None:
            watched.held.close()


async def changes(watch: Watch, places: Sequence[Place], ending: Ending) -> AsyncIterator[str]:
    """The events of one stream: the signature at once, and whenever it is another one."""
    yield f"retry: {_RETRY_MS}\n\n"
    said, quiet = "", 0.0
    while not ending.asked():
        now = watch.signature(places)
        if now != said:
            said, quiet = now, 0.0
            yield f"event: version\ndata: {now}\n\n"
        elif quiet >= _ALIVE:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(INTERVAL)
        quiet += INTERVAL
