"""Messages received and sent, their bytes, and the places of their files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mailboxd.ledger.conditions import OPEN
from mailboxd.ledger.written import Written

SYNCED = "outbox_synced"
"""The name in `meta` of an event number: messages sent up to it are durable in outbox/."""
UNSYNCED = (
    "FROM events e JOIN messages m ON m.id = json_extract(e.data, '$.message.id')"
    " JOIN bodies b ON b.message = m.id WHERE e.kind = 'message.sent'"
    f" AND e.seq > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE name = '{SYNCED}'), 0)"
)
"""Messages (m) sent later, with their bytes (b)."""


@dataclass(frozen=True, slots=True)
class FirstArrival:
    """The first arrival of a message."""

    task: str | None
    sha256: str
    name: str
    at: str


@dataclass(frozen=True, slots=True)
class OfBytes:
    """What is known of the earlier arrivals of some bytes."""

    task: str | None
    """The task of the latest one."""
    unfiled: bool
    """One of them was not moved out of the inbox yet."""
    put_back: bool
    """One of them had the same modification time."""
    returns: int
    """How many of them came lately, without the very first one."""
    is_told: bool
    """A person has been told of one of them, and has not dismissed that."""


@dataclass(frozen=True, slots=True)
class KnownWork:
    """What is known of work that has not been taken.

    `recovered` is the path of its message, if that came after the backup that was restored; else empty.
    """

    cancelled: bool
    recovered: str


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
    """A file in archive/ or rejected/. `path` is relative to mailbox/; `sha256` is None if it was never read."""

    id: str
    path: str
    sha256: str | None
    size: int
    task: str | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A message as the index of its day lists it. `path` is relative to mailbox/, `task` a local id or as it says."""

    id: str
    at: str
    sender: str
    receiver: str
    type: str
    task: str
    verdict: str
    path: str


_LISTED = (
    "m.id, m.at, coalesce(m.sender, ''), coalesce(m.receiver, ''), coalesce(m.type, ''), coalesce(t.local_id,"
    " m.task_id || coalesce('.' || m.subtask_id, ''), ''), m.verdict, m.path"
)
_MOST_COPIES = 100
_MTIME = "json_extract(stamp, '$.mtime_ns')"
_SAME_TIME = (
    f"{_MTIME} = ?2 OR ({_MTIME} / 1000000000 = ?2 / 1000000000 AND 0 IN ({_MTIME} % 1000000000, ?2 % 1000000000))"
)
"""Whether a file was changed at the time ?2, as far as a file system or a program that keeps whole seconds can tell."""
_FILED = "SELECT id, path, sha256, coalesce(size, 0), task FROM messages"
_UNFILED = "SELECT id, name, verdict = 'rejected', sha256, stamp, reason, at FROM messages"


class Messages:
    """Messages received and sent."""

    def __init__(self, db: sqlite3.Connection, written: Written | None = None) -> None:
        self._db = db
        self._written = written or Written()

    def count(self) -> int:
        """How many messages were received and sent."""
        return int(self._db.execute("SELECT count(*) FROM messages").fetchone()[0])

    def keep_body(self, message: str, raw: bytes) -> None:
        """Keep the bytes that were judged: they are filed, even if the file changes before it is moved."""
        self._db.execute("INSERT INTO bodies VALUES (?, ?)", (message, raw))
        self._written.bodies[message] = raw

    def body(self, message: str) -> bytes | None:
        row = self._db.execute("SELECT raw FROM bodies WHERE message = ?", (message,)).fetchone()
        return None if row is None else row[0]

    def first_arrival(self, message_id: str | None, sha256: str, sender: str = "") -> FirstArrival | None:
        """An earlier copy of the message, by its id, or by its bytes if it has none. Rejected messages do not count.

        `sender`: whom it names. Of an agent of another host only what came from that host counts: any host may know
        the ids of the others, and send something else under them.
        """
        where = "message_id IS NULL AND sha256 = ?1" if message_id is None else "message_id = ?1"
        host, dot, _ = sender.lower().partition(".")
        row = self._db.execute(
            f"SELECT task, sha256, name, at FROM messages WHERE {where} AND direction = 'in' AND verdict <> 'rejected'"
            " AND substr(lower(sender), 1, length(?2)) = ?2 LIMIT 1",
            (sha256 if message_id is None else message_id, host + dot if message_id and dot else ""),
        ).fetchone()
        return None if row is None else FirstArrival(*row)

    def of_bytes(self, sha256: str, mtime_ns: int | None, since: str) -> OfBytes | None:
        """What arrived with these bytes and without a message id, `mtime_ns` being the modification time of another
        copy; None if nothing did. Rejected messages do not count. `since`: from when on returns are counted.

        Only the latest `_MOST_COPIES` are looked at, so that a flood of copies costs no more for each.
        """
        rows = self._db.execute(
            f"SELECT task, path IS NULL, {_SAME_TIME}, at > ?3,"
            " verdict = 'duplicate' AND notice IS NOT NULL AND dismissed IS NULL FROM messages WHERE sha256 = ?1"
            " AND message_id IS NULL AND direction = 'in' AND verdict <> 'rejected' ORDER BY rowid DESC LIMIT ?4",
            (sha256, mtime_ns, since, _MOST_COPIES),
        ).fetchall()
        if not rows:
            return None
        tasks, unfiled, put_back, late, told = zip(*rows, strict=True)
        returns = sum(late) - (late[-1] if len(rows) < _MOST_COPIES else 0)
        return OfBytes(next(filter(None, tasks), None), any(unfiled), any(put_back), returns, any(told))

    def is_rejected(self, message: str) -> bool:
        """Whether this message was rejected."""
        row = self._db.execute("SELECT 1 FROM messages WHERE id = ? AND verdict = 'rejected'", (message,)).fetchone()
        return row is not None

    def was_rejected(self, sha256: str | None) -> bool:
        """Whether a file with these bytes was rejected before."""
        rejected = "SELECT 1 FROM messages WHERE sha256 = ? AND direction = 'in' AND verdict = 'rejected' LIMIT 1"
        return self._db.execute(rejected, (sha256,)).fetchone() is not None

    def imported_work(self, sender: str, task_id: str) -> tuple[str | None, str | None] | None:
        """Subtask id and message id of the imported dispatch of this work; None unless there is exactly one."""
        rows = self._db.execute(
            "SELECT DISTINCT subtask_id, message_id FROM messages WHERE task_id = ? AND direction = 'in' AND sender = ?"
            " AND type = 'task' AND verdict = 'imported' LIMIT 2",
            (task_id, sender),
        ).fetchall()
        return rows[0] if len(rows) == 1 else None

    def known_of(self, sender: str, task_id: str, subtask_id: str | None) -> KnownWork:
        """What came about this work before the work itself."""
        of_work = "FROM messages WHERE task_id = ?2 AND subtask_id IS ?3 AND direction = 'in' AND sender = ?1"
        row = self._db.execute(
            f"SELECT EXISTS (SELECT 1 {of_work} AND type = 'cancel' AND verdict = 'orphan'), (SELECT"
            f" coalesce(path, 'inbox/' || name) {of_work} AND type = 'task' AND verdict = 'recovered' LIMIT 1)",
            (sender, task_id, subtask_id),
        ).fetchone()
        return KnownWork(bool(row[0]), row[1] or "")

    def unfiled_id(self, sha256: str) -> str:
        """The id of the unfiled message with these bytes."""
        rows = self._db.execute(
            "SELECT id FROM messages WHERE sha256 = ? AND direction = 'in' AND path IS NULL ORDER BY id DESC LIMIT 1",
            (sha256,),
        )
        return str(rows.fetchone()[0])

    def names_in(self, folder: str) -> set[str]:
        """The names of the recorded files in a directory below mailbox/."""
        start = f"{folder}/"
        rows = self._db.execute("SELECT path FROM messages WHERE path >= ? AND path < ?", (start, f"{folder}0"))
        return {path[len(start) :] for (path,) in rows}

    def to_look_at(self, name: str) -> dict[str, str]:
        """Ids and names of the rejected and doubtful messages that were not dismissed and that are called so: by the
        name or path of their file, by the task that they are about, or else by the end of their id. Empty: all.
        """
        waiting = "m.dismissed IS NULL AND (m.verdict = 'rejected' OR m.notice IS NOT NULL)"
        called = (
            "?1 IN ('', m.name, m.path, 'mailbox/' || m.path, 'mailbox/inbox/' || m.name)"
            " OR m.task = (SELECT id FROM tasks WHERE local_id = ?1)"
        )
        for condition in (called, "lower(substr(m.id, -length(?1))) = lower(?1)"):
            rows = self._db.execute(
                f"SELECT m.id, m.name FROM messages m WHERE {waiting} AND ({condition}) ORDER BY m.id", (name,)
            )
            if found := dict(rows.fetchall()):
                return found
        return {}

    def unfiled(self, limit: int) -> list[Unfiled]:
        """Judged files that are still in the inbox, oldest first."""
        # +id: the index on id would be scanned in full
        rows = self._db.execute(f"{_UNFILED} WHERE path IS NULL ORDER BY +id LIMIT ?", (limit,))
        return [_unfiled(row) for row in rows]

    def judged(self, message: str) -> Unfiled:
        """A judged file, whether it was moved or not. Raises KeyError."""
        row = self._db.execute(f"{_UNFILED} WHERE id = ?", (message,)).fetchone()
        if row is None:
            raise KeyError(message)
        return _unfiled(row)

    def filed(self, after: str, limit: int) -> list[Filed]:
        """Files in archive/ and rejected/ with ids greater than `after`, by id."""
        where = "WHERE id > ? AND direction = 'in' AND path IS NOT NULL ORDER BY id LIMIT ?"
        return [Filed(*row) for row in self._db.execute(f"{_FILED} {where}", (after, limit))]

    def filed_among(self, messages: Iterable[str]) -> list[Filed]:
        """Those of these messages whose files are in archive/ or rejected/."""
        where = "WHERE id IN (SELECT value FROM json_each(?)) AND direction = 'in' AND path IS NOT NULL"
        return [Filed(*row) for row in self._db.execute(f"{_FILED} {where}", (json.dumps(list(messages)),))]

    def is_of_open_task(self, attachment: str) -> bool:
        """Whether a file came with a message about a task whose tree is open."""
        row = self._db.execute(
            "SELECT 1 FROM tasks t JOIN messages m ON m.task = t.id JOIN bodies b ON b.message = m.id"
            f" WHERE t.root IN (SELECT id FROM tasks WHERE {OPEN}) AND instr(b.raw, CAST(? AS BLOB)) LIMIT 1",
            (attachment,),
        )
        return row.fetchone() is not None

    def listed_on(self, day: str, places: Iterable[str]) -> list[Listed]:
        """The messages whose files are in the directories of a day, in the order of their ids."""
        ranges = [(f"{place}/{day}/", f"{place}/{day}0") for place in places]
        select = f"SELECT {_LISTED} FROM messages m LEFT JOIN tasks t ON t.id = m.task WHERE m.path > ? AND m.path < ?"
        return sorted(
            (Listed(*row) for ends in ranges for row in self._db.execute(select, ends)), key=lambda one: one.id
        )

    def listed_after(self, seq: int, limit: int) -> tuple[list[Listed], int | None]:
        """The messages filed, sent or undelivered since an event, in that order, and the last event seen; None: all."""
        rows = self._db.execute(
            f"SELECT e.seq, {_LISTED} FROM events e"
            " JOIN messages m ON m.id = coalesce(json_extract(e.data, '$.id'), json_extract(e.data, '$.message.id'))"
            " LEFT JOIN tasks t ON t.id = m.task WHERE e.seq > ? AND e.kind IN ('message.filed', 'message.sent',"
            " 'message.undelivered') AND m.path IS NOT NULL ORDER BY e.seq LIMIT ?",
            (seq, limit),
        ).fetchall()
        listed = {row[1]: Listed(*row[1:]) for row in rows}
        return [*listed.values()], rows[-1][0] if len(rows) == limit else None

    def head_of(self, name: str, since: str) -> tuple[str, str | None, str] | None:
        """The message that a file of this name may continue, its task, and the time of its latest part.

        Only messages with ids greater than `since`. Rejected ones count: they may have been rejected because a part was
        missing.
        """
        row = self._db.execute(
            "SELECT coalesce(json_extract(reason, '$.of'), id), task, at FROM messages WHERE id > ? AND name = ?"
            " AND direction = 'in' ORDER BY id DESC LIMIT 1",
            (since, name),
        ).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def awaiting_filing(self, names: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
        """Name and stamp of the files called so that were judged and only wait to be moved."""
        sql = "SELECT name, stamp FROM messages WHERE path IS NULL AND name IN (SELECT value FROM json_each(?))"
        rows = self._db.execute(sql, (json.dumps(list(names)),))
        return [(name, json.loads(stamp)) for name, stamp in rows]

    def is_filed(self, path: str) -> bool:
        return self._db.execute("SELECT 1 FROM messages WHERE path = ?", (path,)).fetchone() is not None

    def latest_reply(self, task_id: str) -> str | None:
        """The message id of the latest reply that was sent about a task."""
        row = self._db.execute(
            "SELECT message_id FROM messages WHERE task = ? AND direction = 'out' AND type = 'reply' ORDER BY id DESC",
            (task_id,),
        ).fetchone()
        return None if row is None else row[0]

    def question_before(self, task_id: str, message_id: str) -> str | None:
        """The message id of the last question received about a task before a sent message was composed."""
        row = self._db.execute(
            "SELECT message_id FROM messages WHERE task = ? AND direction = 'in' AND type = 'question'"
            " AND verdict = 'accepted' AND id < ? ORDER BY id DESC",
            (task_id, message_id),
        ).fetchone()
        return None if row is None else row[0]

    def sent_path(self, message_id: str) -> str | None:
        """The path of a sent message, relative to mailbox/; None if its file was not written yet."""
        row = self._db.execute("SELECT path FROM messages WHERE id = ? AND direction = 'out'", (message_id,)).fetchone()
        return None if row is None else row[0]

    def unsynced(self) -> list[tuple[str, bytes]]:
        """Path below mailbox/ and bytes of the messages sent since outbox/ was last synced."""
        return self._db.execute(f"SELECT m.path, b.raw {UNSYNCED} ORDER BY e.seq").fetchall()


def _unfiled(row: tuple[Any, ...]) -> Unfiled:
    return Unfiled(row[0], row[1], bool(row[2]), row[3], json.loads(row[4]), json.loads(row[5] or "null"), row[6])
