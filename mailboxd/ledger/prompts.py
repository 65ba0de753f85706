"""Texts of prompts, each once, by their SHA-256: kept where the configuration says so (`archive.prompts: text`)."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator

from mailboxd.core.outcomes import PromptDigest, PromptText
from mailboxd.ledger.written import Written

_NEXT = "(SELECT coalesce(max(rev), 0) + 1 FROM outbox)"


class Prompts:
    """Keeps the texts of prompts, and finds them again."""

    def __init__(self, db: sqlite3.Connection, written: Written) -> None:
        self._db = db
        self._written = written

    def keep(self, raw: bytes, most: int, *, is_message: bool) -> PromptDigest:
        """The digest of a prompt, whose text is kept if it has at most `most` bytes; 0: texts are not kept.

        `is_message`: it is a message that is kept as such, in `bodies` and outbox/. Inside a transaction, in which the
        next change of `outbox` names it.
        """
        digest = PromptDigest(hashlib.sha256(raw).hexdigest(), len(raw))
        if is_message or not most:
            return digest
        if digest.size > most:
            return PromptDigest(digest.sha256, digest.size, PromptText.LEFT_OUT)
        sql = f"INSERT OR IGNORE INTO prompts VALUES (?, ?, {_NEXT}) RETURNING *"
        self._written.prompts += self._db.execute(sql, (digest.sha256, raw)).fetchall()
        return PromptDigest(digest.sha256, digest.size, PromptText.KEPT)


def text_of(db: sqlite3.Connection, sha256: str, task: str) -> bytes | None:
    """The bytes with this digest that a turn of the task was asked; None if they were not kept.

    A turn that gave work to a peer was asked by a message, which is kept as such.
    """
    row = db.execute("SELECT text FROM prompts WHERE sha256 = ?", (sha256,)).fetchone()
    if row is None:
        sql = "SELECT raw FROM messages m JOIN bodies b ON b.message = m.id WHERE m.task = ? AND m.sha256 = ?"
        row = db.execute(sql, (task, sha256)).fetchone()
    return None if row is None else bytes(row[0])


def missing(db: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """The events that say that the text of a prompt is kept, where it is not, each with the SHA-256 of that text."""
    yield from db.execute(
        "SELECT seq, json_extract(data, '$.turn.prompt.sha256') AS sha256 FROM events"
        " WHERE kind IN ('turn.ended', 'attempt.ended') AND json_extract(data, '$.turn.prompt.text') = 'kept'"
        " AND sha256 NOT IN (SELECT sha256 FROM prompts) ORDER BY seq"
    )


def changed(db: sqlite3.Connection) -> str | None:
    """The SHA-256 of the first text that is kept under it and has another one."""
    for sha256, raw in db.execute("SELECT sha256, text FROM prompts ORDER BY rev"):
        if hashlib.sha256(raw).hexdigest() != sha256:
            return str(sha256)
    return None
