"""inotify(7) for a few directories, without threads: what the kernel has noted is read by who has time for it."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CLOSE_WRITE, MOVED_TO, CREATE = 0x8, 0x80, 0x100
DELETE_SELF, MOVE_SELF, IGNORED = 0x400, 0x800, 0x8000
OVERFLOW = 0x4000
"""The kernel had no room for all that happened."""
_ONLY_DIRECTORY, _DO_NOT_FOLLOW = 0x1000000, 0x2000000

_EVENT = struct.Struct("iIII")
_READ_AT_ONCE = 1 << 14
_LONGEST = _EVENT.size + 256
"""Bytes of an event: a name has 255 at most, and a zero behind it."""
_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """An inotify instance, which a selector can wait for. Raises OSError where the kernel refuses one."""

    def __init__(self) -> None:
        self._fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _refused()

    def fileno(self) -> int:
        return self._fd

    def watch(self, directory: Path, mask: int) -> int:
        """The number under which `events` speaks of this directory. A second call replaces the mask. Raises OSError."""
        number = _libc.inotify_add_watch(self._fd, os.fsencode(directory), mask | _ONLY_DIRECTORY | _DO_NOT_FOLLOW)
        if number < 0:
            raise _refused()
        return int(number)

    def events(self) -> Iterator[tuple[int, int, bytes]]:
        """What has happened and was not read yet: in which directory, what, and the name in it. Waits for nothing."""
        with suppress(BlockingIOError):
            full = True
            while full:  # else there was no more, which to ask again costs as much as to hear of one file
                raw = os.read(self._fd, _READ_AT_ONCE)
                full, at = len(raw) > _READ_AT_ONCE - _LONGEST, 0
                while at < len(raw):
                    number, mask, _, length = _EVENT.unpack_from(raw, at)
                    at += _EVENT.size + length
                    yield number, mask, raw[at - length : at].rstrip(b"\0")

    def close(self) -> None:
        os.close(self._fd)


def _refused() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
