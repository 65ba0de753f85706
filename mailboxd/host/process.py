"""This process and its machine: user name, reserved file descriptors, available memory."""

from __future__ import annotations

import errno
import os
import pwd
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


def name() -> str:
    """The user that this process runs as; `uid:<number>` for one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid:{os.getuid()}"


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


# Available memory on Linux: the minimum of `MemAvailable` and what each enclosing cgroup (v2) permits, counting file
# cache as free. Unreadable values are ignored.

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUP = re.compile(r"^0::(/.*)$", re.MULTILINE)
_CACHE = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)


def available(root: Path = Path("/")) -> int | None:
    """Bytes available to programs started from here; None if unknown.

    `root` contains `proc` and `sys`.
    """
    found = _AVAILABLE.search(_text(root / "proc/meminfo"))
    free = [int(found[1]) * 1024] if found else []
    free += [left for group in _groups(root) if (left := _left(group)) is not None]
    return max(min(free), 0) if free else None


def _groups(root: Path) -> Iterator[Path]:
    """This process's cgroup and its ancestors, whose limits all apply."""
    found = _CGROUP.search(_text(root / "proc/self/cgroup"))
    if found is None or "/.." in found[1]:
        return
    top = root / "sys/fs/cgroup"
    path = top / found[1].lstrip("/")
    yield from (path, *(parent for parent in path.parents if parent.is_relative_to(top)))


def _left(group: Path) -> int | None:
    limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    if not (limit.isdecimal() and used.isdecimal()):
        return None
    cache = _CACHE.search(_text(group / "memory.stat"))
    return int(limit) - int(used) + (int(cache[1]) if cache else 0)


def _text(path: Path) -> str:
    with suppress(OSError), path.open(encoding="ascii", errors="replace") as file:
        return file.read(65_536)
    return ""
