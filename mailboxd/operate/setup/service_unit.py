"""The systemd user services, of a workspace and of all: unit file, drop-in, and their installation.

    ~/.config/systemd/user/mailboxd@.service                            as packaged, for one workspace each
    ~/.config/systemd/user/mailboxd@<workspace>.service.d/mailboxd.conf program, PATH, OpenClaw
    ~/.config/systemd/user/mailboxd.service, mailboxd.service.d/        the same, for all workspaces together

A person's changes belong in another file of that directory (`systemctl --user edit`) and are kept.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import ConfigError, UnavailableError
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.package_data import package_data
from mailboxd.host.systemd_units import ALL, TEMPLATE, unit_of, user_units
from mailboxd.operate.setup.service import (
    Service,
    ServiceState,
    WorkspaceService,
    command,
    error_text,
    read,
    show,
)
from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.process import NotStarted

# The user's service manager, through systemctl

_SECONDS = 30.0
_START_SECONDS = 180.0
"""Longer than the unit's TimeoutStartSec (120) and TimeoutStopSec (90): `systemctl start` waits for the daemon."""
_ALIVE = {"initializing", "starting", "running", "degraded", "maintenance", "stopping"}
_PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "Result", "ExecMainStatus", "StatusText",
)  # fmt: skip
_PASSED = ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS", "HOME", "PATH", "USER", "LANG", "TERM")


@dataclass(frozen=True, slots=True)
class UserManager:
    """The service manager of this user."""

    environ: Mapping[str, str]

    def missing(self) -> str:
        """Why no service manager is available; empty if one is."""
        if shutil.which("systemctl", path=self.environ.get("PATH")) is None:
            return "there is no systemctl on this machine"
        try:
            answer = self._ask(("is-system-running",))
        except NotStarted as problem:
            return str(problem)
        word = answer.stdout.decode("utf-8", "replace").strip()
        return "" if word in _ALIVE else f"this user's service manager does not respond ({error_text(answer) or word})"

    def state(self, unit: str) -> dict[str, str]:
        """The properties of a unit, by systemd's names. Raises UnavailableError."""
        answer = self.run("show", unit, "--property", ",".join(_PROPERTIES))
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return {name: values.get(name, "") for name in _PROPERTIES}

    def run(self, *words: str) -> Exit:
        """Run `daemon-reload`, `start UNIT`, `enable UNIT` ... and wait for it. Raises UnavailableError."""
        try:
            answer = self._ask(words)
        except NotStarted as problem:
            raise UnavailableError(str(problem)) from problem
        if answer.rc != 0:
            raise UnavailableError(f"`systemctl --user {' '.join(words)}` failed: {error_text(answer)}")
        return answer

    def _ask(self, words: Sequence[str]) -> Exit:
        seconds = _START_SECONDS if words[0] in ("start", "stop", "restart") else _SECONDS
        return ask(("systemctl", "--user", *words), self.environment(), seconds)

    def environment(self) -> dict[str, str]:
        return {name: self.environ[name] for name in _PASSED if name in self.environ}


# The unit file and its drop-in

DROP_IN = "mailboxd.conf"
_HEAD = """\
# Written by `mailboxd connect service install`, which replaces it. Put changes into another file in this directory:
# systemctl --user edit {unit}
[Service]
"""
_SANDBOX = "This machine cannot set up the unit's sandbox (226): disable the failing directive in a drop-in"
_WRITABLE = ("OPENCLAW_HOME", "OPENCLAW_STATE_DIR")


class _SystemdService(Service):
    __slots__ = ()

    @property
    @abstractmethod
    def file(self) -> str:
        """Its packaged unit file."""

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The command of mailboxd that it runs."""

    @property
    @abstractmethod
    def logs(self) -> str:
        """The command that shows its log."""

    @property
    def folder(self) -> Path:
        return user_units(self.environ)

    @property
    def drop_in(self) -> Path:
        return self.folder / f"{self.name}.d" / DROP_IN

    @property
    def manager(self) -> UserManager:
        return UserManager(self.environ)

    def content(self) -> dict[Path, bytes]:
        return {self.folder / self.file: packaged_unit(self.file), self.drop_in: self._local().encode()}

    def missing(self) -> str:
        return self.manager.missing()

    def state(self) -> ServiceState:
        missing = self.missing()
        installed = read(self.drop_in) is not None and read(self.folder / self.file) is not None
        if missing:
            return ServiceState(self.name, str(self.drop_in), False, installed, False, False, None, "", missing)
        unit = self.manager.state(self.name)
        enabled, active = unit["UnitFileState"] == "enabled", unit["ActiveState"] == "active"
        if not installed:
            problem = "it is not installed"
        elif not self.is_installed():
            problem = "it was installed by another mailboxd, or for another program"
        elif not active:
            problem = f"it is {unit['ActiveState']} ({unit['SubState']}, {unit['Result'] or 'no result'})"
        else:
            problem = "" if enabled else "it is running but not enabled"
        pid = int(unit["MainPID"]) if unit["MainPID"].isdecimal() and unit["MainPID"] != "0" else None
        return ServiceState(
            self.name, str(self.drop_in), True, installed, enabled, active, pid, unit["StatusText"], problem
        )

    def install(self, *, start: bool) -> list[Path]:
        if start:
            self.require_manager()
            self.require_free()
        written = self.write()
        if not start and self.missing():
            return written
        self.manager.run("daemon-reload")
        self.manager.run("enable", self.name)
        if start:
            self._start("restart" if written else "start")
        return written

    def start(self) -> None:
        self._start("start")

    def stop(self) -> None:
        self.manager.run("stop", self.name)

    def _start(self, verb: str) -> None:
        """Start it and wait until it is ready. Raises UnavailableError with its exit status."""
        try:
            self.manager.run(verb, self.name)
        except UnavailableError as error:
            status = self.manager.state(self.name)["ExecMainStatus"]
            ended = _SANDBOX if status == "226" else f"Its exit status was {status}" if status not in ("", "0") else ""
            raise UnavailableError(f"{error}. {ended}; see `{self.logs}`") from error

    def uninstall(self) -> list[Path]:
        """Stop and disable it and remove its files, with a template if no workspace uses it."""
        removed = [path for path in (self.drop_in,) if read(path) is not None]
        manager = not self.missing()
        if manager and removed:
            self.stop()
            self.manager.run("disable", self.name)
        unit = self.folder / self.file
        with world_errors(f"remove {self.drop_in}"):
            self.drop_in.unlink(missing_ok=True)
            with suppress(OSError):  # it has a person's own drop-ins
                self.drop_in.parent.rmdir()
            others = list(self.folder.glob(f"{self.file.replace('@', '@*')}.d/{DROP_IN}"))
            if not others and read(unit) == packaged_unit(self.file):
                unit.unlink()
                removed.append(unit)
        if manager and removed:
            self.manager.run("daemon-reload")
        return removed

    def show_log(self, lines: int, *, follow: bool) -> int:
        argv = ["journalctl", "--user", "--unit", self.name, "--lines", str(lines), "--no-pager"]
        if follow:
            argv.append("--follow")
        return show(argv, self.manager.environment())

    def advice(self) -> str:
        """How the user's services keep running after logout, unless they do."""
        name = self.environ.get("USER") or self.environ.get("LOGNAME") or ""
        if name and "/" not in name and (Path("/var/lib/systemd/linger") / name).exists():
            return ""
        return "it stops when you log out; to prevent that: loginctl enable-linger"

    def _local(self) -> str:
        """The drop-in: what is specific to this machine."""
        passed = self.variables()
        lines = [variable(name, text) for name, text in passed.items()]
        lines += [
            f'ReadWritePaths="-{quoted(passed[name])}"' for name in _WRITABLE if passed.get(name, "").startswith("/")
        ]
        return _HEAD.format(unit=self.name.replace("\\", "\\\\")) + "\n".join(
            [*lines, "ExecStart=", exec_start(command(*self.words)), ""]
        )


@dataclass(frozen=True, slots=True)
class Unit(WorkspaceService, _SystemdService):
    """The service of one workspace under systemd."""

    ws: Workspace
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        return unit_of(self.ws.root)

    @property
    def file(self) -> str:
        return TEMPLATE

    @property
    def words(self) -> tuple[str, ...]:
        return ("run",)

    @property
    def logs(self) -> str:
        return f"mailboxd -w {self.ws.root} connect service logs"


@dataclass(frozen=True, slots=True)
class UnitOfAll(_SystemdService):
    """The service of all workspaces under systemd."""

    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        return ALL

    @property
    def file(self) -> str:
        return ALL

    @property
    def words(self) -> tuple[str, ...]:
        return ("run", "--all")

    @property
    def logs(self) -> str:
        return "mailboxd connect service logs --all"

    @property
    def by_hand(self) -> str:
        return "mailboxd run --all"

    def require_free(self) -> None:
        """It waits for a daemon that was started otherwise, and says so."""

    def start(self) -> None:
        self._start("reload-or-restart")


def packaged_unit(name: str = TEMPLATE) -> bytes:
    """A packaged unit file."""
    return (package_data("systemd") / "user" / name).read_bytes()


def exec_start(argv: Sequence[str]) -> str:
    """The line of a unit with its program. Raises ConfigError."""
    return "ExecStart=" + " ".join(f'"{quoted(word)}"'.replace("$", "$$") for word in argv)


def variable(name: str, text: str) -> str:
    """The line of a unit that sets a variable. Raises ConfigError."""
    return f'Environment="{quoted(f"{name}={text}")}"'


def quoted(text: str) -> str:
    """A value escaped for quotes in a unit file. Raises ConfigError if it is not printable."""
    if not text.isprintable():
        raise ConfigError(f"{ascii(text)[:200]} cannot be written into a unit file; use another environment")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
