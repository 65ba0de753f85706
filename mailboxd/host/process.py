"""This process: its user, its cores, reserved file descriptors."""

from __future__ import annotations

import errno
import os
import pwd
from dataclasses import dataclass, field
from functools import lru_cache

from mailboxd.core.entrance import Owner


def name() -> str:
    """The user that this process runs as; `uid:<number>` for one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid:{os.getuid()}"


def owner(uid: int, now: float) -> Owner:
    """A user of this machine, by the name that they have at `now` (seconds), give or take a minute."""
    return _owner(uid, int(now // 60))


@lru_cache(maxsize=64)
def _owner(uid: int, minute: int) -> Owner:  # noqa: ARG001
    try:
        return Owner(uid, pwd.getpwuid(uid).pw_name)
    except KeyError:
        return Owner(uid)


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# File descriptors kept in reserve, so that the daemon can continue when there are no others

_HELD = 12
"""More than one round needs at a time."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


@dataclass(slots=True)
class Reserve:
    """While it is spent, intake and filing continue with its descriptors, and no call is started."""

    why: str = ""
    """Why it is spent; empty if it is not."""
    _held: list[int] = field(default_factory=list)

    def refill(self) -> None:
        """Reserve descriptors again, as far as available."""
        try:
            while len(self._held) < _HELD:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            self._release(error)
        else:
            self.why = ""

    def spend(self, cause: BaseException | None) -> bool:
        """Release all if `cause` is a lack of descriptors; returns whether it is."""
        is_it = isinstance(cause, OSError) and cause.errno in _EXHAUSTED
        if isinstance(cause, OSError) and is_it:
            self._release(cause)
        return is_it

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _release(self, error: OSError) -> None:
        self.close()
        self.why = f"{error.strerror}: no call is begun until there are more (`ulimit -n`, LimitNOFILE=)"
