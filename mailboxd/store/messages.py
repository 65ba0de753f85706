"""Messages: what came before, what still lies in the inbox, what we sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mailboxd.store.db import Connected


@dataclass(frozen=True, slots=True)
class Earlier:
    """The first arrival of a message."""

    task: str | None
    sha256: str


@dataclass(frozen=True, slots=True)
class Unfiled:
    """A judged file that has not been moved to archive/ or rejected/ yet."""

    id: str
    name: str
    rejected: bool
    sha256: str | None
    stamp: dict[str, int]
    reason: dict[str, Any] | None
    at: str


class MessageQueries(Connected):
    def keep_body(self, sha256: str, raw: bytes) -> None:
        """Keep the bytes that were judged: what is filed later is these, whatever happened to the file since."""
        self.db.execute("INSERT OR IGNORE INTO bodies VALUES (?, ?)", (sha256, raw))

    def body(self, sha256: str) -> bytes | None:
        row = self.db.execute("SELECT raw FROM bodies WHERE sha256 = ?", (sha256,)).fetchone()
        return None if row is None else row[0]

    def earlier(self, message_id: str | None, sha256: str) -> Earlier | None:
        """The same message as it came before: by its id, or without one by its bytes. Rejected ones do not count."""
        where, args = ("message_id = ?", message_id) if message_id is not None else ("sha256 = ?", sha256)
        row = self.db.execute(
            f"SELECT task, sha256 FROM messages WHERE {where} AND direction = 'in' AND verdict <> 'rejected' LIMIT 1",
            (args,),
        ).fetchone()
        return None if row is None else Earlier(*row)

    def cancelled_before(self, sender: str, task_id: str, subtask_id: str | None) -> bool:
        """Whether a cancel for this work lies in the archive as an orphan: it came before the work."""
        row = self.db.execute(
            "SELECT 1 FROM messages WHERE task_id = ?2 AND subtask_id IS ?3 AND sender = ?1"
            " AND type = 'cancel' AND verdict = 'orphan' LIMIT 1",
            (sender, task_id, subtask_id),
        ).fetchone()
        return row is not None

    def unfiled(self, limit: int) -> list[Unfiled]:
        """Judged files that still lie in the inbox, oldest first."""
        rows = self.db.execute(
            "SELECT id, name, verdict = 'rejected', sha256, stamp, reason, at FROM messages"
            " WHERE path IS NULL ORDER BY id LIMIT ?",
            (limit,),
        )
        return [
            Unfiled(row[0], row[1], bool(row[2]), row[3], json.loads(row[4]), json.loads(row[5] or "null"), row[6])
            for row in rows
        ]

    def awaits_filing(self, name: str, stamp: Mapping[str, Any]) -> bool:
        """Whether this very file has been judged and only has not been moved out of the inbox yet."""
        rows = self.db.execute("SELECT stamp FROM messages WHERE path IS NULL AND name = ?", (name,))
        return any(json.loads(row[0]) == dict(stamp) for row in rows)

    def is_filed(self, path: str) -> bool:
        return self.db.execute("SELECT 1 FROM messages WHERE path = ?", (path,)).fetchone() is not None

    def sent_reply(self, task_id: str) -> str | None:
        """Our latest reply about a task: its message id."""
        row = self.db.execute(
            "SELECT message_id FROM messages WHERE task = ? AND direction = 'out' AND type = 'reply' ORDER BY id DESC",
            (task_id,),
        ).fetchone()
        return None if row is None else row[0]

    def sent_path(self, message_id: str) -> str | None:
        """Where below mailbox/ the file of a message of ours lies; None = it was not written yet."""
        row = self.db.execute(
            "SELECT path FROM messages WHERE message_id = ? AND direction = 'out'", (message_id,)
        ).fetchone()
        return None if row is None else row[0]
