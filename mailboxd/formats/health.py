"""The daemon's health as `status` and doctor read it from `.mailboxd/health.json`, which the daemon writes.

Red: something that people rely on has stopped. Amber: everything is done, but late, or not for much longer. A daemon
whose heartbeat is missing is red. Only reading is here, because `status` imports it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mailboxd.core.times import moment, to_epoch
from mailboxd.formats.mailbox.files import directory, read_file
from mailboxd.formats.mailbox.layout import Workspace

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import DaemonDetails

FILE = "health.json"
SIZE = 4096
"""Bytes of the file, always."""
SILENT = 45.0
"""Seconds without a heartbeat after which the loop counts as stuck."""
LONGEST_PAUSE = 30.0
"""The longest pause in seconds before a start, however often it has failed before."""


class Grade(StrEnum):
    """`OFF`: no daemon runs, and none should."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"
    OFF = "off"


class Component(StrEnum):
    """The parts that can fail, as the log and `status` name them. Each has a section in docs/runbook.md."""

    DAEMON = "daemon"
    AGENTS = "agents"
    DATABASE = "database"
    FILING = "filing mail"
    LEFT = "emptying the inbox"
    SCANNING = "reading the mailbox"
    RENDERING = "writing task files"
    SENDING = "sending"
    RETENTION = "archiving tasks"
    INDEX = "writing the index"
    ARCHIVE = "archive"
    SIGNING = "signing the log"
    WATCHING = "watching"
    POLLING = "polling"
    SPACE = "disk space"
    DESCRIPTORS = "file descriptors"
    JOURNAL = "journal"
    PLACE = "agent workspace"
    GATEWAY = "gateway"
    RECOVERY = "recovery"
    PEERS = "peers"
    HUB = "hub"
    SERVICE = "service"
    DISCOVERY = "asking OpenClaw"
    COLLECTING = "collecting results"
    CLEANUP = "cleaning up"
    SPENDING = "counting what is spent"
    SURFACES = "showing work in OpenClaw"


class Halt(StrEnum):
    """Why no message is taken and no turn is started; it precedes the reason as `HALT(...)`."""

    DISK_FULL = "disk-full"
    DB_LOCKED = "db-locked"


_PATIENCE = 60.0
"""Seconds that a problem may last before a person has to act: a restart of what is away takes less."""
_LONGER: dict[str, float] = {
    # OpenClaw resumes turns one after the other
    Component.RECOVERY: 1800.0,
    # a daemon that stops, an agent whose pause ends, and what the operator allowed when the daemon was started
    **dict.fromkeys((Component.DAEMON, Component.AGENTS, Component.POLLING), float("inf")),
}
"""The same for problems that end by themselves, or are meant to be."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem: the component, the reason, the grade, and since when (ISO 8601, UTC)."""

    where: str
    why: str
    grade: Grade
    since: str

    def needs_person(self, now: str) -> bool:
        """Whether a person has to act: it is red, or has lasted for longer than what ends by itself."""
        patience = _LONGER.get(self.where, _PATIENCE)
        return self.grade is Grade.RED or to_epoch(now) - to_epoch(self.since) >= patience

    @property
    def slug(self) -> str:
        """The name under which `mailboxd doctor` prints its section of the runbook."""
        halted = next((halt for halt in Halt if self.why.startswith(f"HALT({halt})")), None)
        return halted or self.where.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Stopping:
    """A daemon was asked to stop, and waits until then at most (ISO 8601, UTC) for what runs."""

    since: str
    until: str
    waits_for: str
    """In words; empty if nothing runs any more."""

    def text(self, pid: int, now: str) -> str:
        """As a predicate of the daemon `pid`: `has been stopping since ...`."""
        text = f"has been stopping since {moment(self.since, now)}"
        if not self.waits_for:
            return text
        return (
            f"{text} and waits for {self.waits_for}, at most until {moment(self.until, now)}; it takes mail and "
            f"orders, and nothing begins until a daemon runs again; `kill {pid}` ends the wait: what runs goes on, and "
            "the next daemon takes the result"
        )


def stopping(ws: Workspace, pid: int | None, now: str) -> str:
    """That the daemon `pid` is stopping, as a predicate; empty if it is not. Raises nothing."""
    report = _report(ws) if pid else None
    if report is None or report["pid"] != pid or report["stopping"] is None:
        return ""
    said: Stopping = report["stopping"]
    return said.text(report["pid"], now)


def daemon_details(ws: Workspace, pid: int | None, now: str) -> DaemonDetails:
    """How the daemon `pid` is told in JSON. Raises nothing."""
    return {"running": pid is not None, "stopping": bool(stopping(ws, pid, now)), "pid": pid or None}


def read(ws: Workspace, pid: int | None, now: str, monotonic: float) -> tuple[Grade, list[Trouble]]:
    """The last reported health of the daemon `pid` (None: there is none, 0: unknown). Raises nothing."""
    report = _report(ws)
    if pid is None:
        return _ended(report, now)
    if report is None or pid not in (0, report["pid"]):
        return _red("it holds the workspace but has not reported its health yet")
    ages = [age for age in (monotonic - report["monotonic"], to_epoch(now) - to_epoch(report["at"])) if age >= -1]
    if min(ages, default=SILENT + 1) > SILENT:
        return _red(f"its loop is stuck: the last heartbeat was at {moment(report['at'], now)}")
    troubles: list[Trouble] = report["troubles"]
    if (stops := report["stopping"]) is not None:
        why = f"it {stops.text(report['pid'], now)}"
        troubles = [Trouble(Component.DAEMON, why, Grade.AMBER, stops.since), *troubles]
    if any(trouble.grade is Grade.RED for trouble in troubles):
        return Grade.RED, troubles
    return (Grade.AMBER if troubles else Grade.GREEN), troubles


@dataclass(frozen=True, slots=True)
class Failed:
    """The latest starts in a row that ended before the mailbox was read for the first time.

    `wait`: seconds that the next start has to wait, counted from the end of the last one; `why` that one ended.
    """

    starts: int = 0
    wait: float = 0.0
    why: str = ""


def failed_starts(ws: Workspace, now: str, monotonic: float) -> Failed:
    """The failed starts according to the last report of a dead daemon. Raises nothing."""
    report = _report(ws)
    if report is None or report["over"] == "" or report["starts"] <= 0:
        return Failed()
    past = max(monotonic - report["monotonic"], to_epoch(now) - to_epoch(report["at"]), 0.0)
    pause = min(2.0 ** min(report["starts"] - 1, 10), LONGEST_PAUSE)
    return Failed(report["starts"], max(pause - past, 0.0), report["over"] or "it died without a report")


def has_reported(ws: Workspace) -> bool:
    """Whether a daemon has ever been started here. Raises nothing."""
    return os.path.lexists(ws.state / FILE)


def scanned_at(ws: Workspace) -> str | None:
    """When the daemon last read its directories; None if it has not reported that."""
    report = _report(ws)
    return None if report is None else report["scanned"]


GAVE_UP = "it gave up: "
"""How the trouble of a daemon begins that could not go on; another start alone does not help."""


def _ended(report: dict[str, Any] | None, now: str) -> tuple[Grade, list[Trouble]]:
    if report is None or report["over"] == "":
        return Grade.OFF, []
    if report["over"] is None:
        return _red(
            f"it died without a report after {moment(report['at'], now)}; `mailboxd run` continues where it stopped"
        )
    return _red(f"{GAVE_UP}{report['over']}")


def _red(why: str) -> tuple[Grade, list[Trouble]]:
    return Grade.RED, [Trouble(Component.DAEMON, why, Grade.RED, "")]


def _report(ws: Workspace) -> dict[str, Any] | None:
    """The content of the file; None if it is missing or invalid."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with directory(ws.root, ws.state.name) as state:
            report = json.loads(read_file(state, FILE, SIZE) or b"")
        to_epoch(report["at"])
        for at in (report["scanned"], *((report.get("stopping") or {}).get(name) for name in ("since", "until"))):
            if at is not None:
                to_epoch(at)
        return {
            "at": report["at"],
            "troubles": [Trouble(**{**each, "grade": Grade(each["grade"])}) for each in report["troubles"]],
            "scanned": report["scanned"],
            "starts": int(report["starts"]),
            "pid": int(report["pid"]),
            "monotonic": float(report["monotonic"]),
            "over": report["over"],
            "stopping": Stopping(**stops) if (stops := report.get("stopping")) else None,
        }
    return None
