"""The scheduler's questions: what may start, what is due, who is busy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mailboxd.core.breaker import Breaker, State
from mailboxd.core.budget import over
from mailboxd.core.model import Policy, Spent, Task
from mailboxd.core.schedule import Ready, Room
from mailboxd.store.database import Connected
from mailboxd.store.row_mapping import OPEN, RUNNABLE, TASK, is_free, read_task
from mailboxd.store.tasks import RecentQueries

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


class ReadyQueries(Connected):
    _noted: dict[str, str]

    def ready(self, now: str, per_executor: int) -> Iterator[Ready]:
        """Tasks that may start. Of those that need a turn at most `per_executor` of each executor that are new, and as
        many that had an attempt before; each by priority and then in order of creation.
        """
        by_children = (
            f"SELECT id, executor FROM tasks WHERE {RUNNABLE} AND kids > 0 AND {_RESTED} AND {_FREE} ORDER BY seq"
        )
        yield from (Ready(task, executor, True) for task, executor in self.db.execute(by_children, (now,)).fetchall())
        turns = (
            f"SELECT id, priority FROM tasks WHERE {RUNNABLE} AND kids = 0 AND {_RESTED} AND {_FREE} AND executor = ?2"
            " AND (attempt > 0) = ?3 ORDER BY priority DESC, seq LIMIT ?4"
        )
        for executor, after_again in self.db.execute(_EXECUTORS).fetchall():
            for again in (False, True):
                for task, priority in self.db.execute(turns, (now, executor, again, per_executor)).fetchall():
                    yield Ready(task, executor, False, priority, again, bool(after_again))

    def busy(self, now: str) -> dict[str, int]:
        """How many calls each agent has, ordered or running.

        Without those that pause until later, those that the operator has to let go on, and those that wait in the
        middle of their turn until a person has decided.
        """
        return dict(
            self.db.execute(  # left to itself, SQLite goes through all turns that there ever were, by their agents
                "SELECT agent, count(*) FROM outbox INDEXED BY outbox_open"
                " WHERE state = 'pending' AND kind = 'run_turn'"
                f" AND (not_before IS NULL OR not_before <= ?) AND {is_free('task')} AND id NOT IN {_PARKED}"
                " GROUP BY agent",
                (now,),
            )
        )

    def note_room(self, room: Room) -> None:
        """Keep what calls there is room for, for whoever looks from another process. Written only when it changes."""
        free = (room.free_bytes or 0) >> 24 << 24  # in steps of 16 MiB: else every look would be a write
        memory = [free, room.call_bytes] if room.is_short else None
        self._note("room", json.dumps({"most": room.most, "running": room.running, "memory": memory}))

    def note_paced(self, paced: Mapping[str, str]) -> None:
        """Keep which agents have had all their turns of an hour, and until when. Written only when it changes."""
        self._note("paced", json.dumps(paced, sort_keys=True))

    def note_limits(self, bounds: Mapping[str, int]) -> None:
        """Keep the limits that the daemon works under, for `status`. Written only when they change."""
        self._note("limits", json.dumps(bounds))

    def note_gone(self, gone: Mapping[str, str]) -> bool:
        """Keep which agents work waits for although there is none of that name, and why; whether that is news."""
        return self._note("gone", json.dumps(gone, sort_keys=True))

    def awaited(self) -> list[str]:
        """The agents whose replies are waited for: they have been given work, by message."""
        rows = self.db.execute(
            "SELECT DISTINCT a.executor FROM tasks t JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
            f" WHERE {OPEN} AND t.phase = 'executing' AND a.status = 'running' AND a.waiting_for = 'reply'"
        )
        return [row[0] for row in rows]

    def note_away(self, away: Mapping[str, str]) -> None:
        """Keep which agents that are waited for have no daemon beside them, and why that is known."""
        self._note("away", json.dumps(away, sort_keys=True))

    def note_gateway(self, why: str) -> None:
        """Keep why the gateway takes no turns; empty: nothing is known against it."""
        self._note("gateway", why)

    def _note(self, name: str, text: str) -> bool:
        if self._noted.get(name) == text:
            return False
        self._noted[name] = text
        noted = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2 WHERE value <> ?2"
        return self.db.execute(noted, (name, text)).rowcount > 0

    def forget_notes(self) -> None:
        """What was noted last may not have been kept."""
        self._noted.clear()

    def due(self, now: str) -> list[str]:
        """Tasks for which a moment has come: a lease or a hold ends, a deadline passes, a heartbeat is due.

        Those above first: what a deadline ends takes what is below with it. No heartbeat is due while the one before
        waits to be handed over: else they would heap up where an agent takes none, and keep all slots from the work.
        """
        rows = self.db.execute(  # put in order here: mostly there is none, and SQLite would make two tables for that
            "SELECT depth, seq, id FROM tasks WHERE due <= ?1 UNION ALL"
            f" SELECT depth, seq, id FROM tasks WHERE deadline <= ?1 AND {OPEN} UNION ALL"
            f" SELECT depth, seq, id FROM tasks WHERE heartbeat <= ?1 AND {OPEN} AND NOT EXISTS"
            " (SELECT 1 FROM outbox o WHERE o.task = tasks.id AND o.kind = 'send' AND o.state = 'pending'"
            " AND json_extract(o.data, '$.type') = 'progress')",
            (now,),
        )
        return [row[2] for row in sorted({*rows})]

    def waiting_for_the_clock(self, now: str) -> list[Task]:
        """The tasks with a pause, a lease, a hold or a sign of life that is over, or due, after `now`."""
        rows = self.db.execute(
            f"SELECT {TASK} FROM tasks t WHERE {OPEN} AND (due > ?1 OR not_before > ?1 OR heartbeat > ?1) ORDER BY seq",
            (now,),
        )
        return [read_task(row) for row in rows]

    def count_tasks(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM tasks").fetchone()[0])

    def open_tasks(self) -> list[str]:
        """Ids of the tasks that have not ended, in the order they came."""
        rows = self.db.execute(f"SELECT id FROM tasks WHERE {OPEN} ORDER BY seq")
        return [row[0] for row in rows]

    def waiting_for_a_person(self) -> list[str]:
        """Local ids of the tasks that are held or whose circuit is open, in the order they came."""
        rows = self.db.execute(
            f"SELECT local_id FROM tasks WHERE {OPEN} AND (held <> '' OR phase = 'circuit_open') ORDER BY seq"
        )
        return [row[0] for row in rows]

    def open_shown(self) -> list[tuple[str, str]]:
        """Id and local id of the open tasks that have a task.md of their own."""
        return self.db.execute(
            f"SELECT id, local_id FROM tasks WHERE {OPEN} AND (parent IS NULL OR mode = 'coordinating')"
        ).fetchall()

    def ended_at(self, local_id: str) -> str | None:
        """When the whole tree of a task ended; None while it is open, or its file does not show the end yet."""
        row = self.db.execute(
            "SELECT r.completed_at FROM tasks t JOIN tasks r ON r.id = t.root WHERE t.local_id = ?"
            " AND r.phase IN ('completed', 'failed', 'cancelled')"
            " AND NOT EXISTS (SELECT 1 FROM stale_files s WHERE s.task = t.id)",
            (local_id,),
        ).fetchone()
        return None if row is None else row[0]

    def drafts(self) -> list[str]:
        """Tasks whose spec is not complete."""
        rows = self.db.execute(f"SELECT id FROM tasks WHERE phase = 'spec_draft' AND {OPEN} ORDER BY seq")
        return [row[0] for row in rows]

    def held(self) -> list[str]:
        """Tasks that get no turn until the operator says so."""
        rows = self.db.execute(f"SELECT id FROM tasks WHERE held <> '' AND {OPEN} ORDER BY seq")
        return [row[0] for row in rows]

    def last_event(self) -> int:
        return int(self.db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def has_pending(self) -> bool:
        """Whether something is ordered and does not wait for the operator."""
        sql = f"SELECT 1 FROM outbox WHERE state = 'pending' AND (kind <> 'run_turn' OR {is_free('task')}) LIMIT 1"
        return self.db.execute(sql).fetchone() is not None

    def has_backoff(self) -> bool:
        """Whether a task waits for nothing but its backoff, or for a slot."""
        some = " UNION ALL ".join(
            f"SELECT 1 FROM tasks WHERE {RUNNABLE} AND kids {how} 0 AND {_FREE}" for how in ("=", ">")
        )
        return self.db.execute(f"{some} LIMIT 1").fetchone() is not None

    def next_due(self, now: str) -> tuple[str | None, bool]:
        """The next moment after `now` at which something happens by itself, and whether a task.md is out of date.

        None = nothing waits for the clock. In one statement: outside of a transaction each has to take a lock.
        """
        at, stale = self.db.execute(
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


# ---------------------------------------------------------------------------------------------------------------------
# What was spent, up the tree, what is held for it, and the breakers of agents.

_SPENT = "spent_tokens, spent_usd, turns, tree_turns, tree_tasks"
_BREAKER = "agent, state, failures, times, until, reason"


class AccountQueries(RecentQueries):
    def spent(self, task_id: str) -> Spent:
        """What the task and all below it used, or its tree; `turns` are its own."""
        return Spent(*self.db.execute(f"SELECT {_SPENT} FROM tasks WHERE id = ?", (task_id,)).fetchone())

    def used_up(self, task_id: str) -> list[str]:
        """Of the task and those above it, the nearest first, the ids of those whose budget is used up and that are not
        held for it yet.
        """
        bound = {task.id: task for task in self.above(task_id) if not task.held and _is_bound(task, task_id)}
        if not bound:
            return []
        marks = ", ".join("?" * len(bound))
        rows = self.db.execute(f"SELECT id, {_SPENT} FROM tasks WHERE id IN ({marks})", tuple(bound))
        spent = {name: Spent(*row) for name, *row in rows}
        return [name for name, task in bound.items() if over(task.policy, spent[name])]

    def left(self, task_id: str) -> tuple[float | None, int | None]:
        """Dollars and tokens that are left of the tightest budget at or above the task; None = there is none."""
        usd: list[float] = []
        tokens_: list[int] = []
        for task in self.above(task_id):
            if task.held or not _has_budget(task.policy):
                continue
            spent = self.spent(task.id)
            if task.policy.budget_usd is not None:
                usd.append(max(task.policy.budget_usd - spent.usd, 0.0))
            if task.policy.budget_tokens is not None:
                tokens_.append(max(task.policy.budget_tokens - spent.tokens, 0))
        return min(usd, default=None), min(tokens_, default=None)

    def is_held(self, task_id: str) -> bool:
        """Whether the task, or one above it, waits for the operator to let it go on."""
        return any(task.held for task in self.above(task_id))

    def latest_turn(self, agent: str, number: int) -> str | None:
        """When the agent's latest turn but `number` - 1 was ordered; None if it never had so many."""
        row = self.db.execute(
            "SELECT at FROM outbox WHERE kind = 'run_turn' AND agent = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (agent, number - 1),
        ).fetchone()
        return None if row is None else row[0]

    # -------------------------------------------------------------- breakers

    def breaker(self, agent: str) -> Breaker:
        name = agent.lower()
        if (known := self._recent.breakers.get(name)) is not None and self._holds():
            return known
        row = self.db.execute(f"SELECT {_BREAKER} FROM breakers WHERE agent = ?", (name,)).fetchone()
        found = Breaker(name) if row is None else _breaker(row)
        if self.db.in_transaction:
            self._recent.breakers[name] = found
        return found

    def broken(self) -> list[Breaker]:
        """The breakers that are not closed."""
        rows = self.db.execute(f"SELECT {_BREAKER} FROM breakers WHERE state <> 'closed' ORDER BY agent")
        return [_breaker(row) for row in rows]


def _has_budget(policy: Policy) -> bool:
    return policy.budget_usd is not None or policy.budget_tokens is not None


def _is_bound(task: Task, turn_of: str) -> bool:
    """Whether a turn of the task `turn_of`, or a plan of it, can use up what this one is bounded by."""
    own = task.policy.max_turns > 0 and task.id == turn_of
    tree = task.parent is None and (task.policy.max_tree_turns > 0 or task.policy.max_tree_tasks > 0)
    return own or tree or _has_budget(task.policy)


def _breaker(row: Any) -> Breaker:
    agent, state, failures, times, until, reason = row
    return Breaker(agent, State(state), failures, times, until, reason)
