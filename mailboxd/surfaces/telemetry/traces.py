"""Turns events into OpenTelemetry spans: one for each task, attempt, turn, approval and message.

    task (child of the `traceparent` in its file, or of its parent task)
    ├── message task received
    ├── attempt 1 ── turn work
    │       └── task of the peer's daemon ── ...          through the `traceparent` sent with it
    ├── approval
    └── message reply sent

A span is created when its end is on record. Its ids are derived from its subject, so creating it again gives the same
span. Spans contain ids, agents and outcomes, never the content of a message.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from mailboxd.core.events import OF_TASKS, Kind
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import TERMINAL, Phase
from mailboxd.errors import UnavailableError
from mailboxd.formats.mailbox.files import directory, read_file, replace, world_errors
from mailboxd.formats.mailbox.layout import STATE, Workspace
from mailboxd.host import ids
from mailboxd.ledger import metrics_queries
from mailboxd.ledger.metrics_queries import Family, LoggedEvent
from mailboxd.ledger.reports import Report, opened

KINDS = (*OF_TASKS, Kind.APPROVAL_RESOLVED, Kind.MESSAGE_RECEIVED, Kind.MESSAGE_SENT)
Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A span that ends with an event. `began` is ISO 8601 in UTC; `outcome` is an error unless it is in `_GOOD`."""

    name: str
    id: str
    parent: str
    began: str
    outcome: str
    attributes: Mapping[str, Value | None] = field(default_factory=dict)
    kind: SpanKind = SpanKind.INTERNAL


_GOOD = ("succeeded", "approved", "received", "sent", Phase.COMPLETED)


def _task(_: Report, event: LoggedEvent, task: Family) -> Span | None:
    phase = Phase(event.data["passed"][-1]["to"])
    if phase not in TERMINAL:
        return None
    remote = ids.parse(task.traceparent) if task.parent is None else None
    parent = ids.span_of(task.parent) if task.parent is not None else remote.span if remote is not None else ""
    attributes = {"mailboxd.task.phase": phase.value, "mailboxd.task.depth": task.depth}
    return Span("task", ids.span_of(task.id), parent, task.created_at, phase.value, attributes)


def _attempt(report: Report, event: LoggedEvent, task: Family) -> Span | None:
    attempt, status = event.data["attempt"], event.data["attempt_changes"].get("status")
    row = metrics_queries.attempt_row(report, attempt) if status else None
    if row is None:
        return None
    about = {"id": attempt, "status": status, **{name: row[name] for name in ("ordinal", "executor", "runtime")}}
    attributes = {f"mailboxd.attempt.{name}": value for name, value in about.items()}
    return Span("attempt", ids.span_of(attempt), ids.span_of(task.id), row["started_at"], status, attributes)


def _turn(report: Report, event: LoggedEvent, task: Family) -> Span | None:
    turn = event.data["turn"]
    ordered = metrics_queries.ordered_at(report, event)
    if ordered is None:
        return None
    usage = turn["usage"] or {}
    attributes = {
        "mailboxd.turn.outcome": turn["outcome"],
        "mailboxd.turn.called": turn["agent"],
        "mailboxd.turn.cost_usd": usage.get("cost_usd"),
        "gen_ai.usage.input_tokens": usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens"),
    }
    is_attempts = metrics_queries.attempt_row(report, turn["attempt"]) is not None
    own, parent = ids.span_of(task.id, "turn", str(event.seq)), ids.span_of(turn["attempt"] if is_attempts else task.id)
    return Span(f"turn {turn['purpose']}", own, parent, ordered, turn["outcome"], attributes, SpanKind.CLIENT)


def _approval(report: Report, event: LoggedEvent, task: Family) -> Span | None:
    approval = event.data["approval"]
    row = metrics_queries.approval_row(report, approval)
    if row is None:
        return None
    status = str(event.data.get("changes", {}).get("status", row["status"]))
    about = {"id": approval, "status": status, "purpose": row["purpose"], "kind": row["side_effect_kind"]}
    attributes = {f"mailboxd.approval.{name}": value for name, value in about.items()}
    return Span("approval", ids.span_of(approval), ids.span_of(task.id), row["at"], status, attributes)


def _message(_: Report, event: LoggedEvent, task: Family) -> Span | None:
    row = event.data["message"]
    received = row["direction"] == "in"
    way = "received" if received else "sent"
    attributes = {
        "messaging.system": "mailboxd",
        "messaging.message.id": row.get("message_id") or row["id"],
        "mailboxd.message.verdict": row["verdict"],
        f"mailboxd.message.{'from' if received else 'to'}": row.get("sender" if received else "receiver") or "",
    }
    own, kind = ids.span_of(task.id, "message", row["id"]), SpanKind.CONSUMER if received else SpanKind.PRODUCER
    name = f"message {row.get('type') or 'plain'} {way}"
    return Span(name, own, ids.span_of(task.id), event.at, way, attributes, kind)


_BY_PART: Mapping[str, Callable[[Report, LoggedEvent, Family], Span | None]] = {
    "passed": _task,
    "attempt_changes": _attempt,
    "turn": _turn,
    "message": _message,
}
"""The span that ends with an event which has this part."""


def spans(report: Report, event: LoggedEvent, resource: Resource) -> Iterator[ReadableSpan]:
    """The spans that end with this event."""
    makers = [make for part, make in _BY_PART.items() if part in event.data]
    if event.kind is Kind.APPROVAL_RESOLVED:
        makers = [_approval]
    if not makers or event.task is None or (task := metrics_queries.family(report, event.task)) is None:
        return
    for make in makers:
        if (span := make(report, event, task)) is not None:
            yield _readable(span, event, task, resource)


def _readable(span: Span, event: LoggedEvent, task: Family, resource: Resource) -> ReadableSpan:
    trace = ids.trace_of(task.root, task.root_traceparent)
    about = {"mailboxd.task.id": task.id, "mailboxd.task.local_id": task.local_id, "mailboxd.task.agent": task.executor}
    known = {name: value for name, value in span.attributes.items() if value is not None}
    return ReadableSpan(
        name=span.name,
        context=_context(trace, span.id, remote=False),
        parent=_context(trace, span.parent, remote=True) if span.parent else None,
        resource=resource,
        attributes={**about, **known},
        kind=span.kind,
        status=Status(StatusCode.OK) if span.outcome in _GOOD else Status(StatusCode.ERROR, span.outcome),
        start_time=_nanoseconds(span.began),
        end_time=max(_nanoseconds(event.at), _nanoseconds(span.began)),
        instrumentation_scope=InstrumentationScope("mailboxd", version("mailboxd")),
    )


def _context(trace: str, span: str, *, remote: bool) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), remote, TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(time: str) -> int:
    return round(to_epoch(time) * 1000) * 1_000_000


# Spans are exported in order and at least once: the cursor advances after the receiver has accepted a batch

SECONDS = 30
"""Time limit of one request, including the exporter's own retries."""
CURSOR = "traces.json"
"""In `.mailboxd/`: the receiver and the last event whose spans it accepted."""
MOST = 500
"""Events per batch."""
_LARGEST = 65_536


class Exporter:
    """Sends the spans of a workspace to an OTLP receiver over HTTP; `agent` is the owner of the workspace.

    Credentials come from the environment variable `OTEL_EXPORTER_OTLP_HEADERS`, so that they are in no file and in no
    argument.
    """

    def __init__(self, ws: Workspace, address: str, agent: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # its failures are raised and logged here
        self._ws, self._address = ws, address
        named = {"service.name": "mailboxd", "service.version": version("mailboxd"), "service.instance.id": agent}
        self._resource = Resource(named)
        self._exporter = OTLPSpanExporter(endpoint=address, timeout=SECONDS)

    def export_next(self) -> bool:
        """Export the next batch and advance the cursor; return whether there was one.

        Raises UnavailableError if the batch was not accepted or there is no database, WorldError.
        """
        before = self._position()
        with opened(self._ws.database) as report:
            if before > report.last_event():
                before = 0  # the database was rebuilt, so its events are numbered differently
            events = list(metrics_queries.events_after(report, before, KINDS, MOST))
            ended = [span for event in events for span in spans(report, event, self._resource)]
        if not events:
            return False
        if ended and self._exporter.export(ended) is not SpanExportResult.SUCCESS:
            raise UnavailableError(f"{self._address} did not accept {len(ended)} spans; they will be sent again")
        raw = json.dumps({"endpoint": self._address, "seq": events[-1].seq}).encode() + b"\n"
        with world_errors(f"write {self._ws.state / CURSOR}"), directory(self._ws.root, STATE) as state:
            replace(state, CURSOR, raw, lambda: True)
        return True

    def _position(self) -> int:
        """The last event whose spans the receiver has; 0 for a new receiver or an unreadable cursor."""
        with suppress(OSError, ValueError, KeyError, TypeError), directory(self._ws.root, STATE) as state:
            cursor = json.loads(read_file(state, CURSOR, _LARGEST) or b"")
            return int(cursor["seq"]) if cursor["endpoint"] == self._address else 0
        return 0
