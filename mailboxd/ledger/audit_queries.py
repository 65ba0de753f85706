"""The queries of an audit: the recorded facts about every file, and the log."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mailboxd.ledger import event_log
from mailboxd.ledger.conditions import BELOW, OPEN
from mailboxd.ledger.messages import UNSYNCED
from mailboxd.ledger.reports import Report
from mailboxd.ledger.written import EventRow

_FILE = "id, direction, verdict, name, path, sha256, size, reason, at"

_JUST_SENT = f"SELECT m.id {UNSYNCED} AND e.seq > (SELECT max(seq) FROM events) - 10000"
"""A bound on what counts as just sent, whatever `meta` says: a forged value hides no older message."""


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A recorded message. `path` is relative to mailbox/; None if it was judged but not moved yet."""

    id: str
    direction: str
    verdict: str
    name: str
    path: str | None
    sha256: str | None
    size: int | None
    reason: dict[str, Any] | None
    at: str


def filed(db: sqlite3.Connection) -> Iterator[RecordedFile]:
    """Every message with a file, by path, except those just sent.

    Their files are written after the commit, by the next daemon after a crash, from the bytes kept here.
    """
    safe = f"path IS NOT NULL AND id NOT IN ({_JUST_SENT})"
    for row in db.execute(f"SELECT {_FILE} FROM messages WHERE {safe} ORDER BY path"):
        yield _read(row)


def paths(db: sqlite3.Connection) -> set[str]:
    """The paths of all messages, relative to mailbox/."""
    return {row[0] for row in db.execute("SELECT path FROM messages WHERE path IS NOT NULL")}


def in_transit(db: sqlite3.Connection) -> tuple[set[str], set[str]]:
    """Identifiers of files whose path is not recorded yet: hashes and names of judged files; ids of messages to send.

    A file is moved, or written to outbox/, after the decision and before that is recorded.
    """
    judged: set[str] = set()
    for row in db.execute("SELECT sha256, name FROM messages WHERE path IS NULL"):
        judged |= {value for value in row if value is not None}
    ordered = db.execute(
        "SELECT json_extract(data, '$.message_id') FROM outbox WHERE state = 'pending'"
        " AND json_extract(data, '$.message_id') <> ''"
    )
    return judged, {row[0] for row in ordered}


def changed_body(db: sqlite3.Connection) -> tuple[str, str | None] | None:
    """The first message whose kept bytes do not match its recorded hash, with that hash; None as hash if it is not
    recorded.
    """
    kept = "SELECT b.message, m.sha256, b.raw FROM bodies b LEFT JOIN messages m ON m.id = b.message ORDER BY b.rowid"
    for message, sha256, raw in db.execute(kept):
        if hashlib.sha256(raw).hexdigest() != sha256:
            return message, sha256
    return None


def sent_with_text(db: sqlite3.Connection, last: int) -> Iterator[tuple[int, str]]:
    """The events up to number `last` that sent a message whose bytes are kept, each with the message's id."""
    yield from db.execute(
        "SELECT e.seq, b.message FROM events e JOIN bodies b ON b.message = json_extract(e.data, '$.message.id')"
        " WHERE e.kind = 'message.sent' AND e.seq <= ? ORDER BY e.seq",
        (last,),
    )


def below(db: sqlite3.Connection, task_id: str) -> list[tuple[str, str]]:
    """Id and local id of a task and its descendants, parents first."""
    sql = f"{BELOW} SELECT t.id, t.local_id FROM tasks t JOIN below b ON b.id = t.id ORDER BY t.depth, t.seq"
    return list(db.execute(sql, (task_id,)))


def files_of(db: sqlite3.Connection, task_id: str) -> list[RecordedFile]:
    """The messages with a file about a task and its descendants, by path."""
    rows = db.execute(
        f"{BELOW} SELECT {_FILE} FROM messages WHERE path IS NOT NULL AND task IN (SELECT id FROM below) ORDER BY path",
        (task_id,),
    )
    return [_read(row) for row in rows]


def artifacts_of(db: sqlite3.Connection, task_id: str) -> Iterator[tuple[str, str, str]]:
    """Id, recorded hash and text of each artifact of a task and its descendants that is a text, by id."""
    yield from db.execute(
        f"{BELOW} SELECT id, sha256, body FROM artifacts WHERE task IN (SELECT id FROM below)"
        " AND uri LIKE 'mailboxd:%' ORDER BY id",
        (task_id,),
    )


def open_below(db: sqlite3.Connection, task_id: str) -> list[str]:
    """The local ids of a task and its descendants that have not ended, parents first."""
    sql = f"{BELOW} SELECT local_id FROM tasks t WHERE id IN (SELECT id FROM below) AND {OPEN} ORDER BY depth, seq"
    return [row[0] for row in db.execute(sql, (task_id,))]


def lines(db: sqlite3.Connection, task_id: str) -> Iterator[str]:
    """The events of a task tree and its messages, as lines of JSON (docs/audit.md)."""
    rows = db.execute(f"{BELOW} SELECT {event_log.COLUMNS} FROM events WHERE {_OF_TREE} ORDER BY seq", (task_id,))
    yield from map(event_log.line, rows)


_OF_TREE = (
    "task IN (SELECT id FROM below) OR (kind = 'message.filed' AND json_extract(data, '$.id') IN"
    " (SELECT id FROM messages WHERE task IN (SELECT id FROM below)))"
)


def events_of(db: sqlite3.Connection, task_id: str) -> list[int]:
    """The numbers of the events of a task tree and its messages, in order."""
    return [row[0] for row in db.execute(f"{BELOW} SELECT seq FROM events WHERE {_OF_TREE} ORDER BY seq", (task_id,))]


def policy_of(db: sqlite3.Connection, task_id: str) -> list[EventRow]:
    """The changes of the configuration up to the last one under which an approval of a tree was decided, as rows with
    `event_log.COLUMNS`; none if no approval names one.
    """
    sql = (
        f"{BELOW} SELECT {event_log.COLUMNS} FROM events WHERE kind = 'config.changed' AND seq <= (SELECT"
        " max(json_extract(data, '$.policy')) FROM events WHERE kind = 'approval.resolved'"
        " AND task IN (SELECT id FROM below)) ORDER BY seq"
    )
    return db.execute(sql, (task_id,)).fetchall()


def events_between(db: sqlite3.Connection, first: int, last: int) -> Iterator[EventRow]:
    """All events from `first` to `last`, as rows with `event_log.COLUMNS`."""
    yield from db.execute(
        f"SELECT {event_log.COLUMNS} FROM events WHERE seq BETWEEN ? AND ? ORDER BY seq", (first, last)
    )


def prompts_of(report: Report, events: Sequence[int]) -> list[tuple[str, str]]:
    """SHA-256 and text of the prompts that these events name and that were kept."""
    if not report.has_table("prompts"):
        return []
    rows = report.db.execute(
        "SELECT DISTINCT p.sha256, p.text FROM json_each(?) n JOIN events e ON e.seq = n.value"
        " JOIN prompts p ON p.sha256 = json_extract(e.data, '$.turn.prompt.sha256') ORDER BY p.sha256",
        (json.dumps(list(events)),),
    )
    return [(sha256, raw.decode("utf-8", "surrogateescape")) for sha256, raw in rows]


def _read(row: tuple[Any, ...]) -> RecordedFile:
    message, direction, verdict, name, path, sha256, size, reason, at = row
    parsed = None if reason is None else json.loads(reason)
    return RecordedFile(message, direction, verdict, name, path, sha256, size, parsed, at)
