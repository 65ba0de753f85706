"""`mailboxd check`: is the workspace as it has to be? What `doctor` finds out without asking OpenClaw anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say
from mailboxd.errors import EXIT_CONFIG, EXIT_NO

if TYPE_CHECKING:
    from mailboxd.workspace.layout import Workspace

_STATE = ".mailboxd"


@verb(
    "check",
    "check",
    "check --fix",
    "check --strict --json",
    exits={EXIT_NO: "something has to be mended", EXIT_CONFIG: "the configuration is wrong"},
)
@click.option("--fix", is_flag=True, help="First make directories that are missing, and take from others what is ours.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
def command(session: Session, fix: bool, strict: bool) -> int:
    """Check the workspace: owners, permissions, missing directories, links, configuration, keys, database, leftovers.

    Takes less than a second, asks OpenClaw nothing, and works whether a daemon runs or not; `mailboxd doctor` looks at
    all the rest too. Changes nothing without --fix, which only makes directories and takes away rights of others.
    """
    from mailboxd.cli import findings
    from mailboxd.doctor import examination, table

    ws = session.workspace()
    if fix:
        for line in _mended(ws):
            say(plain(line), err=True)
    about = examination.subject(ws, "", os.environ)
    found = list(table.judge(examination.gather(about, os.environ, session.clock, lambda _name: None, near=True)))
    if not session.as_json:
        findings.show(found)
    status = findings.conclude(session, str(ws.root), found, strict=strict)
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
    from mailboxd.workspace.files import directory, world_errors

    with world_errors(f"change the mode of {path}"), directory(path.parent, path.name) as fd:
        os.fchmod(fd, mode)
