"""Opening the database: pragmas, migrations, transactions. SQLite in WAL mode with synchronous=FULL.

A mark that is written before acting must not be lost, so FULL stays; commits are grouped instead.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from mailboxd.errors import BusyError, DamagedError, NoRoomError, StoreError, WorldError
from mailboxd.host import disk
from mailboxd.ledger.connection import Connection

# Lock holders, from /proc/locks. The database is not opened: closing a descriptor would release our locks.

_LOCKS = Path("/proc/locks")


def describe_lockers(path: Path | None) -> str:
    """A sentence that names the processes that lock the database, and what to do."""
    pids = lockers(path) if path is not None else []
    if not pids:
        return "the process that locks it is not visible from here (try `fuser` as root)"
    names = ", ".join(f"pid {pid} ({_name(pid)})" for pid in pids)
    return f"it is locked by {names}; stop that process or wait for it"


def lockers(path: Path) -> list[int]:
    """Other processes with write locks on the database, -shm or -wal; those with read locks if there are none."""
    files = {identity for ending in ("", "-shm", "-wal") if (identity := _identity(Path(f"{path}{ending}")))}
    pids: dict[str, set[int]] = {"WRITE": set(), "READ": set()}
    with suppress(OSError):
        for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
            words = line.split()
            if "->" in words or len(words) < 6:  # a waiting process holds no lock
                continue
            kind, pid, file = words[3], words[4], words[5]
            if file in files and pid.isdecimal() and int(pid) not in (0, os.getpid()):
                pids.setdefault(kind, set()).add(int(pid))
    return sorted(pids["WRITE"] or pids["READ"])


def _identity(file: Path) -> str:
    """As in /proc/locks: major:minor:inode, the first two in hexadecimal."""
    with suppress(OSError):
        status = file.stat()
        return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return ""


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return "ended"


BUSY_MS = 5_000
LARGEST_WAL = 8 << 20
"""The size to which SQLite truncates the write-ahead log when it starts it again."""
_STATEMENTS = 512
"""Cached statements. Python's default is 128, and one round of the daemon uses more."""


def connect(path: Path | None, *, read_only: bool = False) -> Connection:
    """Open a connection in autocommit mode. None is a database in memory, for tests and simulations.

    Raises WorldError.
    """
    if path is not None:
        require_file(path)
    try:
        if path is None:
            db = _open(":memory:")
        elif read_only:
            db = _open(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        else:
            db = _open(path)
            if stat.S_IMODE(path.stat().st_mode) != 0o600:
                path.chmod(0o600)
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA recursive_triggers = ON")  # or INSERT OR REPLACE bypasses the append-only triggers
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA temp_store = MEMORY")  # or savepoints use a temporary file: 50 writes per message
        if not read_only:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA fullfsync = ON")  # macOS: else nothing reaches the disk
            db.execute(f"PRAGMA journal_size_limit = {LARGEST_WAL}")
    except sqlite3.Error as error:
        raise store_error(error, "cannot be opened", path) from error
    return db


def _open(name: Path | str, *, uri: bool = False) -> Connection:
    return sqlite3.connect(name, uri=uri, isolation_level=None, cached_statements=_STATEMENTS, factory=Connection)


def require_file(path: Path) -> None:
    """Raise StoreError unless the path is free or a regular file.

    SQLite blocks on a pipe, and follows a link and puts the -wal beside its target.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # SQLite reports it or creates the file
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path}: the database cannot be opened: it is not a regular file; put the file itself there")


@contextmanager
def transaction(db: Connection, again: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """BEGIN IMMEDIATE ... COMMIT; an exception rolls back. Raises WorldError if the disk fails or a lock persists.

    Waits for a lock for `BUSY_MS`, and again whenever `again` returns True.
    """
    try:
        _begin(db, again)
        yield
        db.execute("COMMIT")
    except BaseException as error:
        _roll_back(db)
        if isinstance(error, sqlite3.Error) and is_storage_error(error):
            raise _not_usable(error, db) from error
        raise


@contextmanager
def storage_errors(db: sqlite3.Connection) -> Iterator[None]:
    """Turn errors of the disk, of locks and of damaged files into StoreError; programming errors pass."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_storage_error(error):
            raise
        raise _not_usable(error, db) from error


def _not_usable(error: sqlite3.Error, db: sqlite3.Connection) -> StoreError:
    return store_error(error, "could not be read or written", path_of(db))


def store_error(error: sqlite3.Error, what: str, path: Path | None) -> StoreError:
    """The error, typed by who has to act on it."""
    text = f"{path or 'the database'}: the database {what}: {error}"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedError(text)
    if _SCHEMA_CHANGED.search(str(error)):
        return DamagedError(f"{text}, because another program changed its tables")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BusyError(f"{text}; {describe_lockers(path)}")
    # SQLite reports a limit or quota as an I/O error, and so a full disk when it maps shared memory.
    full = disk.why_full(path.parent, path, Path(f"{path}-wal")) if path is not None else ""
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and full):
        return NoRoomError(f"{text}; {full}" if full else text)
    return StoreError(text)


def mark_of(database: Path) -> Path:
    """The file with the id of the database that belongs here."""
    return database.with_name(f"{database.name}.id")


_SCHEMA_CHANGED = re.compile(r"^no such (?:table|column)\b|has no column named")


def recreation(database: Path) -> str:
    """How a lost or damaged database comes back, as part of a sentence."""
    command = shlex.join(["mailboxd", "-w", str(database.parent.parent), "db", "rebuild", "--replace"])
    return f"`{command}` recreates it from mailbox/archive/events/"


def path_of(db: sqlite3.Connection) -> Path | None:
    """The file of an open database; None for one in memory or one too damaged to say."""
    try:
        name = db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    except sqlite3.Error:
        return None
    return Path(name) if name else None


def is_storage_error(error: sqlite3.Error) -> bool:
    """Whether the disk, a lock or a damaged file caused the error."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def _roll_back(db: Connection) -> None:
    with suppress(sqlite3.Error):  # the disk that refused the commit may refuse this too; nothing was committed
        if db.in_transaction:
            db.execute("ROLLBACK")
    db.forget_waiting()


def _begin(db: sqlite3.Connection, again: Callable[[], bool]) -> None:
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not again():
                raise
        else:
            return


def schema_version(db: sqlite3.Connection) -> int:
    """The number of applied migrations; 0 for an empty database. Raises StoreError."""
    with storage_errors(db):
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def other_schema(version: int) -> str:
    """The remedy for a database of this version; empty if it is the program's own, or new."""
    known = len(migrations())
    if version in (0, known):
        return ""
    remedy = "install a newer mailboxd" if version > known else "`mailboxd run` migrates it"
    return f"has schema version {version}, this mailboxd knows {known}: {remedy}"


def migrate(db: Connection, now: str) -> None:
    """Migrate to the schema of this program in one transaction; does nothing if it is current.

    Raises WorldError for a database of a newer program.
    """
    steps = migrations()
    version = schema_version(db)
    if version > len(steps):
        raise WorldError(f"the database {other_schema(version)}")
    if version == len(steps):
        return
    with transaction(db):
        for number in range(schema_version(db) + 1, len(steps) + 1):  # another process may have migrated it meanwhile
            name, script = steps[number - 1]
            for statement in _statements(script):
                db.execute(statement)
            db.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, now))
            db.execute(f"PRAGMA user_version = {number}")


@cache
def migrations() -> list[tuple[str, str]]:
    """Name and text of each migration in order; the n-th leads to user_version n."""
    from importlib.resources import files

    folder = files("mailboxd.ledger") / "migrations"
    return sorted((entry.name, entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql"))


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements, because executescript would commit the transaction."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
