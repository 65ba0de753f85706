"""A workspace with its configuration and its database, made where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mailboxd import config, user_state
from mailboxd.errors import ConfigError
from mailboxd.mailbox.files import directory, publish, world_errors
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.opening import open_workspace


def make(root: Path, agent: str, now: str, environ: Mapping[str, str], *, tools_port: int = 0) -> list[str]:
    """Make what is missing of `agent`'s workspace at `root`; the names of that. What is there stays as it is.

    It is noted among the workspaces of the user in whose `environ` we run.
    `tools_port`: `mcp.port` of a configuration that is written. Raises ConfigError when the workspace is another
    agent's or its configuration is wrong, WorldError.
    """
    text = with_port(config.default_text(agent), tools_port)
    ws = Workspace(root)
    made = Workspace.create(ws.root)
    if _write_config(ws.config, text):
        made.append(".mailboxd/config.yaml")
    require_same_agent(ws.config, config.load(ws.config).agent, agent)
    if not ws.database.exists():
        made.append(".mailboxd/mailboxd.db")
    open_workspace(ws.database, now).close()
    user_state.register(ws.root, environ)
    return made


def with_port(text: str, port: int) -> str:
    """The commented default configuration with `mcp.port` said; 0 leaves it unsaid."""
    if not port:
        return text
    before, group, after = text.partition("#mcp:\n")
    return before + group[1:] + after.replace("#  port: 0\n", f"  port: {port}\n", 1)


def require_same_agent(path: Path, said: str, agent: str) -> None:
    """Raises ConfigError unless the configuration at `path` is this agent's."""
    if said != agent:
        raise ConfigError(
            f"{path}: this is the workspace of agent {said}, and stays so; "
            f"edit the file if it is to be {agent}'s, or choose another directory"
        )


def _write_config(path: Path, text: str) -> bool:
    """Write the file, whole or not at all; False if there is one already."""
    with world_errors(f"write {path}"), directory(path.parent.parent, path.parent.name) as state:
        try:
            publish(state, path.name, text.encode())
        except FileExistsError:
            return False
    return True
