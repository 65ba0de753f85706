"""Is the file that we have open still the one under its name? SQLite does not notice, and writes on into nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import DamagedError
from mailboxd.store.whole import settle

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
