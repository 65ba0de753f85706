"""What the gateway's plugin may offer this workspace's agent in its chats: `.mailboxd/delegation.json`.

The plugin reads it whenever OpenClaw asks for the agent's tools, also while no daemon runs. It is advice: whatever is
given away arrives as a file in the inbox, and is judged there like any other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailboxd.daemon.peers import Peers
from mailboxd.engine.engine import Engine
from mailboxd.formats.config.model import Config
from mailboxd.formats.mailbox.files import directory, read_file, replace
from mailboxd.formats.mailbox.layout import STATE, Workspace

_EVERY = 15.0
"""Seconds between two comparisons with what is known of the peers."""
_LARGEST = 1 << 20
_ANYONE = "*"
_MOST_ROLE = 160
_MOST_OPEN = 100
"""Unfinished tasks that an agent has given away, if `limits.sender_open_tasks` is 0: a model may repeat itself
for ever, and OpenClaw's own cap on sub-agents does not count them."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class DelegationFile:
    """Keeps the file of one workspace."""

    ws: Workspace
    config: Config
    engine: Engine
    peers: Peers
    _written: bytes | None = field(default=None, init=False)

    def perform(self) -> float:
        """Write the file if it says something else; returns when to look again."""
        raw = f"{json.dumps(self._said(), ensure_ascii=False, sort_keys=True)}\n".encode("utf-8", "replace")
        if raw != self._written:
            try:
                with directory(self.ws.root, STATE) as fd:
                    if read_file(fd, self.ws.delegation.name, _LARGEST) != raw:
                        replace(fd, self.ws.delegation.name, raw, lambda: True)
                self._written = raw
            except OSError as error:  # work goes on without it, and what is wrong with the disk is said elsewhere
                _log.warning("%s cannot be written: %s", self.ws.delegation, error.strerror)
        return self.engine.clock.monotonic() + _EVERY

    def _said(self) -> Mapping[str, Any]:
        settings = self.engine.settings
        return {
            "agent": settings.agent,
            "bytes": self.config.limits.message_bytes,
            "closed": self._closed(),
            "mode": self.config.openclaw.delegate,
            "models": list(settings.models),
            "peers": self._peers(),
        }

    def _peers(self) -> dict[str, str] | None:
        """The peers with their roles; None while it is not known who they are."""
        if not self.peers.enabled:
            return {_ANYONE: ""}
        if not self.peers.has_rules:
            return None
        return {peer.name: peer.does[:_MOST_ROLE] for peer in self.peers.offered()}

    def _closed(self) -> str:
        """Why the agent may give nothing away at the moment; empty if it may."""
        settings = self.engine.settings
        most = settings.open_per_sender or _MOST_OPEN
        if self.engine.store.tasks.has_open_from(settings.agent, most):
            return f"{settings.agent} has {most} unfinished tasks here (limits.sender_open_tasks); wait for some to end"
        if settings.agent.lower() in (name.lower() for name in self.config.signing.require):
            return f"messages of {settings.agent} have to be signed (signing.require), which a chat cannot do"
        return ""
