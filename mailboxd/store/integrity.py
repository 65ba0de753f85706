"""A look at the health of a database that changes nothing, and that a damaged one survives."""

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
from mailboxd.store.backup import settle
from mailboxd.store.database import connect, migrations
from mailboxd.store.event_log import GENESIS, Tip, chain
from mailboxd.store.row_mapping import OPEN

_NEWEST = 1_000
"""Events at the end of the chain that are checked; `mailboxd history --verify` checks all."""
_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found. `schema` is the database's version, `known` the newest one of this program."""

    path: str
    exists: bool
    schema: int = 0
    known: int = 0
    damage: tuple[str, ...] = ()
    """What SQLite itself finds wrong with the file."""
    broken: str = ""
    """Where the chain of events does not hold, of its newest 1,000."""
    latest: str = ""
    """When the newest event was recorded."""
    open_circuits: tuple[str, ...] = ()
    """Local ids of the tasks whose circuit is open, at most 1,000."""
    held: tuple[str, ...] = ()
    """Local ids of the tasks that are over their budget."""
    broken_agents: tuple[str, ...] = ()
    """Agents whose breaker is not closed."""


def examine(path: Path) -> Examination:
    """Examine the database at `path`. Raises WorldError when it cannot be opened."""
    if not path.exists():
        return Examination(str(path), exists=False)
    with closing(connect(path, read_only=True)) as db:
        try:
            return _examine(db, path)
        except sqlite3.Error as error:
            return Examination(str(path), exists=True, damage=(str(error),))


def _examine(db: sqlite3.Connection, path: Path) -> Examination:
    schema, known = int(db.execute("PRAGMA user_version").fetchone()[0]), len(migrations())
    found = [str(row[0]) for row in db.execute(f"PRAGMA quick_check({_PROBLEMS})")]
    damage = () if found == ["ok"] else tuple(found)
    if damage or schema != known:
        return Examination(str(path), exists=True, schema=schema, known=known, damage=damage)
    latest = db.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    circuits = db.execute("SELECT local_id FROM tasks WHERE phase = 'circuit_open' ORDER BY seq LIMIT 1000")
    held = db.execute(f"SELECT local_id FROM tasks WHERE held <> '' AND {OPEN} ORDER BY seq LIMIT 1000")
    breakers = db.execute("SELECT agent FROM breakers WHERE state <> 'closed' ORDER BY agent")
    return Examination(
        str(path),
        exists=True,
        schema=schema,
        known=known,
        held=tuple(row[0] for row in held),
        broken_agents=tuple(row[0] for row in breakers),
        broken=_break(db),
        latest=latest[0] if latest else "",
        open_circuits=tuple(row[0] for row in circuits),
    )


def _break(db: sqlite3.Connection) -> str:
    """The first of the newest events that does not follow from the one before; empty if all do."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Is the file that we have open still the one under its name? SQLite does not notice, and writes on into nothing.

_Identity = tuple[int, int] | None


@dataclass(slots=True)
class Place:
    """Where an open database lies: its file and its write-ahead log, by device and inode."""

    database: Path
    _names: tuple[str, str]
    """The two paths as text: they are looked at before every transaction."""
    _main: _Identity
    _wal: _Identity

    @classmethod
    def of(cls, database: Path) -> Place:
        names = str(database), f"{database}-wal"
        return cls(database, names, *map(_identity, names))

    def require(self, db: sqlite3.Connection) -> None:
        """Raise DamagedError if somebody has deleted or exchanged the files; all that `db` knows is saved first."""
        main, wal = map(_identity, self._names)
        if self._wal is None:
            self._wal = wal  # it comes with the first write
        if main == self._main and wal == self._wal:
            return
        what = "deleted" if main is None else "exchanged" if main != self._main else "parted from its -wal file"
        raise DamagedError(f"{self.database}: the database was {what} while it was in use. {self._rescue(db, main)}")

    def wal(self) -> tuple[int, int]:
        """Size of the write-ahead log and when it was last written, in ns; zeros where there is none."""
        try:
            status = os.lstat(self._names[1])
        except OSError:
            return 0, 0
        return status.st_size, status.st_mtime_ns

    def _rescue(self, db: sqlite3.Connection, main: _Identity) -> str:
        """Write what the open database says to a file: into its place, if nothing else lies there."""
        saved = self.database.with_name(f"{self.database.name}.rescued")
        try:
            saved.unlink(missing_ok=True)
            with closing(sqlite3.connect(saved)) as copy:
                saved.chmod(0o600)
                db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            settle(saved)
            exchanged = main not in (None, self._main)
            if not exchanged or _identity(self._names[1]) == self._wal:
                for ending in ("-wal", "-shm"):  # of the database that is no more: the next would take them for its own
                    with suppress(FileNotFoundError):
                        Path(f"{self.database}{ending}").unlink()
            if exchanged:
                return f"What it held is saved as {saved.name}; look which of the two is right"
            saved.replace(self.database)
            settle(self.database.parent)
        except (OSError, sqlite3.Error) as error:
            return f"What it held could not be saved: {error}"
        return "All that it held was saved, and is in its place again: start the daemon again"


def _identity(name: str) -> _Identity:
    try:
        status = os.lstat(name)
    except OSError:
        return None
    return status.st_dev, status.st_ino


# ---------------------------------------------------------------------------------------------------------------------
# How the database stood when mailboxd last wrote to it: what shows that it is an older one, or was changed since.
#
# `mailboxd.db.seal` is one line, written in its place after every commit: number and hash of the newest event, and
# inode,
# size and times of the database and its write-ahead log. A log that does not go through that event is an older one, or
# another. Files that stand as the line says were written by nobody else since, so what was verified then still holds.
#
# The line is never ahead of what is durable: it follows the commit. It is not synced. What a crash or a power cut
# takes of it costs a verification of the whole log, and nothing is refused because of that.

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
