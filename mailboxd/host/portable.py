"""Any Unix, macOS in the first place: the functions of `linux`, by POSIX, psutil and a thread that waits.

Weaker than on Linux: whether a file is being written is never known, so a file counts as complete after a quiet time
(`inbox.settle_seconds`), and what an ended call has left running is not found by the output that it still writes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

File = tuple[int, int]
"""Device and inode."""

# Processes

_LOOK_SECONDS = 0.02
_PARENT_SECONDS = 1.0


class _Watching(threading.Thread):
    """Closes one end of a pipe for each process that has ended: the other end is then readable."""

    def __init__(self) -> None:
        super().__init__(name="processes", daemon=True)
        self._lock = threading.Lock()
        self._ends: dict[int, tuple[int, int | None]] = {}
        """Process and its start, by the end of its pipe."""
        self._more = threading.Event()

    def add(self, pid: int) -> int:
        started = start_time(pid)
        if started is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        reader, writer = os.pipe()
        with self._lock:
            self._ends[writer] = (pid, started)
        self._more.set()
        return reader

    def run(self) -> None:
        pause = threading.Event()
        while self._more.wait():
            with self._lock:
                watched = dict(self._ends)
                if not watched:
                    self._more.clear()
            for writer, (pid, started) in watched.items():
                if session(pid) is None or start_time(pid) != started:
                    with self._lock:
                        del self._ends[writer]
                    os.close(writer)
            pause.wait(_LOOK_SECONDS)


@cache
def _watching(process: int) -> _Watching:  # noqa: ARG001  # a fork has no threads
    thread = _Watching()
    thread.start()
    return thread


def watch(pid: int) -> int:
    """A descriptor that is readable once the process has ended. Raises ProcessLookupError."""
    return _watching(os.getpid()).add(pid)


def kill_watched(watched: int, pid: int) -> None:
    """SIGKILL to the process of `watch`; nothing if it has ended. Raises OSError."""
    os.set_blocking(watched, False)
    try:
        os.read(watched, 1)
    except BlockingIOError:  # it lives
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pids() -> list[int]:
    """All processes."""
    return list(psutil.pids())


def start_time(pid: int) -> int | None:
    """When it started, in microseconds: distinguishes it from a later process with its pid. None if there is none."""
    with suppress(psutil.Error):
        return int(psutil.Process(pid).create_time() * 1e6)
    return None


def session(pid: int) -> int | None:
    """The session that a living process belongs to."""
    with suppress(psutil.Error, OSError):
        if psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return os.getsid(pid)
    return None


def opens(pid: int, files: Collection[File], *, to_write: bool = False) -> bool:
    """Whether the process has one of these files open, as far as this user may know. macOS never says to write."""
    with suppress(psutil.Error, OSError):
        for file in psutil.Process(pid).open_files():
            with suppress(OSError):
                seen = os.stat(file.path)  # noqa: PTH116
                if (seen.st_dev, seen.st_ino) in files and (not to_write or getattr(file, "mode", "r") != "r"):
                    return True
    return False


def command_line(pid: int) -> bytes:
    """Its arguments, each ended by a zero byte; empty if unknown."""
    with suppress(psutil.Error):
        return b"".join(os.fsencode(word) + b"\0" for word in psutil.Process(pid).cmdline())
    return b""


def end_with_parent(parent: int) -> None:
    """Have this process, a child of `parent`, sent SIGTERM within a second after that ends."""

    def wait() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


@cache
def boot_id() -> str:
    """Identifies this boot of the machine: when its first process started."""
    return f"{psutil.Process(1).create_time():.0f}"


# Files


def is_being_written(fd: int) -> bool | None:  # noqa: ARG001
    """Always unknown."""
    return None


def open_unnamed(dir_fd: int) -> int:  # noqa: ARG001
    """Raises OSError: there are no files without a name."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def path_of(fd: int) -> str:
    """The path by which an open file or directory is known now."""
    if hasattr(fcntl, "F_GETPATH"):
        return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115


_libc = ctypes.CDLL(None, use_errno=True)
_renameatx = getattr(_libc, "renameatx_np", None)
"""macOS."""
_RENAME_EXCL = 4


def rename_new(source_fd: int, source: str, target_fd: int, target: str) -> bool:
    """Rename without replacing anything; False if that is not known here. Raises FileExistsError, OSError."""
    if _renameatx is None:
        return False
    if _renameatx(source_fd, os.fsencode(source), target_fd, os.fsencode(target), _RENAME_EXCL) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.ENOTSUP, errno.EINVAL}:
        return False
    raise OSError(code, os.strerror(code), source)


def sync(fd: int) -> None:
    """Make a file or directory durable: on macOS only F_FULLFSYNC reaches the disk. Raises OSError."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}:
                raise
        else:
            return
    os.fsync(fd)


sync_data = sync


def sync_reports_errors() -> bool:
    """No file system is synced as a whole."""
    return False


def sync_file_system(fd: int) -> None:
    """Raises OSError."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), fd)


def mounts() -> list[tuple[str, str]]:
    """Mount point and type of each file system."""
    return [(found.mountpoint, found.fstype) for found in psutil.disk_partitions(all=True)]


_NETWORK = frozenset({"nfs", "nfs4", "smbfs", "cifs", "afpfs", "webdav", "9p", "macfuse", "osxfuse"})


def network_kind(path: Path) -> str:
    """Name of the network or FUSE file system of `path`; empty if it is local or unknown."""
    real = path.resolve()
    kinds = [(len(point), kind) for point, kind in mounts() if real.is_relative_to(point)]
    kind = max(kinds, default=(0, ""))[1]
    return kind if kind in _NETWORK or kind.startswith("fuse") else ""


_LONGEST_ADDRESS = 103


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """A socket's path, through a link in the temporary directory if it is too long for an address (unix(4))."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="mb") as folder:
        os.symlink(path.parent, f"{folder}/s")  # noqa: PTH211
        yield f"{folder}/s/{path.name}"


def observer(is_left_out: Callable[[str], bool]) -> BaseObserver:  # noqa: ARG001
    """The observer of file changes: watchdog's for this system, which watches a tree as a whole."""
    from watchdog.observers import Observer

    return Observer()


class Mounts:
    """Never readable: the next scan notices what was mounted."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def fileno(self) -> int:
        return self._reader

    def drain(self) -> None:
        """There is no notification."""

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


def available_memory() -> int | None:
    """Bytes available to programs started from here."""
    return int(psutil.virtual_memory().available)
