"""Outgoing messages: written to outbox/ once, and handed over to their receiver.

A message is handed over again only to a receiver that recognises it by its id (a mailboxd peer, identified by the
attempt id or token that it sent). For any other receiver an unknown outcome is recorded as undelivered, and a person
decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mailboxd.core import decide
from mailboxd.core.effects import Bounce, Resend, RunTurn, Send
from mailboxd.core.events import Event, Kind
from mailboxd.core.model import Task, backoff
from mailboxd.core.outcomes import Failed, Outcome, Succeeded
from mailboxd.core.session_keys import message_key
from mailboxd.core.times import plus
from mailboxd.core.vocabulary import OPERATORS, same_agent
from mailboxd.engine.engine import Engine
from mailboxd.engine.late_messages import tells_of_end
from mailboxd.engine.reports import Finished, Happened, Noted, Reports
from mailboxd.errors import WorldError
from mailboxd.formats.mailbox import maildir
from mailboxd.formats.mailbox.files import read_file, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.ledger.messages import SYNCED
from mailboxd.ledger.store import Order
from mailboxd.perform.agents.call_dir import PROMPT, Exit
from mailboxd.perform.agents.outcome import classify, host_failure
from mailboxd.perform.agents.process import NotStarted, State, TurnTransport
from mailboxd.perform.agents.readiness import Gateway, is_suspicious
from mailboxd.perform.hub_mail import HubMail
from mailboxd.perform.message_builder import MessageBuilder, place_of, row_of_sent
from mailboxd.perform.process_table import PATIENCE, Call, CallKind, ProcessTable

MOST_TRIES = 8
_LARGEST = 8 << 20


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A report: the outcome of handing a message to its receiver."""

    order: Order
    call_id: str
    """Empty if the hub carried it."""
    outcome: Outcome


@dataclass(slots=True)
class MessageDelivery:
    engine: Engine
    calls: ProcessTable
    dispatcher: TurnTransport
    outgoing: MessageBuilder
    ws: Workspace
    route: Callable[[str], str | None]
    """Why an agent cannot be reached; None = it can."""
    reports: Reports
    hub: HubMail
    sign: Callable[[bytes], bytes] = bytes
    """Signs an outgoing message if there is a key; otherwise returns it unchanged."""
    gateway: Gateway = field(default_factory=Gateway)
    _waiting: set[str] = field(default_factory=set)
    """Orders whose messages are in outbox/ and wait for a slot or for their receiver; there may be thousands."""

    def __post_init__(self) -> None:
        self.reports.route(HandedOver, self._settle)

    def write(self, message_id: str, kind: str, local_id: str, to: str, raw: bytes, task: str) -> bytes:
        """Write a message to outbox/ and return the bytes of its file.

        If an earlier daemon has written it, that file is kept: a message is built once. Raises WorldError.
        """
        path = place_of(message_id, kind, to, local_id)
        raw = self._read(path) or (self.hub.sign if self.hub.serves(to) else self.sign)(raw)
        maildir.write(self.ws, path, raw)
        if self.engine.store.messages.sent_path(message_id) is None:
            about = "" if task else local_id
            message = row_of_sent(message_id, kind, self.engine.settings.agent, to, path, raw, about)
            self.reports.append(Happened(Kind.MESSAGE_SENT, task or None, {"message": message}))
        return raw

    def begin(self, order: Order, _effect: Send | Bounce | Resend) -> None:
        """Write a message and hand it over; continues where an earlier daemon stopped."""
        if order.id in self._waiting and not self._may_begin(self._receiver(order)):
            return
        self._waiting.discard(order.id)
        message_id = self._message_id(order)
        if message_id is None or self._is_overtaken(order, message_id):
            self.reports.append(Finished(order.id))
            return
        to, raw = self._written(order, message_id)
        reason = "" if self._is_answered_in_chat(order, to) else self._unreachable(to)
        if reason is None and self.hub.serves(to):
            self.hub.put(order, message_id, raw)
        elif reason is None:
            self._hand_over(order, to, raw)
        else:
            self.reports.append(*self._given_up(order, message_id, to, reason))

    def ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take the result of handing a message over."""
        self.reports.append(HandedOver(order, call.id, classify(exit_)))

    def _receiver(self, order: Order) -> str:
        if isinstance(order.effect, Send | Bounce):
            return order.effect.to
        task = self.engine.store.tasks.get(order.task)
        return task.sender if task else ""

    def _message_id(self, order: Order) -> str | None:
        if isinstance(order.effect, Send | Bounce):
            return order.effect.message_id
        return self.engine.store.messages.latest_reply(order.task)

    def _is_overtaken(self, order: Order, message_id: str) -> bool:
        """Whether the work was dispatched again before this reply was written: it would report the wrong end."""
        if not isinstance(order.effect, Send) or order.effect.type != "reply":
            return False
        task = self.engine.store.tasks.get(order.task)
        if task is None or tells_of_end(task, message_id):
            return False
        return not self._read(place_of(message_id, "reply", order.effect.to, task.local_id))

    def _written(self, order: Order, message_id: str) -> tuple[str, bytes]:
        """The receiver and the bytes of a message, from outbox/ if it is there."""
        now = self.engine.clock.now()
        task = self.engine.store.tasks.get(order.task)
        match order.effect:
            case Bounce() as effect:
                raw = self.outgoing.bounce(effect, now)
                return effect.to, self.write(message_id, "reply", effect.task_id, effect.to, raw, "")
            case Send() as effect if task is not None:
                raw = self.outgoing.message(effect, task, now)
                return effect.to, self.write(message_id, effect.type, task.local_id, effect.to, raw, task.id)
            case _:
                path = self.engine.store.messages.sent_path(message_id)
                raw = self._read(path) if path else b""
                if raw or task is None:
                    return (task.sender if task else ""), raw
                # its file is gone from outbox/: what is written anew is another message, with an id of its own
                again = Send(f"msg{order.id[3:]}", "reply", task.sender)
                raw = self.outgoing.message(again, task, now)
                return task.sender, self.write(again.message_id, "reply", task.local_id, task.sender, raw, task.id)

    def _read(self, path: str) -> bytes:
        place, name = path.rsplit("/", 1)
        with world_errors(f"read mailbox/{path}"), maildir.require_day(self.ws, place) as fd:
            return read_file(fd, name, _LARGEST) or b""

    def _is_answered_in_chat(self, order: Order, to: str) -> bool:
        """Whether the agent gave this work away in a chat, which gets the answer by a notice."""
        task = self.engine.store.tasks.get(order.task)
        return task is not None and bool(task.origin.reply_to) and same_agent(to, self.engine.settings.agent)

    def _unreachable(self, to: str) -> str | None:
        if to in OPERATORS:
            return ""
        if to == self.engine.settings.agent:
            return "it is addressed to this agent itself"
        return self.route(to)

    def _hand_over(self, order: Order, to: str, raw: bytes) -> None:
        call_id = f"{order.id}.{order.tries}"
        key = message_key(to, order.task or "bounce", self.engine.settings.agent, order.id)
        timeout = self.engine.settings.policy.timeout
        call = Call(call_id, CallKind.MESSAGE, to, key, timeout + PATIENCE, order, order.task)
        now = self.engine.clock.monotonic()
        found = self.calls.state(call_id)
        if found is State.ENDED:
            self.reports.append(HandedOver(order, call_id, classify(self.calls.left_behind(call_id))))
            return
        if found is State.RUNNING and self.calls.adopt(call, now):
            return
        if not self._may_begin(to):
            self._waiting.add(order.id)
            return
        argv = self.dispatcher.turn_argv(to, key, self.calls.file(call_id, PROMPT), timeout)
        try:
            self.calls.start(call, argv, now, files={PROMPT: raw})
        except NotStarted as missing:
            self.reports.append(HandedOver(order, call_id, Failed(str(missing), started=False)))

    def _may_begin(self, to: str) -> bool:
        if self.gateway.is_down or self.engine.pacing.is_shut(to):
            return False
        return self.calls.capacity.may_begin()

    def _settle(self, handed: HandedOver) -> None:
        """Record that a message was handed over, will be retried, or is given up; inside a batch."""
        order, outcome = handed.order, handed.outcome
        message_id = self._message_id(order) or ""
        self._record_cost(order, outcome)
        if isinstance(outcome, Succeeded) or (isinstance(outcome, Failed) and outcome.silent):
            self.engine.store.outbox.finish(order.id)
            if handed.call_id:
                self.calls.discard_when_recorded(handed.call_id)
            return
        error = outcome.error
        if is_suspicious(outcome):
            self.gateway.suspect(self._receiver(order))
        never_arrived = (isinstance(outcome, Failed) and not outcome.started) or host_failure(error) is not None
        may_repeat = bool(handed.call_id) and (never_arrived or self._knows_ids(order))
        if may_repeat and order.tries + 1 < MOST_TRIES:
            wait = backoff(self.engine.settings.policy, order.tries + 1, self.engine.random.random(), 0.2)
            self.engine.store.outbox.postpone(order.id, plus(self.engine.now, wait))
        else:
            for report in self._given_up(order, message_id, self._receiver(order), error):
                self.reports.record(report)

    def _record_cost(self, order: Order, outcome: Outcome) -> None:
        """Record what it cost when a model read the message, although that is not a turn of the task."""
        spent = decide.turn_data("message", self._receiver(order), "", outcome)
        if spent["usage"]:
            data = {"at": self.engine.now, "turn": spent | {"fault": False, "ran": False}}
            self.engine.record(Event(Kind.TURN_ENDED, order.task or None, data))

    def _knows_ids(self, order: Order) -> bool:
        """Whether the receiver deduplicates messages: it has sent an attempt id, so it is a mailboxd peer."""
        if isinstance(order.effect, Bounce):
            return order.effect.attempt_id is not None
        task = self.engine.store.tasks.get(order.task)
        if task is None:
            return False
        if isinstance(order.effect, Send) and order.effect.type in ("answer", "cancel", "steer"):
            return True  # these are sent only to a peer that has acknowledged
        return task.origin.attempt_id is not None

    def _given_up(self, order: Order, message_id: str, to: str, reason: str) -> tuple[object, ...]:
        """The reports of a message that stays in outbox/: without a reason it is for a person, who reads it there."""
        return undelivered(order, message_id, to, reason) if reason else (Finished(order.id),)


def undelivered(order: Order, message_id: str, to: str, reason: str) -> tuple[Happened, Finished]:
    """The reports of a message that cannot be delivered."""
    data = {"id": message_id, "to": to, "reason": reason}
    return Happened(Kind.MESSAGE_UNDELIVERED, order.task or None, data), Finished(order.id, "failed")


# The messages that give work out: kept in the transaction that sends them.
#
# The database makes them durable, so no call waits for their files: those are written and synced together, a second
# later. What a crash or a power cut took of them until then is written when the daemon starts.

_LATER = 1.0
"""Seconds after which the files are written."""


@dataclass(slots=True)
class DispatchedMessages:
    engine: Engine
    ws: Workspace
    reports: Reports
    due: float | None = 0.0
    """When files are to be written, on the monotonic clock; None = all messages have theirs."""
    _doubtful: bool = True
    """Nothing is known of the files there: an earlier daemon wrote them, or the disk has failed to sync."""

    def keep(self, effect: RunTurn, task: Task, raw: bytes) -> bytes:
        """Record that a message is sent, with its bytes; inside the batch that lets its turn begin."""
        path = place_of(effect.message_id, "task", effect.agent, task.local_id)
        message = row_of_sent(effect.message_id, "task", self.engine.settings.agent, effect.agent, path, raw)
        self.engine.store.messages.keep_body(effect.message_id, raw)
        self.engine.record(Event(Kind.MESSAGE_SENT, task.id, {"at": self.engine.now, "message": message}))
        if self.due is None:
            self.due = self.engine.clock.monotonic() + _LATER
        return raw

    def sync(self, *, now: bool = False) -> None:
        """Write the files of the messages that have none, durably, if it is time to (or `now`).

        Raises WorldError; repeat it then.
        """
        if self.due is None or not (now or self.engine.clock.monotonic() >= self.due):
            return
        self.due = self.engine.clock.monotonic() + _LATER
        last, unsynced = self.engine.store.last_event(), self.engine.store.messages.unsynced()
        try:
            if self._doubtful:  # after a failure a second fsync would only say that nothing is left to write
                for path, raw in unsynced:
                    maildir.restore(self.ws, path, raw)
            else:
                maildir.put(self.ws, unsynced)
            maildir.sync(self.ws, [path for path, _ in unsynced])
        except WorldError:
            self._doubtful = True
            raise
        self.due, self._doubtful = None, False
        if unsynced:
            self.reports.append(Noted(SYNCED, str(last)))
