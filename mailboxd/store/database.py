"""Opening the database: pragmas, migrations, transactions. SQLite in WAL mode with synchronous=FULL.

Mark-first means nothing if the mark can be lost, so FULL is not negotiable; commits are grouped instead.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mailboxd.errors import BusyError, DamagedError, NoRoomError, StoreError, WorldError
from mailboxd.host import disk

# ---------------------------------------------------------------------------------------------------------------------
# Who keeps the database locked, by /proc/locks. Nothing is opened: closing a descriptor of it drops our locks.

_LOCKS = Path("/proc/locks")


def who_locks(path: Path | None) -> str:
    """A sentence that names the processes that hold locks on the database or its shared memory, and what to do."""
    pids = lockers(path) if path is not None else []
    if not pids:
        return "which process has locked it cannot be seen from here (`fuser` says it, as root)"
    names = ", ".join(f"pid {pid} ({_name(pid)})" for pid in pids)
    return f"it is locked by {names}; end that, or wait until it has finished"


def lockers(path: Path) -> list[int]:
    """The other processes that hold write locks on the file or what belongs to it; all holders if none does."""
    files = {identity for ending in ("", "-shm", "-wal") if (identity := _identity(Path(f"{path}{ending}")))}
    found: dict[str, set[int]] = {"WRITE": set(), "READ": set()}
    with suppress(OSError):
        for line in _LOCKS.read_text(encoding="ascii", errors="replace").splitlines():
            words = line.split()
            if "->" in words or len(words) < 6:  # who waits holds nothing
                continue
            kind, pid, place = words[3], words[4], words[5]
            if place in files and pid.isdecimal() and int(pid) not in (0, os.getpid()):
                found.setdefault(kind, set()).add(int(pid))
    return sorted(found["WRITE"] or found["READ"])


def _identity(file: Path) -> str:
    """As /proc/locks writes it: major:minor:inode, the first two in hexadecimal."""
    with suppress(OSError):
        status = file.stat()
        return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return ""


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return "it has ended"


# ---------------------------------------------------------------------------------------------------------------------
# Opening the database: pragmas, migrations, transactions. SQLite in WAL mode with synchronous=FULL.

BUSY_MS = 5_000
LARGEST_WAL = 8 << 20
"""Bytes to which SQLite cuts the write-ahead log when it begins to fill it again."""
_STATEMENTS = 512
"""Statements that are kept compiled; Python keeps 128, and one round of the daemon has more."""


def connect(path: Path | None, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode. `None` is a database in memory: the fake that tests and simulations use.

    Raises WorldError when the file cannot be opened.
    """
    if path is not None:
        require_file(path)
    try:
        if path is None:
            db = sqlite3.connect(":memory:", isolation_level=None, cached_statements=_STATEMENTS)
        elif read_only:
            uri = f"{path.resolve().as_uri()}?mode=ro"
            db = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=_STATEMENTS)
        else:
            db = sqlite3.connect(path, isolation_level=None, cached_statements=_STATEMENTS)
            if stat.S_IMODE(path.stat().st_mode) != 0o600:
                path.chmod(0o600)
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA recursive_triggers = ON")  # else INSERT OR REPLACE gets around the append-only triggers
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA temp_store = MEMORY")  # else what undoes a savepoint is a file: 50 writes per message
        if not read_only:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute(f"PRAGMA journal_size_limit = {LARGEST_WAL}")
    except sqlite3.Error as error:
        raise store_error(error, "cannot be opened", path) from error
    return db


def require_file(path: Path) -> None:
    """Raises StoreError if something else than a file lies there.

    SQLite waits for ever for a pipe, and follows a link: the -wal then lies where nobody looks for it.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # SQLite says it, or makes the file
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path}: the database cannot be opened: it is no regular file; put the file itself there")


@contextmanager
def transaction(db: sqlite3.Connection, again: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """BEGIN IMMEDIATE ... COMMIT; a failure rolls back. Raises WorldError: the disk fails, or a lock stays.

    A lock is waited for as long as SQLite does (`BUSY_MS`), and once more whenever `again` says so.
    """
    with worlds_errors(db):
        _begin(db, again)
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            _roll_back(db)
            raise


@contextmanager
def worlds_errors(db: sqlite3.Connection) -> Iterator[None]:
    """Turns what SQLite says of the disk, of a lock or of a damaged file into a StoreError. Bugs of ours stay bugs."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_the_worlds(error):
            raise
        raise store_error(error, "could not be read or written", path_of(db)) from error


def store_error(error: sqlite3.Error, what: str, path: Path | None) -> StoreError:
    """What SQLite said of the world, named by who has to do something about it."""
    text = f"{path or 'the database'}: the database {what}: {error}"
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedError(text)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BusyError(f"{text}; {who_locks(path)}")
    # A limit or a quota is an I/O error for SQLite, and so is a full disk where it maps shared memory.
    full = disk.why_full(path.parent, path, Path(f"{path}-wal")) if path is not None else ""
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and full):
        return NoRoomError(f"{text}; {full}" if full else text)
    return StoreError(text)


def path_of(db: sqlite3.Connection) -> Path | None:
    """The file of the database that is open; None for one in memory, or one that cannot even say that."""
    try:
        name = db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    except sqlite3.Error:
        return None
    return Path(name) if name else None


def is_the_worlds(error: sqlite3.Error) -> bool:
    """Whether the disk, a lock or a damaged file is to blame, and not a statement of ours."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def _roll_back(db: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # the disk that refused the commit may refuse this too: what counts was not written
        if db.in_transaction:
            db.execute("ROLLBACK")


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
    """How many migrations the database has seen; 0 = it is empty. Raises StoreError."""
    with worlds_errors(db):
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def other_schema(version: int) -> str:
    """What is to be done about a database of this version; empty when it is this program's, or nobody's yet."""
    known = len(migrations())
    if version in (0, known):
        return ""
    remedy = "install a newer mailboxd" if version > known else "`mailboxd run` migrates it"
    return f"has schema version {version}, this mailboxd knows {known}: {remedy}"


def migrate(db: sqlite3.Connection, now: str) -> None:
    """Bring the schema up to this program's, all steps in one transaction; running it again is safe.

    Raises WorldError for a database that is newer than the program.
    """
    steps = migrations()
    version = schema_version(db)
    if version > len(steps):
        raise WorldError(f"the database {other_schema(version)}")
    if version == len(steps):
        return
    with transaction(db):
        for number in range(schema_version(db) + 1, len(steps) + 1):  # another process may have been faster
            name, script = steps[number - 1]
            for statement in _statements(script):
                db.execute(statement)
            db.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, now))
            db.execute(f"PRAGMA user_version = {number}")


def migrations() -> list[tuple[str, str]]:
    """Name and text of every migration, in order; the n-th leads to user_version n."""
    from importlib.resources import files  # only who migrates pays for it

    folder = files("mailboxd.store") / "migrations"
    return sorted((entry.name, entry.read_text()) for entry in folder.iterdir() if entry.name.endswith(".sql"))


def _statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says a statement is complete (executescript would commit our transaction)."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
