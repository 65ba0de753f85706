"""The scheduler's questions: what may start, what is due, who is busy."""

from __future__ import annotations

from collections.abc import Iterator

from mailboxd.store.db import Connected


class ReadyQueries(Connected):
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
                "SELECT id, executor, kids > 0 FROM tasks"
                " WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1 AND executor = ? AND (not_before IS NULL OR not_before <= ?)"
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
