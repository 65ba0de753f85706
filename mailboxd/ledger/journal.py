"""The journal: each committed event is a line of `mailbox/archive/events/DATE.jsonl` (protocol, amendment 9).

People read it with `less`, `jq` and git, and `mailboxd db rebuild` recreates the database from it. Besides events it
has the bodies of sent messages, the texts of prompts that are kept, and the rows of `outbox` and `meta`, which no event
contains.

It is a projection of the database: every process appends after its commit whatever the last line does not cover, so a
crash between commit and append leaves nothing out. Lines are synced before the next commit. Days follow the time of the
events and never go back, so that files in the order of their names have the events in order.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from mailboxd.core.events import Event, Kind, recorded_event
from mailboxd.errors import EXIT_CONFIG, DamagedError
from mailboxd.host.system import system
from mailboxd.ledger import event_log
from mailboxd.ledger.connection import Connection
from mailboxd.ledger.database import migrate, transaction
from mailboxd.ledger.event_log import START, Tip
from mailboxd.ledger.projection import project
from mailboxd.ledger.task_cache import TaskCache
from mailboxd.ledger.written import EventRow, PromptRow, Written

FORMAT = "mailboxd-journal-1"
_DAY_FILE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.jsonl", re.ASCII)
_KEYS = {"outbox": "seq", "meta": "name"}
"""Tables whose rows are journaled, with the column that identifies a row."""
_AT_ONCE = 1_000
"""Lines written in one call."""
_BLOCK = 1 << 16
_EVENTS_AT_ONCE = 500
_CACHE = 64 << 20
"""Bytes of a new database in memory while it is filled."""


@dataclass(frozen=True, slots=True)
class Position:
    """The end of the journal: the last event, and the `rev` of the last change of each table in `_KEYS`."""

    tip: Tip = START
    revs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_KEYS, 0))


class JournalAheadError(Exception):
    """The journal has events that the database lacks, or other ones."""


class ForeignJournalError(DamagedError):
    """The journal is another database's: it says nothing about this one, and nothing is written to it."""

    exit_code = EXIT_CONFIG


class Journal:
    """The journal of one workspace, for a process that commits. A failure is kept in `trouble` and retried."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = str(folder_of(root))
        self._folder = -1
        self._own: tuple[int, int] | None = None
        """Which directory that is."""
        self._file = -1
        self._name = ""
        self._position = Position()
        self._state: tuple[int, int] | None = None
        """Size of the file and mtime of the directory after our last write: if they differ, others have written."""
        self._changes = -1
        """`total_changes` of the connection when everything was appended."""
        self._unsynced = False
        self.trouble = ""
        """Why the journal lacks the latest commits; empty if it has them."""

    def append(self, db: sqlite3.Connection, written: Written) -> None:
        """Append what the last transaction has `written`. Call outside transactions.

        It is read from the database if the journal does not end where that transaction began.
        """
        if self._changes == db.total_changes and not self.trouble:
            return
        try:
            with self._locked():
                if written.since == self._changes and self._ends_where_we_left_it():
                    rows = {table: changed.values() for table, changed in written.rows.items()}
                    self._append(db, written.events, written.bodies.get, rows, written.prompts)
                else:
                    with _snapshot(db):
                        self._catch_up(db)
            self._changes, self.trouble = db.total_changes, ""
        except (OSError, JournalAheadError, DamagedError, sqlite3.Error) as error:
            self._failed(error)

    def expect_more(self) -> None:
        """The next `append` looks for events of other processes, even if this one has recorded none."""
        self._changes = -1

    def sync(self) -> None:
        """Make everything durable that was appended."""
        if not self._unsynced:
            return
        try:
            system.sync_data(self._file)
            self._unsynced = False
        except OSError as error:
            self._failed(error)

    def close(self) -> None:
        self.sync()
        self._release()

    def set_aside(self, stamp: str) -> None:
        """Rename the journal of a log that was replaced; a new one is written from the database. Raises OSError."""
        self._release()
        folder = folder_of(self._root)
        with suppress(FileNotFoundError):
            folder.rename(folder.with_name(f"{folder.name}.replaced-{stamp.replace(':', '').replace('.', '')}"))

    def ahead(self, db: sqlite3.Connection) -> str:
        """How the journal shows that the database is older, as text; empty if it does not, or cannot be read.

        Raises ForeignJournalError.
        """
        try:
            if folder_of(self._root).is_dir():
                with self._locked():
                    self._find_position(db)
        except JournalAheadError as error:
            return str(error)
        except ForeignJournalError:
            self._release()
            raise
        except (OSError, DamagedError) as error:
            self._failed(error)
        return ""

    def append_head(self, said: Mapping[str, Any]) -> None:
        """Append a signed head of the log (`mailboxd.ledger.signed_heads`); all events up to it are in the journal."""
        try:
            with self._locked():
                if self._changes >= 0 and self._file >= 0 and self._state == self._current_state():
                    _write(self._file, _json({"head": said}))
                    self._unsynced, self._state = True, self._current_state()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._release()  # the next attempt reads where the journal ends
        self.trouble = f"{folder_of(self._root)}: the journal cannot be continued: {error}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory, which is opened again if another one has taken its place."""
        if self._folder < 0 or _identity_at(self._path) != self._own:
            self._release()
            self._folder = _open_folder(self._root)
            self._own = _identity(os.fstat(self._folder))
        fcntl.flock(self._folder, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._folder >= 0:
                fcntl.flock(self._folder, fcntl.LOCK_UN)

    def _catch_up(self, db: sqlite3.Connection) -> None:
        """Append what the database has after the end of the journal."""
        if not self._ends_where_we_left_it():
            self._find_position(db)
        last, revs = self._position.tip.seq, self._position.revs
        events = db.execute(f"SELECT {event_log.COLUMNS} FROM events WHERE seq > ? ORDER BY seq", (last,))
        rows = {table: _changed(db, table, revs[table]) for table in _KEYS}
        prompts = db.execute("SELECT * FROM prompts WHERE rev > ? ORDER BY rev", (revs["outbox"],))
        self._append(db, events, partial(_body, db), rows, prompts)

    def _append(
        self,
        db: sqlite3.Connection,
        events: Iterable[EventRow],
        body: Callable[[str], bytes | None],
        rows: Mapping[str, Iterable[Mapping[str, Any]]],
        prompts: Iterable[PromptRow],
    ) -> None:
        """Append events, the bytes of the messages that they say were sent, and changed rows by their table.

        Texts of prompts come before the rows that name them: where the rows end, they are there.
        """
        tip, revs, pending = self._position.tip, dict(self._position.revs), list[str]()
        for row in events:
            if (name := f"{row[1][:10]}.jsonl") > self._name:
                self._flush(pending)
                self._begin(db, name, Position(tip, revs))
            pending.append(event_log.line(row))
            if row[2] == Kind.MESSAGE_SENT:
                message = json.loads(row[6])["message"]["id"]
                if (raw := body(message)) is not None:  # its file is written after the commit
                    pending.append(_text({"body": message, "raw": _readable(raw)}))
            if len(pending) >= _AT_ONCE:
                self._flush(pending)
            tip = Tip(row[0], row[7])
        for sha256, raw, rev in prompts if self._name else ():
            pending.append(_text({"prompt": sha256, "text": _readable(raw), "rev": rev}))
            self._flush(pending)  # they may be long, and many
        for table in _KEYS if self._name else ():  # rows alone begin no file: they come with the first event
            for values in rows[table]:
                pending.append(_text({"table": table, "row": values}))
                revs[table] = values["rev"]
        self._flush(pending)
        self._position = Position(tip, revs)
        self._state = self._state or self._current_state()

    def _flush(self, pending: list[str]) -> None:
        """Write lines and forget them."""
        if pending:
            raw = ("\n".join(pending) + "\n").encode()
            _write(self._file, raw)
            pending.clear()
            self._unsynced = True
            if self._state is not None:
                self._state = self._state[0] + len(raw), self._state[1]

    def _begin(self, db: sqlite3.Connection, name: str, position: Position) -> None:
        """Start the file of a day with what the files before it cover."""
        if not _DAY_FILE.fullmatch(name):
            raise DamagedError(f"event {position.tip.seq + 1} has no time")
        self.sync()
        self._open(name)
        after = [position.tip.seq, position.tip.hash, *(position.revs[table] for table in _KEYS)]
        _write(self._file, _json({"format": FORMAT, "database": uuid_of(db), "after": after}))
        system.sync(self._folder)

    def _open(self, name: str) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._name, self._state = -1, "", None
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._file = os.open(name, flags, 0o600, dir_fd=self._folder)
        self._name = name

    def _find_position(self, db: sqlite3.Connection) -> None:
        """Read the end of the journal, without half a line that a crash left.

        Raises JournalAheadError, ForeignJournalError.
        """
        self.sync()
        self._position, self._state, self._name = Position(), None, ""
        for name in reversed(_names(self._folder)):
            self._open(name)
            if _cut_torn_line(self._file):
                first = os.pread(self._file, _BLOCK, 0).partition(b"\n")[0]
                require_own(folder_of(self._root) / name, first, uuid_of(db))
                self._position = _last_position(self._file, name)
                break
            self._name = ""  # a crash came before its first line: it is begun again
        tip = self._position.tip
        if tip.seq and event_log.hash_at(db, tip.seq) != tip.hash:
            last = event_log.tip(db).seq
            lacks = f"the log ends at event {last}" if last < tip.seq else f"event {tip.seq} of the log is different"
            raise JournalAheadError(f"{lacks}, and mailbox/archive/events/{self._name} ends with event {tip.seq}")
        self._state = self._current_state() if self._name else None

    def _ends_where_we_left_it(self) -> bool:
        return self._state is not None and self._state == self._current_state()

    def _current_state(self) -> tuple[int, int] | None:
        if self._file < 0:
            return None
        return os.fstat(self._file).st_size, os.fstat(self._folder).st_mtime_ns

    def _release(self) -> None:
        for fd in (self._file, self._folder):
            if fd >= 0:
                os.close(fd)
        self._file = self._folder = -1
        self._name, self._state, self._unsynced = "", None, False


def uuid_of(db: sqlite3.Connection) -> str:
    """The id of a database, which the first line of each file of its journal names; empty if it has none yet."""
    row = db.execute("SELECT value FROM meta WHERE name = 'uuid'").fetchone()
    return str(row[0]) if row else ""


def require_own(path: Path, first: bytes, own: str) -> None:
    """Raise ForeignJournalError if the first line of the journal's file `path` names another database than `own`."""
    said = _said(first)
    named = said.get("database") if isinstance(said, dict) else None
    if not own or not isinstance(named, str) or named in ("", own):
        return
    folder = path.parent
    aside = shlex.join(["mv", "--", str(folder), str(folder.with_name(f"{folder.name}.replaced-{named[:8]}"))])
    raise ForeignJournalError(
        f"{path}: this is the journal of another database: its first line names {named}, and the database of this"
        f" workspace is {own}. Nothing was started. Put the journal of this workspace in its place; if there is none,"
        f" `{aside}`, and `mailboxd -w {shlex.quote(str(folder.parent.parent.parent))} run` writes it from the database"
    )


def folder_of(root: Path) -> Path:
    """The directory of the journal of the workspace at `root`."""
    return root / "mailbox" / "archive" / "events"


def _open_folder(root: Path) -> int:
    """Open the directory, without following links; create it if only it is missing. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(root, flags & ~os.O_NOFOLLOW)
    for name in ("mailbox", "archive", "events"):
        above = folder
        try:
            if name == "events":
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above)
            folder = os.open(name, flags, dir_fd=above)
        finally:
            os.close(above)
    return folder


@contextmanager
def _snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Read all tables as of one commit: an order without its event would be one that nothing explains."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")  # nothing was written


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _identity_at(path: str) -> tuple[int, int] | None:
    """Which directory is at a path, without following a link; None: there is none."""
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if _DAY_FILE.fullmatch(entry.name))


def _write(file: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(file, view) :]


def _cut_torn_line(file: int) -> int:
    """Cut half a last line off; returns the size of the rest."""
    end = _end_of_lines(file)
    if end != os.fstat(file).st_size:
        os.ftruncate(file, end)
    return end


def _end_of_lines(file: int) -> int:
    """Where the last whole line ends; 0 if there is none."""
    end = os.fstat(file).st_size
    while end and os.pread(file, 1, end - 1) != b"\n":
        end -= 1
    return end


def _last_position(file: int, name: str) -> Position:
    """The end of the journal in this file and those before it. Raises DamagedError if it is not a journal."""
    try:
        after = json.loads(_line_at(file, 0))["after"]
        tip, revs = Tip(after[0], after[1]), dict(zip(_KEYS, after[2:], strict=True))
        if line := _last_line(file, b'{"seq":'):
            said = json.loads(line)
            tip = Tip(int(said["seq"]), str(said["hash"]))
        for table in _KEYS:
            if line := _last_line(file, f'{{"table":"{table}",'.encode()):
                revs[table] = int(json.loads(line)["row"]["rev"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DamagedError(f"{name} has a line that mailboxd did not write") from error
    return Position(tip, revs)


def _last_line(file: int, start: bytes) -> bytes:
    """The last whole line that begins so, except for the first of the file; empty if there is none."""
    mark, end = b"\n" + start, _end_of_lines(file)
    while end:
        begin = max(end - _BLOCK, 0)
        block = os.pread(file, end - begin + len(mark), begin)  # with a mark that begins in it and ends behind it
        if (at := block.rfind(mark)) >= 0:
            return _line_at(file, begin + at + 1)
        end = begin
    return b""


def _line_at(file: int, at: int) -> bytes:
    line = b""
    while block := os.pread(file, _BLOCK, at + len(line)):
        part, newline, _ = block.partition(b"\n")
        line += part
        if newline:
            break
    return line


# a line of ASCII, so that it does nothing to a terminal
_text = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False).encode


def _json(value: object) -> bytes:
    return f"{_text(value)}\n".encode()


def _readable(raw: bytes) -> str:
    """Bytes as the text of a line; `said[...].encode("utf-8", "surrogateescape")` gives them back."""
    return raw.decode("utf-8", "surrogateescape")


def _body(db: sqlite3.Connection, message: str) -> bytes | None:
    row = db.execute("SELECT raw FROM bodies WHERE message = ?", (message,)).fetchone()
    return None if row is None else row[0]


def _changed(db: sqlite3.Connection, table: str, after: int) -> Iterator[dict[str, Any]]:
    """The rows of a table that were changed after `after`, in that order."""
    rows = db.execute(f"SELECT * FROM {table} WHERE rev > ? ORDER BY rev", (after,))
    columns = [column for column, *_ in rows.description]
    for row in rows:
        yield dict(zip(columns, row, strict=True))


# Reading


def files_of(root: Path) -> list[Path]:
    """The files of the journal, oldest first. Raises OSError."""
    folder = folder_of(root)
    with suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if _DAY_FILE.fullmatch(path.name))
    return []


def last_event_in(files: Iterable[Path]) -> int:
    """The number of the last event in files of the journal; 0 if they have none. Raises OSError, DamagedError."""
    for path in sorted(files, reverse=True):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if _end_of_lines(fd):
                return _last_position(fd, path.name).tip.seq
        finally:
            os.close(fd)
    return 0


class Entry(NamedTuple):
    """A line of the journal: its file and number, its text, and what it says."""

    path: Path
    number: int
    line: bytes
    said: Mapping[str, Any]

    @property
    def where(self) -> str:
        return _where(self.path, self.number)


def _where(path: Path, number: int) -> str:
    return f"{path.parent.name}/{path.name} line {number}"


def entries(files: Iterable[Path]) -> Iterator[Entry]:
    """All lines. Half a last line is left out: it was not written completely. Raises DamagedError, OSError."""
    for path in files:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise DamagedError(f"{path} is not a regular file: put the file of that day in its place")
        with os.fdopen(fd, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    continue
                said = _said(line)
                if not isinstance(said, dict) or said.keys() not in SHAPES.values():
                    raise DamagedError(f"{_where(path, number)} is not a line that mailboxd wrote")
                entry = Entry(path, number, line, said)
                # events are compared with what is recorded, and nothing vouches for rows of tables
                if "seq" not in said and "table" not in said and _json(said) != line:
                    require_each_name_once(entry)
                yield entry


SHAPES: Mapping[str, frozenset[str]] = {
    "seq": frozenset({"seq", "at", "kind", "task", "role", "actor", "data", "hash"}),
    "format": frozenset({"format", "database", "after"}),
    "head": frozenset({"head"}),
    "body": frozenset({"body", "raw"}),
    "prompt": frozenset({"prompt", "text", "rev"}),
    "table": frozenset({"table", "row"}),
}
"""The names that a line has, by the one that tells its kind: with more of them it could pass for another one to whoever
looks for an event."""


def require_each_name_once(entry: Entry) -> None:
    """Raise DamagedError if a name stands twice in an object: programs differ in which of the values they take."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise DamagedError(f"{entry.where} has a name twice: it is not a line that mailboxd wrote")
        return found

    json.loads(entry.line, object_pairs_hook=once)


def _said(line: bytes) -> Any:
    """What a line says; None if it is no JSON."""
    try:
        return from_json(line)
    except ValueError:  # lone surrogates stand for bytes that are not UTF-8
        with suppress(ValueError):
            return json.loads(line)
    return None


def fill(db: Connection, lines: Iterable[Entry], own: str = "") -> Tip:
    """Fill an empty database from the lines of a journal; returns the last event.

    `own` is the id that the database must have, if that is known. Raises DamagedError, WorldError.
    """
    # it is made durable when it is complete, and discarded if it does not become so
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA journal_mode = MEMORY")
    db.execute(f"PRAGMA cache_size = -{_CACHE >> 10}")
    migrate(db, "")
    indexes = event_log.drop_what_only_queries_need(db)
    replay = _Replay(db, own)
    with transaction(db):
        for entry in lines:
            replay.take(entry)
        replay.complete()
        for index in indexes:
            db.execute(index)
    return replay.tip


class _Replay:
    """Fills an empty database from the lines of a journal, inside a transaction."""

    def __init__(self, db: Connection, own: str) -> None:
        self._db = db
        self._own = own
        self._columns = {table: _columns(db, table) for table in _KEYS}
        self._rows: list[tuple[Any, ...]] = []
        self._events: list[Event] = []
        self.tip = START

    def take(self, entry: Entry) -> None:
        """Apply a line. Raises DamagedError if it is not what mailboxd wrote, or not the next one."""
        said = entry.said
        try:
            if "seq" in said:
                self._take_event(entry)
            elif "table" in said:
                self._take_row(said["table"], said["row"])
            elif "body" in said:
                raw = said["raw"].encode("utf-8", "surrogateescape")
                self._db.execute("INSERT OR IGNORE INTO bodies VALUES (?, ?)", (said["body"], raw))
            elif "prompt" in said:
                self._take_prompt(said["prompt"], said["text"].encode("utf-8", "surrogateescape"), said["rev"])
            elif "head" not in said:
                if said["format"] != FORMAT:
                    raise ValueError(f"format {said['format']!r}")
                require_own(entry.path, entry.line, self._own)
                self._own = self._own or str(said["database"])
        except (ValueError, KeyError, TypeError, AttributeError, sqlite3.Error) as error:
            raise DamagedError(f"{entry.where} cannot be replayed: {type(error).__name__}: {error}") from error

    def complete(self) -> None:
        """Write what is still pending. Raises DamagedError."""
        events, rows = self._events, self._rows
        self._events, self._rows = [], []
        if rows:
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            try:
                project(self._db, rows[0][0], events, TaskCache(self._db))
            except (ValueError, KeyError, TypeError, AttributeError, sqlite3.IntegrityError) as error:
                numbers = f"one of the events {rows[0][0]} to {rows[-1][0]}"
                raise DamagedError(f"{numbers} cannot be replayed: {type(error).__name__}: {error}") from error

    def _take_event(self, entry: Entry) -> None:
        said = entry.said
        text = entry.line.partition(b',"data":')[2].rpartition(b',"hash":')[0].decode()
        row = (said["seq"], said["at"], said["kind"], said["task"], said["role"], said["actor"], text)
        if row[0] != self.tip.seq + 1:
            raise DamagedError(f"{entry.where}: event {self.tip.seq + 1} is missing before event {row[0]}")
        if event_log.line((*row, said["hash"])) != entry.line.rstrip(b"\n").decode():
            require_each_name_once(entry)  # earlier versions wrote it otherwise
        if event_log.chain(self.tip.hash, row) != said["hash"]:
            row = (*row[:-1], event_log.data_text(said["data"]))  # the text was escaped to ASCII, or written otherwise
            if event_log.chain(self.tip.hash, row) != said["hash"]:
                raise DamagedError(f"{entry.where}: event {row[0]} is not what was recorded")
        self.tip = Tip(row[0], said["hash"])
        self._rows.append((*row, said["hash"]))
        self._events.append(recorded_event(row[2], row[3], said["data"], row[4], row[5]))
        if len(self._rows) >= _EVENTS_AT_ONCE:
            self.complete()

    def _take_prompt(self, sha256: str, raw: bytes, rev: int) -> None:
        if hashlib.sha256(raw).hexdigest() != sha256:
            raise ValueError("the text of the prompt was changed")
        self._db.execute("INSERT OR IGNORE INTO prompts VALUES (?, ?, ?)", (sha256, raw, rev))

    def _take_row(self, table: str, row: Mapping[str, Any]) -> None:
        """Insert or update a row of `outbox` or `meta`."""
        if unknown := set(row) - self._columns[table]:
            raise ValueError(f"unknown columns {sorted(unknown)}")
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        changes = ", ".join(f"{name} = excluded.{name}" for name in row)
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({_KEYS[table]}) DO UPDATE SET {changes}"
        self._db.execute(sql, tuple(row.values()))


def _columns(db: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[1] for row in db.execute(f"PRAGMA table_info({table})"))


# Not in a journal: the bytes of received messages, and which task.md files show the latest state


@dataclass(frozen=True, slots=True)
class Received:
    """A received message without its bytes. `path` is relative to mailbox/; None: its file is still in the inbox."""

    id: str
    path: str | None
    name: str
    sha256: str


def without_body(db: sqlite3.Connection) -> list[Received]:
    """Received messages whose bytes were read but are not in the database, by path."""
    rows = db.execute(
        "SELECT id, path, name, sha256 FROM messages WHERE direction = 'in' AND sha256 NOT NULL"
        " AND id NOT IN (SELECT message FROM bodies) ORDER BY path"
    )
    return [Received(*row) for row in rows]


def keep_bodies(db: sqlite3.Connection, bodies: Iterable[tuple[str, bytes]]) -> None:
    db.executemany("INSERT INTO bodies VALUES (?, ?)", bodies)


def mark_shown(db: sqlite3.Connection) -> None:
    """Mark every task.md as out of date, except those in tasks/.archive/."""
    db.execute(
        "WITH away AS MATERIALIZED (SELECT json_extract(data, '$.local_id') AS local_id, max(seq) AS seq FROM events"
        f" WHERE kind = '{Kind.TASK_PUT_AWAY}' GROUP BY 1)"
        " INSERT INTO stale_files SELECT id, 1 FROM tasks t LEFT JOIN away a ON a.local_id = t.local_id"
        " WHERE (parent IS NULL OR mode = 'coordinating')"
        " AND (a.seq IS NULL OR a.seq < (SELECT max(seq) FROM events WHERE task = t.id))"
    )
