"""A connection to the database in which rows wait until they are written together.

Several events of one round change the same row, and what is added to the log or to the outbox is read by nobody before
the commit. Such rows wait here: a statement that names their table writes them first, and so does the commit. No reader
can see an older state, whoever it is, because this holds for every statement of the connection. A roll-back, also of a
part of the transaction, takes back what waits.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

_MOST = 500
"""Rows of a table that wait, for example while a log is replayed."""
_AT_ONCE = 8
"""Rows that one statement writes: each number of them is a statement of its own to SQLite."""
_VALUES = re.compile(r"VALUES (\((?:\?, )*\?\))$")
_READS = ("SELECT", "PRAGMA")
_BY_VIEW = " v_"
"""What names a view may read any table."""

Write = tuple[str, Sequence[Any]]
"""A statement with its values."""
Change = tuple[Mapping[str, Any], Mapping[str, float]]
"""Columns of a row with their new values, and counts with what is added to them."""


@cache
def update(table: str, columns: tuple[str, ...], counts: tuple[str, ...] = ()) -> str:
    """The UPDATE of these columns, and of counts that something is added to; its last parameter is the row's id."""
    changes = ", ".join([*(f"{name} = ?" for name in columns), *(f"{name} = {name} + ?" for name in counts)])
    return f"UPDATE {table} SET {changes} WHERE id = ?"


def _changed(change: tuple[str, Change]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns and the counts that a change is of."""
    _, (columns, counts) = change
    return tuple(columns), tuple(counts)


@cache
def _several(insert: str, count: int) -> str:
    """The INSERT of so many rows, which takes less time than as many for one; empty if it is no plain INSERT."""
    values = _VALUES.search(insert)
    return f"{insert}{f', {values[1]}' * (count - 1)}" if values is not None else ""


@dataclass(slots=True)
class _Part:
    """A part of the transaction that may be rolled back alone, with what waited when it began."""

    writes: dict[str, dict[Any, Write]]
    changes: dict[str, dict[str, Change]]
    is_open: bool = False
    """Whether SQLite knows of it: it does once something is written."""


class Connection(sqlite3.Connection):
    """Outside of a transaction nothing waits."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._writes: dict[str, dict[Any, Write]] = {}
        self._changes: dict[str, dict[str, Change]] = {}
        self._parts: list[_Part] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self._writes or self._changes or self._parts:
            self._before(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        if self._writes or self._changes or self._parts:
            self._before(sql)
        return super().executemany(sql, parameters)

    def write_later(self, table: str, sql: str, values: Sequence[Any], key: str | None = None) -> None:
        """Let a statement wait that writes one row of `table`, in place of the one that waits under the same key."""
        if not self.in_transaction:
            self.execute(sql, values)
            return
        waiting = self._writes.setdefault(table, {})
        waiting[len(waiting) if key is None else key] = sql, values
        if len(waiting) >= _MOST:
            self._write(table)

    def waiting(self, table: str, key: str) -> Write | None:
        """The statement that waits for a row under this key."""
        rows = self._writes.get(table)
        return None if rows is None else rows.get(key)

    def change_later(
        self, table: str, row_id: str, columns: Mapping[str, Any], counts: Mapping[str, float] | None = None
    ) -> None:
        """Let a change of a row wait: new values of columns, and what is added to counts."""
        added = counts or {}
        if not self.in_transaction:
            sql = update(table, tuple(columns), tuple(added))
            self.execute(sql, (*columns.values(), *added.values(), row_id))
            return
        waiting = self._changes.setdefault(table, {})
        if (before := waiting.get(row_id)) is not None:
            columns = {**before[0], **columns}
            if added and before[1]:
                added = {**before[1], **{name: before[1].get(name, 0) + by for name, by in added.items()}}
            added = added or before[1]
        waiting[row_id] = columns, added
        if len(waiting) >= _MOST:
            self._write(table)

    def forget_waiting(self) -> None:
        """The transaction was rolled back."""
        self._writes, self._changes = {}, {}
        self._parts.clear()

    # parts of a transaction

    def begin_part(self) -> None:
        waiting = (
            {table: dict(rows) for table, rows in self._writes.items()},
            {table: dict(rows) for table, rows in self._changes.items()},
        )
        self._parts.append(_Part(*waiting))
        if not self.in_transaction:
            self._open_parts()

    def end_part(self) -> None:
        if self._parts.pop().is_open:
            super().execute("RELEASE part")

    def undo_part(self) -> None:
        part = self._parts.pop()
        if part.is_open:
            super().execute("ROLLBACK TO part")
            super().execute("RELEASE part")
        self._writes, self._changes = part.writes, part.changes

    def _open_parts(self) -> None:
        for part in self._parts:
            if not part.is_open:
                super().execute("SAVEPOINT part")
                part.is_open = True

    # writing

    def _before(self, sql: str) -> None:
        """Write the rows of the tables that a statement names."""
        if sql == "ROLLBACK":
            self.forget_waiting()
            return
        everything = sql == "COMMIT" or _BY_VIEW in sql
        for table in (*self._writes, *self._changes):
            if everything or table in sql:
                self._write(table)
        if self._parts and not sql.startswith(_READS):
            self._open_parts()

    def _write(self, table: str) -> None:
        if self._parts:
            self._open_parts()
        if (writes := self._writes.pop(table, None)) is not None:
            for sql, same in groupby(writes.values(), itemgetter(0)):
                self._write_rows(sql, [values for _, values in same])
        if (changes := self._changes.pop(table, None)) is not None:
            for (columns, counts), same in groupby(changes.items(), _changed):
                rows = [(*new.values(), *added.values(), row_id) for row_id, (new, added) in same]
                super().executemany(update(table, columns, counts), rows)

    def _write_rows(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if len(rows) == 1:
            super().execute(sql, rows[0])
        elif len(rows) <= _AT_ONCE and (several := _several(sql, len(rows))):
            super().execute(several, [*chain.from_iterable(rows)])
        else:
            super().executemany(sql, rows)
