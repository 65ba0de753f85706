"""The proof of a log that grows: its events follow from each other, and they add up to the tables in the end."""

from __future__ import annotations

import sqlite3

from mailboxd.errors import WorldError
from mailboxd.store import log
from mailboxd.store.db import worlds_errors


class Proof:
    """What the events of `db` add up to, as far as it was followed. The same laws as `log.check`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._tables = log.no_tables()
        self._chained = log.Tip(0, log.GENESIS)
        self._added = 0

    def close(self) -> None:
        self._tables.close()

    def follow(self) -> None:
        """Go on to the last event that is committed. Raises WorldError."""
        with worlds_errors(self._db):
            found = log.follow_chain(self._db, self._chained)
            if isinstance(found, str):
                raise WorldError(f"the audit trail does not hold: {found}")
            self._chained = found
            self._added = log.follow_events(self._db, self._tables, self._added)

    def complete(self) -> None:
        """Nothing is written any more: raise WorldError unless the tables are what the events add up to."""
        self.follow()
        with worlds_errors(self._db):
            if problems := log.differing(self._db, self._tables):
                raise WorldError("the audit trail does not hold: " + "; ".join(problems))
