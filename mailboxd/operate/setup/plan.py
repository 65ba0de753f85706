"""Find OpenClaw and its agents, plan what to set up for them, carry that out, and undo it."""

from __future__ import annotations

import json
import re
import shlex
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache, partial
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path, PurePath
from typing import Any, ClassVar

from mailboxd.core.vocabulary import Gate
from mailboxd.errors import ConfigError, MailboxdError, UnavailableError
from mailboxd.formats import config
from mailboxd.formats.mailbox import files, lock
from mailboxd.formats.mailbox.files import directory, publish, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.unread import found_before
from mailboxd.formats.user import registry
from mailboxd.formats.user.state import UserState
from mailboxd.host.clock import Clock
from mailboxd.host.pip_extras import to_add
from mailboxd.host.systemd_units import ALL, installed_for
from mailboxd.ledger.opening import open_workspace
from mailboxd.operate import integration
from mailboxd.operate.doctor.agent import reaches, to_reach
from mailboxd.operate.doctor.openclaw import OpenClawProbes
from mailboxd.operate.setup.service import Service
from mailboxd.operate.setup.service_managers import service_of, service_of_all
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.gateway.transport import EXTRA, OWNER_TOOLS, QUESTIONS, pairing_file
from mailboxd.perform.agents.json_output import complaint
from mailboxd.perform.agents.openclaw import CONFIG_FILE, OpenClaw, Peer, child_environment, parse_config_file
from mailboxd.perform.agents.openclaw_versions import shown, why_too_old
from mailboxd.surfaces.mcp.registration import OpenClawConfig


def create_workspace(
    root: Path,
    agent: str,
    now: str,
    environ: Mapping[str, str],
    *,
    tools_port: int = 0,
    reviewers: Sequence[str] | None = None,
) -> list[str]:
    """Create what is missing in `agent`'s workspace at `root` and register it for this user; returns what was created.

    Existing files are kept, but for a strict configuration that was made without reviewers and is unchanged. A new
    configuration sets `mcp.port` to `tools_port`, and with `reviewers` the strict profile. Raises ConfigError if the
    workspace belongs to another agent or its configuration is invalid, WorldError.
    """
    ws = Workspace(root)
    made = Workspace.create(ws.root)
    if reviewers and lacks_reviewers(ws, agent):
        _replace_config(ws.config, _config_text(agent, config.load(ws.config).mcp.port, reviewers))
        made.append(f".mailboxd/config.yaml with the reviewers {', '.join(reviewers)}")
    elif _write_config(ws.config, _config_text(agent, tools_port, reviewers)):
        made.append(".mailboxd/config.yaml")
    require_same_agent(ws.config, config.load(ws.config).agent, agent)
    if not ws.database.exists():
        made.append(".mailboxd/mailboxd.db")
    open_workspace(ws.database, now).close()
    registry.register(ws.root, environ)
    return made


def _config_text(agent: str, tools_port: int, reviewers: Sequence[str] | None) -> str:
    given: dict[str, Any] = {"mcp.port": tools_port} if tools_port else {}
    given["caps"] = "hold"  # in workspaces that were made before there were caps they are only told
    if reviewers is not None:
        given["profile"] = "strict"
    if reviewers:
        given["gates.reviewers"] = list(reviewers)
    elif reviewers is not None:  # a gate that nobody can decide would stop every task
        given |= {f"gates.{gate.value}": False for gate in Gate}
    if reviewers and len(reviewers) < 3:  # one may be the author: then nobody else could review the other gate
        given["gates.same_reviewer"] = True
    return config.default_text(agent, given)


def lacks_reviewers(ws: Workspace, agent: str) -> bool:
    """Whether the configuration is the strict one that setup writes where nobody can be asked to review."""
    if not ws.config.is_file():
        return False
    port = config.load(ws.config).mcp.port
    written = ws.config.read_text(encoding="utf-8", errors="replace")
    return _without_caps(written) == _without_caps(_config_text(agent, port, ()))


def _without_caps(text: str) -> list[str]:
    """The lines of a configuration apart from those that setup asks a person about."""
    keys = ("limits:", *(f"{key.rpartition('.')[2]}:" for key in config.CAPS))
    return [line for line in text.splitlines() if not line.lstrip("# ").startswith(keys)]


def require_same_agent(path: Path, configured: str, agent: str) -> None:
    """Raises ConfigError unless the configuration at `path` is this agent's."""
    if configured != agent:
        raise ConfigError(
            f"{path}: this is the workspace of agent {configured}; "
            f"edit the file to make it {agent}'s, or choose another directory"
        )


def _replace_config(path: Path, text: str) -> None:
    with world_errors(f"write {path}"), directory(path.parent.parent, path.parent.name) as state:
        files.replace(state, path.name, text.encode(), lambda: True)


def _write_config(path: Path, text: str) -> bool:
    """Write the file atomically; False if there is one already."""
    with world_errors(f"write {path}"), directory(path.parent.parent, path.parent.name) as state:
        try:
            publish(state, path.name, text.encode())
        except FileExistsError:
            return False
    return True


# What OpenClaw leaves in its configuration when a plugin is removed, and removing that as well
#
# `openclaw plugins uninstall` leaves `plugins.entries.mailboxd.enabled: false`. An undo restores the section `plugins`:
# objects that did not exist before and contain nothing else are removed. Once the section exists, OpenClaw also shows
# the defaults of its own plugins in it and does not say which are in the file. So everything except mailboxd's entry is
# recorded right after the installation; if it is the same at the undo, nobody has changed it.

CONFIG_PATHS = ("plugins", "plugins.entries", f"plugins.entries.{integration.PLUGIN}")
"""The objects that an installation creates if missing, outermost first."""


def existing_objects(openclaw: OpenClawConfig) -> str:
    """JSON that says which of CONFIG_PATHS exist, for `remove_objects`. Raises UnavailableError."""
    section = openclaw.section("plugins")
    return json.dumps({"there": [path for path in CONFIG_PATHS if _at(section, path) is not None]})


def add_others(before: str, openclaw: OpenClawConfig) -> str:
    """`before` with the rest of the section, as shown right after the installation. Raises UnavailableError."""
    return json.dumps(json.loads(before) | {"others": others(openclaw.section("plugins"))})


def remove_objects(openclaw: OpenClawConfig, before: str) -> list[str]:
    """Remove what did not exist according to `before` and contains nothing else; returns its path.

    Raises UnavailableError.
    """
    target = outermost(openclaw.section("plugins"), json.loads(before))
    if not target:
        return []
    argv = openclaw.openclaw.argv("config", "unset", target)
    answer = ask(argv, openclaw.environment, integration.OPENCLAW_TIMEOUT)
    if answer.rc != 0:
        raise UnavailableError(f"`openclaw config unset {target}` failed: {complaint(answer)}")
    return [target]


def outermost(section: Mapping[str, Any] | None, before: Mapping[str, Any]) -> str:
    """The outermost path that did not exist before and contains only mailboxd's entry; empty if there is none."""
    created = [path for path in CONFIG_PATHS if path not in before["there"]]
    if not created or _at(section, CONFIG_PATHS[-1]) is None:
        return ""
    if others(section) == before.get("others"):
        return created[0]
    return created[-1] if created[-1] == CONFIG_PATHS[-1] else ""


def others(section: Mapping[str, Any] | None) -> dict[str, Any]:
    """The section without mailboxd's entry."""
    values = dict(section or {})
    entries = values.pop("entries", None)
    entries = dict(entries) if isinstance(entries, dict) else {}
    entries.pop(integration.PLUGIN, None)
    return values | {"entries": entries}


def _at(section: Mapping[str, Any] | None, path: str) -> Any:
    value: Any = section
    for name in path.split(".")[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


# The parts, all idempotent. They call the same functions as `mailboxd init`, `plugin`, `skill`, `mcp` and `service`.


class PartStatus(StrEnum):
    """The status of a part before anything is done."""

    DONE = "done"
    DUE = "due"
    LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True)
class PartState:
    """The status of a part, and its reason or what will be done."""

    status: PartStatus
    text: str


@dataclass(frozen=True, slots=True)
class Installation:
    """The OpenClaw to set up. `environ` is this process's environment, `environment` that of OpenClaw's commands."""

    openclaw: OpenClaw
    environ: Mapping[str, str]
    environment: Mapping[str, str]
    clock: Clock
    config_path: str
    """The path of OpenClaw's configuration; empty if unknown."""
    gateway: Callable[[], tuple[str, bool]]
    """Asks OpenClaw, once, for its gateway's URL and whether that approves devices without asking."""
    secret: Callable[[], str] | None = None
    """Gives the gateway's token; None without a terminal to ask for it."""

    @property
    def configuration(self) -> OpenClawConfig:
        return OpenClawConfig(self.openclaw, self.environment)


@dataclass(frozen=True, slots=True)
class Part(ABC):
    """One thing to set up for an agent, or for all of them (`agent` is empty)."""

    installation: Installation
    agent: str = ""
    root: Path = Path()
    """The agent's workspace."""
    kind: ClassVar[str]

    @property
    def ws(self) -> Workspace:
        return Workspace(self.root)

    @property
    def where(self) -> str:
        return str(self.root) if self.agent else ""

    @abstractmethod
    def state(self) -> PartState:
        """Its current state. Raises MailboxdError if that cannot be determined."""

    def before(self) -> str:
        """The current state, as its undo needs it."""
        return ""

    @abstractmethod
    def do(self) -> str:
        """Set it up; returns what was done. Raises MailboxdError."""

    def after(self, before: str) -> str:
        """`before`, completed with what is known only afterwards. Raises MailboxdError."""
        return before

    @abstractmethod
    def undo(self, before: str) -> str:
        """Undo `do`; returns what was removed. Raises MailboxdError."""


@dataclass(frozen=True, slots=True)
class WorkspacePart(Part):
    """The directories, configuration and database."""

    tools_port: int = 0
    reviewers: tuple[str, ...] | None = None
    """The reviewers of the strict profile; None = the standard profile."""
    for_reviews: str = ""
    """Why there are none, and what would give it some."""
    kind: ClassVar[str] = "workspace"

    def state(self) -> PartState:
        if not (self.ws.config.is_file() and self.ws.database.is_file()):
            text = "create mailbox/, tasks/ and .mailboxd/ with a commented configuration"
            if self.reviewers:
                text += f", profile strict, reviewed by {', '.join(self.reviewers)}"
            elif self.reviewers is not None:
                text += f", profile strict without its reviews: {self.for_reviews}"
            if before := found_before(self.ws):
                text += f"; {before}"
            return PartState(PartStatus.DUE, text)
        require_same_agent(self.ws.config, config.load(self.ws.config).agent, self.agent)
        if self.reviewers is not None and lacks_reviewers(self.ws, self.agent):
            if self.reviewers:
                return PartState(
                    PartStatus.DUE, f"name its reviewers in the configuration: {', '.join(self.reviewers)}"
                )
            return PartState(PartStatus.DONE, f"it has a mailbox and no reviews: {self.for_reviews}")
        return PartState(PartStatus.DONE, "it has a mailbox, a configuration and a database")

    def do(self) -> str:
        now = self.installation.clock.now()
        environ, port = self.installation.environ, self.tools_port
        made = create_workspace(self.root, self.agent, now, environ, tools_port=port, reviewers=self.reviewers)
        if not made:
            return "everything exists"
        restart = "; a daemon that runs has to be restarted" if any("reviewers" in one for one in made) else ""
        return f"created {', '.join(made)}{restart}"

    def undo(self, before: str) -> str:  # noqa: ARG002 - part of the protocol
        return "mailbox/, tasks/ and .mailboxd/ are kept: records are never removed"


@dataclass(frozen=True, slots=True)
class SkillPart(Part):
    """The agent's instructions about mailboxd."""

    kind: ClassVar[str] = "skill"

    def state(self) -> PartState:
        if not self.ws.config.is_file():
            return PartState(PartStatus.DUE, f"write the skill into {self.root}/skills/{integration.SKILL}")
        found = integration.skill_files(self.ws)
        changed = [name for name, status in found.items() if status is integration.FileStatus.CHANGED]
        if changed:
            text = f"{', '.join(changed)} was changed by a person; `mailboxd connect skill install --force` replaces it"
            return PartState(PartStatus.LEFT_OUT, text)
        missing = [name for name, status in found.items() if status is not integration.FileStatus.CURRENT]
        if missing:
            return PartState(PartStatus.DUE, f"write {', '.join(missing)} into {self.root}/skills/{integration.SKILL}")
        return PartState(PartStatus.DONE, "the skill is up to date")

    def do(self) -> str:
        written = integration.install_skill(self.ws, force=False)
        return f"wrote {', '.join(written)}" if written else "it is up to date"

    def undo(self, before: str) -> str:  # noqa: ARG002
        if not self.root.is_dir():
            return f"it went with its workspace {self.root}"
        removed, kept = integration.uninstall_skill(self.ws, force=False)
        stays = f"; kept because a person changed it: {', '.join(kept)}" if kept else ""
        return (f"removed {', '.join(removed)}" if removed else "it is already removed") + stays


@dataclass(frozen=True, slots=True)
class ToolsPart(Part):
    """Typed tools (MCP), registered in OpenClaw for this agent."""

    kind: ClassVar[str] = "tools"

    def state(self) -> PartState:
        if find_spec("mcp") is None:
            return PartState(PartStatus.LEFT_OUT, f"the extra is missing: run `{to_add('mcp')}`, then this again")
        if not self.ws.config.is_file():
            return PartState(PartStatus.DUE, "register typed tools for it in OpenClaw (MCP)")
        if not config.load(self.ws.config).mcp.port:
            text = f"`mcp.port` is not set in {self.ws.config}; set it to a free port and run this again"
            return PartState(PartStatus.LEFT_OUT, text)
        missing = self._register(dry_run=True)
        if missing:
            return PartState(PartStatus.DUE, f"register in OpenClaw: {'; '.join(missing)}")
        return PartState(PartStatus.DONE, "its typed tools are registered")

    def do(self) -> str:
        return "; ".join(self._register(dry_run=False)) or "they are registered"

    def undo(self, before: str) -> str:  # noqa: ARG002
        from mailboxd.surfaces.mcp import registration

        done = registration.unregister(self.ws, self.agent, self.installation.configuration, dry_run=False).done
        return "; ".join(done) or "they are already removed"

    def _register(self, *, dry_run: bool) -> list[str]:
        from mailboxd.surfaces.mcp import registration

        settings = config.load(self.ws.config)
        openclaw = self.installation.configuration
        return registration.register(
            self.ws, settings, openclaw, (), self.installation.clock.now(), dry_run=dry_run
        ).done


@dataclass(frozen=True, slots=True)
class GatewayPart(Part):
    """The workspace as a device of the gateway, so that its turns need no process each."""

    questions: bool = True
    """The device may ask open questions at OpenClaw's prompts, too."""
    kind: ClassVar[str] = "gateway"

    @property
    def path(self) -> Path:
        return pairing_file(self.root, self.installation.environ)

    @property
    def by_hand(self) -> str:
        return f"`mailboxd -w {self.root} connect gateway pair`"

    def state(self) -> PartState:
        if any(find_spec(name) is None for name in EXTRA):
            return PartState(PartStatus.LEFT_OUT, f"the extra is missing: run `{to_add('gateway')}`, then this again")
        from mailboxd.perform.agents.gateway import pairing

        paired = pairing.read(self.path)
        if paired is not None and paired.token is not None:
            more = (
                "" if QUESTIONS in paired.scopes else f"; to ask open questions there: {self.by_hand[:-1]} --questions`"
            )
            return PartState(PartStatus.DONE, f"it is paired with {paired.url}{more}")
        if self.ws.config.is_file() and config.load(self.ws.config).openclaw.transport == "cli":
            return PartState(PartStatus.LEFT_OUT, f"`openclaw.transport` is cli in {self.ws.config}")
        url, approves = self.installation.gateway()
        if not approves:
            text = f"the gateway at {url} wants a person to approve devices; run {self.by_hand}"
            return PartState(PartStatus.LEFT_OUT, text)
        if self.installation.secret is None:
            text = f"needs the gateway's token in OPENCLAW_GATEWAY_TOKEN; or run {self.by_hand}"
            return PartState(PartStatus.LEFT_OUT, text)
        text = f"pair it with {url}: turns cost far less, but do not get OpenClaw's owner-only tools ({OWNER_TOOLS})"
        if self.questions:
            text += f"; with {QUESTIONS}, so that open questions are prompts in its chats (--skip questions: without)"
        return PartState(PartStatus.DUE, text)

    def do(self) -> str:
        from mailboxd.perform.agents.gateway import client

        url, _ = self.installation.gateway()
        secret = self.installation.secret() if self.installation.secret is not None else ""
        if not secret:
            return f"no token was given, so it is not paired; {self.by_hand} does it later"
        scopes = (QUESTIONS,) if self.questions else ()
        found = client.pair(self.path, url, self.agent, secret, self.installation.clock, scopes)
        if isinstance(found, client.ApprovalPending):
            return f"run `openclaw devices approve {found.request}`, then {self.by_hand}"
        return f"paired with {url} as {found.pairing.name}"

    def undo(self, before: str) -> str:  # noqa: ARG002
        from mailboxd.perform.agents.gateway import client, pairing

        paired = pairing.read(self.path)
        if paired is None:
            return "it is already removed"
        client.unpair(self.path, paired, self.installation.openclaw, self.installation.environment)
        return f"{paired.url} no longer knows {paired.name}; its key is deleted"


@dataclass(frozen=True, slots=True)
class ServicePart(Part):
    """The daemon as a user service."""

    kind: ClassVar[str] = "service"

    @property
    def service(self) -> Service:
        return service_of(self.ws, self.installation.environ)

    @property
    def is_served_with_all(self) -> bool:
        """Whether the workspace has no unit of its own, and the one that serves all is installed."""
        return installed_for(self.ws.root, self.installation.environ) == ALL

    def state(self) -> PartState:
        if self.is_served_with_all:
            runs = self.ws.state.is_dir() and lock.holder(self.ws) is not None
            text = f"its daemon runs beside those of {ALL}" if runs else f"have {ALL} start its daemon"
            return PartState(PartStatus.DONE if runs else PartStatus.DUE, text)
        if missing := self.service.missing():
            text = f"{missing}; run `mailboxd -w {self.root} run` under another supervisor instead"
            return PartState(PartStatus.LEFT_OUT, text)
        state = self.service.state()
        if not state.problem:
            return PartState(PartStatus.DONE, f"{state.unit} is running, pid {state.pid}")
        pid = lock.holder(self.ws) if self.ws.state.is_dir() else None
        if pid is not None and not state.active:
            text = f"a daemon that was not started by the service (pid {pid or 'unknown'}) is running; stop it first"
            return PartState(PartStatus.LEFT_OUT, text)
        return PartState(PartStatus.DUE, f"write, enable and start {state.unit} ({state.path})")

    def do(self) -> str:
        if self.is_served_with_all:
            service_of_all(self.installation.environ).start()
            return f"{ALL} starts its daemon"
        self.service.install(start=True)
        return f"{self.service.name} is running, pid {self.service.state().pid}"

    def undo(self, before: str) -> str:  # noqa: ARG002
        removed = self.service.uninstall()
        return f"stopped; removed {', '.join(map(str, removed))}" if removed else "it is already removed"


@dataclass(frozen=True, slots=True)
class PluginPart(Part):
    """The plugin in OpenClaw's gateway, one for all agents."""

    kind: ClassVar[str] = "plugin"

    def state(self) -> PartState:
        state = self._state()
        if not state.problem:
            return PartState(PartStatus.DONE, f"plugin {state.version} is installed")
        if not state.installed and state.problem != integration.NOT_INSTALLED:
            return PartState(PartStatus.LEFT_OUT, f"OpenClaw does not report whether it is installed: {state.problem}")
        does = [step.does for step in integration.plugin_install_steps(self.installation.openclaw, state)]
        return PartState(PartStatus.DUE, f"OpenClaw's gateway: {', '.join(does)}")

    def before(self) -> str:
        return existing_objects(self.installation.configuration)

    def after(self, before: str) -> str:
        return add_others(before, self.installation.configuration)

    def do(self) -> str:
        openclaw, environment = self.installation.openclaw, self.installation.environment
        _, state = integration.install_plugin(openclaw, environment, self._state())
        if state.problem:
            raise UnavailableError(f"the plugin was installed but does not receive messages: {state.problem}")
        reloaded = integration.reload_plugin(openclaw, environment, self.installation.clock)
        return f"plugin {state.version} is installed; {reloaded}"

    def undo(self, before: str) -> str:
        openclaw, environment = self.installation.openclaw, self.installation.environment
        state = self._state()
        steps = integration.plugin_uninstall_steps(openclaw, state)
        integration.run_steps(steps, environment)
        removed = remove_objects(self.installation.configuration, before)
        done = ["removed from OpenClaw"] if steps else []
        return ", ".join([*done, *(f"{path} removed" for path in removed)]) or "it is already removed"

    def _state(self) -> integration.PluginState:
        return integration.plugin_state(self.installation.openclaw, self.installation.environment)


def state_of(part: Part) -> PartState:
    """The state of a part; one whose state cannot be determined is left out, with the reason."""
    try:
        return part.state()
    except MailboxdError as error:
        return PartState(PartStatus.LEFT_OUT, str(error))


# What `mailboxd setup` did, for the undo, in `$XDG_STATE_HOME/mailboxd/setup.json`: outside every workspace, so that a
# confined agent cannot forge it

NAME = "setup.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """A step that setup itself completed."""

    kind: str
    agent: str
    workspace: str
    at: str
    openclaw: str
    """The path of OpenClaw's configuration."""
    before: str = ""
    """The earlier state, as the undo needs it (`Part.before`)."""


@dataclass(frozen=True, slots=True)
class SetupRecord:
    """The record of this user's setup."""

    environ: Mapping[str, str]

    @property
    def path(self) -> Path:
        return self._state.folder / NAME

    def read(self) -> list[CompletedStep]:
        """The completed steps, oldest first. Raises ConfigError for a damaged or another user's file, WorldError."""
        raw = self._state.read(NAME)
        if raw is None:
            return []
        try:
            return [CompletedStep(**fields) for fields in json.loads(raw)["done"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.path} cannot be read ({error}); move it away; then nothing can be undone automatically"
            ) from error

    def write(self, done: Iterable[CompletedStep]) -> None:
        """Replace it. Raises WorldError."""
        raw = json.dumps({"version": _VERSION, "done": [asdict(one) for one in done]}, indent=2)
        with self._state.writing() as folder:
            self._state.write(folder, NAME, f"{raw}\n".encode())

    @property
    def _state(self) -> UserState:
        return UserState.of(self.environ)


# The plan

_FIRST_PORT = 8765
_PORTS = 1000
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """A part, and its state when the plan was made."""

    part: Part
    state: PartState

    @property
    def is_due(self) -> bool:
        return self.state.status is PartStatus.DUE


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a step: what was done, or why it failed or was not tried."""

    step: Step
    done: str = ""
    problem: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in order. `passed_over` has the agents that get none, with the reason."""

    installation: Installation
    version: str
    homes: Mapping[str, Path]
    passed_over: Mapping[str, str]
    steps: tuple[Step, ...]

    @property
    def due(self) -> list[Step]:
        return [step for step in self.steps if step.is_due]


def find_installation(environ: Mapping[str, str], clock: Clock) -> tuple[Installation, str]:
    """The OpenClaw in this environment, and its version. Raises UnavailableError with the remedy."""
    openclaw, environment = OpenClaw(("openclaw",)), child_environment(environ)
    probes = OpenClawProbes(openclaw, environment)
    if probes.program().path is None:
        raise UnavailableError("openclaw is not in PATH; run `npm install -g openclaw@latest`")
    release = probes.release()
    if release.version is None:
        raise UnavailableError(f"openclaw does not report its version: {release.answer}; try `openclaw --version`")
    if too_old := why_too_old(release.version):
        raise UnavailableError(f"{too_old}: `npm install -g openclaw@latest`")
    path = parse_config_file(ask(openclaw.argv(*CONFIG_FILE), environment, _SECONDS))
    return Installation(
        openclaw, environ, environment, clock, path, cache(partial(_gateway, openclaw, environment))
    ), shown(release.version)


def agent_in(root: Path, environ: Mapping[str, str]) -> str:
    """The id of the agent that OpenClaw runs in the directory `root`.

    Raises UnavailableError if OpenClaw cannot be asked, or runs none or several there, with the command that helps.
    """
    here = shlex.quote(str(root))
    probes = OpenClawProbes(OpenClaw(("openclaw",)), child_environment(environ))
    if probes.program().path is None:
        raise UnavailableError(
            f"openclaw is not in PATH, so it cannot say whose workspace {root} is: `mailboxd init {here} --agent ID`"
        )
    peers = probes.peers()
    found = [peer.id for peer in peers if PurePath(peer.workspace).is_absolute() and _is_at(peer.workspace, root)]
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(f"`mailboxd init {here} --agent {name}`" for name in sorted(found))
        raise UnavailableError(f"OpenClaw runs {len(found)} agents in {root}: {choices}")
    homes = "".join(f"\n  mailboxd init {shlex.quote(peer.workspace)}  # {peer.id}" for peer in peers)
    where = f"; its agents are in{homes}" if homes else "; `openclaw agents add` adds one"
    raise UnavailableError(f"OpenClaw runs no agent in {root}{where}")


def _is_at(workspace: str, root: Path) -> bool:
    return Path(workspace).resolve() == root


def _gateway(openclaw: OpenClaw, environment: Mapping[str, str]) -> tuple[str, bool]:
    from mailboxd.perform.agents.gateway.client import configured

    return configured(openclaw, environment)


def make_plan(
    installation: Installation,
    version: str,
    wanted: Collection[str],
    skip: Collection[str],
    progress: Callable[[str], None],
    *,
    strict: bool = False,
) -> Plan:
    """Plan what to do for the agents `wanted` (none means all), without the kinds in `skip`.

    `strict`: new workspaces get the strict profile, with the agents as reviewers that OpenClaw lets it ask.

    Asks OpenClaw and checks every part, which takes seconds each. Changes nothing. Raises UnavailableError.
    """
    progress("agents")
    peers = OpenClawProbes(installation.openclaw, installation.environment).peers()
    unknown = sorted(set(wanted) - {peer.id for peer in peers})
    if unknown:
        known = ", ".join(peer.id for peer in peers) or "none"
        raise UnavailableError(f"OpenClaw has no agent {', '.join(unknown)}; it has {known}")
    homes, passed_over = _homes([peer for peer in peers if not wanted or peer.id in wanted], peers)
    # with a port but without the extra the daemon would not start
    ports = _ports(homes.values()) if find_spec("mcp") and ToolsPart.kind not in skip else repeat(0)
    reviews = _reviews(installation, homes, peers) if strict and homes else {}
    parts: list[Part] = [
        WorkspacePart(installation, agent, root, next(ports), *reviews.get(agent, ())) for agent, root in homes.items()
    ]
    parts.append(PluginPart(installation))
    asks = "questions" not in skip
    for kind in (SkillPart, ToolsPart, partial(GatewayPart, questions=asks), ServicePart):
        parts += [kind(installation, agent, root) for agent, root in homes.items()]
    steps = []
    for part in parts if homes else ():
        if part.kind not in skip:
            progress(f"{part.kind} {part.agent}".strip())
            steps.append(Step(part, state_of(part)))
    return Plan(installation, version, homes, passed_over, tuple(steps))


def _reviews(
    installation: Installation, agents: Iterable[str], peers: Sequence[Peer]
) -> dict[str, tuple[tuple[str, ...], str]]:
    """The agents that OpenClaw lets each of `agents` ask for a review; without any, why, and what would help.

    Raises UnavailableError.
    """
    probes = OpenClawProbes(installation.openclaw, installation.environment)
    messaging, section = probes.tools(probes.release().version).messaging, probes.agents_section()
    found = {}
    for agent in agents:
        rules = section(agent)
        others = [peer.id for peer in peers if peer.id.lower() != agent.lower()]
        reachable = tuple(name for name in others if reaches(agent, name, rules, messaging))
        why = "there is no other agent; `openclaw agents add` adds one"
        if others:
            commands = " and ".join(f"`{one}`" for one in to_reach(agent, others, rules, messaging))
            why = f"OpenClaw lets {agent} ask nobody; to have its work reviewed, run {commands}"
        found[agent] = reachable, "" if reachable else f"{why}, then `mailboxd setup --strict` again"
    return found


def _homes(chosen: Sequence[Peer], peers: Sequence[Peer]) -> tuple[dict[str, Path], dict[str, str]]:
    """The workspace of each agent that can have a mailbox, and why the others cannot."""
    homes, passed_over = {}, {}
    for peer in chosen:
        root = PurePath(peer.workspace)
        sharing = [other.id for other in peers if other.id != peer.id and _overlap(root, PurePath(other.workspace))]
        if not root.is_absolute():
            passed_over[peer.id] = "OpenClaw reports no workspace for it"
        elif sharing:
            passed_over[peer.id] = (
                f"its workspace {root} overlaps with that of {', '.join(sharing)}; a mailbox needs "
                f"its own: openclaw config set agents.entries.{peer.id}.workspace DIRECTORY"
            )
        else:
            homes[peer.id] = Path(root).resolve()
    return homes, passed_over


def _overlap(one: PurePath, other: PurePath) -> bool:
    return other.is_absolute() and (one == other or one in other.parents or other in one.parents)


def _ports(roots: Collection[Path]) -> Iterator[int]:
    """Free ports of this machine that none of these workspaces has configured; then 0."""
    configured = set()
    for root in roots:
        try:
            configured.add(config.load(Workspace(root).config).mcp.port)
        except MailboxdError:
            continue  # none yet, or its part reports the problem
    for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if port not in configured and probe.connect_ex(("127.0.0.1", port)):
                yield port
    while True:
        yield 0


# OpenClaw writes its configuration as plain JSON, whoever has it changed

_STRING_OR_COMMENT = re.compile(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'|(?P<comment>//|/\*)""", re.DOTALL)


def has_comments(text: str) -> bool:
    """Whether a JSON5 text has a comment."""
    return any(found["comment"] for found in _STRING_OR_COMMENT.finditer(text))


def comments_warning(path: str) -> str:
    """A warning that a change of OpenClaw's configuration loses its comments; empty if it has none."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    if not has_comments(text):
        return ""
    copy = f"cp {shlex.quote(path)} {shlex.quote(f'{path}.commented')}"
    return f"OpenClaw removes the comments in {path} when its configuration is changed; to keep a copy: `{copy}`"


# Carrying out and undoing


def carry_out(plan: Plan, record: SetupRecord) -> Iterator[Result]:
    """Perform the due steps in order, recording each before it begins. A failure does not stop the others, except
    that without its workspace an agent's other parts are not tried.
    """
    failed: set[str] = set()
    for step in plan.due:
        part = step.part
        if part.agent in failed:
            yield Result(step, problem="not tried: its workspace could not be created")
            continue
        try:
            entry = _record_step(record, plan.installation, part)
            done = part.do()
            if (after := part.after(entry.before)) != entry.before:
                record.write([replace(entry, before=after) if one == entry else one for one in record.read()])
            yield Result(step, done)
        except MailboxdError as error:
            if part.kind == WorkspacePart.kind:
                failed.add(part.agent)
            yield Result(step, problem=str(error), exit_code=error.exit_code)


def _record_step(record: SetupRecord, installation: Installation, part: Part) -> CompletedStep:
    """Record the step and its earlier state, unless an earlier run has."""
    done = record.read()
    mine = (part.kind, part.where, installation.config_path)
    earlier = [one for one in done if (one.kind, one.workspace, one.openclaw) == mine]
    if earlier:
        return earlier[0]
    entry = CompletedStep(
        part.kind, part.agent, part.where, installation.clock.now(), installation.config_path, part.before()
    )
    record.write([*done, entry])
    return entry


def steps_to_undo(installation: Installation, record: SetupRecord) -> list[tuple[CompletedStep, Part]]:
    """What setup did for this OpenClaw, latest first, the order of the undo."""
    return [
        (one, _part(installation, one)) for one in reversed(record.read()) if one.openclaw == installation.config_path
    ]


def _part(installation: Installation, one: CompletedStep) -> Part:
    kinds: tuple[type[Part], ...] = (WorkspacePart, PluginPart, SkillPart, ToolsPart, GatewayPart, ServicePart)
    return next(kind for kind in kinds if kind.kind == one.kind)(installation, one.agent, Path(one.workspace))


def undo_steps(steps: Sequence[tuple[CompletedStep, Part]], record: SetupRecord) -> Iterator[Result]:
    """Undo each step. One that succeeds is removed from the record, one that fails stays for a retry."""
    for one, part in steps:
        step = Step(part, PartState(PartStatus.DUE, ""))
        try:
            result = Result(step, part.undo(one.before))
            record.write([other for other in record.read() if other != one])
        except MailboxdError as error:
            result = Result(step, problem=str(error), exit_code=error.exit_code)
        yield result
