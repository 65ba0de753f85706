"""Tasks that agents wrote into inboxes: those that came here before, and what the sender's own database says."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mailboxd.core import handovers
from mailboxd.core.handovers import MOST_TIMES, Bounds, Earlier, most_tasks, most_turns
from mailboxd.core.model import Handover
from mailboxd.core.times import plus
from mailboxd.errors import WorldError
from mailboxd.ledger.database import connect
from mailboxd.ledger.task_cache import HandedOver, TaskCache

_HOUR = 3600.0
_PATIENCE_MS = 100
_LATEST = 64
"""Turns of an agent among which those are looked for that ran when a file was written."""
_LET_GO = "SELECT max(let_go) FROM handovers WHERE source = ? AND let_go IS NOT NULL"
_TASKS = (
    "SELECT count(*), coalesce(min(at), '') FROM"
    " (SELECT at FROM handovers WHERE source = ? AND at > ? AND counts ORDER BY at DESC LIMIT ?)"
)
_TURNS = (
    "SELECT coalesce(sum(t.tree_turns), 0) FROM handovers h JOIN tasks t ON t.id = h.task"
    " WHERE h.source = ? AND h.at > ? AND h.counts"
)
_IN_CHAIN = "SELECT count(*) FROM (SELECT 1 FROM handovers WHERE source = ? AND text = ? AND began = ? LIMIT ?)"
_LATELY = (
    "SELECT count(*) FROM (SELECT 1 FROM handovers WHERE source = ? AND text = ? AND began = '' AND at > ? LIMIT ?)"
)
_LATEST_OF_TWO = "SELECT 1 FROM handovers WHERE source IN (?, ?) AND at > ? LIMIT 1 OFFSET ?"
_ROOT = (
    "r.id, r.executor, json_extract(r.origin, '$.content'), json_extract(r.origin, '$.handover.began'),"
    " json_extract(r.origin, '$.handover.passed')"
)
_RAN = (
    f"SELECT DISTINCT a.finished_at IS NOT NULL OR a.waiting_for = 'turn', {_ROOT}"
    " FROM (SELECT task FROM outbox INDEXED BY outbox_by_agent WHERE kind = 'run_turn'"
    "  AND agent = coalesce(?1, (SELECT value FROM meta WHERE name = 'agent')) ORDER BY seq DESC LIMIT ?3) o"
    " JOIN attempts a ON a.task = o.task"
    "  AND a.executor = coalesce(?1, (SELECT value FROM meta WHERE name = 'agent'))"
    " JOIN tasks t ON t.id = a.task JOIN tasks r ON r.id = t.root"
    " WHERE a.started_at <= ?2 AND (a.finished_at IS NULL OR a.finished_at >= ?2)"
)
_DISPATCHED = (
    f"SELECT {_ROOT} FROM attempts a JOIN tasks t ON t.id = a.task JOIN tasks r ON r.id = t.root"
    " WHERE a.id = ? AND a.reply_token = ? AND a.executor = ? COLLATE NOCASE AND t.task_id = ?"
)


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of hand-overs down to the sender."""

    began: str
    passed: tuple[str, ...]


class Handovers:
    """What came into this workspace's inbox before."""

    def __init__(self, db: sqlite3.Connection, cache: TaskCache) -> None:
        self._db = db
        self._cache = cache

    def earlier(self, given: Handover, bounds: Bounds, now: str) -> Earlier:
        """What came here before `given`, of its chain and of its source.

        A pile of thousands is asked about for each of them, so nothing is counted beyond what holds a task, and not
        before it may have been reached: until then `tasks` may be more than have come.
        """
        since, source, same, tasks, turns = plus(now, -_HOUR), given.source, 0, 0, 0
        if given.text and given.began:
            same = self._count(_IN_CHAIN, source, given.text, given.began, MOST_TIMES)
        elif given.text:
            same = self._count(_LATELY, source, given.text, since, MOST_TIMES)
        if given.counts:
            let_go = self._db.execute(_LET_GO, (source,)).fetchone()[0]
            since = max(since, let_go or "")
        if most := most_tasks(given, bounds):
            tasks = self._tasks(source, since, most)
        if most_turns(given, bounds) and not (most and tasks >= most):
            turns = self._count(_TURNS, source, since)
        return Earlier(same, tasks, turns)

    def _tasks(self, source: str, since: str, limit: int) -> int:
        known = self._cache.handed_over.get(source)
        if known is None or not known.tells(limit, since):
            count, oldest = self._db.execute(_TASKS, (source, since, limit)).fetchone()
            known = HandedOver(limit, since, count, oldest if count >= limit else "")
            self._cache.handed_over[source] = known
        return known.most

    def _count(self, query: str, *values: object) -> int:
        return int(self._db.execute(query, values).fetchone()[0])

    def has_come(self, sources: tuple[str, str], since: str, count: int) -> bool:
        """Whether at least `count` (1 or more) came from these sources after `since`."""
        return self._db.execute(_LATEST_OF_TWO, (*sources, since, count - 1)).fetchone() is not None

    def sent_by(self, agent: str, written: str) -> list[Chain]:
        """The chains of the work on which `agent` was in this workspace when something was written."""
        return ran(self._db, written, agent)


def ran(db: sqlite3.Connection, written: str, agent: str | None = None) -> list[Chain]:
    """The chains of the attempts of `agent` (None: the database's own) that ran then, of its latest 64 turns.

    One that waits for its subtasks, a reply or an answer counts only if none is in a turn: it writes nothing.
    """
    found = [(bool(writes), _chain(*row)) for writes, *row in db.execute(_RAN, (agent, written, _LATEST))]
    return [chain for writes, chain in found if writes] or [chain for _, chain in found]


def dispatched(db: sqlite3.Connection, attempt: str, token: str, executor: str, task_id: str) -> Chain | None:
    """The chain of the work that the daemon of this database gave to `executor` with these values; None if it did not.

    The token is known to the two daemons and their agents only, and with the name of its work it is no other work.
    """
    row = db.execute(_DISPATCHED, (attempt, token, executor, task_id)).fetchone()
    return None if row is None else _chain(*row)


def _chain(root: str, executor: str, content: str | None, began: str | None, passed: str | None) -> Chain:
    before = tuple(map(str, json.loads(passed))) if passed else ()
    steps = (*before, handovers.step(executor, content or ""))[-handovers.MOST_STEPS :]
    return Chain(began or root, steps)


T = TypeVar("T")


def ask_other(path: Path, question: Callable[[sqlite3.Connection], T]) -> T | None:
    """What the database of another agent of this user answers.

    None if there is none or it cannot be asked: another version of mailboxd may have another schema.
    """
    if not path.is_file():
        return None
    with suppress(sqlite3.Error, ValueError, TypeError, WorldError), closing(connect(path, read_only=True)) as db:
        db.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        return question(db)
    return None
