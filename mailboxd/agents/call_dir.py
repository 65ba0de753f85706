"""The files of one call's directory, read and written with distrust: agents of the same user can reach them.

A directory may be given as text: to join a `Path` costs more than the system call that it is for, and this is done for
each call.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.errors import WorldError, world_error

OUTPUT_CAP = 16 * 1024 * 1024
"""Bytes of standard output that are read by default; a longer one is reported as truncated."""
PROMPT = "prompt.md"
CALL = "call"
UNUSED = "call.unused"
"""The file of the mark in a directory that waits for its call (see `spares`)."""
OUTPUT = ("stdout", "stderr")
OURS = frozenset({PROMPT, CALL, UNUSED, *OUTPUT})
"""What the directory of a plain call holds."""
_AT_ONCE = 64 * 1024
"""Bytes that are read at once: a buffer of the size of the cap would be mapped and unmapped for every short answer."""
STDERR_CAP = 64 * 1024
"""Bytes of standard error that are read: it is for people, nothing is decided by it."""
KEPT_OUTPUT = 64 * 1024
"""Bytes of each file that stay of an output that was too long."""
_SPOILT = frozenset({errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENOTDIR, errno.EACCES})


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. `rc` is negative for a signal (as in `subprocess`), None if it cannot be known any more."""

    rc: int | None
    stdout: bytes
    stderr: bytes = b""
    truncated: bool = False
    """The standard output is longer than the cap; `stdout` holds its beginning."""


def write_prompt(directory: Path | str, prompt: bytes, name: str = PROMPT) -> str:
    """Create the call's directory (0700) and the file that it is given (0600); returns the file's path.

    It is not synced: only the program that is started next reads it, and a power cut ends that too.
    Raises WorldError if the disk refuses: then nothing must be spawned.
    """
    path = f"{directory}/{name}"
    try:
        make_directory(directory)
        descriptor = open_empty(path, os.O_WRONLY)
        try:
            write(descriptor, prompt)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise refusal(directory, problem) from problem
    return path


def remove(directory: Path | str) -> None:
    """Remove the directory of a call with all that is in it, as far as it lets itself be removed."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in OURS:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        os.rmdir(directory)  # noqa: PTH106 - as in all of this file: pathlib costs more than the system call
    except OSError:  # something else lies there, or it is gone: found out only where it is so, this is done per call
        with suppress(RecursionError):  # a call may have put directories in each other without end
            shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):  # or a link or a file in its place
            os.unlink(directory)  # noqa: PTH108


def output_size(directory: Path | str) -> int:
    """Bytes that the call has written to stdout and stderr so far: its caller kills one that writes without end.

    What cannot be asked now does not count: it is asked again soon, and is no reason to leave the call alone.
    """
    total = 0
    for name in OUTPUT:
        with suppress(OSError):
            total += os.lstat(f"{directory}/{name}").st_size
    return total


def cut_output(directory: Path | str, cap: int) -> None:
    """Give back the disk space of an output that is too long: its first 64 KiB stay, the rest becomes a hole.

    The size stays above the cap, so that nobody takes what is left for a whole answer. A program that still writes
    appends behind the hole; its caller cuts again. A file that has another name as well is not ours to cut.
    """
    for name in OUTPUT:
        with suppress(OSError):
            descriptor = open_regular(f"{directory}/{name}", os.O_WRONLY)
            try:
                seen = os.fstat(descriptor)
                if seen.st_size > KEPT_OUTPUT and seen.st_nlink == 1:
                    os.ftruncate(descriptor, KEPT_OUTPUT)
                    os.ftruncate(descriptor, min(seen.st_size, cap + 1))
            finally:
                os.close(descriptor)


def read_exit(directory: Path | str, rc: int | None, cap: int = OUTPUT_CAP) -> Exit:
    """What an ended call has written, at most `cap` bytes of stdout. Raises WorldError.

    Files that are missing are empty, and so is what the call has put in their place.
    """
    try:
        stdout, truncated = written(directory, "stdout", cap)
        stderr, _ = written(directory, "stderr", STDERR_CAP)
    except OSError as problem:
        raise refusal(directory, problem) from problem
    return Exit(rc, stdout, stderr, truncated)


def written(directory: Path | str, name: str, cap: int) -> tuple[bytes, bool]:
    """As `read_capped`, of one of the call's files. Raises OSError."""
    try:
        return read_capped(f"{directory}/{name}", cap)
    except OSError as problem:
        if is_spoilt(directory, problem):
            return b"", False
        raise


def is_spoilt(directory: Path | str, problem: OSError) -> bool:
    """Whether a file of a call cannot be read because something else lies there than what we have made.

    Only the call itself does that, and a later try would find the same. What keeps us from all calls is not that.
    """
    return problem.errno in _SPOILT and os.path.lexists(directory)


@contextmanager
def world(directory: Path | str) -> Iterator[None]:
    """Turn an OSError into a WorldError that names the call's directory."""
    try:
        yield
    except OSError as problem:
        raise refusal(directory, problem) from problem


def refusal(directory: Path | str, problem: OSError) -> WorldError:
    """What `world` raises: for what is done for each call, and seldom fails."""
    return world_error(f"{directory}: {problem}", problem)


def open_regular(path: Path | str, flags: int) -> int:
    """A descriptor of a regular file: no link is followed, no FIFO blocks. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def open_empty(path: Path | str, flags: int) -> int:
    """A descriptor of a regular file that holds nothing, made if it is missing. Raises OSError.

    One that is empty already is not cut: some file systems write a file to the disk when it is closed after that.
    """
    descriptor = open_regular(path, flags | os.O_CREAT)
    if os.lseek(descriptor, 0, os.SEEK_END):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def make_directory(directory: Path | str) -> None:
    """Create the call's directory (0700) unless it exists; its parent must. Raises OSError."""
    try:
        mode = os.lstat(directory).st_mode  # asked first: mostly it is there, a spare one or prepared before
    except FileNotFoundError:
        os.mkdir(directory, 0o700)  # noqa: PTH102
        return
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, "something that is no directory lies there", str(directory))


def write(descriptor: int, raw: bytes) -> None:
    """Write all of it. Raises OSError."""
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_capped(path: Path | str, cap: int) -> tuple[bytes, bool]:
    """The first `cap` bytes, and whether there are more; a missing file is empty. Raises OSError."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return b"", False
    parts, left = [], cap + 1
    try:
        while left and (part := os.read(descriptor, min(left, _AT_ONCE))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    raw = b"".join(parts)
    return raw[:cap], len(raw) > cap


def sync(directory: Path | str) -> None:
    """Make the directory's entries durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------------------------------------------------------
# Directories of ended calls, emptied and given to later ones.
#
# To make five files and soon remove them is what a call costs the kernel most. An ext4 without a journal, as small
# virtual machines have it, steps over all that were removed in the last minutes to make a new one (`recently_deleted`
# in fs/ext4/ialloc.c): after a thousand calls that was two thirds of the daemon's time.
#
# A call must never read what belongs to another one. So a directory is kept only when the kernel says of each of its
# files that nobody else has it open: a program that an ended call has left running may still hold its output. Else it
# is removed. That it was emptied is not synced, so what a power cut brings back is not believed
# (`liveness.is_its_own`).


@dataclass(slots=True)
class Spares:
    """The spare directories among those of calls, all below `turns`. Their names begin with a dot."""

    turns: Path
    _names: list[str] = field(default_factory=list)
    _unused: int = 0
    """So many have not been taken since the last `trim`."""

    def take(self, call_id: str) -> None:
        """Let a spare one be the directory of this call, if there is one, and nothing lies there yet."""
        while self._names:
            name = self._names.pop()
            self._unused = min(self._unused, len(self._names))
            try:
                os.rename(self._path(name), self._path(call_id))  # noqa: PTH104 - as in callfiles: this is done per call
            except FileNotFoundError:
                continue  # somebody has tidied up
            except OSError:  # it is there already: the call is prepared a second time
                self._names.append(name)
            return

    def put(self, call_id: str) -> None:
        """Keep the directory of an ended call, emptied, or remove it. Of what it says nothing is needed any more."""
        name = f".{call_id}"
        directory, spare = self._path(call_id), self._path(name)
        try:
            os.rename(directory, spare)  # noqa: PTH104 - at once: half emptied, it would speak for a call
        except FileNotFoundError:
            return  # nothing lies there: a question is discarded before it is asked
        except OSError:
            remove(directory)
            return
        if _emptied(spare):
            self._names.append(name)
        else:
            remove(spare)

    def trim(self) -> frozenset[str]:
        """Forget those that were not needed since the last time, and name those that are kept."""
        del self._names[: self._unused]
        self._unused = len(self._names)
        return frozenset(self._names)

    def _path(self, name: str) -> str:
        return f"{self.turns}/{name}"


def _emptied(directory: str) -> bool:
    """Whether it holds nothing but files of a call, empty now, that nobody has open."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            names = os.listdir(descriptor)  # noqa: PTH208
            is_ours = OURS.issuperset(names) and _rights(os.fstat(descriptor)) == 0o700
            if not (is_ours and all(_is_empty_now(descriptor, name) for name in names)):
                return False
            with suppress(FileNotFoundError):
                os.rename(CALL, UNUSED, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _is_empty_now(dir_fd: int, name: str) -> bool:
    """Empty a file that nobody else has open, or can reach by another name. Raises OSError."""
    file = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode) or _rights(seen) != 0o600 or seen.st_nlink != 1:
            return False
        # A write lease is given only to the one who has the file open alone (F_SETLEASE in fcntl(2)). Who opens it
        # before it is closed here waits for that, and we are told: by a signal that is not SIGIO, which would end us.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        if seen.st_size:
            # Here and not when it is written again: ext4 writes a file to the disk as soon as it is closed after it was
            # cut to nothing (`auto_da_alloc` in ext4(5)); now there is nothing to be written.
            os.ftruncate(file, 0)
        return True
    finally:
        os.close(file)


def _rights(seen: os.stat_result) -> int:
    return stat.S_IMODE(seen.st_mode)
