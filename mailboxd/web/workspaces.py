"""The workspaces that the page shows, and their keys in addresses."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd import config, user_state
from mailboxd.errors import ConfigError, MailboxdError
from mailboxd.mailbox.layout import Workspace

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class WebWorkspace:
    """A workspace on the page. `key` identifies it in addresses and depends only on its directory."""

    ws: Workspace

    @property
    def key(self) -> str:
        digest = hashlib.sha256(os.fsencode(self.ws.root)).hexdigest()[:8]
        return f"{_UNSAFE.sub('-', self.ws.root.name)[:40].strip('-') or 'workspace'}-{digest}"

    @property
    def path(self) -> str:
        """The directory as printable text."""
        return os.fsencode(self.ws.root).decode("utf-8", "replace")


@dataclass(slots=True)
class WebWorkspaces:
    """The workspaces in `named`; if there are none, `own` and those in the user's registry."""

    named: Sequence[Path] = ()
    own: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _agents: dict[Path, tuple[tuple[int, int], str]] = field(default_factory=dict)

    def all(self) -> list[WebWorkspace]:
        """All of them, each once. Raises nothing."""
        roots = list(self.named)
        if not roots:
            roots = [*([self.own] if self.own else []), *(ws.root for ws in self._registered())]
        return [WebWorkspace(Workspace(root)) for root in dict.fromkeys(roots)]

    def find(self, key: str) -> WebWorkspace | None:
        return next((workspace for workspace in self.all() if workspace.key == key), None)

    def agent(self, workspace: WebWorkspace) -> str:
        """The agent in the configuration, cached until the file changes; empty if it cannot be read."""
        try:
            status = workspace.ws.config.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._agents.get(workspace.ws.root)
            if known is None or known[0] != stamp:
                known = self._agents[workspace.ws.root] = (stamp, config.load(workspace.ws.config).agent)
        except (OSError, MailboxdError):
            return ""
        return known[1]

    def _registered(self) -> list[Workspace]:
        try:
            return user_state.workspaces(self.environ)
        except MailboxdError:
            return []


def require(root: Path) -> Path:
    """The real path of a workspace. Raises UnavailableError."""
    return Workspace.find(root, root).root


def settings(workspace: WebWorkspace) -> config.Config:
    """The configuration of a workspace. Raises ConfigError."""
    if not workspace.ws.config.exists():
        raise ConfigError(f"{workspace.path}: there is no configuration; `mailboxd init` writes one")
    return config.load(workspace.ws.config)
