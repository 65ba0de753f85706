"""What setup consists of. Each part says how it stands, does itself, and takes itself back; doing it twice is harmless.

They call the same functions as the verbs `init`, `plugin`, `skill`, `mcp` and `service`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol

from mailboxd import config
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.clock import Clock
from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.host.extras import to_add
from mailboxd.integration import plugin, skill
from mailboxd.mcp.openclaw_config import OpenClawConfig
from mailboxd.setup import home, leftovers
from mailboxd.setup.units import Unit
from mailboxd.workspace import lock
from mailboxd.workspace.layout import Workspace


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
            return Look(Standing.DUE, f"write the skill into {self.workspace}/skills/{skill.SKILL}")
        found = skill.look(self.ws)
        changed = [name for name, standing in found.items() if standing is skill.Standing.CHANGED]
        if changed:
            text = f"{', '.join(changed)} was changed by a person; `mailboxd skill install --force` replaces it"
            return Look(Standing.LEFT_OUT, text)
        missing = [name for name, standing in found.items() if standing is not skill.Standing.CURRENT]
        if missing:
            return Look(Standing.DUE, f"write {', '.join(missing)} into {self.workspace}/skills/{skill.SKILL}")
        return Look(Standing.DONE, "the skill is up to date")

    def do(self) -> str:
        written = skill.install(self.ws, force=False, dry_run=False)
        return f"wrote {', '.join(written)}" if written else "it was up to date"

    def undo(self, before: str) -> str:  # noqa: ARG002
        removed, kept = skill.uninstall(self.ws, force=False, dry_run=False)
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
        from mailboxd.mcp import enrolling

        openclaw = OpenClawConfig(self.setting.openclaw, self.setting.environment)
        return "; ".join(enrolling.unregister(self.ws, openclaw, dry_run=False).done) or "they were removed already"

    def _register(self, *, dry_run: bool) -> list[str]:
        from mailboxd.mcp import enrolling, registration

        settings = config.load(self.ws.config)
        openclaw = OpenClawConfig(self.setting.openclaw, self.setting.environment)
        callers, now = registration.wanted(settings), self.setting.clock.now()
        return enrolling.register(self.ws, settings, openclaw, callers, now, dry_run=dry_run).done


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
        if not state.installed and state.problem != plugin.NOT_INSTALLED:
            return Look(Standing.LEFT_OUT, f"OpenClaw does not say whether it is there: {state.problem}")
        does = [step.does for step in plugin.install_steps(self.setting.openclaw, state)]
        return Look(Standing.DUE, f"OpenClaw's gateway: {', '.join(does)}")

    def before(self) -> str:
        return leftovers.note(self.setting.openclaw, self.setting.environment)

    def after(self, before: str) -> str:
        return leftovers.completed(before, self.setting.openclaw, self.setting.environment)

    def do(self) -> str:
        openclaw, environment = self.setting.openclaw, self.setting.environment
        _, state = plugin.install(openclaw, environment, self._state())
        if state.problem:
            raise UnavailableError(f"the plugin was installed, but it takes no messages: {state.problem}")
        taken = plugin.have_taken(openclaw, environment, self.setting.clock)
        return f"plugin {state.version} is installed; {taken}"

    def undo(self, before: str) -> str:
        openclaw, environment = self.setting.openclaw, self.setting.environment
        state = self._state()
        steps = plugin.uninstall_steps(openclaw, state)
        plugin.perform(steps, environment)
        removed = leftovers.remove(openclaw, environment, before)
        done = ["removed from OpenClaw"] if steps else []
        return ", ".join([*done, *(f"{path} removed" for path in removed)]) or "it was removed already"

    def _state(self) -> plugin.PluginState:
        return plugin.plugin_state(self.setting.openclaw, self.setting.environment)


def looked(part: Part) -> Look:
    """How a part stands; one that cannot be looked at is left out, with the reason."""
    try:
        return part.look()
    except MailboxdError as error:
        return Look(Standing.LEFT_OUT, str(error))
