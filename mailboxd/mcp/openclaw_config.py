"""Reading and changing OpenClaw's configuration through its own commands. No token is ever in an argument list."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mailboxd.agents.ask import ask
from mailboxd.agents.callfiles import Exit
from mailboxd.agents.discovery import parse_config_file
from mailboxd.agents.jsonout import cli_error, parse_object, text_at
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.errors import UnavailableError
from mailboxd.mcp.registration import Current, Patch
from mailboxd.workspace.files import directory, publish, world_errors
from mailboxd.workspace.layout import STATE, Workspace

_SECONDS = 90.0
_UNSET = "Config path is valid but unset"


@dataclass(frozen=True, slots=True)
class OpenClawConfig:
    """`environment` is what OpenClaw runs with: it decides which installation is meant."""

    openclaw: OpenClaw
    environment: Mapping[str, str]

    def read(self) -> Current:
        """The sections that matter here. 3 s; works without the gateway. Raises UnavailableError."""
        return Current(self._section("agents"), self._section("mcp"))

    def read_agents(self) -> Current:
        """As `read`, without the servers: half the time. Raises UnavailableError."""
        return Current(self._section("agents"), {})

    def file(self) -> str:
        """Where it lies, to be watched and never to be parsed. Raises UnavailableError."""
        exit_ = ask(self.openclaw.config_file_argv(), self.environment, _SECONDS)
        if not (path := parse_config_file(exit_)):
            raise UnavailableError(f"OpenClaw does not say where its configuration lies: {_why(exit_)}")
        return path

    def _section(self, name: str) -> Mapping[str, Any]:
        exit_ = ask(self.openclaw.config_get_argv(name), self.environment, _SECONDS)
        if (cli_error(exit_) or "").startswith(_UNSET):
            return {}
        section = parse_object(exit_)
        if exit_.rc != 0 or section is None:
            raise UnavailableError(f"OpenClaw's configuration cannot be read: {_why(exit_)}")
        return section

    def apply(self, ws: Workspace, patch: Patch) -> None:
        """Merge the patch into it, all or nothing; a running gateway takes it up. Raises UnavailableError, WorldError.

        The patch holds tokens: it is handed over in a file of our own directory that only its owner can read.
        """
        name = f".mcp-{secrets.token_hex(8)}.json"
        with world_errors(f"write {ws.state / name}"), directory(ws.root, STATE) as state:
            publish(state, name, json.dumps(patch).encode())
            try:
                exit_ = ask(self.openclaw.config_patch_argv(ws.state / name), self.environment, _SECONDS)
            finally:
                os.unlink(name, dir_fd=state)
        if exit_.rc != 0:
            said = (exit_.stderr or exit_.stdout).decode("utf-8", "replace").strip()[-1000:]
            raise UnavailableError(f"OpenClaw did not take the change of its configuration: {said}")


def _why(exit_: Exit) -> str:
    """What OpenClaw itself says, with every issue that it names and so its remedy."""
    said = cli_error(exit_) or exit_.stderr.decode("utf-8", "replace").strip()[-500:] or f"status {exit_.rc}"
    issues = (parse_object(exit_) or {}).get("issues")
    named = [text_at(issue, "message") for issue in issues] if isinstance(issues, list) else []
    return "; ".join(filter(None, [said, *named]))
