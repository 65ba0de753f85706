"""Whether a workspace has its database: one that was deleted is not one that is still to be made.

Its mark, the file `mailboxd.db.id`, shows that there was one, and so does the journal, which outlives `.mailboxd/`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mailboxd.errors import DamagedError, UnavailableError, WorldError
from mailboxd.ledger.database import connect, mark_of, recreation


def lost(database: Path) -> str:
    """How it is known that there was a database, where now none is or one that nothing was ever recorded in.

    Empty if it is there, or if there never was one.
    """
    mark, size = mark_of(database), database.stat().st_size if database.exists() else 0
    if mark.exists():
        return "" if size else f"{_is_not_there(database)}, but {mark.name} says there was one"
    known = _in_journal(database)
    return "" if not known or (size and _has_name(database)) else f"{_is_not_there(database)}, but {known}"


def require_database(database: Path) -> None:
    """Raise DamagedError if the database was lost, UnavailableError if there never was one."""
    if how := lost(database):
        raise DamagedError(f"{database}: {how}; {recreation(database)}")
    if not database.exists():
        raise UnavailableError(f"{database}: there is no database yet; `mailboxd init` or the daemon creates it")


def _is_not_there(database: Path) -> str:
    return f"the database is {'empty' if database.exists() else 'missing'}"


def _in_journal(database: Path) -> str:
    """What the journal says of a database; empty if it has no event."""
    from mailboxd.ledger import journal  # with the database and its mark in place, it is not read

    try:
        files = [path for path in journal.files_of(database.parent.parent) if path.lstat().st_size]
        last = journal.last_event_in(files)
    except (OSError, DamagedError):
        return "there is a journal in mailbox/archive/events/, whose end cannot be read"
    return f"the journal in mailbox/archive/events/ ends with event {last}" if last else ""


def _has_name(database: Path) -> bool:
    """Whether it was opened as the database of a workspace; a damaged one counts as one."""
    try:
        with closing(connect(database, read_only=True)) as db:
            return db.execute("SELECT 1 FROM meta WHERE name = 'uuid'").fetchone() is not None
    except sqlite3.OperationalError as error:
        return "no such table" not in str(error)
    except (sqlite3.Error, WorldError):
        return True
