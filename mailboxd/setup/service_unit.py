"""The systemd user service of a workspace: its unit file, its drop-in, and their installation.

    ~/.config/systemd/user/mailboxd@.service                            as packaged, for all workspaces
    ~/.config/systemd/user/mailboxd@<workspace>.service.d/mailboxd.conf program, PATH, OpenClaw

A person's changes belong in another file of that directory (`systemctl --user edit`) and are kept.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.json_output import brief
from mailboxd.agents.process import NotStarted, ask
from mailboxd.errors import ConfigError, Refused, UnavailableError
from mailboxd.mailbox import lock
from mailboxd.mailbox.files import directory, replace, world_errors
from mailboxd.mailbox.layout import Workspace

# The user's service manager, through systemctl

TEMPLATE = "mailboxd@.service"
_SECONDS = 30.0
_START_SECONDS = 180.0
"""Longer than the unit's TimeoutStartSec (120) and TimeoutStopSec (90): `systemctl start` waits for the daemon."""
_ALIVE = {"initializing", "starting", "running", "degraded", "maintenance", "stopping"}
_PLAIN = re.compile(rb"[A-Za-z0-9:_.]")
_PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "Result", "ExecMainStatus", "StatusText",
)  # fmt: skip
_PASSED = ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS", "HOME", "PATH", "USER", "LANG", "TERM")


def escaped(path: Path) -> str:
    """The path as an instance name, like `systemd-escape --path`."""
    parts = [part for part in os.fsencode(path).split(b"/") if part]
    if not parts:
        return "-"
    name = b"-".join(b"".join(_escape(part, n) for n in range(len(part))) for part in parts)
    return (name if name[:1] != b"." else b"\\x2e" + name[1:]).decode("ascii")


def unit_of(workspace: Path) -> str:
    """The unit name of a workspace's service."""
    return TEMPLATE.replace("@", f"@{escaped(workspace)}")


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
        return "" if word in _ALIVE else f"this user's service manager does not respond ({_error_text(answer) or word})"

    def state(self, unit: str) -> dict[str, str]:
        """The properties of a unit, by systemd's names. Raises UnavailableError."""
        answer = self._run("show", unit, "--property", ",".join(_PROPERTIES))
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return {name: values.get(name, "") for name in _PROPERTIES}

    def reload(self) -> None:
        """Reload the unit files. Raises UnavailableError."""
        self._run("daemon-reload")

    def run(self, verb: str, unit: str) -> None:
        """Run `start`, `stop`, `restart`, `enable`, `disable` ... and wait for it. Raises UnavailableError."""
        self._run(verb, unit)

    def show_log(self, unit: str, lines: int, *, follow: bool) -> int:
        """Print the unit's journal; returns journalctl's exit status. Raises UnavailableError."""
        argv = ["journalctl", "--user", "--unit", unit, "--lines", str(lines), "--no-pager"]
        if follow:
            argv.append("--follow")
        try:
            return subprocess.run(argv, env=self._environment(), stdin=subprocess.DEVNULL, check=False).returncode
        except OSError as problem:
            raise UnavailableError(f"the journal cannot be read: {NotStarted(argv[0], problem)}") from problem

    def _run(self, *words: str) -> Exit:
        try:
            answer = self._ask(words)
        except NotStarted as problem:
            raise UnavailableError(str(problem)) from problem
        if answer.rc != 0:
            raise UnavailableError(f"`systemctl --user {' '.join(words)}` failed: {_error_text(answer)}")
        return answer

    def _ask(self, words: Sequence[str]) -> Exit:
        seconds = _START_SECONDS if words[0] in ("start", "stop", "restart") else _SECONDS
        return ask(("systemctl", "--user", *words), self._environment(), seconds)

    def _environment(self) -> dict[str, str]:
        return {name: self.environ[name] for name in _PASSED if name in self.environ}


def _escape(part: bytes, at: int) -> bytes:
    char = part[at : at + 1]
    return char if _PLAIN.fullmatch(char) else f"\\x{char[0]:02x}".encode("ascii")


def _error_text(answer: Exit) -> str:
    text = (answer.stderr.strip() or answer.stdout.strip()).decode("utf-8", "replace")
    return brief(" ".join(text.split()))[:600] or f"exit status {answer.rc}"


# The unit file and its drop-in

DROP_IN = "mailboxd.conf"
_HEAD = """\
# Written by `mailboxd connect service install`, which replaces it. Put changes into another file in this directory:
# systemctl --user edit {unit}
[Service]
"""
_PASSED_ON = (
    "OPENCLAW_HOME", "OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
)  # fmt: skip
"""Variables that select the OpenClaw and the directory of the keys. Never one that contains a secret."""
_SANDBOX = "This machine cannot set up the unit's sandbox (226): disable the failing directive in a drop-in"
_WRITABLE = ("OPENCLAW_HOME", "OPENCLAW_STATE_DIR")


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a workspace's service. `problem` is empty if it is running and enabled."""

    unit: str
    path: str
    manager: bool
    """Whether this user has a service manager."""
    installed: bool
    enabled: bool
    active: bool
    pid: int | None
    status_text: str
    """The daemon's own status text."""
    problem: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The service of one workspace for this user."""

    ws: Workspace
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        return unit_of(self.ws.root)

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
        """The content of each file. Raises ConfigError."""
        return {self.folder / TEMPLATE: packaged_unit(), self.drop_in: self._local().encode()}

    def is_installed(self) -> bool:
        """Whether the files exist with the current content."""
        return all(_read(path) == raw for path, raw in self.content().items())

    def state(self) -> ServiceState:
        """Its state. Raises UnavailableError if systemd does not report it, but not if there is no systemd."""
        missing = self.manager.missing()
        installed = _read(self.drop_in) is not None and _read(self.folder / TEMPLATE) is not None
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

    def write(self) -> list[Path]:
        """Write the files that are missing or different; returns them. Raises ConfigError, WorldError."""
        written = [path for path, raw in self.content().items() if _read(path) != raw]
        content = self.content()
        for path in written:
            with world_errors(f"write {path}"):
                path.parent.mkdir(parents=True, exist_ok=True)
                with directory(path.parent) as fd:
                    replace(fd, path.name, content[path], lambda: True)
        return written

    def install(self, *, start: bool) -> list[Path]:
        """Write the files, enable the service, and with `start` start it. Raises UnavailableError without a manager.

        A running service is restarted only if its files changed.
        """
        missing = self.manager.missing()
        if missing and start:
            raise no_manager(self.ws, missing)
        if start and not missing:
            self.require_free()
        written = self.write()
        if missing:
            return written
        self.manager.reload()
        self.manager.run("enable", self.name)
        if start:
            self.start("restart" if written else "start")
        return written

    def start(self, verb: str = "start") -> None:
        """Start it and wait until the daemon is ready. Raises UnavailableError with its exit status."""
        try:
            self.manager.run(verb, self.name)
        except UnavailableError as error:
            status = self.manager.state(self.name)["ExecMainStatus"]
            ended = _SANDBOX if status == "226" else f"Its exit status was {status}" if status not in ("", "0") else ""
            raise UnavailableError(
                f"{error}. {ended}; see `mailboxd -w {self.ws.root} connect service logs`"
            ) from error

    def uninstall(self) -> list[Path]:
        """Stop and disable it and remove its files, with the template if no workspace uses it. Raises WorldError."""
        removed = [path for path in (self.drop_in,) if _read(path) is not None]
        manager = not self.manager.missing()
        if manager and removed:
            self.manager.run("stop", self.name)
            self.manager.run("disable", self.name)
        template = self.folder / TEMPLATE
        with world_errors(f"remove {self.drop_in}"):
            self.drop_in.unlink(missing_ok=True)
            with suppress(OSError):  # it has a person's own drop-ins
                self.drop_in.parent.rmdir()
            others = list(self.folder.glob(f"mailboxd@*.service.d/{DROP_IN}"))
            if not others and _read(template) == packaged_unit():
                template.unlink()
                removed.append(template)
        if manager and removed:
            self.manager.reload()
        return removed

    def require_free(self) -> None:
        """Raise Refused if a daemon that the service did not start holds the workspace."""
        pid = lock.holder(self.ws)
        if pid is None or self.manager.state(self.name)["ActiveState"] in ("active", "activating", "reloading"):
            return
        problem = f"a daemon that was not started by the service (pid {pid or 'unknown'}) holds {self.ws.root}"
        raise Refused("already-running", problem, f"Stop it first: kill {pid or 'PID'}, then run this again.")

    def _local(self) -> str:
        """The drop-in: what is specific to this machine."""
        passed = {name: self.environ[name] for name in _PASSED_ON if self.environ.get(name)}
        lines = [f'Environment="{quoted(f"{name}={text}")}"' for name, text in {"PATH": self._path(), **passed}.items()]
        lines += [
            f'ReadWritePaths="-{quoted(passed[name])}"' for name in _WRITABLE if passed.get(name, "").startswith("/")
        ]
        program = " ".join(f'"{quoted(word)}"'.replace("$", "$$") for word in command())
        return _HEAD.format(unit=self.name.replace("\\", "\\\\")) + "\n".join(
            [*lines, "ExecStart=", f"ExecStart={program}", ""]
        )

    def _path(self) -> str:
        """The PATH of this shell, after the directory of this Python."""
        folders = [str(Path(command()[0]).parent), *self.environ.get("PATH", "").split(os.pathsep)]
        return os.pathsep.join(dict.fromkeys(folder for folder in folders if folder.startswith("/")))


def user_units(environ: Mapping[str, str]) -> Path:
    """The directory of this user's units."""
    home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if home.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return base / "systemd" / "user"


def command(*words: str) -> tuple[str, ...]:
    """A command in this installation (pipx, uv, a virtual environment); without words, the daemon's."""
    return (sys.executable, "-P", "-m", "mailboxd.cli", *(words or ("run",)))


def packaged_unit(name: str = TEMPLATE) -> bytes:
    """A packaged unit file: inside the package in a wheel, next to it in a source checkout."""
    package = Path(str(files("mailboxd")))
    inside = package / "systemd"
    return ((inside if inside.is_dir() else package.parent / "systemd") / "user" / name).read_bytes()


def no_manager(ws: Workspace, why: str) -> UnavailableError:
    """What to do without a service manager, as in most containers."""
    return UnavailableError(
        f"{why}. Run `mailboxd -w {ws.root} run` under another supervisor instead: the container's "
        "command, supervisord, tmux. `mailboxd connect service install --no-start` writes the unit file for later"
    )


def lingers(environ: Mapping[str, str]) -> bool:
    """Whether the user's services keep running after logout (`loginctl enable-linger`)."""
    name = environ.get("USER") or environ.get("LOGNAME") or ""
    return "/" not in name and name != "" and (Path("/var/lib/systemd/linger") / name).exists()


def quoted(text: str) -> str:
    """A value escaped for quotes in a unit file. Raises ConfigError if it is not printable."""
    if not text.isprintable():
        raise ConfigError(f"{ascii(text)[:200]} cannot be written into a unit file; use another environment")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def require_manager(unit: Unit) -> None:
    """Raise UnavailableError, with an alternative, if this user has no service manager."""
    if missing := unit.manager.missing():
        raise no_manager(unit.ws, missing)
