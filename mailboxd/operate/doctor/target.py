"""What is examined: a workspace, and the OpenClaw of its configuration."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.core.vocabulary import Gate
from mailboxd.errors import MailboxdError
from mailboxd.formats import config as configuration
from mailboxd.formats.config.model import AcpSection, GatesSection, LimitsSection, OpenClawSection
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.operate.doctor.facts import Settings
from mailboxd.operate.doctor.openclaw import Answers, OpenClawProbes
from mailboxd.perform.agents.gateway.transport import TURN_BYTES, GatewayTransport, pairing_file
from mailboxd.perform.agents.openclaw import OpenClaw, child_environment


@dataclass(frozen=True, slots=True)
class Target:
    """The workspace and OpenClaw to examine. `not_a_workspace` is a given directory that is not a workspace."""

    ws: Workspace | None
    settings: Settings
    openclaw: OpenClawProbes
    not_a_workspace: str = ""
    acp: AcpSection = field(default_factory=AcpSection)
    pairing: Path | None = None
    """The paired device's file, if turns use the gateway's WebSocket."""
    environ: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    """Senders whose unsigned messages are rejected (`signing.require`)."""
    gateway: GatewayTransport | None = None
    """Carries all turns of the examination, if they use the gateway's WebSocket: one program, one connection."""

    def close(self) -> None:
        """Let the program of the turns end."""
        if self.gateway is not None:
            self.gateway.close()


def target_at(
    ws: Workspace | None, not_a_workspace: str, environ: Mapping[str, str], answers: Answers | None = None
) -> Target:
    """The target with the workspace's configuration, or with the defaults if that is missing or invalid.

    Targets that are given the same `answers` ask OpenClaw once what it answers to all of them.
    """
    limits, openclaw, acp = LimitsSection(), OpenClawSection(), AcpSection()
    agent = problem = fix = ""
    gates = GatesSection()
    pairing: Path | None = None
    required: tuple[str, ...] = ()
    if ws is not None:
        try:
            config = configuration.load(ws.config)
            limits, openclaw, acp, agent = config.limits, config.openclaw, config.acp, config.agent
            required, gates = tuple(config.signing.require), config.gates
            paired = pairing_file(ws.root, environ)
            if openclaw.transport == "gateway" or (openclaw.transport == "auto" and paired.exists()):
                pairing = paired
        except MailboxdError as error:
            problem, fix = str(error), getattr(error, "fix", "")
    path = str(ws.config) if ws is not None else ""
    call_bytes = limits.call_bytes if pairing is None else TURN_BYTES
    on = tuple(gate.value for gate in Gate if getattr(gates, gate.value))
    command = shlex.join(openclaw.command)
    settings = Settings(path, limits.turns, call_bytes, agent, problem, command, fix, on, gates.reviewers)
    environment = child_environment(environ, openclaw.environment)
    known: Answers = {} if answers is None else answers
    probes = OpenClawProbes(OpenClaw(openclaw.command), environment, agent, known)
    gateway = None if pairing is None else GatewayTransport(probes.openclaw, pairing, environment)
    return Target(ws, settings, probes, not_a_workspace, acp, pairing, environ, required, gateway)


def find_workspace(start: Path, explicit: Path | None) -> tuple[Workspace | None, str]:
    """The workspace or None, and `explicit` if that is not a workspace."""
    try:
        return Workspace.find(start, explicit), ""
    except MailboxdError:
        return None, str(explicit.resolve()) if explicit is not None else ""
