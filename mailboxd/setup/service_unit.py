"""The service of a workspace: its unit file, what of this machine goes into a drop-in, and putting them in place.

    ~/.config/systemd/user/mailboxd@.service                            as it comes with mailboxd, for all workspaces
    ~/.config/systemd/user/mailboxd@<workspace>.service.d/mailboxd.conf which program, PATH, which OpenClaw

What a person changes goes into another file of that directory (`systemctl --user edit`), and stays.
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

# ---------------------------------------------------------------------------------------------------------------------
# What is asked of systemd's user manager. One command each; a machine without such a manager is said to have none.

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
    """The path as the name of an instance, as `systemd-escape --path` writes it."""
    parts = [part for part in os.fsencode(path).split(b"/") if part]
    if not parts:
        return "-"
    name = b"-".join(b"".join(_escape(part, n) for n in range(len(part))) for part in parts)
    return (name if name[:1] != b"." else b"\\x2e" + name[1:]).decode("ascii")


def unit_of(workspace: Path) -> str:
    """The service of a workspace."""
    return TEMPLATE.replace("@", f"@{escaped(workspace)}")


@dataclass(frozen=True, slots=True)
class UserManager:
    """The service manager of the user in whose `environ` we run."""

    environ: Mapping[str, str]

    def missing(self) -> str:
        """Why there is none that can be asked; empty if there is one."""
        if shutil.which("systemctl", path=self.environ.get("PATH")) is None:
            return "there is no systemctl on this machine"
        try:
            answer = self._ask(("is-system-running",))
        except NotStarted as problem:
            return str(problem)
        word = answer.stdout.decode("utf-8", "replace").strip()
        return "" if word in _ALIVE else f"no service manager of this user answers ({_said(answer) or word})"

    def state(self, unit: str) -> dict[str, str]:
        """What systemd says of a unit, by the names that it uses. Raises UnavailableError."""
        answer = self._run("show", unit, "--property", ",".join(_PROPERTIES))
        lines = answer.stdout.decode("utf-8", "replace").splitlines()
        said = dict(line.split("=", 1) for line in lines if "=" in line)
        return {name: said.get(name, "") for name in _PROPERTIES}

    def reload(self) -> None:
        """Have it read the unit files again. Raises UnavailableError."""
        self._run("daemon-reload")

    def order(self, verb: str, unit: str) -> None:
        """`start`, `stop`, `restart`, `enable`, `disable` ..., and wait for it. Raises UnavailableError."""
        self._run(verb, unit)

    def show_log(self, unit: str, lines: int, *, follow: bool) -> int:
        """The journal of the unit, on our own output; the exit status of journalctl. Raises UnavailableError."""
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
            raise UnavailableError(f"`systemctl --user {' '.join(words)}` failed: {_said(answer)}")
        return answer

    def _ask(self, words: Sequence[str]) -> Exit:
        seconds = _START_SECONDS if words[0] in ("start", "stop", "restart") else _SECONDS
        return ask(("systemctl", "--user", *words), self._environment(), seconds)

    def _environment(self) -> dict[str, str]:
        return {name: self.environ[name] for name in _PASSED if name in self.environ}


def _escape(part: bytes, at: int) -> bytes:
    char = part[at : at + 1]
    return char if _PLAIN.fullmatch(char) else f"\\x{char[0]:02x}".encode("ascii")


def _said(answer: Exit) -> str:
    text = (answer.stderr.strip() or answer.stdout.strip()).decode("utf-8", "replace")
    return brief(" ".join(text.split()))[:600] or f"exit status {answer.rc}"


# ---------------------------------------------------------------------------------------------------------------------
# The service of a workspace: its unit file, what of this machine goes into a drop-in, and putting them in place.

DROP_IN = "mailboxd.conf"
_HEAD = """\
# Written by `mailboxd service install`, and written anew by it. What you change goes into another file beside this one:
# systemctl --user edit {unit}
[Service]
"""
_SAID = (
    "OPENCLAW_HOME", "OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
)  # fmt: skip
"""Variables that say which OpenClaw is meant, and where keys lie. Never one that holds a secret."""
_SANDBOX = "This machine cannot set up the unit's sandbox (226): take the directive that fails out in a drop-in"
_WRITTEN = ("OPENCLAW_HOME", "OPENCLAW_STATE_DIR")


@dataclass(frozen=True, slots=True)
class ServiceState:
    """How the service of a workspace stands. `problem` is empty if it runs and starts by itself, else what is not."""

    unit: str
    path: str
    manager: bool
    """Whether there is a service manager of this user."""
    installed: bool
    enabled: bool
    active: bool
    pid: int | None
    said: str
    """What the daemon tells systemd of itself."""
    problem: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The service of one workspace, for the user in whose `environ` we run."""

    ws: Workspace
    environ: Mapping[str, str]

    @property
    def name(self) -> str:
        return unit_of(self.ws.root)

    @property
    def folder(self) -> Path:
        """Where this user's units lie."""
        said = self.environ.get("XDG_CONFIG_HOME", "")
        base = Path(said) if said.startswith("/") else Path(self.environ.get("HOME") or Path.home()) / ".config"
        return base / "systemd" / "user"

    @property
    def drop_in(self) -> Path:
        return self.folder / f"{self.name}.d" / DROP_IN

    @property
    def manager(self) -> UserManager:
        return UserManager(self.environ)

    def belongs(self) -> dict[Path, bytes]:
        """What has to stand in which file. Raises ConfigError."""
        return {self.folder / TEMPLATE: packaged_unit(), self.drop_in: self._local().encode()}

    def is_installed(self) -> bool:
        """Whether the files are there, and as they have to be."""
        return all(_read(path) == raw for path, raw in self.belongs().items())

    def state(self) -> ServiceState:
        """How it stands. Raises UnavailableError when systemd does not say; not when there is none."""
        missing = self.manager.missing()
        there = _read(self.drop_in) is not None and _read(self.folder / TEMPLATE) is not None
        if missing:
            return ServiceState(self.name, str(self.drop_in), False, there, False, False, None, "", missing)
        said = self.manager.state(self.name)
        enabled, active = said["UnitFileState"] == "enabled", said["ActiveState"] == "active"
        if not there:
            problem = "it is not installed"
        elif not self.is_installed():
            problem = "it was installed by another mailboxd, or for another program"
        elif not active:
            problem = f"it is {said['ActiveState']} ({said['SubState']}, {said['Result'] or 'no result'})"
        else:
            problem = "" if enabled else "it runs, and is not started by itself"
        pid = int(said["MainPID"]) if said["MainPID"].isdecimal() and said["MainPID"] != "0" else None
        return ServiceState(
            self.name, str(self.drop_in), True, there, enabled, active, pid, said["StatusText"], problem
        )

    def write(self) -> list[Path]:
        """Put the files in place; those that were missing or different. Raises ConfigError, WorldError."""
        written = [path for path, raw in self.belongs().items() if _read(path) != raw]
        belongs = self.belongs()
        for path in written:
            with world_errors(f"write {path}"):
                path.parent.mkdir(parents=True, exist_ok=True)
                with directory(path.parent) as fd:
                    replace(fd, path.name, belongs[path], lambda: True)
        return written

    def install(self, *, start: bool) -> list[Path]:
        """Files in place, enabled, and with `start` running. Raises UnavailableError where there is no manager.

        A running one is started again only if its files were changed.
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
        self.manager.order("enable", self.name)
        if start:
            self.begin("restart" if written else "start")
        return written

    def begin(self, verb: str = "start") -> None:
        """Start it and wait until the daemon is ready. Raises UnavailableError, saying how it ended."""
        try:
            self.manager.order(verb, self.name)
        except UnavailableError as error:
            status = self.manager.state(self.name)["ExecMainStatus"]
            ended = _SANDBOX if status == "226" else f"It ended with {status}" if status not in ("", "0") else ""
            raise UnavailableError(f"{error}. {ended}; see `mailboxd -w {self.ws.root} service logs`") from error

    def uninstall(self) -> list[Path]:
        """Stopped, disabled, and its files removed; the template too once no workspace uses it. Raises WorldError."""
        removed = [path for path in (self.drop_in,) if _read(path) is not None]
        manager = not self.manager.missing()
        if manager and removed:
            self.manager.order("stop", self.name)
            self.manager.order("disable", self.name)
        template = self.folder / TEMPLATE
        with world_errors(f"remove {self.drop_in}"):
            self.drop_in.unlink(missing_ok=True)
            with suppress(OSError):  # a person's own drop-ins are in it
                self.drop_in.parent.rmdir()
            others = list(self.folder.glob(f"mailboxd@*.service.d/{DROP_IN}"))
            if not others and _read(template) == packaged_unit():
                template.unlink()
                removed.append(template)
        if manager and removed:
            self.manager.reload()
        return removed

    def require_free(self) -> None:
        """Raises Refused when a daemon that somebody started by hand holds the workspace."""
        pid = lock.holder(self.ws)
        if pid is None or self.manager.state(self.name)["ActiveState"] in ("active", "activating", "reloading"):
            return
        problem = f"a daemon that was started otherwise (pid {pid or 'unknown'}) holds {self.ws.root}"
        raise Refused("already-running", problem, f"Stop it first: kill {pid or 'PID'}, then run this again.")

    # -------------------------------------------------------------- inside

    def _local(self) -> str:
        """The drop-in: what differs from machine to machine."""
        said = {name: self.environ[name] for name in _SAID if self.environ.get(name)}
        lines = [f'Environment="{_quoted(f"{name}={text}")}"' for name, text in {"PATH": self._path(), **said}.items()]
        lines += [f'ReadWritePaths="-{_quoted(said[name])}"' for name in _WRITTEN if said.get(name, "").startswith("/")]
        program = " ".join(f'"{_quoted(word)}"'.replace("$", "$$") for word in command())
        return _HEAD.format(unit=self.name.replace("\\", "\\\\")) + "\n".join(
            [*lines, "ExecStart=", f"ExecStart={program}", ""]
        )

    def _path(self) -> str:
        """Where programs are looked for: as the shell does from which this is called, ours first."""
        folders = [str(Path(command()[0]).parent), *self.environ.get("PATH", "").split(os.pathsep)]
        return os.pathsep.join(dict.fromkeys(folder for folder in folders if folder.startswith("/")))


def command() -> tuple[str, ...]:
    """The daemon as this installation runs it, wherever it lies (pipx, uv, a virtual environment)."""
    return (sys.executable, "-P", "-m", "mailboxd.cli", "run")


def packaged_unit() -> bytes:
    """The unit file that comes with mailboxd: inside the package in a wheel, beside it in a source checkout."""
    package = Path(str(files("mailboxd")))
    inside = package / "systemd"
    return ((inside if inside.is_dir() else package.parent / "systemd") / "user" / TEMPLATE).read_bytes()


def no_manager(ws: Workspace, why: str) -> UnavailableError:
    """What to do where no service manager can be asked, as in most containers."""
    return UnavailableError(
        f"{why}. Run `mailboxd -w {ws.root} run` under what starts programs here instead: the container's own command, "
        "a supervisor, tmux. `mailboxd service install --no-start` writes the unit file for later"
    )


def lingers(environ: Mapping[str, str]) -> bool:
    """Whether the user's services go on while nobody is logged in (`loginctl enable-linger`)."""
    name = environ.get("USER") or environ.get("LOGNAME") or ""
    return "/" not in name and name != "" and (Path("/var/lib/systemd/linger") / name).exists()


def _quoted(text: str) -> str:
    """A value between quotes in a unit file. Raises ConfigError for one that no line can hold."""
    if not text.isprintable():
        raise ConfigError(f"{ascii(text)[:200]} cannot stand in a unit file; run it with another environment")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def require_manager(unit: Unit) -> None:
    """Raises UnavailableError, with what to do instead, where there is no service manager of this user."""
    if missing := unit.manager.missing():
        raise no_manager(unit.ws, missing)
