"""The files of one call's directory, read and written with distrust: agents of the same user can reach them.

A directory may be given as text: to join a `Path` costs more than the system call that it is for, and this is done for
each call.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import WorldError, world_error

OUTPUT_CAP = 16 * 1024 * 1024
"""Bytes of standard output that are read by default; a longer one is reported as truncated."""
PROMPT = "prompt.md"
CALL = "call"
OUTPUT = ("stdout", "stderr")
_FILES = (PROMPT, *OUTPUT, CALL)
"""What the directory of a plain call holds. The mark is removed last: without it, the call would count as never run."""
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
            for name in _FILES:
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
        mode = os.lstat(directory).st_mode  # usually it exists: the prompt was written before
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
