"""The outbox: effects that were ordered, and what of the files is out of date."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mailboxd.core.effects import Bounce, Compose, Effect, LookUp, Resend, RunTurn, Send, StopTurns
from mailboxd.core.wire import from_json, to_json
from mailboxd.store.db import Connected

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
class Order:
    """An effect in the outbox. `task` is empty for one that concerns no task."""

    id: str
    kind: str
    task: str
    agent: str
    effect: Effect
    tries: int
    at: str


class OutboxQueries(Connected):
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
            "INSERT INTO stale_files SELECT id, 1 FROM"
            " (SELECT CASE WHEN parent IS NULL OR mode = 'coordinating' THEN id ELSE parent END AS id"
            " FROM tasks WHERE id = ?1 UNION SELECT parent FROM tasks WHERE id = ?1 AND parent IS NOT NULL)"
            " WHERE true ON CONFLICT (task) DO UPDATE SET marks = marks + 1",
            [(task_id,) for task_id in touched],
        )

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

    def is_done(self, order_id: str) -> bool:
        row = self.db.execute("SELECT state FROM outbox WHERE id = ?", (order_id,)).fetchone()
        return row is not None and row[0] == "done"

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

    def stale_files(self) -> list[tuple[str, int]]:
        """The tasks whose task.md is out of date, each with its count of marks."""
        return self.db.execute("SELECT task, marks FROM stale_files").fetchall()

    def file_is_fresh(self, task_id: str, marks: int) -> None:
        """The file shows what was known at that count; a mark that was made since stands."""
        self.db.execute("DELETE FROM stale_files WHERE task = ? AND marks = ?", (task_id, marks))


def _order(row: Sequence[Any]) -> Order:
    order_id, kind, task, agent, data, tries, at = row
    return Order(order_id, kind, task, agent, from_json(EFFECTS[kind], json.loads(data)), tries, at)
