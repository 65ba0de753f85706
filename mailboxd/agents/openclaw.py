"""The command lines of OpenClaw 2026.8.1 and later, their environment, and parsers of its configuration. All pure.

`outcome` parses the result of a turn, `openclaw_runs` looks up a lost one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.json_output import at, cli_error, count_at, parse, parse_object, text_at
from mailboxd.agents.openclaw_versions import Version, offer
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.core.vocabulary import is_id

MAX_MESSAGE_BYTES = 4_194_304
"""OpenClaw's limit for a message file."""

_HISTORY = {"limit": 10, "maxChars": 500_000}
"""`maxChars`: by default OpenClaw truncates texts at 8,000 characters; 500,000 is its maximum."""
_WAIT_MS = 500

_PERSON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "LANG", "LANGUAGE", "TMPDIR")
_NETWORK = ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_OURS = ("MAILBOXD_SCRIPT", "MAILBOXD_PORTABLE")
_ENVIRONMENT = frozenset((*_PERSON, *_NETWORK, *(name.lower() for name in _NETWORK), *_OURS))
_ENVIRONMENT_PREFIXES = ("LC_", "OPENCLAW_", "NODE_", "XDG_")


@dataclass(frozen=True, slots=True)
class OpenClaw:
    """Builds command lines from the configured `openclaw.command`."""

    command: tuple[str, ...]

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """One turn of `agent` with the message in `message_file`; `timeout` in seconds, at least 1.

        OpenClaw gives up after `timeout` + 30 s, not counting the time in the gateway's queue. Raises ValueError for
        an argument that could be taken for an option.
        """
        if not is_id(agent) or timeout < 1 or (model is not None and not re.match(r"[A-Za-z0-9]", model)):
            raise ValueError(f"not a turn: agent {agent!r}, timeout {timeout}, model {model!r}")
        options = ("--agent", agent, "--session-key", session_key, "--message-file", str(message_file), "--json")
        limit = ("--timeout", str(timeout))
        return (*self.command, "agent", *options, *limit, *(("--model", model) if model is not None else ()))

    def tasks_show_argv(self, key_or_run: str) -> tuple[str, ...]:
        """The record of a run, or the latest of a session key. Works without the gateway; kept for 7 days."""
        return (*self.command, "tasks", "show", key_or_run, "--json")

    def wait_argv(self, run_id: str) -> tuple[str, ...]:
        """The reply of a run since the gateway's start, for about 10 minutes; truncated at 4,096 characters."""
        return self._gateway("agent.wait", {"runId": run_id, "timeoutMs": _WAIT_MS})

    def history_argv(self, session_key: str) -> tuple[str, ...]:
        """The latest messages of a session, up to 500,000 characters each; kept for 30 days."""
        return self._gateway("chat.history", {"sessionKey": session_key, **_HISTORY})

    def agents_list_argv(self) -> tuple[str, ...]:
        """All agents with their workspaces. 2 to 4 s; works without the gateway."""
        return (*self.command, "agents", "list", "--json")

    def config_agents_argv(self) -> tuple[str, ...]:
        """The `agents` section of OpenClaw's configuration, which has `allowAgents`."""
        return (*self.command, "config", "get", "agents", "--json")

    def config_agent_to_agent_argv(self) -> tuple[str, ...]:
        """The `tools.agentToAgent` section of OpenClaw's configuration."""
        return (*self.command, "config", "get", "tools.agentToAgent", "--json")

    def config_file_argv(self) -> tuple[str, ...]:
        """The path of OpenClaw's configuration, for watching; it is never parsed."""
        return (*self.command, "config", "file", "--json")

    def config_get_argv(self, section: str) -> tuple[str, ...]:
        """A section of OpenClaw's configuration, without its secrets."""
        return (*self.command, "config", "get", section, "--json")

    def config_patch_argv(self, file: Path) -> tuple[str, ...]:
        """Merge a file into OpenClaw's configuration, unless the result would be invalid."""
        return (*self.command, "config", "patch", "--file", str(file))

    def plugin_install_argv(self, source: Path) -> tuple[str, ...]:
        """Copy a plugin into OpenClaw's state. A running gateway loads it.

        The options answer OpenClaw's questions: whether the source is trusted, and what it may do.
        """
        return (*self.command, "plugins", "install", str(source), "--force", "--accept-capabilities")

    def plugin_enable_argv(self, plugin: str) -> tuple[str, ...]:
        return (*self.command, "plugins", "enable", plugin, "--accept-capabilities")

    def plugin_may_read_argv(self, plugin: str) -> tuple[str, ...]:
        """Let a plugin read messages to agents; otherwise OpenClaw blocks hooks like `before_agent_reply`."""
        path = f"plugins.entries.{plugin}.hooks.allowConversationAccess"
        return (*self.command, "config", "set", path, "true", "--strict-json")

    def plugin_reload_argv(self, plugin: str) -> tuple[str, ...]:
        """Reload a plugin in the running gateway; fails if none runs. Not every version has it.

        2026.9.6 needs it: a plugin that is enabled after it was allowed to read messages is loaded without hooks.
        """
        return (*self.command, "plugins", "reload", plugin, "--accept-capabilities", "--json")

    def gateway_restart_argv(self) -> tuple[str, ...]:
        """Restart the running gateway once its current work is done; fails if none runs."""
        return (*self.command, "gateway", "restart", "--safe", "--json")

    def gateway_health_argv(self) -> tuple[str, ...]:
        return (*self.command, "gateway", "call", "health", "--json")

    def plugin_uninstall_argv(self, plugin: str) -> tuple[str, ...]:
        """Remove a plugin, its files and its settings except `enabled: false`, without questions."""
        return (*self.command, "plugins", "uninstall", plugin, "--force")

    def plugin_inspect_argv(self, plugin: str) -> tuple[str, ...]:
        """The hooks and tools that a plugin registers. Takes 4 to 8 s; works without the gateway."""
        return (*self.command, "plugins", "inspect", plugin, "--runtime", "--json")

    def version_argv(self) -> tuple[str, ...]:
        return (*self.command, "--version")

    def _gateway(self, method: str, parameters: Mapping[str, object]) -> tuple[str, ...]:
        return (*self.command, "gateway", "call", method, "--params", json.dumps(parameters), "--json")


def refuse_message(raw: bytes) -> Failed | None:
    """Why OpenClaw would refuse this message or take it for one of its commands; None if it is fine."""
    if len(raw) > MAX_MESSAGE_BYTES:
        problem = f"prompt-too-large: {len(raw)} bytes, the limit is {MAX_MESSAGE_BYTES}"
    elif not raw.strip():
        problem = "empty prompt"
    elif raw.lstrip()[:1] in (b"/", b"$"):
        problem = "the prompt begins with foreign text: OpenClaw would read a command"
    else:
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as error:
            problem = f"the prompt is not UTF-8 at byte {error.start}"
        else:
            return None
    return Failed(problem, permanence=Permanence.PERMANENT, started=False)


def child_environment(environ: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """The variables of `environ` for OpenClaw's programs: an allow-list, plus the names in `extra` (configuration).

    With OPENCLAW_NO_RESPAWN=1: otherwise the pid is a launcher's, and a kill leaves the real client alive.
    """
    allowed = _ENVIRONMENT | frozenset(extra)
    kept = {name: text for name, text in environ.items() if name in allowed or name.startswith(_ENVIRONMENT_PREFIXES)}
    return kept | {"OPENCLAW_NO_RESPAWN": "1"}


# Which agents exist, and which may this agent give work to? `openclaw agent` does not enforce these rules, so mailboxd
# does. The configuration is read through the CLI, never from its file (JSON5, includes, migrations in memory).

_VERSION = re.compile(r"OpenClaw (\d{4})\.(\d{1,2})\.(\d{1,4})(?![\d.])")
_UNSET = "Config path is valid but unset"


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent of this OpenClaw. `workspace` is as printed by OpenClaw; workspaces may be nested or shared."""

    id: str
    name: str
    workspace: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The `agents` section of the configuration: permitted receivers, descriptions, concurrency.

    `roles` holds the description and theme of each agent that has them, by its id in lower case. `lane` is
    `defaults.maxConcurrent`, the gateway's limit of concurrent turns; None if unset.
    """

    allowed: Allowed
    roles: Mapping[str, str]
    lane: int | None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The agents that an agent may give work to: all, or those named (lower case)."""

    anyone: bool
    agents: frozenset[str]

    def permits(self, agent: str) -> bool:
        """Whether `agent` may be given work; ids match case-insensitively."""
        return self.anyone or agent.lower() in self.agents


@dataclass(frozen=True, slots=True)
class Messaging:
    """OpenClaw's `tools.agentToAgent`. Empty `patterns` match all agents."""

    enabled: bool
    patterns: tuple[str, ...]

    def permits(self, requester: str, target: str) -> bool:
        """Whether one may send work to the other: both must match; an agent may always send to itself."""
        if requester.lower() == target.lower():
            return True
        return self.enabled and self._matches(requester) and self._matches(target)

    def _matches(self, agent: str) -> bool:
        return not self.patterns or any(_glob(pattern, agent) for pattern in self.patterns)


def parse_version(exit_: Exit) -> Version | None:
    """The version that `openclaw --version` names, None if it names none."""
    found = _VERSION.search(exit_.stdout[:4096].decode("utf-8", "replace")) if exit_.rc == 0 else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def parse_agents(exit_: Exit) -> tuple[Peer, ...] | None:
    """The agents of `agents list --json`, None if that failed. Entries with an invalid id are skipped."""
    entries = parse(exit_)
    if exit_.rc != 0 or not isinstance(entries, list):
        return None
    return tuple(_peer(entry) for entry in entries if is_id(text_at(entry, "id")))


def parse_allowed(exit_: Exit, own_agent: str) -> Allowed | None:
    """The rule for `own_agent` out of `config get agents --json`, None if that failed.

    `allowAgents` of the agent, else of the defaults, else only itself; `["*"]` is all, `[]` none. Supports
    `entries: {id: ...}` and the older `list: [{id, ...}]`. An invalid rule permits none.
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
    """Parse `config get agents --json`; None if it failed."""
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


def parse_messaging(exit_: Exit, version: Version | None) -> Messaging | None:
    """The rule out of `config get tools.agentToAgent --json`, None if that failed."""
    if (cli_error(exit_) or "").startswith(_UNSET):
        return messaging(None, version)
    rule = parse_object(exit_)
    return None if exit_.rc != 0 or rule is None else messaging(rule, version)


def messaging(rule: object, version: Version | None) -> Messaging:
    """The rule of the section `tools.agentToAgent`; None if unset, where each version has its own default."""
    by_default = offer(version).messaging
    said = rule if isinstance(rule, dict) else {}
    return Messaging(enabled=said.get("enabled", by_default) is True, patterns=_texts(said.get("allow", [])))


def _peer(entry: object) -> Peer:
    agent = text_at(entry, "id")
    name = text_at(entry, "name") or text_at(entry, "identityName") or agent
    return Peer(agent, name, text_at(entry, "workspace"), at(entry, "isDefault") is True)


def _entry(agents: dict[str, object], own_agent: str) -> object:
    return next((entry for name, entry in _entries(agents) if name.lower() == own_agent.lower()), None)


def _entries(agents: Mapping[str, object]) -> list[tuple[str, object]]:
    """Each agent's id and entry, in both formats."""
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


# Whether this process runs inside an agent's work, where it must not act as the operator. OpenClaw marks the shells of
# its agents; mailboxd marks the harnesses, checks and actions that it starts, so that a script written by an agent does
# not get an operator's rights because the daemon ran it.

INSIDE_MARK = "MAILBOXD_INSIDE"
_TERMINAL_UI = "tui-local"
"""The value of OPENCLAW_SHELL in OpenClaw's terminal interface, a person's shell."""


def inside_agent(environ: Mapping[str, str]) -> bool:
    """Whether this process was started inside an agent's work. Removing the marks is possible: see docs/security.md."""
    shell = environ.get("OPENCLAW_SHELL", "")
    return (
        shell not in ("", _TERMINAL_UI)
        or environ.get("OPENCLAW_SUBAGENT_EXEC") == "1"
        or bool(environ.get(INSIDE_MARK))
    )


def mark_inside(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the mark, for a program that runs an agent's work."""
    return {**environ, INSIDE_MARK: "1"}
