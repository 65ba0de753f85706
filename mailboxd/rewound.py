"""The wall clock jumped: what was to wait for a while waits for as long as was left of it, no longer and no shorter.

Pauses, leases and holds are stored as moments, and a moment is further away, or over, when the clock was set or the
machine slept: a peer that slept with it has not been silent. Deadlines and the expiry of approvals are moments that a
person was told: they stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mailboxd.core import breaker, lifecycle
from mailboxd.core.events import Event
from mailboxd.core.times import plus
from mailboxd.store.store import Store

_NOTE = "the clock jumped: what is left of the wait is kept"


def kept(store: Store, now: str, jump: float) -> Iterator[Event]:
    """The events that move everything that waited when the clock jumped by `jump` seconds; inside a transaction."""
    since = min(now, plus(now, -jump))  # what was over before the jump stays over
    for task in store.waiting_for_the_clock(since):
        moments = {"due": task.due, "not_before": task.not_before, "heartbeat": task.heartbeat}
        moved: dict[str, Any] = {name: plus(at, jump) for name, at in moments.items() if at is not None and at > since}
        yield lifecycle.amend(task, now, _NOTE, **moved)[0]
    store.move_pauses(since, jump)
    if jump > 0:
        return  # a breaker opens for its trial by itself
    for broken in store.broken():
        # one turn may try, now: whether the agent is well is not for a clock to say
        event = breaker.pause_over(replace(broken, until=min(broken.until or now, now)), now)
        if event is not None:
            yield event
