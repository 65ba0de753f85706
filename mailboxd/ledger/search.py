"""The full-text index: a database of its own, so that recording does not pay for it.

It stores how far it has read the log, by number and hash, and is rebuilt if that does not fit: after a replacement of
the database, with another version of the program, or when damaged. It may be deleted at any time.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, final

from mailboxd.core.events import OF_TASKS, upcast
from mailboxd.core.explain.describe import words_of
from mailboxd.core.vocabulary import state_of
from mailboxd.errors import Refused, StoreError, UnavailableError
from mailboxd.ledger.conditions import NEED
from mailboxd.ledger.database import store_error
from mailboxd.ledger.event_log import sentence
from mailboxd.ledger.presence import require_database
from mailboxd.ledger.reports import opened, status_of

VERSION = "5"
_AT_ONCE = 2_000
_BUSY_MS = 10_000
_SNIPPET_WORDS = 16
_TOKEN = re.compile(rb"^[ \t]*reply_token[ \t]*:[^\n]*\n", re.MULTILINE)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Letters of scripts without spaces between words, or, in Korean, before what is appended to a word: each is indexed as
a word, so that what is searched for is found within a sentence. Thai, Lao, Burmese, Khmer, Chinese and Japanese."""
_BREAK = "\u200b"
"""Invisible, and the end of a word."""
_UNSEEN = dict.fromkeys(map(ord, (_BREAK, "\ufeff")))
"""What is not shown of a text: these, and the byte order mark of a file from Windows."""
_WORDS = re.compile(r'"([^"]*)"?|(\S+)')
_SCHEMA = (
    "CREATE TABLE cursor (version TEXT NOT NULL, seq INTEGER NOT NULL, hash TEXT NOT NULL) STRICT",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, at TEXT NOT NULL, type TEXT NOT NULL,"
    " task TEXT, agents TEXT NOT NULL, place TEXT NOT NULL) STRICT",
    'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = "unicode61 remove_diacritics 2")',
    f"INSERT INTO cursor VALUES ('{VERSION}', 0, '')",
)
ReadSent = Callable[[str], bytes | None]
"""Returns the bytes of a sent message by its path below mailbox/, or None."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search. Empty fields match anything; `tasks` are ids; `until` is exclusive; times are ISO-8601 UTC."""

    query: str
    agent: str = ""
    tasks: tuple[str, ...] = ()
    status: str = ""
    since: str = ""
    until: str = ""
    type: str = ""
    limit: int = 20


class IndexHit(TypedDict):
    """A place in a workspace where a search found its words."""

    seq: int
    """Of its event."""
    at: str
    type: str
    """message, result or event."""
    task: str | None
    phase: str | None
    """None without a task, as the next three are."""
    need: str | None
    state: str | None
    status: str | None
    agents: list[str]
    """Those that it is of, in lower case."""
    where: str
    snippet: str
    """The words around, what was found in square brackets."""


@final
class SearchHit(IndexHit):
    """The same with where that is: the JSON of `search`. `seq` is 0 where a host with an earlier version has it."""

    agent: str
    """Whose workspace it is."""
    host: str
    """Empty: this one."""


@dataclass(frozen=True, slots=True)
class _Entry:
    seq: int
    at: str
    type: str
    task: str | None
    agents: tuple[str, ...]
    place: str
    text: str


def fts_query(text: str) -> str:
    """The FTS5 query for these words, safely quoted. Raises Refused if there is no word."""
    terms = []
    for phrase, word in _WORDS.findall(text.replace("\0", " ")):
        prefix = "*" if word.endswith("*") else ""
        term = phrase or word.rstrip("*")
        if any(char.isalnum() for char in term):
            terms.append('"' + _broken(term).replace('"', '""') + '"' + prefix)
    if not terms:
        raise Refused("bad-query", "there is no word to search for", 'Write words, or "words in quotes".')
    return " ".join(terms)


def _broken(text: str) -> str:
    return _UNSPACED.sub(rf"{_BREAK}\g<0>{_BREAK}", text)


class Index:
    """The index at `path` over the database at `main`, as a context manager. Call `catch_up` before `find`."""

    def __init__(self, path: Path, main: Path, read_sent: ReadSent) -> None:
        self._path = path
        self._main = main
        self._read_sent = read_sent
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def catch_up(self) -> int:
        """Index the events recorded since the last call; returns their number. Raises UnavailableError, StoreError."""
        try:
            return self._catch_up(self._opened())
        except sqlite3.Error as error:
            if not _is_index_error(error):
                raise store_error(error, "of the search cannot be written", self._path) from error
        self.close()
        with opened(self._main) as report:  # if that is what is damaged, the index is not to blame
            report.db.execute("SELECT max(seq) FROM events").fetchone()
        with suppress(FileNotFoundError):
            self._path.unlink()
        try:
            return self._catch_up(self._opened())
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: the search index cannot be created: {error}") from error

    def find(self, wanted: SearchQuery) -> list[IndexHit]:
        """Matches, best first. Raises Refused for a query without a word, StoreError."""
        where, args = ["texts MATCH ?"], [fts_query(wanted.query)]
        for column, value in (("e.at >= ?", wanted.since), ("e.at < ?", wanted.until), ("e.type = ?", wanted.type)):
            if value:
                where.append(column)
                args.append(value)
        if wanted.agent:
            where.append("instr(e.agents, ?) > 0")
            args.append(f" {wanted.agent.lower()} ")
        if wanted.tasks:
            where.append("e.task IN (SELECT value FROM json_each(?))")
            args.append(json.dumps(wanted.tasks))
        around = _SNIPPET_WORDS * (3 if _UNSPACED.search(wanted.query) else 1)  # where each letter is one
        sql = (
            "SELECT e.seq, e.at, e.type, e.place, e.agents, t.local_id, t.phase, t.mode, t.attempt, t.parent,"
            f" t.result <> '', snippet(texts, 0, '[', ']', ' ... ', {around}), bm25(texts)"
            " FROM texts JOIN entries e ON e.id = texts.rowid LEFT JOIN main_db.tasks t ON t.id = e.task"
            f" WHERE {' AND '.join(where)} ORDER BY bm25(texts), e.seq DESC"
        )
        found: list[IndexHit] = []
        needs: dict[str, str | None] = {}
        try:
            for row in self._opened().execute(sql, args):
                hit = _hit(row, self._need(row[5], needs))
                if wanted.status in ("", hit["phase"], hit["status"], hit["state"]):
                    found.append(hit)
                if len(found) == wanted.limit:
                    break
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: the search index cannot be read: {error}; delete it") from error
        return found

    def _need(self, task: str | None, known: dict[str, str | None]) -> str | None:
        """Why the task with this local id waits for a person; None if it does not. Each is asked for once."""
        if task is not None and task not in known:
            row = self._opened().execute(f"SELECT {NEED} FROM tasks t WHERE t.local_id = ?", (task,)).fetchone()
            known[task] = row and row[0]
        return known[task] if task is not None else None

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            require_database(self._main)
            self._db = sqlite3.connect(self._path.resolve().as_uri(), uri=True, isolation_level=None)
            self._path.chmod(0o600)
            self._db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            self._db.execute("PRAGMA synchronous = OFF")  # what is lost is indexed again
            self._db.execute("ATTACH ? AS main_db", (f"{self._main.resolve().as_uri()}?mode=ro",))
        return self._db

    def _catch_up(self, db: sqlite3.Connection) -> int:
        read = 0
        while True:
            db.execute("BEGIN IMMEDIATE")
            try:
                seq = self._begin(db)
                entries, last, count = self._unread(db, seq)
                for entry in entries:
                    _add(db, entry)
                if last is not None:
                    db.execute("UPDATE cursor SET seq = ?, hash = ?", last)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            read += count
            if count < _AT_ONCE:
                return read

    def _begin(self, db: sqlite3.Connection) -> int:
        """The last indexed event; the index is emptied if it was built from another log."""
        exists = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'cursor'").fetchone()
        if exists is not None:
            version, seq, digest = db.execute("SELECT version, seq, hash FROM cursor").fetchone()
            row = db.execute("SELECT hash FROM main_db.events WHERE seq = ?", (seq,)).fetchone()
            if version == VERSION and (seq == 0 or (row is not None and row[0] == digest)):
                return int(seq)
            for table in ("cursor", "entries", "texts"):
                db.execute(f"DROP TABLE IF EXISTS main.{table}")
        for statement in _SCHEMA:
            try:
                db.execute(statement)
            except sqlite3.OperationalError as error:
                if "fts5" not in str(error):
                    raise
                raise UnavailableError(
                    f"this Python's SQLite {sqlite3.sqlite_version} has no full-text search (FTS5); use a Python whose "
                    "SQLite has it, or search `mailboxd log --json` with grep"
                ) from error
        return 0

    def _unread(self, db: sqlite3.Connection, after: int) -> tuple[list[_Entry], tuple[int, str] | None, int]:
        rows = db.execute(
            "SELECT e.seq, e.at, e.kind, e.task, e.role, e.actor, e.data, e.hash, coalesce(t.local_id, ''),"
            " coalesce(t.executor, '') FROM main_db.events e LEFT JOIN main_db.tasks t ON t.id = e.task"
            " WHERE e.seq > ? ORDER BY e.seq LIMIT ?",
            (after, _AT_ONCE),
        ).fetchall()
        entries = [entry for row in rows for entry in self._entries(db, row)]
        return entries, ((rows[-1][0], rows[-1][7]) if rows else None), len(rows)

    def _entries(self, db: sqlite3.Connection, row: Sequence[Any]) -> Iterator[_Entry]:
        seq, at, kind, task, role, actor, text, _, name, executor = row
        of, data = upcast(kind, json.loads(text))
        turn = data.get("turn", {}) if of in OF_TASKS else {}
        people = (
            actor,
            executor,
            *(str(part.get("agent", "")) for part in (data, turn)),
            str(data.get("reviewer", "")),
        )
        told = sentence(kind, task, text, role, actor, name)
        for words in words_of(of, data):
            told += "" if words in told else f"\n{words}"  # a match is shown once
        yield _Entry(seq, at, "event", task, people, f"event {seq}", told)
        message = data.get("message")
        for artifact in data.get("artifacts", ()):
            makers = (str(artifact["produced_by"]), executor)
            yield _Entry(seq, at, "result", task, makers, f"artifact {artifact['id']}", str(artifact["body"]))
        if isinstance(message, dict):
            yield self._message(db, seq, at, task, message)

    def _message(self, db: sqlite3.Connection, seq: int, at: str, task: str | None, row: dict[str, Any]) -> _Entry:
        found = db.execute("SELECT raw FROM main_db.bodies WHERE message = ?", (row["id"],)).fetchone()
        raw, place = (found[0] if found else None), f"message {row['id']} ({row['name']})"
        if row["direction"] == "out":  # the file of a message whose bytes are kept may not be written yet
            raw, place = raw or self._read_sent(str(row["path"])), f"mailbox/{row['path']}"
        # a reply token authorizes replies, so it is not indexed
        text = _TOKEN.sub(b"", raw or b"").decode("utf-8", "replace").replace("\0", " ")
        people = (str(row.get("sender") or ""), str(row.get("receiver") or ""))
        reason = " ".join(str(part) for part in (row.get("reason") or {}).values())
        return _Entry(seq, at, "message", task, people, place, f"{text}\n{reason}")


def _add(db: sqlite3.Connection, entry: _Entry) -> None:
    agents = f" {' '.join(sorted({name.lower() for name in entry.agents if name}))} "
    row = (entry.seq, entry.at, entry.type, entry.task, agents, entry.place)
    cursor = db.execute("INSERT INTO entries (seq, at, type, task, agents, place) VALUES (?, ?, ?, ?, ?, ?)", row)
    db.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (cursor.lastrowid, _broken(entry.text)))


def _hit(row: Sequence[Any], need: str | None) -> IndexHit:
    seq, at, kind, place, agents, task, phase, mode, attempt, parent, has_result, snippet, _ = row
    columns = {"phase": phase, "mode": mode, "attempt": attempt}
    status = status_of(columns, has_result=bool(has_result), as_child=parent is not None) if phase else None
    return {
        "seq": seq, "at": at, "type": kind, "task": task, "phase": phase, "need": need,
        "state": state_of(phase, need) if phase else None, "status": status, "agents": agents.split(),
        "where": place, "snippet": " ".join(snippet.translate(_UNSEEN).split()),
    }  # fmt: skip


def _is_index_error(error: sqlite3.Error) -> bool:
    """Whether the index is damaged or not an index; it is then deleted."""
    text = str(error)
    return any(part in text for part in ("malformed", "not a database", "no such", "has no column"))
