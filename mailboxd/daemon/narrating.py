"""Each event that was recorded, by whomever, as a line of the log: in the words that `history` uses.

Where a task passes several phases at once (the gates between are off), that is one line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby

from mailboxd import log
from mailboxd.core.describe import describe, describe_passage
from mailboxd.core.events import Event, Kind
from mailboxd.daemon.about import About
from mailboxd.store.store import Store

_QUIET = frozenset(
    {Kind.MESSAGE_FILED, Kind.ATTEMPT_CHECKPOINT, Kind.TASK_AMENDED, Kind.ARTIFACT_RECORDED, Kind.TURN_ENDED}
)
_log = logging.getLogger("mailboxd")


class Narrator:
    """Tells what the daemon's own store records as it is, and reads only what others recorded."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._about = About(store)
        store.follow()

    def tell(self, told: int) -> int:
        """Log what was recorded after the event of that number; returns the number of the last one."""
        fresh = list(self._store.recorded_since(told))
        passages = [events for events in _passages(event for _seq, event in fresh) if _log.isEnabledFor(_level(events))]
        for level, group in groupby(passages, _level):
            log.several(_log, level, [self._line(events) for events in group])
        return fresh[-1][0] if fresh else told

    def _line(self, events: list[Event]) -> log.Line:
        about = self._about.of(events[0])
        name = about.get("task", "")
        return describe_passage(events, name) if len(events) > 1 else describe(events[0], name), about


def _level(events: list[Event]) -> int:
    return logging.DEBUG if events[0].kind in _QUIET else logging.INFO


def _passages(events: Iterable[Event]) -> list[list[Event]]:
    """The events, with the transitions together that take one task on from phase to phase: they are one line."""
    passages: list[list[Event]] = []
    for event in events:
        if passages and _goes_on(passages[-1][-1], event):
            passages[-1].append(event)
        else:
            passages.append([event])
    return passages


def _goes_on(before: Event, event: Event) -> bool:
    return (
        before.kind is event.kind is Kind.TASK_TRANSITIONED
        and before.task == event.task
        and before.data["to"] == event.data["from"]
    )
