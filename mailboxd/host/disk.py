"""Free space on a disk: how much, whether it is enough to continue, and why nothing can be written."""

from __future__ import annotations

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
    import tempfile  # only when a write has failed

    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        written = file.write(_TRIAL)
        if written < len(_TRIAL):
            file.write(_TRIAL[written:])  # a short write is followed by the reason


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
