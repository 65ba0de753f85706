"""`mailboxd init`: make a workspace."""

from __future__ import annotations

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
    from mailboxd import config
    from mailboxd.store.store import Store
    from mailboxd.workspace.layout import Workspace

    text = config.default_text(agent)
    ws = Workspace((directory or session.path or Path.cwd()).resolve())
    made = Workspace.create(ws.root)
    if _write_config(ws.config, text):
        made.append(".mailboxd/config.yaml")
    _require_same_agent(ws.config, config.load(ws.config).agent, agent)
    if not ws.database.exists():
        made.append(".mailboxd/mailboxd.db")
    Store.open(ws.database, session.clock.now()).close()
    if session.as_json:
        say(to_json({"workspace": str(ws.root), "agent": agent, "made": made}))
        return
    say(plain(f"{ws.root}: the workspace of agent {agent}"))
    say("made " + ", ".join(made) if made else "all of it was there already")
    say(f"next: look at {plain(str(ws.config))}, then `mailboxd run`, and drop a file into mailbox/inbox/")


def _write_config(path: Path, text: str) -> bool:
    """Write the file, whole or not at all; False if there is one already."""
    from mailboxd.workspace.files import directory, publish, world_errors

    with world_errors(f"write {path}"), directory(path.parent.parent, path.parent.name) as state:
        try:
            publish(state, path.name, text.encode())
        except FileExistsError:
            return False
    return True


def _require_same_agent(path: Path, said: str, agent: str) -> None:
    from mailboxd.errors import ConfigError

    if said != agent:
        raise ConfigError(
            f"{path}: this is the workspace of agent {said}, and stays so; "
            f"edit the file if it is to be {agent}'s, or choose another directory"
        )
