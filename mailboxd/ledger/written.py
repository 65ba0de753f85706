"""What a transaction has written of what the journal has, so that it is not read back for its lines."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EventRow = tuple[int, str, str, str | None, str, str, str, str]
"""An event in the log, as `event_log.COLUMNS`."""
PromptRow = tuple[str, bytes, int]
"""A row of `prompts`: the SHA-256 of a text, the text, and the `rev` of the change of `outbox` that first names it."""
Changed = dict[Any, Mapping[str, Any]]
"""Rows of one table by their key, in the order of their last change."""


@dataclass(slots=True)
class Written:
    """Collected by whoever writes: the event log, `Outbox`, `Meta` and `Messages`."""

    since: int | None = None
    """`total_changes` of the connection when the transaction began; None: something is missing here."""
    events: list[EventRow] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    """The bytes of messages by their id."""
    prompts: list[PromptRow] = field(default_factory=list)
    """Texts of prompts that were not kept before."""
    rows: dict[str, Changed] = field(default_factory=lambda: {"outbox": {}, "meta": {}})

    def begin(self, db: sqlite3.Connection) -> None:
        """A transaction begins."""
        self.forget()
        self.since = db.total_changes

    def forget(self) -> None:
        """Drop everything, for example because a part of it was rolled back."""
        self.since = None
        self.events.clear()
        self.bodies.clear()
        self.prompts.clear()
        for changed in self.rows.values():
            changed.clear()

    def put(self, table: str, key: object, row: Mapping[str, Any]) -> None:
        """Take a row as it is now, by its columns in their order."""
        changed = self.rows[table]
        changed.pop(key, None)
        changed[key] = row

    def change(self, table: str, returned: sqlite3.Cursor) -> None:
        """Take the rows that a statement with `RETURNING *` has changed; the first column is the key."""
        names: Sequence[str] = [name for name, *_ in returned.description]
        for row in returned.fetchall():
            self.put(table, row[0], dict(zip(names, row, strict=True)))
