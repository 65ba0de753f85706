"""All workspaces of a user at one glance: how each stands, and which of them somebody has to look at.

Each is only read, beside its daemon, in a few milliseconds; one that cannot be read is a row that says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd import health
from mailboxd.cli.session import agent_of
from mailboxd.cli.text import fit, lasted, pad, plain, width
from mailboxd.core.times import to_epoch
from mailboxd.errors import MailboxdError
from mailboxd.health import Grade
from mailboxd.workspace import lock
from mailboxd.workspace.files import directory, world_errors
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_temporary

if TYPE_CHECKING:
    from mailboxd.clock import Clock

Row = dict[str, Any]

_LOOKS = {"green": "green", "amber": "yellow", "red": "red", "gone": "red", "unreadable": "red"}
_SHORT = (
    ("circuit", ("circuit_open",)),
    ("approval", ("awaiting_approval",)),
    ("running", ("executing", "ready_to_resume")),
    ("review", ("spec_review", "spec_gate", "quality_gate")),
    ("draft", ("spec_draft",)),
    ("ready", ("execution_ready",)),
)
"""Phases as they are counted on a line, those first that say most."""
_NARROWEST = 60


# ---------------------------------------------------------------- reading


def rows(workspaces: Iterable[Path], clock: Clock) -> list[Row]:
    """How each workspace stands, those first that need somebody. Raises nothing about a single one."""
    return sorted((row_of(root, clock) for root in workspaces), key=_urgency)


def row_of(root: Path, clock: Clock) -> Row:
    """One workspace: `agent`, `workspace`, `state` (ok, gone, unreadable), how it stands, and `attention`.

    `attention` says in a few words each what somebody has to do something about; empty = nothing.
    """
    ws = Workspace(root)
    row: Row = {"agent": None, "workspace": str(root), "state": "ok", "why": ""}
    try:
        if not ws.state.is_dir():
            return row | {"state": "gone", "why": "there is no workspace any more", "attention": ["it is gone"]}
        row["agent"] = agent_of(ws)
        row |= _standing(ws, clock)
    except (MailboxdError, OSError) as error:
        why = str(error).partition("\n")[0]
        return row | {"state": "unreadable", "why": why, "attention": ["it cannot be read"]}
    return row | {"attention": attention(row, clock.now())}


def _standing(ws: Workspace, clock: Clock) -> Row:
    from mailboxd.store.brief import brief
    from mailboxd.store.report import opened

    pid = lock.holder(ws)
    grade, troubles = health.read(ws, pid, clock.now(), clock.monotonic())
    with opened(ws.database) as report:
        found = brief(report)
    with world_errors(f"read the inbox {ws.inbox}"), directory(ws.root, "mailbox", "inbox") as fd:
        waiting = sum(1 for entry in os.scandir(fd) if not is_temporary(entry.name))
    worst = sorted(troubles, key=lambda trouble: trouble.grade is not Grade.RED)
    return {
        "daemon": {"running": pid is not None, "pid": pid or None},
        "health": str(grade),
        "troubles": [f"{trouble.where}: {trouble.why}" for trouble in worst],
        "inbox": waiting,
        **found,
    }


# ---------------------------------------------------------------- judging


def attention(row: Row, now: str) -> list[str]:
    """What of a workspace that could be read somebody has to do something about."""
    said = []
    if row["health"] == Grade.RED:
        said.append(row["troubles"][0] if row["troubles"] else "its health is red")
    if row["approvals"]:
        said.append(_many(row["approvals"], "approval"))
    if row["blocked"]:
        stuck = row["stuck"]
        since = lasted(to_epoch(now) - to_epoch(stuck["since"]))
        said.append(f"{row['blocked']} blocked: {stuck['task']} for {since}: {stuck['why']}")
    work = sum(row["open"].values())
    if not row["daemon"]["running"] and row["health"] != Grade.RED and (work or row["inbox"]):
        waits = [_many(work, "open task")] if work else []
        waits += [f"{row['inbox']} in the inbox"] if row["inbox"] else []
        said.append(f"no daemon, and {', '.join(waits)}")
    return said


def needs_somebody(found: Iterable[Row]) -> bool:
    return any(row["attention"] for row in found)


def _urgency(row: Row) -> tuple[int, str, str, str]:
    """Red, gone or unreadable first; then what waits for somebody, the longest first; then amber; then by name."""
    if row["state"] != "ok" or row["health"] == Grade.RED:
        grade = 0
    elif row["attention"]:
        grade = 1
    else:
        grade = 2 if row["health"] == Grade.AMBER else 3
    stuck = row.get("stuck")
    return grade, stuck["since"] if stuck else "~", row["agent"] or "~", row["workspace"]


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


# ---------------------------------------------------------------- for people


def lines(found: Sequence[Row], room: int) -> Iterator[str]:
    """A table: one line for each workspace, at most `room` columns (60 or more) wide."""
    room = max(room, _NARROWEST)
    cells = [("AGENT", "HEALTH", "DAEMON", "OPEN", "NEEDS SOMEBODY"), *(_cells(row, room) for row in found)]
    widths = [max(width(row[column]) for row in cells) for column in range(4)]
    left = room - sum(widths) - 2 * len(widths)
    for number, row in enumerate(cells):
        shown = [pad(cell, size) for cell, size in zip(row, widths, strict=False)]
        colour = _LOOKS.get(row[1]) if number else None
        if colour:
            shown[1] = click.style(shown[1], fg=colour)
        yield "  ".join([*shown, fit(row[4], max(left, 8))]).rstrip()


def _cells(row: Row, room: int) -> tuple[str, str, str, str, str]:
    name = fit(row["agent"] or Path(row["workspace"]).name, room // 5)
    if row["state"] != "ok":
        return name, row["state"], "", "", plain(f"{row['workspace']}: {row['why']}")
    runs = "up" if row["daemon"]["running"] else "down"
    amber = row["troubles"] if row["health"] == Grade.AMBER else []
    return name, row["health"], runs, fit(_open(row["open"]), room // 4), "; ".join([*row["attention"], *amber])


def _open(counts: dict[str, int]) -> str:
    """`2 running, 1 ready`; empty when nothing is open."""
    short = ((word, sum(counts.get(phase, 0) for phase in phases)) for word, phases in _SHORT)
    return ", ".join(f"{count} {word}" for word, count in short if count)


def summary(found: Sequence[Row]) -> str:
    """The line below the table."""
    urgent = sum(1 for row in found if row["attention"])
    return f"{_many(len(found), 'workspace')}, {urgent} need{'s' * (urgent == 1)} somebody"
