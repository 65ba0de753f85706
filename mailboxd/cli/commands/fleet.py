"""`mailboxd fleet`: all workspaces of this user, and the other hosts of the hub."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from mailboxd.cli.session import Session, agent_of, verb
from mailboxd.cli.text import MOST_ENTRIES, counted, fit, folded_list, lasted, pad, room, width
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import in_states
from mailboxd.errors import EXIT_NO, MailboxdError
from mailboxd.formats import health
from mailboxd.formats.health import Grade
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.ledger import attention
from mailboxd.ledger.attention import Need

if TYPE_CHECKING:
    from mailboxd.core.explain.overview_details import FleetRow, HostRow, LostWorkspace, WorkspaceRow
    from mailboxd.host.clock import Clock


@verb(
    "fleet",
    "fleet",
    "fleet --json | jq -r '.[].attention[].command'",
    "fleet ~/agents/*",
    exits={EXIT_NO: "a workspace needs attention"},
)
@click.option("--all", "everything", is_flag=True, help=f"All workspaces, also of more than {MOST_ENTRIES}.")
@click.argument("workspaces", nargs=-1, type=click.Path(file_okay=False, path_type=Path))
def fleet_command(session: Session, workspaces: Sequence[Path], everything: bool) -> int | None:
    """Show each workspace on this machine and each other host of the hub; those that need attention come first.

    By default these are the workspaces in which this user has run `mailboxd init` or `mailboxd run`. A workspace needs
    attention if something in it waits for a person (`mailboxd inbox`), or if it is missing or unreadable; a host if
    something waits there, or if it is silent: then the rest of its line is stale. The oldest item is shown, if `show`
    in that host's hub.yaml allows it.
    """
    found = _rows(session, workspaces)
    now, how = session.clock.now(), shlex.join(["mailboxd", "fleet", "--all", *map(str, workspaces)])
    rows = folded_list(found, lambda some: lines(some, now, room()), everything, how)
    shown = [*rows, summary(found)] if found else ()
    session.show(found, shown, "no known workspaces; `mailboxd init` and `mailboxd run` register theirs")
    return EXIT_NO if any(map(needs_attention, found)) else None


def _rows(session: Session, named: Sequence[Path]) -> list[FleetRow]:
    """The workspaces that are named, or all of this user and the other hosts."""
    from mailboxd.formats.user import registry

    if not named and session.path is not None:
        named = [session.path]
    roots = [path.resolve() for path in named] or registry.registered(os.environ)
    found = [row_of(root, session.clock) for root in roots]
    return sorted([*found, *([] if named else hosts(session.clock.now()))], key=_urgency)


def hosts(now: str) -> list[HostRow]:
    """The other hosts of the hub, as this one knows them; none without a hub. Raises ConfigError, WorldError."""
    from mailboxd.hub.client.other_hosts import other_hosts

    return other_hosts(os.environ, now)


# The state of each workspace, read in a few milliseconds; one that cannot be read is a row that says so

_COLORS = {"green": "green", "amber": "yellow", "red": "red", "gone": "red", "unreadable": "red", "silent": "red"}
"""Fields that change with time, without an event."""
_MOST_ITEMS = 3
_NARROWEST = 60


def row_of(root: Path, clock: Clock) -> WorkspaceRow | LostWorkspace:
    """One workspace. Never raises."""
    ws, agent = Workspace(root), None
    try:
        if not ws.state.is_dir():
            return _lost(root, None, "gone", "the workspace no longer exists")
        agent = agent_of(ws)  # stays if the database cannot be read
        return _current_state(ws, clock)
    except (MailboxdError, OSError) as error:
        return _lost(root, agent, "unreadable", str(error).partition("\n")[0])


def _lost(root: Path, agent: str | None, state: Literal["gone", "unreadable"], why: str) -> LostWorkspace:
    return {
        "agent": agent, "workspace": str(root), "state": state, "why": why, "attention": [], "attention_count": 0
    }  # fmt: skip


def _current_state(ws: Workspace, clock: Clock) -> WorkspaceRow:
    from mailboxd.formats.user import standstills
    from mailboxd.ledger import seen_items
    from mailboxd.ledger.reports import opened

    pid = lock.holder(ws)
    now = clock.now()
    grade, troubles = health.read(ws, pid, now, clock.monotonic())
    with opened(ws.database) as report, report.snapshot():
        latest = report.last_event_at()
        seen = seen_items.seen(ws.root, os.environ, now)
        paused = standstills.standstill(os.environ)
        waiting = attention.of(ws, report, clock, attention.program_for(ws), seen, most=_MOST_ITEMS, paused=paused)
        agent = agent_of(ws) or report.agent()
    worst = sorted(troubles, key=lambda trouble: trouble.grade is not Grade.RED)
    return {
        "agent": agent,
        "workspace": str(ws.root),
        "state": "ok",
        "why": "",
        "attention": waiting.as_json(),
        "attention_count": waiting.total,
        "daemon": health.daemon_details(ws, pid, now),
        "health": str(waiting.graded(grade, pid)),
        "troubles": [f"{trouble.where}: {trouble.why}" for trouble in worst if not trouble.needs_person(now)],
        "inbox": len(ws.mail()),
        "open": waiting.open.total,
        "phases": dict(waiting.open.phases),
        "latest": latest,
        "states": in_states(waiting.states(waiting.open.phases)),
    }


def needs_attention(row: FleetRow) -> bool:
    return row["state"] != "ok" or bool(row["attention_count"])


def _urgency(row: FleetRow) -> tuple[int, str, str, str]:
    """Sort key: red, missing or unreadable; then waiting for a person, longest first; then amber; then by name."""
    if row["state"] != "ok" or row["health"] == Grade.RED or any(i["kind"] == Need.CONFIG for i in row["attention"]):
        grade = 0
    elif row["attention_count"]:
        grade = 1
    else:
        grade = 2 if row["health"] == Grade.AMBER else 3
    since = min((item["since"] or "~" for item in row["attention"]), default="~")
    name = row["host"] if "host" in row else row["agent"]
    return grade, since, name or "~", row["workspace"]


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def lines(found: Sequence[FleetRow], now: str, room: int) -> Iterator[str]:
    """A table with one line per workspace, at most `room` (60 or more) columns wide."""
    room = max(room, _NARROWEST)
    cells = [("AGENT", "HEALTH", "DAEMON", "OPEN", "NEEDS ATTENTION"), *(_cells(row, now, room) for row in found)]
    widths = [max(width(row[column]) for row in cells) for column in range(4)]
    left = room - sum(widths) - 2 * len(widths)
    for number, row in enumerate(cells):
        shown = [pad(cell, size) for cell, size in zip(row, widths, strict=False)]
        colour = _COLORS.get(row[1]) if number else None
        if colour:
            shown[1] = click.style(shown[1], fg=colour)
        yield "  ".join([*shown, fit(row[4], max(left, 8))]).rstrip()


def _cells(row: FleetRow, now: str, room: int) -> tuple[str, str, str, str, str]:
    if "host" in row:
        return _host_cells(row, now, room)
    name = fit(row["agent"] or Path(row["workspace"]).name, room // 5)
    if row["state"] != "ok":
        return name, row["state"], "", "", for_terminal(f"{row['workspace']}: {row['why']}")
    daemon = row["daemon"]
    runs = "stopping" if daemon["stopping"] else "up" if daemon["running"] else "down"
    return name, row["health"], runs, fit(counted(row["states"]), room // 4), "; ".join(_told(row, now))


def _host_cells(row: HostRow, now: str, room: int) -> tuple[str, str, str, str, str]:
    what = f"{row['open']} in {_many(len(row['agents']), 'agent')}" if row["agents"] else "no agents"
    serves = [f"serves {', '.join(f'pool:{role}' for role in row['pools'])}"] if row["pools"] else []
    told = "; ".join([*([row["why"]] if row["why"] else []), *_told(row, now), *serves])
    health = row["health"] if row["state"] == "ok" else row["state"]
    return fit(row["host"], room // 5), health, "host", fit(what, room // 4), for_terminal(told)


def _told(row: WorkspaceRow | HostRow, now: str) -> Iterator[str]:
    """The first item that waits for a person, the number of others, and troubles."""
    if row["attention_count"] and not row["attention"]:
        yield f"{row['attention_count']} for a person there"
    for item in row["attention"][:1]:
        more = f"{row['attention_count']} for you: " if row["attention_count"] > 1 else ""
        about = f"{item['task']}: " if item["task"] else ""
        age = f" ({lasted(to_epoch(now) - to_epoch(item['since']))})" if item["since"] else ""
        yield f"{more}{about}{item['text']}{age}"
    yield from row["troubles"]


def summary(found: Sequence[FleetRow]) -> str:
    """The line below the table."""
    urgent, others = sum(map(needs_attention, found)), sum("host" in row for row in found)
    and_hosts = f" and {_many(others, 'other host')}" if others else ""
    workspaces = _many(len(found) - others, "workspace")
    return f"{workspaces}{and_hosts}, {urgent} need{'s' * (urgent == 1)} attention"
