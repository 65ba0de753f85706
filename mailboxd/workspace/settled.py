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


def read_settled(
    dir_fd: int, name: str, seen: Stamp, quiet_since: float, now: float, settle_seconds: float
) -> bytes | Unsettled:
    """The whole file, if no writer has it open and it is still what `seen` saw.

    The kernel answers whether it is open. Where it does not (other users' files), the file must have been quiet for
    `settle_seconds`, since `quiet_since` (seconds since 1970, like `now`). Reads at most the size that `seen` saw.
    """
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
        if written is None and now < quiet_since + settle_seconds:
            return Unsettled("it was written a moment ago", quiet_since + settle_seconds)
        raw = read_up_to(fd, seen.size + 1)
        if Stamp.of(os.fstat(fd)) != seen or len(raw) != seen.size:
            return Unsettled("it changed while it was read", now + settle_seconds)
        return raw
    finally:
        os.close(fd)
