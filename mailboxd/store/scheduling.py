"""What the scheduler asks: what may start, what is due, which agents are busy, what is left of a budget."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from mailboxd.core.breaker import Breaker, State
from mailboxd.core.budget import over
from mailboxd.core.model import Policy, Spent, Task
from mailboxd.core.schedule import Ready
from mailboxd.store.row_mapping import OPEN, RUNNABLE, TASK, is_free, read_task
from mailboxd.store.tasks import TaskCache, Tasks

_FREE = is_free("id")
_PARKED = (
    "(SELECT substr(origin, 1, instr(origin, '.') - 1) FROM approvals"
    " WHERE status = 'pending' AND purpose = 'permission')"
)
_RESTED = "(not_before IS NULL OR not_before <= ?1)"
_NEXT = f"SELECT min(executor) FROM tasks WHERE {RUNNABLE} AND kids = 0"
# One step of the index for each executor, not for each task: SQLite does not skip through an index by itself.
_EXECUTORS = (
    f"WITH RECURSIVE some (executor) AS ({_NEXT} UNION ALL"
    f" SELECT ({_NEXT} AND executor > some.executor) FROM some WHERE some.executor IS NOT NULL)"
    " SELECT executor, (SELECT EXISTS (SELECT 1 FROM attempts a WHERE a.id = json_extract(o.data, '$.attempt_id')"
    " AND a.ordinal > 1) FROM outbox o WHERE o.kind = 'run_turn' AND o.agent = executor"
    " AND json_extract(o.data, '$.turn') IN ('work', 'dispatch') ORDER BY o.seq DESC LIMIT 1)"
    " FROM some WHERE executor IS NOT NULL"
    " ORDER BY (SELECT max(seq) FROM outbox WHERE kind = 'run_turn' AND agent = executor)"
)
"""Whose turn was longest ago comes first, so that one agent's backlog does not starve another. And whether the latest
attempt of each was not the first of its task."""
_SPENT = "spent_tokens, spent_usd, turns, tree_turns, tree_tasks"
_BREAKER = "agent, state, failures, times, until, reason"


class Schedule:
    """What may start now, and when the next deadline or timer is due."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def ready(self, now: str, per_executor: int) -> Iterator[Ready]:
        """Tasks that may start. Of those that need a turn at most `per_executor` of each executor that are new, and as
        many that had an attempt before; each by priority and then in order of creation.
        """
        by_children = (
            f"SELECT id, executor FROM tasks WHERE {RUNNABLE} AND kids > 0 AND {_RESTED} AND {_FREE} ORDER BY seq"
        )
        yield from (Ready(task, executor, True) for task, executor in self._db.execute(by_children, (now,)).fetchall())
        turns = (
            f"SELECT id, priority FROM tasks WHERE {RUNNABLE} AND kids = 0 AND {_RESTED} AND {_FREE} AND executor = ?2"
            " AND (attempt > 0) = ?3 ORDER BY priority DESC, seq LIMIT ?4"
        )
        for executor, after_again in self._db.execute(_EXECUTORS).fetchall():
            for again in (False, True):
                for task, priority in self._db.execute(turns, (now, executor, again, per_executor)).fetchall():
                    yield Ready(task, executor, False, priority, again, bool(after_again))

    def busy(self, now: str) -> dict[str, int]:
        """How many calls each agent has, ordered or running.

        Without those that pause until later, those that the operator has to let go on, and those that wait in the
        middle of their turn until a person has decided.
        """
        return dict(
            self._db.execute(  # left to itself, SQLite goes through all turns that there ever were, by their agents
                "SELECT agent, count(*) FROM outbox INDEXED BY outbox_open"
                " WHERE state = 'pending' AND kind = 'run_turn'"
                f" AND (not_before IS NULL OR not_before <= ?) AND {is_free('task')} AND id NOT IN {_PARKED}"
                " GROUP BY agent",
                (now,),
            )
        )

    def awaited_peers(self) -> list[str]:
        """The agents whose replies are waited for: they have been given work, by message."""
        rows = self._db.execute(
            "SELECT DISTINCT a.executor FROM tasks t JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
            f" WHERE {OPEN} AND t.phase = 'executing' AND a.status = 'running' AND a.waiting_for = 'reply'"
        )
        return [row[0] for row in rows]

    def due(self, now: str) -> list[str]:
        """Tasks for which a moment has come: a lease or a hold ends, a deadline passes, a heartbeat is due.

        Those above first: what a deadline ends takes what is below with it. No heartbeat is due while the one before
        waits to be handed over: else they would heap up where an agent takes none, and keep all slots from the work.
        """
        rows = self._db.execute(  # put in order here: mostly there is none, and SQLite would make two tables for that
            "SELECT depth, seq, id FROM tasks WHERE due <= ?1 UNION ALL"
            f" SELECT depth, seq, id FROM tasks WHERE deadline <= ?1 AND {OPEN} UNION ALL"
            f" SELECT depth, seq, id FROM tasks WHERE heartbeat <= ?1 AND {OPEN} AND NOT EXISTS"
            " (SELECT 1 FROM outbox o WHERE o.task = tasks.id AND o.kind = 'send' AND o.state = 'pending'"
            " AND json_extract(o.data, '$.type') = 'progress')",
            (now,),
        )
        return [row[2] for row in sorted({*rows})]

    def with_timers(self, now: str) -> list[Task]:
        """The tasks with a pause, a lease, a hold or a sign of life that is over, or due, after `now`."""
        rows = self._db.execute(
            f"SELECT {TASK} FROM tasks t WHERE {OPEN} AND (due > ?1 OR not_before > ?1 OR heartbeat > ?1) ORDER BY seq",
            (now,),
        )
        return [read_task(row) for row in rows]

    def has_pending(self) -> bool:
        """Whether something is ordered and does not wait for the operator."""
        sql = f"SELECT 1 FROM outbox WHERE state = 'pending' AND (kind <> 'run_turn' OR {is_free('task')}) LIMIT 1"
        return self._db.execute(sql).fetchone() is not None

    def has_backoff(self) -> bool:
        """Whether a task waits for nothing but its backoff, or for a slot."""
        some = " UNION ALL ".join(
            f"SELECT 1 FROM tasks WHERE {RUNNABLE} AND kids {how} 0 AND {_FREE}" for how in ("=", ">")
        )
        return self._db.execute(f"{some} LIMIT 1").fetchone() is not None

    def next_due(self, now: str) -> tuple[str | None, bool]:
        """The next moment after `now` at which something happens by itself, and whether a task.md is out of date.

        None = nothing waits for the clock. In one statement: outside of a transaction each has to take a lock.
        """
        at, stale = self._db.execute(
            "SELECT min(at), EXISTS (SELECT 1 FROM stale_files)"
            " FROM (SELECT min(due) AS at FROM tasks WHERE due > ?1 UNION ALL"
            f" SELECT min(deadline) FROM tasks WHERE deadline > ?1 AND {OPEN} UNION ALL"
            f" SELECT min(heartbeat) FROM tasks WHERE heartbeat > ?1 AND {OPEN} UNION ALL"
            " SELECT min(expires_at) FROM approvals WHERE status = 'pending' AND expires_at > ?1 UNION ALL"
            " SELECT min(until) FROM breakers WHERE state = 'open' AND until > ?1 UNION ALL"
            " SELECT min(j.value) FROM meta m, json_each(m.value) j WHERE m.name = 'paced' AND j.value > ?1 UNION ALL"
            " SELECT min(not_before) FROM tasks INDEXED BY tasks_pausing"
            f" WHERE {RUNNABLE} AND not_before > ?1"
            " UNION ALL SELECT min(not_before) FROM outbox WHERE state = 'pending' AND not_before > ?1)",
            (now,),
        ).fetchone()
        return at, bool(stale)

    def latest_turn(self, agent: str, number: int) -> str | None:
        """When the agent's latest turn but `number` - 1 was ordered; None if it never had so many."""
        row = self._db.execute(
            "SELECT at FROM outbox WHERE kind = 'run_turn' AND agent = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (agent, number - 1),
        ).fetchone()
        return None if row is None else row[0]


class Budgets:
    """What was spent, up the tree, and which tasks are held for it."""

    def __init__(self, db: sqlite3.Connection, tasks: Tasks) -> None:
        self._db = db
        self._tasks = tasks

    def spent(self, task_id: str) -> Spent:
        """What the task and all below it used, or its tree; `turns` are its own."""
        return Spent(*self._db.execute(f"SELECT {_SPENT} FROM tasks WHERE id = ?", (task_id,)).fetchone())

    def exhausted(self, task_id: str) -> list[str]:
        """Of the task and those above it, the nearest first, the ids of those whose budget is used up and that are not
        held for it yet.
        """
        bound = {
            task.id: task for task in self._tasks.with_ancestors(task_id) if not task.held and _is_bound(task, task_id)
        }
        if not bound:
            return []
        marks = ", ".join("?" * len(bound))
        rows = self._db.execute(f"SELECT id, {_SPENT} FROM tasks WHERE id IN ({marks})", tuple(bound))
        spent = {name: Spent(*row) for name, *row in rows}
        return [name for name, task in bound.items() if over(task.policy, spent[name])]

    def remaining(self, task_id: str) -> tuple[float | None, int | None]:
        """Dollars and tokens that are left of the tightest budget at or above the task; None = there is none."""
        usd: list[float] = []
        tokens_: list[int] = []
        for task in self._tasks.with_ancestors(task_id):
            if task.held or not _has_budget(task.policy):
                continue
            spent = self.spent(task.id)
            if task.policy.budget_usd is not None:
                usd.append(max(task.policy.budget_usd - spent.usd, 0.0))
            if task.policy.budget_tokens is not None:
                tokens_.append(max(task.policy.budget_tokens - spent.tokens, 0))
        return min(usd, default=None), min(tokens_, default=None)


def _has_budget(policy: Policy) -> bool:
    return policy.budget_usd is not None or policy.budget_tokens is not None


def _is_bound(task: Task, turn_of: str) -> bool:
    """Whether a turn of the task `turn_of`, or a plan of it, can use up what this one is bounded by."""
    own = task.policy.max_turns > 0 and task.id == turn_of
    tree = task.parent is None and (task.policy.max_tree_turns > 0 or task.policy.max_tree_tasks > 0)
    return own or tree or _has_budget(task.policy)


class Breakers:
    """The circuit breakers of agents."""

    def __init__(self, db: sqlite3.Connection, cache: TaskCache) -> None:
        self._db = db
        self._cache = cache

    def get(self, agent: str) -> Breaker:
        name = agent.lower()
        if (known := self._cache.breakers.get(name)) is not None and self._cache.holds():
            return known
        row = self._db.execute(f"SELECT {_BREAKER} FROM breakers WHERE agent = ?", (name,)).fetchone()
        found = Breaker(name) if row is None else _breaker(row)
        if self._db.in_transaction:
            self._cache.breakers[name] = found
        return found

    def not_closed(self) -> list[Breaker]:
        """The breakers that are not closed."""
        rows = self._db.execute(f"SELECT {_BREAKER} FROM breakers WHERE state <> 'closed' ORDER BY agent")
        return [_breaker(row) for row in rows]


def _breaker(row: Any) -> Breaker:
    agent, state, failures, times, until, reason = row
    return Breaker(agent, State(state), failures, times, until, reason)
