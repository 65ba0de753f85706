"""The command lines of OpenClaw 2026.8.1 and later: what is asked, of whom, in which environment. All pure.

`outcome` reads what a turn brought back, `ledger` looks up one that was lost, `discovery` finds out who is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.core.outcomes import Failed, Permanence
from mailboxd.core.terms import is_id

MAX_MESSAGE_BYTES = 4_194_304
"""The longest message file that OpenClaw takes."""

_HISTORY = {"limit": 10, "maxChars": 500_000}
"""Without `maxChars` OpenClaw cuts every text at 8,000 characters; 500,000 is the most that it takes."""
_WAIT_MS = 500

_PERSON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "LANG", "LANGUAGE", "TMPDIR")
_NETWORK = ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_SCRIPTED = ("MAILBOXD_SCRIPT", "MAILBOXD_SCRIPT_LEDGER")
_ENVIRONMENT = frozenset((*_PERSON, *_NETWORK, *(name.lower() for name in _NETWORK), *_SCRIPTED))
_ENVIRONMENT_PREFIXES = ("LC_", "OPENCLAW_", "NODE_", "XDG_")


@dataclass(frozen=True, slots=True)
class OpenClaw:
    """How OpenClaw is called here: the operator's command (`openclaw.command` of the configuration)."""

    command: tuple[str, ...]

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """One turn of `agent` with the message in `message_file`; `timeout` in seconds, at least 1.

        OpenClaw gives up after `timeout` + 30 s, and does not count the time in the gateway's queue. Raises
        ValueError for an argument that OpenClaw would take for an option: ids are checked long before.
        """
        if not is_id(agent) or timeout < 1 or (model is not None and not re.match(r"[A-Za-z0-9]", model)):
            raise ValueError(f"not a turn: agent {agent!r}, timeout {timeout}, model {model!r}")
        options = ("--agent", agent, "--session-key", session_key, "--message-file", str(message_file), "--json")
        limit = ("--timeout", str(timeout))
        return (*self.command, "agent", *options, *limit, *(("--model", model) if model is not None else ()))

    def tasks_show_argv(self, key_or_run: str) -> tuple[str, ...]:
        """The ledger's row of a run, or the latest of a session key. Works without the gateway; rows live 7 days."""
        return (*self.command, "tasks", "show", key_or_run, "--json")

    def wait_argv(self, run_id: str) -> tuple[str, ...]:
        """The reply of a run of the gateway's present life, for about 10 minutes; cut at 4,096 characters."""
        return self._gateway("agent.wait", {"runId": run_id, "timeoutMs": _WAIT_MS})

    def history_argv(self, session_key: str) -> tuple[str, ...]:
        """The latest messages of a session, whole up to 500,000 characters each; they live 30 days."""
        return self._gateway("chat.history", {"sessionKey": session_key, **_HISTORY})

    def agents_list_argv(self) -> tuple[str, ...]:
        """All agents with their workspaces. 2 to 4 s; works without the gateway."""
        return (*self.command, "agents", "list", "--json")

    def config_agents_argv(self) -> tuple[str, ...]:
        """The `agents` section of OpenClaw's configuration, in which `allowAgents` stands."""
        return (*self.command, "config", "get", "agents", "--json")

    def config_agent_to_agent_argv(self) -> tuple[str, ...]:
        """The `tools.agentToAgent` section of OpenClaw's configuration."""
        return (*self.command, "config", "get", "tools.agentToAgent", "--json")

    def config_file_argv(self) -> tuple[str, ...]:
        """Where OpenClaw's configuration lies: to be watched, never to be parsed."""
        return (*self.command, "config", "file", "--json")

    def config_get_argv(self, section: str) -> tuple[str, ...]:
        """A section of OpenClaw's configuration, without its secrets."""
        return (*self.command, "config", "get", section, "--json")

    def config_patch_argv(self, file: Path) -> tuple[str, ...]:
        """Merge a file into OpenClaw's configuration: all of it or, if the result is not valid, nothing."""
        return (*self.command, "config", "patch", "--file", str(file))

    def plugin_install_argv(self, source: Path) -> tuple[str, ...]:
        """Copy a plugin into OpenClaw's state. A running gateway loads it.

        The options are what OpenClaw would ask a person: whether the source is trusted, and what it may do.
        """
        return (*self.command, "plugins", "install", str(source), "--force", "--accept-capabilities")

    def plugin_enable_argv(self, plugin: str) -> tuple[str, ...]:
        return (*self.command, "plugins", "enable", plugin, "--accept-capabilities")

    def plugin_may_read_argv(self, plugin: str) -> tuple[str, ...]:
        """Let a plugin see what is said to agents: without it OpenClaw blocks hooks like `before_agent_reply`."""
        path = f"plugins.entries.{plugin}.hooks.allowConversationAccess"
        return (*self.command, "config", "set", path, "true", "--strict-json")

    def plugin_reload_argv(self, plugin: str) -> tuple[str, ...]:
        """Have the running gateway load a plugin again; fails where none runs, and does not exist in 2026.9.2 yet.

        2026.9.6 needs it: a plugin that is enabled after it was let see messages is loaded without its hooks.
        """
        return (*self.command, "plugins", "reload", plugin, "--accept-capabilities", "--json")

    def gateway_restart_argv(self) -> tuple[str, ...]:
        """Have the running gateway restart when the work that it has now is done; fails where none runs."""
        return (*self.command, "gateway", "restart", "--safe", "--json")

    def gateway_health_argv(self) -> tuple[str, ...]:
        return (*self.command, "gateway", "call", "health", "--json")

    def plugin_uninstall_argv(self, plugin: str) -> tuple[str, ...]:
        """Remove a plugin, its files and its settings; of these `enabled: false` stays. --force asks no questions."""
        return (*self.command, "plugins", "uninstall", plugin, "--force")

    def plugin_inspect_argv(self, plugin: str) -> tuple[str, ...]:
        """What a plugin registers when it is loaded, in a process of its own. 4 to 8 s; works without the gateway."""
        return (*self.command, "plugins", "inspect", plugin, "--runtime", "--json")

    def version_argv(self) -> tuple[str, ...]:
        return (*self.command, "--version")

    def _gateway(self, method: str, parameters: Mapping[str, object]) -> tuple[str, ...]:
        return (*self.command, "gateway", "call", method, "--params", json.dumps(parameters), "--json")


def refuse_message(raw: bytes) -> Failed | None:
    """Why OpenClaw would not take this message, or would take it for a command of its own; None if it is fine."""
    if len(raw) > MAX_MESSAGE_BYTES:
        problem = f"prompt-too-large: {len(raw)} bytes, OpenClaw takes {MAX_MESSAGE_BYTES}"
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
    """What of `environ` a program of ours may see: an allow-list, plus the names in `extra` (configuration).

    OPENCLAW_NO_RESPAWN=1, because otherwise the pid is only a launcher's and a kill leaves the real client alive.
    """
    allowed = _ENVIRONMENT | frozenset(extra)
    kept = {name: text for name, text in environ.items() if name in allowed or name.startswith(_ENVIRONMENT_PREFIXES)}
    return kept | {"OPENCLAW_NO_RESPAWN": "1"}
