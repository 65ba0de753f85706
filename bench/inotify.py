"""A minimal inotify binding: the floor under every watcher."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path

MODIFY, MOVED_TO = 0x2, 0x80
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """The watches of one process. Raises OSError if the kernel refuses one."""

    def __init__(self) -> None:
        self.fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def watch(self, path: Path, mask: int) -> None:
        if _libc.inotify_add_watch(self.fd, os.fsencode(path), mask) < 0:
            raise OSError(ctypes.get_errno(), f"inotify_add_watch {path}")

    def wait(self, seconds: float) -> list[str]:
        """The names of changed files as soon as there are any; empty after `seconds`."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return []
        raw, names, at = os.read(self.fd, 1 << 16), [], 0
        while at < len(raw):
            _, _, _, length = _EVENT.unpack_from(raw, at)
            at += _EVENT.size
            names.append(raw[at : at + length].rstrip(b"\0").decode())
            at += length
        return names

    def close(self) -> None:
        os.close(self.fd)
