"""How the daemon is: green, amber or red, and why, as it notes it itself in `.mailboxd/health.json` (`pulse`).

Red: something stands still that people count on. Amber: all is done, but later, or not for much longer. A daemon that
notes nothing is red. This half only reads, and `status` imports it: it has to be light.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mailboxd.core.times import to_epoch
from mailboxd.mailbox.files import directory, read_file
from mailboxd.mailbox.layout import Workspace

FILE = "health.json"
SIZE = 4096
"""Bytes of the file, always."""
SILENT = 45.0
"""Seconds after which a daemon that notes nothing counts as standing still."""


LONGEST_PAUSE = 30.0
"""Seconds before a start, at most, however often it has failed before."""


class Grade(StrEnum):
    """`OFF`: no daemon runs, and none should."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"
    OFF = "off"


class Component(StrEnum):
    """What may not work, as the log and `status` name it. Each has its section in docs/runbook.md."""

    DAEMON = "daemon"
    AGENTS = "agents"
    DATABASE = "database"
    FILING = "filing mail"
    LOOKING = "reading the mailbox"
    RENDERING = "writing task files"
    SENDING = "sending"
    PUTTING_AWAY = "putting finished tasks away"
    CUSTODY = "custody"
    NOTING = "signing the head of the log"
    WATCHING = "watching"
    ROOM = "room on the disk"
    DESCRIPTORS = "file descriptors"
    JOURNAL = "journal"
    GATEWAY = "gateway"
    PEERS = "peers"
    SERVICE = "service"
    ASKING = "asking OpenClaw"
    COLLECTING = "collecting what calls brought"
    TIDYING = "removing what calls left"


class Halt(StrEnum):
    """Why nothing is taken and nothing is begun; it stands as `HALT(...)` before the reason."""

    DISK_FULL = "disk-full"
    DB_LOCKED = "db-locked"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What does not work, why, how bad that is, and since when (ISO-8601 UTC)."""

    where: str
    why: str
    grade: Grade
    since: str

    @property
    def slug(self) -> str:
        """The stable short name of it: the section of docs/runbook.md that says what to do."""
        halted = next((halt for halt in Halt if self.why.startswith(f"HALT({halt})")), None)
        return halted or self.where.lower().replace(" ", "-")


def read(ws: Workspace, pid: int | None, now: str, monotonic: float) -> tuple[Grade, list[Trouble]]:
    """How the daemon `pid` is (None: there is none, 0: not known which), as it noted it last. Raises nothing."""
    said = _said(ws)
    if pid is None:
        return _ended(said)
    if said is None or pid not in (0, said["pid"]):
        return _red("it holds the workspace but has not reported its health yet")
    ages = [age for age in (monotonic - said["monotonic"], to_epoch(now) - to_epoch(said["at"])) if age >= -1]
    if min(ages, default=SILENT + 1) > SILENT:
        return _red(f"its loop is stuck: the last heartbeat was at {said['at']}")
    troubles: list[Trouble] = said["troubles"]
    if any(trouble.grade is Grade.RED for trouble in troubles):
        return Grade.RED, troubles
    return (Grade.AMBER if troubles else Grade.GREEN), troubles


@dataclass(frozen=True, slots=True)
class Failed:
    """The starts in a row, up to now, that ended before the mailbox was read for the first time.

    `wait`: seconds that the next one has to wait, counted from the end of the last; `why` that ended.
    """

    starts: int = 0
    wait: float = 0.0
    why: str = ""


def failed_starts(ws: Workspace, now: str, monotonic: float) -> Failed:
    """What the note of the last daemon says, once that is dead. Raises nothing."""
    said = _said(ws)
    if said is None or said["over"] == "" or said["starts"] <= 0:
        return Failed()
    past = max(monotonic - said["monotonic"], to_epoch(now) - to_epoch(said["at"]), 0.0)
    pause = min(2.0 ** min(said["starts"] - 1, 10), LONGEST_PAUSE)
    return Failed(said["starts"], max(pause - past, 0.0), said["over"] or "it died without a report")


def scanned_at(ws: Workspace) -> str | None:
    """When the daemon last read its directories, as it noted it; None if it did not say."""
    said = _said(ws)
    return None if said is None else said["scanned"]


def _ended(said: dict[str, Any] | None) -> tuple[Grade, list[Trouble]]:
    if said is None or said["over"] == "":
        return Grade.OFF, []
    if said["over"] is None:
        return _red(f"it died without a report after {said['at']}; `mailboxd run` continues where it stopped")
    return _red(f"it gave up: {said['over']}")


def _red(why: str) -> tuple[Grade, list[Trouble]]:
    return Grade.RED, [Trouble(Component.DAEMON, why, Grade.RED, "")]


def _said(ws: Workspace) -> dict[str, Any] | None:
    """The note; None if there is none that can be understood."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with directory(ws.root, ws.state.name) as state:
            raw = read_file(state, FILE, SIZE)
        if raw is None:
            return None
        said = json.loads(raw)
        to_epoch(said["at"])
        troubles = [Trouble(**{**each, "grade": Grade(each["grade"])}) for each in said["troubles"]]
        known = {"pid": int(said["pid"]), "monotonic": float(said["monotonic"]), "over": said["over"]}
        scanned = said.get("scanned")  # a note of an older daemon has neither this nor `starts`
        if scanned is not None:
            to_epoch(scanned)
        starts = int(said.get("starts", 0))
        return {"at": said["at"], "troubles": troubles, "scanned": scanned, "starts": starts, **known}
    return None
