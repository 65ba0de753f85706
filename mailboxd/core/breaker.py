"""The circuit breaker of an agent: a broken agent or provider must not use up the attempts of every task.

Faults of an agent or its provider are counted over all tasks. The breaker is `closed` while turns are allowed. Enough
consecutive faults, or a provider that says when to come back, `open` it: no turn of that agent is started. After a
pause it is `half_open` and allows one trial turn, which closes it or opens it again for twice as long. TABLE has the
transitions; without a row nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.model import BreakerRules
from mailboxd.core.outcomes import Failed, Outage, Outcome, Permanence, Succeeded
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import plus


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Signal(StrEnum):
    TRIPPED = "enough faults in a row, or the provider says when to come back"
    SUCCESS = "a turn ended well"
    PAUSE_OVER = "the pause is over"
    ORDERED = "the operator closes it"


TABLE: Mapping[tuple[BreakerState, Signal], BreakerState] = {
    (BreakerState.CLOSED, Signal.TRIPPED): BreakerState.OPEN,
    (BreakerState.OPEN, Signal.PAUSE_OVER): BreakerState.HALF_OPEN,
    (BreakerState.OPEN, Signal.SUCCESS): BreakerState.CLOSED,  # of a turn that was under way when it opened
    (BreakerState.OPEN, Signal.ORDERED): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, Signal.SUCCESS): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, Signal.TRIPPED): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, Signal.ORDERED): BreakerState.CLOSED,
}
"""(state, signal) -> state. Without a row nothing happens."""

_KINDS = {
    BreakerState.CLOSED: Kind.BREAKER_CLOSED,
    BreakerState.OPEN: Kind.BREAKER_OPENED,
    BreakerState.HALF_OPEN: Kind.BREAKER_HALF_OPEN,
}
_MOST_DOUBLINGS = 30

LOCKED_OUT = "its gateway refuses every turn of it until the gateway is restarted (`openclaw gateway restart`): "
"""The beginning of the reason of a breaker that opened because of `Outage.LOCKED_OUT`."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """One agent's row. `failures`: consecutive faults; `times`: how often it opened since it was last closed."""

    agent: str
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    times: int = 0
    until: str | None = None
    """When an open breaker allows a trial turn."""
    reason: str = ""

    @property
    def is_locked_out(self) -> bool:
        """Whether it waits for a restart of the gateway."""
        return self.state is not BreakerState.CLOSED and self.reason.startswith(LOCKED_OUT)


def is_fault(outcome: Outcome) -> bool:
    """Whether the agent or its provider is to blame, rather than this task or the gateway.

    A permanent refusal is the task's fault, unless the provider names a pause or the call never reached it.
    """
    if not isinstance(outcome, Failed) or outcome.outage is Outage.LOCKED_OUT:
        return False
    return outcome.permanence is Permanence.TRANSIENT or outcome.retry_after > 0 or not outcome.started


def after_turn(breaker: Breaker, outcome: Outcome, now: str, rules: BreakerRules) -> Event | None:
    """The breaker's event after a turn, if any. `failures` already counts this turn."""
    if isinstance(outcome, Succeeded):
        return _move(breaker, Signal.SUCCESS, now, "a turn ended well")
    if not isinstance(outcome, Failed) or not rules.failures:
        return None
    if outcome.outage is Outage.LOCKED_OUT:
        # One refusal is enough, and the pause does not double: a trial costs nothing, and may come after the restart.
        reason = LOCKED_OUT + first_line(outcome.error)
        until = plus(now, min(rules.pause, rules.longest))
        return _move(breaker, Signal.TRIPPED, now, reason, until=until, times=breaker.times + 1)
    if not is_fault(outcome):
        return None
    tripped = breaker.failures >= rules.failures or breaker.state is BreakerState.HALF_OPEN
    if not tripped and outcome.retry_after <= 0:
        return None
    pause = max(_pause(breaker, rules) if tripped else 0.0, outcome.retry_after)
    in_a_row = f"{breaker.failures} fault{'s' * (breaker.failures != 1)} in a row, the last: "
    reason = in_a_row + first_line(outcome.error)
    return _move(breaker, Signal.TRIPPED, now, reason, until=plus(now, pause), times=breaker.times + 1)


def pause_over(breaker: Breaker, now: str) -> Event | None:
    """Allow a trial turn if the time in `until` has passed."""
    if breaker.until is None or breaker.until > now:
        return None
    return _move(breaker, Signal.PAUSE_OVER, now, breaker.reason, times=breaker.times)


def gateway_is_back(breaker: Breaker, now: str) -> Event | None:
    """Allow a trial turn at once, now that the gateway answers again."""
    return _move(breaker, Signal.PAUSE_OVER, now, breaker.reason, times=breaker.times)


def ordered(breaker: Breaker, now: str, actor: str) -> Event | None:
    """Close it by the operator's order; None if it is closed."""
    return _move(breaker, Signal.ORDERED, now, "the operator lets it go on", role=Role.OPERATOR, actor=actor)


def trouble(broken: Sequence[Breaker]) -> tuple[str, bool]:
    """Which agents get no turns and why, in a sentence; and whether that lasts until the operator acts."""
    by_weight = sorted(broken, key=lambda one: (not one.is_locked_out, one.agent))
    sentence = "; ".join(f"{one.agent} gets no turns: {one.reason}" for one in by_weight)
    return sentence, any(one.is_locked_out for one in broken)


def turns_at_once(breaker: Breaker, slots: int) -> int:
    """How many turns of the agent may run at once, out of `slots`."""
    return {BreakerState.CLOSED: slots, BreakerState.OPEN: 0, BreakerState.HALF_OPEN: min(slots, 1)}[breaker.state]


def _pause(breaker: Breaker, rules: BreakerRules) -> float:
    return min(rules.pause * 2.0 ** min(breaker.times, _MOST_DOUBLINGS), rules.longest)


def _move(
    breaker: Breaker,
    signal: Signal,
    now: str,
    reason: str,
    *,
    role: Role = Role.ORCHESTRATOR,
    actor: str = "mailboxd",
    **changes: Any,
) -> Event | None:
    target = TABLE.get((breaker.state, signal))
    if target is None:
        return None
    data = {"at": now, "agent": breaker.agent, "state": target.value, "until": None, "times": 0, "reason": reason}
    return Event(_KINDS[target], None, data | changes, role, actor)
