"""System calls on files of the workspace. All take directory descriptors; none follows a link."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from mailboxd.core.entrance import prepared_name
from mailboxd.errors import WorldError, world_error
from mailboxd.host.system import system

_CHUNK = 1 << 20
_NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""The kernel or the file system does not know unnamed files."""


class ObstructedError(WorldError):
    """One file cannot be moved or written (immutable, a mount point, gone). Others can: continue with them."""


class Stamp(NamedTuple):
    """Identity of a file's content: as long as the stamp is the same, so is the content, as far as can be known."""

    dev: int
    ino: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @property
    def mtime(self) -> float:
        """Seconds since 1970, as set by the writer."""
        return self.mtime_ns / 1e9


@contextmanager
def world_errors(doing: str) -> Iterator[None]:
    """Turn an OSError into a WorldError that says what could not be done, and how to fix permissions."""
    try:
        yield
    except OSError as error:
        raise refusal(doing, error) from error


def refusal(doing: str, error: OSError) -> WorldError:
    """Return what `world_errors` raises, for callers that build the text of `doing` only after a failure."""
    text = f"cannot {doing}: {error.strerror}"
    if error.errno in {errno.EACCES, errno.EPERM}:
        text += f" (mailboxd runs as uid {os.geteuid()}; make it owner and run `chmod u+rwx` on the directory)"
    return world_error(text, error)


@contextmanager
def directory(root: Path, *names: str) -> Iterator[int]:
    """Open root/names...; close it at the end. Raises OSError (ELOOP, ENOTDIR) if a name below root is a link.

    `root` itself may be reached through links: the operator chose it. The rest may be written by anybody.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def lstat(dir_fd: int, name: str) -> os.stat_result | None:
    """Status of `name`, of a link itself and not its target; None if it does not exist."""
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_regular(dir_fd: int, name: str) -> int | None:
    """Open the regular file `name` for reading, never waiting for a fifo; None if it is anything else.

    Raises OSError without permission to read it.
    """
    status = lstat(dir_fd, name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


@contextmanager
def reading(dir_fd: int, name: str) -> Iterator[int]:
    """A descriptor for reading the regular file `name`. Raises OSError, FileNotFoundError also for anything else."""
    fd = open_regular(dir_fd, name)
    if fd is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    try:
        yield fd
    finally:
        os.close(fd)


def read_up_to(fd: int, most: int) -> bytes:
    """Read from the start of the file, at most `most` bytes."""
    parts = []
    at = 0
    while at < most and (part := os.pread(fd, most - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def pieces(fd: int, size: int = _CHUNK) -> Iterator[bytes]:
    """What is left to read, in pieces of this many bytes; only the last one may be shorter. Raises OSError."""
    while piece := os.read(fd, size):
        yield piece


def read_file(dir_fd: int, name: str, most: int) -> bytes | None:
    """The first `most` bytes of a regular file; None if it is missing or anything else. Raises OSError."""
    fd = open_regular(dir_fd, name)
    if fd is None:
        return None
    try:
        return read_up_to(fd, most)
    finally:
        os.close(fd)


def digest_of(dir_fd: int, name: str, most: int = 1 << 62) -> tuple[str, int] | None:
    """The SHA-256 and size of a regular file; None if it is not one. What is longer than `most` is not hashed.

    Raises OSError.
    """
    file = open_regular(dir_fd, name)
    if file is None:
        return None
    try:
        if (size := os.fstat(file).st_size) > most:
            return "", size
        hashed, size = hashlib.sha256(), 0
        for piece in pieces(file):
            hashed.update(piece)
            size += len(piece)
            if size > most:  # it grows meanwhile
                break
        return hashed.hexdigest(), size
    finally:
        os.close(file)


def holds(dir_fd: int, name: str, raw: bytes) -> bool:
    """Whether `name` is a regular file with exactly these bytes."""
    status = lstat(dir_fd, name)
    return status is not None and status.st_size == len(raw) and read_file(dir_fd, name, len(raw) + 1) == raw


def move(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """Rename without replacing anything. Raises FileExistsError if `target` exists, other OSError as rename does."""
    if not system.rename_new(source_fd, source, target_fd, target):
        move_by_link(source_fd, source, target_fd, target)


def move_by_link(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """`move` for file systems without RENAME_NOREPLACE. Between its two steps the file has both names."""
    status = os.stat(source, dir_fd=source_fd, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):  # cannot be linked; a rename replaces nothing but an empty directory
        if lstat(target_fd, target) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        return
    os.link(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
    os.unlink(source, dir_fd=source_fd)


def publish(
    dir_fd: int, name: str, raw: bytes, *, durable: bool = True, renamed: bool = False, program: str = ""
) -> None:
    """Create a file (0600) that appears complete or not at all. Raises FileExistsError if the name is taken.

    Its bytes are durable if `durable`; its entry only after the caller's fsync of the directory. A crash leaves nothing
    behind, where the file system has unnamed files. `renamed`: it gets its name by a rename, which proves to a daemon
    that watches the directory that the file is complete. `program`: one of `core.entrance.PROGRAMS`, which that daemon
    records as a claim.
    """
    try:
        fd = system.open_unnamed(dir_fd)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        publish_by_name(dir_fd, name, raw, program)
        return
    try:
        _write(fd, raw, durable=durable)
        first = _thread_name(name, program) if renamed else name
        if renamed:
            with suppress(FileNotFoundError):
                os.unlink(first, dir_fd=dir_fd)  # left by a crash
        os.link(system.path_of(fd), first, dst_dir_fd=dir_fd, follow_symlinks=True)
        if renamed:
            _give_name(dir_fd, first, name)
    except FileNotFoundError:  # there is no /proc, through which an unnamed file gets its name
        publish_by_name(dir_fd, name, raw, program)
    finally:
        os.close(fd)


@contextmanager
def creating(dir_fd: int, name: str) -> Iterator[int]:
    """A descriptor to which `name` (0600) is written piece by piece, for what is too large to be held in memory.

    The file appears at the end, complete and with durable bytes, in place of what had its name; after an exception it
    does not. A crash leaves nothing behind, where the file system has unnamed files. One writer per name.

    Raises OSError.
    """
    hidden = hidden_name(name)
    with suppress(FileNotFoundError):
        os.unlink(hidden, dir_fd=dir_fd)
    fd = _open_unnamed(dir_fd)
    is_unnamed = fd is not None
    if fd is None:
        fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=dir_fd)
    try:
        yield fd
        system.sync(fd)
        if is_unnamed:
            os.link(system.path_of(fd), hidden, dst_dir_fd=dir_fd, follow_symlinks=True)
        os.rename(hidden, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(hidden, dir_fd=dir_fd)  # free the space
        raise
    finally:
        os.close(fd)


def _open_unnamed(dir_fd: int) -> int | None:
    """An unnamed file that can get a name; None where there is none."""
    try:
        fd = system.open_unnamed(dir_fd)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        return None
    if Path(system.path_of(fd)).exists():
        return fd
    os.close(fd)  # there is no /proc, through which it would get its name
    return None


def publish_by_name(dir_fd: int, name: str, raw: bytes, program: str = "") -> None:
    """`publish` for file systems without unnamed files: a hidden name unique to this thread, then a move."""
    hidden = _thread_name(name, program)
    _create(dir_fd, hidden, raw)
    _give_name(dir_fd, hidden, name)


def _thread_name(name: str, program: str) -> str:
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return prepared_name(program, f"{threading.get_native_id()}-{digest}")


def _give_name(dir_fd: int, hidden: str, name: str) -> None:
    try:
        move(dir_fd, hidden, dir_fd, name)
    except FileExistsError:
        os.unlink(hidden, dir_fd=dir_fd)
        raise


def replace(dir_fd: int, name: str, raw: bytes, unchanged: Callable[[], bool]) -> Stamp | None:
    """Replace `name` with a new file (0600), atomically and durably. Return its stamp, or None if it was not replaced.

    `unchanged` is called right before the rename; if it returns False, nothing happens. The file is first written as
    `hidden_name(name)`; one left by a crash is overwritten. One writer per name.
    """
    stamp = prepare(dir_fd, name, raw)
    return stamp if put(dir_fd, name, unchanged) else None


def prepare(dir_fd: int, name: str, raw: bytes, *, durable: bool = True) -> Stamp:
    """First half of `replace`: write the hidden file. Not `durable`: the caller syncs it before the second half."""
    # closed before the rename, so that the event bears the hidden name and does not wake the loop
    return _create(dir_fd, hidden_name(name), raw, durable=durable)


def put(dir_fd: int, name: str, unchanged: Callable[[], bool], *, durable: bool = True) -> bool:
    """Second half of `replace`. If `unchanged` returns False, remove the hidden file and return False."""
    hidden = hidden_name(name)
    if not unchanged():
        os.unlink(hidden, dir_fd=dir_fd)
        return False
    os.rename(hidden, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    if durable:
        system.sync(dir_fd)
    return True


def hidden_name(name: str) -> str:
    """Name under which `replace` prepares a file."""
    return f".{name}.mailboxd.tmp"


def _create(dir_fd: int, name: str, raw: bytes, *, durable: bool = True) -> Stamp:
    # it may be a fifo or a link prepared by an attacker: never open it
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=dir_fd)
    try:
        _write(fd, raw, durable=durable)
        return Stamp.of(os.fstat(fd))
    except OSError:
        with suppress(OSError):
            os.unlink(name, dir_fd=dir_fd)  # free the space
        raise
    finally:
        os.close(fd)


def write(fd: int, raw: bytes) -> None:
    """Write all of it. Raises OSError."""
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _write(fd: int, raw: bytes, *, durable: bool = True) -> None:
    write(fd, raw)
    if durable:
        system.sync(fd)


MANY = 32
"""From this number of files on the whole file system is synced, which also waits for writes of other processes."""
