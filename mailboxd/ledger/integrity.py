"""Checks of a database file: damage, replacement while it is open, and changes that mailboxd did not make."""

from __future__ import annotations

import fcntl
import json
import os
import select
import sqlite3
import stat
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mailboxd.errors import BusyError, DamagedError, NoRoomError, WorldError
from mailboxd.ledger import event_log
from mailboxd.ledger.backup import make_durable, prove, remove
from mailboxd.ledger.database import connect, migrations, recreation, storage_errors, store_error
from mailboxd.ledger.event_log import GENESIS, Tip, chain
from mailboxd.ledger.presence import lost

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
    lost: str = ""
    """How it is known that it was lost (`presence.lost`)."""
    damage: tuple[str, ...] = ()
    """Errors that SQLite reports about the file."""
    broken: str = ""
    """The first error in the newest 1,000 events of the chain."""
    latest: str = ""
    """When the latest event was recorded."""


def check_database(path: Path) -> DatabaseCheck:
    """Check the database at `path` read-only; works on a damaged one.

    Raises WorldError if it cannot be opened, or not be read now: the disk is full, others hold a lock.
    """
    if (how := lost(path)) or not path.exists():
        return DatabaseCheck(str(path), exists=path.exists(), lost=how)
    with closing(connect(path, read_only=True)) as db:
        try:
            return _check_database(db, path)
        except sqlite3.Error as error:
            problem = store_error(error, "cannot be read", path)
            if isinstance(problem, (BusyError, NoRoomError)):
                raise problem from error
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


# Whether the open file is still the one at its path, and what this process and SQLite's other users have written to it.
# SQLite notices neither and keeps writing.

Seen = tuple[os.stat_result | None, os.stat_result | None]
"""The database and its write-ahead log at one moment; None: there is no such file."""


def _look(names: tuple[str, str]) -> Seen:
    found: list[os.stat_result | None] = []
    for name in names:
        try:
            found.append(os.lstat(name))
        except OSError:
            found.append(None)
    return found[0], found[1]


_Identity = tuple[int, int] | None
_HEADER = struct.Struct(">16s8xI")
"""The magic string, and the change counter at offset 24 (https://www.sqlite.org/fileformat2.html#the_database_header).

The counter is raised with each change of the first page, which is changed whenever the file grows: it never goes back.
"""
_MAGIC = b"SQLite format 3\0"
_headers: dict[_Identity, int] = {}
"""Descriptors for reading headers, by file. They stay open for as long as the process runs: closing one would release
the locks that SQLite holds on the file (https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_)."""


@dataclass(frozen=True, slots=True)
class _Content:
    """What the main file is known to hold: its size and times, and its change counter (None: it has no header)."""

    size: int
    changed: int
    counter: int | None

    def problem(self, later: _Content) -> str:
        """How `later` shows that the file was overwritten since, as a verb; empty if it does not."""
        if later.counter is None:
            return "truncated or overwritten"
        if self.counter is not None and later.counter < self.counter:
            return "overwritten with another one"
        if later.counter == self.counter and later.size < self.size:
            return "truncated, or overwritten with an older one"
        return ""


@dataclass(slots=True)
class DatabaseFile:
    """Identity of an open database: device and inode of its file and its write-ahead log."""

    database: Path
    _names: tuple[str, str]
    """Both paths as text, because they are checked before every transaction."""
    _main: _Identity
    _wal: _Identity
    _content: _Content

    @classmethod
    def of(cls, database: Path) -> DatabaseFile:
        names = str(database), f"{database}-wal"
        status = os.lstat(database)
        return cls(database, names, _identity(status), _identity(_look(names)[1]), _content(names[0], status))

    def require(self, db: sqlite3.Connection) -> Seen:
        """Raise DamagedError if the files were deleted, replaced or overwritten, after saving the contents of `db`."""
        seen = status, _ = _look(self._names)
        main, wal = map(_identity, seen)
        if self._wal is None:
            self._wal = wal  # created by the first write
        overwritten = ""
        if main == self._main and status is not None:
            if (status.st_size, status.st_mtime_ns) != (self._content.size, self._content.changed):
                overwritten = self._overwritten(db, status)
            if wal == self._wal and not overwritten:
                return seen
        gone = "deleted" if main is None else "replaced" if main != self._main else "separated from its -wal file"
        what = overwritten or gone
        is_free = not overwritten and main in (None, self._main)
        rescued = self._rescue(db, put_back=is_free)
        raise DamagedError(f"{self.database}: the database was {what} while it was in use. {rescued}")

    def _overwritten(self, db: sqlite3.Connection, status: os.stat_result) -> str:
        """How the file that was written to shows that another program did that; empty if it does not."""
        later = _content(self._names[0], status)
        problem = self._content.problem(later) or self._lost_log(db)
        if not problem:
            self._content = later  # a checkpoint of ours or of another process
        return problem

    def _lost_log(self, db: sqlite3.Connection) -> str:
        """How a connection without `db`'s cached pages shows that the log in the files is another one."""
        try:
            last = event_log.tip(db)
            with closing(connect(self.database, read_only=True)) as fresh, storage_errors(fresh):
                is_there = not last.seq or event_log.hash_at(fresh, last.seq) == last.hash
        except DamagedError as error:
            return f"overwritten ({error})"
        except (sqlite3.Error, WorldError):
            return ""  # locked, or no descriptor is left: it is looked at again
        return "" if is_there else "overwritten with one whose log is another"

    def wal(self) -> tuple[int, int]:
        """Size of the write-ahead log and its mtime in ns; zeros if there is none."""
        try:
            status = os.lstat(self._names[1])
        except OSError:
            return 0, 0
        return status.st_size, status.st_mtime_ns

    def _rescue(self, db: sqlite3.Connection, *, put_back: bool) -> str:
        """Save the contents of the open database if they are sound: in its place, if no other file is there."""
        saved = self.database.with_name(f"{self.database.name}.rescued")
        try:
            remove(saved)
            with closing(sqlite3.connect(saved)) as copy:
                saved.chmod(0o600)
                db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
                prove(copy)
                if event_log.tip(copy) != event_log.tip(db):
                    raise DamagedError("the copy is not what was read before")
            make_durable(saved)
            if put_back or _identity(_look(self._names)[1]) == self._wal:
                for ending in ("-wal", "-shm"):  # of the deleted database: the next one would use them
                    with suppress(FileNotFoundError):
                        Path(f"{self.database}{ending}").unlink()
            if not put_back:
                return f"Its contents were saved as {saved.name}; decide which of the two is right"
            saved.replace(self.database)
            make_durable(self.database.parent)
        except (OSError, sqlite3.Error, WorldError) as error:
            with suppress(OSError):
                remove(saved)
            return f"Its contents could not be saved ({error}). {recreation(self.database)}"
        return "Its contents were saved and put back in place: start the daemon again"


def _content(name: str, status: os.stat_result) -> _Content:
    """Raises nothing: a file that cannot be read has no header."""
    with suppress(OSError):
        identity = status.st_dev, status.st_ino
        fd = _headers.get(identity)
        if fd is None:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if (opened := os.fstat(fd)).st_ino != status.st_ino or opened.st_dev != status.st_dev:
                identity = opened.st_dev, opened.st_ino
            _headers[identity] = fd
        magic, counter = _HEADER.unpack(os.pread(fd, _HEADER.size, 0).ljust(_HEADER.size, b"\0"))
        return _Content(status.st_size, status.st_mtime_ns, counter if magic == _MAGIC else None)
    return _Content(status.st_size, status.st_mtime_ns, None)


def _identity(status: os.stat_result | None) -> _Identity:
    return None if status is None else (status.st_dev, status.st_ino)


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

_PATIENCE, _TRIES = 1.0, 200
"""Seconds to wait for a process that has committed and not sealed yet: it may be stopped there."""

Files = list[list[int]]
"""Inode, size, and mtime and ctime in ns of the database, and of its write-ahead log unless that is empty."""


class Line(NamedTuple):
    """The contents of the file. `files` is empty if another program may have written to them."""

    tip: Tip
    files: Files


def changed(database: Path, what: str) -> str:
    """The error for a log, or tables beside it, that another program changed, with the ways to continue."""
    return (
        f"{database}: another program changed what was recorded: {what}. Nothing was started. To continue, one of: "
        f"(1) restore a copy made by `mailboxd db backup` and delete {database.name}-wal and {database.name}-shm; "
        f"(2) {recreation(database)}. "
        "Find out which program wrote to the file"
    )


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
        self.is_broken = False
        """Whether it was intact, and another program or a process that was killed has written to the files since."""
        self._was_intact = False
        """Whether this process knew it as intact before it was broken."""

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
        self._was_intact, line = self.is_intact, self.read()
        self._left = _files(_look(self._names))
        if line != Line(tip, self._left):
            with self.held():  # until a process that has committed has written it
                line = self.read()
        self.is_intact = line is not None and line == Line(tip, self._left)
        # an older database must not overwrite the evidence that it is older
        self._is_silent = line is not None and (
            line.tip.seq > tip.seq or (line.tip.seq == tip.seq and line.tip.hash != tip.hash)
        )
        was_sealed = self._was_intact or (line is not None and line.files != [])
        self.is_broken = was_sealed and not self.is_intact and not self._is_silent
        self._written = b""

    def detect_writes(self, seen: Seen | None = None) -> None:
        """Detect writes that bypassed SQLite, which only notices its own. Call before writing.

        `seen`: the files as they are now, if that is known.
        """
        if self.is_intact and self._left is not None and _files(seen or _look(self._names)) != self._left:
            self.is_intact, self.is_broken = False, True
            self._was_intact = False  # what SQLite has cached does not show it, so the next start compares again

    def mend(self) -> None:
        """Count log and tables, which were compared, as mailboxd wrote them; the rest as before it was broken."""
        self.is_intact, self.is_broken = self._was_intact, False

    @contextmanager
    def held(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    def hold(self) -> None:
        """Keep others from comparing between a commit and its line; waits for them at most `_PATIENCE` seconds."""
        with suppress(OSError):  # without a seal more is verified
            if self._fd < 0:
                self._open()
            for _ in range(_TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                select.select((), (), (), _PATIENCE / _TRIES)

    def let_go(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def write(self, tip: Tip) -> None:
        """Write the line if it changed. Call after a commit or checkpoint."""
        if self._is_silent:
            return
        self._left = _files(_look(self._names))
        files = self._left if self.is_intact else []  # printed as JSON
        raw = f'{{"seq":{tip.seq},"hash":"{tip.hash}","files":{files}}}'.encode().ljust(_SIZE - 1) + b"\n"
        if raw == self._written:
            return
        with suppress(OSError):
            if self._fd < 0:
                self._open()
            os.pwrite(self._fd, raw, 0)
            self._written = raw

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)

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


def _files(seen: Seen) -> Files:
    main, wal = seen
    found = []
    if main is not None and main.st_size and stat.S_ISREG(main.st_mode):
        found.append([main.st_ino, main.st_size, main.st_mtime_ns, main.st_ctime_ns])
    if wal is not None and wal.st_size and stat.S_ISREG(wal.st_mode):
        # opening the log as root changes its ctime: SQLite gives it the owner of the database
        found.append([wal.st_ino, wal.st_size, wal.st_mtime_ns])
    return found


def _inode(name: str) -> int:
    try:
        return os.lstat(name).st_ino
    except OSError:
        return 0
