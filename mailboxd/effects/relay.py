"""Performs committed effects, and turns what comes of them into inputs.

`core.effects.PROMISES` says for each effect what a crash in the middle of it may lead to. What cannot be repeated is
marked before it is done (the call's directory, see `agents.process`), and looked up after a crash; everything else is
done first and marked afterwards, and may happen again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from mailboxd.agents.call_dir import Exit
from mailboxd.agents.readiness import is_suspicious
from mailboxd.core.effects import (
    AnswerPermission,
    Bounce,
    Compose,
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
from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.model import Task
from mailboxd.core.outcomes import Failed, Failure, Made, Outcome, Results, Silence, Succeeded, Unknown
from mailboxd.core.vocabulary import Phase, Turn
from mailboxd.effects import turns
from mailboxd.effects.acp_turns import Harnesses
from mailboxd.effects.action_performer import Performing
from mailboxd.effects.check_runner import Checking
from mailboxd.effects.delivery import Posting
from mailboxd.effects.message_builder import Outgoing
from mailboxd.effects.notifier import Notifying
from mailboxd.effects.process_table import Call, Calls
from mailboxd.effects.turns import Recovery, Starting
from mailboxd.engine.engine import Engine
from mailboxd.errors import ConfigError, StoreError, WorldError
from mailboxd.store.store import Order

BATCH = 500
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Relay:
    """One workspace's performer. `report` collects what the next transaction has to record."""

    engine: Engine
    calls: Calls
    outgoing: Outgoing
    starting: Starting
    posting: Posting
    recovery: Recovery
    checking: Checking
    harnesses: Harnesses
    performing: Performing
    notifying: Notifying
    before_turn_ends: Callable[[Task], str]
    """Reads what the agent wrote into its task.md, inside the batch that records the end of its turn.

    Returns why a plan it wrote there was not taken: its words "the plan stands in task.md" are then no result.
    """
    reports: list[Callable[[], None]]
    _orders: list[Order] | None = None
    """What the transaction of this round has left to perform; None = that is to be asked."""

    def __post_init__(self) -> None:
        self.starting.turn_ended = self._turn_ended

    def mark(self, *, begins: bool) -> int:
        """Mark the turns that `perform` will begin, if any `begins` now; inside the batch that lets them.

        Returns how many came to nothing instead.
        """
        self._orders = list(self._pending(self.engine.now)) if begins else None
        over = self.starting.mark(self._orders or [])
        if over:  # and what followed from that was ordered only then
            self._orders = None
        return over

    def perform(self) -> int:
        """Perform what is pending, as far as slots allow. Returns for how many the next round has to come at once."""
        orders, self._orders = self._orders, None
        begun = self.recovery.go_on()
        self.harnesses.look()
        self.performing.put_away()
        trouble = self.starting.trouble
        busy = self.calls.running.keys() | self.recovery.busy() | self.posting.busy()
        for order in self._pending(self.engine.clock.now()) if orders is None else orders:
            if order.id in busy:
                continue
            try:
                begun += self._perform(order)
            except StoreError:
                raise
            except WorldError as error:
                trouble = trouble or error  # this one waits; the others go on
            except (ConfigError, MemoryError):
                raise
            except Exception as bug:
                _log.exception("a bug of mailboxd: %s could not be performed; please report this", order.id)
                self.reports.append(partial(self._give_up, order, turns.of_bug(bug)))
        for keep in (self.starting.dispatches.write, self.starting.dispatches.sync):
            try:  # whatever was refused above: what was sent is not, and a sync that stays due keeps the loop awake
                keep()
            except WorldError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return begun

    def _pending(self, now: str) -> Iterator[Order]:
        """What there is to perform, page by page: what waits holds up nothing that was ordered after it."""
        passed, page = 0, BATCH
        while page == BATCH:
            orders = self.engine.store.outbox.pending(now, BATCH, passed)
            yield from orders
            page = len(orders)
            passed += page

    def _give_up(self, order: Order, failed: Failed) -> None:
        """Record an effect that can never be performed, so that it is not met again after every restart."""
        if isinstance(order.effect, RunTurn):
            self._turn_ended(order, order.effect, failed)
            return
        if isinstance(order.effect, LookUp):  # else its attempt would wait for an answer that nobody fetches any more
            self._looked_up((order, order.effect, Unknown(failed.error, looked_up=True)))
            return
        data = {"at": self.engine.now, "id": order.id, "to": order.agent, "reason": failed.error}
        self.engine.record(Event(Kind.MESSAGE_UNDELIVERED, order.task or None, data))
        self.engine.store.outbox.finish(order.id, "failed")

    def ended(self, call: Call, exit_: Exit) -> None:
        """Record what a call brought; inside a batch."""
        if self.recovery.owns(call):
            self._looked_up(self.recovery.ended(call, exit_))
        elif self.posting.owns(call):
            self.posting.ended(call, exit_)
        elif self.checking.owns(call):
            self.checking.ended(call, exit_)
        elif self.performing.owns(call):
            self.performing.ended(call, exit_)
        elif self.notifying.owns(call):
            self.notifying.ended(call, exit_)
        elif self.harnesses.owns(call):
            self._looked_up(self.harnesses.told(call, exit_))
        else:
            order = self.starting.ordered(call.id)
            if isinstance(order.effect, RunTurn):
                self._turn_ended(order, order.effect, turns.outcome(call, exit_))

    # -------------------------------------------------------------- effects

    def _perform(self, order: Order) -> bool:
        match order.effect:
            case RunTurn() as effect:
                return self.starting.begin(order, effect)
            case LookUp() as effect:
                return self._look_up(order, effect) if effect.harness else self.recovery.begin(order, effect)
            case AnswerPermission() as effect:
                self.harnesses.answer(effect)
            case RunCheck() as effect:
                return self.checking.begin(order, effect)
            case Prepare() | Perform() | Verify() as effect:
                return self.performing.begin(order, effect)
            case Notify() as effect:
                return not self.notifying.is_busy(order.id) and self.notifying.begin(order, effect)
            case StopTurns():
                self.calls.stop(order.task, "the task was cancelled", self.engine.clock.monotonic())
            case Compose() as effect:
                self.reports.append(lambda: self._compose(order, effect))
                return True
            case Send() | Bounce() | Resend():
                return self.posting.begin(order)
        self.reports.append(lambda: self.engine.store.outbox.finish(order.id))
        return True

    # -------------------------------------------------------------- what came of them

    def _turn_ended(self, order: Order, effect: RunTurn, outcome: Outcome, *, called: bool = True) -> None:
        made: tuple[Made, ...] = ()
        if effect.harness and called:
            outcome, made = self.harnesses.over(effect, outcome)
        answer = turns.answer(effect.turn, outcome)
        task = self.engine.store.tasks.get(order.task)
        if (
            task is not None
            and effect.turn in (Turn.WORK, Turn.SYNTHESIS)
            and order.agent == self.engine.settings.agent
        ):
            refused = self.before_turn_ends(task)
            if refused and isinstance(answer, Results | Silence):
                answer = Failure(f"the plan in task.md was not taken: {refused}")
        if not effect.harness and is_suspicious(outcome):
            self.recovery.gateway.suspect(order.agent)
        self._take(order, turns.ended(order, effect, outcome, answer, called=called, made=made))
        succeeded = isinstance(outcome, Succeeded)
        self.engine.store.outbox.finish(order.id, "done" if succeeded else "failed")
        if succeeded:
            self.calls.discard_when_recorded(effect.turn_id, self._shown_by(task, effect))

    def _shown_by(self, task: Task | None, effect: RunTurn) -> str:
        """The task whose task.md has to show that the turn was begun; "" when a message in outbox/ shows it already."""
        given_out = effect.turn is Turn.DISPATCH and not effect.harness and self.starting.dispatches.are_written
        return "" if task is None or given_out else task.shown_by

    def _take(self, order: Order, ended: TurnEnded) -> None:
        """A bug of ours must not stop the other work, nor meet the same answer again after every restart."""
        try:
            with self.engine.store.savepoint():
                self.engine.hear(order.task, ended, actor=ended.agent)
        except (WorldError, MemoryError):
            raise
        except Exception as bug:
            _log.exception("a bug of mailboxd: the end of %s could not be taken; please report this", order.id)
            self.engine.hear(order.task, replace(ended, outcome=turns.of_bug(bug), answer=None), actor=ended.agent)

    def _look_up(self, order: Order, effect: LookUp) -> bool:
        """Of a turn by a harness: nobody but the harness itself can be asked."""
        outcome = self.harnesses.look_up(order, effect)
        if outcome is not None:
            self.reports.append(lambda: self._looked_up((order, effect, outcome)))
        return outcome is not None

    def _looked_up(self, found: tuple[Order, LookUp, Outcome] | None) -> None:
        if found is not None:
            order, effect, outcome = found
            self._take(order, turns.ended(order, effect, outcome, turns.answer(effect.turn, outcome)))
            self.engine.store.outbox.finish(order.id)

    def _compose(self, order: Order, effect: Compose) -> None:
        task = self.engine.store.tasks.get(order.task)
        if task is not None and task.phase is Phase.EXECUTING:
            text, answer = self.outgoing.composed(task)
            agent = self.engine.settings.agent
            ended = TurnEnded(Turn.SYNTHESIS, effect.attempt_id, agent, Succeeded(text), Results(text, answer))
            self._take(order, replace(ended, called=False))
        self.engine.store.outbox.finish(order.id)
