"""What the engine needs of the database: record decisions, load views, find what is ready or due.

One writer at a time: every use stands inside `transaction()`, which is BEGIN IMMEDIATE. Reads cost O(neighbours).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mailboxd.core.effects import Bounce, Compose, Effect, LookUp, Resend, RunTurn, Send, StopTurns
from mailboxd.core.events import Event
from mailboxd.core.types import (
    Attempt,
    Family,
    Finding,
    Gate,
    Join,
    Level,
    Phase,
    Review,
    Tally,
    Task,
    Verdict,
    View,
)
from mailboxd.core.wire import from_json, read_field, to_json
from mailboxd.store import log
from mailboxd.store.db import connect, migrate, transaction
from mailboxd.store.projection import ATTEMPT_COLUMNS, TASK_COLUMNS

T = TypeVar("T")

_TASK = ", ".join(f"t.{name}" for name in TASK_COLUMNS)
_ATTEMPT = ", ".join(ATTEMPT_COLUMNS)
_JSON_TASK = {"spec", "policy", "origin"}
_JSON_ATTEMPT = {"usage"}
_BOOL = {"circuit_open", "broadcast", "cancelled_with_parent", "token_echoed"}
_ENDED = "('completed', 'failed', 'cancelled')"

EFFECTS: dict[str, type[Any]] = {
    "run_turn": RunTurn,
    "look_up": LookUp,
    "stop_turns": StopTurns,
    "compose": Compose,
    "send": Send,
    "resend": Resend,
    "bounce": Bounce,
}
_KIND_OF = {kind: name for name, kind in EFFECTS.items()}


@dataclass(frozen=True, slots=True)
class Earlier:
    """The first arrival of a message."""

    task: str | None
    sha256: str


@dataclass(frozen=True, slots=True)
class Order:
    """An effect in the outbox. `task` is empty for one that concerns no task."""

    id: str
    kind: str
    task: str
    agent: str
    effect: Effect
    tries: int
    at: str


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


class Store:
    """The database of one workspace."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    @classmethod
    def open(cls, path: Path | None, now: str) -> Store:
        """Open (and migrate) the database at `path`; None is one in memory. Raises WorldError."""
        db = connect(path)
        migrate(db, now)
        return cls(db)

    def close(self) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with transaction(self.db):
            yield

    # -------------------------------------------------------------- writing

    def append(self, event: Event, now: str) -> int:
        return log.append(self.db, event, now)

    def order(self, effect_id: str, task: str, effect: Effect, now: str) -> None:
        """Put an effect into the outbox, pending."""
        agent = getattr(effect, "agent", "")
        data = json.dumps(to_json(effect), ensure_ascii=False)
        self.db.execute(
            "INSERT INTO outbox (id, kind, task, agent, data, state, at) VALUES (?, ?, ?, ?, ?, 'pending', ?)",
            (effect_id, _KIND_OF[type(effect)], task, agent, data, now),
        )

    def mark_for_rendering(self, touched: Iterable[str]) -> None:
        """Note that the task.md files that show these tasks are out of date."""
        self.db.executemany(
            "INSERT OR IGNORE INTO stale_files SELECT CASE WHEN parent IS NULL OR mode = 'coordinating' THEN id ELSE parent END"
            " FROM tasks WHERE id = ?1 UNION SELECT parent FROM tasks WHERE id = ?1 AND parent IS NOT NULL",
            [(task_id,) for task_id in touched],
        )

    # -------------------------------------------------------------- reading one task

    def task(self, task_id: str) -> Task | None:
        row = self.db.execute(f"SELECT {_TASK} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()  # noqa: S608 - names of ours
        return None if row is None else read_task(row)

    def by_local_id(self, local_id: str) -> Task | None:
        row = self.db.execute(f"SELECT {_TASK} FROM tasks t WHERE t.local_id = ?", (local_id,)).fetchone()  # noqa: S608
        return None if row is None else read_task(row)

    def local_id(self, task_id: str) -> str:
        row = self.db.execute("SELECT local_id FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return "" if row is None else row[0]

    def work(self, sender: str, task_id: str, subtask_id: str | None) -> Task | None:
        """The root task that is this work (protocol section 2: its identity is sender, task and subtask)."""
        row = self.db.execute(
            f"SELECT {_TASK} FROM tasks t WHERE task_id = ? AND subtask_id IS ? AND sender = ? AND parent IS NULL",  # noqa: S608
            (task_id, subtask_id, sender),
        ).fetchone()
        return None if row is None else read_task(row)

    def child(self, parent_local_id: str, key: str) -> Task | None:
        """The child that a reply's task_id and subtask_id name."""
        row = self.db.execute(
            f"SELECT {_TASK} FROM tasks p JOIN tasks t ON t.parent = p.id WHERE p.local_id = ? AND t.key = ?",  # noqa: S608
            (parent_local_id, key),
        ).fetchone()
        return None if row is None else read_task(row)

    def attempt(self, task_id: str, ordinal: int) -> Attempt | None:
        row = self.db.execute(
            f"SELECT {_ATTEMPT} FROM attempts WHERE task = ? AND ordinal = ?",  # noqa: S608
            (task_id, ordinal),
        ).fetchone()
        return None if row is None else _read(Attempt, ATTEMPT_COLUMNS, _JSON_ATTEMPT, row)

    def knows_attempt(self, task_id: str, attempt_id: str) -> bool:
        row = self.db.execute("SELECT 1 FROM attempts WHERE id = ? AND task = ?", (attempt_id, task_id)).fetchone()
        return row is not None

    def view(self, task_id: str, *, family: bool = False) -> View:
        """The task and how its neighbours stand. With `family` also what admitting a plan needs to know."""
        row = self.db.execute(
            f"SELECT {_TASK}, t.unmet, t.kids, t.kids_completed, t.kids_failed, t.kids_cancelled, p.phase"  # noqa: S608
            " FROM tasks t LEFT JOIN tasks p ON p.id = t.parent WHERE t.id = ?",
            (task_id,),
        ).fetchone()
        task = read_task(row[: len(TASK_COLUMNS)])
        unmet, kids, completed, failed, cancelled, parent_phase = row[len(TASK_COLUMNS) :]
        in_gate = task.phase in _GATES
        return View(
            task=task,
            attempt=self.attempt(task_id, task.attempt) if task.attempt else None,
            parent_phase=None if parent_phase is None else Phase(parent_phase),
            unmet=unmet,
            children=Tally(kids, completed, failed, cancelled),
            failed_child=self._failed_child(task_id) if failed else "",
            answers=self._answers(task_id) if task.broadcast and task.policy.join is Join.MAJORITY else (),
            reviews=self._reviews(task) if in_gate else (),
            asked_reviewers=self._asked(task) if in_gate else (),
            turns=self._turns(task_id),
            family=self.family(task) if family else None,
        )

    def _failed_child(self, task_id: str) -> str:
        row = self.db.execute(
            "SELECT key, coalesce(nullif(error, ''), reason) FROM tasks WHERE parent = ? AND phase = 'failed' ORDER BY seq LIMIT 1",
            (task_id,),
        ).fetchone()
        return f"child {row[0]} failed: {row[1]}"

    def _answers(self, task_id: str) -> tuple[tuple[str, int], ...]:
        rows = self.db.execute(
            "SELECT coalesce(nullif(answer, ''), trim(result)) AS said, count(*) AS votes FROM tasks"
            " WHERE parent = ? AND phase = 'completed' GROUP BY said ORDER BY votes DESC, said",
            (task_id,),
        )
        return tuple(rows)

    def _reviews(self, task: Task) -> tuple[Review, ...]:
        rows = self.db.execute(
            "SELECT gate, reviewer, verdict, summary, findings FROM reviews WHERE task = ? AND gate = ? AND round = ? ORDER BY id",
            (task.id, task.phase, task.rework),
        )
        return tuple(
            Review(
                Gate(gate), reviewer, Verdict(verdict), summary, tuple(Finding(**item) for item in json.loads(findings))
            )
            for gate, reviewer, verdict, summary, findings in rows
        )

    def _asked(self, task: Task) -> tuple[tuple[str, int], ...]:
        rows = self.db.execute(
            "SELECT reviewer, times FROM review_requests WHERE task = ? AND gate = ? AND round = ?",
            (task.id, task.phase, task.rework),
        )
        return tuple(rows)

    def _turns(self, task_id: str) -> int:
        row = self.db.execute(
            "SELECT count(*) FROM outbox WHERE task = ? AND kind IN ('run_turn', 'look_up') AND state = 'pending'",
            (task_id,),
        ).fetchone()
        return int(row[0])

    # -------------------------------------------------------------- messages

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
            f"SELECT task, sha256 FROM messages WHERE {where} AND direction = 'in' AND verdict <> 'rejected' LIMIT 1",  # noqa: S608 - constant text
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
            "SELECT id, name, verdict = 'rejected', sha256, stamp, reason, at FROM messages WHERE path IS NULL ORDER BY id LIMIT ?",
            (limit,),
        )
        return [
            Unfiled(row[0], row[1], bool(row[2]), row[3], json.loads(row[4]), json.loads(row[5] or "null"), row[6])
            for row in rows
        ]

    def is_filed(self, path: str) -> bool:
        return self.db.execute("SELECT 1 FROM messages WHERE path = ?", (path,)).fetchone() is not None

    # -------------------------------------------------------------- neighbours

    def family(self, task: Task) -> Family:
        """The children of `task`, and the levels around it, innermost first."""
        outer = []
        here: Task | None = task
        while here is not None and here.parent is not None:
            outer.append(self._level(here.parent, here.key))
            here = self.task(here.parent)
        return Family(self._level(task.id, ""), tuple(outer))

    def _level(self, parent: str, node: str) -> Level:
        keys: dict[str, str] = dict(
            self.db.execute("SELECT key, id FROM tasks WHERE parent = ? ORDER BY seq", (parent,))
        )
        needs: dict[str, list[str]] = {key: [] for key in keys}
        rows = self.db.execute(
            "SELECT t.key, n.key FROM tasks t JOIN dependencies d ON d.task = t.id JOIN tasks n ON n.id = d.needs"
            " WHERE t.parent = ?",
            (parent,),
        )
        for key, need in rows:
            needs[key].append(need)
        return Level(needs, node, keys)

    def needs_by_key(self, parent: str) -> Mapping[str, Sequence[str]]:
        """For each child that depends on something: the keys of what it needs."""
        return {key: needs for key, needs in self._level(parent, "").nodes.items() if needs}

    def open_children(self, task_id: str) -> list[str]:
        rows = self.db.execute(
            f"SELECT id FROM tasks WHERE parent = ? AND phase NOT IN {_ENDED} ORDER BY seq", (task_id,)
        )
        return [row[0] for row in rows]

    def has_open_children(self, task_id: str) -> bool:
        row = self.db.execute(
            "SELECT kids > kids_completed + kids_failed + kids_cancelled FROM tasks WHERE id = ?", (task_id,)
        ).fetchone()
        return bool(row[0])

    def parent(self, task_id: str) -> str | None:
        row = self.db.execute("SELECT parent FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return None if row is None else row[0]

    def fallen_below(self, task_id: str, also: str) -> list[str]:
        """Every task below that failed, was cancelled with its parent or has an open circuit, parents first.

        Open circuits of other branches wait for their own decision: only `also` is taken of them.
        """
        rows = self.db.execute(
            "WITH RECURSIVE below (id) AS (SELECT id FROM tasks WHERE parent = ?"
            " UNION ALL SELECT t.id FROM tasks t JOIN below b ON t.parent = b.id)"
            " SELECT t.id FROM tasks t JOIN below b ON b.id = t.id"
            " WHERE t.phase = 'failed' OR (t.phase = 'cancelled' AND t.cancelled_with_parent) OR t.id = ?"
            " ORDER BY t.depth, t.seq",
            (task_id, also),
        )
        return [row[0] for row in rows]

    def children(self, task_id: str) -> list[Task]:
        rows = self.db.execute(f"SELECT {_TASK} FROM tasks t WHERE t.parent = ? ORDER BY t.seq", (task_id,))  # noqa: S608
        return [read_task(row) for row in rows]

    def dependencies(self, task_id: str) -> list[Task]:
        rows = self.db.execute(
            f"SELECT {_TASK} FROM dependencies d JOIN tasks t ON t.id = d.needs WHERE d.task = ? ORDER BY t.seq",  # noqa: S608
            (task_id,),
        )
        return [read_task(row) for row in rows]

    # -------------------------------------------------------------- the outbox of effects

    def pending(self, now: str, limit: int) -> list[Order]:
        """Effects that are not done and whose time has come, in the order they were given."""
        rows = self.db.execute(
            "SELECT id, kind, task, agent, data, tries, at FROM outbox"
            " WHERE state = 'pending' AND (not_before IS NULL OR not_before <= ?) ORDER BY seq LIMIT ?",
            (now, limit),
        )
        return [_order(row) for row in rows]

    def finish(self, order_id: str, state: str = "done") -> None:
        """The effect has been performed (`done`) or given up (`failed`)."""
        self.db.execute("UPDATE outbox SET state = ? WHERE id = ?", (state, order_id))

    def postpone(self, order_id: str, not_before: str) -> None:
        self.db.execute("UPDATE outbox SET tries = tries + 1, not_before = ? WHERE id = ?", (not_before, order_id))

    def order_of(self, order_id: str) -> Order:
        """The effect with this id. Raises KeyError when there is none."""
        row = self.db.execute(
            "SELECT id, kind, task, agent, data, tries, at FROM outbox WHERE id = ?", (order_id,)
        ).fetchone()
        if row is None:
            raise KeyError(order_id)
        return _order(row)

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

    def stale_files(self) -> list[str]:
        return [row[0] for row in self.db.execute("SELECT task FROM stale_files")]

    def file_is_fresh(self, task_id: str) -> None:
        self.db.execute("DELETE FROM stale_files WHERE task = ?", (task_id,))

    def meta(self, name: str) -> str | None:
        row = self.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def set_meta(self, name: str, value: str) -> None:
        self.db.execute("INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2", (name, value))

    # -------------------------------------------------------------- scheduling

    def ready(self, now: str, per_executor: int) -> Iterator[tuple[str, str, bool]]:
        """Tasks that may start: id, executor, and whether children (not a turn) do the work.

        At most `per_executor` of each executor, by priority and then in order of creation.
        """
        executors = [
            row[0]
            for row in self.db.execute(
                "SELECT DISTINCT executor FROM tasks WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
            )
        ]
        for executor in executors:
            yield from self.db.execute(
                "SELECT id, executor, kids > 0 FROM tasks WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
                " AND executor = ? AND (not_before IS NULL OR not_before <= ?)"
                " ORDER BY kids > 0 DESC, coalesce(json_extract(policy, '$.priority'), 0) DESC, seq LIMIT ?",
                (executor, now, per_executor),
            ).fetchall()

    def busy(self) -> dict[str, int]:
        """How many calls each agent has, ordered or running."""
        return dict(
            self.db.execute(
                "SELECT agent, count(*) FROM outbox WHERE state = 'pending' AND kind = 'run_turn' GROUP BY agent"
            )
        )

    def due(self, now: str) -> list[str]:
        return [row[0] for row in self.db.execute("SELECT id FROM tasks WHERE due <= ? ORDER BY due, seq", (now,))]

    def last_event(self) -> int:
        return int(self.db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def has_pending(self) -> bool:
        return self.db.execute("SELECT 1 FROM outbox WHERE state = 'pending' LIMIT 1").fetchone() is not None

    def has_backoff(self) -> bool:
        """Whether a task waits for nothing but its backoff, or for a slot."""
        row = self.db.execute(
            "SELECT 1 FROM tasks WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1 LIMIT 1"
        ).fetchone()
        return row is not None

    def next_due(self) -> str | None:
        """The next moment at which something happens by itself; None = nothing waits for the clock."""
        row = self.db.execute(
            "SELECT min(at) FROM (SELECT min(due) AS at FROM tasks WHERE due IS NOT NULL UNION ALL"
            " SELECT min(not_before) FROM tasks WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
            " UNION ALL SELECT min(not_before) FROM outbox WHERE state = 'pending')"
        ).fetchone()
        return None if row is None else row[0]


_GATES = {Phase(gate.value) for gate in Gate}


def _order(row: Sequence[Any]) -> Order:
    order_id, kind, task, agent, data, tries, at = row
    return Order(order_id, kind, task, agent, from_json(EFFECTS[kind], json.loads(data)), tries, at)


def read_task(row: Sequence[Any]) -> Task:
    return _read(Task, TASK_COLUMNS, _JSON_TASK, row)


def _read(kind: Callable[..., T], names: Sequence[str], structured: set[str], row: Sequence[Any]) -> T:
    values = {}
    for name, value in zip(names, row, strict=True):
        if name in structured:
            value = read_field(kind, name, json.loads(value))
        elif name in _BOOL:
            value = bool(value)
        elif value is not None and name in _ENUMS:
            value = read_field(kind, name, value)
        values[name] = value
    return kind(**values)


_ENUMS = {"mode", "runtime", "phase", "status", "waiting_for"}
