"""`mailboxd init`, `import` and `config`: workspaces and their configuration."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.live import bars
from mailboxd.cli.operator_actions import OPERATOR, require_operator
from mailboxd.cli.session import Id, Session, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_CONFIG, EXIT_LOCKED, EXIT_NO

if TYPE_CHECKING:
    from mailboxd.config import Config


@verb(
    "init",
    "init --agent analyst",
    "init ~/.openclaw/workspace-analyst --agent analyst",
    exits={EXIT_CONFIG: "the workspace belongs to another agent, or its configuration is invalid"},
)
@click.argument("directory", metavar="[WORKSPACE]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--agent", type=Id(), required=True, help="The agent's OpenClaw id.")
def init_command(session: Session, directory: Path | None, agent: str) -> None:
    """Create the directories, configuration and database in WORKSPACE (default: the current directory).

    Directories are private to their owner (0700). Existing files are kept, so it is safe to run again.
    """
    from mailboxd.mailbox.layout import Workspace
    from mailboxd.setup.workspace import make

    ws = Workspace((directory or session.path or Path.cwd()).resolve())
    made = make(ws.root, agent, session.clock.now(), os.environ)
    if session.as_json:
        say(to_json({"workspace": str(ws.root), "agent": agent, "made": made}))
        return
    say(for_terminal(f"{ws.root}: the workspace of agent {agent}"))
    say("made " + ", ".join(made) if made else "everything already exists")
    say(f"next: check {for_terminal(str(ws.config))}, start `mailboxd run`, and drop a file into mailbox/inbox/")


@verb(
    "import",
    "import",
    "import --workspace ~/.openclaw/workspace-analyst --json",
    exits={
        EXIT_NO: "some items could not be imported (they are listed)",
        EXIT_LOCKED: "a daemon is running (stop it first)",
    },
)
def import_command(session: Session) -> int:
    """Import a workspace that ran clawflow without mailboxd: its archive and its open tasks.

    Run it once, after `mailboxd init` and before `mailboxd run`. Archived messages count as seen. Each task resumes
    from the state in its task.md: finished work is kept, dispatched work waits for its reply, and work that was in
    progress here starts again. No file is moved. Running it again imports only what is new.
    """
    from mailboxd import config
    from mailboxd.daemon import assemble

    require_operator(OPERATOR)
    ws = session.workspace()
    with assemble.importer(ws, config.load(ws.config)) as take_over, bars() as progress:
        account = take_over(progress)
    if session.as_json:
        problems = [{"path": path, "problem": problem} for path, problem in account.problems]
        counts = {"messages": account.messages, "tasks": account.tasks, "known": account.known}
        say(to_json(counts | {"problems": problems}))
        return EXIT_NO if problems else 0
    say(f"{account.messages} archived messages and {len(account.tasks)} tasks imported; {account.known} already known")
    for local_id in account.tasks:
        say(for_terminal(f"  {local_id}"))
    for path, problem in account.problems:
        say(for_terminal(f"{path}: {problem}"), err=True)
    say("next: `mailboxd status`, then `mailboxd run`")
    return EXIT_NO if account.problems else 0


@verb(
    "config",
    "config",
    "config --all",
    "config limits.turns",
    "config --path",
)
@click.argument("key", required=False)
@click.option("--all", "everything", is_flag=True, help="Include settings at their defaults.")
@click.option("--path", is_flag=True, help="Print the path of the configuration file.")
def config_command(session: Session, key: str | None, everything: bool, path: bool) -> None:
    """Validate the configuration and print the settings that differ from the defaults, or those that match KEY.

    KEY is a setting or a group of settings, such as `limits`.
    """
    from mailboxd import config

    ws = session.workspace()
    if path:
        say(to_json({"path": str(ws.config)}) if session.as_json else for_terminal(str(ws.config)))
        return
    settings = config.load(ws.config)
    changed = {"agent": settings.agent, **config.differences(settings)}
    found = _values(settings) if everything or key is not None else changed
    if key is not None:
        found = _below(found, key)
    if session.as_json:
        say(to_json(found))
    elif key in found:
        say(_shown(found[key]))
    else:
        for name, value in found.items():
            say(f"{name}: {_shown(value)}")


def _values(settings: Config) -> dict[str, Any]:
    """Every key as `group.key`."""
    flat: dict[str, Any] = {}
    for name, value in settings.model_dump(mode="json").items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _below(values: dict[str, Any], key: str) -> dict[str, Any]:
    found = {name: value for name, value in values.items() if name == key or name.startswith(f"{key}.")}
    if not found:
        near = difflib.get_close_matches(key, values, 1)
        raise click.UsageError(
            f"there is no key {key!r}" + (f"; did you mean {near[0]}?" if near else "; `mailboxd config --all`")
        )
    return found


def _shown(value: Any) -> str:
    return for_terminal(value) if isinstance(value, str) else to_json(value, indent=None)
