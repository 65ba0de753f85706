"""What lies in the workspace, and where the workspace lies. Nothing is written but a file that has no name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mailboxd.core.times import to_epoch
from mailboxd.doctor.facts import Daemon, Directory, Filesystem, Leftovers, Place
from mailboxd.workspace import lock
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_temporary, printable

_MARKS = (b"OPENCLAW_SHELL=exec", b"OPENCLAW_SUBAGENT_EXEC=1")
_ABANDONED = 600.0
"""Seconds after which nobody is writing under a temporary name any more."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)")


def place(ws: Workspace) -> Place:
    """The directories, each as it is. Raises nothing."""
    paths = (ws.root, ws.inbox, ws.outbox, ws.archive, ws.rejected, ws.tasks, ws.state, ws.turns)
    return Place(str(ws.root), os.geteuid(), tuple(_directory(path, ws.root) for path in paths))


def filesystem(ws: Workspace, now: str) -> Filesystem:
    """Kind, room and clock of the file system of the workspace. Raises OSError."""
    kind, mount = mounted(ws.root, Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))
    room = os.statvfs(ws.root)
    free_files = room.f_favail if room.f_files else None
    return Filesystem(kind, mount, room.f_bavail * room.f_frsize, free_files, _skew(ws, now))


def mounted(path: Path, mountinfo: str) -> tuple[str, str]:
    """Type and mount point of the file system that `path` (without links) is on; ("unknown", "/") if none fits."""
    found, longest = ("unknown", "/"), 0
    for line in mountinfo.splitlines():
        fields, dash, rest = line.partition(" - ")
        words = fields.split(" ")
        if not dash or len(words) < 5:
            continue
        point = _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), words[4])
        depth = len(Path(point).parts)
        if depth >= longest and path.is_relative_to(point):  # of two at the same place the later covers the earlier
            found, longest = (rest.split(" ")[0], point), depth
    return found


def daemon(ws: Workspace) -> Daemon:
    """Who holds the lock, and where it was started. Raises WorldError."""
    pid = lock.holder(ws)
    if not pid:
        return Daemon(pid)
    unit = _UNIT.search(_text(pid, "cgroup").decode("utf-8", "replace"))
    environment = _text(pid, "environ").split(b"\0")
    return Daemon(pid, unit[1] if unit else "", any(mark in environment for mark in _MARKS))


def leftovers(ws: Workspace, now: str) -> Leftovers:
    """What lies about. Raises OSError."""
    rejected = sum(1 for name in _names(ws.rejected) if not name.endswith(".reason.json"))
    abandoned = tuple(sorted(printable(name) for name in _temporary(ws.inbox, to_epoch(now) - _ABANDONED)))
    return Leftovers(rejected, sum(1 for _ in _names(ws.inbox)), abandoned)


def _temporary(directory: Path, before: float) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if is_temporary(entry.name) and entry.stat(follow_symlinks=False).st_mtime < before:
                yield entry.name


def _names(directory: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        yield from (entry.name for entry in entries if not is_temporary(entry.name))


def _directory(path: Path, root: Path) -> Directory:
    shown = str(path.relative_to(root))
    try:
        status = path.lstat()
    except FileNotFoundError:
        return Directory(shown, "missing")
    except OSError as error:
        return Directory(shown, f"out of reach ({error.strerror})")
    if not stat.S_ISDIR(status.st_mode):
        return Directory(shown, "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a file")
    writable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    return Directory(shown, "directory", status.st_uid, stat.S_IMODE(status.st_mode), writable, status.st_dev)


def _skew(ws: Workspace, now: str) -> float | None:
    try:
        fd = os.open(ws.state, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return os.fstat(fd).st_mtime - to_epoch(now)
    finally:
        os.close(fd)


def _text(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
