"""What a report says of the open tasks, from reading each of them once.

Why a task waits for a person takes longer to find out than anything else of it, so that it is asked once for all that
a report has of it: the items, their number, what runs, and what waits for a daemon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mailboxd.core.vocabulary import Phase, State, state_words
from mailboxd.ledger.conditions import NEED, OPEN
from mailboxd.ledger.reports import Report

_OPEN_TASKS = (
    f"SELECT t.phase, t.parent IS NULL, t.due IS NULL, t.id, t.local_id, {NEED}, t.executor, t.updated_at,"
    f" CASE t.held WHEN '' THEN t.reason ELSE t.held END FROM tasks t INDEXED BY tasks_open WHERE {OPEN} ORDER BY t.seq"
)
_RUNNING = frozenset(str(phase) for phase in Phase if state_words(phase) == State.RUNNING)


class TaskForPerson(NamedTuple):
    """An open task that waits for a person."""

    id: str
    local_id: str
    need: str
    """Why, as an `attention.Need`."""
    executor: str
    at: str
    """When it changed last."""
    reason: str
    """Why it is held, or else why its circuit is open."""


class OpenTasks(NamedTuple):
    """The open tasks at one time."""

    phases: Mapping[str, int]
    """Their number by phase."""
    waiting: Sequence[TaskForPerson]
    """Those that wait for a person, the one that has waited longest first."""
    waiting_by_phase: Mapping[str, int]
    for_daemon: int
    """How many without a parent do not wait for a person alone: requests and deadlines expire."""
    running: Sequence[str]
    """The ids of those without a parent that run, the oldest first."""

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.phases.values())


def open_tasks(report: Report) -> OpenTasks:
    """Read all open tasks. Costs O(open tasks): about 3 ms for each thousand."""
    phases, by_phase = Counter[str](), Counter[str]()
    waiting, running, for_daemon = [], [], 0
    for phase, is_root, is_undue, *task in report.db.execute(_OPEN_TASKS):
        phases[phase] += 1
        need = task[2]
        if need is not None:
            by_phase[phase] += 1
            waiting.append(TaskForPerson(*task))
        elif is_root and phase in _RUNNING:
            running.append(task[0])
        for_daemon += is_root and not (is_undue and need not in (None, "approval"))
    waiting.sort(key=lambda task: task.at)  # stable: of the same time, the older task first
    return OpenTasks(dict(sorted(phases.items())), waiting, by_phase, for_daemon, running)
