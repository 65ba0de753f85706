"""The database as a whole: a copy while it is written, a fingerprint of what it says, a new one in its place."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from mailboxd.errors import StoreError, UnavailableError, WorldError
from mailboxd.progress import Progress, silent
from mailboxd.store import event_log
from mailboxd.store.database import connect, is_the_worlds, migrations, path_of, schema_version, store_error

_BESIDE = ("-wal", "-shm")
_SAID_BY = {"events": "seq, hash"}
"""Columns that say all: the hash of an event is over the rest of its row, as the proof of the chain shows."""


def fingerprint(db: sqlite3.Connection) -> str:
    """SHA-256 over everything that the database says, table by table, row by row; not over how its pages lie.

    Only of a database whose chain is proven: an event counts by its hash.
    """
    hashed = hashlib.sha256()
    objects = db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
    for kind, name, sql in objects.fetchall():
        hashed.update(f"{kind} {name} {sql}\n".encode())
        if kind == "table":
            said = _SAID_BY.get(name, "*")
            width = len(db.execute(f'SELECT {said} FROM "{name}" LIMIT 0').description)
            order = ", ".join(str(column) for column in range(1, width + 1))
            for row in db.execute(f'SELECT {said} FROM "{name}" ORDER BY {order}'):
                hashed.update(repr(row).encode("utf-8", "surrogatepass") + b"\n")
    return hashed.hexdigest()


def prove(db: sqlite3.Connection, progress: Progress = silent) -> None:
    """Raise WorldError unless SQLite finds the file sound, the chain holds and the events add up to the tables.

    The tables of an older program are not compared: what its events add up to is known only of today's schema.
    """
    require_sound(db, progress)
    if schema_version(db) == len(migrations()):
        event_log.check(db, progress)
    elif problem := event_log.verify_chain(db, progress):
        raise WorldError(f"the audit trail does not hold: {problem}")


def require_sound(db: sqlite3.Connection, progress: Progress = silent) -> None:
    """Raise WorldError unless SQLite finds the file sound."""
    if problem := integrity_problem(db, progress):
        raise WorldError(f"the database is damaged: {problem}")


def integrity_problem(db: sqlite3.Connection, progress: Progress = silent) -> str:
    """What SQLite's full check finds wrong with the file, its indexes included; empty when it is sound."""
    progress("pages", 0, 0)
    try:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(3)")]
    except sqlite3.DatabaseError as error:  # so damaged that the check itself cannot go on
        if not is_the_worlds(error):
            raise
        found = [str(error)]
    return "" if found == ["ok"] else "; ".join(" ".join(line.split()) for line in found)


def back_up(source: Path, target: Path, progress: Progress = silent) -> int:
    """Copy the database, as it is at one moment, to a new file while others go on writing; how many events it holds.

    The copy is proven before it gets its name. Raises UnavailableError when there is such a file, WorldError.
    """
    if not source.exists():
        raise UnavailableError(f"{source}: there is no database yet; the daemon makes one")
    require_free(target)
    hidden = target.with_name(f".{target.name}.tmp")
    try:
        remove(hidden)
        with closing(connect(source, read_only=True)) as db, closing(sqlite3.connect(hidden)) as copy:
            hidden.chmod(0o600)
            # all pages in one step are one read transaction: a copy in steps begins anew whenever somebody writes
            progress("copy", 0, 0)
            db.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, which can be copied anywhere
            prove(copy, progress)
            events = event_log.tip(copy).seq
        put_where_nothing_is(hidden, target)
    except sqlite3.Error as error:
        raise StoreError(f"{source}: the database cannot be copied to {target}: {error}") from error
    except OSError as error:
        raise WorldError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        remove(hidden)
    return events


def settle(path: Path) -> None:
    """Make a closed database durable as one file. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def close_as_one_file(db: sqlite3.Connection) -> None:
    """Write everything into the main file, close it and make it durable. Raises StoreError."""
    path = path_of(db)
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
        db.close()
        if path is not None:
            settle(path)
            _sync(path.parent)
    except sqlite3.Error as error:
        raise store_error(error, "cannot be written", path) from error
    except OSError as error:
        raise StoreError(f"{path}: the new database cannot be made durable: {error.strerror}") from error


def require_free(path: Path) -> None:
    """Raise UnavailableError when something has this name."""
    if os.path.lexists(path):
        raise _taken(path)


def put_where_nothing_is(new: Path, path: Path) -> None:
    """Let the closed database `new` be found as `path`, too, durably.

    Raises UnavailableError when that is taken, WorldError.
    """
    try:
        settle(new)
        os.link(new, path)
        _sync(path.parent)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise WorldError(f"{path}: cannot be written: {error.strerror}") from error


def _taken(path: Path) -> UnavailableError:
    return UnavailableError(f"{path}: there is such a file already; it is left as it is")


def put_in_place(new: Path, database: Path, old_name: str) -> Path | None:
    """Let `new` be the database, atomically and durably; the one before is kept beside it as `old_name`: its path.

    Raises WorldError; then the one before is still in its place.
    """
    kept = database.with_name(old_name)
    try:
        settle(new)
        if database.exists():
            _fold(database)
            os.link(database, kept)  # the first that may be refused: then what stands beside it is still there
            for ending in _BESIDE:  # there is one only if the old database is in use, or too damaged to be closed
                with suppress(FileNotFoundError):
                    Path(f"{database}{ending}").rename(f"{kept}{ending}")
        new.replace(database)
        _sync(database.parent)
    except OSError as error:
        raise WorldError(f"{database}: cannot be replaced: {error.strerror}; the new one is {new}") from error
    return kept if kept.exists() else None


def _fold(database: Path) -> None:
    """Let what stands in the write-ahead log of a database into its file, as far as it can be read."""
    with suppress(sqlite3.Error, StoreError):
        db = connect(database)
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.execute("PRAGMA journal_mode = DELETE")
        finally:
            db.close()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """A database that is no longer wanted, with what SQLite keeps beside it. Raises OSError."""
    for ending in ("", *_BESIDE, "-journal"):
        with suppress(FileNotFoundError):
            Path(f"{path}{ending}").unlink()
