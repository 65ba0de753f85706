"""The command lines of OpenClaw 2026.8.1 and later, their environment, and parsers of its configuration. All pure.

`outcome` parses the result of a turn, `openclaw_runs` looks up a lost one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.core.messaging import Messaging
from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.core.vocabulary import ANSWER_TOOLS, is_id
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import at, cli_error, count, parse, parse_object, text_at
from mailboxd.perform.agents.openclaw_versions import Version, offer

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

    def argv(self, *words: str) -> tuple[str, ...]:
        """Any other command."""
        return (*self.command, *words)

    def tasks_show_argv(self, key_or_run: str) -> tuple[str, ...]:
        """The record of a run, or the latest of a session key. Works without the gateway; kept for 7 days."""
        return self.argv("tasks", "show", key_or_run, "--json")

    def wait_argv(self, run_id: str) -> tuple[str, ...]:
        """The reply of a run since the gateway's start, for about 10 minutes; truncated at 4,096 characters."""
        return self._gateway("agent.wait", {"runId": run_id, "timeoutMs": _WAIT_MS})

    def history_argv(self, session_key: str) -> tuple[str, ...]:
        """The latest messages of a session, up to 500,000 characters each; kept for 30 days."""
        return self._gateway("chat.history", {"sessionKey": session_key, **_HISTORY})

    def _gateway(self, method: str, parameters: Mapping[str, object]) -> tuple[str, ...]:
        return self.argv("gateway", "call", method, "--params", json.dumps(parameters), "--json")


AGENTS_LIST = ("agents", "list", "--json")
"""All agents with their workspaces. 2 to 4 s; works without the gateway."""
CONFIG_FILE = ("config", "file", "--json")
"""The path of OpenClaw's configuration, for watching; it is never parsed."""


def config_get(section: str) -> tuple[str, ...]:
    """The words that print a section of OpenClaw's configuration, without its secrets."""
    return ("config", "get", section, "--json")


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


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent of this OpenClaw. `workspace` is as printed by OpenClaw; workspaces may be nested or shared."""

    id: str
    name: str
    workspace: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The `agents` section of the configuration, as it concerns one agent.

    `roles` holds the description and theme of each agent that has them, by its id in lower case. `lane` is
    `defaults.maxConcurrent`, the gateway's limit of concurrent turns; None if unset. `entry_path` is the path of the
    agent's own entry, empty if it has none, and `tools` the unparsed section there.
    """

    allowed: Allowed
    roles: Mapping[str, str]
    lane: int | None
    entry_path: str = ""
    tools: object = None
    hiding: frozenset[str] = frozenset()
    """Agents (lower case) whose own section `tools` may hide the tools of mailboxd's plugin."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The agents that an agent may give work to: all, or those named (lower case)."""

    anyone: bool
    agents: frozenset[str]

    def permits(self, agent: str) -> bool:
        """Whether `agent` may be given work; ids match case-insensitively."""
        return self.anyone or agent.lower() in self.agents


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


def parse_rules(exit_: Exit, own_agent: str) -> Rules | None:
    """Parse `config get agents --json`; None if it failed.

    `allowAgents` of the agent, else of the defaults, else only itself; `["*"]` is all, `[]` none. Supports
    `entries: {id: ...}` and the older `list: [{id, ...}]`. An invalid rule permits none.
    """
    unset = is_unset(exit_)
    agents = {} if unset else parse_object(exit_)
    if agents is None or (exit_.rc != 0 and not unset):
        return None
    roles: dict[str, str] = {}
    own_path, own = "", None
    for name, path, entry in _entries(agents):
        said = (text_at(entry, "description"), text_at(entry, "identity", "theme"))
        if role := "; ".join(text for text in said if text.strip()):
            roles[name.lower()] = role
        if name.lower() == own_agent.lower() and not own_path:
            own_path, own = path, entry
    hiding = frozenset(name.lower() for name, _, entry in _entries(agents) if hides_plugin(at(entry, "tools")))
    names = at(own, "subagents", "allowAgents")
    if names is None:
        names = at(agents, "defaults", "subagents", "allowAgents")
    texts = (own_agent,) if names is None else _texts(names)
    allowed = Allowed(anyone=names is not None and "*" in texts, agents=frozenset(name.lower() for name in texts))
    return Rules(
        allowed, roles, count(at(agents, "defaults", "maxConcurrent")) or None, own_path, at(own, "tools"), hiding
    )


def is_unset(exit_: Exit) -> bool:
    """Whether `config get` failed because the section is not configured: it has its defaults."""
    return (cli_error(exit_) or "").startswith("Config path is valid but unset")


def parse_config_file(exit_: Exit) -> str:
    """The absolute path that `config file --json` names; empty if that failed."""
    path = text_at(parse_object(exit_), "path") if exit_.rc == 0 else ""
    return path if path.startswith("/") else ""


def parse_section(exit_: Exit) -> Mapping[str, object] | None:
    """The section that `config get SECTION --json` prints, empty if it is unset; None if that failed."""
    if is_unset(exit_):
        return {}
    return parse_object(exit_) if exit_.rc == 0 else None


_BY_PROFILE = frozenset({"minimal", "coding", "messaging", "full"})
"""The profiles of OpenClaw that show the plugin's tools, as its manifest says."""
_ALL_TOOLS = frozenset({"*", "mailboxd", "group:plugins"})


def hides_plugin(tools: object) -> bool:
    """Whether a section `tools` may hide the tools of mailboxd's plugin: if it is not plain that it shows them."""
    if tools is None:
        return False
    allow, deny = at(tools, "allow"), at(tools, "deny")
    named = {*_texts(allow or []), *_texts(at(tools, "alsoAllow") or [])}
    denied = any(name in _ALL_TOOLS or name in ANSWER_TOOLS or "*" in name for name in _texts(deny or []))
    if denied or at(tools, "byProvider") is not None or not isinstance(tools, dict):
        return True
    if allow is not None and not named & _ALL_TOOLS:
        return True
    profile = at(tools, "profile")
    return profile is not None and profile not in _BY_PROFILE and not named & _ALL_TOOLS


def messaging(rule: object, version: Version | None) -> Messaging:
    """The rule of the section `tools.agentToAgent`; None if unset, where each version has its own default."""
    by_default = offer(version).messaging
    said = rule if isinstance(rule, dict) else {}
    return Messaging(enabled=said.get("enabled", by_default) is True, patterns=_texts(said.get("allow", [])))


def _peer(entry: object) -> Peer:
    agent = text_at(entry, "id")
    name = text_at(entry, "name") or text_at(entry, "identityName") or agent
    return Peer(agent, name, text_at(entry, "workspace"), at(entry, "isDefault") is True)


def _entries(agents: Mapping[str, object]) -> list[tuple[str, str, object]]:
    """Each agent's id, the path of its entry and the entry, in both formats."""
    entries, older = agents.get("entries"), agents.get("list")
    found: list[tuple[object, str, object]] = []
    if isinstance(entries, dict):
        found += [(name, f"agents.entries.{name}", entry) for name, entry in entries.items()]
    if isinstance(older, list):
        found += [(at(entry, "id"), f"agents.list[{number}]", entry) for number, entry in enumerate(older)]
    return [(name, path, entry) for name, path, entry in found if isinstance(name, str)]


def _texts(names: object) -> tuple[str, ...]:
    return tuple(name.strip() for name in names if isinstance(name, str)) if isinstance(names, list) else ()


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
