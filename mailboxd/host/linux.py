"""Linux: pidfds, file leases, /proc, unnamed files, syncfs. `portable` has the same functions for other systems."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import select
import signal
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

File = tuple[int, int]
"""Device and inode."""

# Processes


def watch(pid: int) -> int:
    """A descriptor that is readable once the process has ended, and pins its pid. Raises ProcessLookupError."""
    return os.pidfd_open(pid)


def kill_watched(watched: int, pid: int) -> None:  # noqa: ARG001
    """SIGKILL to the process behind a descriptor of `watch`; nothing if it has ended. Raises OSError."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(watched, signal.SIGKILL)


def pids() -> list[int]:
    """All processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def start_time(pid: int) -> int | None:
    """When it started, in an unknown unit; a later process with its pid has another. None if there is none."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def session(pid: int) -> int | None:
    """The session that a living process belongs to."""
    fields = _stat_fields(pid)
    return int(fields[3]) if fields and fields[0] not in "ZX" else None


def opens(pid: int, files: Collection[File], *, to_write: bool = False) -> bool:
    """Whether the process has one of these files open, as far as this user may know."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                seen = entry.stat()
                if (seen.st_dev, seen.st_ino) in files and (
                    # the link's mode tells how the file was opened (proc_pid_fd(5))
                    not to_write or entry.stat(follow_symlinks=False).st_mode & stat.S_IWUSR
                ):
                    return True
    return False


def command_line(pid: int) -> bytes:
    """Its arguments, each ended by a zero byte; empty if unknown."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def end_with_parent(parent: int) -> None:
    """Have this process, a child of `parent`, sent SIGTERM when that ends (PR_SET_PDEATHSIG in prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it had ended before
        os.kill(os.getpid(), signal.SIGTERM)


@cache
def boot_id() -> str:
    """Identifies this boot of the machine (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


_STAT_CAP = 4096
_PR_SET_PDEATHSIG = 1


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


# Files

_RENAME_NOREPLACE = 1
_NO_NOREPLACE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""The kernel or the file system does not know RENAME_NOREPLACE (some FUSE and network file systems)."""
_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)
"""None where the C library is older than 2.28."""


def is_being_written(fd: int) -> bool | None:
    """Whether any process has the file open for writing; None if unknown (a file of another user).

    A read lease is granted only on a file that no one can write (F_SETLEASE in fcntl(2)). It is returned at once; one
    that cannot be was revoked by the kernel, because somebody has waited long to write. Its signal is SIGURG, because
    the default, SIGIO, would kill the process if the file were opened meanwhile.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    return False


def open_unnamed(dir_fd: int) -> int:
    """A new file (0600) in the directory, without a name. Raises OSError; EOPNOTSUPP where there are none."""
    return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)


def path_of(fd: int) -> str:
    """A path to an open file or directory, whatever becomes of its name; also for a child before it executes."""
    return f"/proc/self/fd/{fd}"


def rename_new(source_fd: int, source: str, target_fd: int, target: str) -> bool:
    """Rename without replacing anything; False if that is not known here. Raises FileExistsError, OSError."""
    if _renameat2 is None:
        return False
    if _renameat2(source_fd, os.fsencode(source), target_fd, os.fsencode(target), _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_NOREPLACE:
        return False
    raise OSError(code, os.strerror(code), source)


def sync(fd: int) -> None:
    """Make a file or directory durable. Raises OSError."""
    os.fsync(fd)


def sync_data(fd: int) -> None:
    """Make the content of a file durable. Raises OSError."""
    os.fdatasync(fd)


@cache
def sync_reports_errors() -> bool:
    """Whether syncfs reports failed writes: since Linux 5.8. Without that it proves nothing."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return hasattr(_libc, "syncfs") and found is not None and (int(found[1]), int(found[2])) >= (5, 8)


def sync_file_system(fd: int) -> None:
    """Sync the file system of `fd`, names and contents, with syncfs(2), which Python lacks. Raises OSError."""
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_ESCAPE = re.compile(r"\\([0-7]{3})")


def mounts() -> list[tuple[str, str]]:
    """Mount point and type of each file system, later ones cover earlier ones. Raises OSError."""
    return parse_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"))


def parse_mounts(mountinfo: str) -> list[tuple[str, str]]:
    found = []
    for line in mountinfo.splitlines():
        fields, dash, rest = line.partition(" - ")
        words = fields.split(" ")
        if dash and len(words) >= 5:
            found.append((_ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), words[4]), rest.split(" ")[0]))
    return found


# Network file systems, where other machines may write too (statfs(2))

_KINDS = {
    0x6969: "NFS", 0x517B: "SMB", 0xFE534D42: "SMB", 0xFF534D42: "CIFS", 0x01021997: "9p", 0x65735546: "FUSE",
    0x00C36400: "Ceph", 0x5346414F: "AFS", 0x6B414653: "AFS", 0x73757245: "Coda", 0x0BD00BD0: "Lustre",
    0x01161970: "GFS2", 0x7461636F: "OCFS2", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x786F4256: "vboxsf",
}  # fmt: skip
"""File systems that another machine or a program may change without the kernel's knowledge, by `f_type` (magic.h)."""
_STATFS_BYTES = 512
"""Bytes, more than any `struct statfs`, whose first member, a long, is `f_type`."""


def network_kind(path: Path) -> str:
    """Name of the network or FUSE file system of `path`; empty if it is local or unknown."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.statfs(os.fsencode(path), answer) != 0:
        return ""
    return _KINDS.get(ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF, "")


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """A socket's path through a descriptor of its directory: a path over 107 bytes is not an address (unix(7))."""
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{path_of(fd)}/{path.name}"
    finally:
        os.close(fd)


def observer(is_left_out: Callable[[str], bool]) -> BaseObserver:
    """The observer of file changes: watchdog's, by inotify.

    A recursive watch leaves out the directories for which `is_left_out` is true: each that is watched takes one of the
    user's watches (inotify(7), max_user_watches).
    """
    from watchdog.observers.api import BaseObserver
    from watchdog.observers.inotify import (
        InotifyFullEmitter,  # others make a rename from elsewhere look like a new file
    )
    from watchdog.observers.inotify_c import CallbackId, InotifyFD, Mask, WatchCallback, WatchDescriptor
    from watchdog.observers.inotify_move_event_grouper import InotifyMoveEventGrouper

    class Descriptor(InotifyFD):
        def __init__(self) -> None:
            super().__init__()
            os.set_inheritable(self._inotify_fd, False)

        def add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
            if is_left_out(os.fsdecode(path)):
                raise PermissionError(errno.EACCES, "left out", path)  # as for a directory that may not be read
            return super().add_callback(path, mask, callback, id_)

    class Observer(BaseObserver):
        def __init__(self) -> None:
            self._inotify = Descriptor()
            self._inotify.start()
            super().__init__(InotifyFullEmitter, inotify_fd=self._inotify)

        def on_thread_stop(self) -> None:
            super().on_thread_stop()
            self._inotify.stop()
            self._inotify.join()

    # Seconds that the first half of a move, and all events behind it, wait for the second half; nobody needs both
    InotifyMoveEventGrouper.delay = 0.0
    return Observer()


class Mounts:
    """Readable when something was mounted or unmounted (proc_pid_mountinfo(5)), which inotify does not report."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._table = -1
        with suppress(OSError):  # without /proc, or in a sandbox, the next scan notices
            self._table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self._epoll.register(self._table, select.EPOLLPRI)
            self.drain()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def drain(self) -> None:
        """Clear the notification."""
        self._epoll.poll(0)

    def close(self) -> None:
        self._epoll.close()
        if self._table >= 0:
            os.close(self._table)


# Memory: the minimum of `MemAvailable` and what each enclosing cgroup (v2) permits, counting file cache as free.
# Unreadable values are ignored.

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUP = re.compile(r"^0::(/.*)$", re.MULTILINE)
_CACHE = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes available to programs started from here; None if unknown.

    `root` contains `proc` and `sys`.
    """
    found = _AVAILABLE.search(_text(f"{root}/proc/meminfo"))
    free = [int(found[1]) * 1024] if found else []
    free += [left for group in _groups(root) if (left := _left(group)) is not None]
    return max(min(free), 0) if free else None


def _groups(root: Path) -> Iterator[str]:
    """The directories of this process's cgroup and its ancestors, whose limits all apply."""
    found = _CGROUP.search(_text(f"{root}/proc/self/cgroup"))
    if found is None or "/.." in found[1]:
        return
    group = found[1].rstrip("/")
    while group:
        yield f"{root}/sys/fs/cgroup{group}"
        group = group.rpartition("/")[0]
    yield f"{root}/sys/fs/cgroup"


def _left(group: str) -> int | None:
    limit = _text(f"{group}/memory.max").strip()
    if not limit.isdecimal() or not (used := _text(f"{group}/memory.current").strip()).isdecimal():
        return None
    cache = _CACHE.search(_text(f"{group}/memory.stat"))
    return int(limit) - int(used) + (int(cache[1]) if cache else 0)


def _text(path: str) -> str:
    with suppress(OSError):  # asked twice a second: without the layers of `open`
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 65_536).decode("ascii", "replace")
        finally:
            os.close(fd)
    return ""
