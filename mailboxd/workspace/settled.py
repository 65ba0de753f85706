"""Reading a file only when nobody is still writing it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from mailboxd.workspace.files import Stamp, is_being_written, open_regular, read_up_to


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Not yet. `until` is when it is worth another look (seconds since 1970); None: when something changes."""

    text: str
    until: float | None = None
    denied: bool = False
    """The file exists, but not for us."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a file must have been quiet: where the kernel says that nobody has it open, and where it does not.

    A closed file can be opened again: between two `echo ... >> file` nobody has it open.
    """

    closed: float
    unknown: float


def read_settled(
    dir_fd: int, name: str, seen: Stamp, quiet_since: float, now: float, patience: Patience
) -> bytes | Unsettled:
    """The whole file, if no writer has it open, it has been quiet for long enough, and it is still what `seen` saw.

    It has been quiet since `quiet_since` (seconds since 1970, like `now`). The kernel does not say of other users'
    files, and on some file systems of none, whether they are open. Reads at most the size that `seen` saw.
    """
    if now < quiet_since + patience.closed:
        return Unsettled("it was written a moment ago", quiet_since + patience.closed)
    try:
        fd = open_regular(dir_fd, name)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM}:
            return Unsettled(f"uid {os.geteuid()} may not read it", denied=True)
        raise
    if fd is None:
        return Unsettled("it changed while it was looked at", now)
    try:
        written = is_being_written(fd)
        if written:
            return Unsettled("a writer has it open")
        if written is None and now < quiet_since + patience.unknown:
            return Unsettled("it was written a moment ago", quiet_since + patience.unknown)
        raw = read_up_to(fd, seen.size + 1)
        if Stamp.of(os.fstat(fd)) != seen or len(raw) != seen.size:
            return Unsettled("it changed while it was read", now + patience.unknown)
        return raw
    finally:
        os.close(fd)
