"""The user services of systemd: the daemon of a workspace, and this host's part in the hub.

    ~/.config/systemd/user/mailboxd@.service                            as packaged, for all workspaces
    ~/.config/systemd/user/mailboxd@<workspace>.service.d/mailboxd.conf program, PATH, OpenClaw
    ~/.config/systemd/user/mailboxd-hub.service                         the hub's process
    ~/.config/systemd/user/mailboxd-hub-server.service                  its server, on the host that founded it

A person's changes belong in another file of the drop-in directory (`systemctl --user edit`) and are kept.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
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


def unit_of(workspace: Path) -> str:
    """The unit name of a workspace's service, escaped like `systemd-escape --path`."""
    parts = [part for part in os.fsencode(workspace).split(b"/") if part]
    name = b"-".join(b"".join(_escape(part, n) for n in range(len(part))) for part in parts) or b"-"
    name = b"\\x2e" + name[1:] if name[:1] == b"." else name
    return TEMPLATE.replace("@", f"@{name.decode('ascii')}")


def _escape(part: bytes, at: int) -> bytes:
    char = part[at : at + 1]
    return char if _PLAIN.fullmatch(char) else f"\\x{char[0]:02x}".encode("ascii")


@dataclass(frozen=True, slots=True)
class UserManager:
    """The service manager of this user, through systemctl."""

    environ: Mapping[str, str]

    def missing(self) -> str:
        """Why no service manager is available; empty if one is."""
        if shutil.which("systemctl", path=self.environ.get("PATH")) is None:
            return "there is no systemctl on this machine"
        try:
            answer = self._ask("is-system-running")
        except NotStarted as problem:
            return str(problem)
        word = answer.stdout.decode("utf-8", "replace").strip()
        return "" if word in _ALIVE else f"this user's service manager does not respond ({_error_text(answer) or word})"

    def state(self, unit: str) -> dict[str, str]:
        """The properties of a unit, by systemd's names. Raises UnavailableError."""
        lines = self.run("show", unit, "--property", ",".join(_PROPERTIES)).decode("utf-8", "replace").splitlines()
        values = dict(line.split("=", 1) for line in lines if "=" in line)
        return {name: values.get(name, "") for name in _PROPERTIES}

    def run(self, *words: str) -> bytes:
        """Run `start`, `stop`, `enable`, `daemon-reload` ..., wait for it and return its output.

        Raises UnavailableError.
        """
        try:
            answer = self._ask(*words)
        except NotStarted as problem:
            raise UnavailableError(str(problem)) from problem
        if answer.rc != 0:
            raise UnavailableError(f"`systemctl --user {' '.join(words)}` failed: {_error_text(answer)}")
        return answer.stdout

    def environment(self) -> dict[str, str]:
        return {name: self.environ[name] for name in _PASSED if name in self.environ}

    def _ask(self, *words: str) -> Exit:
        seconds = _START_SECONDS if words[0] in ("start", "stop", "restart") else _SECONDS
        return ask(("systemctl", "--user", *words), self.environment(), seconds)


def _error_text(answer: Exit) -> str:
    """The error of a failed program, in one line."""
    text = (answer.stderr.strip() or answer.stdout.strip()).decode("utf-8", "replace")
    return brief(" ".join(text.split()))[:600] or f"exit status {answer.rc}"


# The daemon of a workspace

DROP_IN = "mailboxd.conf"
_HEAD = """\
# Written by `mailboxd connect service install`, which replaces it. Put changes into another file in this directory:
# systemctl --user edit {unit}
[Service]
"""
_SANDBOX = "This machine cannot set up the unit's sandbox (226): disable the failing directive in a drop-in"
_WRITABLE = ("OPENCLAW_HOME", "OPENCLAW_STATE_DIR")
_PASSED_ON = (*_WRITABLE, "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
"""Variables that select the OpenClaw and the directory of the keys. Never one that contains a secret."""


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
class Service:
    """The service of one workspace for this user."""

    ws: Workspace
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        return unit_of(self.ws.root)

    @property
    def folder(self) -> Path:
        return _user_units(self.environ)

    @property
    def drop_in(self) -> Path:
        return self.folder / f"{self.name}.d" / DROP_IN

    @property
    def manager(self) -> UserManager:
        return UserManager(self.environ)

    def missing(self) -> str:
        """Why this user has no service manager; empty if there is one."""
        return self.manager.missing()

    def require_manager(self) -> None:
        """Raise UnavailableError, with an alternative, if this user has no service manager."""
        if missing := self.missing():
            raise UnavailableError(
                f"{missing}. Run `mailboxd -w {self.ws.root} run` under another supervisor instead: the container's "
                "command, supervisord, tmux. `mailboxd connect service install --no-start` writes the files for later"
            )

    def require_free(self) -> None:
        """Raise Refused if a daemon that the service did not start holds the workspace."""
        pid = lock.holder(self.ws)
        if pid is None or self.state().pid is not None:
            return
        problem = f"a daemon that was not started by the service (pid {pid or 'unknown'}) holds {self.ws.root}"
        raise Refused("already-running", problem, f"Stop it first: kill {pid or 'PID'}, then run this again.")

    def content(self) -> dict[Path, bytes]:
        """The content of each of its files. Raises ConfigError."""
        return {self.folder / TEMPLATE: packaged_unit(), self.drop_in: self._local().encode()}

    def write(self) -> list[Path]:
        """Write the files that are missing or different; returns them. Raises ConfigError, WorldError."""
        content = self.content()
        written = [path for path, raw in content.items() if _read(path) != raw]
        for path in written:
            _write(path, content[path])
        return written

    def state(self) -> ServiceState:
        """Its state. Raises UnavailableError if systemd does not report it, but not if there is none."""
        missing, found = self.missing(), {path: _read(path) for path in (self.folder / TEMPLATE, self.drop_in)}
        installed = None not in found.values()
        if missing:
            return ServiceState(self.name, str(self.drop_in), False, installed, False, False, None, "", missing)
        unit = self.manager.state(self.name)
        enabled, active = unit["UnitFileState"] == "enabled", unit["ActiveState"] == "active"
        if not installed:
            problem = "it is not installed"
        elif found != self.content():
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
        """Write the files, enable the service, and with `start` start it; returns what was written.

        A running service is restarted only if its files changed. Raises UnavailableError without a manager.
        """
        if start:
            self.require_manager()
            self.require_free()
        written = self.write()
        if not start and self.missing():
            return written
        self.manager.run("daemon-reload")
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

    def stop(self) -> None:
        """Stop it and wait for running turns. Raises UnavailableError."""
        self.manager.run("stop", self.name)

    def uninstall(self) -> list[Path]:
        """Stop it and remove its files, with the template if no workspace uses it; returns them.

        Raises UnavailableError, WorldError.
        """
        removed = [path for path in (self.drop_in,) if _read(path) is not None]
        manager = not self.missing()
        if manager and removed:
            self.stop()
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
            self.manager.run("daemon-reload")
        return removed

    def show_log(self, lines: int, *, follow: bool) -> int:
        """Print what the daemon wrote; returns an exit status. Raises UnavailableError."""
        argv = ["journalctl", "--user", "--unit", self.name, "--lines", str(lines), "--no-pager"]
        argv += ["--follow"] if follow else []
        try:
            return subprocess.run(
                argv, env=self.manager.environment(), stdin=subprocess.DEVNULL, check=False
            ).returncode
        except OSError as problem:
            raise UnavailableError(f"the log cannot be read: {NotStarted(argv[0], problem)}") from problem

    def advice(self) -> str:
        """How the user's services keep running after logout; empty if they do."""
        name = self.environ.get("USER") or self.environ.get("LOGNAME") or ""
        if name and "/" not in name and (Path("/var/lib/systemd/linger") / name).exists():
            return ""
        return "it stops when you log out; to prevent that: loginctl enable-linger"

    def _local(self) -> str:
        """The drop-in: what is specific to this machine. PATH: the directory of this Python, then this shell's."""
        folders = [str(Path(sys.executable).parent), *self.environ.get("PATH", "").split(os.pathsep)]
        path = os.pathsep.join(dict.fromkeys(folder for folder in folders if folder.startswith("/")))
        passed = {"PATH": path} | {name: self.environ[name] for name in _PASSED_ON if self.environ.get(name)}
        lines = [f'Environment="{_quoted(f"{name}={text}")}"' for name, text in passed.items()]
        lines += [
            f'ReadWritePaths="-{_quoted(passed[name])}"' for name in _WRITABLE if passed.get(name, "").startswith("/")
        ]
        lines += ["ExecStart=", f"ExecStart={_command_line(*_command('run'))}", ""]
        return _HEAD.format(unit=self.name.replace("\\", "\\\\")) + "\n".join(lines)


# The hub

HUB, SERVER = "mailboxd-hub.service", "mailboxd-hub-server.service"


@dataclass(frozen=True, slots=True)
class HubServices:
    """The hub's services of one user. `server` is the server's configuration, if it runs on this host."""

    environ: Mapping[str, str]
    server: Path | None = None

    @property
    def folder(self) -> Path:
        return _user_units(self.environ)

    def install(self) -> list[Path]:
        """Write the units, enable and start the services. Raises UnavailableError without systemd or nats-server."""
        manager = UserManager(self.environ)
        if missing := manager.missing():
            raise UnavailableError(f"{missing}. Run the commands under another supervisor instead")
        contents = {self.folder / name: text.encode() for name, text in self.contents().items()}
        for path, raw in contents.items():
            _write(path, raw)
        manager.run("daemon-reload")
        for path in contents:
            manager.run("enable", path.name)
            manager.run("restart", path.name)
        return list(contents)

    def contents(self) -> dict[str, str]:
        """The units by their names, in the order of their start. Raises UnavailableError."""
        texts = {}
        if self.server is not None:
            program = shutil.which("nats-server", path=self.environ.get("PATH"))
            if program is None:
                raise UnavailableError("there is no nats-server on the PATH: install it (https://nats.io/download)")
            texts[SERVER] = self._unit(SERVER, program, "-c", str(self.server))
        texts[HUB] = self._unit(HUB, *_command("hub", "run"))
        return texts

    def uninstall(self) -> list[Path]:
        """Stop and disable the services and remove their units. Raises UnavailableError, WorldError."""
        manager = UserManager(self.environ)
        found = [path for path in (self.folder / HUB, self.folder / SERVER) if path.exists()]
        if found and not manager.missing():
            for path in found:
                manager.run("disable", path.name)
                manager.run("stop", path.name)
        for path in found:
            with world_errors(f"remove {path}"):
                path.unlink(missing_ok=True)
        return found

    def _unit(self, name: str, *argv: str) -> str:
        """The packaged unit with the program, and the state directory, of this installation."""
        lines = [f"ExecStart={_command_line(*argv)}"]
        if state := self.environ.get("XDG_STATE_HOME"):
            lines.append(f'Environment="{_quoted(f"XDG_STATE_HOME={state}")}"')
        kept = packaged_unit(name).decode().splitlines()
        at = next(number for number, line in enumerate(kept) if line.startswith("ExecStart="))
        return "\n".join([*kept[:at], *lines, *kept[at + 1 :], ""])


# Files


def _command(*words: str) -> tuple[str, ...]:
    """A command in this installation (pipx, uv, a virtual environment)."""
    return (sys.executable, "-P", "-m", "mailboxd.cli", *words)


def _command_line(*argv: str) -> str:
    return " ".join(f'"{_quoted(word)}"'.replace("$", "$$") for word in argv)


def _quoted(text: str) -> str:
    """A value escaped for quotes in a unit file. Raises ConfigError if it is not printable."""
    if not text.isprintable():
        raise ConfigError(f"{ascii(text)[:200]} cannot be written into a unit file; use another environment")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _user_units(environ: Mapping[str, str]) -> Path:
    """The directory of this user's units."""
    home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if home.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return base / "systemd" / "user"


def packaged_unit(name: str = TEMPLATE) -> bytes:
    """A packaged unit file: inside the package in a wheel, next to it in a source checkout."""
    package = Path(str(files("mailboxd")))
    inside = package / "systemd"
    return ((inside if inside.is_dir() else package.parent / "systemd") / "user" / name).read_bytes()


def _write(path: Path, raw: bytes) -> None:
    """Write a unit file, and the directories above it. Raises WorldError."""
    with world_errors(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with directory(path.parent) as fd:
            replace(fd, path.name, raw, lambda: True)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
