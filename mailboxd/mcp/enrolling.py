"""Registering the callers of a workspace in OpenClaw, and taking that back: tokens and entries in step."""

from __future__ import annotations

from collections.abc import Iterable

from mailboxd.config import Config
from mailboxd.errors import ConfigError
from mailboxd.mcp import registration, tokens
from mailboxd.mcp.caller import Caller
from mailboxd.mcp.openclaw_config import OpenClawConfig
from mailboxd.mcp.registration import Change
from mailboxd.mcp.tokens import Grant
from mailboxd.workspace.layout import Workspace


def require_port(ws: Workspace, config: Config) -> int:
    """Where the tools are served. Raises ConfigError if nowhere."""
    if not config.mcp.port:
        raise ConfigError(f"{ws.config}: set `mcp.port` to a free port of this machine, such as 8765")
    return config.mcp.port


def register(
    ws: Workspace, config: Config, openclaw: OpenClawConfig, callers: Iterable[Caller], now: str, *, dry_run: bool
) -> Change:
    """Entries and denials that are missing, for these callers. Raises ConfigError, UnavailableError, WorldError."""
    url, held = registration.url(require_port(ws, config)), tokens.load(ws)
    change = registration.install(openclaw.read(), held, callers, config.agent, url, tokens.new_token, now)
    if change.patch and not dry_run:
        _apply(ws, openclaw, change, held)
    return change


def close_gaps(ws: Workspace, openclaw: OpenClawConfig) -> Change:
    """Deny the registered tools to agents that came later. Raises ConfigError, UnavailableError, WorldError."""
    held = tokens.load(ws)
    change = registration.close_gaps(openclaw.read_agents(), held)
    if change.patch:
        _apply(ws, openclaw, change, held)
    return change


def _apply(ws: Workspace, openclaw: OpenClawConfig, change: Change, held: tuple[Grant, ...]) -> None:
    tokens.save(ws, change.grants)  # first: what OpenClaw has must be valid
    try:
        openclaw.apply(ws, change.patch)
    except BaseException:
        tokens.save(ws, held)
        raise


def unregister(ws: Workspace, openclaw: OpenClawConfig, *, dry_run: bool) -> Change:
    """Take back what `register` added, and nothing else; the tokens are void. Raises UnavailableError, WorldError."""
    change = registration.uninstall(openclaw.read(), tokens.load(ws))
    if not dry_run:
        if change.patch:
            openclaw.apply(ws, change.patch)
        tokens.save(ws, change.grants)
    return change
