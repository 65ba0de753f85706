"""Where the systemd units of this user are, and what the unit of a workspace is called."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

TEMPLATE = "mailboxd@.service"
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


def _escape(part: bytes, at: int) -> bytes:
    char = part[at : at + 1]
    return char if _PLAIN.fullmatch(char) else f"\\x{char[0]:02x}".encode("ascii")


def user_units(environ: Mapping[str, str]) -> Path:
    """The directory of this user's units."""
    home = environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if home.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return base / "systemd" / "user"
