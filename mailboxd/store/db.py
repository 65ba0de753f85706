"""Opening the database: pragmas, migrations, transactions. SQLite in WAL mode with synchronous=FULL.

Mark-first means nothing if the mark can be lost, so FULL is not negotiable; commits are grouped instead.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mailboxd.errors import StoreError, WorldError

BUSY_MS = 5_000


class Connected:
    """Something that reads and writes the database of one workspace."""

    db: sqlite3.Connection


def connect(path: Path | None, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode. `None` is a database in memory: the fake that tests and simulations use.

    Raises WorldError when the file cannot be opened.
    """
    try:
        if path is None:
            db = sqlite3.connect(":memory:", isolation_level=None)
        elif read_only:
            db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
        else:
            db = sqlite3.connect(path, isolation_level=None)
            path.chmod(0o600)
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA recursive_triggers = ON")  # else INSERT OR REPLACE gets around the append-only triggers
        db.execute("PRAGMA trusted_schema = OFF")
        if not read_only:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error as error:
        raise StoreError(f"{path}: the database cannot be opened: {error}") from error
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE ... COMMIT; a failure rolls back. Raises WorldError: the disk fails, or a lock stays."""
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        raise StoreError(f"the database cannot be written: {error}") from error
    try:
        yield
        db.execute("COMMIT")
    except sqlite3.Error as error:
        _roll_back(db)
        if is_the_worlds(error):
            raise StoreError(f"the database could not be written: {error}") from error
        raise
    except BaseException:
        _roll_back(db)
        raise


def is_the_worlds(error: sqlite3.Error) -> bool:
    """Whether the disk, a lock or a damaged file is to blame, and not a statement of ours."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def migrate(db: sqlite3.Connection, now: str) -> None:
    """Bring the schema up to this program's. Each step and its record are one transaction; running it again is safe.

    Raises WorldError for a database that is newer than the program.
    """
    steps = migrations()
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > len(steps):
        raise WorldError(
            f"the database has schema version {version}, this mailboxd knows {len(steps)}: install a newer mailboxd"
        )
    for number in range(version + 1, len(steps) + 1):
        name, script = steps[number - 1]
        with transaction(db):
            if db.execute("SELECT user_version >= ? FROM pragma_user_version", (number,)).fetchone()[0]:
                continue  # another process was faster
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
