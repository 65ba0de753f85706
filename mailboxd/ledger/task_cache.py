"""What decisions read of tasks again and again, kept in memory from one transaction to the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mailboxd.core.breaker import Breaker
from mailboxd.core.events import Event, Kind, evolve, evolve_attempt
from mailboxd.core.json_codec import from_json
from mailboxd.core.model import Attempt, Spent, Task
from mailboxd.core.task_view import TaskView
from mailboxd.ledger.ready_queue import ReadyQueue

PENDING = {"run_turn": "calls", "look_up": "calls", "run_check": "calls", "create_children": "children_due"}
"""The count for each kind of effect that has one."""
HELD, STEERED, ASKED_IN_TURN = "held", "steered", "asked in a turn"
"""Tasks that are held; running attempts with instructions that their agents have not read; turns that wait for a person
to approve something."""
AWAITED, REPEATED, REJECTED = "awaited", "repeated", "rejected"
"""Names of tasks that have not arrived and that others follow; work that repeats; rejected files that a person has not
seen."""
FOREVER = "9999-12-31T23:59:59.999Z"
"""The latest time."""
_MOST = 1024
"""Tasks in the cache; it is cleared when more are added. Far fewer are active at a time."""


@dataclass(slots=True)
class Counts:
    """What only the rows have of a task: its place, and counts of its neighbours, its pending calls and its costs."""

    seq: int
    """The number of the event that created it: the oldest come first."""
    by_person: bool
    """Whether it is work of a person."""
    unmet: int
    kids: int = 0
    kids_completed: int = 0
    kids_failed: int = 0
    kids_cancelled: int = 0
    calls: frozenset[str] = frozenset()
    """The ids of its turns, look-ups and checks that are ordered or running."""
    children_due: frozenset[str] = frozenset()
    """The ids of the orders to create children of its plan."""
    asked: bool = False
    """Whether it has ever asked for an approval."""
    spent_tokens: int = 0
    spent_usd: float = 0.0
    turns: int = 0
    tree_turns: int = 0
    tree_tasks: int = 0

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Self:
        """The counts in the columns of `row_mapping.COUNTS`."""
        seq, by_person, unmet, kids, completed, failed, cancelled, calls, children_due, asked, *spent = row
        pending, due = frozenset((calls or "").split()), frozenset((children_due or "").split())
        return cls(seq, bool(by_person), unmet, kids, completed, failed, cancelled, pending, due, bool(asked), *spent)

    @property
    def spent(self) -> Spent:
        return Spent(self.spent_tokens, self.spent_usd, self.turns, self.tree_turns, self.tree_tasks)


@dataclass(slots=True)
class HandedOver:
    """The tasks that a source has handed over, as far as it matters whether a limit is reached."""

    limit: int
    since: str
    """After which they were counted."""
    most: int
    """No fewer than have come since then; counted no further than the limit."""
    reached_until: str
    """If it is reached: for how late a `since` it still is. Else empty."""

    def tells(self, limit: int, since: str) -> bool:
        """Whether this says if at least `limit` have come after `since`."""
        if limit != self.limit or since < self.since:
            return False
        return self.most < limit or since < self.reached_until


class TaskCache:
    """Tasks, their latest attempts and their counts as of the end of the log.

    One decision reads a task, its parent and its attempt five times or more, and a query for one row costs mostly
    overhead. Only events change tasks and attempts, so entries are valid while the log ends where this process left it:
    each transaction begins by comparing `PRAGMA data_version`. Outside of a transaction the tables are read, but for
    what would read many rows: that compares as well (`is_current`). What writes a count to a row writes it here as
    well, or drops the counts that it may have changed: those are then read from their rows again.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.tasks: dict[str, Task] = {}
        self.attempts: dict[str, Attempt] = {}
        """By task: the latest."""
        self.counts: dict[str, Counts] = {}
        self._ordered_by: dict[str, str] = {}
        """By the id of a pending order that is counted here: its task."""
        self.breakers: dict[str, Breaker] | None = None
        """By agent; None = not known."""
        self.some_choose: bool | None = None
        """Whether any open task has a flow; None = not known."""
        self.some_claim: bool | None = None
        """Whether any open task claims paths; None = not known."""
        self.absent: set[str] = set()
        """What is known not to exist: of `HELD`, `STEERED`, `ASKED_IN_TURN`, `AWAITED`, `REPEATED`, `REJECTED`."""
        self.handed_over: dict[str, HandedOver] = {}
        """By source."""
        self.needs: dict[str, tuple[str, ...]] = {}
        """The dependencies of tasks that this process created."""
        self.all_children_exist = False
        """Whether it is known that no plan waits for its children to be created."""
        self.quiet_until: str | None = None
        """When the next timer of the tables is due: nothing is before; None = not known, `FOREVER` = there is none."""
        self.queue: ReadyQueue | None = None
        """The tasks that may start; None = not known."""
        self.is_queue_long = False
        """Whether they are too many for a queue."""
        self.version = -1
        """`PRAGMA data_version` at the last transaction: it changes when another connection commits."""

    def forget(self) -> None:
        self.tasks.clear()
        self.attempts.clear()
        self.forget_orders()
        self.breakers = None
        self.some_choose = self.some_claim = None
        self.absent.clear()
        self.handed_over.clear()
        self.needs.clear()

    def keep(self, task: Task) -> None:
        if len(self.tasks) >= _MOST:
            self.forget()
        self.tasks[task.id] = task

    def follow(
        self, events: Iterable[Event], left: TaskView | None = None, born: Collection[str] = frozenset()
    ) -> None:
        """Apply recorded events. `left` is the state in which they leave their task, if known; the tasks `born` are
        here as they leave them.
        """
        done = None if left is None else left.task.id
        for event in events:
            if event.task is None or event.task == done or event.task in born:
                continue
            if (task := self.tasks.get(event.task)) is not None:
                self.tasks[event.task] = evolve(task, event)
            if event.kind is Kind.ATTEMPT_STARTED:
                self.attempts[event.task] = evolve_attempt(from_json(Attempt, event.data["attempt"]), event)
            elif (attempt := self.attempts.get(event.task)) is not None and event.data.get("attempt") == attempt.id:
                self.attempts[event.task] = evolve_attempt(attempt, event)
        if left is not None:
            self.keep(left.task)
            if left.attempt is not None:
                self.attempts[left.task.id] = left.attempt

    def born(self, task_id: str, needs: Iterable[str]) -> None:
        """A task was created."""
        if len(self.needs) >= _MOST:
            self.needs.clear()
        self.needs[task_id] = tuple(dict.fromkeys(needs))

    def is_absent(self, what: str, sql: str) -> bool:
        """Whether it is known, or `sql` says, that there is none; inside a transaction."""
        if what not in self.absent:
            if self._db.execute(sql).fetchone() is not None:
                return False
            self.absent.add(what)
        return True

    def nothing_repeats(self) -> bool:
        """Whether no work has ever repeated; inside a transaction."""
        return self.is_absent(REPEATED, "SELECT 1 FROM repetitions LIMIT 1")

    # counts

    def keep_counts(self, task_id: str, counts: Counts) -> None:
        self.counts[task_id] = counts
        for order in counts.calls | counts.children_due:
            self._ordered_by[order] = task_id

    def forget_counts(self) -> None:
        self.counts.clear()
        self._ordered_by.clear()

    def forget_orders(self) -> None:
        """Drop what orders have a part in: they may change without an event."""
        self.forget_counts()
        self.forget_queue()
        self.all_children_exist = False
        self.quiet_until = None

    def forget_queue(self) -> None:
        self.queue, self.is_queue_long = None, False

    def moved(self, task_id: str) -> None:
        """A task may have come into the queue of those that may start, have left it, or have another place there."""
        if self.queue is not None:
            self.queue.changed.add(task_id)
            if len(self.queue.changed) > _MOST:
                self.forget_queue()

    def is_quiet(self, now: str) -> bool:
        """Whether it is known that no timer is due at `now`."""
        return self.quiet_until is not None and now < self.quiet_until and self._db.in_transaction

    def starts_timer(self, at: str) -> None:
        """A timer was set."""
        if self.quiet_until is not None:
            self.quiet_until = min(self.quiet_until, at)

    def count(self, task_id: str | None, name: str, by: float) -> None:
        """Add `by` to a count, as was done in the row of the task."""
        if task_id is not None and (counts := self.counts.get(task_id)) is not None:
            setattr(counts, name, getattr(counts, name) + by)

    def ordered(self, task_id: str, kind: str, order: str) -> None:
        """An effect of this kind is pending."""
        name = PENDING.get(kind)
        if name == "children_due":
            self.all_children_exist = False
        if name is not None and (counts := self.counts.get(task_id)) is not None:
            setattr(counts, name, getattr(counts, name) | {order})
            self._ordered_by[order] = task_id

    def settled(self, order: str) -> None:
        """An effect is no longer pending."""
        task_id = self._ordered_by.pop(order, None)
        if task_id is None:
            self.quiet_until = None  # a heartbeat waits until the one before is delivered
        else:
            counts = self.counts[task_id]
            counts.calls -= {order}
            counts.children_due -= {order}

    def known(self, task_id: str | None) -> Task | None:
        """The task, if it is here. If it is not, nobody knows whose counts its change concerns: all are dropped."""
        task = None if task_id is None else self.tasks.get(task_id)
        if task is None:
            self.forget_counts()
        return task

    def lineage(self, task_id: str) -> Iterator[Task]:
        """The task and its ancestors, nearest first, as far as they are here (see `known`)."""
        above: str | None = task_id
        while above is not None and (task := self.known(above)) is not None:
            yield task
            above = task.parent

    def has_no_children(self, task_id: str | None) -> bool:
        """Whether it is known that the task never had children."""
        counts = None if task_id is None else self.counts.get(task_id)
        return counts is not None and counts.kids == 0

    def has_no_faults(self, agent: str) -> bool:
        """Whether it is known that the agent's breaker counts no faults."""
        return self.breakers is not None and (agent not in self.breakers or not self.breakers[agent].failures)

    # whether it is current

    def data_version(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def is_current(self) -> bool:
        """Whether the entries match the database; inside a transaction they always do."""
        return self._db.in_transaction or self.data_version() == self.version
