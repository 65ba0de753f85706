"""Tells people that something waits for them: a program of the operator's, and a message over a channel of OpenClaw.

A notice is a courtesy: nothing waits for it, it takes no turn's slot, and a second one does no harm. What goes to a
channel names the request and how to decide it, and nothing of what would be done: who reads there may be anybody.

DIAGNOSTICS  A way that fails is tried again a few times. After that there is an alarm in the log and the event
log, and the request waits all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mailboxd.actions.command import ProgramResult, message_argv, message_problem, message_result
from mailboxd.agents.call_dir import Exit
from mailboxd.agents.process import NotStarted, State
from mailboxd.core.approvals import Action, ActionKind, Approval, ApprovalStatus, Performed
from mailboxd.core.effects import Notify
from mailboxd.core.events import Event, Kind
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import plus
from mailboxd.effects.process_table import Call, CallKind, ProcessTable
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Finished, Reports
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.store import Order

SECONDS = 60.0
"""One notice may take."""
PAUSES = (5.0, 30.0, 120.0)
"""Seconds before it is tried again, each time."""
_COMMAND, _CHANNEL = "command", "channel"


@dataclass(frozen=True, slots=True)
class Ways:
    """How people are told (`approvals.notify_*` of the configuration). `openclaw` is the program of the channels."""

    command: tuple[str, ...] = ()
    channel: str = ""
    target: str = ""
    account: str = ""
    openclaw: tuple[str, ...] = ("openclaw",)

    @property
    def names(self) -> tuple[str, ...]:
        return (*((_COMMAND,) if self.command else ()), *((_CHANNEL,) if self.channel else ()))


@dataclass(frozen=True, slots=True)
class NoticeEnded:
    """A report: every way to give this notice has ended."""

    order: Order


@dataclass(slots=True)
class ApprovalNotifier:
    """One workspace's notices."""

    engine: Engine
    calls: ProcessTable
    ws: Workspace
    ways: Ways
    reports: Reports
    _told: dict[str, dict[str, str]] = field(default_factory=dict)
    """By order, what came of each way that has ended: empty = told."""

    def __post_init__(self) -> None:
        self.reports.route(NoticeEnded, self._settle)

    def begin(self, order: Order, effect: Notify) -> None:
        """Tell people of a request, every way that has not told them yet; later while memory is short."""
        row = self.engine.store.approvals.get(effect.approval_id)
        if row is None or row.status is not ApprovalStatus.PENDING:
            self.reports.append(Finished(order.id))
            return
        now = self.engine.clock.monotonic()
        if self.calls.capacity.is_short:
            return
        told = self._told.setdefault(order.id, {})
        for way in self.ways.names:
            if told.get(way) != "":
                told.pop(way, None)
                self._start(order, row, way, now)
        self._report(order)

    def ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take the result of one way."""
        way = call.id.rpartition(".")[2]
        self._told[order.id][way] = _problem(way, ProgramResult(exit_.rc, call.stopped, exit_.stdout, exit_.stderr))
        self.calls.discard_when_recorded(call.id)
        self._report(order)

    def _report(self, order: Order) -> None:
        if order.id not in self.calls.orders():
            self.reports.append(NoticeEnded(order))

    def _start(self, order: Order, row: Approval, way: str, now: float) -> None:
        name, key = f"{order.id}.{way}", f"notice:{order.id}:{way}"
        call = Call(name, CallKind.NOTICE, "", key, SECONDS, order, aside=True)
        if self.calls.state(call.id) is State.RUNNING and self.calls.adopt(call, now):
            return
        self.calls.discard(call.id)  # the end of an earlier notice was not observed: people are notified again
        try:
            self.calls.start(call, self._argv(call.id, row, way), now)
        except NotStarted as missing:
            self._told[order.id][way] = str(missing)

    def _argv(self, call_id: str, row: Approval, way: str) -> tuple[str, ...]:
        task = self.engine.store.tasks.local_id(row.task)
        if way == _CHANNEL:
            return message_argv(self.ways.openclaw, self._message(row, task))
        raw = json.dumps(self._request(row, task), ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")
        return (*self.ways.command, self.calls.prepare(call_id, raw, "request.json"))

    def _message(self, row: Approval, task: str) -> Action:
        said = notice(self.engine.settings.agent, row, task, first_line(row.risk, 200))
        text = notice(self.engine.settings.agent, row, task, "") if message_problem(said) else said
        ways = self.ways
        message = Action("notice", ActionKind.MESSAGE, channel=ways.channel, target=ways.target, text=text)
        return replace(message, account=ways.account)

    def _request(self, row: Approval, task: str) -> Mapping[str, Any]:
        plain = (
            "id",
            "short_id",
            "purpose",
            "requested_action",
            "risk",
            "preview",
            "digest",
            "idempotency_key",
            "gate",
        )
        when = ("requested_by", "at", "expires_at")
        return {
            "workspace": str(self.ws.root),
            "agent": self.engine.settings.agent,
            "task": task,
            "kind": row.side_effect_kind.value,
            **{name: getattr(row, name) for name in (*plain, *when)},
            "decide": {
                verb.split()[-1]: ["mailboxd", "-w", str(self.ws.root), *verb.split(), row.short_id]
                for verb in ("approval show", "approve", "approval reject", "approval request-changes")
            },
        }

    def _settle(self, report: NoticeEnded) -> None:
        """Record that the notice was given, is tried again, or is given up; inside a batch."""
        order = report.order
        told = self._told[order.id]
        failed = {way: problem for way, problem in told.items() if problem}
        store, now = self.engine.store, self.engine.now
        if failed and order.tries < len(PAUSES):
            store.outbox.postpone(order.id, plus(now, PAUSES[order.tries]))
            return
        for way, problem in failed.items():
            why = (
                f"could not notify anyone by {way} of a request for approval (tried {len(PAUSES) + 1} times): {problem}"
            )
            self.engine.record(Event(Kind.ALARM, order.task, {"at": now, "what": "notice", "why": why}))
        store.outbox.finish(order.id, "failed" if failed else "done")
        del self._told[order.id]


def notice(agent: str, row: Approval, task: str, risk: str) -> str:
    """What a channel is told: which request, of what kind, until when, how to decide; nothing of its payload."""
    kind = row.side_effect_kind if row.purpose.value == "action" else row.purpose
    lines = [
        f"mailboxd of {agent}: {row.short_id} waits for your approval ({kind}, task {task}).",
        *([f"Named risk: {risk}"] if risk else []),
        f"It expires at {row.expires_at}. To see and decide it: mailboxd approval show {row.short_id}, then"
        f" mailboxd approve {row.short_id} (or mailboxd approval reject, request-changes).",
    ]
    return "\n".join(lines)


def _problem(way: str, ran: ProgramResult) -> str:
    """What went wrong, in one line; empty if people were told."""
    if way == _CHANNEL:
        end = message_result(ran)
        return "" if end.state is Performed.DONE else end.summary
    if ran.rc == 0 and not ran.stopped:
        return ""
    how = ran.stopped or f"exit status {ran.rc}"
    last = next((line for line in map(first_line, reversed(ran.output.splitlines())) if line), "")
    return f"{how}: {last}" if last else how
