"""The database as a file: copies while it is in use, and replacement."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from mailboxd.errors import BusyError, NoRoomError, StoreError, UnavailableError, WorldError
from mailboxd.host.progress import Progress, silent
from mailboxd.host.system import system
from mailboxd.ledger import event_log
from mailboxd.ledger.database import connect, is_storage_error, migrations, path_of, schema_version, store_error
from mailboxd.ledger.presence import require_database

_BESIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database, and applies to whatever database is there."""


def prove(db: sqlite3.Connection, progress: Progress = silent) -> None:
    """Raise WorldError unless the file is sound, the chain holds and a replay of the events gives the tables.

    The tables of an older schema are not compared, because a replay gives those of the current one.
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


def integrity_problem(db: sqlite3.Connection, progress: Progress = silent, path: Path | None = None) -> str:
    """The errors that SQLite's full check reports about file and indexes, or an empty string. `path` is that of `db`,
    if it is known. Raises StoreError if they cannot be checked now: the disk is full, others hold a lock.
    """
    progress("pages", 0, 0)
    try:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(3)")]
    except sqlite3.DatabaseError as error:  # too damaged for the check to finish
        if not is_storage_error(error):
            raise
        problem = store_error(error, "cannot be checked", path or path_of(db))
        if isinstance(problem, (BusyError, NoRoomError)):
            raise problem from error
        found = [str(error)]
    return "" if found == ["ok"] else "; ".join(" ".join(line.split()) for line in found)


def back_up(source: Path, target: Path, progress: Progress = silent) -> int:
    """Copy the database while others write to it, as of one moment; returns the number of events in the copy.

    The copy is verified before it gets its name. Raises UnavailableError if `target` exists, WorldError.
    """
    require_database(source)
    require_free(target)
    hidden = target.with_name(f".{target.name}.tmp")
    try:
        remove(hidden)
        with closing(connect(source, read_only=True)) as db, closing(sqlite3.connect(hidden)) as copy:
            hidden.chmod(0o600)
            # in one step, which is one read transaction: a copy in several restarts after every write
            progress("copy", 0, 0)
            db.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file that can be copied anywhere
            prove(copy, progress)
            events = event_log.tip(copy).seq
        link_new(hidden, target)
    except sqlite3.Error as error:
        raise store_error(error, f"cannot be copied to {target}", source) from error
    except OSError as error:
        raise WorldError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        remove(hidden)
    return events


def make_durable(path: Path) -> None:
    """Make a closed database durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        system.sync(fd)
    finally:
        os.close(fd)


def close_as_one_file(db: sqlite3.Connection) -> None:
    """Checkpoint, close and sync the database as a single file. Raises StoreError."""
    path = path_of(db)
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
        db.close()
        if path is not None:
            make_durable(path)
            _sync(path.parent)
    except sqlite3.Error as error:
        raise store_error(error, "cannot be written", path) from error
    except OSError as error:
        raise StoreError(f"{path}: the new database cannot be made durable: {error.strerror}") from error


def require_free(path: Path) -> None:
    """Raise UnavailableError if the path exists."""
    if os.path.lexists(path):
        raise _taken(path)


def link_new(new: Path, path: Path) -> None:
    """Link the closed database `new` to `path`, durably.

    Raises UnavailableError if `path` exists, WorldError.
    """
    try:
        make_durable(new)
        os.link(new, path)
        _sync(path.parent)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise WorldError(f"{path}: cannot be written: {error.strerror}") from error


def _taken(path: Path) -> UnavailableError:
    return UnavailableError(f"{path}: the file exists already and was not changed")


def replace_database(new: Path, database: Path, old_name: str) -> Path | None:
    """Replace the database by `new`, atomically and durably; the previous one is kept as `old_name`: its path, or
    that of what was left of it.

    What SQLite kept beside the previous one goes with it, also where that one is gone: SQLite would apply it to the new
    one. Raises WorldError, and then the previous one is still in place, or the new one is not what was written.
    """
    kept = database.with_name(old_name)
    try:
        make_durable(new)
        with closing(connect(new, read_only=True)) as db:
            last = event_log.tip(db)
        if database.exists():
            _fold(database)
            os.link(database, kept)  # first, because it may fail: the other files are still there then
        moved = [ending for ending in _BESIDE if os.path.lexists(f"{database}{ending}")]
        for ending in moved:
            Path(f"{database}{ending}").rename(f"{kept}{ending}")
        new.replace(database)
        _sync(database.parent)
    except OSError as error:
        raise WorldError(f"{database}: cannot be replaced: {error.strerror}; the new one is {new}") from error
    with closing(connect(database, read_only=True)) as db:
        require_sound(db)
        if event_log.tip(db) != last:
            raise WorldError(f"{database}: it is not what was just put there: another program uses it")
    return kept if kept.exists() else next((Path(f"{kept}{ending}") for ending in moved), None)


def _fold(database: Path) -> None:
    """Checkpoint the write-ahead log of a database as far as it can be read."""
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
        system.sync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Delete a database with the files that SQLite keeps beside it. Raises OSError."""
    for ending in ("", *_BESIDE):
        with suppress(FileNotFoundError):
            Path(f"{path}{ending}").unlink()
