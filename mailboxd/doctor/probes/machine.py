"""What the kernel says of this machine. Linux only."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mailboxd.doctor.facts import Inotify

_PROC = Path("/proc")
_LIMITS = _PROC / "sys/fs/inotify"
_TIMEX_BYTES, _STATUS_AT, _UNSYNCHRONISED = 512, 40, 0x40
"""`struct timex` on 64-bit Linux: more than large enough, where `status` lies in it, and its bit STA_UNSYNC."""


def inotify() -> Inotify:
    """The limits, and what all processes of this user have taken. Raises OSError."""
    instances = watches = 0
    for descriptors in _own_processes():
        with suppress(OSError):  # gone meanwhile, or it lets nobody look
            for held in descriptors.iterdir():
                if str(held.readlink()) == "anon_inode:inotify":
                    instances += 1
                    text = (descriptors.parent / "fdinfo" / held.name).read_text(encoding="ascii", errors="replace")
                    watches += len(re.findall(r"^inotify wd:", text, re.MULTILINE))
    return Inotify(instances, _limit("max_user_instances"), watches, _limit("max_user_watches"))


def open_files() -> int:
    """How many descriptors a process may have (the soft limit)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def synchronised() -> bool | None:
    """Whether something keeps the kernel's clock right (adjtimex, which only asks here); None where it cannot say."""
    adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    if adjtimex is None or struct.calcsize("l") != 8:
        return None
    answer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zero: `modes` 0 changes nothing
    if adjtimex(answer) < 0:
        return None
    (status,) = struct.unpack_from("i", answer, _STATUS_AT)
    return not status & _UNSYNCHRONISED


def _limit(name: str) -> int:
    return int((_LIMITS / name).read_text(encoding="ascii"))


def _own_processes() -> Iterator[Path]:
    """The descriptors of each process of this user: the limits count per user."""
    for process in _PROC.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if process.stat().st_uid == os.getuid():
                    yield process / "fd"
