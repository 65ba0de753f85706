"""The facts that probes collect, and the results that checks report.

A fact is None if it was not probed or its probe failed (see `Facts.failures`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mailboxd.core.messaging import Messaging
from mailboxd.formats.user.registry import ServerOfAll
from mailboxd.host.systemd_units import ServiceUnit
from mailboxd.hub.wire.presence import HostSigns
from mailboxd.ledger.integrity import DatabaseCheck
from mailboxd.operate.integration import PluginState, SkillState
from mailboxd.perform.agents.acp.transport import HarnessInfo
from mailboxd.perform.agents.openclaw import Peer, Rules
from mailboxd.perform.agents.openclaw_versions import Version


class Level(StrEnum):
    """How serious a result is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; works as it is."""
    WARNING = "warning"
    """Works, but not well or not always."""
    ERROR = "error"
    """Work is impossible until it is fixed."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One statement of a check. `id` is a stable slug.

    `fixes` are alternative commands, ready to be pasted; a word in capitals is a placeholder.
    """

    id: str
    level: Level
    text: str
    fixes: tuple[str, ...] = ()


def ok(slug: str, text: str) -> CheckResult:
    return CheckResult(slug, Level.OK, text)


def note(slug: str, text: str, *fixes: str) -> CheckResult:
    return CheckResult(slug, Level.NOTE, text, fixes)


def warning(slug: str, text: str, *fixes: str) -> CheckResult:
    return CheckResult(slug, Level.WARNING, text, fixes)


def error(slug: str, text: str, *fixes: str) -> CheckResult:
    return CheckResult(slug, Level.ERROR, text, fixes)


def edit(path: str, line: str) -> str:
    """The fix that is a line of the configuration at `path`."""
    return f"${{EDITOR:-vi}} {shlex.quote(path or 'CONFIG.YAML')}  # {line}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration values that checks need; the defaults if there is no configuration."""

    path: str
    turns: int
    call_bytes: int
    agent: str = ""
    problem: str = ""
    """Why the configuration is invalid."""
    command: str = "openclaw"
    """The command line of OpenClaw, quoted for a shell."""
    fix: str = ""
    """The command that mends the configuration, if there is one."""
    gates: tuple[str, ...] = ()
    """The review gates that are on."""
    reviewers: tuple[str, ...] = ()
    """`gates.reviewers`."""


@dataclass(frozen=True, slots=True)
class Job:
    """A line that calls a command which is gone: in a file, or in the crontab; its number counts from 1."""

    place: str
    number: int
    line: str


# The workspace


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of the workspace, by its path relative to the root (`.` is the root)."""

    path: str
    kind: str
    """`directory`, `missing`, or what is there instead."""
    owner: int = 0
    mode: int = 0
    writable: bool = False


@dataclass(frozen=True, slots=True)
class WorkspaceFacts:
    """`user` is the effective user id of this process."""

    root: str
    user: int
    directories: tuple[Directory, ...]


@dataclass(frozen=True, slots=True)
class Filesystem:
    """The file system of the workspace. Free space is what a normal user may use; `free_files` None: not counted."""

    type: str
    mount: str
    free_bytes: int
    free_files: int | None


@dataclass(frozen=True, slots=True)
class Daemon:
    """`pid` is None if no daemon runs, 0 if the lock does not name it."""

    pid: int | None
    service: ServiceUnit | ServerOfAll | None = None
    """Its systemd unit, or the `run --all` that serves it; without a daemon, the unit that is installed or what runs.
    """
    inside_agent: bool = False
    gave_up: str = ""
    """Why the latest one could not start; empty if it could."""
    outdated: bool = False
    """Whether the configuration was changed, validly, since it began."""
    paused: str = ""
    """That all agents are paused, in a clause."""
    stopping: str = ""
    """That it is stopping, as a predicate."""
    starts_soon: bool = False
    """Whether `run --all` is about to start the first one."""
    stuck: str = ""
    """Which files it cannot move out of the inbox, and why."""


@dataclass(frozen=True, slots=True)
class MailboxFacts:
    """How many messages are in rejected/ and how many files in inbox/."""

    rejected: int
    waiting: int
    stale: tuple[str, ...] = ()
    """Temporary files in the inbox that are at least ten minutes old, safe to print."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that sign messages. Private keys are read only to see that they are usable."""

    folder: str
    problems: tuple[str, ...] = ()
    """Keys that are unusable: readable by others, or damaged."""
    own: bool = False
    operator: bool = False
    trusted: tuple[str, ...] = ()
    """The owners of trusted keys: agents' ids in lower case, or `operator`."""
    required: tuple[str, ...] = ()
    """Senders whose unsigned messages are rejected (`signing.require`), named as in `trusted`."""
    extra: bool = True
    """The extra `signing` is installed."""
    mode: int = 0o700
    owner: int = 0


# The hub


@dataclass(frozen=True, slots=True)
class HubFacts:
    """This host's part in the hub."""

    host: str
    folder: str
    settings: str
    """The path of hub.yaml."""
    trouble: str = ""
    """Why nothing can be sent or received."""
    extra: bool = True
    """The extra `hub` is installed."""
    server: str | None = None
    """The configuration of the server here, if it runs on this host."""
    syncs: bool = True
    """Whether that server acknowledges only what is on its disk."""
    send: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    hosts: Mapping[str, HostSigns] = field(default_factory=dict)
    """The other hosts."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Since when the oldest message of an agent here waits for its receipt."""
    unserved: Mapping[str, str] = field(default_factory=dict)
    """Pools whose agent has no workspace here, and that agent."""
    stopped: int = 0
    """How much for this host the server no longer delivers."""
    unlisted: Mapping[str, str] = field(default_factory=dict)
    """Pools of hub.yaml that this host may not serve, and why."""
    pool_troubles: Mapping[str, str] = field(default_factory=dict)
    """Pools whose jobs from here are done by nobody, and why."""
    refused: int = 0
    """How much mail of other hosts was refused and kept."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    flooding: Mapping[str, str] = field(default_factory=dict)
    """Hosts that said so much that it was dropped unread, and when last."""
    fork: str = ""
    """How the founder's list of hosts contradicts the one here."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Where another process asked to run as this host, and when."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Hosts with whose token another host asked to be let in, and when."""
    """Subjects on which something came that their host did not sign, and when last."""
    probe: Mapping[str, Any] | None = None
    """The rights of this host at the server (`hub.canary.probe`), if they could be tried."""
    replicas: int | None = None
    """How many servers should hold each message, if this host founded the hub."""
    open_routes: bool = False
    """Routes between the servers of the cluster are described here, without TLS."""


# OpenClaw


@dataclass(frozen=True, slots=True)
class Program:
    """The program that runs agents. `path` is None if PATH has no such program."""

    name: str
    path: str | None
    scripted: bool = False
    """It is mailboxd's scripted stand-in, not OpenClaw."""


@dataclass(frozen=True, slots=True)
class Release:
    """Result of `openclaw --version`."""

    version: Version | None
    answer: str


@dataclass(frozen=True, slots=True)
class Gateway:
    """Result of `openclaw gateway status --json`."""

    connected: bool
    failure: str
    """Empty, or OpenClaw's word for it: unreachable, auth-rejected, pairing-required ..."""
    answer: str
    url: str
    version: str
    service: bool
    """It is installed as a service of the operating system."""
    config_path: str
    config_valid: bool


@dataclass(frozen=True, slots=True)
class PluginParts:
    """The parts of the plugin that the running gateway has, each with why it refused it, or nothing.

    `problem`: why the plugin there does not say. `unlisted`: what the parts offer and OpenClaw itself does not list.
    """

    refused: Mapping[str, str]
    problem: str = ""
    unlisted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """The running gateway's answer to a message that its plugin must refuse."""

    refused: bool
    """The plugin answered it without a model."""
    answer: str = ""
    """The other answer, or why there was none."""
    by_model: bool = False
    """The message reached the agent's model."""


@dataclass(frozen=True, slots=True)
class Transport:
    """Turns over the WebSocket of a paired device (`openclaw.transport: gateway`). `problem` is empty if they work."""

    problem: str
    asks: bool = False
    """The device may ask questions in OpenClaw's chats."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The `tools` section of OpenClaw's configuration, unparsed, and its messaging rules."""

    section: object
    messaging: Messaging


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """A probe that returned nothing; `command` does the same by hand."""

    probe: str
    reason: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The input of all checks."""

    settings: Settings
    python: Version
    inside_agent: bool = False
    not_a_workspace: str = ""
    """A given directory that is not a workspace."""
    failures: tuple[ProbeFailure, ...] = ()

    memory: int | None = None
    """Available bytes."""
    jobs: tuple[Job, ...] | None = None
    """Lines of units and of the crontab that call what is gone."""
    now: str = ""

    workspace: WorkspaceFacts | None = None
    filesystem: Filesystem | None = None
    daemon: Daemon | None = None
    database: DatabaseCheck | None = None
    mailbox: MailboxFacts | None = None
    keys: Keys | None = None
    hub: HubFacts | None = None
    skill: SkillState | None = None
    harnesses: tuple[HarnessInfo, ...] | None = None

    program: Program | None = None
    release: Release | None = None
    gateway: Gateway | None = None
    transport: Transport | None = None
    peers: tuple[Peer, ...] | None = None
    agents: Rules | None = None
    """This workspace's agent in OpenClaw's configuration."""
    tools: Tools | None = None
    plugin: PluginState | None = None
    plugin_answer: PluginAnswer | None = None
    plugin_parts: PluginParts | None = None
