"""Which processes of a call are alive: its own, those that hold its lock, those that write to its output.

The proof is a `flock` on a descriptor that the call inherited: unlike a pid it cannot be reused, and it is released
however its holders die. The record beside it only says which holder is the call's own process.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mailboxd.host.flock import try_lock
from mailboxd.host.system import system
from mailboxd.perform.agents.call_dir import CALL, OUTPUT, is_spoilt, open_regular, write

_RECORD_CAP = 4 * 1024 * 1024
"""Room for all arguments (2 MB in the kernel, more as JSON) and the identity."""


def leader(directory: Path | str) -> int | None:
    """The pid of the call's own process while it lives and holds the lock, else None.

    None also if the call replaced its lock file. Raises FileNotFoundError if it was never started, OSError.
    """
    try:
        lock = open_regular(f"{directory}/{CALL}", os.O_RDONLY)
    except OSError as problem:
        if is_spoilt(directory, problem):
            return None
        raise
    try:
        return None if try_lock(lock, fcntl.LOCK_SH) else _leading_holder(lock, os.fstat(lock))
    finally:
        os.close(lock)


def is_held(directory: Path | str, by: int | None = None) -> bool:
    """Whether a process holds the lock of this call's mark: any, or this one. Raises OSError."""
    lock = open_regular(f"{directory}/{CALL}", os.O_RDONLY)
    try:
        return not try_lock(lock, fcntl.LOCK_SH) and (by is None or _holds(by, os.fstat(lock)))
    finally:
        os.close(lock)


def record(call: int, pid: int) -> None:
    """Write the pid and boot id into the call's file. Raises OSError.

    Not durable: after a power failure the process is gone too. The lock tells it from a later process with its pid.
    """
    write(call, json.dumps({"pid": pid, "boot_id": system.boot_id()}).encode() + b"\n")


def identity(pid: int) -> dict[str, object]:
    """Distinguishes this process from a later one with the same pid."""
    return {"pid": pid, "start_time": system.start_time(pid), "boot_id": system.boot_id()}


def survivors(leader: Mapping[str, object]) -> list[int]:
    """The living processes of the session that `leader` (an `identity`) opened, even after its own end.

    Its pid is not reused while one of them lives; if it has been reused, none does.
    """
    pid, started = leader.get("pid"), leader.get("start_time")
    if type(pid) is not int or pid <= 1 or leader.get("boot_id") != system.boot_id():
        return []
    if system.start_time(pid) not in (None, started):
        return []
    return [other for other in system.pids() if system.session(other) == pid]


def has_ended(pidfd: int) -> bool:
    """Whether the process behind the descriptor has ended; never blocks."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def has_writer(directory: Path | str) -> bool:
    """Whether a process has an output file of the call open for writing, as far as the system tells."""
    for name in OUTPUT:
        with suppress(OSError):
            descriptor = open_regular(f"{directory}/{name}", os.O_RDONLY)
            try:
                if system.is_being_written(descriptor):
                    return True
            finally:
                os.close(descriptor)
    return False


def kill_writers(directory: Path | str) -> None:
    """Kill every process that has an output file of the call open for writing, in any session.

    Readers such as `tail -f` are left alone, and so are writers of a file with a second hard link.
    """
    files = set()
    for name in OUTPUT:
        with suppress(OSError):
            seen = os.lstat(f"{directory}/{name}")
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1:
                files.add((seen.st_dev, seen.st_ino))
    for pid in system.pids():
        if pid == os.getpid() or not system.opens(pid, files, to_write=True):
            continue
        with suppress(OSError):
            pidfd = system.watch(pid)
            try:
                if system.opens(pid, files, to_write=True):  # checked again, now that the descriptor pins the process
                    system.kill_watched(pidfd, pid)
            finally:
                os.close(pidfd)


def _leading_holder(call: int, lock: os.stat_result) -> int | None:
    recorded = _recorded(os.pread(call, _RECORD_CAP, 0))
    if recorded is not None:
        pid, boot = recorded
        # a record that names an unrelated process must not get it killed
        return pid if boot == system.boot_id() and _leads(pid, lock) else None
    # no record: the earlier daemon died between spawn and record
    return next((pid for pid in system.pids() if _leads(pid, lock)), None)


def _leads(pid: int, lock: os.stat_result) -> bool:
    """Whether it holds the lock and leads a session, as the process of a call does."""
    return system.session(pid) == pid and _holds(pid, lock)


def _recorded(raw: bytes) -> tuple[int, str] | None:
    try:
        content = json.loads(raw.split(b"\n")[1])
        pid, boot = content["pid"], content["boot_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if type(pid) is not int or not isinstance(boot, str) or pid <= 1:
        return None
    return pid, boot


def _holds(pid: int, lock: os.stat_result) -> bool:
    return pid != os.getpid() and system.opens(pid, {(lock.st_dev, lock.st_ino)})
