"""How much memory programs may still take on this machine, as the kernel says it. Linux only; cgroup v2.

The least of two: what the machine has (`MemAvailable`), and what each cgroup we are in may still take, with the file
cache counted as free because the kernel gives it back. What cannot be read limits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUP = re.compile(r"^0::(/.*)$", re.MULTILINE)
_CACHE = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)


def available(root: Path = Path("/")) -> int | None:
    """Bytes that programs started from here may still take; None where the kernel does not say.

    `root` is where `proc` and `sys` are looked for.
    """
    found = _AVAILABLE.search(_text(root / "proc/meminfo"))
    free = [int(found[1]) * 1024] if found else []
    free += [left for group in _groups(root) if (left := _left(group)) is not None]
    return max(min(free), 0) if free else None


def _groups(root: Path) -> Iterator[Path]:
    """Our cgroup and those around it: the limit of each holds for us."""
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
