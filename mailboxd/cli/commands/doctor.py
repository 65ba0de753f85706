"""`mailboxd doctor`: what stands between this workspace and finished work, and what mends it."""

from __future__ import annotations

import os
import stat
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import columns, fit, say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_OK

if TYPE_CHECKING:
    from mailboxd.doctor.examination import Subject
    from mailboxd.doctor.facts import Facts, Finding
    from mailboxd.mailbox.layout import Workspace

    Judged = list[tuple[str, Finding]]


_CLEAR_LINE = "\r\x1b[K"


@verb("doctor", "doctor", "doctor --strict --json", "doctor --canary", exits={EXIT_NO: "a problem was found"})
@click.option("--canary", is_flag=True, help="Run one real turn of the agent, which calls the model once.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
def doctor_command(session: Session, canary: bool, strict: bool) -> int:
    """Diagnose the machine, OpenClaw, its gateway and the workspace, with a fix for every problem.

    Takes 10 to 20 seconds, changes nothing, and also works outside a workspace. The gateway plugin, if installed, is
    sent a message that it must refuse.

    --canary also runs one harmless turn of the agent and, with the plugin, sends a message to the agent's own mailbox,
    which is archived without effect.
    """
    from mailboxd.doctor import examination

    about = examination.subject(*examination.workspace_at(Path.cwd(), session.path), os.environ)
    found = examine(session, about, canary=canary)
    return conclude(session, str(about.ws.root) if about.ws is not None else None, found, strict=strict)


def examine(session: Session, about: Subject, *, canary: bool) -> Judged:
    """All findings about the subject, told as they come unless JSON is asked for."""
    from mailboxd.doctor import examination
    from mailboxd.doctor import examination as table

    facts = examination.gather(about, os.environ, session.clock, _tell)
    _tell("")
    found = list(table.judge(facts))
    if not session.as_json:
        show(found)
    if canary:
        flown = [("canary", finding) for finding in _fly(session, about, facts, found)]
        found += flown
        if not session.as_json:
            show(flown)
    return found


def _fly(session: Session, about: Subject, facts: Facts, found: Judged) -> Iterable[Finding]:
    from mailboxd.doctor import canary
    from mailboxd.doctor.facts import error, note

    if about.ws is None or not about.settings.agent:
        return [error("canary-turn", "there is no workspace, and so no agent to try", "mailboxd -w DIRECTORY doctor")]
    if any(finding.level == "error" for group, finding in found if group != "workspace"):
        return [note("canary-turn", "no turn was tried: first the errors above", "mailboxd doctor")]
    if not session.as_json:
        say(f"canary: one real turn of agent {about.settings.agent} now; it calls the model, once", err=True)
    plugin = facts.plugin is not None and facts.plugin.installed and not facts.plugin.problem
    running = facts.daemon is not None and facts.daemon.pid is not None
    return canary.fly(about, session.clock, session.pause, plugin=plugin, daemon=running)


# ---------------------------------------------------------------- for people


def _tell(name: str) -> None:
    """One line that says what is looked at, while it is; only where somebody watches."""
    if sys.stderr.isatty():
        say(_CLEAR_LINE + (fit(f"looking at {name} ...", columns() - 1) if name else ""), err=True, newline=False)


# ---------------------------------------------------------------------------------------------------------------------
# `mailboxd check`: is the workspace as it has to be? What `doctor` finds out without asking OpenClaw anything.

_STATE = ".mailboxd"


@verb(
    "check",
    "check",
    "check --fix",
    "check --strict --json",
    exits={EXIT_NO: "a problem was found"},
)
@click.option("--fix", is_flag=True, help="First create missing directories and remove other users' permissions.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
def check_command(session: Session, fix: bool, strict: bool) -> int:
    """Check the workspace: ownership, permissions, directories, links, configuration, keys, database, leftovers.

    Takes less than a second and does not contact OpenClaw; `mailboxd doctor` checks the rest. Only --fix changes
    anything: it creates missing directories and removes other users' permissions.
    """
    from mailboxd.doctor import examination
    from mailboxd.doctor import examination as table

    ws = session.workspace()
    if fix:
        for line in _mended(ws):
            say(for_terminal(line), err=True)
    about = examination.subject(ws, "", os.environ)
    found = list(table.judge(examination.gather(about, os.environ, session.clock, lambda _name: None, near=True)))
    if not session.as_json:
        show(found)
    status = conclude(session, str(ws.root), found, strict=strict)
    return EXIT_CONFIG if about.settings.problem else status


def _mended(ws: Workspace) -> list[str]:
    """Do what needs no decision; a line about each thing done. Raises ConfigError for a link, WorldError."""
    done = [f"made {name}/" for name in type(ws).create(ws.root)]
    for path in (ws.root, ws.inbox, ws.outbox, ws.archive, ws.rejected, ws.tasks, ws.state):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        wanted = mode & ~(0o077 if path.name == _STATE else 0o022)
        if status.st_uid == os.geteuid() and wanted != mode:
            _restrict(path, wanted)
            done.append(f"chmod {wanted:o} {path}")
    return done


def _restrict(path: Path, mode: int) -> None:
    from mailboxd.mailbox.files import directory, world_errors

    with world_errors(f"change the mode of {path}"), directory(path.parent, path.name) as fd:
        os.fchmod(fd, mode)


# ---------------------------------------------------------------------------------------------------------------------
# What `doctor` and `check` found, for people and as JSON, and how they exit.

_MARKS = {"ok": ("✓", "green"), "note": ("·", None), "warning": ("!", "yellow"), "error": ("✗", "red")}
_TITLES = {
    "machine": "this machine",
    "openclaw": "OpenClaw",
    "agent": "the agent",
    "workspace": "the workspace",
    "unknown": "not known",
    "canary": "canary",
}


def conclude(session: Session, workspace: str | None, found: Judged, *, strict: bool) -> int:
    """Say the sum, or all of it as JSON; the exit status."""
    counts = Counter(str(finding.level) for _, finding in found)
    bad = counts["error"] + (counts["warning"] if strict else 0)
    if session.as_json:
        shown = as_json(found)
        levels = {level: counts[level] for level in _MARKS}
        say(to_json({"workspace": workspace, "healthy": not bad, "counts": levels, "findings": shown}))
    else:
        if counts.keys() - {"ok"}:
            say("what each [name] means, and what to do: docs/runbook.md#name")
        say(_sum(counts))
    return EXIT_NO if bad else EXIT_OK


def show(found: Judged) -> None:
    """Every finding under the title of its group, each mend on a line of its own."""
    last = ""
    for group, finding in found:
        if group != last:
            say(_TITLES[group])
            last = group
        mark, colour = _MARKS[finding.level]
        sign = click.style(mark, fg=colour) if colour else mark
        named = "" if finding.level == "ok" else f" [{finding.id}]"
        text = " ".join(for_terminal(finding.text + named).split())
        lines = textwrap.wrap(text, columns() - 4, break_on_hyphens=False)
        say(f"  {sign} " + "\n    ".join(lines))
        for mend in finding.mends:
            say(f"    -> {for_terminal(mend)}")  # never broken into lines: it is there to be copied
    say()


def as_json(found: Judged) -> list[dict[str, Any]]:
    """The findings as JSON says them."""
    return [
        {"group": group, "id": one.id, "level": one.level, "text": one.text, "mends": list(one.mends)}
        for group, one in found
    ]


def _sum(counts: Counter[str]) -> str:
    told = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("error", "warning", "note")
        if counts[level]
    ]
    return ", ".join(told) if told else "all is well"
