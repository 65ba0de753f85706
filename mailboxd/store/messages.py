"""Messages: what came before, what still lies in the inbox, what we sent."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SYNCED = "outbox_synced"
"""Under this name `meta` has the number of an event: what was sent up to it lies in outbox/ for good."""
UNSYNCED = (
    "FROM events e JOIN messages m ON m.id = json_extract(e.data, '$.message.id')"
    " JOIN bodies b ON b.message = m.id WHERE e.kind = 'message.sent'"
    f" AND e.seq > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE name = '{SYNCED}'), 0)"
)
"""What was sent later, and the database has as well: messages as m, their bytes as b."""


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


@dataclass(frozen=True, slots=True)
class Filed:
    """A file in archive/ or rejected/; `path` is below mailbox/. `sha256` is None for what was never read."""

    id: str
    path: str
    sha256: str | None
    size: int
    task: str | None


_FILED = "SELECT id, path, sha256, coalesce(size, 0), task FROM messages"
_UNFILED = "SELECT id, name, verdict = 'rejected', sha256, stamp, reason, at FROM messages"
_DAY = len("archive/2026-01-01")


class Messages:
    """Messages received and sent, their bytes, and where their files are."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def keep_body(self, message: str, raw: bytes) -> None:
        """Keep the bytes that were judged: what is filed later is these, whatever happened to the file since."""
        self._db.execute("INSERT INTO bodies VALUES (?, ?)", (message, raw))

    def body(self, message: str) -> bytes | None:
        row = self._db.execute("SELECT raw FROM bodies WHERE message = ?", (message,)).fetchone()
        return None if row is None else row[0]

    def first_arrival(self, message_id: str | None, sha256: str) -> Earlier | None:
        """The same message as it came before: by its id, or without one by its bytes. Rejected ones do not count."""
        where = "message_id IS NULL AND sha256 = ?" if message_id is None else "message_id = ?"
        row = self._db.execute(
            f"SELECT task, sha256 FROM messages WHERE {where} AND direction = 'in' AND verdict <> 'rejected' LIMIT 1",
            (sha256 if message_id is None else message_id,),
        ).fetchone()
        return None if row is None else Earlier(*row)

    def was_rejected(self, sha256: str | None) -> bool:
        """Whether a file of these bytes has been rejected before."""
        found = "SELECT 1 FROM messages WHERE sha256 = ? AND direction = 'in' AND verdict = 'rejected' LIMIT 1"
        return self._db.execute(found, (sha256,)).fetchone() is not None

    def imported_work(self, sender: str, task_id: str) -> tuple[str | None, str | None] | None:
        """Subtask id and message id of the imported dispatch of this work; None if there is not exactly one."""
        rows = self._db.execute(
            "SELECT DISTINCT subtask_id, message_id FROM messages WHERE task_id = ? AND sender = ? AND type = 'task'"
            " AND verdict = 'imported' LIMIT 2",
            (task_id, sender),
        ).fetchall()
        return rows[0] if len(rows) == 1 else None

    def recovered_path(self, sender: str, task_id: str, subtask_id: str | None) -> str | None:
        """Where the dispatch of this work lies that came after the copy of the database that was put back."""
        row = self._db.execute(
            "SELECT path FROM messages WHERE task_id = ?2 AND subtask_id IS ?3 AND sender = ?1"
            " AND type = 'task' AND verdict = 'recovered' LIMIT 1",
            (sender, task_id, subtask_id),
        ).fetchone()
        return None if row is None else str(row[0])

    def unfiled_id(self, sha256: str) -> str:
        """The id of the message of these bytes that was judged and has no place on record yet."""
        rows = self._db.execute(
            "SELECT id FROM messages WHERE sha256 = ? AND direction = 'in' AND path IS NULL ORDER BY id DESC LIMIT 1",
            (sha256,),
        )
        return str(rows.fetchone()[0])

    def names_in(self, folder: str) -> set[str]:
        """The names of the files that are on record in a directory below mailbox/."""
        start = f"{folder}/"
        rows = self._db.execute("SELECT path FROM messages WHERE path >= ? AND path < ?", (start, f"{folder}0"))
        return {path[len(start) :] for (path,) in rows}

    def cancelled_before(self, sender: str, task_id: str, subtask_id: str | None) -> bool:
        """Whether a cancel for this work lies in the archive as an orphan: it came before the work."""
        row = self._db.execute(
            "SELECT 1 FROM messages WHERE task_id = ?2 AND subtask_id IS ?3 AND sender = ?1"
            " AND type = 'cancel' AND verdict = 'orphan' LIMIT 1",
            (sender, task_id, subtask_id),
        ).fetchone()
        return row is not None

    def unfiled(self, limit: int) -> list[Unfiled]:
        """Judged files that still lie in the inbox, oldest first."""
        # not by the index of ids, through all of them
        rows = self._db.execute(f"{_UNFILED} WHERE path IS NULL ORDER BY +id LIMIT ?", (limit,))
        return [_unfiled(row) for row in rows]

    def judged(self, message: str) -> Unfiled:
        """A file as it was judged, whether it was moved since or not. Raises KeyError."""
        row = self._db.execute(f"{_UNFILED} WHERE id = ?", (message,)).fetchone()
        if row is None:
            raise KeyError(message)
        return _unfiled(row)

    def filed(self, after: str, limit: int) -> list[Filed]:
        """What was moved to archive/ and rejected/, in the order of the ids, after that one."""
        where = "WHERE id > ? AND direction = 'in' AND path IS NOT NULL ORDER BY id LIMIT ?"
        return [Filed(*row) for row in self._db.execute(f"{_FILED} {where}", (after, limit))]

    def filed_among(self, messages: Iterable[str]) -> list[Filed]:
        """Of these messages, those that were moved to archive/ and rejected/."""
        where = "WHERE id IN (SELECT value FROM json_each(?)) AND direction = 'in' AND path IS NOT NULL"
        return [Filed(*row) for row in self._db.execute(f"{_FILED} {where}", (json.dumps(list(messages)),))]

    def filed_in(self, place: str, after: str, limit: int) -> list[Filed]:
        """What was moved to a directory (below mailbox/), in the order of the paths, after that one."""
        where = "WHERE path > ? AND path < ? AND direction = 'in' ORDER BY path LIMIT ?"
        ends = (after or f"{place}/", f"{place}0", limit)  # the character after the slash
        return [Filed(*row) for row in self._db.execute(f"{_FILED} {where}", ends)]

    def archive_days(self) -> list[str]:
        """The directories of days in archive/, below mailbox/, to which anything was moved."""
        following = "SELECT path FROM messages WHERE path > {} AND path < 'archive0' ORDER BY path LIMIT 1"
        first, other = following.format("'archive/'"), following.format(f"substr(known.path, 1, {_DAY}) || '0'")
        rows = self._db.execute(
            f"WITH RECURSIVE known (path) AS (SELECT ({first}) UNION ALL SELECT ({other}) FROM known"
            f" WHERE known.path IS NOT NULL) SELECT substr(path, 1, {_DAY}) FROM known"
            f" WHERE substr(path, {_DAY + 1}, 1) = '/'"
        )
        return [row[0] for row in rows]

    def head_of(self, name: str, since: str) -> tuple[str, str | None, str] | None:
        """The message whose rest a file of this name may be, its task, and when it or its rest was last heard of.

        `since`: only what came after that id. What was rejected counts as well: perhaps because its rest was missing.
        """
        row = self._db.execute(
            "SELECT coalesce(json_extract(reason, '$.of'), id), task, at FROM messages WHERE id > ? AND name = ?"
            " AND direction = 'in' ORDER BY id DESC LIMIT 1",
            (since, name),
        ).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def awaits_filing(self, name: str, stamp: Mapping[str, Any]) -> bool:
        """Whether this very file has been judged and only has not been moved out of the inbox yet."""
        rows = self._db.execute("SELECT stamp FROM messages WHERE path IS NULL AND name = ?", (name,))
        return any(json.loads(row[0]) == dict(stamp) for row in rows)

    def is_filed(self, path: str) -> bool:
        return self._db.execute("SELECT 1 FROM messages WHERE path = ?", (path,)).fetchone() is not None

    def latest_reply(self, task_id: str) -> str | None:
        """Our latest reply about a task: its message id."""
        row = self._db.execute(
            "SELECT message_id FROM messages WHERE task = ? AND direction = 'out' AND type = 'reply' ORDER BY id DESC",
            (task_id,),
        ).fetchone()
        return None if row is None else row[0]

    def question_before(self, task_id: str, message_id: str) -> str | None:
        """The last question about a task that we had heard when a message of ours was made: its message id."""
        row = self._db.execute(
            "SELECT message_id FROM messages WHERE task = ? AND direction = 'in' AND type = 'question'"
            " AND verdict = 'accepted' AND id < ? ORDER BY id DESC",
            (task_id, message_id),
        ).fetchone()
        return None if row is None else row[0]

    def sent_path(self, message_id: str) -> str | None:
        """Where below mailbox/ the file of a message of ours lies; None = it was not written yet."""
        row = self._db.execute(
            "SELECT path FROM messages WHERE message_id = ? AND direction = 'out'", (message_id,)
        ).fetchone()
        return None if row is None else row[0]

    def kept(self, message_id: str) -> tuple[str, bytes]:
        """Name in outbox/ and bytes of a message of ours that is kept. Raises KeyError when it is not."""
        row = self._db.execute(
            "SELECT m.name, b.raw FROM messages m JOIN bodies b ON b.message = m.id"
            " WHERE m.message_id = ? AND m.direction = 'out'",
            (message_id,),
        ).fetchone()
        if row is None:
            raise KeyError(message_id)
        return row[0], row[1]

    def unsynced(self) -> list[tuple[str, bytes]]:
        """Name in outbox/ and bytes of what was sent since it was noted that everything there is durable."""
        return self._db.execute(f"SELECT m.name, b.raw {UNSYNCED} ORDER BY e.seq").fetchall()


def _unfiled(row: tuple[Any, ...]) -> Unfiled:
    return Unfiled(row[0], row[1], bool(row[2]), row[3], json.loads(row[4]), json.loads(row[5] or "null"), row[6])
