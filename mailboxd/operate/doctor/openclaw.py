"""Checks of OpenClaw: the program, the gateway and its plugin."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import ANSWER_TOOLS
from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.host.clock import Clock
from mailboxd.host.process import cores
from mailboxd.operate.doctor.facts import (
    CheckResult,
    Facts,
    Gateway,
    PluginParts,
    Program,
    Release,
    Tools,
    Transport,
    edit,
    error,
    note,
    ok,
    warning,
)
from mailboxd.operate.integration import PLUGIN_INSPECT, PluginState, parse_plugin_state
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.gateway.transport import QUESTIONS, ready
from mailboxd.perform.agents.json_output import at, brief, complaint, parse_object, text_at
from mailboxd.perform.agents.openclaw import (
    AGENTS_LIST,
    OpenClaw,
    Peer,
    Rules,
    config_get,
    is_unset,
    messaging,
    parse_agents,
    parse_rules,
    parse_version,
)
from mailboxd.perform.agents.openclaw_versions import NEWEST, Version, offer, shown, why_too_old, why_untested
from mailboxd.perform.agents.scripted import NAME as STAND_IN

_INSTALL = "npm install -g openclaw@latest"


def program(facts: Facts, found: Program) -> Iterator[CheckResult]:
    if found.path is None:
        other = (edit(facts.settings.path, "openclaw.command"),) if facts.settings.path else ()
        yield error("openclaw", f"{found.name} is not in PATH", _INSTALL, *other)
    elif found.scripted:
        text = "a scripted stand-in runs instead of OpenClaw: gateway and plugin were not checked"
        yield note("openclaw", text, edit(facts.settings.path, "openclaw.command: [openclaw]"))


def version(_: Facts, found: Release) -> Iterator[CheckResult]:
    if found.version is None:
        text = f"the program does not report its version: {found.answer or 'no output'}"
        yield error("openclaw-version", text, _INSTALL, "nvm install node  # if OpenClaw needs a newer Node")
    elif too_old := why_too_old(found.version):
        yield error("openclaw-version", too_old, _INSTALL)
    elif untested := why_untested(found.version):
        yield warning("openclaw-version", untested, f"npm install -g openclaw@{shown(NEWEST)}  # or a newer mailboxd")
    else:
        yield ok("openclaw-version", f"OpenClaw {shown(found.version)}")


def gateway(_: Facts, found: Gateway) -> Iterator[CheckResult]:
    if not found.config_valid:
        text = f"OpenClaw's configuration is invalid ({found.config_path})"
        yield error("openclaw-config", text, "openclaw config validate", "openclaw doctor --fix")
    if not found.connected:
        yield _unconnected(found)
    else:
        yield ok("gateway", f"the gateway at {found.url} answers and accepts the credentials")


def _unconnected(found: Gateway) -> CheckResult:
    where = f"the gateway at {found.url or 'its address'}"
    if found.failure == "unreachable":
        start = "openclaw gateway start" if found.service else "openclaw gateway run"
        return error("gateway", f"{where} does not answer: {found.answer}", start)
    if found.failure == "auth-rejected":
        text = f"{where} refuses the credentials in {found.config_path or 'the configuration'}: {found.answer}"
        return error("gateway", text, _restart(found))
    if found.failure == "pairing-required":
        text = f"{where} requires this device to be approved first: {found.answer}"
        return error("gateway", text, "openclaw devices list", "openclaw devices approve --latest  # names it")
    return error("gateway", f"{where} refuses the connection: {found.answer}", "openclaw gateway probe")


def _restart(found: Gateway) -> str:
    return "openclaw gateway restart" if found.service else "openclaw gateway run  # after stopping the running one"


def gateway_version(facts: Facts, found: Gateway) -> Iterator[CheckResult]:
    program = shown(facts.release.version) if facts.release and facts.release.version else ""
    if program and found.version not in ("", program):
        text = f"the gateway is OpenClaw {found.version}, the program {program}: only one of them was updated"
        yield warning("gateway-version", text, _restart(found))


def transport(facts: Facts, found: Transport) -> Iterator[CheckResult]:
    if found.problem:
        text = f"turns cannot use the gateway's WebSocket (openclaw.transport): {found.problem}"
        yield error(
            "transport", text, "mailboxd connect gateway pair", edit(facts.settings.path, "openclaw.transport: cli")
        )
        return
    yield ok("transport", "turns use the gateway's WebSocket, and the device may run them")
    if not found.asks:
        text = "open questions are not asked in OpenClaw's chats: the device has no scope operator.questions"
        yield note("prompts", text, "mailboxd connect gateway pair --questions")


def lane(facts: Facts, found: Rules) -> Iterator[CheckResult]:
    turns, version = facts.settings.turns, facts.release.version if facts.release is not None else None
    lane = found.lane or offer(version).lane(cores())
    if turns > max(lane // 2, 1):
        yield warning(
            "lane",
            f"limits.turns is {turns}, more than half of the {lane} concurrent turns of the gateway: users wait",
            f"openclaw config set agents.defaults.maxConcurrent {2 * turns} --strict-json",
        )


def plugin(facts: Facts, found: PluginState) -> Iterator[CheckResult]:
    if not found.installed:
        why = f" ({found.problem})" if found.problem else ""
        text = f"the gateway plugin is not installed{why}: each message to an agent costs a model call"
        yield warning("plugin", text, "mailboxd connect plugin install")
    elif found.problem:
        yield warning(
            "plugin", f"the gateway plugin does not accept messages: {found.problem}", "mailboxd connect plugin install"
        )
    elif (answer := facts.plugin_answer) is None:
        text = "the gateway plugin is installed; whether the gateway uses it was not tested"
        yield note("plugin", text, "mailboxd doctor")
    elif answer.by_model:
        text = f"the gateway does not use its plugin: a message reached the model, which answered: {answer.answer}"
        yield error("plugin", text, "openclaw gateway restart", "mailboxd connect plugin install")
    elif not answer.refused:
        text = f"the gateway plugin is installed, but did not answer a message: {answer.answer}"
        yield error("plugin", text, "openclaw logs", "mailboxd connect plugin install")
    else:
        yield ok("plugin", f"the gateway plugin {found.version} accepts messages without a model".replace("  ", " "))


def plugin_parts(_: Facts, found: PluginParts) -> Iterator[CheckResult]:
    """What the running gateway itself says of the plugin: a part that a version refuses is missed by people only."""
    if found.problem:
        text = f"the running gateway does not have this mailboxd's plugin: {found.problem}"
        yield error("plugin-parts", text, "mailboxd connect plugin install", "openclaw gateway restart")
        return
    refused = {name: why for name, why in found.refused.items() if why}
    for name, why in refused.items():
        yield warning("plugin-parts", f"this OpenClaw refuses the plugin's part {name}: {why}", "openclaw logs")
    for name, what in found.unlisted.items():
        text = f"the gateway has the plugin's part {name}, but does not list {what}"
        yield warning("plugin-parts", text, "openclaw gateway restart", "openclaw plugins inspect mailboxd")
    if not refused and not found.unlisted:
        yield ok("plugin-parts", f"the gateway runs all parts of the plugin: {', '.join(found.refused)}")


# Probes: one command each, with a time limit. They change nothing.

SECONDS = 120.0
"""Time limit of one command."""
_T = TypeVar("_T")


Answers = dict[tuple[Any, ...], Exit]
"""What OpenClaw answered, by the command and its environment."""


@dataclass(frozen=True, slots=True)
class OpenClawProbes:
    """The probes of one OpenClaw, run in one environment."""

    openclaw: OpenClaw
    environment: Mapping[str, str]
    agent: str = ""
    """This workspace's agent; empty outside a workspace."""
    answers: Answers = field(default_factory=dict)
    """What need not be asked again: who examines many workspaces of one OpenClaw gives the same one each time."""

    def program(self) -> Program:
        """Where the program is. Raises nothing."""
        name = self.openclaw.command[0]
        path = shutil.which(name, path=self.environment.get("PATH"))
        return Program(name, path, scripted=Path(name).name == STAND_IN)

    def release(self) -> Release:
        """Its version. Raises UnavailableError."""
        exit_ = self._run(self.openclaw.argv("--version"))
        return Release(parse_version(exit_), _error_text(exit_))

    def gateway(self) -> Gateway:
        """Whether it is reachable and accepts the credentials. Raises UnavailableError."""
        exit_ = self._run(self.openclaw.argv("gateway", "status", "--json"))
        return _answered(parse_gateway(exit_), exit_)

    def peers(self) -> tuple[Peer, ...]:
        """All agents. Raises UnavailableError."""
        exit_ = self._run(self.openclaw.argv(*AGENTS_LIST))
        return _answered(parse_agents(exit_), exit_)

    def agents(self) -> Rules:
        """The configuration of this workspace's agent. Raises UnavailableError."""
        return self.agents_section()(self.agent)

    def agents_section(self) -> Callable[[str], Rules]:
        """Gives the configuration of each agent, of one question to OpenClaw. Raises UnavailableError."""
        exit_ = self._run(self.openclaw.argv(*config_get("agents")))
        return lambda agent: _answered(parse_rules(exit_, agent), exit_)

    def tools(self, version: Version | None) -> Tools:
        """The `tools` section. Raises UnavailableError."""
        exit_ = self._run(self.openclaw.argv(*config_get("tools")))
        return _answered(parse_tools(exit_, version), exit_)

    def plugin(self) -> PluginState:
        """Whether it has this mailboxd's plugin, and loads it. Raises UnavailableError."""
        return parse_plugin_state(self._run(self.openclaw.argv(*PLUGIN_INSPECT)))

    def plugin_parts(self) -> PluginParts:
        """What the plugin of the running gateway says of its parts, and OpenClaw of what they offer.

        Raises UnavailableError.
        """
        parts = parse_parts(self._call("mailboxd.parts", {}))
        if parts.problem:
            return parts
        listed = {method: self._call(method, {"agentId": self.agent} if self.agent else {}) for method in LISTS}
        return replace(parts, unlisted=unlisted(parts.refused, listed))

    def _call(self, method: str, params: Mapping[str, str]) -> Exit:
        return self._run(self.openclaw.argv("gateway", "call", method, "--params", json.dumps(params), "--json"))

    def _run(self, argv: tuple[str, ...]) -> Exit:
        question = (*argv, *sorted(self.environment.items()))
        exit_ = self.answers.get(question) or ask(argv, self.environment, SECONDS)
        if exit_.rc == 0:
            self.answers[question] = exit_
        return exit_


def probe_transport(openclaw: OpenClaw, pairing_file: Path, clock: Clock) -> Transport:
    """Connect as a turn does, to see whether the paired device may run turns. Raises no MailboxdError."""
    try:
        ready(openclaw, pairing_file, {})
        from mailboxd.perform.agents.gateway import client, pairing

        paired = pairing.read(pairing_file)
        status = client.device_status(paired, clock) if paired is not None else None
    except MailboxdError as error:
        return Transport(brief(str(error)))
    return Transport("", asks=status is not None and QUESTIONS in status.scopes)


def _answered(value: _T | None, exit_: Exit) -> _T:
    if value is None:
        raise UnavailableError(_error_text(exit_))
    return value


def _error_text(exit_: Exit) -> str:
    """The first line of a program's error message, else how it ended."""
    if exit_.rc is not None and exit_.rc < 0:
        return f"no answer within {SECONDS:.0f} s"
    return first_line(complaint(exit_), 300)


# Parsing OpenClaw's answers. Pure; nothing about their shape is taken for granted.


def parse_gateway(exit_: Exit) -> Gateway | None:
    """Parse `gateway status --json`, whatever its exit status."""
    value = parse_object(exit_)
    rpc = at(value, "rpc")
    if not isinstance(rpc, dict):
        return None
    said = brief(text_at(rpc, "error"))[:300]
    connected = rpc.get("ok") is True and text_at(rpc, "capability") != "pairing_pending"
    return Gateway(
        connected=connected,
        failure="" if connected else text_at(rpc, "connectFailure", "kind"),
        answer=said,
        url=brief(text_at(rpc, "url") or text_at(value, "gateway", "probeUrl")),
        version=text_at(rpc, "server", "version") or text_at(rpc, "version"),
        service=at(value, "service", "loaded") is True,
        config_path=brief(text_at(value, "config", "cli", "path")),
        config_valid=at(value, "config", "cli", "valid") is not False,
    )


def parse_parts(exit_: Exit) -> PluginParts:
    """Parse the answer of the plugin's method `mailboxd.parts`."""
    parts = at(parse_object(exit_), "parts")
    if exit_.rc != 0 or not isinstance(parts, dict):
        return PluginParts({}, _error_text(exit_))
    return PluginParts({brief(str(name)): brief(str(why)) for name, why in parts.items()})


LISTS = ("commands.list", "tools.catalog", "plugins.uiDescriptors")
"""The methods by which OpenClaw's own clients learn what there is."""
_COMMANDS, _TOOLS, _TABS = LISTS
_OFFERED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "answers": (_TOOLS, ANSWER_TOOLS),
    "delegate": (_TOOLS, ("mailboxd_delegate",)),
    "command": (_COMMANDS, ("mailbox",)),
    "tab": (_TABS, ("mailbox",)),
}
"""By part of the plugin: the list, and what has to stand there."""


def unlisted(parts: Mapping[str, str], lists: Mapping[str, Exit]) -> dict[str, str]:
    """What each part that OpenClaw took offers and its own `LISTS` lack. A list that does not come accuses nobody."""
    there = {method: _listed(method, exit_) for method, exit_ in lists.items()}
    missing = {}
    for part, (method, offered) in _OFFERED.items():
        names = there.get(method)
        if parts.get(part) == "" and names is not None and (lacking := [one for one in offered if one not in names]):
            missing[part] = f"{', '.join(lacking)} in {method}"
    return missing


def _listed(method: str, exit_: Exit) -> set[str] | None:
    answer = parse_object(exit_) if exit_.rc == 0 else None
    if method == _TOOLS:
        groups = _entries(answer, "groups")
        return (
            None if groups is None else {text_at(tool, "id") for one in groups for tool in _entries(one, "tools") or ()}
        )
    key, name = ("commands", "name") if method == _COMMANDS else ("descriptors", "id")
    entries = _entries(answer, key)
    return None if entries is None else {text_at(one, name) for one in entries}


def _entries(value: object, key: str) -> list[dict[str, Any]] | None:
    found = at(value, key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else None


def parse_tools(exit_: Exit, version: Version | None) -> Tools | None:
    """Parse `config get tools --json`; an unset section is empty."""
    unset = is_unset(exit_)
    section = {} if unset else parse_object(exit_)
    if section is None or (exit_.rc != 0 and not unset):
        return None
    return Tools(section, messaging(section.get("agentToAgent"), version))
