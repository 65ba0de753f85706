"""Tasks with their latest attempts as the end of the log leaves them: read once, then carried on by each event. And
breakers, until an event concerns one.

One decision reads a task, its parent and its attempt five times and more; of a statement that finds one row by its key,
most of the time goes into asking. What is kept is true for as long as the log ends where we left it: only events change
these rows, and SQLite says whether another process has written since: a transaction of ours begins by asking that, and
looks where the log ends if one has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mailboxd.core.breaker import Breaker
from mailboxd.core.events import Event, Kind, evolve, evolve_attempt
from mailboxd.core.types import Attempt, Task
from mailboxd.core.view import View
from mailboxd.core.wire import from_json
from mailboxd.store.db import Connected
from mailboxd.store.rows import ATTEMPT, TASK, read_attempt, read_task

_MOST = 1024
"""Tasks that are kept; then all are forgotten. What is at work at one time is far less."""
_OF_BREAKERS = frozenset({Kind.TURN_ENDED, Kind.BREAKER_OPENED, Kind.BREAKER_HALF_OPEN, Kind.BREAKER_CLOSED})
"""What changes the row of a breaker."""


class Recent:
    """What was read or recorded inside transactions of this process, and still holds."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.attempts: dict[str, Attempt] = {}
        """By task: its latest."""
        self.breakers: dict[str, Breaker] = {}
        """By agent; they are forgotten when a turn ends or a breaker moves."""
        self.version = -1
        """`PRAGMA data_version` of the last transaction: it changes when another connection commits."""

    def forget(self) -> None:
        self.tasks.clear()
        self.attempts.clear()
        self.breakers.clear()

    def keep(self, task: Task) -> None:
        if len(self.tasks) >= _MOST:
            self.forget()
        self.tasks[task.id] = task

    def follow(self, events: Iterable[Event], left: View | None = None) -> None:
        """What the events change; they have been recorded. `left` is how they leave one task."""
        done = None if left is None else left.task.id
        for event in events:
            if event.kind in _OF_BREAKERS:
                self.breakers.clear()
            if event.task is None or event.task == done:
                continue
            if (task := self.tasks.get(event.task)) is not None:
                self.tasks[event.task] = evolve(task, event)
            if event.kind is Kind.ATTEMPT_STARTED:
                self.attempts[event.task] = from_json(Attempt, event.data["attempt"])
            elif (attempt := self.attempts.get(event.task)) is not None and event.data.get("attempt") == attempt.id:
                self.attempts[event.task] = evolve_attempt(attempt, event)
        if left is not None:
            self.keep(left.task)
            if left.attempt is not None:
                self.attempts[left.task.id] = left.attempt


class RecentQueries(Connected):
    """What holds is not read again. Only transactions keep what they read: nobody else writes meanwhile."""

    _recent: Recent

    def data_version(self) -> int:
        return int(self.db.execute("PRAGMA data_version").fetchone()[0])

    def _holds(self) -> bool:
        return self.db.in_transaction or self.data_version() == self._recent.version

    def task(self, task_id: str) -> Task | None:
        found = self._recent.tasks.get(task_id)
        if found is not None and self._holds():
            return found
        return self._of_row(self.db.execute(f"SELECT {TASK} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone())

    def _of_row(self, row: Sequence[Any] | None) -> Task | None:
        """The task that was found, by whatever name; inside a transaction it is kept for who asks by its id."""
        if row is None:
            return None
        if not self.db.in_transaction:
            return read_task(row)
        found = self._recent.tasks.get(row[0])
        if found is None:
            found = read_task(row)
            self._recent.keep(found)
        return found

    def attempt(self, task_id: str, ordinal: int) -> Attempt | None:
        """That attempt of the task; they are counted from 1."""
        if not ordinal:
            return None
        found = self._recent.attempts.get(task_id)
        if found is not None and found.ordinal == ordinal and self._holds():
            return found
        sql = f"SELECT {ATTEMPT} FROM attempts WHERE task = ? AND ordinal = ?"
        row = self.db.execute(sql, (task_id, ordinal)).fetchone()
        if row is None:
            return None
        found = read_attempt(row)
        if self.db.in_transaction and (task := self._recent.tasks.get(task_id)) and task.attempt == ordinal:
            self._recent.attempts[task_id] = found
        return found

    def above(self, task_id: str) -> Iterator[Task]:
        """The task and those that it is below, the nearest first."""
        here = self.task(task_id)
        while here is not None:
            yield here
            here = None if here.parent is None else self.task(here.parent)
