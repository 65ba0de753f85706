"""Registers the tools in OpenClaw's configuration, and removes them again.

All agents share OpenClaw's list of MCP servers, and OpenClaw does not pass on which agent is calling. So each entry
carries the token of one agent in one role, and all other agents are denied its tools. A workspace has one entry, its
own agent's as executor; reviewers answer in their turns and get an entry only on request, because an entry for each
reviewer at each workspace would grow with the square of the agents. This keeps agents apart but is no security
boundary: any process of this user that can read OpenClaw's configuration can read the token.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mailboxd.core.events import Role
from mailboxd.core.roles import REVIEWERS
from mailboxd.core.vocabulary import same_agent
from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.formats.config import Config
from mailboxd.formats.mailbox.files import directory, publish, world_errors
from mailboxd.formats.mailbox.layout import STATE, Workspace
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import complaint, parse_object, text_at
from mailboxd.perform.agents.openclaw import CONFIG_FILE, OpenClaw, config_get, is_unset, parse_config_file
from mailboxd.surfaces.mcp import tokens
from mailboxd.surfaces.mcp.tokens import AGENT_ROLES, Caller, Grant, fingerprint

Patch = dict[str, Any]
"""For OpenClaw's `config patch`: objects are merged, lists and scalars replaced, null deletes."""

HOST, PATH = "127.0.0.1", "/mcp"
"""Where the tools are served: on loopback only."""
_MAX_NAME = 30
"""OpenClaw truncates the server part of a tool's name: a longer one would not match its denial."""
_ROLE_SUFFIX = {Role.EXECUTOR: "", Role.SPEC_REVIEWER: "-spec", Role.QUALITY_REVIEWER: "-quality"}


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


Setting = tuple[tuple[str, ...], Any]
"""A path in OpenClaw's configuration, and the value to set there; None: it is removed."""


@dataclass(slots=True)
class Change:
    """What to set, in order, the grants after it, and a line about each change (`done`)."""

    grants: tuple[Grant, ...]
    settings: list[Setting] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def set(self, value: Any, *path: str) -> None:
        self.settings.append((path, value))

    @property
    def patch(self) -> Patch:
        return _patch(self.settings)


def _patch(settings: Iterable[Setting]) -> Patch:
    patch: Patch = {}
    for path, value in settings:
        node = patch
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value
    return patch


def server_url(port: int) -> str:
    return f"http://{HOST}:{port}{PATH}"


def entry_name(owner: str, caller: Caller) -> str:
    """The name of the caller's entry, valid in OpenClaw unchanged. `owner` is the workspace's agent."""
    suffix = "" if same_agent(caller.name, owner) else f"-at-{owner}"
    name = f"mailboxd-{caller.name}{suffix}{_ROLE_SUFFIX[caller.role]}"
    if len(name) <= _MAX_NAME and re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    digest = hashlib.sha256(name.lower().encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)[: _MAX_NAME - 9]}-{digest}"


def install(
    current: CurrentConfig, grants: Sequence[Grant], callers: Sequence[Caller], owner: str, url: str,
    new_token: Callable[[], str], now: str,
) -> Change:  # fmt: skip
    """Add missing entries and denials. A correct entry keeps its token. Raises ConfigError.

    `callers` are asked for by name; without any, it is the owner as executor.
    """
    _require_entries(current)
    change = Change(tuple(grants))
    for caller in callers or (Caller(Role.EXECUTOR, owner),):
        if caller.role not in AGENT_ROLES:
            raise ConfigError(f"{caller}: an agent cannot have the role {caller.role}")
        if current.entries and not any(same_agent(caller.name, agent) for agent in current.entries):
            raise ConfigError(f"{caller}: OpenClaw has no agent {caller.name}; it has {', '.join(current.entries)}")
        _add_entry(change, current, caller, entry_name(owner, caller), url, new_token, now)
    if callers:
        change.grants = tuple(replace(one, requested=one.requested or one.caller in callers) for one in change.grants)
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


def uninstall(current: CurrentConfig, grants: Sequence[Grant], named: Collection[str]) -> Change:
    """Remove these entries with their denials, and an object that is empty then; nothing else."""
    change = Change(tuple(grant for grant in grants if grant.entry not in named))
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


def surplus(grants: Iterable[Grant]) -> list[str]:
    """The entries of reviewers that nobody asked for by name: earlier versions gave one to each."""
    return [one.entry for one in grants if one.entry and one.caller.role in REVIEWERS and not one.requested]


def entries_of(current: CurrentConfig, owner: str, grants: Iterable[Grant]) -> list[str]:
    """All entries of this workspace: those of its tokens, and those with its names if the tokens are lost."""
    named = [grant.entry for grant in grants if grant.entry]
    possible = {entry_name(owner, Caller(role, agent)) for role in AGENT_ROLES for agent in (owner, *current.entries)}
    lost = (entry for entry, server in current.servers.items() if entry in possible and _is_ours(server))
    return list(dict.fromkeys([*named, *lost]))


def _is_ours(server: object) -> bool:
    url = _object(server).get("url")
    return isinstance(url, str) and url.startswith(f"http://{HOST}:") and url.endswith(PATH)


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

        The patch holds tokens, so it is passed in a file that only its owner can read. A copy that OpenClaw keeps of
        what it refuses holds them too, and is removed.
        """
        with _patch_file(ws, patch) as file:
            exit_ = ask(self.openclaw.argv("config", "patch", "--file", str(file)), self.environment, _SECONDS)
        if exit_.rc != 0:
            why = complaint(exit_)
            if kept := _REJECTED.search(why):
                Path(kept[1]).unlink(missing_ok=True)
            raise UnavailableError(f"OpenClaw rejected the change of its configuration: {why}")

    def size(self, current: CurrentConfig) -> int:
        """Bytes of the configuration as OpenClaw writes it, or a lower bound. Raises UnavailableError."""
        known = {"agents": current.agents, "mcp": current.mcp}
        with suppress(OSError, ValueError):  # JSON5 with comments: OpenClaw does not count them
            known = json.loads(Path(self.file()).read_bytes())
        return _size(known)

    def remove_rejected(self) -> list[str]:
        """Remove the copies of refused changes that differ from the configuration only by what mailboxd adds.

        Earlier versions left one each time OpenClaw refused to take back its entries, with tokens in it. Returns
        their names. Raises UnavailableError.
        """
        file = Path(self.file())
        removed = []
        with suppress(OSError, ValueError):
            mine = _without_ours(json.loads(file.read_bytes()))
            for copy in sorted(file.parent.glob(f"{file.name}.rejected.*")):
                if not copy.is_symlink() and _without_ours(json.loads(copy.read_bytes())) == mine:
                    copy.unlink()
                    removed.append(copy.name)
        return removed


_REJECTED = re.compile(r"Rejected payload saved to (/.+\.rejected\.[0-9TZ-]+)\.")


@contextmanager
def _patch_file(ws: Workspace, patch: Patch) -> Iterator[Path]:
    """The patch in a private file: in the workspace, which OpenClaw can read, or elsewhere if that is gone."""
    text = json.dumps(patch).encode()
    if not ws.state.is_dir():
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "patch.json").write_bytes(text)
            yield Path(place) / "patch.json"
        return
    name = f".mcp-{secrets.token_hex(8)}.json"
    with world_errors(f"write {ws.state / name}"), directory(ws.root, STATE) as state:
        publish(state, name, text)
        try:
            yield ws.state / name
        finally:
            os.unlink(name, dir_fd=state)


def _size(value: object) -> int:
    return len(json.dumps(value, indent=2, ensure_ascii=False).encode())


_OURS = "mailboxd"


def _without_ours(value: Any, *path: str) -> Any:
    """A configuration without what mailboxd adds to it, empty objects, and OpenClaw's stamp."""
    if isinstance(value, list):
        return [item for item in value if not (isinstance(item, str) and item.startswith(f"{_OURS}-"))] or None
    if not isinstance(value, dict):
        return value
    kept = {
        name: inner
        for name, item in value.items()
        if not (path == ("mcp", "servers") and name.startswith(f"{_OURS}-") and _is_ours(item))
        and not (path[:1] == ("plugins",) and name == _OURS)
        and (path or name != "meta")
        and (inner := _without_ours(item, *path, name)) is not None
    }
    return kept or None


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
    ws: Workspace, config: Config, openclaw: OpenClawConfig, callers: Sequence[Caller], now: str, *, dry_run: bool
) -> Change:
    """Add missing entries and denials for these callers, by default for the workspace's agent.

    The default also removes entries of reviewers that nobody asked for.

    Raises ConfigError, UnavailableError, WorldError.
    """
    url, held, current = server_url(require_port(ws, config)), tokens.load(ws), openclaw.read()
    gone = [] if callers else surplus(held)
    before = uninstall(current, held, gone) if dry_run else _remove(ws, openclaw, current, held, gone)
    if before.patch and not dry_run:
        current = openclaw.read()
    change = install(current, before.grants, callers, config.agent, url, tokens.new_token, now)
    if (change.patch or change.grants != before.grants) and not dry_run:
        _apply(ws, openclaw, change, before.grants)
    change.done = [*before.done, *change.done]
    return change


def register_missing(ws: Workspace, openclaw: OpenClawConfig) -> Change:
    """Deny the registered tools to agents added later. Raises ConfigError, UnavailableError, WorldError."""
    held = tokens.load(ws)
    change = add_denials(openclaw.read_agents(), held)
    if tokens.load(ws) != held:  # changed by a person meanwhile, who may be removing the entries
        return Change(held)
    if change.patch:
        openclaw.apply(ws, change.patch)
    return change


def _apply(ws: Workspace, openclaw: OpenClawConfig, change: Change, held: tuple[Grant, ...]) -> None:
    tokens.save(ws, change.grants)  # first: every token that OpenClaw gets must be valid
    if not change.patch:
        return
    try:
        openclaw.apply(ws, change.patch)
    except BaseException:
        tokens.save(ws, held)
        raise


def unregister(ws: Workspace, owner: str, openclaw: OpenClawConfig, *, dry_run: bool) -> Change:
    """Remove what `register` added for the workspace of the agent `owner`, and revoke its tokens.

    Works as well for a workspace that is gone, or whose tokens are lost. Raises UnavailableError, WorldError.
    """
    try:
        held = tokens.load(ws) if ws.state.is_dir() else ()
    except ConfigError:  # damaged: its entries have names that only this workspace gives
        held = ()
    current = openclaw.read()
    named = entries_of(current, owner, held)
    if dry_run:
        return uninstall(current, held, named)
    change = _remove(ws, openclaw, current, held, named)
    change.done += [f"{name} removed" for name in openclaw.remove_rejected()]
    return change


_MOST = 0.35
"""The largest share of the configuration that one change takes away. OpenClaw refuses one that halves it, since that
looks like an accident; it hides tokens in what it shows, so the sizes here are a little too small."""


def _remove(
    ws: Workspace, openclaw: OpenClawConfig, current: CurrentConfig, held: tuple[Grant, ...], named: Sequence[str]
) -> Change:
    """Remove these entries and their denials, in as many changes as OpenClaw wants."""
    change = uninstall(current, held, named)
    if change.grants != held:
        tokens.save(ws, change.grants)  # first: a server that runs then denies their tools to nobody any more
    try:
        for patch in _in_parts(openclaw, current, change.settings):
            openclaw.apply(ws, patch)
    except BaseException:
        if change.grants != held:
            tokens.save(ws, held)
        raise
    return change


def _in_parts(openclaw: OpenClawConfig, current: CurrentConfig, settings: Sequence[Setting]) -> Iterator[Patch]:
    """The removals as patches that each keep most of the configuration. Each is applied before the next is made."""
    known: dict[str, Any] = {"agents": current.agents, "mcp": current.mcp}
    left = deque(settings)
    while left:
        most = openclaw.size(current) * _MOST
        while _shrinks(known, [left[0]]) > most and (first := _halfway(known, left[0])):
            left.appendleft(first)
        part = [left.popleft()]
        while left and _shrinks(known, [*part, left[0]]) <= most:
            part.append(left.popleft())
        patch = _patch(part)
        yield patch
        known = _merged(known, patch)


def _halfway(known: Mapping[str, Any], setting: Setting) -> Setting | None:
    """A setting that takes away about half of what this one does; None if it cannot be halved."""
    path, value = setting
    there: Any = known
    for name in path:
        there = _object(there).get(name)
    if path[:2] == ("mcp", "servers") and "headers" in _object(there):
        return (*path, "headers"), None
    if path[-1] == "tools":
        path, there = (*path, "deny"), _object(there).get("deny")
    if not isinstance(there, list):
        return None
    going = [item for item in there if item not in (value or ())]
    kept = [item for item in there if item not in going[: len(going) // 2]]
    return (path, kept) if len(going) > 1 else None


def _shrinks(known: Mapping[str, Any], settings: Iterable[Setting]) -> int:
    """By how many bytes these settings make the configuration smaller."""
    return _size(known) - _size(_merged(known, _patch(settings)))


def _merged(value: Mapping[str, Any], patch: Patch) -> dict[str, Any]:
    """What OpenClaw makes of a patch."""
    merged = dict(value)
    for name, item in patch.items():
        if item is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(_object(merged.get(name)), item) if isinstance(item, dict) else item
    return merged
