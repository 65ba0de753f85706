"""Checks of a database file: damage, and replacement while it is open."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import DamagedError
from mailboxd.store.backup import make_durable
from mailboxd.store.database import connect, migrations
from mailboxd.store.event_log import GENESIS, chain

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
