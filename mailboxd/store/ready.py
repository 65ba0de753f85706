"""The scheduler's questions: what may start, what is due, who is busy."""

from __future__ import annotations

from collections.abc import Iterator

from mailboxd.store.db import Connected

_RUNNABLE = "phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
_RESTED = "(not_before IS NULL OR not_before <= ?1)"
_NEXT = f"SELECT min(executor) FROM tasks WHERE {_RUNNABLE} AND kids = 0"
# One step of the index for each executor, not for each task: SQLite does not skip through an index by itself.
_EXECUTORS = (
    f"WITH RECURSIVE some (executor) AS ({_NEXT} UNION ALL"
    f" SELECT ({_NEXT} AND executor > some.executor) FROM some WHERE some.executor IS NOT NULL)"
    " SELECT executor FROM some WHERE executor IS NOT NULL"
    " ORDER BY (SELECT max(seq) FROM outbox WHERE kind = 'run_turn' AND agent = executor)"
)
"""Whose turn was longest ago comes first, so that one agent's backlog does not starve another."""


class ReadyQueries(Connected):
    def ready(self, now: str, per_executor: int) -> Iterator[tuple[str, str, bool]]:
        """Tasks that may start: id, executor, and whether children (not a turn) do the work.

        Of those that need a turn at most `per_executor` of each executor, by priority and then in order of creation.
        """
        by_children = f"SELECT id, executor, 1 FROM tasks WHERE {_RUNNABLE} AND kids > 0 AND {_RESTED} ORDER BY seq"
        yield from ((task, executor, True) for task, executor, _ in self.db.execute(by_children, (now,)).fetchall())
        turns = (
            f"SELECT id FROM tasks WHERE {_RUNNABLE} AND kids = 0 AND {_RESTED} AND executor = ?2"
            " ORDER BY priority DESC, seq LIMIT ?3"
        )
        for (executor,) in self.db.execute(_EXECUTORS).fetchall():
            for (task,) in self.db.execute(turns, (now, executor, per_executor)).fetchall():
                yield task, executor, False

    def busy(self) -> dict[str, int]:
        """How many calls each agent has, ordered or running."""
        return dict(
            self.db.execute(
                "SELECT agent, count(*) FROM outbox WHERE state = 'pending' AND kind = 'run_turn' GROUP BY agent"
            )
        )

    def due(self, now: str) -> list[str]:
        return [row[0] for row in self.db.execute("SELECT id FROM tasks WHERE due <= ? ORDER BY due, seq", (now,))]

    def open_shown(self) -> list[tuple[str, str]]:
        """Id and local id of the open tasks that have a task.md of their own."""
        return self.db.execute(
            "SELECT id, local_id FROM tasks WHERE phase NOT IN ('completed', 'failed', 'cancelled')"
            " AND (parent IS NULL OR mode = 'coordinating')"
        ).fetchall()

    def last_event(self) -> int:
        return int(self.db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def has_pending(self) -> bool:
        return self.db.execute("SELECT 1 FROM outbox WHERE state = 'pending' LIMIT 1").fetchone() is not None

    def has_backoff(self) -> bool:
        """Whether a task waits for nothing but its backoff, or for a slot."""
        row = self.db.execute(f"SELECT 1 FROM tasks WHERE {_RUNNABLE} LIMIT 1").fetchone()
        return row is not None

    def next_due(self, now: str) -> str | None:
        """The next moment after `now` at which something happens by itself; None = nothing waits for the clock."""
        row = self.db.execute(
            "SELECT min(at) FROM (SELECT min(due) AS at FROM tasks WHERE due > ?1 UNION ALL"
            " SELECT min(not_before) FROM tasks WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
            " AND not_before > ?1"
            " UNION ALL SELECT min(not_before) FROM outbox WHERE state = 'pending' AND not_before > ?1)",
            (now,),
        ).fetchone()
        return None if row is None else row[0]
