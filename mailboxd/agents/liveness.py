"""Is the process of a call still alive? Asked of the kernel, never of a pid in a file.

The proof of life is a `flock` on a descriptor that the child inherited: it cannot be recycled as a pid can, and goes
with its holders whatever way they die. The record of the call only says which of them is its own process.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from mailboxd.agents.callfiles import CALL, OUTPUT, is_spoilt, open_regular, write, written

_RECORD_CAP = 4 * 1024 * 1024
"""All arguments of a program (the kernel takes 2 MB of them, JSON may need more), and who it is."""
_STAT_CAP = 4096


def leader(directory: Path | str) -> int | None:
    """The pid of the call's own process while it lives and holds the lock, else None.

    None also of one that has put something else in the place of its lock. Raises FileNotFoundError if the call was
    never started, OSError.
    """
    try:
        lock = open_regular(f"{directory}/{CALL}", os.O_RDONLY)
    except OSError as problem:
        if is_spoilt(directory, problem):
            return None
        raise
    try:
        # Shared: those who only ask do not disturb each other.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _leading_holder(lock, os.fstat(lock))
    else:
        return None
    finally:
        os.close(lock)


def is_its_own(directory: Path | str) -> bool:
    """Whether the file of a call speaks of this call, and not of an earlier one that has had its directory (`spares`).

    A directory may get its new name on the disk before it is emptied there, and a power cut then brings back what was
    in it. So what was written before this boot must name it: among the arguments there is a file of its own. Without a
    power cut there is nothing to bring back. Raises OSError.
    """
    raw, _ = written(directory, CALL, _RECORD_CAP)
    recorded = _recorded(raw)
    names_it = f"/{Path(directory).name}/".encode() in raw.partition(b"\n")[0]
    return names_it or (recorded is not None and recorded[1] == boot_id())


def record(call: int, pid: int) -> None:
    """Write into the file of a call who it is: its pid, and the boot id. Raises OSError.

    It is not made durable: after a power cut the process is gone too. That it is this process, and no later one of its
    number, says the lock: to ask the kernel for more while it executes the program would wait for that.
    """
    write(call, json.dumps({"pid": pid, "boot_id": boot_id()}).encode() + b"\n")


def identity(pid: int) -> dict[str, object]:
    """What tells this process from a later one with its number."""
    return {"pid": pid, "start_time": _start_time(pid), "boot_id": boot_id()}


def survivors(leader: Mapping[str, object]) -> list[int]:
    """The living processes of the session that `leader` (an `identity`) has opened, also after its own end.

    Its number is nobody else's while any of them lives; if somebody else has it now, there is none.
    """
    pid, started = leader.get("pid"), leader.get("start_time")
    if type(pid) is not int or pid <= 1 or leader.get("boot_id") != boot_id():
        return []
    if _start_time(pid) not in (None, started):
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _session(int(name)) == pid]  # noqa: PTH208


def has_ended(pidfd: int) -> bool:
    """Whether the process behind the descriptor has ended; never blocks."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def has_writer(directory: Path | str) -> bool:
    """Whether somebody has an output file of the call open for writing, as far as the kernel tells us.

    A read lease is granted only on a file that nobody can write (F_SETLEASE in fcntl(2)). Who opens it meanwhile waits
    until it is closed here, and we are told: by a signal that is not SIGIO, which would end us.
    """
    for name in OUTPUT:
        with suppress(OSError):
            descriptor = open_regular(f"{directory}/{name}", os.O_RDONLY)
            try:
                fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
    return False


def kill_writers(directory: Path | str) -> None:
    """SIGKILL to every process that has an output file of the call open for writing, in whatever session it is.

    Who only reads them, like a person's `tail -f`, is left alone, and so are the writers of a file that has another
    name as well: that one is not the call's alone.
    """
    files = set()
    for name in OUTPUT:
        with suppress(OSError):
            seen = os.lstat(f"{directory}/{name}")
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1:
                files.add((seen.st_dev, seen.st_ino))
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:  # noqa: PTH208
        if pid == os.getpid() or not _writes(pid, files):
            continue
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
            try:
                if _writes(pid, files):  # asked again, now that the descriptor pins the process
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def _writes(pid: int, files: set[tuple[int, int]]) -> bool:
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                seen = entry.stat()
                if (seen.st_dev, seen.st_ino) in files and entry.stat(follow_symlinks=False).st_mode & stat.S_IWUSR:
                    return True  # the link has the rights with which the file was opened (proc_pid_fd(5))
    return False


def _leading_holder(call: int, lock: os.stat_result) -> int | None:
    recorded = _recorded(os.pread(call, _RECORD_CAP, 0))
    if recorded is not None:
        pid, boot = recorded
        # A record that points at somebody else's process, by accident or on purpose, must not get that one killed.
        return pid if boot == boot_id() and _leads(pid, lock) else None
    # No record: the earlier daemon died between the spawn and the record.
    names = os.listdir("/proc")  # noqa: PTH208 - the names are all that is wanted, of every process
    return next((int(name) for name in names if name.isdecimal() and _leads(int(name), lock)), None)


def _leads(pid: int, lock: os.stat_result) -> bool:
    """Whether it holds the lock and has opened a session of its own, as the process of a call does."""
    return _session(pid) == pid and _holds(pid, lock)


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
    if pid == os.getpid():
        return False
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                held = entry.stat()
                if (held.st_dev, held.st_ino) == (lock.st_dev, lock.st_ino):
                    return True
    return False


def _start_time(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def _session(pid: int) -> int | None:
    """The session that a living process belongs to."""
    fields = _stat_fields(pid)
    return int(fields[3]) if fields and fields[0] not in "ZX" else None


def _stat_fields(pid: int) -> list[str]:
    """/proc/<pid>/stat from the third field (index 0) on; the second may hold anything but ends with the last `)`."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        text = os.read(descriptor, _STAT_CAP)
    except ProcessLookupError:
        return []
    finally:
        os.close(descriptor)
    return text.rpartition(b")")[2].decode().split()


@cache
def boot_id() -> str:
    """Which start of the machine this is (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
