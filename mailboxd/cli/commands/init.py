"""`mailboxd init`: make a workspace."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mailboxd.cli.params import Id
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_CONFIG


@verb(
    "init",
    "init --agent analyst",
    "init ~/.openclaw/workspace-analyst --agent analyst",
    exits={EXIT_CONFIG: "the workspace is another agent's, or its configuration is wrong"},
)
@click.argument("directory", metavar="[WORKSPACE]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--agent", type=Id(), required=True, help="The OpenClaw id of the agent whose mailbox this is.")
def command(session: Session, directory: Path | None, agent: str) -> None:
    """Make the directories, the configuration and the database in WORKSPACE (default: here).

    Directories are made for their owner only (0700); what is there already stays as it is. Running it again is safe.
    """
    from mailboxd.setup.home import make
    from mailboxd.workspace.layout import Workspace

    ws = Workspace((directory or session.path or Path.cwd()).resolve())
    made = make(ws.root, agent, session.clock.now(), os.environ)
    if session.as_json:
        say(to_json({"workspace": str(ws.root), "agent": agent, "made": made}))
        return
    say(plain(f"{ws.root}: the workspace of agent {agent}"))
    say("made " + ", ".join(made) if made else "all of it was there already")
    say(f"next: look at {plain(str(ws.config))}, then `mailboxd run`, and drop a file into mailbox/inbox/")
