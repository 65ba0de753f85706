"""flock(2) without waiting."""

from __future__ import annotations

import fcntl


def try_lock(fd: int, kind: int) -> bool:
    """Lock the file (`LOCK_SH`, `LOCK_EX`) unless others hold it; returns whether it is locked now. Raises OSError.

    Whoever only looks whether it is held locks it shared, so that concurrent looks do not disturb each other.
    """
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
