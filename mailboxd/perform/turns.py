"""Starts turns, and says what their ends mean. `lost_turns` looks up those that were lost.

A turn is marked as begun in the transaction that allows it, and called after the commit. The mark names the boot of
the machine: within that boot, the call's directory proves whether the program ran; after a power cut it proves nothing,
and the outcome is looked up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from mailboxd.core.attempts import is_wanted
from mailboxd.core.effects import LookUp, RunTurn
from mailboxd.core.events import Kind
from mailboxd.core.inputs import TurnEnded
from mailboxd.core.model import Attempt, Task
from mailboxd.core.outcomes import Aborted, Answer, Failed, Made, Outcome, Permanence, Results, Succeeded, Unknown
from mailboxd.core.schedule import Capacity
from mailboxd.core.vocabulary import MAY_CONTINUE, Mode, Turn
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Happened, Reports
from mailboxd.errors import ConfigError, MessageError, StoreError, WorldError
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.answer_tools import AnswerTool
from mailboxd.formats.protocol.prompts import Cut
from mailboxd.formats.protocol.residue import is_cleaned
from mailboxd.ledger.store import Order
from mailboxd.perform.acp_turns import HarnessTurns
from mailboxd.perform.agents.answer_calls import RefusedTooOften, Submitted
from mailboxd.perform.agents.call_dir import PROMPT, Exit
from mailboxd.perform.agents.gateway.transport import GatewayTransport
from mailboxd.perform.agents.openclaw import refuse_message
from mailboxd.perform.agents.outcome import classify
from mailboxd.perform.agents.process import NotStarted, State, TurnTransport
from mailboxd.perform.answers_by_tool import AnswersByTool, read_submitted
from mailboxd.perform.day_caps import DayCaps
from mailboxd.perform.delivery import DispatchedMessages, undelivered
from mailboxd.perform.hub_mail import HubMail
from mailboxd.perform.message_builder import MessageBuilder
from mailboxd.perform.process_table import PATIENCE, Call, CallKind, ProcessTable

# The outcome of a turn, from the end of its call.


def bug_failure(bug: Exception) -> Failed:
    """The failure of a turn because of a bug in mailboxd, not because of its work."""
    # Only its type: the text of an exception may contain secrets.
    return Failed(f"a bug in mailboxd ({type(bug).__name__}); its log has the details", Permanence.PERMANENT)


def answer(asked: Asked, how: Outcome, submitted: Submitted | RefusedTooOften | None = None) -> Answer | None:
    """The answer that was submitted by a tool, else the one in a turn's text."""
    if isinstance(submitted, Submitted):
        return read_submitted(submitted, asked)
    return read_answer(how.text, asked) if isinstance(how, Succeeded) else None


def outcome(call: Call, exit_: Exit) -> Outcome:
    """The outcome of a turn whose call has ended; if mailboxd stopped the call, with the reason."""
    found = classify(exit_)
    if call.stopped and isinstance(found, Aborted):
        return Aborted(call.stopped)
    if call.stopped and isinstance(found, Unknown):
        return Unknown(f"{call.stopped}; it had to be killed, and {MAY_CONTINUE}", found.run_id)
    return found


def ended(
    order: Order,
    effect: RunTurn | LookUp,
    how: Outcome,
    said: Answer | None,
    *,
    called: bool = True,
    made: tuple[Made, ...] = (),
) -> TurnEnded:
    """The end of a turn, as an input of the core. An answer that was cleaned is kept as it came, too."""
    # a result that is the whole text has nothing around it
    is_whole = isinstance(how, Succeeded) and isinstance(said, Results) and said.text == how.text
    if not is_whole and isinstance(how, Succeeded) and is_cleaned(how.text):
        made = (*made, Made("other", how.text, "the answer as it came, with thoughts or marks around it"))
    return TurnEnded(
        effect.turn,
        effect.attempt_id,
        order.agent,
        how,
        said,
        effect.gate,
        called=called,
        made=made,
        harness=effect.harness,
        question=effect.note if isinstance(effect, RunTurn) and effect.turn is Turn.ANSWER else "",
        correction=effect.correction,
        turn_id=effect.turn_id,
        session_key=effect.session_key,
        prompt=effect.prompt if isinstance(effect, LookUp) else order.prompt,
    )


class Next(StrEnum):
    """The next step of a pending turn."""

    START = "start"
    ADOPT = "adopt"
    REPORT = "report"
    LOOK_UP = "look up"
    WAIT = "wait"


def next_step(found: State, begun: str | None, boot: str, *, is_marked: bool = True) -> Next:
    """The next step, by the state of the call's directory and the boot in which the turn was marked as begun.

    Within that boot, a call without a mark in its directory never ran. After a power failure this proves nothing.
    Turns of harnesses are not marked (`is_marked`).
    """
    if found is State.ENDED:
        return Next.REPORT
    if found is State.RUNNING:
        return Next.ADOPT
    if begun is None:
        return Next.WAIT if is_marked else Next.START
    return Next.START if begun == boot else Next.LOOK_UP


_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class TurnReport:
    """A report: the outcome of a turn."""

    order: Order
    effect: RunTurn
    outcome: Outcome
    called: bool = True
    """Its call was made, or may have been made."""
    submitted: Submitted | RefusedTooOften | None = None
    """What counts instead of its text: an answer by tool, or that too many were refused."""


@dataclass(frozen=True, slots=True)
class _Marked:
    """A turn that may start: its task and attempt, what its agent is given, and whether the hub carries that."""

    order: Order
    """As it is recorded now: with the digest of the prompt."""
    task: Task
    attempt: Attempt | None
    prompt: bytes
    tools: tuple[AnswerTool, ...]
    by_hub: bool


@dataclass(slots=True)
class TurnStarter:
    """Starts the turns of one workspace. `sign` signs a message if there is a key; `boot` identifies this boot."""

    engine: Engine
    calls: ProcessTable
    dispatcher: TurnTransport
    outgoing: MessageBuilder
    dispatches: DispatchedMessages
    harnesses: HarnessTurns
    sign: Callable[[bytes], bytes]
    boot: str
    reports: Reports
    hub: HubMail
    tools: AnswersByTool
    caps: DayCaps
    trouble: WorldError | None = None
    """The error that kept turns from being marked; the next round retries."""
    _fresh: dict[str, _Marked] = field(default_factory=dict)
    """Turns that this round has marked and not started, by order.

    They are not checked again after the commit: a cancel that arrives in between takes effect in the next round, as
    after the start of the call.
    """
    _programs: set[str] = field(default_factory=set)
    """Those that this round has marked for a process of OpenClaw's CLI: they have a model of their own."""

    # inside the batch

    def mark(self, orders: Iterable[Order], capacity: Capacity, *, harnesses_only: bool = False) -> int:
        """Mark the turns of these orders for which there is capacity, and build what their agents are given.

        `harnesses_only`: the gateway is down, which only harnesses do without.
        Returns how many ended at once instead. What keeps others waiting is stored for `why` and `status`.
        """
        self.trouble = None
        self._fresh.clear()
        self._programs.clear()
        over = 0
        for order in orders:
            effect = order.effect
            if not isinstance(effect, RunTurn) or (harnesses_only and not effect.harness):
                continue
            by_hub = self.hub.serves(effect.agent) and not effect.harness
            if not self._is_due(order, effect, by_hub=by_hub):
                continue
            if not self._has_slot(order, effect, capacity, by_hub=by_hub) or not self.caps.reserve(order):
                continue
            try:
                marked = self._mark(order, effect, by_hub=by_hub)
            except (StoreError, ConfigError, MemoryError):
                raise
            except WorldError as error:
                self.trouble = self.trouble or error
                continue
            except Exception as bug:
                _log.exception("a bug in mailboxd: could not perform %s; please report it", order.id)
                self.reports.record(TurnReport(order, effect, bug_failure(bug)))
                marked = False
            if marked and not by_hub:
                capacity.take(order.id, effect.agent, effect.session_key)
                if effect.model:
                    self._programs.add(order.id)
            over += not marked
        if over:  # its end may have ended others
            self._fresh.clear()
            capacity = self.calls.measure_capacity(self.engine.clock.monotonic())
        # marked turns count as running, so that starting them leaves nothing to record
        self.engine.store.meta.set_room(capacity)
        return over

    def _is_due(self, order: Order, effect: RunTurn, *, by_hub: bool) -> bool:
        """Whether a turn has still to be marked.

        One that was marked in this boot and provably did not start is marked again: its prompt is made anew.
        """
        if order.begun is None and not effect.harness:
            return True
        if effect.turn_id in self.calls.running or order.begun not in (None, self.boot):
            return False
        return not (by_hub and effect.sends_message) and self.calls.state(effect.turn_id) is State.NEVER_STARTED

    def _mark(self, order: Order, effect: RunTurn, *, by_hub: bool) -> bool:
        """Record that a turn may begin, with the digest of what its agent is given; False if it ended at once."""
        outbox, prompt = self.engine.store.outbox, order.prompt
        boot = None if effect.harness else self.boot
        if self.calls.state(effect.turn_id) is State.NEVER_STARTED:
            task, attempt = self._task_and_attempt(order)
            if task is None or not is_wanted(task, attempt, effect):
                if order.begun is not None and effect.sends_message:  # the message is recorded as sent
                    self.reports.record(undelivered(order, effect.message_id, effect.agent, "no longer wanted")[0])
                outbox.finish(order.id)
                return False
            made = self._given(order, effect, task, attempt, by_hub=by_hub)
            if isinstance(made, TurnReport):
                self.reports.record(made)
                return False
            raw, tools = made
            most = self.engine.settings.prompt_bytes
            prompt = self.engine.store.prompts.keep(raw, most, is_message=effect.sends_message)
            noted = replace(order, begun=boot, prompt=prompt)
            self._fresh[order.id] = _Marked(noted, task, attempt, raw, tools, by_hub)
        outbox.begin(order.id, boot, prompt)
        return True

    def _given(
        self, order: Order, effect: RunTurn, task: Task, attempt: Attempt | None, *, by_hub: bool
    ) -> tuple[bytes, tuple[AnswerTool, ...]] | TurnReport:
        """The exact bytes that the agent is given, and the tools by which it may answer; or why there are none."""
        tools: tuple[AnswerTool, ...] = ()
        is_message = effect.sends_message
        try:
            if is_message and order.begun is not None:
                return self._kept(effect), ()
            if is_message and attempt is not None:
                raw, cuts = self.outgoing.dispatch(effect, task, attempt, self.engine.now)
                raw = (self.hub.sign if by_hub else self.sign)(raw)
            else:
                said = self.outgoing.prompting.prompt(effect, task, by_tools=self.tools.are_for(effect))
                raw, cuts, tools = said.text.encode(), said.cuts, said.tools
            if effect.harness and attempt is not None:
                raw = self.harnesses.prompt(effect, task, attempt, raw)
        except MessageError as error:
            return TurnReport(order, effect, _unsendable(error), called=False)
        except NotStarted as missing:
            return TurnReport(order, effect, _missing(missing))
        for report in _cut_reports(task, cuts):
            self.reports.record(report)
        if (refused := refuse_message(raw)) is not None:
            return TurnReport(order, effect, refused, called=False)
        if is_message:
            self.dispatches.keep(effect, task, raw)
        return raw, tools

    # after the commit

    def begin(self, order: Order, effect: RunTurn) -> None:
        """Start a turn's call, or continue one of an earlier round or daemon. Raises WorldError."""
        if (marked := self._fresh.pop(order.id, None)) is not None:
            self._programs.discard(order.id)
            self._start(effect, marked)  # it has its slot
            return
        if effect.sends_message and self.hub.serves(effect.agent):
            if order.begun is not None:  # repeated; whether it is still wanted is checked when the receipt is there
                self.hub.put(order, effect.message_id, self._kept(effect))
            return
        match next_step(self.calls.state(effect.turn_id), order.begun, self.boot, is_marked=not effect.harness):
            case Next.REPORT:
                self._report(order, effect, classify(self.calls.left_behind(effect.turn_id)))
            case Next.ADOPT:
                call = self._new_call(order, effect, self.engine.store.tasks.get(order.task))
                self.calls.adopt(call, self.engine.clock.monotonic())
            case Next.LOOK_UP:
                # over the gateway a run is called as its call
                run_id = effect.turn_id if isinstance(self.dispatcher, GatewayTransport) and not effect.model else None
                why = "the machine was restarted, or the database is a copy: whether it ran is unknown"
                lost = Unknown(why, run_id)
                self.reports.append(TurnReport(order, effect, lost))
            case Next.START | Next.WAIT:
                pass  # it is marked, perhaps again, in the next transaction that lets turns begin

    def _start(self, effect: RunTurn, marked: _Marked) -> None:
        order, task, prompt = marked.order, marked.task, marked.prompt
        if marked.by_hub and effect.sends_message:
            self.hub.put(order, effect.message_id, prompt)
            return
        if marked.tools:
            known = self.engine.store.tasks.keys_of_children(task.id) if task.mode is Mode.COORDINATING else ()
            self.tools.offer(effect, task.local_id, marked.tools, known)
        call = self._new_call(order, effect, task)
        try:
            if effect.harness and marked.attempt is not None:
                self.harnesses.start(call, effect, task, marked.attempt, prompt)
                return
            file, timeout = self.calls.file(call.id, PROMPT), task.policy.timeout
            argv = self.dispatcher.turn_argv(effect.agent, effect.session_key, file, timeout, effect.model or None)
            self.calls.start(call, argv, self.engine.clock.monotonic(), files={PROMPT: prompt})
        except NotStarted as missing:
            self.reports.append(TurnReport(order, effect, _missing(missing)))

    def ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take the result of a turn, or the session that proves what it has submitted."""
        if call.kind is CallKind.PROOF:
            self.tools.ended(call, exit_)
        elif isinstance(order.effect, RunTurn):
            self._report(order, order.effect, outcome(call, exit_))

    def _report(self, order: Order, effect: RunTurn, how: Outcome) -> None:
        """Report the outcome of a turn, unless it may have submitted an answer: then that is looked up first."""
        if not self.tools.hold(order, effect, how):
            self.reports.append(TurnReport(order, effect, how))

    def _kept(self, effect: RunTurn) -> bytes:
        """The message that an earlier round or daemon kept. Raises KeyError."""
        raw = self.engine.store.messages.body(effect.message_id)
        if raw is None:
            raise KeyError(effect.message_id)
        return raw

    def _has_slot(self, order: Order, effect: RunTurn, capacity: Capacity, *, by_hub: bool) -> bool:
        """Whether a turn may start now: there is a slot, the agent's breaker allows it, and the task is not held."""
        if by_hub:
            may_start = not capacity.is_shut and self.engine.pacing.starts(order.agent) > 0
            return may_start and not self.engine.store.tasks.is_held(order.task)
        return (
            capacity.may_begin(order.agent, effect.session_key)
            and capacity.agents.get(order.agent, 0) < self.engine.pacing.starts(order.agent)
            and (not effect.model or self.calls.free_cli_processes() > len(self._programs))
            and not self.engine.store.tasks.is_held(order.task)
        )

    def _task_and_attempt(self, order: Order) -> tuple[Task | None, Attempt | None]:
        task = self.engine.store.tasks.get(order.task)
        return task, self.engine.store.tasks.attempt(order.task, task.attempt) if task else None

    def _new_call(self, order: Order, effect: RunTurn, task: Task | None) -> Call:
        timeout = (task.policy.timeout if task else self.engine.settings.policy.timeout) + PATIENCE
        kind = CallKind.HARNESS_TURN if effect.harness else CallKind.TURN
        marked = kind is CallKind.TURN
        return Call(effect.turn_id, kind, order.agent, effect.session_key, timeout, order, order.task, marked=marked)


def _cut_reports(task: Task, cuts: tuple[Cut, ...]) -> Iterator[Happened]:
    for cut in cuts:
        data: dict[str, Any] = {name: getattr(cut, name) for name in ("key", "size", "kept", "sha256", "path")}
        yield Happened(Kind.CONTEXT_CUT, task.id, data)


def _missing(missing: NotStarted) -> Failed:
    """A missing program is not the task's fault: the operator installs it, and the turn is retried."""
    return Failed(str(missing), started=False)


def _unsendable(error: MessageError) -> Failed:
    return Failed(f"the message cannot be sent: {error}", Permanence.PERMANENT, started=False)
