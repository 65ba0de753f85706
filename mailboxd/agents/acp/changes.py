"""Which files changed while a harness worked, and how.

What changed is seen on the disk: sizes and times before and after. What stood there before is what git has committed,
or what the harness says it replaced. git is only asked for the objects that it keeps: `git diff` would run programs
that the directory's own configuration names, and a harness may have written that.
"""

from __future__ import annotations

import difflib
import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from mailboxd.agents.callfiles import read_capped

_MOST_FILES = 20_000
_SKIPPED = frozenset({".git", ".mailboxd", "node_modules", ".venv", "__pycache__"})
_FILE_CAP = 262_144
_DIFF_CAP = 524_288
_NAMED = 1_000

Stamps = Mapping[str, tuple[int, int, int]]


def stamps(root: str) -> Stamps:
    """Size, time and inode of the regular files below `root`, at most 20,000; links are not followed.

    Of a whole workspace without mail and tasks: those are ours to change.
    """
    ours = [str(Path(root, name)) for name in ("mailbox", "tasks")] if Path(root, ".mailboxd").is_dir() else []
    found: dict[str, tuple[int, int, int]] = {}
    folders = [root]
    while folders and len(found) < _MOST_FILES:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED and entry.path not in ours:
                        folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and len(found) < _MOST_FILES:
                    status = entry.stat(follow_symlinks=False)
                    found[os.path.relpath(entry.path, root)] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def touched(root: str, before: Stamps, after: Stamps, said: Iterable[str]) -> list[str]:
    """The files that changed, relative to `root`: as the disk shows it, and as the harness says."""
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    for path in said:
        if not (name := _name(root, path)).startswith("../"):
            changed.add(name)
    return sorted(changed)[:_NAMED]


def _name(root: str, path: str) -> str:
    return os.path.relpath(os.path.realpath(os.path.join(root, path)), root)  # noqa: PTH118


def diff(root: str, names: Iterable[str], before: Stamps, said: Iterable[tuple[str, str, str]]) -> str:
    """How they changed, as a unified diff, cut where it becomes too long."""
    told: dict[str, list[tuple[str, str]]] = {}
    for path, old, new in said:
        told.setdefault(_name(root, path), []).append((old, new))
    parts: list[str] = []
    size = 0
    for name in names:
        part = _changed(root, name, name in before, told.get(name, ()))
        size += len(part)
        if size > _DIFF_CAP:
            parts.append(f"(cut: the rest, from {name} on, would make it longer than {_DIFF_CAP} characters)\n")
            break
        parts.append(part)
    return "".join(parts)


def _changed(root: str, name: str, existed: bool, said: Iterable[tuple[str, str]]) -> str:
    committed = _committed(root, name)
    if committed is not None or not existed:
        return _one(name, committed or b"", _now(root, name))
    shown = "".join(_one(name, old.encode(), new.encode()) for old, new in said)
    return shown or f"{name} changed; what stood there before is not known\n"


def _one(name: str, old: bytes, new: bytes) -> str:
    if old == new:
        return ""
    try:
        texts = [raw.decode() for raw in (old, new)]
    except UnicodeDecodeError:
        return f"Binary file {name} differs\n"
    if "\0" in texts[0] + texts[1]:
        return f"Binary file {name} differs\n"
    lines = [text.splitlines(keepends=True) for text in texts]
    names = ("a/" + name if old else "/dev/null", "b/" + name if new else "/dev/null")
    shown = difflib.unified_diff(lines[0], lines[1], names[0], names[1])
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in shown)


def _now(root: str, name: str) -> bytes:
    try:
        raw, truncated = read_capped(Path(root, name), _FILE_CAP)
    except OSError:
        return b""
    return raw + b"\0" if truncated else raw  # what is too long is shown as a binary file is


def _committed(root: str, name: str) -> bytes | None:
    """What git has of it, without any filter; None where there is no git, or it has nothing."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", root, "cat-file", "blob", f"HEAD:./{name}"]
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as git:
            raw = git.stdout.read(_FILE_CAP + 1) if git.stdout else b""
            if len(raw) > _FILE_CAP:
                git.kill()
                return raw + b"\0"
    except OSError:
        return None
    return raw if git.returncode == 0 else None
