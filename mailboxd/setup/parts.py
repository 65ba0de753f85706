"""The parts of setup. Each reports its state, sets itself up and undoes that; all of it is idempotent.

They call the same functions as the commands `init`, `plugin`, `skill`, `mcp` and `service`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

from mailboxd import config, integration
from mailboxd.agents.json_output import cli_error, parse_object
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.process import ask
from mailboxd.clock import Clock
from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.host.pip_extras import to_add
from mailboxd.mailbox import lock
from mailboxd.mailbox.layout import Workspace
from mailboxd.mcp.registration import OpenClawConfig
from mailboxd.setup import workspace as home
from mailboxd.setup.service_unit import Unit

# ---------------------------------------------------------------------------------------------------------------------
# What OpenClaw keeps in its configuration of a plugin that was removed, and taking that out as well.
#
# `openclaw plugins uninstall` leaves `plugins.entries.mailboxd.enabled: false`, by which it remembers that it was
# removed. An undo leaves the section `plugins` as it was: what was not there before, and holds nothing else now, goes.
# Once the section is there OpenClaw shows the defaults of its own plugins in it, and not which of that stands in the
# file. So what it shows beside ours is noted right after the installation: if it is the same at the undo, nobody has
# written anything since.

_UNSET = "Config path is valid but unset"
PATHS = ("plugins", "plugins.entries", f"plugins.entries.{integration.PLUGIN}")
"""What an installation makes where it is missing, outermost first."""


def note(openclaw: OpenClaw, environment: Mapping[str, str]) -> str:
    """Which of these objects are there before the installation, for `remove`. Raises UnavailableError."""
    section = _section(openclaw, environment)
    return json.dumps({"there": [path for path in PATHS if _at(section, path) is not None]})


def completed(before: str, openclaw: OpenClaw, environment: Mapping[str, str]) -> str:
    """The note, with what is shown beside ours right after the installation. Raises UnavailableError."""
    return json.dumps(json.loads(before) | {"others": others(_section(openclaw, environment))})


def remove(openclaw: OpenClaw, environment: Mapping[str, str], before: str) -> list[str]:
    """Take out what was not there according to `before` and is nobody else's; the paths of that.

    Raises UnavailableError.
    """
    target = outermost(_section(openclaw, environment), json.loads(before))
    if not target:
        return []
    answer = ask((*openclaw.command, "config", "unset", target), environment, integration.OPENCLAW_TIMEOUT)
    if answer.rc != 0:
        raise UnavailableError(f"`openclaw config unset {target}` failed: {cli_error(answer) or answer.rc}")
    return [target]


def outermost(section: Mapping[str, Any] | None, noted: Mapping[str, Any]) -> str:
    """The outermost path that was not there before and holds nothing but ours now; empty if there is none."""
    made = [path for path in PATHS if path not in noted["there"]]
    if not made or _at(section, PATHS[-1]) is None:
        return ""
    return made[0] if others(section) == noted.get("others") else PATHS[-1] if PATHS[-1] in made else ""


def others(section: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the section holds beside our entry."""
    said = dict(section or {})
    entries = said.get("entries")
    rest = (
        {name: value for name, value in entries.items() if name != integration.PLUGIN}
        if isinstance(entries, dict)
        else {}
    )
    return {name: value for name, value in said.items() if name != "entries"} | {"entries": rest}


def _section(openclaw: OpenClaw, environment: Mapping[str, str]) -> Mapping[str, Any] | None:
    answer = ask(openclaw.config_get_argv("plugins"), environment, integration.OPENCLAW_TIMEOUT)
    if (cli_error(answer) or "").startswith(_UNSET):
        return None
    section = parse_object(answer)
    if answer.rc != 0 or section is None:
        raise UnavailableError(f"OpenClaw's configuration cannot be read: {cli_error(answer) or answer.rc}")
    return section


def _at(section: Mapping[str, Any] | None, path: str) -> Any:
    value: Any = section
    for name in path.split(".")[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


# The parts


class Standing(StrEnum):
    """How a part stands before anything is done."""

    DONE = "done"
    DUE = "due"
    LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True)
class Look:
    """How it stands, and in words why, or what will be done."""

    standing: Standing
    says: str


@dataclass(frozen=True, slots=True)
class Setting:
    """Beside which OpenClaw it is done. `environ` is our environment, `environment` that of OpenClaw's commands."""

    openclaw: OpenClaw
    environ: Mapping[str, str]
    environment: Mapping[str, str]
    clock: Clock
    config_path: str
    """Where OpenClaw's configuration lies; empty if it does not say."""


class Part(Protocol):
    """One thing that is set up. `workspace` is None for what all agents share."""

    kind: ClassVar[str]

    @property
    def agent(self) -> str: ...

    @property
    def workspace(self) -> Path | None: ...

    def look(self) -> Look:
        """How it stands. Raises MailboxdError when that cannot be found out."""
        ...

    def before(self) -> str:
        """What its undo has to know of how it is now."""
        ...

    def do(self) -> str:
        """Do it; what was done. Raises MailboxdError."""
        ...

    def after(self, before: str) -> str:
        """What `before` said, with what can only be known once it is done. Raises MailboxdError."""
        ...

    def undo(self, before: str) -> str:
        """Take back what `do` did; what was removed. Raises MailboxdError."""
        ...


@dataclass(frozen=True, slots=True)
class _OfWorkspace:
    setting: Setting
    agent: str
    workspace: Path

    @property
    def ws(self) -> Workspace:
        return Workspace(self.workspace)

    def before(self) -> str:
        return ""

    def after(self, before: str) -> str:
        return before


@dataclass(frozen=True, slots=True)
class Home(_OfWorkspace):
    """The directories, the configuration, the database."""

    tools_port: int = 0
    kind: ClassVar[str] = "workspace"

    def look(self) -> Look:
        if not (self.ws.config.is_file() and self.ws.database.is_file()):
            return Look(Standing.DUE, "make mailbox/, tasks/ and .mailboxd/ with a commented configuration")
        home.require_same_agent(self.ws.config, config.load(self.ws.config).agent, self.agent)
        return Look(Standing.DONE, "it has mailbox, configuration and database")

    def do(self) -> str:
        now = self.setting.clock.now()
        made = home.make(self.workspace, self.agent, now, self.setting.environ, tools_port=self.tools_port)
        return f"made {', '.join(made)}" if made else "all of it was there"

    def undo(self, before: str) -> str:  # noqa: ARG002 - what every part has
        return "mailbox/, tasks/ and .mailboxd/ stay: nothing that was sent or done is ever removed"


@dataclass(frozen=True, slots=True)
class Skill(_OfWorkspace):
    """What the agent is told about mailboxd."""

    kind: ClassVar[str] = "skill"

    def look(self) -> Look:
        if not self.ws.config.is_file():
            return Look(Standing.DUE, f"write the skill into {self.workspace}/skills/{integration.SKILL}")
        found = integration.skill_files(self.ws)
        changed = [name for name, standing in found.items() if standing is integration.FileStatus.CHANGED]
        if changed:
            text = f"{', '.join(changed)} was changed by a person; `mailboxd skill install --force` replaces it"
            return Look(Standing.LEFT_OUT, text)
        missing = [name for name, standing in found.items() if standing is not integration.FileStatus.CURRENT]
        if missing:
            return Look(Standing.DUE, f"write {', '.join(missing)} into {self.workspace}/skills/{integration.SKILL}")
        return Look(Standing.DONE, "the skill is up to date")

    def do(self) -> str:
        written = integration.install_skill(self.ws, force=False, dry_run=False)
        return f"wrote {', '.join(written)}" if written else "it was up to date"

    def undo(self, before: str) -> str:  # noqa: ARG002
        removed, kept = integration.uninstall_skill(self.ws, force=False, dry_run=False)
        stays = f"; kept, because a person changed it: {', '.join(kept)}" if kept else ""
        return (f"removed {', '.join(removed)}" if removed else "it was removed already") + stays


@dataclass(frozen=True, slots=True)
class Tools(_OfWorkspace):
    """The typed tools, registered in OpenClaw for this agent."""

    kind: ClassVar[str] = "tools"

    def look(self) -> Look:
        if find_spec("mcp") is None:
            return Look(Standing.LEFT_OUT, f"the extra is missing: {to_add('mcp')}, then run this again")
        if not self.ws.config.is_file():
            return Look(Standing.DUE, "register typed tools for it in OpenClaw (MCP)")
        if not config.load(self.ws.config).mcp.port:
            text = f"`mcp.port` is not set in {self.ws.config}; set it to a free port, then run this again"
            return Look(Standing.LEFT_OUT, text)
        missing = self._register(dry_run=True)
        if missing:
            return Look(Standing.DUE, f"register in OpenClaw: {'; '.join(missing)}")
        return Look(Standing.DONE, "its typed tools are registered")

    def do(self) -> str:
        return "; ".join(self._register(dry_run=False)) or "they were registered"

    def undo(self, before: str) -> str:  # noqa: ARG002
        from mailboxd.mcp import registration

        openclaw = OpenClawConfig(self.setting.openclaw, self.setting.environment)
        return "; ".join(registration.unregister(self.ws, openclaw, dry_run=False).done) or "they were removed already"

    def _register(self, *, dry_run: bool) -> list[str]:
        from mailboxd.mcp import registration

        settings = config.load(self.ws.config)
        openclaw = OpenClawConfig(self.setting.openclaw, self.setting.environment)
        callers, now = registration.wanted(settings), self.setting.clock.now()
        return registration.register(self.ws, settings, openclaw, callers, now, dry_run=dry_run).done


@dataclass(frozen=True, slots=True)
class Service(_OfWorkspace):
    """The daemon, as a service of this user."""

    kind: ClassVar[str] = "service"

    @property
    def unit(self) -> Unit:
        return Unit(self.ws, self.setting.environ)

    def look(self) -> Look:
        if missing := self.unit.manager.missing():
            text = f"{missing}; run `mailboxd -w {self.workspace} run` under what starts programs here instead"
            return Look(Standing.LEFT_OUT, text)
        state = self.unit.state()
        if not state.problem:
            return Look(Standing.DONE, f"{state.unit} runs, pid {state.pid}")
        pid = lock.holder(self.ws) if self.ws.state.is_dir() else None
        if pid is not None and not state.active:
            text = (
                f"a daemon that was started otherwise (pid {pid or 'unknown'}) runs there; stop it, then run this again"
            )
            return Look(Standing.LEFT_OUT, text)
        return Look(Standing.DUE, f"write, enable and start {state.unit} ({state.path})")

    def do(self) -> str:
        self.unit.install(start=True)
        return f"{self.unit.name} runs, pid {self.unit.state().pid}"

    def undo(self, before: str) -> str:  # noqa: ARG002
        removed = self.unit.uninstall()
        return f"stopped; removed {', '.join(map(str, removed))}" if removed else "it was removed already"


@dataclass(frozen=True, slots=True)
class Plugin:
    """The plugin in OpenClaw's gateway: one for all agents."""

    setting: Setting
    agent: str = ""
    workspace: Path | None = field(default=None)
    kind: ClassVar[str] = "plugin"

    def look(self) -> Look:
        state = self._state()
        if not state.problem:
            return Look(Standing.DONE, f"plugin {state.version} is installed")
        if not state.installed and state.problem != integration.NOT_INSTALLED:
            return Look(Standing.LEFT_OUT, f"OpenClaw does not say whether it is there: {state.problem}")
        does = [step.does for step in integration.plugin_install_steps(self.setting.openclaw, state)]
        return Look(Standing.DUE, f"OpenClaw's gateway: {', '.join(does)}")

    def before(self) -> str:
        return note(self.setting.openclaw, self.setting.environment)

    def after(self, before: str) -> str:
        return completed(before, self.setting.openclaw, self.setting.environment)

    def do(self) -> str:
        openclaw, environment = self.setting.openclaw, self.setting.environment
        _, state = integration.install_plugin(openclaw, environment, self._state())
        if state.problem:
            raise UnavailableError(f"the plugin was installed, but it takes no messages: {state.problem}")
        taken = integration.reload_plugin(openclaw, environment, self.setting.clock)
        return f"plugin {state.version} is installed; {taken}"

    def undo(self, before: str) -> str:
        openclaw, environment = self.setting.openclaw, self.setting.environment
        state = self._state()
        steps = integration.plugin_uninstall_steps(openclaw, state)
        integration.run_steps(steps, environment)
        removed = remove(openclaw, environment, before)
        done = ["removed from OpenClaw"] if steps else []
        return ", ".join([*done, *(f"{path} removed" for path in removed)]) or "it was removed already"

    def _state(self) -> integration.PluginState:
        return integration.plugin_state(self.setting.openclaw, self.setting.environment)


def looked(part: Part) -> Look:
    """How a part stands; one that cannot be looked at is left out, with the reason."""
    try:
        return part.look()
    except MailboxdError as error:
        return Look(Standing.LEFT_OUT, str(error))
