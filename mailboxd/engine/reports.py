"""Results of work done outside of a transaction, for the next one to record.

Effects are performed, and files are written and moved, between two transactions. What came of it is queued here as
reports: small records whose type decides who records them. The next batch records all of them, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mailboxd.core.events import Event, Kind
from mailboxd.engine.engine import Engine

_Report = TypeVar("_Report")


@dataclass(frozen=True, slots=True)
class Finished:
    """An effect was performed (`done`) or given up (`failed`)."""

    order: str
    state: str = "done"


@dataclass(frozen=True, slots=True)
class Postponed:
    """An effect could not be performed yet, and is tried again later."""

    order: str
    until: str


@dataclass(frozen=True, slots=True)
class Happened:
    """An event, without its time: that is the time of the transaction that records it."""

    kind: Kind
    task: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskFileWritten:
    """A task.md is up to date; `marks` counts the changes that it shows."""

    task: str
    marks: int


@dataclass(frozen=True, slots=True)
class Noted:
    """A value of the table `meta` has changed."""

    name: str
    value: str


class Reports:
    """The queue of one daemon, and the functions that record each type of report."""

    def __init__(self, engine: Engine) -> None:
        self._queue: deque[object] = deque()
        self._recorders: dict[type, Callable[[Any], object]] = {}
        self.route(Finished, lambda report: engine.store.outbox.finish(report.order, report.state))
        self.route(Postponed, lambda report: engine.store.outbox.postpone(report.order, report.until))
        self.route(Happened, lambda it: engine.record(Event(it.kind, it.task, {"at": engine.now, **it.data})))
        self.route(TaskFileWritten, lambda report: engine.store.stale_files.clear(report.task, report.marks))
        self.route(Noted, lambda report: engine.store.meta.set(report.name, report.value))

    def __len__(self) -> int:
        return len(self._queue)

    def route(self, kind: type[_Report], record: Callable[[_Report], object]) -> None:
        """Have all reports of this type recorded by `record`, which is called inside a batch."""
        self._recorders[kind] = record

    def append(self, *reports: object) -> None:
        """Queue what the next transaction has to record."""
        self._queue += reports

    def record(self, report: object) -> None:
        """Record this report now, inside a batch."""
        self._recorders[type(report)](report)

    def record_all(self) -> None:
        """Record everything that is queued, inside a batch."""
        while self._queue:
            self.record(self._queue.popleft())
