"""The event log: append-only, hash-chained, and sufficient to rebuild every other table."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, NamedTuple

from pydantic_core import to_json

from mailboxd.core.events import VERSION, Event, recorded_event
from mailboxd.core.explain.describe import describe, summarize
from mailboxd.core.model import Task
from mailboxd.errors import WorldError
from mailboxd.host.progress import Progress, silent, stepwise
from mailboxd.ledger.connection import Connection
from mailboxd.ledger.database import connect, migrate, schema_version, transaction
from mailboxd.ledger.projection import NO_TASKS, project
from mailboxd.ledger.row_mapping import STRUCTURES
from mailboxd.ledger.task_cache import TaskCache
from mailboxd.ledger.written import EventRow

GENESIS = "0" * 64
REPLAYED = (
    "tasks", "dependencies", "attempts", "breakers", "review_requests", "reviews", "check_runs", "artifacts",
    "approvals", "messages", "refused_files", "untold_notices",
    "waits_told", "waits_at_peers", "held_orders", "doubts", "handovers", "spending", "raised_caps",
    "repetitions", "repetition_runs",
)  # fmt: skip
"""The tables that are derived from events."""
_AT_ONCE = 200
"""Rows compared in one step."""
_OF_THE_PROJECTION = ("tasks_by_parent", "dependencies_by_needs", "messages_rejected", "messages_rejected_by_work")


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event in the log."""

    seq: int
    at: str
    event: Event
    hash: str


class Tip(NamedTuple):
    """The end of the chain: the next event is chained to it."""

    seq: int
    hash: str


COLUMNS = "seq, at, kind, task, role, actor, data, hash"
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

START = Tip(0, GENESIS)
"""Before the first event."""

# event data is built for the event, so it has no circular references
data_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, check_circular=False).encode


def tip(db: sqlite3.Connection) -> Tip:
    row = db.execute("SELECT seq, hash FROM events WHERE seq = (SELECT max(seq) FROM events)").fetchone()
    return Tip(*row) if row else START


def append(
    db: Connection, events: Sequence[Event], now: str, last: Tip, cache: TaskCache, born: Mapping[str, Task] = NO_TASKS
) -> list[EventRow]:
    """Add events to the log and apply them to the tables and to what the cache keeps, in the caller's transaction.

    `born`: as they leave them, the tasks that they create, as far as the caller has them. Returns the rows of the log.
    """
    rows, before = list[EventRow](), last.hash
    for seq, event in enumerate(events, last.seq + 1):
        data = event.data
        # plain str: enum members are slow to bind and to encode
        who = str(event.kind), event.task, str(event.role), event.actor
        row = (seq, data.get("at", now), *who, data_text({**data, "v": VERSION}))
        before = chain(before, row)
        rows.append((*row, before))
        db.write_later("events", _INSERT, rows[-1])
    project(db, last.seq + 1, events, cache, born)
    return rows


def chain(before: str, row: Sequence[object]) -> str:
    """The hash of a row: over the previous hash and the row's columns, as one JSON array.

    Encoded as by `json.dumps(..., ensure_ascii=False)` without spaces.
    """
    return hashlib.sha256(to_json([before, *row])).hexdigest()


def read(db: sqlite3.Connection, task: str | None = None, after: int = 0) -> Iterator[Recorded]:
    """The events in order, all or those of one task."""
    where, args = ("task = ? AND ", (task,)) if task else ("", ())
    rows = db.execute(
        f"SELECT {COLUMNS} FROM events WHERE {where}seq > ? ORDER BY seq",
        (*args, after),
    )
    for seq, at, kind, task_id, role, actor, data, digest in rows:
        yield Recorded(seq, at, _event(kind, task_id, data, role, actor), digest)


def _event(kind: str, task: str | None, data: str, role: str, actor: str) -> Event:
    """The event in a row, as of the present version. Raises ValueError."""
    return recorded_event(kind, task, json.loads(data), role, actor)


def line(row: EventRow) -> str:
    """An event, as a row with `COLUMNS`, as a line of JSON (docs/audit.md) in ASCII, so that a terminal is safe.

    The hash can be recomputed from the line and the hash before it.
    """
    seq, at, kind, task, role, actor, data, digest = row
    if not data.isascii():
        data = json.dumps(json.loads(data), ensure_ascii=True, separators=(",", ":"))
    of = "null" if task is None else _quoted(task)
    who = f'"role":"{role}","actor":{_quoted(actor)}'
    return f'{{"seq":{seq},"at":"{at}","kind":"{kind}","task":{of},{who},"data":{data},"hash":"{digest}"}}'


def hash_at(db: sqlite3.Connection, seq: int) -> str | None:
    """The hash of an event, or None; accepts any number."""
    if not 0 < seq < 1 << 63:
        return None  # larger numbers raise OverflowError
    row = db.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else row[0]


def at(db: sqlite3.Connection, seq: int) -> str:
    """When an event was recorded."""
    return str(db.execute("SELECT at FROM events WHERE seq = ?", (seq,)).fetchone()[0])


def line_at(db: sqlite3.Connection, seq: int) -> str | None:
    """An event as by `line`, or None."""
    row = db.execute(f"SELECT {COLUMNS} FROM events WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else line(row)


def verify_chain(db: sqlite3.Connection, progress: Progress = silent, total: int = 0) -> str | None:
    """The first error in the chain, or None."""
    found = follow_chain(db, START, progress, total)
    return found if isinstance(found, str) else None


def follow_chain(db: sqlite3.Connection, last: Tip, progress: Progress = silent, total: int = 0) -> Tip | str:
    """Verify the chain after `last`: returns its end, or the first error as text."""
    before, expected = last.hash, last.seq + 1
    rows = db.execute(f"SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq", (last.seq,))
    for row in stepwise(rows, "events", total, progress):
        if row[0] != expected:
            return f"event {expected} is missing"
        if chain(before, row[:7]) != row[7]:
            return f"event {expected} is not what was recorded"
        before, expected = row[7], expected + 1
    return Tip(expected - 1, before)


def replay(db: sqlite3.Connection, progress: Progress = silent, total: int = 0) -> Connection:
    """Rebuild the tables in memory from the events alone. Raises WorldError for an invalid event."""
    fresh = empty_tables()
    try:
        apply_events(db, fresh, 0, progress, total)
    except BaseException:
        fresh.close()
        raise
    return fresh


def empty_tables() -> Connection:
    """A database in memory with empty tables."""
    fresh = connect(None)
    migrate(fresh, "")
    drop_what_only_queries_need(fresh)
    return fresh


def apply_events(
    db: sqlite3.Connection, fresh: Connection, last: int, progress: Progress = silent, total: int = 0
) -> int:
    """Apply the events after number `last` to the tables in `fresh`; return the number of the last one.

    Raises WorldError for an invalid event.
    """
    nothing_kept = TaskCache(fresh)
    try:
        with transaction(fresh):
            for recorded in stepwise(read(db, after=last), "tables", total, progress):
                project(fresh, recorded.seq, [recorded.event], nothing_kept)
                last = recorded.seq
    except (ValueError, KeyError, TypeError, AttributeError, sqlite3.IntegrityError) as error:
        raise WorldError(f"events: number {last + 1} cannot be replayed: {type(error).__name__}: {error}") from error
    return last


def drop_what_only_queries_need(db: sqlite3.Connection) -> Sequence[str]:
    """Drop the indexes that neither enforce uniqueness nor serve the projection; return their SQL."""
    found = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL").fetchall()
    gone = [
        (name, sql) for name, sql in found if name not in _OF_THE_PROJECTION and not sql.startswith("CREATE UNIQUE")
    ]
    for name, _ in gone:
        db.execute(f"DROP INDEX {name}")
    return [sql for _, sql in gone]


def differences(db: sqlite3.Connection, progress: Progress = silent, total: int = 0) -> list[str]:
    """The tables that differ from a replay of the events, each with the first row that differs."""
    try:
        with closing(replay(db, progress, total)) as fresh:
            return differing(db, fresh)
    except WorldError as error:
        return [str(error)]


def differing(db: sqlite3.Connection, fresh: sqlite3.Connection) -> list[str]:
    """The tables that differ between both, each with the first row that differs."""
    if found := [*_schema_differences(db, fresh)]:
        return found
    for table in REPLAYED:
        if not _is_same(db, fresh, table):
            stored, replayed = _rows(db, table), _rows(fresh, table)
            if stored != replayed:
                found.append(f"{table}: {_first_difference(db, table, stored - replayed, replayed - stored)}")
    return found


def _schema_differences(db: sqlite3.Connection, fresh: sqlite3.Connection) -> Iterator[str]:
    """The tables, columns and triggers of mailboxd that are not as in `fresh`; others' tables do no harm.

    An older schema has others.
    """
    if schema_version(db) != schema_version(fresh):
        return
    ours, right = ({name: type_ for type_, name in one.execute(_OBJECTS)} for one in (db, fresh))
    for name, type_ in right.items():
        if name not in ours:
            yield f"{name}: the {type_} is missing"
        elif type_ == "table":
            has, should_have = ([row[1] for row in one.execute(f"PRAGMA table_info({name})")] for one in (db, fresh))
            yield from (f"{name}: its column {column} is missing" for column in should_have if column not in has)
            yield from (
                f"{name}: its column {column} is not of mailboxd" for column in has if column not in should_have
            )


_OBJECTS = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'trigger') ORDER BY type, name"
_SHOWN_VALUE = 60


def _first_difference(
    db: sqlite3.Connection, table: str, stored: set[tuple[object, ...]], replayed: set[tuple[object, ...]]
) -> str:
    """How many rows of the table differ, and how the first one does, in words."""
    key = min(str(row[0]) for row in stored | replayed)
    ours, theirs = ([row for row in rows if str(row[0]) == key] for rows in (stored, replayed))
    count = max(len(stored), len(replayed))
    text = f"{count} row{'s' * (count != 1)} differ{'s' * (count == 1)} from what the log says; {key}"
    if not theirs:
        return f"{text} is not in the log"
    if not ours:
        return f"{text} is missing"
    columns = [column[0] for column in db.execute(f"SELECT * FROM {table} LIMIT 0").description]
    parts = [
        f"{name} is {str(one)[:_SHOWN_VALUE]!r}, by the log {str(other)[:_SHOWN_VALUE]!r}"
        for name, one, other in zip(columns, ours[0], theirs[0], strict=True)
        if one != other
    ]
    return f"{text}: {', '.join(parts[:3]) or 'it is there more than once'}"


def check(db: sqlite3.Connection, progress: Progress = silent) -> None:
    """Raise WorldError unless the chain holds and a replay of the events gives the tables."""
    total = tip(db).seq
    problem = verify_chain(db, progress, total)
    problems = [problem] if problem else differences(db, progress, total)
    if problems:
        raise WorldError("the audit trail does not hold: " + "; ".join(problems))


def _is_same(db: sqlite3.Connection, fresh: sqlite3.Connection, table: str) -> bool:
    """Whether both have the same rows in the same order, without keeping them in memory."""
    stored, replayed = (one.execute(f"SELECT * FROM {table}") for one in (db, fresh))
    plain = _plain(stored, table)
    while rows := stored.fetchmany(_AT_ONCE):
        others = replayed.fetchmany(_AT_ONCE)
        if rows != others and [*map(plain, rows)] != [*map(plain, others)]:
            return False
    return replayed.fetchone() is None


def _rows(db: sqlite3.Connection, table: str) -> set[tuple[object, ...]]:
    rows = db.execute(f"SELECT * FROM {table}")
    return set(map(_plain(rows, table), rows))


def _plain(rows: sqlite3.Cursor, table: str) -> Callable[[Sequence[Any]], tuple[object, ...]]:
    """Normalizes the JSON in rows, which earlier versions wrote with spaces and other key orders."""
    structures = STRUCTURES.get(table, frozenset())
    places = [place for place, column in enumerate(rows.description) if column[0] in structures]

    def plain(row: Sequence[Any]) -> tuple[object, ...]:
        values = list(row)
        for place in places:
            with suppress(ValueError, TypeError):
                values[place] = data_text(json.loads(values[place]))
        return tuple(values)

    return plain


# Apart from the queries: loading the types of the core takes 15 ms, which `mailboxd status` rarely needs.


def sentence(kind: str, task: str | None, data: str, role: str, actor: str, name: str, *, brief: bool = False) -> str:
    """The text of an event in `mailboxd log`; `name` is the local id of its task. `brief`: without passing phases."""
    event = _event(kind, task, data, role, actor)
    return summarize(event, name) if brief else describe(event, name)
