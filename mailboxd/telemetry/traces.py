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

import base64
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from mailboxd import ids
from mailboxd.core.events import OF_TASKS, Kind
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import TERMINAL, Phase
from mailboxd.errors import UnavailableError
from mailboxd.mailbox.files import directory, read_file, replace, world_errors
from mailboxd.mailbox.layout import STATE, Workspace
from mailboxd.store import metrics_queries
from mailboxd.store.metrics_queries import Family, LoggedEvent
from mailboxd.store.reports import Report, opened

KINDS = (*OF_TASKS, Kind.APPROVAL_RESOLVED, Kind.MESSAGE_RECEIVED, Kind.MESSAGE_SENT)
Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span. `began` and `ended` are ISO 8601 in UTC; `problem` names how it failed, empty for success."""

    task: Family
    name: str
    id: str
    parent: str
    began: str
    ended: str
    problem: str = ""
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Mapping[str, Value] = field(default_factory=dict)


def spans(report: Report, event: LoggedEvent) -> Iterator[Span]:
    """The spans that end with this event."""
    makers = [make for part, make in _BY_PART.items() if part in event.data]
    if event.kind is Kind.APPROVAL_RESOLVED:
        makers = [_approval]
    if not makers or event.task is None or (task := metrics_queries.family(report, event.task)) is None:
        return
    for make in makers:
        if (span := make(report, event, task)) is not None:
            yield span


def _task(_: Report, event: LoggedEvent, task: Family) -> Span | None:
    phase = Phase(event.data["passed"][-1]["to"])
    if phase not in TERMINAL:
        return None
    remote = ids.parse(task.traceparent) if task.parent is None else None
    parent = ids.span_of(task.parent) if task.parent is not None else remote.span if remote is not None else ""
    return Span(
        task,
        name="task",
        id=ids.span_of(task.id),
        parent=parent,
        began=task.created_at,
        ended=event.at,
        problem="" if phase is Phase.COMPLETED else phase.value,
        attributes={"mailboxd.task.phase": phase.value, "mailboxd.task.depth": task.depth},
    )


def _attempt(report: Report, event: LoggedEvent, task: Family) -> Span | None:
    status = event.data["attempt_changes"].get("status")
    row = metrics_queries.attempt_row(report, event.data["attempt"]) if status else None
    if row is None:
        return None
    return Span(
        task,
        name="attempt",
        id=ids.span_of(event.data["attempt"]),
        parent=ids.span_of(task.id),
        began=row["started_at"],
        ended=event.at,
        problem="" if status == "succeeded" else status,
        attributes={
            "mailboxd.attempt.id": event.data["attempt"],
            "mailboxd.attempt.ordinal": row["ordinal"],
            "mailboxd.attempt.status": status,
            "mailboxd.attempt.executor": row["executor"],
            "mailboxd.attempt.runtime": row["runtime"],
        },
    )


def _turn(report: Report, event: LoggedEvent, task: Family) -> Span | None:
    turn = event.data["turn"]
    ordered = metrics_queries.ordered_at(report, event)
    if ordered is None:
        return None
    usage = turn["usage"] or {}
    used = {
        "gen_ai.usage.input_tokens": usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens"),
        "mailboxd.turn.cost_usd": usage.get("cost_usd"),
    }
    is_attempts = metrics_queries.attempt_row(report, turn["attempt"]) is not None
    outcome = {"mailboxd.turn.outcome": turn["outcome"], "mailboxd.turn.called": turn["agent"]}
    return Span(
        task,
        name=f"turn {turn['purpose']}",
        id=ids.span_of(task.id, "turn", str(event.seq)),
        parent=ids.span_of(turn["attempt"] if is_attempts else task.id),
        kind=SpanKind.CLIENT,
        began=ordered,
        ended=event.at,
        problem="" if turn["outcome"] == "succeeded" else turn["outcome"],
        attributes=outcome | {name: value for name, value in used.items() if value is not None},
    )


def _approval(report: Report, event: LoggedEvent, task: Family) -> Span | None:
    row = metrics_queries.approval_row(report, event.data["approval"])
    if row is None:
        return None
    status = str(event.data.get("changes", {}).get("status", row["status"]))
    return Span(
        task,
        name="approval",
        id=ids.span_of(event.data["approval"]),
        parent=ids.span_of(task.id),
        began=row["at"],
        ended=event.at,
        problem="" if status == "approved" else status,
        attributes={
            "mailboxd.approval.id": event.data["approval"],
            "mailboxd.approval.status": status,
            "mailboxd.approval.purpose": row["purpose"],
            "mailboxd.approval.kind": row["side_effect_kind"],
        },
    )


def _message(_: Report, event: LoggedEvent, task: Family) -> Span | None:
    row = event.data["message"]
    received = row["direction"] == "in"
    other = row.get("sender" if received else "receiver") or ""
    return Span(
        task,
        name=f"message {row.get('type') or 'plain'} {'received' if received else 'sent'}",
        id=ids.span_of(task.id, "message", row["id"]),
        parent=ids.span_of(task.id),
        kind=SpanKind.CONSUMER if received else SpanKind.PRODUCER,
        began=event.at,
        ended=event.at,
        attributes={
            "messaging.system": "mailboxd",
            "messaging.message.id": row.get("message_id") or row["id"],
            "mailboxd.message.verdict": row["verdict"],
            "mailboxd.message.from" if received else "mailboxd.message.to": other,
        },
    )


_BY_PART = {"passed": _task, "attempt_changes": _attempt, "turn": _turn, "message": _message}
"""The span that ends with an event which has this part."""


# Export: as protobuf over HTTP, or as JSON lines for a collector. Credentials come from the environment variable
# `OTEL_EXPORTER_OTLP_HEADERS`, so that they are in no file and in no argument.

SECONDS = 30
"""Time limit of one request, including the exporter's own retries."""
_IDS = ("traceId", "spanId", "parentSpanId")


class Endpoint:
    """An OTLP receiver over HTTP; `agent` is the owner of the workspace."""

    def __init__(self, address: str, agent: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # its failures are raised and logged here
        self._address, self._agent = address, agent
        self._exporter = OTLPSpanExporter(endpoint=address, timeout=SECONDS)

    def send(self, spans: Sequence[Span]) -> None:
        """Send all of the spans. Raises UnavailableError."""
        if self._exporter.export(readable(spans, self._agent)) is not SpanExportResult.SUCCESS:
            raise UnavailableError(f"{self._address} did not accept {len(spans)} spans; they will be sent again")


def readable(spans: Iterable[Span], agent: str) -> list[ReadableSpan]:
    """The spans as objects of the OpenTelemetry SDK."""
    resource = Resource(
        {"service.name": "mailboxd", "service.version": version("mailboxd"), "service.instance.id": agent}
    )
    scope = InstrumentationScope("mailboxd", version("mailboxd"))
    return [_readable(span, resource, scope) for span in spans]


def as_json(spans: Iterable[Span], agent: str) -> dict[str, Any]:
    """One request in OTLP's JSON encoding, in which ids are hexadecimal."""
    request: dict[str, Any] = MessageToDict(encode_spans(readable(spans, agent)))
    for resource in request.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                span |= {name: base64.b64decode(span[name]).hex() for name in _IDS if name in span}
    return request


def line(spans: Iterable[Span], agent: str) -> bytes:
    """One line of a file for the collector's `otlpjsonfile` receiver."""
    return json.dumps(as_json(spans, agent), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    task = span.task
    trace = ids.trace_of(task.root, task.root_traceparent)
    about = {"mailboxd.task.id": task.id, "mailboxd.task.local_id": task.local_id, "mailboxd.task.agent": task.executor}
    status = Status(StatusCode.ERROR, span.problem) if span.problem else Status(StatusCode.OK)
    return ReadableSpan(
        name=span.name,
        context=_context(trace, span.id, remote=False),
        parent=_context(trace, span.parent, remote=True) if span.parent else None,
        resource=resource,
        attributes={**about, **span.attributes},
        kind=span.kind,
        status=status,
        start_time=_nanoseconds(span.began),
        end_time=max(_nanoseconds(span.ended), _nanoseconds(span.began)),
        instrumentation_scope=scope,
    )


def _context(trace: str, span: str, *, remote: bool) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), remote, TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(time: str) -> int:
    return round(to_epoch(time) * 1000) * 1_000_000


# Spans are exported in order and at least once: the cursor advances after the receiver has accepted a batch

CURSOR = "traces.json"
"""In `.mailboxd/`: the receiver and the last event whose spans it accepted."""
MOST = 500
"""Events per batch."""
_LARGEST = 65_536


def batches(report: Report, after: int, wanted: Callable[[str], bool]) -> Iterator[tuple[int, list[Span]]]:
    """Batches of spans after the event `after`, each with its last event. `wanted` selects tasks by id."""
    while events := list(metrics_queries.events_after(report, after, KINDS, MOST)):
        after = events[-1].seq
        chosen = [event for event in events if event.task is not None and wanted(event.task)]
        yield after, [span for event in chosen for span in spans(report, event)]


def export_next(ws: Workspace, address: str, endpoint: Endpoint) -> bool:
    """Export the next batch and advance the cursor; return whether there was one.

    Raises UnavailableError if the batch was not accepted or there is no database, WorldError.
    """
    before = remembered(ws, address)
    with opened(ws.database) as report:
        if before > report.last_event():
            before = 0  # the database was rebuilt, so its events are numbered differently
        found = next(batches(report, before, lambda _task: True), None)
    if found is None:
        return False
    seq, ended = found
    if ended:
        endpoint.send(ended)
    remember(ws, address, seq)
    return True


def remembered(ws: Workspace, address: str) -> int:
    """The last event whose spans the receiver has; 0 for a new receiver or an unreadable cursor."""
    with suppress(OSError, ValueError, KeyError, TypeError), directory(ws.root, STATE) as state:
        raw = read_file(state, CURSOR, _LARGEST)
        cursor = json.loads(raw or b"")
        return int(cursor["seq"]) if cursor["endpoint"] == address else 0
    return 0


def remember(ws: Workspace, address: str, seq: int) -> None:
    """Record that the receiver has the spans up to this event. Raises WorldError."""
    raw = json.dumps({"endpoint": address, "seq": seq}).encode() + b"\n"
    with world_errors(f"write {ws.state / CURSOR}"), directory(ws.root, STATE) as state:
        replace(state, CURSOR, raw, lambda: True)
