"""How many turns an agent may have at this moment: its slots, its breaker, its turns of the last hour."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mailboxd.core.breaker import State, turns_at_once
from mailboxd.core.times import plus
from mailboxd.store.store import Store

_HOUR = 3600.0
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Pacing:
    """`per_hour` turns are ordered of one agent in any hour; 0 = as many as there are."""

    store: Store
    slots_per_agent: int
    per_hour: int
    gone: Callable[[str], str | None] = lambda _agent: None
    """Why there is no such agent any more that may be given work; None = there is."""

    def allowed(self, agents: Iterable[str], now: str) -> dict[str, int]:
        """How many turns each may have; what keeps some from having any is noted for `why` and `status`."""
        agents = list(agents)
        paced = {agent: at for agent in agents if (at := self.resumes(agent, now)) is not None}
        self.store.note_paced(paced)
        gone = {agent: why for agent in agents if (why := self.gone(agent)) is not None}
        if self.store.note_gone(gone):
            for agent, why in sorted(gone.items()):
                _log.warning("work waits for the agent %s: %s", agent, why)
        return {agent: 0 if agent in paced else self.starts(agent) for agent in agents}

    def starts(self, agent: str) -> int:
        """How many turns of the agent may be under way, as its breaker says."""
        return 0 if self.gone(agent) else turns_at_once(self.store.breaker(agent), self.slots_per_agent)

    def is_shut(self, agent: str) -> bool:
        """Whether the breaker of the agent is open: nothing at all is sent to it."""
        return self.store.breaker(agent).state is State.OPEN

    def resumes(self, agent: str, now: str) -> str | None:
        """When the agent may be given turns again after it had all of an hour's; None = it may."""
        first = self.store.latest_turn(agent, self.per_hour) if self.per_hour else None
        return plus(first, _HOUR) if first is not None and first > plus(now, -_HOUR) else None
