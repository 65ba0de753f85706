"""Free space on a disk: how much, whether it is enough to continue, and why nothing can be written."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from pathlib import Path

LOW_WATER = 512 << 20
"""Bytes free below which the operator is warned."""
ENOUGH = 64 << 20
"""Bytes that must be free before work resumes after a full disk; of a small disk a quarter of it."""
_FEW_FILES = 64
_TRIAL = bytes(65_536)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def free(path: Path) -> int:
    """Free bytes on the disk of `path`. Raises OSError."""
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def why_low(path: Path) -> str:
    """A warning that space is low; empty if not, or if unknown. Raises nothing."""
    try:
        left = free(path)
    except OSError:
        return ""
    return f"only {left >> 20} MiB are free on the disk of {path}" if left < LOW_WATER else ""


def why_full(folder: Path, *files: Path) -> str:
    """Why nothing can be written to `folder` or appended to these files; empty if it can. Raises nothing."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    for file in files:
        if limit != resource.RLIM_INFINITY and _size(file) + len(_TRIAL) > limit:
            return f"{file} may not grow past the limit of {limit} bytes for a file (`ulimit -f`, LimitFSIZE=)"
    try:
        room = os.statvfs(folder)
        if room.f_files and not room.f_favail:
            return f"no inode is free on the disk of {folder} (`df -i {folder}`)"
        _try_to_write(folder)
    except OSError as error:
        return f"{folder}: {error.strerror} (`df {folder}`, `quota`)" if error.errno in _FULL else ""
    return ""


def why_not_enough(folder: Path, *files: Path) -> str:
    """Why there is not enough space to resume after a full disk; empty if there is. Raises OSError."""
    room = os.statvfs(folder)
    left, wanted = room.f_bavail * room.f_frsize, min(ENOUGH, room.f_blocks * room.f_frsize // 4)
    if left < wanted:
        return f"{left >> 10:,} KiB are free on the disk of {folder}, {wanted >> 10:,} KiB are needed to continue"
    if room.f_files and room.f_favail < min(_FEW_FILES, room.f_files // 4):
        return f"{room.f_favail} inodes are free on the disk of {folder} (`df -i {folder}`)"
    return why_full(folder, *files)


def _try_to_write(folder: Path) -> None:
    fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        written = os.write(fd, _TRIAL)
        if written < len(_TRIAL):
            os.write(fd, _TRIAL[written:])  # a short write is followed by the reason
    finally:
        os.close(fd)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


# Network file systems, where other machines may write too (statfs(2))

_KINDS = {
    0x6969: "NFS", 0x517B: "SMB", 0xFE534D42: "SMB", 0xFF534D42: "CIFS", 0x01021997: "9p", 0x65735546: "FUSE",
    0x00C36400: "Ceph", 0x5346414F: "AFS", 0x6B414653: "AFS", 0x73757245: "Coda", 0x0BD00BD0: "Lustre",
    0x01161970: "GFS2", 0x7461636F: "OCFS2", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x786F4256: "vboxsf",
}  # fmt: skip
"""File systems that another machine or a program may change without the kernel's knowledge, by `f_type` (magic.h)."""
_ENOUGH = 512
"""Bytes, more than any `struct statfs`, whose first member, a long, is `f_type`."""


def network_kind(path: Path) -> str:
    """Name of the network or FUSE file system of `path`; empty if it is local or unknown."""
    answer = ctypes.create_string_buffer(_ENOUGH)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), answer) != 0:
        return ""
    return _KINDS.get(ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF, "")
