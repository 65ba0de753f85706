"""Who keeps the database locked, by /proc/locks. Nothing is opened: closing a descriptor of it drops our locks."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LOCKS = Path("/proc/locks")


def who_locks(path: Path | None) -> str:
    """A sentence that names the processes that hold locks on the database or its shared memory, and what to do."""
    pids = lockers(path) if path is not None else []
    if not pids:
        return "which process has locked it cannot be seen from here (`fuser` says it, as root)"
    names = ", ".join(f"pid {pid} ({_name(pid)})" for pid in pids)
    return f"it is locked by {names}; end that, or wait until it has finished"


def lockers(path: Path) -> list[int]:
    """The other processes that hold write locks on the file or what belongs to it; all holders if none does."""
    files = {identity for ending in ("", "-shm", "-wal") if (identity := _identity(Path(f"{path}{ending}")))}
    found: dict[str, set[int]] = {"WRITE": set(), "READ": set()}
    with suppress(OSError):
        for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
            words = line.split()
            if "->" in words or len(words) < 6:  # who waits holds nothing
                continue
            kind, pid, place = words[3], words[4], words[5]
            if place in files and pid.isdecimal() and int(pid) not in (0, os.getpid()):
                found.setdefault(kind, set()).add(int(pid))
    return sorted(found["WRITE"] or found["READ"])


def _identity(file: Path) -> str:
    """As /proc/locks writes it: major:minor:inode, the first two in hexadecimal."""
    with suppress(OSError):
        status = file.stat()
        return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return ""


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return "it has ended"
