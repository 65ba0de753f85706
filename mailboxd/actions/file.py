"""Writing one file outside the workspace: whole, durable, only over what a person has seen, never through a link."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mailboxd.actions.command import parts_of
from mailboxd.actions.gate import LARGEST, read_regular
from mailboxd.actions.result import End, Impossible, require_possible
from mailboxd.core.approvals import Performed
from mailboxd.mailbox.files import directory, lstat
from mailboxd.mailbox.layout import STATE

_NEW = 0o666
"""Less the umask: as any program makes a file."""


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def names_of(path: str, root: Path) -> list[str]:
    """The names on the way to the file. Raises Impossible for a path that may not be written."""
    if not path.startswith("/") or path.endswith("/"):
        raise Impossible(f"{path} is not the absolute path of a file")
    names = parts_of(path)
    ours = [*root.parts[1:], STATE]
    if names[: len(ours)] == ours:
        raise Impossible(f"{path} is in mailboxd's own directory")
    return names


@contextmanager
def folder(names: list[str]) -> Iterator[int]:
    """The directory of the file; no part of the way is a link. Raises Impossible."""
    with ExitStack() as held:
        try:
            fd = held.enter_context(directory(Path("/"), *names[:-1]))
        except OSError as error:
            where = "/" + "/".join(names[:-1])
            require_possible(where, error)
            raise Impossible(f"{where} cannot be entered without following links: {error.strerror}") from error
        yield fd


def present(fd: int, name: str) -> bytes | None:
    """What stands there, None if nothing does. Raises Impossible if that cannot be replaced by a file."""
    status = lstat(fd, name)
    if status is None:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Impossible(f"{name} is there and is not a regular file")
    try:
        raw = read_regular(fd, name, LARGEST)
    except OSError as error:
        require_possible(name, error)
        raise Impossible(f"{name} is there and cannot be read: {error.strerror}") from error
    if raw is None:
        raise Impossible(f"{name} is there and has more than {LARGEST} bytes")
    return raw


def write(path: str, root: Path, content: bytes, expected_sha256: str) -> End:
    """Put `content` there. `expected_sha256` is of what a person saw there, empty for nothing."""
    try:
        names = names_of(path, root)
        with folder(names) as fd:
            return _write(fd, names[-1], path, content, expected_sha256)
    except Impossible as why:
        return End(Performed.FAILED, str(why))


def _write(fd: int, name: str, path: str, content: bytes, expected_sha256: str) -> End:
    before = present(fd, name)
    if before == content:
        return End(Performed.DONE, f"{path} has that content already")
    if (sha256(before) if before is not None else "") != expected_sha256:
        return End(Performed.FAILED, f"{path} has changed since it was approved; nothing was written")
    hidden = f".{sha256(name.encode(errors='surrogateescape'))[:16]}.mailboxd.tmp"
    try:
        _lay(fd, hidden, content, _mode(fd, name))
        if present(fd, name) != before:
            os.unlink(hidden, dir_fd=fd)
            return End(Performed.FAILED, f"{path} has changed while it was about to be written; nothing was written")
        os.rename(hidden, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError as error:
        with suppress(OSError):
            os.unlink(hidden, dir_fd=fd)
        require_possible(path, error)
        return End(Performed.FAILED, f"{path} cannot be written: {error.strerror}")
    os.fsync(fd)
    return End(Performed.DONE, f"{path} is written: {len(content)} bytes, sha256 {sha256(content)}")


def _mode(fd: int, name: str) -> int | None:
    status = lstat(fd, name)
    return None if status is None else stat.S_IMODE(status.st_mode) & 0o777


def _lay(fd: int, hidden: str, content: bytes, mode: int | None) -> None:
    """Write it beside its place, durably; what lies there is of an earlier try that died."""
    with suppress(FileNotFoundError):
        os.unlink(hidden, dir_fd=fd)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(hidden, flags, _NEW if mode is None else 0o600, dir_fd=fd)
    with os.fdopen(file, "wb") as out:
        out.write(content)
        if mode is not None:
            os.fchmod(file, mode)
        out.flush()
        os.fsync(file)
