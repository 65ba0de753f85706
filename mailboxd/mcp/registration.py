"""The entries in OpenClaw's configuration: what is added there, what is taken back. Pure; `openclaw_config` writes it.

OpenClaw's list of servers is one for all agents, and it passes no agent's identity on: an entry carries the token of
one agent in one role, and every other agent is denied its tools. That is order, not a wall: whoever may read
OpenClaw's configuration as this user can read the token.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.json_output import cli_error, parse_object, text_at
from mailboxd.agents.openclaw import OpenClaw, parse_config_file
from mailboxd.agents.run_query import ask
from mailboxd.config import Config
from mailboxd.core.events import Role
from mailboxd.core.vocabulary import Gate, same_agent
from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.mailbox.files import directory, publish, world_errors
from mailboxd.mailbox.layout import STATE, Workspace
from mailboxd.mcp import tokens
from mailboxd.mcp.tokens import AGENT_ROLES, Caller, Grant, fingerprint

Patch = dict[str, Any]
"""What OpenClaw's `config patch` takes: objects merge, lists and scalars replace, null deletes."""

HOST, PATH = "127.0.0.1", "/mcp"
"""Where the tools are served: loopback, and nowhere else."""
_LONGEST = 30
"""OpenClaw cuts the part of a tool's name that stands for its server: a longer one would no longer match a denial."""
_TAGS = {Role.EXECUTOR: "", Role.SPEC_REVIEWER: "-spec", Role.QUALITY_REVIEWER: "-quality"}
_SPEC_GATES = {Gate.SPEC_REVIEW, Gate.SPEC_GATE}


@dataclass(frozen=True, slots=True)
class Current:
    """What stands in OpenClaw's configuration: the sections `agents` and `mcp`; empty where it says nothing."""

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
    """A patch with what it is about: the grants as they are after it, and a line for a person on each thing done."""

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
    """Who is registered unless somebody else is named: the own agent, and the reviewers for the gates that are on."""
    on = {gate for gate in Gate if getattr(config.gates, gate.value)}
    callers = [Caller(Role.EXECUTOR, config.agent)]
    for name in config.gates.reviewers:
        callers += [Caller(Role.SPEC_REVIEWER, name)] if on & _SPEC_GATES else []
        callers += [Caller(Role.QUALITY_REVIEWER, name)] if Gate.QUALITY_GATE in on else []
    return callers


def entry_name(owner: str, caller: Caller) -> str:
    """The name of the caller's entry, such that OpenClaw uses it as it stands. `owner`: the workspace's agent."""
    away = "" if same_agent(caller.name, owner) else f"-at-{owner}"
    name = f"mailboxd-{caller.name}{away}{_TAGS[caller.role]}"
    if len(name) <= _LONGEST and re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    digest = hashlib.sha256(name.lower().encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)[: _LONGEST - 9]}-{digest}"


def install(
    current: Current, grants: Sequence[Grant], callers: Iterable[Caller], owner: str, url: str,
    new_token: Callable[[], str], now: str,
) -> Change:  # fmt: skip
    """Entries and denials that are missing. An entry that stands as it should keeps its token. Raises ConfigError."""
    _require_entries(current)
    change = Change(tuple(grants))
    for caller in callers:
        if caller.role not in AGENT_ROLES:
            raise ConfigError(f"{caller}: an agent is never given the role {caller.role}; that is a person's terminal")
        if current.entries and not any(same_agent(caller.name, agent) for agent in current.entries):
            raise ConfigError(f"{caller}: OpenClaw has no agent {caller.name}; it has {', '.join(current.entries)}")
        _enter(change, current, caller, entry_name(owner, caller), url, new_token, now)
    _deny(change, current)
    return change


def close_gaps(current: Current, grants: Sequence[Grant]) -> Change:
    """The denials that are missing for entries that there are: those of agents that came later. Raises ConfigError."""
    _require_entries(current)
    change = Change(tuple(grants))
    _deny(change, current)
    return change


def _deny(change: Change, current: Current) -> None:
    """Deny each agent the tools of every entry that is another one's. What had to be made for it is remembered."""
    ours = [grant for grant in change.grants if grant.entry]
    made: list[str] = []
    for agent in current.entries:
        listed = current.denied(agent)
        patterns = [f"{grant.entry}__*" for grant in ours if not same_agent(agent, grant.caller.name)]
        missing = [pattern for pattern in patterns if pattern not in listed]
        if missing:
            change.set([*listed, *missing], "agents", "entries", agent, "tools", "deny")
            change.done += [f"agent {agent}: denied {pattern}" for pattern in missing]
            tools = f"agents.entries.{agent}.tools"
            made += [tools] if "tools" not in _object(current.entries[agent]) else []
            made += [f"{tools}.deny"] if "deny" not in current.tools(agent) else []
    if made:
        change.grants = tuple(
            replace(grant, made=tuple(dict.fromkeys((*grant.made, *made)))) if grant is ours[0] else grant
            for grant in change.grants
        )


def _enter(
    change: Change, current: Current, caller: Caller, entry: str, url: str, new_token: Callable[[], str], now: str
) -> None:
    held = next((grant for grant in change.grants if grant.entry == entry), None)
    there = current.servers.get(entry)
    if there is not None and held is None:
        raise ConfigError(
            f"mcp.servers.{entry} is in OpenClaw's configuration and not ours; `openclaw mcp unset {entry}`"
        )
    if held is not None and _object(there).get("url") == url:
        return
    token = new_token()
    server = {"url": url, "transport": "streamable-http", "headers": {"Authorization": f"Bearer {token}"}}
    change.set(server, "mcp", "servers", entry)
    grant = Grant(caller, fingerprint(token), now, entry, _made(current) if held is None else held.made)
    change.grants = (*(old for old in change.grants if old.entry != entry), grant)
    change.done.append(f"entry {entry} for {caller}")


def _made(current: Current) -> tuple[str, ...]:
    """The objects around an entry that the installation makes because they are not there."""
    return tuple(name for name, there in (("mcp", current.mcp), ("mcp.servers", "servers" in current.mcp)) if not there)


def uninstall(current: Current, grants: Sequence[Grant]) -> Change:
    """Take back what `install` added, and nothing else: an object that it made goes when nothing else is in it."""
    ours = [grant for grant in grants if grant.entry]
    change = Change(tuple(grant for grant in grants if not grant.entry))
    made = {path for grant in ours for path in grant.made}
    gone = [grant.entry for grant in ours if grant.entry in current.servers]
    for entry in gone:
        change.set(None, "mcp", "servers", entry)
        change.done.append(f"entry {entry} removed")
    if gone and set(current.servers) == set(gone) and "mcp.servers" in made:
        whole = "mcp" in made and set(current.mcp) == {"servers"}
        change.set(None, *(("mcp",) if whole else ("mcp", "servers")))
    patterns = {f"{grant.entry}__*" for grant in ours}
    for agent in current.entries:
        _allow(change, current, agent, patterns, made)
    return change


def _allow(change: Change, current: Current, agent: str, patterns: set[str], made: set[str]) -> None:
    listed = current.denied(agent)
    kept = [pattern for pattern in listed if pattern not in patterns]
    if kept == listed:
        return
    path = ("agents", "entries", agent, "tools")
    if kept or f"{'.'.join(path)}.deny" not in made:
        change.set(kept, *path, "deny")
    elif ".".join(path) in made and set(current.tools(agent)) == {"deny"}:
        change.set(None, *path)
    else:
        change.set(None, *path, "deny")
    change.done.append(f"agent {agent}: no longer denied {', '.join(sorted(patterns & set(listed)))}")


def without_tokens(patch: Patch) -> Patch:
    """The patch as it may be shown."""
    return {
        name: "Bearer (hidden)"
        if name == "Authorization"
        else without_tokens(value)
        if isinstance(value, dict)
        else value
        for name, value in patch.items()
    }


def _require_entries(current: Current) -> None:
    if "list" in current.agents:
        raise ConfigError(
            "OpenClaw's configuration still has `agents.list`, in which no agent can be denied a tool by name; "
            "`openclaw doctor --fix` turns it into `agents.entries`. Then run this again."
        )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


# ---------------------------------------------------------------------------------------------------------------------
# Reading and changing OpenClaw's configuration through its own commands. No token is ever in an argument list.

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


# ---------------------------------------------------------------------------------------------------------------------
# Registering the callers of a workspace in OpenClaw, and taking that back: tokens and entries in step.


def require_port(ws: Workspace, config: Config) -> int:
    """Where the tools are served. Raises ConfigError if nowhere."""
    if not config.mcp.port:
        raise ConfigError(f"{ws.config}: set `mcp.port` to a free port of this machine, such as 8765")
    return config.mcp.port


def register(
    ws: Workspace, config: Config, openclaw: OpenClawConfig, callers: Iterable[Caller], now: str, *, dry_run: bool
) -> Change:
    """Entries and denials that are missing, for these callers. Raises ConfigError, UnavailableError, WorldError."""
    url, held = server_url(require_port(ws, config)), tokens.load(ws)
    change = install(openclaw.read(), held, callers, config.agent, url, tokens.new_token, now)
    if change.patch and not dry_run:
        _apply(ws, openclaw, change, held)
    return change


def register_missing(ws: Workspace, openclaw: OpenClawConfig) -> Change:
    """Deny the registered tools to agents that came later. Raises ConfigError, UnavailableError, WorldError."""
    held = tokens.load(ws)
    change = close_gaps(openclaw.read_agents(), held)
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
    change = uninstall(openclaw.read(), tokens.load(ws))
    if not dry_run:
        if change.patch:
            openclaw.apply(ws, change.patch)
        tokens.save(ws, change.grants)
    return change
