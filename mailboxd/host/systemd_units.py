"""Where the systemd units of mailboxd are, what they are called, and which command starts a daemon of one."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TEMPLATE = "mailboxd@.service"
ALL = "mailboxd.service"
"""The unit that serves all workspaces of a user."""
_PLAIN = re.compile(rb"[A-Za-z0-9:_.]")


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


def installed_for(workspace: Path, environ: Mapping[str, str]) -> str:
    """The unit that serves the workspace, or would if it ran: its own, else the one of all; empty without either."""
    folder, own = user_units(environ), unit_of(workspace)
    return own if (folder / f"{own}.d").is_dir() else ALL if (folder / ALL).is_file() else ""


def ending(pid: int | None) -> str:
    """The beginning of a command that first ends the process `pid` and waits for it; empty for None and 0."""
    return f"kill {pid}; while kill -0 {pid} 2>/dev/null; do sleep 1; done; " if pid else ""


@dataclass(frozen=True, slots=True)
class ServiceUnit:
    """A unit that runs a daemon, or would: of the user's service manager, or of the machine's."""

    name: str
    of_machine: bool = False

    def start(self, pid: int | None) -> str:
        """The command that starts its daemon, anew if it runs as `pid` (0: unknown)."""
        if self.name == ALL:  # not a restart, which would stop the other daemons too
            return f"{ending(pid)}systemctl --user reload-or-restart {ALL}"
        verb, name = "start" if pid is None else "restart", shlex.quote(self.name)
        return f"systemctl {verb} {name}" if self.of_machine else f"systemctl --user {verb} {name}"


def unit_running(pid: int, proc: Path = Path("/proc")) -> ServiceUnit | None:
    """The unit of mailboxd that the process belongs to; None if it was started otherwise, as in a terminal, whose
    processes belong to units of others.
    """
    with suppress(OSError):
        groups = (proc / str(pid) / "cgroup").read_text()
        if (found := _IN_GROUP.search(groups)) is not None:
            return ServiceUnit(found[2], of_machine="/user@" not in found[1])
    return None


_IN_GROUP = re.compile(r"^(.*)/(mailboxd[^/\n]*\.service)(?:/|$)", re.MULTILINE)
"""A line of a process's `cgroup`: the groups around that of the unit, and the unit's name."""


def _escape(part: bytes, at: int) -> bytes:
    char = part[at : at + 1]
    return char if _PLAIN.fullmatch(char) else f"\\x{char[0]:02x}".encode("ascii")


def user_units(environ: Mapping[str, str]) -> Path:
    """The directory of this user's units."""
    home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if home.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return base / "systemd" / "user"
