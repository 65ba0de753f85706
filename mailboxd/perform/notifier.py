"""Notifies people of what waits for them and how their work ended: by the operator's program or through OpenClaw.

The end of a task and its questions also go to its `reply_to`, a chat or session that the configuration has to allow; to
a session also what the task waits for. A session gets a row of its transcript (`session_notes`), without a call of the
model; its agent gets a turn if the address says so (`wake:KEY`), if the gateway has no plugin that writes rows, or if
that session has not begun.

A notice is a courtesy. Nothing waits for it, it takes no slot, and a duplicate does no harm: its `id` is the same, and
OpenClaw drops a reply that it has just sent. It has the text and command of `mailboxd inbox`. For an approval, a
channel gets only the id and not the action, because anyone may be reading there.

What happens at once is told at once: notices of one kind that are ordered together become one message, with their
number, the first few and one command (`core.notices.due`). In quiet hours notices wait, and are told together when
these end; what is decided without a person before that is told all the same, and so are replies to who asked. When
notices are sent is a moment in the outbox, and the next digest one among the values of the store: both are in the
journal, and survive a crash and a rebuild. When a message was last sent is only remembered: a restart may send earlier.

A target that fails is tried again for most of a day, and at every start. From the fourth failure on it is in the inbox,
until it has been reached or a person dismisses it. A notice that no longer applies when it would be sent is dropped.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, tzinfo
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from mailboxd.core.approvals import Action, ActionKind, Approval, Performed, Purpose
from mailboxd.core.effects import Notify
from mailboxd.core.events import Event, Kind
from mailboxd.core.explain import why
from mailboxd.core.model import Task
from mailboxd.core.notices import as_sent, due, named, read_quiet, words_on_record
from mailboxd.core.sanitize import first_line, for_page
from mailboxd.core.spending import of_cap
from mailboxd.core.summary import summary_line
from mailboxd.core.times import moment, plus, to_epoch
from mailboxd.core.vocabulary import SESSION, WAKE, Notice, Phase
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.errors import ConfigError, MailboxdError, WorldError
from mailboxd.formats import config
from mailboxd.formats.config.model import NotifySection
from mailboxd.formats.config.operator_zone import called
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.markdown import quote_fence
from mailboxd.formats.protocol.repeats import RuleTimes, read_repeat
from mailboxd.formats.user import registry
from mailboxd.ledger import attention, overview
from mailboxd.ledger.attention import Item, Need
from mailboxd.ledger.attention_queries import opened_together
from mailboxd.ledger.overview import Decision, Overview, Place, Running
from mailboxd.ledger.store import Order
from mailboxd.perform.actions.command import ProgramResult, message_argv, message_problem, message_result
from mailboxd.perform.actions.result import summary_of
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.process import NotStarted, State
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.process_table import Call, CallKind, ProcessTable
from mailboxd.perform.session_notes import NOTE, NoteEnd, Written, note_params, read_note

SECONDS = 60.0
"""The longest time, in seconds, that a notice may take."""
PAUSES = (5.0, 30.0, 120.0, 900.0, 3_600.0, 14_400.0, 43_200.0)
"""Seconds before each retry: a gateway, or a machine that is told, may be down for hours."""
QUIET_TRIES = 3
"""Failures that nobody has to look at: a restart takes less."""
MOST_AT_ONCE = 4
"""Programs of notices that run at once; the others wait."""
_GATHERED = 120.0
"""Seconds that the notice of an open circuit waits at most for others of the same reason, which it then tells of."""
CHAT_CHARS = 2_000
"""The longest part of a result or question for a channel; many limit a message to 4,096 characters."""
ROW_CHARS = 8_000
"""The longest part for a row of a session, which every later turn there reads."""
AGAIN = 3600.0
"""Seconds within which a recurring problem is reported once."""
_COMMAND, _CHANNEL, _REPLY = "command", "channel", "reply"
_CHAT, _TURN = "chat", "turn"
"""What follows a row of a session: a message to the messenger's chat that it belongs to; or a turn in its place."""
_NOTICE = "notice.json"
_ASKED = frozenset({"question", "spec"})
_NEEDS = {
    Notice.QUESTION: frozenset({Need.QUESTION, Need.SPEC}),
    Notice.APPROVAL: frozenset({Need.APPROVAL}),
    Notice.CIRCUIT: frozenset({Need.CIRCUIT}),
    Notice.HOLD: frozenset({Need.HOLD}),
}


@dataclass(frozen=True, slots=True)
class NoticeMessage:
    """A notice, which the operator's program gets as JSON with the fields in this order. A retry has the same `id`."""

    id: str
    kind: Notice
    agent: str
    workspace: str
    task: str
    title: str
    text: str
    """A sentence, as in the inbox."""
    body: str
    """The result, the error or the question, in full."""
    command: str
    """The command that shows or resolves it; runs as printed."""
    since: str | None
    until: str | None
    approval: Mapping[str, Any] | None = None
    link: str = ""
    """The address of the page about it."""
    notices: tuple[NoticeMessage, ...] = ()
    """Those that are told together, each in full; then `task`, `title` and `approval` are empty."""


@dataclass(frozen=True, slots=True)
class NoticeWaits:
    """A report: the notice is to be sent later."""

    order: Order
    until: str


@dataclass(frozen=True, slots=True)
class NoticeEnded:
    """A report: the notice was tried at all its targets."""

    order: Order


@dataclass(slots=True)
class Sending:
    """A notice that is being sent."""

    said: NoticeMessage
    problems: dict[str, str] = field(default_factory=dict)
    """By way: the error of the latest try; empty = sent."""
    addressees: dict[str, str] = field(default_factory=dict)
    """By way, as people read it."""
    recorded: set[str] = field(default_factory=set)
    """The ways by which it was sent, according to the log."""
    chat: Mapping[str, str] | None = None
    """The messenger's chat of the session that has the row."""
    by_turn: bool = False
    """The session has no row, but gets a turn."""
    others: tuple[tuple[Order, str], ...] = ()
    """The orders of the other notices that it tells of, with their texts; empty = it applies no longer."""
    later: str | None = None
    """The end of the quiet hours in which only who asked is told."""

    @property
    def sent(self) -> frozenset[str]:
        """The ways by which it was sent, and is not again."""
        return frozenset(way for way, problem in self.problems.items() if not problem)

    @property
    def follows(self) -> bool:
        """Whether something is to be sent because of how a note has ended."""
        return (self.by_turn and _TURN not in self.problems) or (self.chat is not None and _CHAT not in self.problems)


@dataclass(slots=True)
class PeopleNotifier:
    """One workspace's notices."""

    engine: Engine
    calls: ProcessTable
    ws: Workspace
    ways: NotifySection
    gateway: GatewayCalls
    """What reaches channels and sessions."""
    reports: Reports
    sending: dict[str, Sending] = field(default_factory=dict)
    """By order."""
    zone: tzinfo = UTC
    page: str = ""
    """The address of the page; empty = there is none."""
    together: bool = False
    """Whether notices wait a moment for others of their kind, to be one message."""
    _told_with: dict[str, str] = field(default_factory=dict)
    """The orders of notices that another one tells of, which it is by."""
    _last: dict[Notice, str] = field(default_factory=dict)
    """When a message with notices of the kind was last sent."""

    def __post_init__(self) -> None:
        self.reports.route(NoticeEnded, self._settle)
        self.reports.route(NoticeWaits, self._wait)

    def order_digest(self) -> None:
        """Order the digest if it is due, once for all times that have passed; inside a batch."""
        if not (self.ways.digest and (self.ways.command or self.ways.channel)):
            return
        meta, now = self.engine.store.meta, self.engine.now
        said = f"{self.ways.digest} ({self.zone})"
        rule, anchor, next_at = meta.digest()
        if rule != said:
            anchor, next_at = now, ""
        read = read_repeat(self.ways.digest)
        times = RuleTimes(read, called(read.zone) if read.zone else self.zone, anchor)
        if next_at and next_at <= now:
            if not self.engine.store.outbox.notices(Notice.DIGEST):  # one that waits will tell of what there is then
                self.engine.store.outbox.add(self.engine.new_id("trn"), "", Notify(Notice.DIGEST), now)
            next_at = ""
        if not next_at:
            meta.set_digest(said, anchor, times.after(now))

    def order_trouble_notices(self) -> None:
        """Order a notice for each new problem, unless it was last resolved less than an hour ago; inside a batch."""
        if Notice.TROUBLE not in self.engine.settings.notices:
            return
        meta, now, found = self.engine.store.meta, self.engine.now, self._troubles()
        before = meta.told()
        told = {name: at for name, at in before.items() if name in found or to_epoch(now) - to_epoch(at) < AGAIN}
        for name in found.keys() - told.keys():
            self.engine.store.outbox.add(self.engine.new_id("trn"), "", Notify(Notice.TROUBLE, trouble=name), now)
        meta.set_told(dict.fromkeys(found, now) | told)

    def _troubles(self) -> dict[str, Item]:
        """The current problems, by stable names."""
        program, report = attention.program_for(self.ws), self.engine.store.report
        items = attention.of_troubles(self.ws, report, self.engine.clock, program, 0)
        named = {f"{item.kind} {item.id}".strip(): item for item in items}
        return named | dict(attention.of_caps(report, self.engine.now or self.engine.clock.now(), program))

    def begin(self, order: Order, effect: Notify) -> None:
        """Send the notice to all targets that have not had it; later if memory is short or many are being sent."""
        running = sum(call.kind is CallKind.NOTICE for call in self.calls.running.values())
        if self.calls.capacity.is_short or running >= MOST_AT_ONCE:
            return
        if effect.what is Notice.CIRCUIT and self._more_may_follow(order):
            return
        if self._told_with.get(order.id) in self.sending:
            return
        self._told_with.pop(order.id, None)
        task = self.engine.store.tasks.get(order.task) if order.task else None
        said = self._notice(order, effect, task)
        if said is None:
            self.sending.pop(order.id, None)
            self.reports.append(NoticeEnded(order))
            return
        settings, now = self.engine.settings, self.engine.clock.monotonic()
        address = task.reply_address(effect.what) if task is not None and not effect.people_only else ""
        is_told, ways = effect.what in settings.notices or effect.what is Notice.DIGEST, self.ways
        quiet = self._quiet_until(said, order.tries) if is_told else None
        others: tuple[tuple[Order, str], ...] = ()
        if is_told and not address:
            if until := quiet or self._gathered_at(order, effect):
                if order.id in self.sending and not self.sending[order.id].sent:
                    del self.sending[order.id]
                self.reports.append(NoticeWaits(order, until))
                return
            said, others = self._with_others(order, effect, said)
        sending = self.sending.setdefault(order.id, Sending(said))
        told, sending.said, sending.others = sending.problems, said, others
        sending.later = quiet
        is_told = is_told and quiet is None
        self._told_with |= {other.id: order.id for other, _ in others}
        by_turn = sending.by_turn or (address.startswith(f"{WAKE}:"))
        chosen = {
            _COMMAND: is_told and ways.command, _CHANNEL: is_told and ways.channel,
            _REPLY: address and not by_turn, _TURN: address and by_turn, _CHAT: sending.chat is not None,
        }  # fmt: skip
        sending.addressees = {
            _COMMAND: "notify.command", _CHANNEL: f"{ways.channel}:{ways.target}", _REPLY: address, _TURN: address,
            _CHAT: "" if sending.chat is None else _place(sending.chat),
        }  # fmt: skip
        for way in [way for way, is_chosen in chosen.items() if is_chosen]:
            if told.get(way) == "" or (way == _CHANNEL and address == sending.addressees[way]):
                continue
            told.pop(way, None)
            sender = task.sender if task is not None else ""
            if way in (_REPLY, _TURN) and (why := self._refused(address, sender, effect.what)):
                told[way] = why
            else:
                self._start(order, sending, way, address, now)
        self._report(order)

    def _refused(self, address: str, sender: str, what: Notice) -> str | None:
        """Why nothing may be sent to this address; None if it may be.

        What its task waits for may be told a session whose agent may be woken.
        """
        settings = self.engine.settings
        woken = address.replace(SESSION, WAKE, 1) if what is Notice.PROGRESS else address
        return settings.refused_reply(address, sender) and settings.refused_reply(woken, sender)

    def _notice(self, order: Order, effect: Notify, task: Task | None) -> NoticeMessage | None:
        """The notice to send, with its link; None if it no longer applies."""
        if effect.what is Notice.DIGEST:
            digest = self._digest_notice(order)
            return None if digest is None else replace(digest, link=self.page and f"{self.page.rstrip('/')}/")
        said = self._trouble_notice(order, effect) if task is None else self._task_notice(order, effect, task)
        return None if said is None else replace(said, link=self._link(said.task))

    def _link(self, task: str) -> str:
        place = f"/w/{self.ws.key}/t/{task}" if task else f"/w/{self.ws.key}"
        return f"{self.page.rstrip('/')}{place}" if self.page else ""

    def _quiet_until(self, said: NoticeMessage, tries: int) -> str | None:
        """When the quiet hours end in which this notice waits; None if it does not.

        A digest has its own time, unless it failed then; and what is decided before by itself would come too late.
        """
        if not self.ways.quiet or (said.kind is Notice.DIGEST and not tries):
            return None
        now = self.engine.clock.now()
        end = read_quiet(self.ways.quiet).until(now, self.zone)
        if end is None or end <= now:  # what waited until now would be due at once, again and again
            return None
        return None if said.until is not None and said.until <= end else end

    def _alike(self, effect: Notify) -> list[Order]:
        """The pending notices of this kind that may be told together, in order."""
        if not self.together or effect.what in (Notice.DIGEST, Notice.PROGRESS):
            return []
        tasks, found = self.engine.store.tasks, []
        for order in self.engine.store.outbox.notices(effect.what):
            assert isinstance(order.effect, Notify)
            task = tasks.get(order.task) if order.task else None
            if task is None or order.effect.people_only or not task.reply_address(effect.what):
                found.append(order)
        return found

    def _gathered_at(self, order: Order, effect: Notify) -> str | None:
        """Until when this notice waits for others of its kind; None if it does not."""
        alike = [one.at for one in self._alike(effect) if not one.tries]
        if order.tries or not alike or effect.people_only:
            return None
        now = self.engine.clock.now()
        if max(alike) > now:  # ordered before the clock was set back
            return None
        at = due(min(alike), max(alike), self._last.get(effect.what))
        return at if at > now else None

    def _with_others(
        self, order: Order, effect: Notify, said: NoticeMessage
    ) -> tuple[NoticeMessage, tuple[tuple[Order, str], ...]]:
        """The notice for this order and all that are told with it; and their orders, each with its text, which is empty
        if it applies no longer.
        """
        messages, others, before = [said], [], self.sending.get(order.id)
        # what was sent by one way is completed by the other, without what is new
        known = None if before is None or not before.sent else {one.id for one, _ in before.others}
        for one in self._alike(effect)[:_MOST_TOGETHER]:
            is_told = one.id == order.id or one.id in self.sending or (known is not None and one.id not in known)
            if is_told or self._told_with.get(one.id, order.id) != order.id or not isinstance(one.effect, Notify):
                continue
            other = self._notice(one, one.effect, self.engine.store.tasks.get(one.task) if one.task else None)
            if other is not None and self._quiet_until(other, one.tries) is not None:
                continue
            messages += [other] if other is not None else []
            others.append((one, other.text if other is not None else ""))
        return self._together(order, effect.what, messages), tuple(others)

    def _together(self, order: Order, what: Notice, messages: Sequence[NoticeMessage]) -> NoticeMessage:
        """Several notices of one kind as one; a single one as it is."""
        if len(messages) == 1:
            return messages[0]
        program, (words, command) = attention.program_for(self.ws), _TOGETHER[what]
        reasons, told = {one.text for one in messages}, named([_name(one) for one in messages])
        if len(reasons) == 1 and what is not Notice.APPROVAL:
            text, lines = f"{len(messages):,} {words}: {first_line(reasons.pop())} ({told})", ""
        else:
            lines = "" if what is Notice.APPROVAL else "\n".join(_line(one) for one in messages[:_LINES])
            text = f"{len(messages):,} {words}: {told}"
        about = (order.id, what, self.engine.settings.agent, str(self.ws.root), "", "", text, lines)
        since = min((one.since for one in messages if one.since), default=None)
        until = min((one.until for one in messages if one.until), default=None)
        return NoticeMessage(*about, f"{program} {command}", since, until, link=self._link(""), notices=tuple(messages))

    def _digest_notice(self, order: Order) -> NoticeMessage | None:
        """The overview as a notice; None if there is nothing to say and nobody wants to hear that."""
        found, agent = self._everywhere(), self.engine.settings.agent
        if found.is_quiet and not found.running.total and not self.ways.digest_always:
            return None
        about = (order.id, Notice.DIGEST, agent, str(self.ws.root), "", "")
        command = "mailboxd status --host" if len(found.places) > 1 else f"{attention.program_for(self.ws)} status"
        return NoticeMessage(*about, _in_short(found), _digest(found), command, None, None)

    def _everywhere(self) -> Overview:
        """The overview of this workspace, of the user's others, and of the other hosts of the hub."""
        from mailboxd.hub.client.other_hosts import other_hosts  # once a day, and only where somebody gets the list

        with suppress(ConfigError, WorldError):
            registered = [ws.root for ws in registry.workspaces(os.environ)]
            hosts = other_hosts(os.environ, self.engine.clock.now())
            return overview.everywhere(
                self.engine.clock, os.environ, dict.fromkeys([self.ws.root, *registered]), self._agent_of, hosts
            )
        return overview.everywhere(self.engine.clock, os.environ, [self.ws.root], self._agent_of)

    def _agent_of(self, ws: Workspace) -> str:
        if ws.root == self.ws.root:
            return self.engine.settings.agent
        try:
            return config.load(ws.config).agent
        except MailboxdError:
            return ""

    def _more_may_follow(self, order: Order) -> bool:
        """Whether further circuits may soon open for the same reason: other lost turns are being looked up."""
        waited = to_epoch(self.engine.clock.now()) - to_epoch(order.at)
        return waited < _GATHERED and self.engine.store.outbox.has_look_ups()

    def ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take the result for one target."""
        way, sending = call.id.rpartition(".")[2], self.sending[order.id]
        problem = _problem(way, ProgramResult(exit_.rc, call.stopped, exit_.stdout, exit_.stderr))
        if way == _REPLY and _is_note(sending.addressees[_REPLY]):
            self._take_note(sending, read_note(None if call.stopped else exit_.rc, exit_.stdout, problem))
        else:
            sending.problems[way] = problem
        self.calls.discard_when_recorded(call.id)
        self._report(order)

    def _take_note(self, sending: Sending, end: NoteEnd) -> None:
        """Take what became of a row; what follows it is begun with the order's next try, which is now."""
        if end.state in (Written.WRITTEN, Written.FAILED):
            sending.problems[_REPLY] = end.problem
        else:  # what a task waits for is not worth a turn
            sending.by_turn = sending.said.kind is not Notice.PROGRESS
        is_told = sending.said.kind in self.engine.settings.notices and bool(self.ways.channel)
        if end.chat is not None and not (is_told and _place(end.chat) == sending.addressees[_CHANNEL]):
            sending.chat = end.chat

    def _report(self, order: Order) -> None:
        if order.id not in self.calls.orders():
            self.reports.append(NoticeEnded(order))

    def _start(self, order: Order, sending: Sending, way: str, address: str, now: float) -> None:
        name, key = f"{order.id}.{way}", f"notice:{order.id}:{way}"
        call = Call(name, CallKind.NOTICE, "", key, SECONDS, order, without_slot=True)
        if self.calls.state(call.id) is State.RUNNING and self.calls.adopt(call, now):
            return
        self.calls.discard(call.id)  # the outcome of an earlier notice is unknown, so it is sent again
        try:
            argv, files = self._program(order, call, sending, way, address)
            self.calls.start(call, argv, now, files=files)
        except NotStarted as missing:
            sending.problems[way] = str(missing)

    def _program(
        self, order: Order, call: Call, sending: Sending, way: str, address: str
    ) -> tuple[tuple[str, ...], dict[str, bytes]]:
        """What sends it, and the files for it."""
        said, words = sending.said, words_sent(sending.said, way, address)
        if way == _CHANNEL:
            message = Action("notice", ActionKind.MESSAGE, channel=self.ways.channel, target=self.ways.target)
            message = replace(message, account=self.ways.account, text=words)
            return message_argv(self.gateway.openclaw, message), {}
        if way == _REPLY and _is_note(address):
            session = address.partition(":")[2]
            return self.gateway.request(NOTE, note_params(said.id, session, said.agent, words), int(SECONDS))
        if way in (_REPLY, _CHAT, _TURN):
            # OpenClaw repeats its answer to a known key for minutes, also a refusal: a retry needs another key
            key = f"{said.id}.{order.tries}"
            to_chat = sending.chat if way == _CHAT else None
            made = _turn(words, key, address) if way == _TURN else _message(words, key, address, to_chat, self.ways)
            return self.gateway.request(*made, int(SECONDS))
        return (*self.ways.command, self.calls.file(call.id, _NOTICE)), {_NOTICE: as_sent(words)}

    def _trouble_notice(self, order: Order, effect: Notify) -> NoticeMessage | None:
        item = self._troubles().get(effect.trouble)
        if item is None:
            return None
        about = (order.id, effect.what, self.engine.settings.agent, str(self.ws.root))
        return NoticeMessage(*about, "", "", item.text, "", item.command, item.since, None)

    def _task_notice(self, order: Order, effect: Notify, task: Task) -> NoticeMessage | None:
        """The notice to send; None if it no longer applies."""
        program, now, report = attention.program_for(self.ws), self.engine.clock.now(), self.engine.store.report
        about = (order.id, effect.what, self.engine.settings.agent, str(self.ws.root), task.local_id, task.title)
        if effect.what is Notice.PROGRESS:
            cause = why.cause_for_sender(why.explain(report.task_snapshot([task.id], now, 0), task.id))
            if cause is None or task.phase.is_terminal or (cause.kind in _ASKED and not cause.depth):
                return None  # a question has a notice of its own
            told = cause.text if cause.kind != "approval" else cause.text.partition(": ")[0]  # who decides looks at it
            text = told if not cause.depth else f"{cause.task} {told}"
            return NoticeMessage(*about, text, "", cause.command.replace("mailboxd", program, 1), None, cause.at)
        if effect.what in (Notice.COMPLETED, Notice.FAILED):
            if task.phase is not Phase(effect.what):
                return None
            snapshot = report.task_snapshot([task.id], now, 0, neighbours=False)
            cause = why.cause_of(snapshot.tasks[task.id], snapshot)
            text, command = cause.text, cause.command.replace("mailboxd", program, 1)
            body = task.result if effect.what is Notice.COMPLETED else task.error
            return NoticeMessage(*about, text, body, command, task.completed_at, None)
        if effect.what is Notice.APPROVAL:
            item = attention.of_approval(report, effect.approval_id, program)
        elif effect.what is Notice.CIRCUIT and (together := opened_together(report, task.id)):
            if next(iter(together)) != task.id:
                return None  # the first of them tells of all
            item = attention.of_circuits(task.reason, list(together.values()), task.updated_at, program)
        else:
            item = attention.of_task(report, task.id, now, program)
        if item is None or item.kind not in _NEEDS[effect.what]:
            return None
        row = self.engine.store.approvals.get(effect.approval_id) if effect.approval_id else None
        return NoticeMessage(
            *about,
            text=item.text,
            body=self._question(task) if item.kind is Need.QUESTION else "",
            command=item.command,
            since=item.since,
            until=item.until,
            approval=None if row is None else _request(row, self.ws),
        )

    def _question(self, task: Task) -> str:
        attempt = self.engine.store.tasks.attempt(task.id, task.attempt)
        return attempt.question if attempt else ""

    def try_again(self) -> None:
        """At the start of the daemon: try at once what waits for its next try; inside a batch."""
        self.engine.store.outbox.hasten_notices()

    def _wait(self, report: NoticeWaits) -> None:
        """Have the notice sent later, which is no failed try; inside a batch."""
        self.engine.store.outbox.delay(report.order.id, report.until)

    def _settle(self, report: NoticeEnded) -> None:
        """Record that the notice was sent, will be retried, is given up, or applies no longer; inside a batch."""
        order, store, now = report.order, self.engine.store, self.engine.now
        sending = self.sending.get(order.id)
        if sending is None:
            if store.untold_notices.has(order.id):
                data = {"at": now, "id": order.id, "how": "it applies no longer"}
                self._record(Kind.NOTICE_SETTLED, order, data)
            store.outbox.finish(order.id)
            return
        if sending.follows:
            return  # the order is still pending, and due
        again = _again(order, now)
        for way, problem in sending.problems.items():
            about = self._about(order, sending, way)
            if not problem and way not in sending.recorded:
                sending.recorded.add(way)
                self._record(Kind.NOTICE_SENT, order, about)
                also = {name: value for name, value in about.items() if name != "words"} | {"with": order.id}
                for one, text in sending.others:
                    if text:
                        self._record(Kind.NOTICE_SENT, one, also | {"id": one.id, "text": text})
            elif problem and order.tries >= QUIET_TRIES:
                failed_how = {"why": problem, "again": again, "tries": order.tries + 1}
                self._record(Kind.NOTICE_FAILED, order, about | failed_how)
        failed = any(sending.problems.values())
        for one in (order, *(other for other, _ in sending.others)):
            self._told_with.pop(one.id, None)
            if not failed:
                store.outbox.finish(one.id)
            elif one.tries <= order.tries and (retry := _again(one, now)) is not None:
                store.outbox.postpone(one.id, retry)  # by its own tries; who has failed more often keeps its pause
                if one.tries < order.tries and sending.sent:
                    ways = dict.fromkeys(sending.sent, "")
                    self.sending[one.id] = Sending(sending.said, ways, recorded=set(sending.recorded))
            elif one.id == order.id:
                store.outbox.finish(one.id, "failed")
        if failed and again is not None:
            return
        if sending.later is not None and isinstance(order.effect, Notify):
            later = replace(order.effect, people_only=True, not_before=sending.later)
            store.outbox.add(self.engine.new_id("trn"), order.task, later, now)
        self._last[sending.said.kind] = now
        del self.sending[order.id]

    def _about(self, order: Order, sending: Sending, way: str) -> dict[str, Any]:
        """What the event of a notice says: when, which, to whom, by what program, and what."""
        said, to = sending.said, sending.addressees[way]
        about = {"at": self.engine.now, "id": order.id, "what": said.kind, "to": to, "text": said.text}
        about |= words_on_record(words_sent(said, way, to))
        if way == _COMMAND:
            del about["words"]  # as JSON it has everything twice
            about["program"] = PurePath(self.ways.command[0]).name if self.ways.command else ""
        return about

    def _record(self, kind: Kind, order: Order, data: Mapping[str, Any]) -> None:
        self.engine.record(Event(kind, order.task or None, data))


def _again(order: Order, now: str) -> str | None:
    """When a notice whose try has failed is tried again; None if it is given up."""
    return plus(now, PAUSES[order.tries]) if order.tries < len(PAUSES) else None


_MOST_TOGETHER = 200
"""Notices that one message tells of."""
_LINES = 5
_TOGETHER: Mapping[Notice, tuple[str, str]] = {
    Notice.COMPLETED: ("tasks are done", "status"),
    Notice.FAILED: ("tasks have failed", "status"),
    Notice.QUESTION: ("tasks ask you", "inbox"),
    Notice.APPROVAL: ("requests wait for your approval", "approve"),
    Notice.CIRCUIT: ("tasks stopped", "inbox"),
    Notice.HOLD: ("tasks stopped", "inbox"),
    Notice.TROUBLE: ("troubles", "status"),
}
"""What several notices of a kind say, and the command about all of them."""


def _name(said: NoticeMessage) -> str:
    """What one of several notices is about; of an approval nothing that an agent has written, as in `chat_text`."""
    if said.approval is not None:
        return f"{said.approval['short_id']} ({said.task})"
    return said.task or first_line(said.text, 80)


def _line(said: NoticeMessage) -> str:
    gist = summary_line(said.body) if said.kind is Notice.COMPLETED else ""
    return f"- {said.task}: {gist or first_line(said.text)}" if said.task else f"- {first_line(said.text)}"


def _in_short(found: Overview) -> str:
    """`2 need you, 1 failed, 3 finished; 2 run`."""
    counts = (
        (found.decide.total, "needs you" if found.decide.total == 1 else "need you"),
        (found.failed.total, "failed"),
        (found.finished.total, "finished"),
    )
    told = ", ".join(f"{count:,} {word}" for count, word in counts if count) or "nothing needs you"
    runs = found.running.total
    return f"{told}; {f'{runs:,}' if runs else 'nothing'} run{'s' * (runs < 2)}"


def _digest(found: Overview) -> str:
    """The sections of the overview that have something to say, the first few lines of each."""
    several = len(found.places) > 1

    def about(place: Place, text: str) -> str:
        return f"{place.agent}: {text}" if several and place.agent else text

    def of_item(one: Decision) -> str:
        text = first_line(one.item.text)
        return about(one.place, f"{one.item.task}: {text}" if one.item.task else text)

    def of_running(one: Running) -> str:
        planned = one.planned - one.skipped
        return about(one.place, one.task + (f": {one.done:,} of {planned:,}" if planned > 0 else ""))

    decide = [of_item(one) for one in found.decide.lines if one.item.kind is not Need.APPROVAL]
    asked = sum(one.item.kind is Need.APPROVAL for one in found.decide.lines)
    decide += [f"{asked} request{'s' * (asked != 1)} for your approval"] if asked else []
    decide += [about(one.place, first_line(one.troubles[0])) for one in found.silent]
    results = [about(one.place, f"{one.task}: {one.answer or one.title}") for one in found.finished.lines if one.unread]
    later = [about(one.place, f"{one.name}: {one.paused or one.told}") for one in found.later.lines]
    spent = [f"{one.place.agent} {of_cap(one.standing.agent)}" for one in found.spent.agents if one.standing]
    sections = (
        ("Decide", decide, found.decide.total - asked + bool(asked) + len(found.silent)),
        ("Failed", [of_item(one) for one in found.failed.lines], found.failed.total),
        ("Finished", results, found.finished.total),
        ("Running", [of_running(one) for one in found.running.lines], found.running.total),
        ("Later", later, found.later.total),
        ("Spent", spent, len(spent)),
    )
    parts = []
    for name, lines, total in sections:
        if lines:
            more = [f"- and {total - _LINES:,} more"] if total > _LINES else []
            parts.append("\n".join([name, *(f"- {line}" for line in lines[:_LINES]), *more]))
    return "\n\n".join(parts)


def _place(chat: Mapping[str, str]) -> str:
    """The address of a messenger's chat."""
    return f"{chat['channel']}:{chat['to']}"


def _is_note(address: str) -> bool:
    """Whether this address gets rows."""
    return address.startswith(f"{SESSION}:")


def _turn(text: str, key: str, address: str) -> tuple[str, Mapping[str, object]]:
    """The request for a turn by the agent of a session, whose words OpenClaw sends to the session's chat."""
    session = address.partition(":")[2]
    return "agent", {
        "idempotencyKey": key, "message": text, "sessionKey": session, "deliver": True, "bestEffortDeliver": True
    }  # fmt: skip


def _message(
    text: str, key: str, address: str, chat: Mapping[str, str] | None, ways: NotifySection
) -> tuple[str, Mapping[str, object]]:
    """The request for a message to a chat: the one of the session that has the row, else the address."""
    params = {"idempotencyKey": key, "message": text}
    if chat is not None:
        return "send", {**params, **chat}
    kind, _, place = address.partition(":")
    account = {"accountId": ways.account} if ways.account and kind == ways.channel else {}
    return "send", {**params, "channel": kind, "to": place, **account}


def _request(row: Approval, ws: Workspace) -> Mapping[str, Any]:
    """An approval as the program gets it."""
    plain = ("id", "short_id", "purpose", "requested_action", "risk", "preview", "digest", "idempotency_key", "gate")
    verbs = {"approve": "approve", "reject": "reject", "request-changes": "ask-changes"}
    return {
        "kind": row.side_effect_kind.value,
        **{name: getattr(row, name) for name in (*plain, "requested_by", "at", "expires_at")},
        "decide": {name: ["mailboxd", "-w", str(ws.root), verb, row.short_id] for name, verb in verbs.items()},
    }


class Reader(StrEnum):
    """Who reads a notice: a person in a chat, the agent of a session, or both in the session's transcript."""

    CHAT = "chat"
    AGENT = "agent"
    SESSION = "session"


def words_sent(said: NoticeMessage, way: str, address: str) -> str:
    """What is sent by this way, exactly: the text of a message, row or turn, or the program's JSON."""
    if way == _COMMAND:
        return json.dumps(asdict(said), ensure_ascii=False, indent=2)
    if way == _TURN:
        return chat_text(said, Reader.AGENT)
    return chat_text(said, Reader.SESSION if way == _REPLY and _is_note(address) else Reader.CHAT)


def chat_text(said: NoticeMessage, reader: Reader = Reader.CHAT) -> str:
    """The message for this reader. What OpenClaw would not send as it is, is left out."""
    link = f"\n{said.link}" if said.link and reader is not Reader.AGENT else ""
    *_, bare = texts = [f"{text}{link}" for text in _chat_texts(said, reader)]
    return next((text for text in texts if message_problem(text) is None), bare)


def _chat_texts(said: NoticeMessage, reader: Reader) -> Iterator[str]:
    """The message, and then with less and less that agents have written."""
    ask = said.approval
    about = f"mailboxd of {said.agent}" + (f", task {said.task}" if said.task else "")
    if reader is Reader.AGENT:
        about = f"Tell whoever waits in this session. {about}"
    if ask is not None:
        kind = ask["kind"] if ask["purpose"] == Purpose.ACTION else ask["purpose"]
        about = f"mailboxd of {said.agent}: {ask['short_id']} waits for your approval ({kind}, task {said.task})."
        until, approve = moment(ask["expires_at"], ask["at"]), shlex.join(ask["decide"]["approve"])
        how = f"It expires at {until}. To see it: {said.command}\nTo decide: {approve} (or reject, ask-changes)"
        risk = first_line(ask["risk"])
        yield "\n".join([about, *([f"Named risk: {risk}"] if risk else []), how])
        yield f"{about}\n{how}"
        return
    body = for_page(said.body).strip()
    most = ROW_CHARS if reader is Reader.SESSION else CHAT_CHARS
    if len(body) > most:
        body = f"{body[:most].rstrip()}…"
    sentence = f"{about}: {said.text}"
    if body and reader is not Reader.CHAT:
        body = quote_fence(body, f"task {said.task}")
    if body and body not in sentence:
        yield f"{sentence}\n\n{body}\n\n{said.command}"
    yield f"{sentence}\n{said.command}"
    yield f"{about}: {said.kind}\n{said.command}"


def _problem(way: str, ran: ProgramResult) -> str:
    """The error, in one line; empty if people were notified."""
    if way == _CHANNEL:
        end = message_result(ran)
        return "" if end.state is Performed.DONE else end.summary
    if ran.rc == 0 and not ran.stopped:
        return ""
    return summary_of(ran.stopped or f"exit status {ran.rc}", ran.output)
