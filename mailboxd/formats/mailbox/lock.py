"""One daemon per workspace.

The lock is a `flock` on the workspace directory itself: a lock file is bypassed by deleting it. It holds through links,
bind mounts and containers, and the kernel releases it however the holder dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from mailboxd.errors import LockedError
from mailboxd.formats.mailbox.files import directory, read_file, replace, world_errors
from mailboxd.formats.mailbox.layout import STATE, Workspace
from mailboxd.host.flock import try_lock

_PROBES = 1000
"""Attempts while another process only runs `holder`, which takes microseconds."""

_PAUSE, _PATIENCE = 0.05, 100
"""Seconds between two attempts to lock after a dead daemon, and their number."""


@dataclass(slots=True)
class DaemonLock:
    """The held lock, until `release`, the end of the `with` block, or of the process."""

    fd: int

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def acquire(ws: Workspace, started_at: str) -> DaemonLock:
    """Lock the workspace for this process and note it in `.mailboxd/daemon.json`.

    Raises LockedError, naming the holder; WorldError if the directory cannot be opened or written.
    """
    with world_errors(f"lock the workspace {ws.root}"):
        fd = os.open(ws.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if not _lock(fd) and not _lock_after_dead(ws, fd):
                raise LockedError(_held_by(ws))
            _sign(ws, started_at)
        except BaseException:
            os.close(fd)
            raise
    return DaemonLock(fd)


def holder(ws: Workspace) -> int | None:
    """Return the pid of the daemon that runs in this workspace, 0 if it is unknown, None if none runs.

    The pid may be one of another container. Raises WorldError if the directory cannot be opened.
    """
    with world_errors(f"read the lock of {ws.root}"), directory(ws.root) as fd:
        if try_lock(fd, fcntl.LOCK_SH):
            return None
        pid = _signature(ws).get("pid")
        return pid if isinstance(pid, int) else 0


def _lock(fd: int) -> bool:
    for _ in range(_PROBES):
        if try_lock(fd, fcntl.LOCK_EX):
            return True
        if not try_lock(fd, fcntl.LOCK_SH):
            return False
        # no process holds it exclusively: another one runs `holder`, for microseconds
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.sched_yield()
    return False


def _lock_after_dead(ws: Workspace, fd: int) -> bool:
    """Take the lock of a dead daemon as soon as its last child releases it.

    A daemon killed while it starts a program leaves a child that holds its descriptors until exec: for milliseconds,
    longer on a busy machine.
    """
    for _ in range(_PATIENCE):
        if not _is_dead(_signature(ws)):
            return False
        select.select((), (), (), _PAUSE)
        if _lock(fd):
            return True
    return False


def _is_dead(who: Mapping[str, object]) -> bool:
    """Whether the process in daemon.json is gone, as far as this host can tell."""
    pid = who.get("pid")
    if not isinstance(pid, int) or pid <= 0 or who.get("host") != os.uname().nodename:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _sign(ws: Workspace, started_at: str) -> None:
    signature = {"pid": os.getpid(), "host": os.uname().nodename, "started_at": started_at}
    with directory(ws.root, STATE) as fd:
        replace(fd, ws.daemon_file.name, json.dumps(signature).encode() + b"\n", lambda: True)


def _signature(ws: Workspace) -> dict[str, object]:
    try:
        with directory(ws.root, STATE) as state:
            signature = json.loads(read_file(state, ws.daemon_file.name, 4096) or b"")
    except (OSError, ValueError):
        return {}
    return signature if isinstance(signature, dict) else {}


def _held_by(ws: Workspace) -> str:
    who = _signature(ws)
    if not who:
        return f"{ws.root} is held by another daemon, whose pid is unknown"
    return (
        f"{ws.root} is held by the daemon with pid {who.get('pid')} on {who.get('host')}, "
        f"running since {who.get('started_at')}; stop it first, or use it"
    )
