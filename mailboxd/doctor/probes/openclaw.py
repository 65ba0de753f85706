"""What OpenClaw says of itself: its package, its version, its gateway, its configuration.

Every question is a command of its own, given up after two minutes; nothing that is asked changes anything, and no
answer is trusted beyond its form.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from mailboxd.agents.ask import ask
from mailboxd.agents.callfiles import Exit, read_capped
from mailboxd.agents.discovery import MESSAGING_BY_DEFAULT, Peer, parse_agents, parse_version
from mailboxd.agents.gateway.transport import ready
from mailboxd.agents.jsonout import brief, cli_error
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.scripted import NAME as STAND_IN
from mailboxd.clock import Clock
from mailboxd.doctor import answers, versions
from mailboxd.doctor.facts import Agents, ExecPolicy, Gateway, Program, Release, Runtime, Tools, Transport, Version
from mailboxd.errors import MailboxdError, UnavailableError

SECONDS = 120.0
_READY_SECONDS = 5.0
_PACKAGE_CAP = 1_000_000
_HEAD = 256
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks one OpenClaw, in one environment."""

    openclaw: OpenClaw
    environment: Mapping[str, str]
    agent: str = ""
    """The own agent; empty outside a workspace."""

    # -------------------------------------------------------------- the program

    def program(self) -> Program:
        """Whether there is one. Raises nothing."""
        name = self.openclaw.command[0]
        path = shutil.which(name, path=self.environment.get("PATH"))
        return Program(name, path, stand_in=Path(name).name == STAND_IN)

    def release(self) -> Release:
        """Its version. Raises UnavailableError."""
        exit_ = self._ask(self.openclaw.version_argv())
        return Release(parse_version(exit_), _said(exit_))

    def runtime(self) -> Runtime | None:
        """The Node under it, and what its package asks for; None if it is not run by a Node that can be found."""
        script = self._script()
        if script is None:
            return None
        node, package = script
        if node is None:
            return Runtime("", None, wanted(package), "there is no program node in PATH")
        exit_ = self._ask((node, "--version"))
        found = versions.read(exit_.stdout.decode("utf-8", "replace")) if exit_.rc == 0 else None
        return Runtime(node, found, wanted(package), _said(exit_))

    def _script(self) -> tuple[str | None, Path] | None:
        """Node and the file that it runs, as the command line or the file's first line says."""
        command, path = self.openclaw.command, self.environment.get("PATH")
        if Path(command[0]).name == "node" and len(command) > 1:
            return shutil.which(command[0], path=path), Path(command[1])
        found = shutil.which(command[0], path=path)
        if found is None:
            return None
        first = read_capped(Path(found).resolve(), _HEAD)[0].split(b"\n")[0].decode("utf-8", "replace")
        line = re.fullmatch(r"#!\s*(\S+)(?:\s+(?:-S\s+)?(\S+))?.*", first)
        if line is None:
            return None
        interpreter = line[2] if Path(line[1]).name == "env" and line[2] else line[1]
        return (shutil.which(interpreter, path=path), Path(found)) if Path(interpreter).name == "node" else None

    # -------------------------------------------------------------- the gateway

    def gateway(self) -> Gateway:
        """Whether it can be reached and takes our credentials. Raises UnavailableError."""
        exit_ = self._ask((*self.openclaw.command, "gateway", "status", "--json"))
        found = answers.gateway(exit_)
        if found is None:
            raise UnavailableError(_said(exit_))
        return answers.with_readiness(found, readiness(found.url)) if found.connected else found

    # -------------------------------------------------------------- its configuration

    def peers(self) -> tuple[Peer, ...]:
        """All agents. Raises UnavailableError."""
        exit_ = self._ask(self.openclaw.agents_list_argv())
        return _answered(parse_agents(exit_), exit_)

    def agents(self) -> Agents:
        """What is said of the own agent. Raises UnavailableError."""
        exit_ = self._ask(self.openclaw.config_agents_argv())
        return _answered(answers.agents(exit_, self.agent), exit_)

    def tools(self, version: Version | None) -> Tools:
        """The section `tools`. Raises UnavailableError."""
        exit_ = self._ask(self.openclaw.config_get_argv("tools"))
        return _answered(answers.tools(exit_, version or MESSAGING_BY_DEFAULT), exit_)

    def exec_policy(self) -> ExecPolicy:
        """What becomes of the own agent's shell commands. Raises UnavailableError."""
        exit_ = self._ask((*self.openclaw.command, "approvals", "get", "--json"))
        return _answered(answers.exec_policy(exit_, self.agent), exit_)

    def _ask(self, argv: tuple[str, ...]) -> Exit:
        return ask(argv, self.environment, SECONDS)


def transport(openclaw: OpenClaw, pairing_file: Path, clock: Clock) -> Transport:
    """Whether the paired device may run turns: connects as a turn does. Raises nothing of the gateway's."""
    try:
        ready(openclaw, pairing_file)
        from mailboxd.agents.gateway import enrolment, pairing

        paired = pairing.read(pairing_file)
        if paired is not None:
            enrolment.standing(paired, clock)
    except MailboxdError as error:
        return Transport(brief(str(error)))
    return Transport("")


def wanted(script: Path) -> str:
    """The Node that the package `openclaw` around `script` asks for (`engines.node`); empty if that cannot be read."""
    for folder in script.resolve().parents:
        with suppress(OSError, ValueError, RecursionError):
            raw, cut = read_capped(folder / "package.json", _PACKAGE_CAP)
            package = json.loads(raw) if raw and not cut else None
            if isinstance(package, dict) and package.get("name") == "openclaw":
                engines = package.get("engines")
                node = engines.get("node") if isinstance(engines, dict) else None
                return node if isinstance(node, str) else ""
    return ""


def readiness(url: str) -> Any:
    """What the gateway's `/readyz` says, without credentials; None unless it is on this machine and answers."""
    parts = urlsplit(url)
    if parts.scheme != "ws" or not _is_here(parts.hostname or ""):
        return None
    try:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=_READY_SECONDS)
        try:
            connection.request("GET", "/readyz")
            return json.loads(connection.getresponse().read(_PACKAGE_CAP))
        finally:
            connection.close()
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _answered(value: _T | None, exit_: Exit) -> _T:
    if value is None:
        raise UnavailableError(_said(exit_))
    return value


def _said(exit_: Exit) -> str:
    """The line in which a program says what is wrong, else how it ended."""
    if exit_.rc is not None and exit_.rc < 0:
        return f"no answer within {SECONDS:.0f} s"
    text = (
        cli_error(exit_) or exit_.stderr.decode("utf-8", "replace").strip() or exit_.stdout.decode("utf-8", "replace")
    )
    lines = [line for line in text.splitlines() if line.strip()]
    return brief(lines[0])[:300] if lines else f"it ended with {exit_.rc} and said nothing"
