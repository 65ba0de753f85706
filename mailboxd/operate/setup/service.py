"""Daemons as a service of their user: what systemd and launchd have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import Refused, UnavailableError
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import directory, replace, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import brief
from mailboxd.perform.agents.process import NotStarted

_PASSED_ON = (
    "OPENCLAW_HOME", "OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
)  # fmt: skip
"""Variables that select the OpenClaw and the directory of the keys. Never one that contains a secret."""


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a service. `problem` is empty if it is running and enabled."""

    unit: str
    path: str
    manager: bool
    """Whether this user has a service manager."""
    installed: bool
    enabled: bool
    active: bool
    pid: int | None
    status_text: str
    """The daemon's own status text, where the service manager keeps it."""
    problem: str


class Service(ABC):
    """A service of this user: the daemon of a workspace, or those of all."""

    __slots__ = ()
    environ: Mapping[str, str]

    @property
    @abstractmethod
    def name(self) -> str:
        """What the service manager calls it."""

    @property
    @abstractmethod
    def by_hand(self) -> str:
        """The command that does the same without a service manager."""

    @abstractmethod
    def require_free(self) -> None:
        """Raise Refused if a daemon that the service did not start is in its way."""

    @abstractmethod
    def missing(self) -> str:
        """Why this user has no service manager; empty if there is one."""

    @abstractmethod
    def content(self) -> dict[Path, bytes]:
        """The content of each of its files. Raises ConfigError."""

    @abstractmethod
    def state(self) -> ServiceState:
        """Its state. Raises UnavailableError if the manager does not report it, but not if there is no manager."""

    @abstractmethod
    def install(self, *, start: bool) -> list[Path]:
        """Write the files, enable the service, and with `start` start it; returns what was written.

        A running service is restarted only if its files changed. Raises UnavailableError without a manager.
        """

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until the daemon is ready. Raises UnavailableError."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it and wait for running turns. Raises UnavailableError."""

    @abstractmethod
    def uninstall(self) -> list[Path]:
        """Stop it and remove its files; returns them. Raises UnavailableError, WorldError."""

    @abstractmethod
    def show_log(self, lines: int, *, follow: bool) -> int:
        """Print what the daemon wrote; returns an exit status. Raises UnavailableError."""

    def advice(self) -> str:
        """What to know about an enabled service; empty if there is nothing."""
        return ""

    def is_installed(self) -> bool:
        """Whether the files exist with the current content."""
        return all(read(path) == raw for path, raw in self.content().items())

    def write(self) -> list[Path]:
        """Write the files that are missing or different; returns them. Raises ConfigError, WorldError."""
        content = self.content()
        written = [path for path, raw in content.items() if read(path) != raw]
        for path in written:
            write_file(path, content[path])
        return written

    def variables(self) -> dict[str, str]:
        """What its environment takes from this shell: the PATH, after the directory of this Python, and OpenClaw's."""
        folders = [str(Path(command()[0]).parent), *self.environ.get("PATH", "").split(os.pathsep)]
        path = os.pathsep.join(dict.fromkeys(folder for folder in folders if folder.startswith("/")))
        return {"PATH": path} | {name: self.environ[name] for name in _PASSED_ON if self.environ.get(name)}

    def require_manager(self) -> None:
        """Raise UnavailableError, with an alternative, if this user has no service manager."""
        if missing := self.missing():
            raise UnavailableError(
                f"{missing}. Run `{self.by_hand}` under another supervisor instead: the container's "
                "command, supervisord, tmux. `mailboxd connect service install --no-start` writes the files for later"
            )


class WorkspaceService(Service):
    """The service of one workspace."""

    __slots__ = ()
    ws: Workspace

    @property
    def by_hand(self) -> str:
        return f"mailboxd -w {self.ws.root} run"

    def require_free(self) -> None:
        pid = lock.holder(self.ws)
        if pid is None or self.state().pid is not None:
            return
        problem = f"a daemon that was not started by the service (pid {pid or 'unknown'}) holds {self.ws.root}"
        raise Refused("already-running", problem, f"Stop it first: kill {pid or 'PID'}, then run this again.")


def command(*words: str) -> tuple[str, ...]:
    """A command in this installation (pipx, uv, a virtual environment); without words, the daemon's."""
    return (sys.executable, "-P", "-m", "mailboxd.cli", *(words or ("run",)))


def write_file(path: Path, raw: bytes) -> None:
    """Write a file of a service manager, and the directories above it. Raises WorldError."""
    with world_errors(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with directory(path.parent) as fd:
            replace(fd, path.name, raw, lambda: True)


def read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def show(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program that prints a log; returns its exit status. Raises UnavailableError."""
    try:
        return subprocess.run(list(argv), env=dict(environ), stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as problem:
        raise UnavailableError(f"the log cannot be read: {NotStarted(argv[0], problem)}") from problem


def error_text(answer: Exit) -> str:
    """What a program that failed said, in a line."""
    text = (answer.stderr.strip() or answer.stdout.strip()).decode("utf-8", "replace")
    return brief(" ".join(text.split()))[:600] or f"exit status {answer.rc}"
