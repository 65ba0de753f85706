"""Registers the tools in OpenClaw's configuration, and removes them again.

All agents share OpenClaw's list of MCP servers, and OpenClaw does not pass on which agent is calling. So each entry
carries the token of one agent in one role, and all other agents are denied its tools. This keeps agents apart but is
no security boundary: any process of this user that can read OpenClaw's configuration can read the token.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.json_output import complaint, parse_object, text_at
from mailboxd.agents.openclaw import CONFIG_FILE, OpenClaw, config_get, is_unset, parse_config_file
from mailboxd.agents.process import ask
from mailboxd.config import Config
from mailboxd.core.events import Role
from mailboxd.core.vocabulary import Gate, same_agent
from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.mailbox.files import directory, publish, world_errors
from mailboxd.mailbox.layout import STATE, Workspace
from mailboxd.mcp import tokens
from mailboxd.mcp.tokens import AGENT_ROLES, Caller, Grant, fingerprint

Patch = dict[str, Any]
"""For OpenClaw's `config patch`: objects are merged, lists and scalars replaced, null deletes."""

HOST, PATH = "127.0.0.1", "/mcp"
"""Where the tools are served: on loopback only."""
_MAX_NAME = 30
"""OpenClaw truncates the server part of a tool's name: a longer one would not match its denial."""
_ROLE_SUFFIX = {Role.EXECUTOR: "", Role.SPEC_REVIEWER: "-spec", Role.QUALITY_REVIEWER: "-quality"}
_SPEC_GATES = {Gate.SPEC_REVIEW, Gate.SPEC_GATE}


@dataclass(frozen=True, slots=True)
class CurrentConfig:
    """The sections `agents` and `mcp` of OpenClaw's configuration; empty if unset."""

    agents: Mapping[str, Any]
    mcp: Mapping[str, Any]

    @property
    def entries(self) -> Mapping[str, Any]:
        return _object(self.agents.get("entries"))

    @property
    def servers(self) -> Mapping[str, Any]:
        return _object(self.mcp.get("servers"))

    def tools(self, agent: str) -> Mapping[str, Any]:
        return _object(_object(self.entries.get(agent)).get("tools"))

    def denied(self, agent: str) -> list[str]:
        listed = self.tools(agent).get("deny")
        return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []


@dataclass(slots=True)
class Change:
    """A patch, the grants after it, and a line about each change (`done`)."""

    grants: tuple[Grant, ...]
    patch: Patch = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def set(self, value: Any, *path: str) -> None:
        node = self.patch
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value


def server_url(port: int) -> str:
    return f"http://{HOST}:{port}{PATH}"


def wanted(config: Config) -> list[Caller]:
    """The callers to register by default: this agent, and the reviewers of the gates that are on."""
    on = {gate for gate in Gate if getattr(config.gates, gate.value)}
    callers = [Caller(Role.EXECUTOR, config.agent)]
    for name in config.gates.reviewers:
        callers += [Caller(Role.SPEC_REVIEWER, name)] if on & _SPEC_GATES else []
        callers += [Caller(Role.QUALITY_REVIEWER, name)] if Gate.QUALITY_GATE in on else []
    return callers


def entry_name(owner: str, caller: Caller) -> str:
    """The name of the caller's entry, valid in OpenClaw unchanged. `owner` is the workspace's agent."""
    suffix = "" if same_agent(caller.name, owner) else f"-at-{owner}"
    name = f"mailboxd-{caller.name}{suffix}{_ROLE_SUFFIX[caller.role]}"
    if len(name) <= _MAX_NAME and re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    digest = hashlib.sha256(name.lower().encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)[: _MAX_NAME - 9]}-{digest}"


def install(
    current: CurrentConfig, grants: Sequence[Grant], callers: Iterable[Caller], owner: str, url: str,
    new_token: Callable[[], str], now: str,
) -> Change:  # fmt: skip
    """Add missing entries and denials. A correct entry keeps its token. Raises ConfigError."""
    _require_entries(current)
    change = Change(tuple(grants))
    for caller in callers:
        if caller.role not in AGENT_ROLES:
            raise ConfigError(f"{caller}: an agent cannot have the role {caller.role}")
        if current.entries and not any(same_agent(caller.name, agent) for agent in current.entries):
            raise ConfigError(f"{caller}: OpenClaw has no agent {caller.name}; it has {', '.join(current.entries)}")
        _add_entry(change, current, caller, entry_name(owner, caller), url, new_token, now)
    _deny(change, current)
    return change


def add_denials(current: CurrentConfig, grants: Sequence[Grant]) -> Change:
    """Add missing denials for existing entries: those of agents added later. Raises ConfigError."""
    _require_entries(current)
    change = Change(tuple(grants))
    _deny(change, current)
    return change


def _deny(change: Change, current: CurrentConfig) -> None:
    """Deny each agent the tools of all entries of other agents."""
    for agent in current.entries:
        listed = current.denied(agent)
        others = (grant.entry for grant in change.grants if grant.entry and not same_agent(agent, grant.caller.name))
        missing = [pattern for entry in others if (pattern := f"{entry}__*") not in listed]
        if missing:
            change.set([*listed, *missing], "agents", "entries", agent, "tools", "deny")
            change.done += [f"agent {agent}: denied {pattern}" for pattern in missing]


def _add_entry(
    change: Change, current: CurrentConfig, caller: Caller, entry: str, url: str, new_token: Callable[[], str], now: str
) -> None:
    held = next((grant for grant in change.grants if grant.entry == entry), None)
    there = current.servers.get(entry)
    if there is not None and held is None:
        raise ConfigError(
            f"mcp.servers.{entry} in OpenClaw's configuration is not mailboxd's; `openclaw mcp unset {entry}`"
        )
    if held is not None and _object(there).get("url") == url:
        return
    token = new_token()
    server = {"url": url, "transport": "streamable-http", "headers": {"Authorization": f"Bearer {token}"}}
    change.set(server, "mcp", "servers", entry)
    grant = Grant(caller, fingerprint(token), now, entry)
    change.grants = (*(old for old in change.grants if old.entry != entry), grant)
    change.done.append(f"entry {entry} for {caller}")


def uninstall(current: CurrentConfig, grants: Sequence[Grant]) -> Change:
    """Remove what `install` added, and an object that is empty then; nothing else."""
    named = [grant.entry for grant in grants if grant.entry]
    change = Change(tuple(grant for grant in grants if not grant.entry))
    gone = [entry for entry in named if entry in current.servers]
    for entry in gone:
        change.set(None, "mcp", "servers", entry)
        change.done.append(f"entry {entry} removed")
    if gone and set(current.servers) == set(gone):
        change.set(None, *(("mcp",) if set(current.mcp) == {"servers"} else ("mcp", "servers")))
    patterns = {f"{entry}__*" for entry in named}
    for agent in current.entries:
        listed = current.denied(agent)
        kept = [pattern for pattern in listed if pattern not in patterns]
        if kept != listed:
            tools = ("agents", "entries", agent, "tools")
            is_all = not kept and set(current.tools(agent)) == {"deny"}
            change.set(kept or None, *(tools if is_all else (*tools, "deny")))
            change.done.append(f"agent {agent}: no longer denied {', '.join(sorted(patterns & set(listed)))}")
    return change


def without_tokens(patch: Patch) -> Patch:
    """The patch with its tokens hidden."""
    return {
        name: "Bearer (hidden)"
        if name == "Authorization"
        else without_tokens(value)
        if isinstance(value, dict)
        else value
        for name, value in patch.items()
    }


def _require_entries(current: CurrentConfig) -> None:
    if "list" in current.agents:
        raise ConfigError(
            "OpenClaw's configuration still uses `agents.list`, where tools cannot be denied to an agent by name; "
            "run `openclaw doctor --fix` to convert it to `agents.entries`, then run this again."
        )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# OpenClaw's configuration, read and changed through its own commands; no token is ever in an argument list

_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class OpenClawConfig:
    """`environment` is the environment of OpenClaw, which decides which installation is meant."""

    openclaw: OpenClaw
    environment: Mapping[str, str]

    def read(self) -> CurrentConfig:
        """Read both sections. Takes 3 s; the gateway need not run. Raises UnavailableError."""
        return CurrentConfig(self.section("agents") or {}, self.section("mcp") or {})

    def read_agents(self) -> CurrentConfig:
        """As `read`, but without `mcp`, in half the time. Raises UnavailableError."""
        return CurrentConfig(self.section("agents") or {}, {})

    def file(self) -> str:
        """The path of the configuration, to be watched, not parsed. Raises UnavailableError."""
        exit_ = ask(self.openclaw.argv(*CONFIG_FILE), self.environment, _SECONDS)
        if not (path := parse_config_file(exit_)):
            raise UnavailableError(f"OpenClaw does not report the path of its configuration: {_why(exit_)}")
        return path

    def section(self, name: str) -> Mapping[str, Any] | None:
        """One section; None if it is unset. Raises UnavailableError."""
        exit_ = ask(self.openclaw.argv(*config_get(name)), self.environment, _SECONDS)
        if is_unset(exit_):
            return None
        section = parse_object(exit_)
        if exit_.rc != 0 or section is None:
            raise UnavailableError(f"OpenClaw's configuration cannot be read: {_why(exit_)}")
        return section

    def apply(self, ws: Workspace, patch: Patch) -> None:
        """Merge the patch into it atomically; a running gateway applies it. Raises UnavailableError, WorldError.

        The patch holds tokens, so it is passed in a file that only its owner can read.
        """
        name = f".mcp-{secrets.token_hex(8)}.json"
        with world_errors(f"write {ws.state / name}"), directory(ws.root, STATE) as state:
            publish(state, name, json.dumps(patch).encode())
            try:
                argv = self.openclaw.argv("config", "patch", "--file", str(ws.state / name))
                exit_ = ask(argv, self.environment, _SECONDS)
            finally:
                os.unlink(name, dir_fd=state)
        if exit_.rc != 0:
            raise UnavailableError(f"OpenClaw rejected the change of its configuration: {complaint(exit_)}")


def _why(exit_: Exit) -> str:
    """The error that OpenClaw reports, with every issue that it names."""
    issues = (parse_object(exit_) or {}).get("issues")
    named = [text_at(issue, "message") for issue in issues] if isinstance(issues, list) else []
    return "; ".join(filter(None, [complaint(exit_), *named]))


# Registration: tokens here and entries in OpenClaw change together


def require_port(ws: Workspace, config: Config) -> int:
    """The configured port. Raises ConfigError if there is none."""
    if not config.mcp.port:
        raise ConfigError(f"{ws.config}: set `mcp.port` to a free port, such as 8765")
    return config.mcp.port


def register(
    ws: Workspace, config: Config, openclaw: OpenClawConfig, callers: Iterable[Caller], now: str, *, dry_run: bool
) -> Change:
    """Add missing entries and denials for these callers. Raises ConfigError, UnavailableError, WorldError."""
    url, held = server_url(require_port(ws, config)), tokens.load(ws)
    change = install(openclaw.read(), held, callers, config.agent, url, tokens.new_token, now)
    if change.patch and not dry_run:
        _apply(ws, openclaw, change, held)
    return change


def register_missing(ws: Workspace, openclaw: OpenClawConfig) -> Change:
    """Deny the registered tools to agents added later. Raises ConfigError, UnavailableError, WorldError."""
    held = tokens.load(ws)
    change = add_denials(openclaw.read_agents(), held)
    if change.patch:
        _apply(ws, openclaw, change, held)
    return change


def _apply(ws: Workspace, openclaw: OpenClawConfig, change: Change, held: tuple[Grant, ...]) -> None:
    tokens.save(ws, change.grants)  # first: every token that OpenClaw has must be valid
    try:
        openclaw.apply(ws, change.patch)
    except BaseException:
        tokens.save(ws, held)
        raise


def unregister(ws: Workspace, openclaw: OpenClawConfig, *, dry_run: bool) -> Change:
    """Remove what `register` added and revoke its tokens. Raises UnavailableError, WorldError."""
    change = uninstall(openclaw.read(), tokens.load(ws))
    if not dry_run:
        if change.patch:
            openclaw.apply(ws, change.patch)
        tokens.save(ws, change.grants)
    return change
