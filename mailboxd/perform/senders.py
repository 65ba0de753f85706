"""Tells the senders of this agent's work what it waits for that they cannot see: a person, a reviewer, a budget ...

A peer knows only that it has delivered its work. Each change of what the work waits for is one progress message, and so
is that it goes on. A session that a task is to be answered in learns what it waits for, but not that it goes on. What
was told last is stored with the task, so that a restart tells nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mailboxd.core.explain.why import explain, told_to_sender
from mailboxd.core.inputs import SenderTold
from mailboxd.core.vocabulary import FOR_PERSON, WaitsFor
from mailboxd.engine.engine import Engine

EVERY = 5.0
"""Seconds between two rounds."""
LASTS = 30.0
"""Seconds that a wait has to last before it is told, unless it lasts until somebody acts: a breaker's trial turn, or a
gateway that restarts, is no news."""
MOST = 20
"""Tasks that are looked at in one round; the next one goes on after them."""


@dataclass(slots=True)
class SenderNotifier:
    """One workspace's senders."""

    engine: Engine
    _after: int = 0
    """The last task of the round before."""
    _since: dict[str, tuple[WaitsFor, float]] = field(default_factory=dict)
    """By task: what it waits for that may pass by itself, and since when (monotonic clock)."""

    def perform(self) -> float:
        """Order the messages to senders, inside a batch; return when to do so again (monotonic clock)."""
        mono = self.engine.clock.monotonic()
        found, self._after = self.engine.store.tasks.reported(self._after, MOST)
        report = self.engine.store.report
        for task_id, told in found:
            snapshot = report.task_snapshot([task_id], self.engine.now, 0)
            if task_id not in snapshot.tasks:
                continue
            waits_for, why = told_to_sender(explain(snapshot, task_id))
            if self._is_lasting(task_id, waits_for, mono) and told != f"{waits_for}: {why}" and (why or told):
                self.engine.handle(task_id, SenderTold(waits_for, why))
        return mono + EVERY

    def _is_lasting(self, task_id: str, waits_for: WaitsFor, mono: float) -> bool:
        if waits_for is WaitsFor.NOTHING or waits_for in FOR_PERSON:
            self._since.pop(task_id, None)
            return True
        known = self._since.get(task_id)
        if known is None or known[0] is not waits_for:
            known = self._since[task_id] = (waits_for, mono)
        return mono - known[1] >= LASTS
