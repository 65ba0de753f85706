"""Who is there, and whom may this agent reach? Parsers of OpenClaw's answers; the caller keeps the last good one.

`openclaw agent` is the operator's surface and enforces none of these rules, so mailboxd does before it dispatches.
Configuration is read through the CLI, never from its file (JSON5, includes, migrations in memory).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.jsonout import at, cli_error, count_at, parse, parse_object, text_at
from mailboxd.core.terms import is_id

MINIMUM_VERSION = (2026, 8, 1)
"""Older ones silently run a turn again when the gateway goes away in the middle of it."""
MESSAGING_BY_DEFAULT = (2026, 9, 2)

_VERSION = re.compile(r"OpenClaw (\d{4})\.(\d{1,2})\.(\d{1,4})(?![\d.])")
_UNSET = "Config path is valid but unset"


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent of this OpenClaw. `workspace` is as OpenClaw prints it; workspaces may be nested or shared."""

    id: str
    name: str
    workspace: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """What the `agents` section of the configuration says: whom we may reach, what agents are for, how many turns run.

    `roles` holds the description and theme of each agent that has them, by its id in lower case. `lane` is
    `defaults.maxConcurrent`, the turns that the gateway runs at once; None where it does not say.
    """

    allowed: Allowed
    roles: Mapping[str, str]
    lane: int | None


@dataclass(frozen=True, slots=True)
class Allowed:
    """Whom an agent may give work to: anybody, or the agents named (lower case)."""

    anyone: bool
    agents: frozenset[str]

    def permits(self, agent: str) -> bool:
        """Whether `agent` may be given work; ids match case-insensitively."""
        return self.anyone or agent.lower() in self.agents


@dataclass(frozen=True, slots=True)
class Messaging:
    """OpenClaw's `tools.agentToAgent`. An empty `patterns` is everybody."""

    enabled: bool
    patterns: tuple[str, ...]

    def permits(self, requester: str, target: str) -> bool:
        """Whether the one may send work to the other: both must match; an agent always reaches itself."""
        if requester.lower() == target.lower():
            return True
        return self.enabled and self._matches(requester) and self._matches(target)

    def _matches(self, agent: str) -> bool:
        return not self.patterns or any(_glob(pattern, agent) for pattern in self.patterns)


def parse_version(exit_: Exit) -> tuple[int, int, int] | None:
    """The version that `openclaw --version` names, None if it names none."""
    found = _VERSION.search(exit_.stdout[:4096].decode("utf-8", "replace")) if exit_.rc == 0 else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def parse_agents(exit_: Exit) -> tuple[Peer, ...] | None:
    """The agents of `agents list --json`, None if that failed. An entry whose id cannot be ours is left out."""
    entries = parse(exit_)
    if exit_.rc != 0 or not isinstance(entries, list):
        return None
    return tuple(_peer(entry) for entry in entries if is_id(text_at(entry, "id")))


def parse_allowed(exit_: Exit, own_agent: str) -> Allowed | None:
    """The rule for `own_agent` out of `config get agents --json`, None if that failed.

    `allowAgents` of the agent, else of the defaults, else only itself; `["*"]` is anybody, `[]` nobody. Knows the
    form `entries: {id: ...}` and the older `list: [{id, ...}]`. A rule that is no list of texts permits nobody.
    """
    only_itself = Allowed(anyone=False, agents=frozenset({own_agent.lower()}))
    if (cli_error(exit_) or "").startswith(_UNSET):
        return only_itself
    agents = parse_object(exit_)
    if exit_.rc != 0 or agents is None:
        return None
    names = at(_entry(agents, own_agent), "subagents", "allowAgents")
    if names is None:
        names = at(agents, "defaults", "subagents", "allowAgents")
    if names is None:
        return only_itself
    texts = _texts(names)
    return Allowed(anyone="*" in texts, agents=frozenset(name.lower() for name in texts))


def parse_rules(exit_: Exit, own_agent: str) -> Rules | None:
    """All that is asked of `config get agents --json`, None if that failed."""
    allowed = parse_allowed(exit_, own_agent)
    if allowed is None:
        return None
    agents = parse_object(exit_) or {}
    roles: dict[str, str] = {}
    for name, entry in _entries(agents):
        said = (text_at(entry, "description"), text_at(entry, "identity", "theme"))
        if role := "; ".join(text for text in said if text.strip()):
            roles[name.lower()] = role
    return Rules(allowed, roles, count_at(agents, "defaults", "maxConcurrent") or None)


def parse_config_file(exit_: Exit) -> str:
    """The absolute path that `config file --json` names; empty if that failed."""
    path = text_at(parse_object(exit_), "path") if exit_.rc == 0 else ""
    return path if path.startswith("/") else ""


def parse_messaging(exit_: Exit, version: tuple[int, int, int]) -> Messaging | None:
    """The rule out of `config get tools.agentToAgent --json`, None if that failed.

    Unset means enabled for everybody since 2026.9.2, disabled in 2026.8.2.
    """
    if (cli_error(exit_) or "").startswith(_UNSET):
        return messaging(None, version)
    rule = parse_object(exit_)
    return None if exit_.rc != 0 or rule is None else messaging(rule, version)


def messaging(rule: object, version: tuple[int, int, int]) -> Messaging:
    """The rule that the section `tools.agentToAgent` states; None is an unset one."""
    by_default = version >= MESSAGING_BY_DEFAULT
    said = rule if isinstance(rule, dict) else {}
    return Messaging(enabled=said.get("enabled", by_default) is True, patterns=_texts(said.get("allow", [])))


def _peer(entry: object) -> Peer:
    agent = text_at(entry, "id")
    name = text_at(entry, "name") or text_at(entry, "identityName") or agent
    return Peer(agent, name, text_at(entry, "workspace"), at(entry, "isDefault") is True)


def _entry(agents: dict[str, object], own_agent: str) -> object:
    return next((entry for name, entry in _entries(agents) if name.lower() == own_agent.lower()), None)


def _entries(agents: Mapping[str, object]) -> list[tuple[str, object]]:
    """Each agent's id and entry, in the newer form and the older one."""
    entries = agents.get("entries")
    pairs: list[tuple[object, object]] = list(entries.items()) if isinstance(entries, dict) else []
    older = agents.get("list")
    if isinstance(older, list):
        pairs += [(at(entry, "id"), entry) for entry in older]
    return [(name, entry) for name, entry in pairs if isinstance(name, str)]


def _texts(names: object) -> tuple[str, ...]:
    return tuple(name.strip() for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _glob(pattern: str, agent: str) -> bool:
    parts = [re.escape(part) for part in pattern.lower().split("*")]
    return bool(pattern) and re.fullmatch(".*".join(parts), agent.lower()) is not None
