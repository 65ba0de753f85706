"""How a workspace stands at one moment, in numbers: what `exposition` shows."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd import health
from mailboxd.clock import Clock
from mailboxd.core.terms import Phase
from mailboxd.core.times import to_epoch
from mailboxd.errors import MailboxdError
from mailboxd.health import Grade
from mailboxd.store import measuring
from mailboxd.store.report import opened
from mailboxd.telemetry.tally import NAMES, Tally
from mailboxd.workspace import lock
from mailboxd.workspace.files import directory, world_errors
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_temporary


@dataclass(frozen=True, slots=True)
class Measures:
    """One look. Ages are in seconds, 0 where nothing waits; None where nothing is known."""

    agent: str
    tally: Tally
    phases: dict[str, int]
    messages: dict[str, int]
    unjudged: int
    events: int
    running: int
    approvals: int
    blocked: int
    ages: dict[str, float]
    breakers: list[tuple[str, str, int]]
    database_bytes: int
    grade: Grade
    troubles: int
    up: bool
    scan_age: float | None


def take(ws: Workspace, agent: str, tally: Tally, clock: Clock) -> Measures:
    """Look at the workspace; `tally` goes on from where it was. Raises UnavailableError, WorldError."""
    pid, now = lock.holder(ws), clock.now()
    grade, troubles = health.read(ws, pid, now, clock.monotonic())
    scanned = health.scanned_at(ws)
    unjudged = _inbox(ws)
    with opened(ws.database) as report, report.snapshot():
        tally.go_on(report)
        unfiled = report.unfiled()
        waiting = {name: mtime for name, mtime in unjudged.items() if _storable(name) not in unfiled}
        ages = {queue: _age(since, now) for queue, since in measuring.oldest(report).items()}
        ages["inbox"] = max((to_epoch(now) - mtime for mtime in waiting.values()), default=0.0)
        phases = report.phases()
        return Measures(
            agent=agent,
            tally=tally,
            phases={phase: phases.get(phase, 0) for phase in Phase},
            messages=report.messages(),
            unjudged=len(waiting),
            events=report.last_event(),
            running=measuring.running_attempts(report),
            approvals=report.asked(),
            blocked=report.blocked_count(),
            ages={queue: max(age, 0.0) for queue, age in ages.items()},
            breakers=measuring.breakers(report, NAMES),
            database_bytes=_size(ws.database),
            grade=grade,
            troubles=len(troubles),
            up=pid is not None,
            scan_age=None if scanned is None else _age(scanned, now),
        )


def _age(since: str | None, now: str) -> float:
    return max(to_epoch(now) - to_epoch(since), 0.0) if since is not None else 0.0


def _inbox(ws: Workspace) -> dict[str, float]:
    """The messages that lie in the inbox, and when each was last written."""
    found = {}
    with world_errors(f"read the inbox {ws.inbox}"), directory(ws.root, "mailbox", "inbox") as fd:
        for entry in os.scandir(fd):
            if not is_temporary(entry.name):
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    return found


def _storable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _size(database: Path) -> int:
    """Bytes of the database with its log; what is gone counts nothing."""
    size = 0
    for path in (database, Path(f"{database}-wal")):
        with suppress(OSError):
            size += path.stat().st_size
    return size


def taken(ws: Workspace, agent: str, tally: Tally, clock: Clock) -> tuple[Measures | None, str]:
    """As `take`, or why nothing can be measured: an instrument that is asked again and again must not fall over."""
    try:
        return take(ws, agent, tally, clock), ""
    except MailboxdError as error:
        return None, str(error)
