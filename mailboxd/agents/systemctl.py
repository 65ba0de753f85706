"""What is asked of systemd's user manager. One command each; a machine without such a manager is said to have none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents.ask import ask
from mailboxd.agents.callfiles import Exit
from mailboxd.agents.jsonout import brief
from mailboxd.agents.process import NotStarted
from mailboxd.errors import UnavailableError

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
