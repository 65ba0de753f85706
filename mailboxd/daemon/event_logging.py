"""Logs every recorded event, with the text that `mailboxd log` shows, whichever process recorded it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from mailboxd.core.approvals import Performed
from mailboxd.core.events import Event, Kind, Role, passed
from mailboxd.core.explain.describe import TOLD, describe, summarize
from mailboxd.core.vocabulary import AttemptStatus, CheckVerdict, Phase
from mailboxd.host import ids, log
from mailboxd.ledger.store import Store

# Each log line carries the task, attempt and trace of its event as fields.

_REMEMBERED = 4096
"""Tasks whose name and trace are cached; neither ever changes."""


class TaskLabels:
    """The name and trace of each task: from the event that creates it, otherwise from the store, once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[str, str]] = {}

    def of(self, event: Event) -> dict[str, str]:
        """The `extra` fields for the log record of an event (see `log`); empty for an event without a task."""
        if not event.task:
            return {}
        name, trace = self._known.get(event.task) or self._learnt(event.task, event)
        about = {"task": name, "trace": trace}
        said = event.data.get("attempt")
        if said is None and event.kind is Kind.TURN_ENDED:
            said = event.data["turn"]["attempt"]
        attempt = said.get("id") if isinstance(said, dict) else said
        if attempt and isinstance(attempt, str):
            about["attempt"] = attempt
        return about

    def _learnt(self, task_id: str, event: Event) -> tuple[str, str]:
        found = self._of_new(event) or self._looked_up(task_id)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[task_id] = found
        return found

    def _of_new(self, event: Event) -> tuple[str, str] | None:
        """Name and trace of a task, from the event that creates it; a tree has the trace of its root."""
        if event.kind is not Kind.TASK_CREATED:
            return None
        task = event.data["task"]
        if task.get("parent") is None:
            return task["local_id"], ids.trace_of(task["id"], task.get("origin", {}).get("traceparent"))
        root = self._known.get(task["root"])
        return None if root is None else (task["local_id"], root[1])

    def _looked_up(self, task_id: str) -> tuple[str, str]:
        name, root, traceparent = self._store.tasks.names(task_id)
        return name, ids.trace_of(root, traceparent) if root else ""


_log = logging.getLogger("mailboxd")


class EventLogger:
    """Logs what this process recorded from memory, and reads back only what others recorded."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._labels = TaskLabels(store)
        store.follow()

    def log_after(self, last: int) -> int:
        """Log the events after number `last`; returns the number of the last one logged."""
        fresh, least = list(self._store.recorded_since(last)), _log.getEffectiveLevel()
        shown = [(level, event) for _seq, event in fresh if (level := level_of(event)) >= least]
        say = describe if least <= logging.DEBUG else summarize
        for level, group in groupby(shown, itemgetter(0)):
            log.several(_log, level, [self._line(event, say) for _level, event in group])
        return fresh[-1][0] if fresh else last

    def _line(self, event: Event, say: Callable[[Event, str], str]) -> log.Line:
        about = self._labels.of(event)
        return say(event, about.get("task", "")), about


_QUIET = frozenset(
    {
        Kind.MESSAGE_FILED,
        Kind.ATTEMPT_CHECKPOINT,
        Kind.TASK_AMENDED,
        Kind.TASK_TRANSITIONED,
        Kind.ARTIFACT_RECORDED,
        Kind.TURN_ENDED,
    }
)
_TROUBLE = frozenset(
    {
        Kind.ALARM,
        Kind.BREAKER_OPENED,
        Kind.CIRCUIT_OPENED,
        Kind.EDIT_REFUSED,
        Kind.MESSAGE_REJECTED,
        Kind.MESSAGE_UNDELIVERED,
        Kind.NOTICE_FAILED,
        Kind.PEER_SILENT,
        Kind.REVIEW_LOST,
    }
)

_ENDED_BADLY: Mapping[Kind, Callable[[Mapping[str, Any]], bool]] = {
    Kind.ATTEMPT_ENDED: lambda data: data["attempt_changes"]["status"] != AttemptStatus.SUCCEEDED,
    Kind.CHECK_ENDED: lambda data: data["check"]["verdict"] != CheckVerdict.PASSED,
    Kind.ACTION_ENDED: lambda data: data["changes"].get("state") != Performed.DONE,
}
"""Whether an attempt, a check or an action ended badly, by the data of its event."""


def level_of(event: Event) -> int:
    """WARNING for what went wrong, DEBUG for what happens automatically, such as a phase that is passed, else INFO."""
    steps = passed(event)
    reached = steps[-1]["to"] if steps else ""
    if event.kind in _TROUBLE or reached in (Phase.FAILED, Phase.CIRCUIT_OPEN):
        return logging.WARNING
    held = event.data.get("changes", {}).get("held") and event.role is not Role.OPERATOR
    ended_badly = _ENDED_BADLY.get(event.kind)
    if held or (ended_badly is not None and reached != Phase.CANCELLED and ended_badly(event.data)):
        return logging.WARNING
    if event.kind not in _QUIET:
        return logging.INFO
    return logging.INFO if reached in TOLD or event.role is Role.OPERATOR else logging.DEBUG
