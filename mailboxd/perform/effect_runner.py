"""Performs committed effects, by a table that has one row for each kind of effect.

An effect that must not be repeated is marked before it is performed (in the directory of its call, see
`agents.process`) and looked up after a crash. All others are marked afterwards and may be repeated. The outcome of an
effect is a report, which the next transaction records (`engine.reports`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mailboxd.core.effects import (
    AnswerPermission,
    Bounce,
    Compose,
    Effect,
    LookUp,
    Notify,
    Perform,
    Prepare,
    Resend,
    RunCheck,
    RunTurn,
    Send,
    StopTurns,
    Verify,
)
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.model import Task
from mailboxd.core.outcomes import (
    Answer,
    Failed,
    Outcome,
    Results,
    Succeeded,
    Unclear,
    Unknown,
)
from mailboxd.core.schedule import Capacity
from mailboxd.core.vocabulary import Phase, Turn
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Finished, Reports
from mailboxd.errors import ConfigError, StoreError, WorldError
from mailboxd.ledger.store import Order
from mailboxd.perform import turns
from mailboxd.perform.acp_turns import HarnessTurns
from mailboxd.perform.action_performer import ActionPerformer
from mailboxd.perform.agents.answer_calls import RefusedTooOften, Submitted
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.readiness import is_suspicious
from mailboxd.perform.answers_by_tool import EndedTurn, beside, counted
from mailboxd.perform.check_runner import CheckRunner
from mailboxd.perform.delivery import HandedOver, MessageDelivery, undelivered
from mailboxd.perform.lost_turns import LookupReport, TurnLookup
from mailboxd.perform.message_builder import MessageBuilder, composed
from mailboxd.perform.notifier import PeopleNotifier
from mailboxd.perform.process_table import Call, CallKind, ProcessTable
from mailboxd.perform.steering import Steering
from mailboxd.perform.turns import TurnReport, TurnStarter

BATCH = 500
"""Orders per query."""
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Composed:
    """A report: the children's results are to be combined into the result of a coordinating task."""

    order: Order
    effect: Compose


@dataclass(frozen=True, slots=True)
class Performer:
    """How one kind of effect is performed: a row of the table."""

    effect: type[Effect]
    promise: str
    """The possible consequences of a crash."""
    begin: Callable[[Order, Any], None]
    """Performs it or starts its call, outside of any transaction. It is retried after a WorldError."""
    calls: tuple[CallKind, ...] = ()
    """The kinds of its calls."""
    ended: Callable[[Order, Call, Exit], None] | None = None
    """Takes the result of such a call."""


@dataclass(slots=True)
class EffectRunner:
    """The performers of one workspace."""

    engine: Engine
    calls: ProcessTable
    outgoing: MessageBuilder
    starting: TurnStarter
    posting: MessageDelivery
    recovery: TurnLookup
    checking: CheckRunner
    harnesses: HarnessTurns
    performing: ActionPerformer
    notifying: PeopleNotifier
    steering: Steering
    before_turn_ends: Callable[[Task], str]
    """Reads the agent's edits in task.md, inside the batch that records the end of its turn.

    Returns why a plan there was refused: the turn's text is then no result.
    """
    reports: Reports
    _orders: list[Order] | None = None
    """The orders to perform in this round; None = query them."""
    _by_effect: dict[type[Effect], Performer] = field(init=False)
    _by_call: dict[CallKind, Performer] = field(init=False)

    def __post_init__(self) -> None:
        table = self.performers()
        self._by_effect = {row.effect: row for row in table}
        self._by_call = {kind: row for row in table for kind in row.calls}
        self.reports.route(TurnReport, self._record_turn)
        self.reports.route(LookupReport, self._record_lookup)
        self.reports.route(Composed, self._compose)
        self.starting.tools.report = self._proven

    def performers(self) -> tuple[Performer, ...]:
        """The table of performers."""
        once = "the file is written once; handed over again only to a receiver that knows messages by their id"
        send, message = self.posting, (CallKind.MESSAGE,)
        turn, lookup = (
            (CallKind.TURN, CallKind.HARNESS_TURN, CallKind.PROOF),
            (CallKind.LOOKUP, CallKind.HARNESS_LOOKUP),
        )
        action = self.performing
        return (
            Performer(
                RunTurn,
                "started at most once; a crash in the middle is looked up, never repeated blindly",
                self.starting.begin,
                turn,
                self.starting.ended,
            ),
            Performer(LookUp, "may be repeated: it only asks", self._look_up, lookup, self._lookup_ended),
            Performer(StopTurns, "may be repeated: a call that has ended is not signalled", self._stop_turns),
            Performer(
                Compose,
                "may be repeated: the same children give the same text, and the attempt is a fence",
                lambda order, effect: self.reports.append(Composed(order, effect)),
            ),
            Performer(Send, once, send.begin, message, send.ended),
            Performer(Bounce, once, send.begin, message, send.ended),
            Performer(
                Resend,
                "handed over again only to a receiver that knows messages by their id",
                send.begin,
                message,
                send.ended,
            ),
            Performer(
                RunCheck,
                "may be repeated: a check changes nothing, and its verdict is recorded once",
                self.checking.begin,
                (CallKind.CHECK,),
                self.checking.ended,
            ),
            Performer(
                Prepare,
                "may be repeated: it only looks, and a gate of Lobster's that is not recorded runs nothing",
                action.prepare,
                (CallKind.GATE,),
                action.gate_created,
            ),
            Performer(
                Perform,
                "begun at most once: its key is committed before; a crash after that is unknown, never repeated",
                action.begin,
                (CallKind.ACTION,),
                action.ended,
            ),
            Performer(Verify, "may be repeated: it only asks", action.verify, (CallKind.VERIFY,), action.verify_ended),
            Performer(
                Notify,
                "may be repeated: people are notified again, under the same id",
                self.notifying.begin,
                (CallKind.NOTICE,),
                self.notifying.ended,
            ),
            Performer(AnswerPermission, "may be repeated: the answer is the same", self._answer_permission),
        )

    def mark(self, capacity: Capacity, *, begins: bool, gateway_is_down: bool = False) -> int:
        """Mark the turns that `perform` will start, if `begins`; inside the batch that allows them.

        Returns how many ended at once instead.
        """
        self._orders = self.engine.store.outbox.pending(self.engine.now) if begins else None
        over = self.starting.mark(self._orders or [], capacity, harnesses_only=gateway_is_down)
        if over:  # their ends may have ordered more
            self._orders = None
        return over

    def perform(self) -> None:
        """Perform pending effects, as far as slots allow. Raises the first WorldError after all were tried."""
        orders, self._orders = self._orders, None
        self.recovery.fetch_replies()
        self.starting.tools.ask()
        self.harnesses.collect_updates()
        self.performing.put_away()
        trouble = self.starting.trouble
        busy = self.calls.orders() | self.recovery.busy() | self.starting.tools.busy() | self.posting.hub.orders()
        for order in self._pending(self.engine.clock.now()) if orders is None else orders:
            if order.id in busy:
                continue
            try:
                self._by_effect[type(order.effect)].begin(order, order.effect)
            except StoreError:
                raise
            except WorldError as error:
                trouble = trouble or error  # the others continue
            except (ConfigError, MemoryError):
                raise
            except Exception as bug:
                _log.exception("a bug in mailboxd: could not perform %s; please report it", order.id)
                self.reports.append(*_given_up(order, turns.bug_failure(bug)))
        hub = self.posting.hub
        for keep in (self.starting.dispatches.sync, hub.recorded, self._take_receipts):
            try:  # even after an error above: messages need their files, and an overdue sync would keep waking the loop
                keep()
            except WorldError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def _take_receipts(self) -> None:
        """Report the outcome of the messages that the hub carried; call after all pending ones are in its spool."""
        for order, outcome in self.posting.hub.settled():
            if isinstance(order.effect, RunTurn):
                self.reports.append(TurnReport(order, order.effect, outcome))
            else:
                self.reports.append(HandedOver(order, "", outcome))

    def _pending(self, now: str) -> Iterator[Order]:
        """All pending orders, page by page, so that waiting ones do not block later ones."""
        passed, page = 0, BATCH
        while page == BATCH:
            orders = self.engine.store.outbox.pending(now, BATCH, passed)
            yield from orders
            page = len(orders)
            passed += page

    def ended(self, call: Call, exit_: Exit) -> None:
        """Take the result of a call; inside a batch."""
        if call.order is None:
            self.performing.gate_is_closed(call)
        elif (take := self._by_call[call.kind].ended) is not None:
            take(call.order, call, exit_)

    # performers

    def _stop_turns(self, order: Order, _effect: StopTurns) -> None:
        self.calls.stop(order.task, "the task was cancelled", self.engine.clock.monotonic())
        self.reports.append(Finished(order.id))

    def _answer_permission(self, order: Order, effect: AnswerPermission) -> None:
        self.harnesses.answer(effect)
        self.reports.append(Finished(order.id))

    def _look_up(self, order: Order, effect: LookUp) -> None:
        """Ask the harness about its own turn, OpenClaw's ledger about any other."""
        if not effect.harness:
            self.recovery.begin(order, effect)
        elif (outcome := self.harnesses.look_up(order, effect)) is not None:
            self.reports.append(LookupReport(order, effect, outcome))

    def _lookup_ended(self, order: Order, call: Call, exit_: Exit) -> None:
        if call.kind is CallKind.LOOKUP:
            self.recovery.ended(order, call, exit_)
        elif isinstance(order.effect, LookUp):
            self.reports.append(LookupReport(order, order.effect, self.harnesses.looked_up(call, exit_)))

    # recording, inside a batch

    def _record_turn(self, report: TurnReport) -> None:
        order, effect, outcome = report.order, report.effect, counted(report.outcome, report.submitted)
        made = beside(report.submitted)
        if effect.harness and report.called:
            outcome, made = self.harnesses.finish(effect, outcome)
        self.starting.tools.recorded(effect, outcome)
        task = self.engine.store.tasks.get(order.task)
        answer = self._answer(effect, task, outcome, report.submitted)
        if (
            task is not None
            and effect.turn in (Turn.WORK, Turn.SYNTHESIS)
            and order.agent == self.engine.settings.agent
        ):
            refused = self.before_turn_ends(task)
            if refused and (isinstance(answer, Results) or (isinstance(answer, Unclear) and answer.is_silence)):
                answer = Unclear((f"the plan in task.md was not taken: {refused}",), answer.text)
        if not effect.harness and is_suspicious(outcome):
            self.recovery.gateway.suspect(order.agent)
        self._take(order, turns.ended(order, effect, outcome, answer, called=report.called, made=made))
        succeeded = isinstance(outcome, Succeeded)
        self.engine.store.outbox.finish(order.id, "done" if succeeded else "failed")
        if succeeded:
            self.calls.discard_when_recorded(effect.turn_id)

    def _proven(self, ended: EndedTurn, submitted: Submitted | RefusedTooOften | None) -> None:
        """Report a turn that may have submitted an answer, now that its session was asked for."""
        if isinstance(ended.effect, RunTurn):
            self.reports.append(TurnReport(ended.order, ended.effect, ended.how, submitted=submitted))
        else:
            self.reports.append(LookupReport(ended.order, ended.effect, ended.how, submitted))

    def _answer(
        self,
        effect: RunTurn | LookUp,
        task: Task | None,
        outcome: Outcome,
        submitted: Submitted | RefusedTooOften | None,
    ) -> Answer | None:
        """The answer to what the turn asked for."""
        if task is None:
            return None
        return turns.answer(self.outgoing.prompting.asked(effect, task, self.engine.now), outcome, submitted)

    def _take(self, order: Order, ended: TurnEnded) -> None:
        """Record the end of a turn; a bug on the way must neither stop other work nor recur at each restart."""
        if heard := self.steering.heard(ended.session_key):
            ended = replace(ended, heard=heard)
        try:
            with self.engine.store.savepoint():
                self.engine.handle(order.task, ended, actor=ended.agent)
        except (WorldError, MemoryError):
            raise
        except Exception as bug:
            _log.exception("a bug in mailboxd: could not record the end of %s; please report it", order.id)
            self.engine.handle(
                order.task, replace(ended, outcome=turns.bug_failure(bug), answer=None), actor=ended.agent
            )

    def _record_lookup(self, report: LookupReport) -> None:
        order, effect, outcome = report.order, report.effect, counted(report.outcome, report.submitted)
        self.starting.tools.recorded(effect, outcome)
        answer = self._answer(effect, self.engine.store.tasks.get(order.task), outcome, report.submitted)
        self._take(order, turns.ended(order, effect, outcome, answer, made=beside(report.submitted)))
        self.engine.store.outbox.finish(order.id)

    def _compose(self, report: Composed) -> None:
        order = report.order
        task = self.engine.store.tasks.get(order.task)
        if task is not None and task.phase is Phase.EXECUTING:
            answer = composed(self.engine.store, task)
            agent, text = self.engine.settings.agent, answer.text if isinstance(answer, Results) else ""
            ended = TurnEnded(Turn.SYNTHESIS, report.effect.attempt_id, agent, Succeeded(text), answer, called=False)
            self._take(order, ended)
        self.engine.store.outbox.finish(order.id)


def _given_up(order: Order, failed: Failed) -> tuple[object, ...]:
    """The reports of an effect that can never be performed, so that it is not retried after every restart."""
    match order.effect:
        case RunTurn() as effect:
            return (TurnReport(order, effect, failed),)
        case LookUp() as effect:  # else its attempt would wait forever
            return (LookupReport(order, effect, Unknown(failed.error, looked_up=True)),)
        case _:
            return undelivered(order, order.id, order.agent, failed.error)
