"""What the probes found. A fact that is None was not asked for, or its probe failed, and `failures` says why."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.agents.acp.probe import HarnessInfo
from mailboxd.agents.openclaw import Allowed, Messaging, Peer
from mailboxd.integration.plugin import PluginState
from mailboxd.integration.skill import SkillState
from mailboxd.store.integrity import Examination

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Settings:
    """What of the configuration the checks need; the defaults where there is none."""

    path: str
    turns: int
    call_bytes: int
    agent: str = ""
    problem: str = ""
    """Why the configuration cannot be used."""
    command: str = "openclaw"
    """How OpenClaw is called, as a shell takes it."""


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True)
class Inotify:
    """The kernel's limits for this user, and how much of them is taken, as far as its processes can be seen."""

    instances: int
    max_instances: int
    watches: int
    max_watches: int


# ---------------------------------------------------------------- the workspace


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of the workspace, by its path below the root (`.` is the root)."""

    path: str
    kind: str
    """directory, missing, or what is there instead."""
    owner: int = 0
    mode: int = 0
    writable: bool = False
    device: int = 0


@dataclass(frozen=True, slots=True)
class Filesystem:
    """Where the workspace lies. Sizes in bytes for who is not root; `free_files` is None where they are not counted."""

    type: str
    mount: str
    free_bytes: int
    free_files: int | None
    skew_seconds: float | None = None
    """How far the time of a file made just now is from the clock; None where no unnamed file can be made."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """`pid` is None when none runs, 0 when it did not say."""

    pid: int | None
    service: str = ""
    """The systemd unit that it runs in."""
    inside_agent: bool = False


@dataclass(frozen=True, slots=True)
class Leftovers:
    """How many messages lie in rejected/, and how many files in inbox/."""

    rejected: int
    arrived: int
    abandoned: tuple[str, ...] = ()
    """Temporary names that have lain in the inbox for ten minutes or more, as they can be shown."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that sign messages. A private key is only ever read to see that it can be used."""

    folder: str
    problems: tuple[str, ...] = ()
    """Keys that cannot be used: others can read them, or they are damaged."""
    own: bool = False
    operator: bool = False
    trusted: tuple[str, ...] = ()
    """Whose keys are trusted here: agents' ids in lower case, or `operator`."""
    required: tuple[str, ...] = ()
    """From whom nothing is taken unsigned (`signing.require`), as they would be trusted."""
    extra: bool = True
    """What reads and makes signatures is installed."""
    mode: int = 0o700
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The workspace. `user` is the effective user id of who asks."""

    root: str
    user: int
    directories: tuple[Directory, ...]


# ---------------------------------------------------------------- OpenClaw


@dataclass(frozen=True, slots=True)
class Program:
    """The program that calls agents. `path` is None if there is none of that name."""

    name: str
    path: str | None
    stand_in: bool = False
    """It is mailboxd's scripted stand-in, not OpenClaw."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The Node that OpenClaw is run by, and which it asks for (`engines` of its package.json; empty = not said)."""

    path: str
    version: Version | None
    wanted: str
    said: str = ""
    """What it printed when it was no version."""


@dataclass(frozen=True, slots=True)
class Release:
    """What `openclaw --version` said."""

    version: Version | None
    said: str


@dataclass(frozen=True, slots=True)
class Gateway:
    """What `openclaw gateway status --json` and `/readyz` say."""

    connected: bool
    failure: str
    """Empty, or one of: unreachable, auth-rejected, pairing-required, or another word of OpenClaw's."""
    said: str
    url: str
    version: str
    service: bool
    """It is installed as a service of the operating system."""
    config_path: str
    config_valid: bool
    failing: tuple[str, ...] = ()
    """What keeps it from being ready; `gateway-draining` when it takes no new work."""


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """What came of a message that the plugin in the running gateway has to refuse by itself."""

    refused: bool
    """The plugin answered it, and no model was called."""
    said: str = ""
    """What was answered instead, or why there was no answer."""
    by_model: bool = False
    """The agent's model was given the message."""


@dataclass(frozen=True, slots=True)
class Transport:
    """Turns over a WebSocket of a paired device (`openclaw.transport: gateway`). Empty `problem`: they can run."""

    problem: str


@dataclass(frozen=True, slots=True)
class Agents:
    """Who is there, and what OpenClaw's configuration says of the own agent."""

    allowed: Allowed
    entry_path: str
    """Where the own agent stands in OpenClaw's configuration; empty if it does not."""
    tools: object
    """The `tools` of its entry, as it stands there."""
    lane: int | None
    """`agents.defaults.maxConcurrent`: turns that the gateway runs at the same time."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The `tools` section of OpenClaw's configuration, as it stands there; and who may send work to whom."""

    section: object
    messaging: Messaging


@dataclass(frozen=True, slots=True)
class ExecPolicy:
    """What becomes of a shell command that the own agent wants to run in a turn."""

    security: str
    ask: str
    config_path: str
    """The key that asks for it."""
    by_host: bool
    """The host's approvals document is stricter than the configuration."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A probe that brought nothing: which, why, and how to look oneself."""

    probe: str
    reason: str
    by_hand: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the checks are given."""

    settings: Settings
    python: Version
    inside_agent: bool = False
    named: str = ""
    """The directory that was named as a workspace and is none."""
    failures: tuple[Failure, ...] = ()

    inotify: Inotify | None = None
    memory: int | None = None
    open_files: int | None = None
    synchronised: bool | None = None
    now: str = ""

    place: Place | None = None
    filesystem: Filesystem | None = None
    daemon: Daemon | None = None
    database: Examination | None = None
    leftovers: Leftovers | None = None
    keys: Keys | None = None
    skill: SkillState | None = None
    harnesses: tuple[HarnessInfo, ...] | None = None

    program: Program | None = None
    runtime: Runtime | None = None
    release: Release | None = None
    gateway: Gateway | None = None
    transport: Transport | None = None
    peers: tuple[Peer, ...] | None = None
    agents: Agents | None = None
    tools: Tools | None = None
    exec_policy: ExecPolicy | None = None
    plugin: PluginState | None = None
    plugin_answer: PluginAnswer | None = None


# ---------------------------------------------------------------------------------------------------------------------
# What a check has to say.


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; works as it is."""
    WARNING = "warning"
    """Works, but worse than it could, or not always."""
    ERROR = "error"
    """Work cannot be done until it is mended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `id` is a stable slug.

    `mends` are commands that mend it, one way each, ready to be pasted; a word in capitals is to be replaced.
    """

    id: str
    level: Level
    text: str
    mends: tuple[str, ...] = ()


def edit(path: str, line: str) -> str:
    """The mend that is a line of the configuration at `path`."""
    return f"${{EDITOR:-vi}} {shlex.quote(path or 'CONFIG.YAML')}  # {line}"


def ok(slug: str, text: str) -> Finding:
    return Finding(slug, Level.OK, text)


def note(slug: str, text: str, *mends: str) -> Finding:
    return Finding(slug, Level.NOTE, text, mends)


def warning(slug: str, text: str, *mends: str) -> Finding:
    return Finding(slug, Level.WARNING, text, mends)


def error(slug: str, text: str, *mends: str) -> Finding:
    return Finding(slug, Level.ERROR, text, mends)
