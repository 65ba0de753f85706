"""The tasks that may start, in memory and in order, so that a round need not ask the tables for them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

MOST = 2_000
"""Tasks that a queue has."""


class ReadyTask(NamedTuple):
    """A task that waits for nothing but its turn, and maybe the end of a pause; the order is that of the fields."""

    by_children: bool
    """Its children do the work: it needs no turn."""
    executor: str
    again: bool
    """It had an attempt before."""
    behind: int
    """How far it is behind others: its priority, negated."""
    of_agent: bool
    """It is not work of a person."""
    seq: int
    id: str
    not_before: str | None


class ReadyQueue:
    """As of the latest look at the tasks that have `changed` since."""

    def __init__(self, waiting: Iterable[ReadyTask]) -> None:
        self.changed: set[str] = set()
        """Tasks that may have come, gone, or got another place."""
        self._of = {one.id: one for one in waiting}
        self._in_order = sorted(self._of.values())

    def __len__(self) -> int:
        return len(self._in_order)

    def __iter__(self) -> Iterator[ReadyTask]:
        return iter(self._in_order)

    def place(self, task_id: str, waiting: ReadyTask | None) -> None:
        """Give a task its place, or none."""
        before = self._of.pop(task_id, None)
        if before is not None:
            del self._in_order[bisect_left(self._in_order, before)]
        if waiting is not None:
            self._of[task_id] = waiting
            insort(self._in_order, waiting)

    def by_children(self, now: str) -> list[ReadyTask]:
        """Those that need no turn, oldest first."""
        return sorted(self._first(now, len(self._in_order), True), key=attrgetter("seq"))

    def executors(self) -> Iterator[str]:
        """Who executes the others, by name."""
        at = 0
        while at < len(self._in_order) and not (one := self._in_order[at]).by_children:
            yield one.executor
            at = bisect_left(self._in_order, (False, f"{one.executor}\0"))

    def first(self, executor: str, now: str, most: int, *, again: bool) -> list[ReadyTask]:
        """The first `most` that may start, of an executor's that had an attempt before or of its others."""
        return self._first(now, most, False, executor, again)

    def _first(self, now: str, most: int, *kind: bool | str) -> list[ReadyTask]:
        """The first `most` that may start of those whose first fields are these, in order."""
        found: list[ReadyTask] = []
        for one in islice(self._in_order, bisect_left(self._in_order, kind), None):
            if one[: len(kind)] != kind or len(found) == most:
                break
            if one.not_before is None or one.not_before <= now:
                found.append(one)
        return found
