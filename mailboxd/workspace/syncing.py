"""Making many files durable in one go: syncfs(2), which Python does not have."""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache

MANY = 32
"""Files from which on the file system is synced as a whole: that also waits for what others have written to it, so it
is not done for a few."""

_libc = ctypes.CDLL(None, use_errno=True)


@cache
def sync_reports_errors() -> bool:
    """Whether syncfs says what could not be written: Linux does since 5.8, and before that it proves nothing."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return hasattr(_libc, "syncfs") and found is not None and (int(found[1]), int(found[2])) >= (5, 8)


def sync_file_system(fd: int) -> None:
    """Writes out everything of the file system that `fd` lies on, names and contents. Raises OSError."""
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
