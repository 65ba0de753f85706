"""Looks up turns whose outcome is unknown: OpenClaw's ledger or its gateway is asked before anything is repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from mailboxd.core.effects import LookUp
from mailboxd.core.outcomes import Aborted, Outcome, Unknown
from mailboxd.core.times import plus, to_epoch
from mailboxd.core.vocabulary import LOOKUP_SECONDS
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Postponed, Reports
from mailboxd.ledger.store import Order
from mailboxd.perform.agents.answer_calls import RefusedTooOften, Submitted
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.gateway.transport import GatewayTransport
from mailboxd.perform.agents.openclaw import OpenClaw
from mailboxd.perform.agents.openclaw_runs import (
    CheckAgain,
    FetchedReply,
    FetchReply,
    LostTurn,
    RunRecord,
    parse_reply,
    parse_run,
    resolve,
)
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.process import NotStarted, State
from mailboxd.perform.agents.readiness import Gateway
from mailboxd.perform.process_table import Call, CallKind, ProcessTable

_log = logging.getLogger("mailboxd")
_CALL_SECONDS = 60.0
_ASKED = "asked"
"""The end of the name of a look-up that the gateway's program makes."""
_LATER = 30.0


@dataclass(frozen=True, slots=True)
class LookupReport:
    """A report: the outcome of a lost turn."""

    order: Order
    effect: LookUp
    outcome: Outcome
    submitted: Submitted | RefusedTooOften | None = None
    """What counts instead of its text: an answer by tool, or that too many were refused."""


@dataclass(slots=True)
class _Lookup:
    """A look-up in progress. It is not stored: after a crash it is repeated."""

    order: Order
    effect: LookUp
    ledger: RunRecord | None = None
    fetching: FetchReply | None = None


@dataclass(slots=True)
class TurnLookup:
    engine: Engine
    calls: ProcessTable
    openclaw: OpenClaw
    reports: Reports
    gateway: Gateway = field(default_factory=Gateway)
    transport: GatewayTransport | None = None
    """Over which lost runs are asked about; None: by OpenClaw's CLI, and so if it does not let us in."""
    holds: Callable[[Order, LookUp, Outcome], bool] = lambda *_: False
    """Whether an outcome is held back because the lost turn may have submitted an answer: that is looked up first."""
    _by_cli: set[str] = field(default_factory=set)
    """Orders that the transport could not look up."""
    _lookups: dict[str, _Lookup] = field(default_factory=dict)
    """By call."""
    _to_fetch: list[_Lookup] = field(default_factory=list)
    _gateway_answered: dict[str, float] = field(default_factory=dict)
    """When the gateway was first seen to answer in a look-up, on the monotonic clock, by the order's id."""

    def busy(self) -> set[str]:
        """The orders that are being looked up."""
        return {lookup.order.id for lookup in (*self._lookups.values(), *self._to_fetch)}

    def fetch_replies(self) -> None:
        """Fetch the replies that the ledger's answers called for; outside of any transaction."""
        lookups, self._to_fetch = self._to_fetch, []
        for one in lookups:
            if one.fetching is not None:
                self._start(one, one.fetching.argv, "reply")

    def begin(self, order: Order, effect: LookUp) -> None:
        """Ask the ledger about the latest run of the session, when there is a slot for the call.

        Nothing is asked while the gateway is down: it may run the turn again once it is back.
        """
        if self.transport is not None and effect.run_id is not None and order.id not in self._by_cli:
            self._ask_gateway(self.transport, order, effect, effect.run_id)
            return
        if self.gateway.is_down or not self.calls.capacity.has_slot() or self.calls.free_cli_processes() <= 0:
            return
        self._start(_Lookup(order, effect), self.openclaw.tasks_show_argv(effect.session_key), "ledger")

    def _ask_gateway(self, transport: GatewayTransport, order: Order, effect: LookUp, run_id: str) -> None:
        """Have the gateway's program ask about the run until the gateway can tell what became of it."""
        task = self.engine.store.tasks.get(order.task)
        timeout = (task.policy.timeout if task else self.engine.settings.policy.timeout) + LOOKUP_SECONDS
        call = Call(f"{order.id}.{_ASKED}", CallKind.LOOKUP, "", f"{_ASKED}:{effect.session_key}", timeout, order)
        call.task, call.without_slot = order.task, True
        now = self.engine.clock.monotonic()
        if self.calls.state(call.id) is State.RUNNING and self.calls.adopt(call, now):
            return
        self.calls.discard(call.id)
        argv = transport.lookup_argv(effect.agent, effect.session_key, run_id, timeout)
        try:
            self.calls.start(call, argv, now)
        except NotStarted:
            self._by_cli.add(order.id)

    def _take_answer(self, order: Order, effect: LookUp, call: Call, exit_: Exit) -> None:
        """Take what the gateway says of the run; what it does not say is looked up by the CLI."""
        self.calls.discard(call.id)
        found = classify(exit_)
        if isinstance(found, Aborted) or (isinstance(found, Unknown) and not found.looked_up):
            self._by_cli.add(order.id)
        else:
            self._report(order, effect, found)

    def _report(self, order: Order, effect: LookUp, found: Outcome) -> None:
        if not self.holds(order, effect, found):
            self.reports.append(LookupReport(order, effect, found))

    def ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take the end of a look-up call; the outcome is reported once it is known."""
        if call.id.endswith(f".{_ASKED}") and isinstance(order.effect, LookUp):
            self._take_answer(order, order.effect, call, exit_)
            return
        lookup = self._lookups.pop(call.id)
        self.calls.discard(call.id)
        fetched: FetchedReply | None = None
        if lookup.fetching is None:
            lookup.ledger = parse_run(exit_)
        else:
            fetched = parse_reply(lookup.fetching.source, exit_, lookup.fetching.run_id)
            if fetched.answered:
                self._gateway_answered.setdefault(order.id, self.engine.clock.monotonic())
        if lookup.ledger is None:
            raise AssertionError("a reply was fetched before the ledger was read")
        match resolve(self.openclaw, self._lost(lookup), lookup.ledger, fetched):
            case CheckAgain(seconds):
                self._log_unknown(lookup, seconds)
                self.reports.append(Postponed(order.id, plus(self.engine.now, seconds)))
            case FetchReply() as fetch:
                lookup.fetching = fetch
                self._to_fetch.append(lookup)
            case found:
                self._gateway_answered.pop(order.id, None)
                self._report(order, lookup.effect, found)

    def _lost(self, lookup: _Lookup) -> LostTurn:
        task = self.engine.store.tasks.get(lookup.order.task)
        timeout = task.policy.timeout if task else self.engine.settings.policy.timeout
        waited = to_epoch(self.engine.now) - to_epoch(lookup.order.at)
        mono, back = self.engine.clock.monotonic(), self.gateway.answers_since
        if back is not None:  # the time during which the gateway could not be asked does not count
            waited = min(waited, mono - back)
        since = self._gateway_answered.get(lookup.order.id)
        return LostTurn(
            lookup.effect.session_key,
            lookup.effect.run_id,
            waited,
            patience=timeout + LOOKUP_SECONDS,
            earlier_run=lookup.effect.heard,
            ready_for=None if since is None else mono - since,
        )

    def _log_unknown(self, lookup: _Lookup, seconds: float) -> None:
        task = self.engine.store.tasks.get(lookup.order.task)
        said = lookup.ledger.status if lookup.ledger else "nothing"
        _log.info(
            "%s: the outcome of its %s turn by %s is still unknown (OpenClaw's ledger says: %s); asking again in "
            "%.0f s, giving up at %s",
            task.local_id if task else lookup.order.task,
            lookup.effect.turn,
            lookup.effect.agent,
            said,
            seconds,
            plus(lookup.order.at, (task.policy.timeout if task else 0) + LOOKUP_SECONDS),
        )

    def _start(self, lookup: _Lookup, argv: tuple[str, ...], stage: str) -> None:
        order, call_id = lookup.order, f"{lookup.order.id}.{stage}"
        # Not the session's own key: a question about a session is not a call in it.
        key = f"{stage}:{lookup.effect.session_key}"
        call = Call(call_id, CallKind.LOOKUP, "", key, _CALL_SECONDS, order, order.task)
        self.calls.discard(call_id)
        try:
            self.calls.start(call, argv, self.engine.clock.monotonic())
        except NotStarted:
            self.reports.append(Postponed(order.id, plus(self.engine.clock.now(), _LATER)))
            return
        self._lookups[call_id] = lookup
