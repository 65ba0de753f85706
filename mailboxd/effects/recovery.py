"""Turns whose outcome is unknown: OpenClaw's ledger is asked before anything is repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.ledger import AskAgain, Fetched, FetchReply, LedgerAnswer, Lost, read_ledger, read_reply, resolve
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.process import NotStarted
from mailboxd.agents.readiness import Gateway
from mailboxd.core.effects import LookUp
from mailboxd.core.outcomes import Outcome
from mailboxd.core.terms import LOOKUP_SECONDS
from mailboxd.core.times import plus, to_epoch
from mailboxd.effects.calls import Call, Calls, NewCall
from mailboxd.engine import Engine
from mailboxd.store.store import Order

_CALL_SECONDS = 60.0
_LATER = 30.0
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class _Asking:
    """One look-up under way. Nothing of it is stored: after a crash it is simply asked again."""

    order: Order
    effect: LookUp
    ledger: LedgerAnswer | None = None
    fetching: FetchReply | None = None


@dataclass(slots=True)
class Recovery:
    engine: Engine
    calls: Calls
    openclaw: OpenClaw
    reports: list[Callable[[], None]]
    gateway: Gateway = field(default_factory=Gateway)
    _asking: dict[str, _Asking] = field(default_factory=dict)
    _to_fetch: list[_Asking] = field(default_factory=list)
    _answered: dict[str, float] = field(default_factory=dict)
    """When the gateway was first seen to answer in a look-up, on the monotonic clock, by the order's id."""

    def owns(self, call: Call) -> bool:
        return call.id in self._asking

    def busy(self) -> set[str]:
        """The orders that are being looked up."""
        return {asking.order.id for asking in (*self._asking.values(), *self._to_fetch)}

    def go_on(self) -> int:
        """Ask the second question where the first answer called for one; outside of any transaction."""
        asking, self._to_fetch = self._to_fetch, []
        for one in asking:
            if one.fetching is not None:
                self._start(one, one.fetching.argv, "reply")
        return len(asking)

    def begin(self, order: Order, effect: LookUp) -> bool:
        """Ask the ledger about the latest run of the session. False while there is no slot for the call.

        Nobody is asked while the gateway is away: it may run the turn again once it is back, and till then nothing is
        decided.
        """
        if self.gateway.is_down or not self.calls.has_room(self.engine.clock.monotonic()):
            return False
        return self._start(_Asking(order, effect), self.openclaw.tasks_show_argv(effect.session_key), "ledger")

    def ended(self, call: Call, exit_: Exit) -> tuple[Order, LookUp, Outcome] | None:
        """What a question brought; the outcome once it is known. Inside a batch."""
        asking = self._asking.pop(call.id)
        self.calls.discard(call.id)
        fetched: Fetched | None = None
        if asking.fetching is None:
            asking.ledger = read_ledger(exit_)
        else:
            fetched = read_reply(asking.fetching.source, exit_, asking.fetching.run_id)
            if fetched.answered:
                self._answered.setdefault(asking.order.id, self.engine.clock.monotonic())
        if asking.ledger is None:
            raise AssertionError("a reply was fetched before the ledger was read")
        return self._next(asking, resolve(self.openclaw, self._lost(asking), asking.ledger, fetched))

    def _next(self, asking: _Asking, step: Outcome | AskAgain | FetchReply) -> tuple[Order, LookUp, Outcome] | None:
        match step:
            case AskAgain(seconds):
                self._tell(asking, seconds)
                self.engine.store.postpone(asking.order.id, plus(self.engine.now, seconds))
                return None
            case FetchReply() as fetch:
                asking.fetching = fetch
                self._to_fetch.append(asking)
                return None
            case outcome:
                self._answered.pop(asking.order.id, None)
                return asking.order, asking.effect, outcome

    def _lost(self, asking: _Asking) -> Lost:
        task = self.engine.store.task(asking.order.task)
        timeout = task.policy.timeout if task else self.engine.settings.policy.timeout
        waited = to_epoch(self.engine.now) - to_epoch(asking.order.at)
        mono, back = self.engine.clock.monotonic(), self.gateway.answers_since
        if back is not None:  # the time during which the gateway could not be asked does not count
            waited = min(waited, mono - back)
        since = self._answered.get(asking.order.id)
        return Lost(
            asking.effect.session_key,
            asking.effect.run_id,
            waited,
            patience=timeout + LOOKUP_SECONDS,
            heard=asking.effect.heard,
            ready_for=None if since is None else mono - since,
        )

    def _tell(self, asking: _Asking, seconds: float) -> None:
        task = self.engine.store.task(asking.order.task)
        said = asking.ledger.status if asking.ledger else "nothing"
        _log.info(
            "%s: nobody knows yet what became of its %s turn by %s (the ledger says: %s); asked again in %.0f s, "
            "given up at %s",
            task.local_id if task else asking.order.task,
            asking.effect.turn,
            asking.effect.agent,
            said,
            seconds,
            plus(asking.order.at, (task.policy.timeout if task else 0) + LOOKUP_SECONDS),
        )

    def _start(self, asking: _Asking, argv: tuple[str, ...], stage: str) -> bool:
        call_id = f"{asking.order.id}.{stage}"
        # Not the session's own key: asking about a session is no call in it.
        call = NewCall(call_id, "", f"{stage}:{asking.effect.session_key}", _CALL_SECONDS, asking.order.task)
        self.calls.discard(call_id)
        try:
            self.calls.start(call, argv, self.engine.clock.monotonic())
        except NotStarted:
            later = plus(self.engine.clock.now(), _LATER)
            self.reports.append(lambda: self.engine.store.postpone(asking.order.id, later))
            return True
        self._asking[call_id] = asking
        return True
