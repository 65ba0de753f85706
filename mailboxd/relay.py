"""Performs committed effects, and turns what comes of them into inputs.

PROMISES says for each effect what a crash in the middle of it may lead to. What cannot be repeated is marked before
it is done (the call's directory, see `agents.process`), and looked up after a crash; everything else is done first
and marked afterwards, and may happen again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.openclaw import OpenClaw, refuse_message
from mailboxd.agents.outcome import classify
from mailboxd.agents.process import NotStarted, State
from mailboxd.calls import PATIENCE, Call, Calls, NewCall
from mailboxd.core.effects import Bounce, Compose, LookUp, Resend, RunTurn, Send, StopTurns
from mailboxd.core.events import Event, Kind
from mailboxd.core.inputs import (
    Aborted,
    Answer,
    Failed,
    Failure,
    Outcome,
    Permanence,
    Results,
    Succeeded,
    TurnEnded,
    Unknown,
)
from mailboxd.core.terms import AttemptStatus, Phase, Turn
from mailboxd.core.types import Attempt, Task
from mailboxd.engine import Engine
from mailboxd.errors import ConfigError, MessageError, StoreError, WorldError
from mailboxd.messages.answer import read_answer
from mailboxd.messages.context import Cut
from mailboxd.outgoing import Outgoing
from mailboxd.posting import Posting
from mailboxd.recovery import Recovery
from mailboxd.store.store import Order

PROMISES: Mapping[str, str] = {
    "run_turn": "started at most once; a crash in the middle is looked up, never repeated blindly",
    "look_up": "may be repeated: it only asks",
    "stop_turns": "may be repeated: a call that has ended is not signalled",
    "compose": "may be repeated: the same children give the same text, and the attempt is a fence",
    "send": "the file is written once; handed over again only to a receiver that knows messages by their id",
    "resend": "handed over again only to a receiver that knows messages by their id",
    "bounce": "the file is written once; handed over again only to a receiver that knows messages by their id",
}
BATCH = 500
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Relay:
    """One workspace's performer. `report` collects what the next transaction has to record."""

    engine: Engine
    calls: Calls
    openclaw: OpenClaw
    outgoing: Outgoing
    posting: Posting
    recovery: Recovery
    before_turn_ends: Callable[[Task], str]
    """Reads what the agent wrote into its task.md, inside the batch that records the end of its turn.

    Returns why a plan it wrote there was not taken: its words "the plan stands in task.md" are then no result.
    """
    reports: list[Callable[[], None]]

    def perform(self) -> int:
        """Perform what is pending, as far as slots allow. Returns how many effects were begun or done."""
        begun = self.recovery.go_on()
        trouble: WorldError | None = None
        for order in self.engine.store.pending(self.engine.clock.now(), BATCH):
            if order.id in self.calls.running or self.recovery.is_busy(order.id) or self.posting.is_busy(order.id):
                continue
            try:
                begun += self._perform(order)
            except StoreError:
                raise
            except WorldError as error:
                trouble = trouble or error  # this one waits; the others go on
            except ConfigError:
                raise
            except Exception as bug:
                _log.exception("a bug of mailboxd: %s could not be performed; please report this", order.id)
                self.reports.append(partial(self._give_up, order, _bug(bug)))
        if trouble is not None:
            raise trouble
        return begun

    def _give_up(self, order: Order, failed: Failed) -> None:
        """Record an effect that can never be performed, so that it is not met again after every restart."""
        if isinstance(order.effect, RunTurn):
            self._turn_ended(order, order.effect, failed)
            return
        data = {"at": self.engine.now, "id": order.id, "to": order.agent, "reason": failed.error}
        self.engine.record(Event(Kind.MESSAGE_UNDELIVERED, order.task or None, data))
        self.engine.store.finish(order.id, "failed")

    def ended(self, call: Call, exit_: Exit) -> None:
        """Record what a call brought; inside a batch."""
        if self.recovery.owns(call):
            self._looked_up(self.recovery.ended(call, exit_))
        elif self.posting.owns(call):
            self.posting.ended(call, exit_)
        else:
            order = self.engine.store.order_of(call.id)
            if isinstance(order.effect, RunTurn):
                self._turn_ended(order, order.effect, _outcome(call, exit_))

    def has_room(self, agent: str) -> bool:
        settings = self.engine.settings
        return len(self.calls.running) < settings.slots and self.calls.of_agent(agent) < settings.slots_per_agent

    # -------------------------------------------------------------- effects

    def _perform(self, order: Order) -> bool:
        match order.effect:
            case RunTurn() as effect:
                return self._run_turn(order, effect)
            case LookUp() as effect:
                return self.recovery.begin(order, effect)
            case StopTurns():
                self.calls.stop(order.task, "the task was cancelled", self.engine.clock.monotonic())
            case Compose() as effect:
                self.reports.append(lambda: self._compose(order, effect))
                return True
            case Send() | Bounce() | Resend():
                return self.posting.begin(order)
        self.reports.append(lambda: self.engine.store.finish(order.id))
        return True

    def _run_turn(self, order: Order, effect: RunTurn) -> bool:
        found = self.calls.state(effect.turn_id)
        if found is not State.NEVER_STARTED and effect.turn is Turn.DISPATCH:
            self.posting.record_written(effect.message_id, "task", order)
        if found is State.ENDED:
            exit_ = self.calls.left_behind(effect.turn_id)
            self.reports.append(lambda: self._turn_ended(order, effect, classify(exit_)))
            return True
        if found is State.RUNNING:
            return self.calls.adopt(self._new_call(order, effect), self.engine.clock.monotonic())
        if not self.has_room(order.agent) or self.calls.is_busy(effect.session_key):
            return False
        return self._start_turn(order, effect)

    def _start_turn(self, order: Order, effect: RunTurn) -> bool:
        task = self.engine.store.task(order.task)
        attempt = self.engine.store.attempt(order.task, task.attempt) if task else None
        if task is None or not _is_wanted(task, attempt, effect):
            self.reports.append(lambda: self.engine.store.finish(order.id))
            return True
        prompt = self._prompt(task, attempt, effect)
        if isinstance(prompt, Failed):
            self.reports.append(lambda: self._turn_ended(order, effect, prompt))
            return True
        file = self.calls.prepare(effect.turn_id, prompt)
        argv = self.openclaw.turn_argv(effect.agent, effect.session_key, file, task.policy.timeout)
        try:
            self.calls.start(self._new_call(order, effect), argv, self.engine.clock.monotonic())
        except NotStarted as missing:
            # A missing program is the operator's to mend, not the task's fault: it waits and is tried again.
            outcome = Failed(str(missing), started=False)
            self.reports.append(lambda: self._turn_ended(order, effect, outcome))
        return True

    def _prompt(self, task: Task, attempt: Attempt | None, effect: RunTurn) -> bytes | Failed:
        """The bytes of the turn's message, or why there are none (it would be too large for its receiver)."""
        try:
            raw = self._written_prompt(task, attempt, effect)
            return refuse_message(raw) or raw
        except MessageError as error:
            return Failed(f"the message cannot be sent: {error}", Permanence.PERMANENT, started=False)

    def _written_prompt(self, task: Task, attempt: Attempt | None, effect: RunTurn) -> bytes:
        """A dispatch is a file in outbox/ first, and is sent as it lies there."""
        if effect.turn is Turn.DISPATCH and attempt is not None:
            raw, cuts = self.outgoing.dispatch(effect, task, attempt, self.engine.clock.now())
            raw = self.posting.write(effect.message_id, "task", task.local_id, effect.agent, raw, task.id)
        else:
            said = self.outgoing.prompt(effect, task)
            raw, cuts = said.text.encode(), said.cuts
        if cuts:
            self.reports.append(lambda: self._record_cuts(task, cuts))
        return raw

    def _record_cuts(self, task: Task, cuts: tuple[Cut, ...]) -> None:
        for cut in cuts:
            data: dict[str, Any] = {name: getattr(cut, name) for name in ("key", "size", "kept", "sha256", "path")}
            self.engine.record(Event(Kind.CONTEXT_CUT, task.id, {"at": self.engine.now, **data}))

    def _new_call(self, order: Order, effect: RunTurn) -> NewCall:
        task = self.engine.store.task(order.task)
        timeout = task.policy.timeout if task else self.engine.settings.policy.timeout
        return NewCall(effect.turn_id, order.agent, effect.session_key, timeout + PATIENCE, order.task)

    # -------------------------------------------------------------- what came of them

    def _turn_ended(self, order: Order, effect: RunTurn, outcome: Outcome) -> None:
        answer = read_answer(outcome.text) if isinstance(outcome, Succeeded) else None
        task = self.engine.store.task(order.task)
        if (
            task is not None
            and effect.turn in (Turn.WORK, Turn.SYNTHESIS)
            and order.agent == self.engine.settings.agent
        ):
            refused = self.before_turn_ends(task)
            if refused and isinstance(answer, Results):
                answer = Failure(f"the plan in task.md was not taken: {refused}")
        self._hear(order, effect, outcome, answer)
        succeeded = isinstance(outcome, Succeeded)
        self.engine.store.finish(order.id, "done" if succeeded else "failed")
        if succeeded:
            self.calls.discard_when_recorded(effect.turn_id)

    def _hear(self, order: Order, effect: RunTurn | LookUp, outcome: Outcome, answer: Answer | None) -> None:
        self._take(order, TurnEnded(effect.turn, effect.attempt_id, order.agent, outcome, answer, effect.gate))

    def _take(self, order: Order, ended: TurnEnded) -> None:
        """A bug of ours must not stop the other work, nor meet the same answer again after every restart."""
        try:
            with self.engine.store.savepoint():
                self.engine.hear(order.task, ended, actor=ended.agent)
        except WorldError:
            raise
        except Exception as bug:
            _log.exception("a bug of mailboxd: the end of %s could not be taken; please report this", order.id)
            self.engine.hear(order.task, replace(ended, outcome=_bug(bug), answer=None), actor=ended.agent)

    def _looked_up(self, found: tuple[Order, LookUp, Outcome] | None) -> None:
        if found is not None:
            order, effect, outcome = found
            answer = read_answer(outcome.text) if isinstance(outcome, Succeeded) else None
            self._hear(order, effect, outcome, answer)
            self.engine.store.finish(order.id)

    def _compose(self, order: Order, effect: Compose) -> None:
        task = self.engine.store.task(order.task)
        if task is not None and task.phase is Phase.EXECUTING:
            text, answer = self.outgoing.composed(task)
            agent = self.engine.settings.agent
            self._take(
                order, TurnEnded(Turn.SYNTHESIS, effect.attempt_id, agent, Succeeded(text), Results(text, answer))
            )
        self.engine.store.finish(order.id)


def _bug(bug: Exception) -> Failed:
    # Only its kind: the words of an exception may hold what must not be in messages.
    return Failed(f"a bug of mailboxd ({type(bug).__name__}); its log has the details", Permanence.PERMANENT)


def _is_wanted(task: Task, attempt: Attempt | None, effect: RunTurn) -> bool:
    """Whether the turn is still what the task waits for: it may have been cancelled while it was pending."""
    if effect.turn is Turn.REVIEW:
        return effect.gate is not None and task.phase.value == effect.gate.value
    return (
        task.phase is Phase.EXECUTING
        and attempt is not None
        and attempt.id == effect.attempt_id
        and attempt.status is AttemptStatus.RUNNING
    )


def _outcome(call: Call, exit_: Exit) -> Outcome:
    outcome = classify(exit_)
    if call.stopped and isinstance(outcome, Aborted):
        return Aborted(call.stopped)
    if call.stopped and isinstance(outcome, Unknown):
        return Unknown(f"{call.stopped}; it had to be killed, and may go on in the gateway", outcome.run_id)
    return outcome
