"""Queries of the scheduler: ready and due work, busy agents, and remaining budgets."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from mailboxd.core.breaker import Breaker, BreakerState
from mailboxd.core.budget import over
from mailboxd.core.followed import TOGETHER, unknown
from mailboxd.core.model import Policy, Spent, Task
from mailboxd.core.notices import APART
from mailboxd.core.schedule import Ready
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import Phase
from mailboxd.ledger.claims import conflicts
from mailboxd.ledger.conditions import LIVE, OPEN, RUNNABLE, is_not_held, may_act
from mailboxd.ledger.outbox import Outbox, latest_turn_of
from mailboxd.ledger.precedence import RESTED, UNCLAIMED, first_of_each
from mailboxd.ledger.ready_queue import MOST, ReadyQueue, ReadyTask
from mailboxd.ledger.row_mapping import TASK, read_task
from mailboxd.ledger.task_cache import ASKED_IN_TURN, FOREVER, TaskCache
from mailboxd.ledger.tasks import Tasks

_NOT_HELD = is_not_held("id")
_PARKED = (
    "SELECT substr(origin, 1, instr(origin, '.') - 1) FROM approvals"
    " WHERE status = 'pending' AND purpose = 'permission'"
)
_PAUSES = "coalesce(json_extract(policy, '$.not_before'), '') <> not_before"
"""Its `not_before` is a pause after a failure."""
_NEXT = f"SELECT min(executor) FROM tasks WHERE {RUNNABLE} AND kids = 0"
# One index seek per executor instead of per task: SQLite has no skip scan for this.
_EXECUTORS = (
    f"WITH RECURSIVE some (executor) AS ({_NEXT} UNION ALL"
    f" SELECT ({_NEXT} AND executor > some.executor) FROM some WHERE some.executor IS NOT NULL)"
    f" SELECT executor, {latest_turn_of('executor')} FROM some WHERE executor IS NOT NULL"
)
"""Executors, each with whether its latest attempt was a repeated one, and with its latest turn."""
_READY = (
    f"SELECT id, executor, 0, seq FROM tasks WHERE {RUNNABLE} AND kids > 0 AND {RESTED} AND {_NOT_HELD}"
    f" UNION ALL SELECT NULL, * FROM ({_EXECUTORS})"
)
"""Tasks with children that may start; and, without a task, executors as above of others that may."""
_WAITING = " UNION ALL ".join(  # apart, since each has an index of its own
    "SELECT kids > 0, executor, attempt > 0, -priority, NOT by_person, seq, id, not_before FROM tasks"
    f" WHERE {RUNNABLE} AND kids {how} 0"
    for how in ("=", ">")
)
"""What a queue of the tasks that may start has: `ReadyTask`."""
_AWAIT_UNKNOWN = (
    "SELECT t.depth, t.seq, t.id, t.updated_at FROM dependencies d JOIN tasks t ON t.id = d.task"
    f" WHERE d.needs >= '{unknown('')}' AND d.needs < '{chr(ord(unknown('')) + 1)}' AND t.held = ''"
    " AND t.phase IN ('spec_draft', 'spec_review', 'execution_ready')"
)
"""Root tasks that have not begun and follow one that has not arrived: a person is asked about it in time."""


class Schedule:
    """The work that may start now, and the time of the next timer."""

    def __init__(self, db: sqlite3.Connection, cache: TaskCache, outbox: Outbox, tasks: Tasks) -> None:
        self._db = db
        self._cache = cache
        self._outbox = outbox
        self._tasks = tasks
        self._looked = ""
        """The time for which `due` was last answered from the tables."""
        self._some_were_due = False
        """Whether it found any then: they may still be due, if the time had not come to decide about them."""

    def ready(self, now: str, per_executor: int, ageing: float = 0.0) -> list[Ready]:
        """Tasks that may start, in the order of `precedence`. Of those that need a turn at most `per_executor` new ones
        and as many repeated ones per executor. `ageing`: seconds after which one that waits rises; 0 = never.
        """
        if not ageing and self._db.in_transaction and (queue := self._queue()) is not None:
            return self._of_queue(queue, now, per_executor)
        # the oldest first, and the least recently used executor, so that a backlog does not starve others
        rows = sorted(self._db.execute(_READY, {"now": now}), key=lambda row: row[3] or 0)
        ready = [Ready(task, executor, True) for task, executor, *_ in rows if task is not None]
        claims = self._waiting_for_claims()
        for _, executor, after_again, _ in (row for row in rows if row[0] is None):
            new, repeated = first_of_each(self._db, executor, now, ageing, most=per_executor, claims=claims)
            ready += [
                Ready(one.id, executor, False, one.priority, again, bool(after_again), one.by_person)
                for again, found in ((False, new), (True, repeated))
                for one in found
            ]
        return ready

    def _of_queue(self, queue: ReadyQueue, now: str, per_executor: int) -> list[Ready]:
        """The same from memory."""
        ready = [Ready(one.id, one.executor, True) for one in queue.by_children(now)]
        latest = [(self._outbox.latest_turn(executor), executor) for executor in queue.executors()]
        for turn, executor in sorted(latest, key=itemgetter(0)):
            ready += [
                Ready(one.id, executor, False, -one.behind, again, turn.after_again, not one.of_agent)
                for again in (False, True)
                for one in queue.first(executor, now, per_executor, again=again)
            ]
        return ready

    def _queue(self) -> ReadyQueue | None:
        """The tasks that may start; None if they are many, some are held or wait for claims. Inside a transaction."""
        cache = self._cache
        if cache.is_queue_long or self._some_claim() or not self._tasks.none_held():
            return None
        if cache.queue is None:
            cache.queue = self.read_queue()
        queue = self.known_queue()
        if queue is not None and len(queue) > MOST:
            cache.queue, cache.is_queue_long = None, True
            return None
        return queue

    def read_queue(self) -> ReadyQueue:
        """All tasks that may start, as the tables say, but not many more than a queue has."""
        return ReadyQueue(ReadyTask(*row) for row in self._db.execute(f"{_WAITING} LIMIT {MOST + 1}"))

    def known_queue(self) -> ReadyQueue | None:
        """What is in memory, brought up to date; None if nothing is."""
        queue = self._cache.queue
        if queue is None or not self._db.in_transaction:
            return None
        for task_id in queue.changed:
            queue.place(task_id, self._waiting(task_id))
        queue.changed.clear()
        return queue

    def _waiting(self, task_id: str) -> ReadyTask | None:
        """The place of a task in the queue, if it has one."""
        task = self._tasks.get(task_id)
        if task is None or task.phase is not Phase.EXECUTION_READY:
            return None
        counts = self._tasks.counts(task_id)
        parent = None if task.parent is None else self._tasks.get(task.parent)
        if counts.unmet or (parent is not None and parent.phase is not Phase.EXECUTING):
            return None
        return ReadyTask(
            counts.kids > 0,
            task.executor,
            task.attempt > 0,
            -task.policy.priority,
            not counts.by_person,
            counts.seq,
            task.id,
            task.not_before,
        )

    def busy(self, now: str) -> dict[str, int]:
        """The number of calls per agent, pending or running.

        Delayed calls, held ones and those that wait for an approval in mid-turn are not counted.
        """
        if (
            self._tasks.none_held()
            and self._cache.is_absent(ASKED_IN_TURN, f"{_PARKED} LIMIT 1")
            and (calls := self._outbox.calls(now)) is not None
        ):
            return calls
        return dict(
            self._db.execute(  # without the hint, SQLite reads all turns ever ordered
                "SELECT agent, count(*) FROM outbox INDEXED BY outbox_open"
                " WHERE state = 'pending' AND kind = 'run_turn'"
                f" AND (not_before IS NULL OR not_before <= ?) AND {is_not_held('task')} AND id NOT IN ({_PARKED})"
                " GROUP BY agent",
                (now,),
            )
        )

    def awaited_peers(self) -> list[str]:
        """Agents whose reply is awaited."""
        rows = self._db.execute(
            "SELECT DISTINCT a.executor FROM tasks t JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
            f" WHERE {OPEN} AND t.phase = 'executing' AND a.status = 'running' AND a.waiting_for = 'reply'"
        )
        return [row[0] for row in rows]

    def is_quiet(self, now: str) -> bool:
        """Whether it is known that no timer of a task, an approval or an order is due; inside a transaction."""
        return self._cache.is_quiet(now)

    def due(self, now: str) -> list[str]:
        """Ids of tasks whose lease, hold, deadline or heartbeat is due, or the question about what they follow;
        ancestors first, for a deadline also ends subtasks.

        No heartbeat is due while the previous one is undelivered: heartbeats would pile up and take all slots.
        """
        rows = (
            self._db.execute(  # sorted here because it is usually empty, and SQLite would create two temporary tables
                "SELECT depth, seq, id FROM tasks WHERE due <= ?1 UNION ALL"
                f" SELECT depth, seq, id FROM tasks WHERE deadline <= ?1 AND {OPEN} UNION ALL"
                f" SELECT depth, seq, id FROM tasks WHERE heartbeat <= ?1 AND {OPEN} AND NOT EXISTS"
                " (SELECT 1 FROM outbox o WHERE o.task = tasks.id AND o.kind = 'send' AND o.state = 'pending'"
                " AND json_extract(o.data, '$.type') = 'progress')"
                f" UNION ALL SELECT depth, seq, id FROM ({_AWAIT_UNKNOWN}) WHERE updated_at <= ?2",
                (now, plus(now, -TOGETHER)),
            )
        )
        found = [row[2] for row in sorted({*rows})]
        self._looked, self._some_were_due = now, bool(found)
        return found

    def with_timers(self, now: str) -> list[Task]:
        """Tasks with a backoff, lease, hold or heartbeat that ends after `now`."""
        rows = self._db.execute(
            f"SELECT {TASK} FROM tasks t WHERE {OPEN} AND (due > ?1 OR not_before > ?1 OR heartbeat > ?1) ORDER BY seq",
            (now,),
        )
        return [read_task(row) for row in rows]

    def has_pending(self, now: str, *, turns: bool = True) -> bool:
        """Whether an effect is pending and not held, or an order is held for some seconds; without `turns`, no turns.

        A notice that failed, or waits for the end of quiet hours, counts no more: nothing waits for it.
        """
        may_begin, soon = is_not_held("task") if turns else "0", "(not_before IS NULL OR not_before <= ?)"
        counts = f"(kind <> 'run_turn' OR {may_begin}) AND (kind <> 'perform' OR {may_act('task')})"
        counts += f" AND (kind <> 'notify' OR tries = 0 AND {soon})"
        sql = f"SELECT 1 FROM outbox WHERE state = 'pending' AND {counts} UNION ALL SELECT 1 FROM held_orders LIMIT 1"
        return self._db.execute(sql, (plus(now, APART),)).fetchone() is not None

    def _waiting_for_claims(self) -> str:
        """The ids of runnable tasks that would write what live work writes, as JSON."""
        if not self._some_claim():
            return "[]"
        return json.dumps([conflict.task for conflict in conflicts(self._db)])

    def _some_claim(self) -> bool:
        """Whether any open task claims paths; in doubt, outside of a transaction, one does."""
        if not self._db.in_transaction:
            return True
        if self._cache.some_claim is None:
            sql = f"SELECT 1 FROM tasks INDEXED BY tasks_open WHERE claims <> '[]' AND {OPEN} LIMIT 1"
            self._cache.some_claim = self._db.execute(sql).fetchone() is not None
        return self._cache.some_claim

    def has_backoff(self, now: str) -> bool:
        """Whether a runnable task waits only for its backoff or a slot, and not for a beginning that was ordered."""
        some = " UNION ALL ".join(
            f"SELECT 1 FROM tasks WHERE {RUNNABLE} AND kids {how} 0 AND {_NOT_HELD} AND {UNCLAIMED}"
            f" AND ({RESTED} OR {_PAUSES})"
            for how in ("=", ">")
        )
        given = {"claims": self._waiting_for_claims(), "now": now}
        return self._db.execute(f"{some} LIMIT 1", given).fetchone() is not None

    def next_due(self, now: str) -> str | None:
        """The time of the next timer after `now`, or since `due` was asked; None if there is none."""
        if self._cache.is_quiet(now):
            return None if self._cache.quiet_until == FOREVER else self._cache.quiet_until
        since = min(now, self._looked or now)
        at = self._db.execute(
            "SELECT min(at)"
            " FROM (SELECT min(due) AS at FROM tasks WHERE due > ?1 UNION ALL"
            f" SELECT min(deadline) FROM tasks WHERE deadline > ?1 AND {OPEN} UNION ALL"
            f" SELECT min(heartbeat) FROM tasks WHERE heartbeat > ?1 AND {OPEN} UNION ALL"
            " SELECT min(expires_at) FROM approvals WHERE status = 'pending' AND expires_at > ?1 UNION ALL"
            " SELECT min(due) FROM held_orders WHERE due > ?1 UNION ALL"
            f" SELECT min(next_at) FROM repetitions WHERE {LIVE} AND next_at > ?1 UNION ALL"
            " SELECT min(until) FROM breakers WHERE state = 'open' AND until > ?1 UNION ALL"
            " SELECT min(j.value) FROM meta m, json_each(m.value) j WHERE m.name = 'paced' AND j.value > ?1 UNION ALL"
            " SELECT min(not_before) FROM tasks INDEXED BY tasks_pausing"
            "  WHERE phase = 'execution_ready' AND not_before > ?1"  # also where it waits for more than that
            " UNION ALL SELECT min(not_before) FROM outbox WHERE state = 'pending' AND not_before > ?1)",
            (since,),
        ).fetchone()[0]
        asked = self.next_asked(since)
        found: str | None = min((time for time in (at, asked) if time is not None), default=None)
        waits = self._db.execute(f"SELECT 1 FROM repetitions WHERE {LIVE} AND next_at <= ? LIMIT 1", (now,)).fetchone()
        if self._looked and not self._some_were_due and not waits and self._db.in_transaction:
            self._cache.quiet_until = found or FOREVER
        return found

    def starts_timer(self, at: str) -> None:
        """A timer was set that is in none of the tables of tasks and orders."""
        self._cache.starts_timer(at)

    def next_asked(self, now: str) -> str | None:
        """When the next task that follows one that has not arrived becomes a question; None if none will."""
        asked = (plus(since, TOGETHER) for _, _, _, since in self._db.execute(_AWAIT_UNKNOWN))
        return min((time for time in asked if time > now), default=None)

    def latest_turn(self, agent: str, number: int) -> str | None:
        """When the agent's `number`-th latest turn was ordered; None if there were fewer."""
        row = self._db.execute(
            "SELECT at FROM outbox WHERE kind = 'run_turn' AND agent = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (agent, number - 1),
        ).fetchone()
        return None if row is None else row[0]


class Budgets:
    """The costs up the tree, and the exhausted budgets."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def spent(self, task_id: str) -> Spent:
        """Usage of the task and its subtasks; `turns` are its own, `tree_*` those of its tree."""
        return self._tasks.counts(task_id).spent

    def exhausted(self, task_id: str) -> list[str]:
        """Ids of the task and its ancestors, nearest first, whose budget is used up but that are not held yet."""
        return [
            task.id
            for task in self._tasks.with_ancestors(task_id)
            if not task.held and _is_bound(task, task_id) and over(task.policy, self.spent(task.id))
        ]

    def remaining(self, line: Iterable[Task]) -> tuple[float | None, int | None]:
        """Dollars and tokens left of the tightest budget of these tasks, one and its ancestors; None without one."""
        usd: list[float] = []
        tokens_: list[int] = []
        for task in line:
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
    """Whether a turn or plan of the task `turn_of` counts towards a limit of `task`."""
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
        return self._all().get(name) or Breaker(name)

    def not_closed(self) -> list[Breaker]:
        """The breakers that are open or half-open, by agent."""
        return [breaker for breaker in self._all().values() if breaker.state is not BreakerState.CLOSED]

    def _all(self) -> dict[str, Breaker]:
        if self._cache.breakers is not None and self._db.in_transaction:
            return self._cache.breakers
        rows = self._db.execute("SELECT agent, state, failures, times, until, reason FROM breakers ORDER BY agent")
        found = {row[0]: _breaker(row) for row in rows}
        if self._db.in_transaction:
            self._cache.breakers = found
        return found


def _breaker(row: Any) -> Breaker:
    agent, state, failures, times, until, reason = row
    return Breaker(agent, BreakerState(state), failures, times, until, reason)
