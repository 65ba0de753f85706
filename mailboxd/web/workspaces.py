"""Which workspaces the page shows, and by which name each is found in an address."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd import config, user_state
from mailboxd.errors import ConfigError, MailboxdError
from mailboxd.mailbox.layout import Workspace

_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A workspace. `key` names it in addresses, and is the same as long as the directory is."""

    ws: Workspace

    @property
    def key(self) -> str:
        digest = hashlib.sha256(os.fsencode(self.ws.root)).hexdigest()[:8]
        return f"{_STRANGE.sub('-', self.ws.root.name)[:40].strip('-') or 'workspace'}-{digest}"

    @property
    def path(self) -> str:
        """The directory, as text that can be shown."""
        return os.fsencode(self.ws.root).decode("utf-8", "replace")


@dataclass(slots=True)
class Places:
    """The workspaces that were `named`; without any those in the user's registry, and `own` in any case."""

    named: Sequence[Path] = ()
    own: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _agents: dict[Path, tuple[tuple[int, int], str]] = field(default_factory=dict)

    def all(self) -> list[Place]:
        """Those that are there now, each once, in the order they came. Raises nothing."""
        roots = list(self.named)
        if not roots:
            roots = [*([self.own] if self.own else []), *(ws.root for ws in self._registered())]
        return [Place(Workspace(root)) for root in dict.fromkeys(roots)]

    def find(self, key: str) -> Place | None:
        return next((place for place in self.all() if place.key == key), None)

    def agent(self, place: Place) -> str:
        """The agent that the configuration names; empty when it cannot be read. Checked again when the file changes."""
        try:
            status = place.ws.config.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._agents.get(place.ws.root)
            if known is None or known[0] != stamp:
                known = self._agents[place.ws.root] = (stamp, config.load(place.ws.config).agent)
        except (OSError, MailboxdError):
            return ""
        return known[1]

    def _registered(self) -> list[Workspace]:
        try:
            return user_state.workspaces(self.environ)
        except MailboxdError:
            return []


def require(root: Path) -> Path:
    """The real path of a workspace that was named. Raises UnavailableError."""
    return Workspace.find(root, root).root


Settings = Callable[[Place], "config.Config"]


def settings(place: Place) -> config.Config:
    """The configuration of a workspace. Raises ConfigError."""
    if not place.ws.config.exists():
        raise ConfigError(f"{place.path}: there is no configuration; `mailboxd init` writes one")
    return config.load(place.ws.config)
