"""How the database stood when mailboxd last wrote to it: what shows that it is an older one, or was changed since.

`mailboxd.db.seal` is one line, written in its place after every commit: number and hash of the newest event, and inode,
size and times of the database and its write-ahead log. A log that does not go through that event is an older one, or
another. Files that stand as the line says were written by nobody else since, so what was verified then still holds.

The line is never ahead of what is durable: it follows the commit. It is not synced. What a crash or a power cut takes
of it costs a verification of the whole log, and nothing is refused because of that.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mailboxd.store.log import Tip

_SIZE = 512
"""Bytes of the line, always: so it is overwritten in one piece, also on a full disk."""

Files = list[list[int]]
"""Inode, size and times of the last change in ns, of the database and of its write-ahead log if anything is in that."""


class Line(NamedTuple):
    """What the file says. `files` is empty where it is not known that nobody else has written to them."""

    tip: Tip
    files: Files


class Seal:
    """The seal of one open database. Nothing here raises: without it more is verified, that is all."""

    def __init__(self, database: Path) -> None:
        self._names = str(database), f"{database}-wal"
        self._path = f"{database}.seal"
        self._fd = -1
        self._written = b""
        self._is_silent = False
        self._inode = _inode(self._names[0])
        self._left: Files | None = None
        """How the files stood after the last transaction or checkpoint here."""
        self.is_whole = False
        """Whether every byte of the log is known to be what mailboxd wrote: verified, or sealed ever since."""

    def read(self) -> Line | None:
        """What stands there; None when there is none, or nothing that can be understood."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                said = json.loads(os.read(fd, _SIZE))
            finally:
                os.close(fd)
            return Line(Tip(int(said["seq"]), str(said["hash"])), [list(map(int, file)) for file in said["files"]])
        return None

    def meet(self, tip: Tip) -> None:
        """Inside a transaction, before its first write: others may have written since. `tip`: where the log ends."""
        line = self.read()
        self._left = self._files()
        self.is_whole = line is not None and line == Line(tip, self._left)
        # an older database must not overwrite what shows that it is older
        self._is_silent = line is not None and (
            line.tip.seq > tip.seq or (line.tip.seq == tip.seq and line.tip.hash != tip.hash)
        )
        self._written = b""

    def look(self) -> None:
        """Before anything is written here: nobody has written to the files past SQLite, which notices only its own."""
        if self.is_whole and self._left is not None and self._files() != self._left:
            self.is_whole = False

    def note(self, tip: Tip) -> None:
        """Write the line, if it says something else now; after a commit, or a checkpoint."""
        if self._is_silent:
            return
        self._left = self._files()
        files = self._left if self.is_whole else []  # their text is JSON already
        raw = f'{{"seq":{tip.seq},"hash":"{tip.hash}","files":{files}}}'.encode().ljust(_SIZE - 1) + b"\n"
        if raw == self._written:
            return
        with suppress(OSError):
            if self._fd < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            os.pwrite(self._fd, raw, 0)
            self._written = raw

    def closed(self, tip: Tip) -> None:
        """The database was closed. Where that has emptied its log into it, nobody else has it open: it is sealed so."""
        if self.is_whole and not os.path.lexists(self._names[1]) and _inode(self._names[0]) == self._inode:
            self.note(tip)
        self.release()

    def forget(self) -> None:
        """Another log lies there, by a person's order: what was noted is not about it."""
        with suppress(OSError):
            Path(self._path).unlink()
        self.release()
        self._is_silent, self._written = False, b""

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _files(self) -> Files:
        found = []
        for name in self._names:
            try:
                status = os.lstat(name)
            except OSError:
                continue
            if status.st_size and stat.S_ISREG(status.st_mode):
                # to open the log as root changes its inode (SQLite gives it the owner of the database)
                times = [status.st_mtime_ns] if name.endswith("-wal") else [status.st_mtime_ns, status.st_ctime_ns]
                found.append([status.st_ino, status.st_size, *times])
        return found


def _inode(name: str) -> int:
    try:
        return os.lstat(name).st_ino
    except OSError:
        return 0
