"""Writes one file outside the workspace: atomic, durable, only over the previewed content, never through a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mailboxd.core.approvals import Performed
from mailboxd.formats.mailbox.files import directory, lstat
from mailboxd.formats.mailbox.layout import STATE
from mailboxd.host.system import system
from mailboxd.perform.actions.command import parts_of
from mailboxd.perform.actions.gate import LARGEST, read_regular, sha256
from mailboxd.perform.actions.result import ActionResult, Impossible, raise_if_transient

_NEW = 0o666
"""Minus the umask, as for any new file."""


def names_of(path: str, root: Path) -> list[str]:
    """The components of the path. Raises Impossible for a path that may not be written."""
    if not path.startswith("/") or path.endswith("/"):
        raise Impossible(f"{path} is not the absolute path of a file")
    names = parts_of(path)
    state = [*root.parts[1:], STATE]
    if names[: len(state)] == state:
        raise Impossible(f"{path} is in mailboxd's own directory")
    return names


@contextmanager
def parent_directory(names: list[str]) -> Iterator[int]:
    """The directory of the file, opened without following links. Raises Impossible."""
    with ExitStack() as held:
        try:
            fd = held.enter_context(directory(Path("/"), *names[:-1]))
        except OSError as error:
            where = "/" + "/".join(names[:-1])
            raise_if_transient(where, error)
            raise Impossible(f"{where} cannot be opened without following links: {error.strerror}") from error
        yield fd


def current_content(fd: int, name: str) -> bytes | None:
    """The content of the file, None if there is none. Raises Impossible if it cannot be replaced."""
    status = lstat(fd, name)
    if status is None:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Impossible(f"{name} exists and is not a regular file")
    try:
        raw = read_regular(fd, name, LARGEST)
    except OSError as error:
        raise_if_transient(name, error)
        raise Impossible(f"{name} exists and cannot be read: {error.strerror}") from error
    if raw is None:
        raise Impossible(f"{name} exists and has more than {LARGEST} bytes")
    return raw


def write(path: str, root: Path, content: bytes, expected_sha256: str) -> ActionResult:
    """Write `content`. `expected_sha256` is of the previewed content, empty if there was no file."""
    try:
        names = names_of(path, root)
        with parent_directory(names) as fd:
            return _write(fd, names[-1], path, content, expected_sha256)
    except Impossible as why:
        return ActionResult(Performed.FAILED, str(why))


def _write(fd: int, name: str, path: str, content: bytes, expected_sha256: str) -> ActionResult:
    before = current_content(fd, name)
    if before == content:
        return ActionResult(Performed.DONE, f"{path} already has that content")
    if (sha256(before) if before is not None else "") != expected_sha256:
        return ActionResult(Performed.FAILED, f"{path} has changed since it was approved; nothing was written")
    temporary = f".{sha256(name.encode(errors='surrogateescape'))[:16]}.mailboxd.tmp"
    try:
        _write_temporary(fd, temporary, content, _mode(fd, name))
        if current_content(fd, name) != before:
            os.unlink(temporary, dir_fd=fd)
            return ActionResult(
                Performed.FAILED, f"{path} changed just before it was to be written; nothing was written"
            )
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=fd)
        raise_if_transient(path, error)
        return ActionResult(Performed.FAILED, f"{path} cannot be written: {error.strerror}")
    system.sync(fd)
    return ActionResult(Performed.DONE, f"{path} was written: {len(content)} bytes, sha256 {sha256(content)}")


def _mode(fd: int, name: str) -> int | None:
    status = lstat(fd, name)
    return None if status is None else stat.S_IMODE(status.st_mode) & 0o777


def _write_temporary(fd: int, temporary: str, content: bytes, mode: int | None) -> None:
    """Write the temporary file durably, replacing one that an earlier attempt left."""
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=fd)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, _NEW if mode is None else 0o600, dir_fd=fd)
    with os.fdopen(file, "wb") as out:
        out.write(content)
        if mode is not None:
            os.fchmod(file, mode)
        out.flush()
        system.sync(file)
