"""The outbox: pending effects; and the task.md files that are out of date."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from mailboxd.core.effects import (
    AnswerPermission,
    Bounce,
    Compose,
    CreateChildren,
    Effect,
    LookUp,
    Notify,
    Perform,
    Prepare,
    Resend,
    RunCheck,
    RunTurn,
    Send,
    StopTurns,
    Verify,
)
from mailboxd.core.json_codec import from_json, to_json
from mailboxd.core.outcomes import PromptDigest
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Mode
from mailboxd.ledger.conditions import ENDED
from mailboxd.ledger.task_cache import TaskCache
from mailboxd.ledger.tasks import Tasks
from mailboxd.ledger.written import Written

EFFECTS: dict[str, type[Any]] = {
    "run_turn": RunTurn,
    "look_up": LookUp,
    "stop_turns": StopTurns,
    "create_children": CreateChildren,
    "compose": Compose,
    "send": Send,
    "resend": Resend,
    "bounce": Bounce,
    "run_check": RunCheck,
    "prepare": Prepare,
    "perform": Perform,
    "verify": Verify,
    "notify": Notify,
    "answer_permission": AnswerPermission,
}
_KIND_OF = {kind: name for name, kind in EFFECTS.items()}
_UPDATE = "UPDATE outbox SET rev = (SELECT max(rev) + 1 FROM outbox)"
"""Begins every change of one row: the journal finds changed rows by `rev`."""
_RECENT = 256
_ORDER = "id, kind, task, agent, data, tries, at, begun, prompt"


@dataclass(frozen=True, slots=True)
class Order:
    """An effect in the outbox. `task` is empty if it concerns none."""

    id: str
    kind: str
    task: str
    agent: str
    effect: Effect
    tries: int
    at: str
    begun: str | None = None
    """The boot id under which the call of a turn may have been made; None if it was not."""
    prompt: PromptDigest | None = None
    """What that call gives to the agent, recorded before it can be made."""


_STALE = "INSERT INTO stale_files VALUES (?, 1) ON CONFLICT (task) DO UPDATE SET marks = marks + 1"


class Outbox:
    """Effects that were ordered, until they are done or have failed."""

    def __init__(self, db: sqlite3.Connection, cache: TaskCache, written: Written) -> None:
        self._db = db
        self._cache = cache
        self._written = written
        self._recent: dict[str, Effect] = {}
        """The effects that were added or read last, by their text: an order is read before its task's next step, when
        it begins and when it ends, and never says anything else."""

    def _write(self, sql: str, values: Sequence[object]) -> None:
        """Add or change a row; the journal gets it as it is then."""
        self._written.change("outbox", self._db.execute(f"{sql} RETURNING *", values))

    def add(self, effect_id: str, task: str, effect: Effect, now: str) -> None:
        """Add a pending effect."""
        kind, agent = _KIND_OF[type(effect)], getattr(effect, "agent", "")
        not_before = getattr(effect, "not_before", None)
        data = pydantic_core.to_json(to_json(effect)).decode()
        self._remember(data, effect)
        self._write(
            "INSERT INTO outbox (id, kind, task, agent, data, state, not_before, at, rev)"
            " VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, (SELECT coalesce(max(rev), 0) + 1 FROM outbox))",
            (effect_id, kind, task, agent, data, not_before, now),
        )
        self._cache.starts_timer(not_before)
        self._cache.ordered(task, kind, effect_id)

    def notes_sent(self, task_id: str, kind: str, receiver: str) -> dict[str, str]:
        """Ids and notes of the messages of one type about a task to a receiver, sent or pending, latest first."""
        rows = self._db.execute(
            "SELECT id, coalesce(json_extract(data, '$.note'), '') FROM outbox"
            " WHERE task = ? AND kind = 'send' AND json_extract(data, '$.type') = ?"
            " AND json_extract(data, '$.to') = ? COLLATE NOCASE ORDER BY seq DESC",
            (task_id, kind, receiver),
        )
        return dict(rows.fetchall())

    def pending(self, now: str, limit: int, passed: int = 0) -> list[Order]:
        """Pending effects that are not delayed, in order; `passed` is the offset.

        Without the creation of children, for which nothing is performed.
        """
        rows = self._db.execute(
            f"SELECT {_ORDER} FROM outbox WHERE state = 'pending' AND kind <> 'create_children'"
            " AND (not_before IS NULL OR not_before <= ?) ORDER BY seq LIMIT ? OFFSET ?",
            (now, limit, passed),
        )
        return [self._order(row) for row in rows]

    def begun_turns(self) -> list[tuple[str, str, str]]:
        """The turns that have begun and not ended: the ids of their orders, with their tasks and agents."""
        sql = "SELECT id, task, agent FROM outbox INDEXED BY outbox_open WHERE state = 'pending'"
        return self._db.execute(f"{sql} AND kind = 'run_turn' AND begun IS NOT NULL").fetchall()

    def children_due(self) -> tuple[Order, CreateChildren] | None:
        """The next children of large plans that are to be created, or None."""
        if self._cache.all_children_exist and self._cache.is_current():
            return None
        row = self._db.execute(
            f"SELECT {_ORDER} FROM outbox WHERE state = 'pending' AND kind = 'create_children' ORDER BY seq LIMIT 1"
        ).fetchone()
        if row is None:
            self._cache.all_children_exist = self._db.in_transaction
            return None
        order = self._order(row)
        assert isinstance(order.effect, CreateChildren)
        return order, order.effect

    def begin(self, order_id: str, boot: str | None, prompt: PromptDigest | None = None) -> None:
        """Mark a turn as begun: once committed, its call may have been made in this boot, with this prompt.

        Without a boot only the prompt is noted, for a call that shows by itself whether it was made.
        """
        text = None if prompt is None else pydantic_core.to_json(to_json(prompt)).decode()
        self._write(f"{_UPDATE}, begun = ?, prompt = ? WHERE id = ?", (boot, text, order_id))

    def mark_uncertain(self, sent: Collection[str]) -> None:
        """Mark what may have been done after the restored backup was made.

        Turns that were begun, or whose message was `sent`, are looked up as after a power failure. Other messages in
        `sent` are not sent again.
        """
        begun = "begun = 'an older database'"
        self._update_pending(begun, "begun IS NOT NULL")
        for message in sent:
            is_its = "json_extract(data, '$.message_id') = ?"
            self._update_pending(begun, f"kind = 'run_turn' AND {is_its}", message)
            self._update_pending("state = 'failed'", f"kind <> 'run_turn' AND {is_its}", message)

    def fail_commands(self, task_id: str) -> None:
        """Fail the pending effects of a task that would run commands: checks and approved actions."""
        kinds = "('run_check', 'prepare', 'perform', 'verify')"
        self._update_pending("state = 'failed'", f"task = ? AND kind IN {kinds}", task_id)

    def _update_pending(self, change: str, where: str, *args: str) -> None:
        """Change the pending effects that match, one by one: each change has a number of its own."""
        ids = self._db.execute(f"SELECT id FROM outbox WHERE state = 'pending' AND {where}", args).fetchall()
        for row in ids:
            self._write(f"{_UPDATE}, {change} WHERE id = ?", row)
        self._cache.forget_orders()

    def finish(self, order_id: str, state: str = "done") -> None:
        """Mark the effect as `done` or `failed`."""
        self._write(f"{_UPDATE}, state = ? WHERE id = ?", (state, order_id))
        self._cache.settled(order_id)

    def is_resent(self, task_id: str) -> bool:
        """Whether the stored reply of a task is about to be sent again."""
        sql = "SELECT 1 FROM outbox WHERE task = ? AND kind = 'resend' AND state = 'pending' LIMIT 1"
        return self._db.execute(sql, (task_id,)).fetchone() is not None

    def has_look_ups(self) -> bool:
        """Whether the outcome of a lost turn is being looked up."""
        sql = "SELECT 1 FROM outbox WHERE state = 'pending' AND kind = 'look_up' LIMIT 1"
        return self._db.execute(sql).fetchone() is not None

    def is_settled(self, order_id: str) -> bool:
        """Whether the files of a call of this effect are no longer needed: it succeeded, or its task has ended."""
        row = self._db.execute(
            f"SELECT 1 FROM outbox o LEFT JOIN tasks t ON t.id = o.task WHERE o.id = ?"
            f" AND (o.state = 'done' OR (o.state = 'failed' AND t.phase IN {ENDED} IS NOT 0))",
            (order_id,),
        ).fetchone()
        return row is not None

    def postpone(self, order_id: str, not_before: str) -> None:
        self._write(f"{_UPDATE}, tries = tries + 1, not_before = ? WHERE id = ?", (not_before, order_id))
        self._cache.starts_timer(not_before)

    def delay(self, order_id: str, not_before: str) -> None:
        """Perform the effect later, which is no failed try."""
        self._write(f"{_UPDATE}, not_before = ? WHERE id = ?", (not_before, order_id))
        self._cache.starts_timer(not_before)

    def notices(self, what: str) -> list[Order]:
        """The pending notices of this kind, in order, also those that wait."""
        rows = self._db.execute(
            f"SELECT {_ORDER} FROM outbox INDEXED BY outbox_open WHERE state = 'pending' AND kind = 'notify'"
            " AND coalesce(json_extract(data, '$.what'), 'approval') = ? ORDER BY seq",
            (what,),
        )
        return [self._order(row) for row in rows]

    def hasten_notices(self) -> None:
        """Look at all notices that wait at once: the clock may have been set, and a target be back."""
        self._update_pending("not_before = NULL", "kind = 'notify' AND not_before IS NOT NULL")

    def shift_delays(self, now: str, seconds: float) -> None:
        """Delay effects that are not due at `now` by `seconds` more."""
        rows = self._db.execute(
            "SELECT id, not_before FROM outbox WHERE state = 'pending' AND not_before > ?", (now,)
        ).fetchall()
        for order_id, not_before in rows:
            self._write(f"{_UPDATE}, not_before = ? WHERE id = ?", (plus(not_before, seconds), order_id))
        self._cache.forget_orders()

    def get(self, order_id: str) -> Order:
        """The effect with this id. Raises KeyError."""
        row = self._db.execute(f"SELECT {_ORDER} FROM outbox WHERE id = ?", (order_id,)).fetchone()
        if row is None:
            raise KeyError(order_id)
        return self._order(row)

    def _order(self, row: Sequence[Any]) -> Order:
        order_id, kind, task, agent, data, tries, at, begun, prompt = row
        known = self._recent.get(data)
        effect: Effect = known if known is not None and type(known) is EFFECTS[kind] else _decoded(kind, data)
        if effect is not known:
            self._remember(data, effect)
        asked = None if prompt is None else from_json(PromptDigest, json.loads(prompt))
        return Order(order_id, kind, task, agent, effect, tries, at, begun, asked)

    def _remember(self, data: str, effect: Effect) -> None:
        if len(self._recent) >= _RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[data] = effect


class StaleFiles:
    """The task.md files that are out of date."""

    def __init__(self, db: sqlite3.Connection, tasks: Tasks) -> None:
        self._db = db
        self._tasks = tasks
        self._unread: set[str] | None = None
        """Tasks that have marks since this process read them: one more would say nothing new to it. None: it is not the
        one that reads them."""

    def forget(self) -> None:
        """Marks may have been rolled back."""
        if self._unread is not None:
            self._unread.clear()

    def mark(self, touched: Collection[str]) -> None:
        """Mark the files that show these tasks: a task's own, that of its parent, or both."""
        tasks = [task for task_id in touched if (task := self._tasks.get(task_id)) is not None]
        files = {task.id for task in tasks if task.parent is None or task.mode is Mode.COORDINATING}
        files |= {task.parent for task in tasks if task.parent is not None}
        if self._unread is not None:
            files -= self._unread
            self._unread |= files
        self._db.executemany(_STALE, [(task_id,) for task_id in sorted(files)])

    def batch(self, after: str = "", limit: int = -1) -> list[tuple[str, int]]:
        """Tasks with ids greater than `after` whose file is out of date, each with its number of marks, by id.

        Only one process of a workspace reads them: the one that writes the files and clears the marks.
        """
        sql = "SELECT task, marks FROM stale_files WHERE task > ? ORDER BY task LIMIT ?"
        found: list[tuple[str, int]] = self._db.execute(sql, (after, limit)).fetchall()
        self._unread = (self._unread or set()).difference(task for task, _ in found)
        return found

    def exist(self) -> bool:
        return self._db.execute("SELECT 1 FROM stale_files LIMIT 1").fetchone() is not None

    def clear(self, task_id: str, marks: int) -> None:
        """The file shows the state at that number of marks; later marks remain."""
        self._db.execute("DELETE FROM stale_files WHERE task = ? AND marks = ?", (task_id, marks))


def _decoded(kind: str, data: str) -> Effect:
    effect: Effect = from_json(EFFECTS[kind], json.loads(data))
    return effect
