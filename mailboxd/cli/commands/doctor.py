"""`mailboxd doctor`: what stands between this workspace and finished work, and what mends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import columns, fit, say
from mailboxd.errors import EXIT_NO

if TYPE_CHECKING:
    from mailboxd.doctor.examination import Subject
    from mailboxd.doctor.facts import Facts
    from mailboxd.doctor.finding import Finding

    Judged = list[tuple[str, Finding]]

_CLEAR_LINE = "\r\x1b[K"


@verb("doctor", "doctor", "doctor --strict --json", "doctor --canary", exits={EXIT_NO: "something has to be mended"})
@click.option("--canary", is_flag=True, help="Also make one real turn of the agent: it calls the model, once.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
def command(session: Session, canary: bool, strict: bool) -> int:
    """Examine this machine, OpenClaw, its gateway and the workspace, and say for each finding what mends it.

    Changes nothing and takes 10 to 20 seconds. Works outside a workspace too, for the machine and OpenClaw. Where the
    gateway plugin is installed, it is sent a message that it has to refuse.
    --canary orders one harmless turn of the agent and, where the gateway plugin is installed, sends a message to the
    own mailbox, which is filed there and leads to nothing.
    """
    from mailboxd.cli import findings
    from mailboxd.doctor import examination

    about = examination.subject(*examination.workspace_at(Path.cwd(), session.path), os.environ)
    found = examine(session, about, canary=canary)
    return findings.conclude(session, str(about.ws.root) if about.ws is not None else None, found, strict=strict)


def examine(session: Session, about: Subject, *, canary: bool) -> Judged:
    """All findings about the subject, told as they come unless JSON is asked for."""
    from mailboxd.cli import findings
    from mailboxd.doctor import examination, table

    facts = examination.gather(about, os.environ, session.clock, _tell)
    _tell("")
    found = list(table.judge(facts))
    if not session.as_json:
        findings.show(found)
    if canary:
        flown = [("canary", finding) for finding in _fly(session, about, facts, found)]
        found += flown
        if not session.as_json:
            findings.show(flown)
    return found


def _fly(session: Session, about: Subject, facts: Facts, found: Judged) -> Iterable[Finding]:
    from mailboxd.doctor import canary
    from mailboxd.doctor.finding import error, note

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
