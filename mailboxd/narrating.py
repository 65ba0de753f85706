"""Each event that was recorded, by whomever, as a line of the log: in the words that `history` uses."""

from __future__ import annotations

import logging

from mailboxd.about import About
from mailboxd.core.describe import describe
from mailboxd.core.events import Kind
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
        fresh = self._store.recorded_since(told)
        for seq, event in fresh:
            told = seq
            level = logging.DEBUG if event.kind in _QUIET else logging.INFO
            if _log.isEnabledFor(level):
                said, about = describe(event, self._about.name(event)), self._about.of(event)
                # made by hand: where in the program it was said is of no use, and the search for it a third of the cost
                _log.handle(_log.makeRecord(_log.name, level, __file__, 0, "%s", (said,), None, extra=about))
        return told
