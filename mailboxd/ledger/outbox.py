"""The outbox: pending effects; and the task.md files that are out of date."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

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
from mailboxd.core.vocabulary import Mode, Turn
from mailboxd.ledger.conditions import ENDED
from mailboxd.ledger.connection import Connection
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
_ROW = "seq, id, kind, task, agent, data, state, tries, not_before, at, begun, rev, prompt"
_COLUMNS = tuple(_ROW.split(", "))
_CHANGING = ("state", "tries", "not_before", "begun", "rev", "prompt")
_changing = itemgetter(*_CHANGING, "id")
_INSERT = f"INSERT INTO outbox ({_ROW}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_UPDATE = f"UPDATE outbox SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE id = ?"
_LAST = "SELECT coalesce((SELECT max(seq) FROM outbox WHERE seq > 0), 0), coalesce((SELECT max(rev) FROM outbox), 0)"


def latest_turn_of(agent: str) -> str:
    """Two columns: whether the latest attempt of this agent was a repeated one, and the number of its latest turn."""
    return (
        "(SELECT EXISTS (SELECT 1 FROM attempts a WHERE a.id = json_extract(o.data, '$.attempt_id') AND a.ordinal > 1)"
        f" FROM outbox o WHERE o.kind = 'run_turn' AND o.agent = {agent}"
        " AND json_extract(o.data, '$.turn') IN ('work', 'dispatch') ORDER BY o.seq DESC LIMIT 1),"
        f" (SELECT max(seq) FROM outbox WHERE kind = 'run_turn' AND agent = {agent})"
    )


_MOST = 2_000
"""Pending orders that are read into memory."""


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


class LatestTurn(NamedTuple):
    """The latest turn that was ordered of an agent."""

    seq: int
    """Its number among all orders; 0: there was none."""
    after_again: bool
    """The agent's latest attempt was a repeated one."""


_STALE = "INSERT INTO stale_files VALUES (?, 1) ON CONFLICT (task) DO UPDATE SET marks = marks + 1"


Row = dict[str, Any]
"""A row of `outbox` by its columns, in their order."""


class Outbox:
    """Effects that were ordered, until they are done or have failed.

    What is pending is kept in memory from one transaction to the next, while nobody else writes. A row waits to be
    written: an order that begins in the round that gives it is written once.
    """

    def __init__(self, db: Connection, cache: TaskCache, written: Written) -> None:
        self._db = db
        self._cache = cache
        self._written = written
        self._pending: dict[str, tuple[Row, Order]] | None = None
        """All pending orders with their rows, in order; None = not known."""
        self._are_many = False
        """They were too many to be kept when they were looked for; `pending` looks again."""
        self._last = 0, 0
        """The greatest `seq` and `rev`, if the pending orders are known."""
        self._turns: dict[str, LatestTurn] = {}
        """The latest turns that were looked at, by agent."""

    def forget(self) -> None:
        """Others may have written, or something was rolled back."""
        self._pending, self._are_many = None, False
        self._turns.clear()

    def _known(self) -> dict[str, tuple[Row, Order]] | None:
        """The pending orders; None if they are many."""
        if not self._db.in_transaction:
            return self._pending if self._pending is not None and self._cache.is_current() else None
        if self._pending is None and not self._are_many:
            rows = self._rows("state = 'pending' ORDER BY seq LIMIT ?", _MOST + 1)
            self._are_many = len(rows) > _MOST
            if not self._are_many:
                self._pending = {row["id"]: (row, _order(row)) for row in rows}
                self._last = self._db.execute(_LAST).fetchone()
        return self._pending

    def _rows(self, where: str, *values: object) -> list[Row]:
        rows = self._db.execute(f"SELECT {_ROW} FROM outbox WHERE {where}", values)
        return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]

    def _next(self) -> tuple[int, int]:
        """The next `seq` and `rev`: the journal finds changed rows by the latter."""
        if self._pending is None:
            self._last = self._db.execute(_LAST).fetchone()
        return self._last[0] + 1, self._last[1] + 1

    def _put(self, row: Row, *, new: bool = False) -> None:
        """Add or change a row; the journal gets it as it is then."""
        if new or ((before := self._db.waiting("outbox", row["id"])) is not None and before[0] == _INSERT):
            sql, values = _INSERT, tuple(row.values())
        else:
            sql, values = _UPDATE, _changing(row)
        self._last = max(self._last[0], row["seq"]), row["rev"]
        self._db.write_later("outbox", sql, values, row["id"])
        self._written.put("outbox", row["seq"], row)

    def _change(self, order_id: str, asked: PromptDigest | None = None, **changes: object) -> None:
        """Change a row; `asked` is what its `prompt` then says."""
        known = self._known()
        row, order = (known or {}).get(order_id, (None, None))
        if row is None:
            row = next(iter(self._rows("id = ?", order_id)), None)
        if row is None:
            return
        _, rev = self._next()
        row = {**row, **changes, "rev": rev}
        self._put(row)
        if known is None or order is None:
            return
        if row["state"] == "pending":
            changed = replace(order, tries=row["tries"], begun=row["begun"], prompt=asked or order.prompt)
            known[order_id] = row, changed
        else:
            del known[order_id]

    def add(self, effect_id: str, task: str, effect: Effect, now: str) -> None:
        """Add a pending effect."""
        kind, agent = _KIND_OF[type(effect)], getattr(effect, "agent", "")
        not_before = getattr(effect, "not_before", None)
        data = pydantic_core.to_json(to_json(effect)).decode()
        known = self._known()
        seq, rev = self._next()
        values = (seq, effect_id, kind, task, agent, data, "pending", 0, not_before, now, None, rev, None)
        row = dict(zip(_COLUMNS, values, strict=True))
        self._put(row, new=True)
        if known is not None:
            known[effect_id] = row, Order(effect_id, kind, task, agent, effect, 0, now)
        if isinstance(effect, RunTurn) and (latest := self._turns.pop(agent, None)) is not None:
            self._followed(latest, seq, task, effect)
        if not_before is not None:
            self._cache.starts_timer(not_before)
        self._cache.ordered(task, kind, effect_id)

    def latest_turn(self, agent: str) -> LatestTurn:
        """The latest turn of an agent; inside a transaction."""
        if (latest := self._turns.get(agent)) is None:
            after_again, seq = self._db.execute(f"SELECT {latest_turn_of('?1')}", (agent,)).fetchone()
            self._turns[agent] = latest = LatestTurn(seq or 0, bool(after_again))
        return latest

    def _followed(self, latest: LatestTurn, seq: int, task: str, turn: RunTurn) -> None:
        """Keep what is now an agent's latest turn, if its attempt is known."""
        if turn.turn not in (Turn.WORK, Turn.DISPATCH):
            self._turns[turn.agent] = LatestTurn(seq, latest.after_again)
        elif (attempt := self._cache.attempts.get(task)) is not None and attempt.id == turn.attempt_id:
            self._turns[turn.agent] = LatestTurn(seq, attempt.ordinal > 1)

    def notes_sent(self, task_id: str, kind: str, receiver: str) -> dict[str, str]:
        """Ids and notes of the messages of one type about a task to a receiver, sent or pending, latest first."""
        rows = self._db.execute(
            "SELECT id, coalesce(json_extract(data, '$.note'), '') FROM outbox"
            " WHERE task = ? AND kind = 'send' AND json_extract(data, '$.type') = ?"
            " AND json_extract(data, '$.to') = ? COLLATE NOCASE ORDER BY seq DESC",
            (task_id, kind, receiver),
        )
        return dict(rows.fetchall())

    def pending(self, now: str, limit: int = -1, passed: int = 0) -> list[Order]:
        """Pending effects that are not delayed, in order; a `limit` of -1 is none, and `passed` is the offset.

        Without the creation of children, for which nothing is performed.
        """
        self._are_many = self._are_many and passed > 0
        if (known := self._known()) is not None:
            found = [
                order
                for row, order in known.values()
                if order.kind != "create_children" and (row["not_before"] is None or row["not_before"] <= now)
            ]
            return found[passed:] if limit < 0 else found[passed : passed + limit]
        rows = self._rows(
            "state = 'pending' AND kind <> 'create_children'"
            " AND (not_before IS NULL OR not_before <= ?) ORDER BY seq LIMIT ? OFFSET ?",
            now,
            limit,
            passed,
        )
        return [*map(_order, rows)]

    def calls(self, now: str) -> dict[str, int] | None:
        """The number of turns per agent that are pending and not delayed; None if that has to be read."""
        if (known := self._known()) is None:
            return None
        calls: dict[str, int] = {}
        for row, order in known.values():
            if order.kind == "run_turn" and (row["not_before"] is None or row["not_before"] <= now):
                calls[order.agent] = calls.get(order.agent, 0) + 1
        return calls

    def begun_turns(self) -> list[tuple[str, str, str]]:
        """The turns that have begun and not ended: the ids of their orders, with their tasks and agents."""
        sql = "SELECT id, task, agent FROM outbox INDEXED BY outbox_open WHERE state = 'pending'"
        return self._db.execute(f"{sql} AND kind = 'run_turn' AND begun IS NOT NULL").fetchall()

    def children_due(self) -> tuple[Order, CreateChildren] | None:
        """The next children of large plans that are to be created, or None."""
        if self._cache.all_children_exist and self._db.in_transaction:
            return None
        rows = self._rows("state = 'pending' AND kind = 'create_children' ORDER BY seq LIMIT 1")
        if not rows:
            self._cache.all_children_exist = self._db.in_transaction
            return None
        order = _order(rows[0])
        assert isinstance(order.effect, CreateChildren)
        return order, order.effect

    def begin(self, order_id: str, boot: str | None, prompt: PromptDigest | None = None) -> None:
        """Mark a turn as begun: once committed, its call may have been made in this boot, with this prompt.

        Without a boot only the prompt is noted, for a call that shows by itself whether it was made.
        """
        text = None if prompt is None else pydantic_core.to_json(to_json(prompt)).decode()
        self._change(order_id, asked=prompt, begun=boot, prompt=text)

    def mark_uncertain(self, sent: Collection[str]) -> None:
        """Mark what may have been done after the restored backup was made.

        Turns that were begun, or whose message was `sent`, are looked up as after a power failure. Other messages in
        `sent` are not sent again.
        """
        begun = {"begun": "an older database"}
        self._change_pending(begun, "begun IS NOT NULL")
        for message in sent:
            is_its = "json_extract(data, '$.message_id') = ?"
            self._change_pending(begun, f"kind = 'run_turn' AND {is_its}", message)
            self._change_pending({"state": "failed"}, f"kind <> 'run_turn' AND {is_its}", message)

    def fail_commands(self, task_id: str) -> None:
        """Fail the pending effects of a task that would run commands: checks and approved actions."""
        kinds = "('run_check', 'prepare', 'perform', 'verify')"
        self._change_pending({"state": "failed"}, f"task = ? AND kind IN {kinds}", task_id)

    def _change_pending(self, changes: Mapping[str, Any], where: str, *args: str) -> None:
        """Change the pending effects that match, one by one: each change has a number of its own."""
        for row in self._rows(f"state = 'pending' AND {where} ORDER BY seq", *args):
            self._change(row["id"], **changes)
        self._cache.forget_orders()

    def finish(self, order_id: str, state: str = "done") -> None:
        """Mark the effect as `done` or `failed`."""
        self._change(order_id, state=state)
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
        """Try the effect again later."""
        self._change(order_id, tries=self.get(order_id).tries + 1, not_before=not_before)
        self._cache.starts_timer(not_before)

    def delay(self, order_id: str, not_before: str) -> None:
        """Perform the effect later, which is no failed try."""
        self._change(order_id, not_before=not_before)
        self._cache.starts_timer(not_before)

    def notices(self, what: str) -> list[Order]:
        """The pending notices of this kind, in order, also those that wait."""
        rows = self._rows(
            "state = 'pending' AND kind = 'notify' AND coalesce(json_extract(data, '$.what'), 'approval') = ?"
            " ORDER BY seq",
            what,
        )
        return [*map(_order, rows)]

    def hasten_notices(self) -> None:
        """Look at all notices that wait at once: the clock may have been set, and a target be back."""
        self._change_pending({"not_before": None}, "kind = 'notify' AND not_before IS NOT NULL")

    def shift_delays(self, now: str, seconds: float) -> None:
        """Delay effects that are not due at `now` by `seconds` more."""
        for row in self._rows("state = 'pending' AND not_before > ? ORDER BY seq", now):
            self._change(row["id"], not_before=plus(row["not_before"], seconds))
        self._cache.forget_orders()

    def get(self, order_id: str) -> Order:
        """The effect with this id. Raises KeyError."""
        known = self._known()
        if known is not None and order_id in known:
            return known[order_id][1]
        rows = self._rows("id = ?", order_id)
        if not rows:
            raise KeyError(order_id)
        return _order(rows[0])


def _order(row: Row) -> Order:
    effect: Effect = from_json(EFFECTS[row["kind"]], json.loads(row["data"]))
    prompt = None if row["prompt"] is None else from_json(PromptDigest, json.loads(row["prompt"]))
    return Order(
        row["id"], row["kind"], row["task"], row["agent"], effect, row["tries"], row["at"], row["begun"], prompt
    )


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
        places = self._tasks.places(touched)
        files = {task for task, parent, mode in places if parent is None or mode == Mode.COORDINATING}
        files |= {parent for _, parent, _ in places if parent is not None}
        if self._unread is not None:
            files -= self._unread
            self._unread |= files
        if files:
            self._db.executemany(_STALE, [(task_id,) for task_id in sorted(files)])

    def batch(self, after: str = "", limit: int = -1) -> list[tuple[str, int]]:
        """Tasks with ids greater than `after` whose file is out of date, each with its number of marks, by id.

        Only one process of a workspace reads them: the one that writes the files and clears the marks.
        """
        sql = "SELECT task, marks FROM stale_files WHERE task > ? ORDER BY task LIMIT ?"
        found: list[tuple[str, int]] = self._db.execute(sql, (after, limit)).fetchall()
        self._unread = (self._unread or set()).difference(dict(found))
        return found

    def exist(self) -> bool:
        return self._db.execute("SELECT 1 FROM stale_files LIMIT 1").fetchone() is not None

    def clear(self, task_id: str, marks: int) -> None:
        """The file shows the state at that number of marks; later marks remain."""
        self._db.execute("DELETE FROM stale_files WHERE task = ? AND marks = ?", (task_id, marks))
