"""Checks of a database file: damage, replacement while it is open, and changes that mailboxd did not make."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mailboxd.errors import DamagedError
from mailboxd.store.backup import make_durable
from mailboxd.store.database import connect, migrations
from mailboxd.store.event_log import GENESIS, Tip, chain

_NEWEST = 1_000
"""Events at the end of the chain that are checked; `mailboxd db verify` checks all."""
_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """The result of a check. `schema` is the version of the database, `known` the latest one of this program."""

    path: str
    exists: bool
    schema: int = 0
    known: int = 0
    damage: tuple[str, ...] = ()
    """Errors that SQLite reports about the file."""
    broken: str = ""
    """The first error in the newest 1,000 events of the chain."""
    latest: str = ""
    """When the latest event was recorded."""


def check_database(path: Path) -> DatabaseCheck:
    """Check the database at `path` read-only; works on a damaged one. Raises WorldError if it cannot be opened."""
    if not path.exists():
        return DatabaseCheck(str(path), exists=False)
    with closing(connect(path, read_only=True)) as db:
        try:
            return _check_database(db, path)
        except sqlite3.Error as error:
            return DatabaseCheck(str(path), exists=True, damage=(str(error),))


def _check_database(db: sqlite3.Connection, path: Path) -> DatabaseCheck:
    schema, known = int(db.execute("PRAGMA user_version").fetchone()[0]), len(migrations())
    found = [str(row[0]) for row in db.execute(f"PRAGMA quick_check({_PROBLEMS})")]
    damage = () if found == ["ok"] else tuple(found)
    if damage or schema != known:
        return DatabaseCheck(str(path), exists=True, schema=schema, known=known, damage=damage)
    latest = db.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return DatabaseCheck(
        str(path),
        exists=True,
        schema=schema,
        known=known,
        broken=_first_error(db),
        latest=latest[0] if latest else "",
    )


def _first_error(db: sqlite3.Connection) -> str:
    """The first error in the newest events of the chain, or an empty string."""
    rows = db.execute(
        "SELECT seq, at, kind, task, role, actor, data, hash FROM events ORDER BY seq DESC LIMIT ?", (_NEWEST + 1,)
    ).fetchall()[::-1]
    first = rows.pop(0) if len(rows) > _NEWEST else None
    last, before = (first[0], first[7]) if first else (0, GENESIS)
    for row in rows:
        if row[0] != last + 1:
            return f"event {last + 1} is missing"
        if chain(before, row[:7]) != row[7]:
            return f"event {row[0]} is not what was recorded"
        last, before = row[0], row[7]
    return ""


# Whether the open file is still the one at its path. SQLite does not notice a replacement and keeps writing.

_Identity = tuple[int, int] | None


@dataclass(slots=True)
class DatabaseFile:
    """Identity of an open database: device and inode of its file and its write-ahead log."""

    database: Path
    _names: tuple[str, str]
    """Both paths as text, because they are checked before every transaction."""
    _main: _Identity
    _wal: _Identity

    @classmethod
    def of(cls, database: Path) -> DatabaseFile:
        names = str(database), f"{database}-wal"
        return cls(database, names, *map(_identity, names))

    def require(self, db: sqlite3.Connection) -> None:
        """Raise DamagedError if the files were deleted or replaced, after saving the contents of `db`."""
        main, wal = map(_identity, self._names)
        if self._wal is None:
            self._wal = wal  # created by the first write
        if main == self._main and wal == self._wal:
            return
        what = "deleted" if main is None else "replaced" if main != self._main else "separated from its -wal file"
        raise DamagedError(f"{self.database}: the database was {what} while it was in use. {self._rescue(db, main)}")

    def wal(self) -> tuple[int, int]:
        """Size of the write-ahead log and its mtime in ns; zeros if there is none."""
        try:
            status = os.lstat(self._names[1])
        except OSError:
            return 0, 0
        return status.st_size, status.st_mtime_ns

    def _rescue(self, db: sqlite3.Connection, main: _Identity) -> str:
        """Save the contents of the open database: in its place, if no other file is there."""
        saved = self.database.with_name(f"{self.database.name}.rescued")
        try:
            saved.unlink(missing_ok=True)
            with closing(sqlite3.connect(saved)) as copy:
                saved.chmod(0o600)
                db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            make_durable(saved)
            replaced = main not in (None, self._main)
            if not replaced or _identity(self._names[1]) == self._wal:
                for ending in ("-wal", "-shm"):  # of the deleted database: the next one would use them
                    with suppress(FileNotFoundError):
                        Path(f"{self.database}{ending}").unlink()
            if replaced:
                return f"Its contents were saved as {saved.name}; decide which of the two is right"
            saved.replace(self.database)
            make_durable(self.database.parent)
        except (OSError, sqlite3.Error) as error:
            return f"Its contents could not be saved: {error}"
        return "Its contents were saved and put back in place: start the daemon again"


def _identity(name: str) -> _Identity:
    try:
        status = os.lstat(name)
    except OSError:
        return None
    return status.st_dev, status.st_ino


# The seal: the state of the database when mailboxd last wrote to it. It shows that a database is older, or was changed
# by another program.
#
# `mailboxd.db.seal` is one line, overwritten in place after every commit: number and hash of the latest event, and
# inode, size and times of the database and its write-ahead log. A log without that event is older, or another one. If
# the files match the line, only mailboxd has written to them, and earlier verification still holds.
#
# The line is written after the commit, so it is never ahead of what is durable, and it is not synced: if a crash loses
# it, the whole log is verified again, and nothing is refused.

_SIZE = 512
"""Fixed, so that the line is overwritten in one piece even on a full disk."""

Files = list[list[int]]
"""Inode, size, and mtime and ctime in ns of the database, and of its write-ahead log unless that is empty."""


class Line(NamedTuple):
    """The contents of the file. `files` is empty if another program may have written to them."""

    tip: Tip
    files: Files


class Seal:
    """The seal of an open database. Never raises: without a seal more is verified."""

    def __init__(self, database: Path) -> None:
        self._names = str(database), f"{database}-wal"
        self._path = f"{database}.seal"
        self._fd = -1
        self._written = b""
        self._is_silent = False
        self._inode = _inode(self._names[0])
        self._left: Files | None = None
        """The state of the files after the last transaction or checkpoint here."""
        self.is_intact = False
        """Whether the log is known to be as mailboxd wrote it: verified, or sealed ever since."""

    def read(self) -> Line | None:
        """The contents; None if the file is missing or invalid."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                said = json.loads(os.read(fd, _SIZE))
            finally:
                os.close(fd)
            return Line(Tip(int(said["seq"]), str(said["hash"])), [list(map(int, file)) for file in said["files"]])
        return None

    def compare(self, tip: Tip) -> None:
        """Compare with the seal at the start of a transaction, because other processes may have written. `tip` is the
        end of the log.
        """
        line = self.read()
        self._left = self._files()
        self.is_intact = line is not None and line == Line(tip, self._left)
        # an older database must not overwrite the evidence that it is older
        self._is_silent = line is not None and (
            line.tip.seq > tip.seq or (line.tip.seq == tip.seq and line.tip.hash != tip.hash)
        )
        self._written = b""

    def detect_writes(self) -> None:
        """Detect writes that bypassed SQLite, which only notices its own. Call before writing."""
        if self.is_intact and self._left is not None and self._files() != self._left:
            self.is_intact = False

    def write(self, tip: Tip) -> None:
        """Write the line if it changed. Call after a commit or checkpoint."""
        if self._is_silent:
            return
        self._left = self._files()
        files = self._left if self.is_intact else []  # printed as JSON
        raw = f'{{"seq":{tip.seq},"hash":"{tip.hash}","files":{files}}}'.encode().ljust(_SIZE - 1) + b"\n"
        if raw == self._written:
            return
        with suppress(OSError):
            if self._fd < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            os.pwrite(self._fd, raw, 0)
            self._written = raw

    def close(self, tip: Tip) -> None:
        """Seal a closed database. If no write-ahead log remains, no other process has it open."""
        if self.is_intact and not os.path.lexists(self._names[1]) and _inode(self._names[0]) == self._inode:
            self.write(tip)
        self.release()

    def forget(self) -> None:
        """Remove the seal, because the log was replaced on an operator's order."""
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
                # opening the log as root changes its ctime: SQLite gives it the owner of the database
                times = [status.st_mtime_ns] if name.endswith("-wal") else [status.st_mtime_ns, status.st_ctime_ns]
                found.append([status.st_ino, status.st_size, *times])
        return found


def _inode(name: str) -> int:
    try:
        return os.lstat(name).st_ino
    except OSError:
        return 0
