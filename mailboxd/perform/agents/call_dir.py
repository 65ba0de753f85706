"""The files of one call's directory. Agents of the same user can write there, so nothing in it is trusted.

Paths may be text: joining a `Path` costs more than the system call, and this happens for each call.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailboxd.errors import WorldError, world_error
from mailboxd.host.system import system

OUTPUT_CAP = 16 * 1024 * 1024
"""Default limit for stdout in bytes; a longer output is reported as truncated."""
PROMPT = "prompt.md"
CALL = "call"
TOOL = "tool"
"""The last tool that the turn has used (`agents.last_tool`), where the gateway says it."""
OUTPUT = ("stdout", "stderr")
_CHUNK = 64 * 1024
"""Bytes per read: a buffer of the cap's size would be mapped and unmapped for every short answer."""
STDERR_CAP = 64 * 1024
"""Limit for stderr in bytes; it is only displayed."""
KEPT_OUTPUT = 64 * 1024
"""Bytes kept of each oversized output file."""
LOOKED_UP = "lookedUp"
"""The field of an error by which `agents.gateway` says that the gateway was asked about the turn and cannot tell."""
_SPOILT = frozenset({errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENOTDIR, errno.EACCES})


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. `rc` is negative for a signal (as in `subprocess`), None if it is lost."""

    rc: int | None
    stdout: bytes
    stderr: bytes = b""
    truncated: bool = False
    """stdout is longer than the cap; `stdout` is its beginning."""
    is_open: bool = field(default=False, compare=False)
    """A process that the call has left running may still write to its output."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a program that runs a turn ends, as `openclaw agent --json` does: its exit status, the JSON for stdout, and
    the text for stderr."""

    status: int
    value: Mapping[str, Any] | None = None
    said: str = ""

    @classmethod
    def failure(cls, message: str, **accepted: object) -> TurnResult:
        """A turn without a result; `accepted` are the further fields of one that had been accepted (`runId` ...)."""
        return cls(1, {"ok": False, **accepted, "error": {"type": "cli_error", "message": message}})

    @property
    def files(self) -> Iterator[tuple[str, bytes]]:
        """The output files with their contents; a lone surrogate becomes its JSON escape."""
        stdout = "" if self.value is None else json.dumps(self.value, ensure_ascii=False)
        for name, text in (("stdout", stdout), ("stderr", self.said)):
            if text:
                yield name, text.encode("utf-8", "backslashreplace") + b"\n"


def output_size(directory: Path | str) -> int:
    """Bytes that the call has written to stdout and stderr so far; 0 for a file that cannot be checked now."""
    total = 0
    for name in OUTPUT:
        with suppress(OSError):
            total += os.lstat(f"{directory}/{name}").st_size
    return total


def cut_output(directory: Path | str, cap: int) -> None:
    """Free the disk space of an oversized output: its first 64 KiB stay, the rest becomes a hole.

    The size stays above the cap, so that the rest is not taken for a complete answer. A program that still writes
    appends behind the hole. A file with a second hard link is left alone.
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


def written(directory: Path | str, name: str, cap: int) -> tuple[bytes, bool, bool]:
    """The first `cap` bytes of an output, whether there are more, and whether a process has it open for writing, as
    far as the system tells. Raises OSError.
    """
    try:
        descriptor = open_regular(f"{directory}/{name}", os.O_RDONLY)
    except OSError as problem:
        if problem.errno == errno.ENOENT or is_spoilt(directory, problem):
            return b"", False, False
        raise
    try:
        return *_read(descriptor, cap), bool(system.is_being_written(descriptor))
    finally:
        os.close(descriptor)


def is_spoilt(directory: Path | str, problem: OSError) -> bool:
    """Whether a file is unreadable because the call replaced it, by a link for example: a retry would not help."""
    return problem.errno in _SPOILT and os.path.lexists(directory)


@contextmanager
def world(directory: Path | str) -> Iterator[None]:
    """Turn an OSError into a WorldError that names the call's directory."""
    try:
        yield
    except OSError as problem:
        raise refusal(directory, problem) from problem


def refusal(directory: Path | str, problem: OSError) -> WorldError:
    """The WorldError that `world` raises, for hot paths."""
    return world_error(f"{directory}: {problem}", problem)


def open_regular(path: Path | str, flags: int) -> int:
    """Open a regular file without following links or blocking on a FIFO. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def create(path: Path | str, flags: int = os.O_WRONLY) -> int:
    """Open a new file (0600), in place of one that an earlier try left there. Raises OSError.

    None is truncated: ext4 flushes a file that is closed after a truncation.
    """
    flags |= os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        os.unlink(path)  # noqa: PTH108
        return os.open(path, flags, 0o600)


def overwrite(path: Path | str, content: bytes) -> None:
    """Write a file, in place if it is there: that costs half as much as a new one. Raises OSError.

    Anything else with its name, and a file that has a second name, is replaced.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        if problem.errno not in _SPOILT | {errno.EISDIR}:
            raise
    else:
        try:
            seen = os.fstat(descriptor)
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1:
                write(descriptor, content)
                if seen.st_size > len(content):
                    os.ftruncate(descriptor, len(content))
                return
        finally:
            os.close(descriptor)
    put(path, content)


def put(path: Path | str, content: bytes) -> None:
    """Write a new file, in place of one that an earlier try left there. Raises OSError."""
    descriptor = create(path)
    try:
        write(descriptor, content)
    finally:
        os.close(descriptor)


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
    try:
        return _read(descriptor, cap)
    finally:
        os.close(descriptor)


def _read(descriptor: int, cap: int) -> tuple[bytes, bool]:
    parts, left = [], cap + 1
    while left and (part := os.read(descriptor, min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    raw = b"".join(parts)
    return raw[:cap], len(raw) > cap


def sync(directory: Path | str) -> None:
    """Make the directory's entries durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.sync(descriptor)
    finally:
        os.close(descriptor)
