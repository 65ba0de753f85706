"""From events to spans, after the fact: a task, an attempt, a turn, a wait for a person, a message.

    task (from the file that brought it, or its parent's task)
    ├── message task received
    ├── attempt 1 ── turn work
    │       └── task of the peer's daemon ── ...          by the `traceparent` that was sent
    ├── approval
    └── message reply sent

A span is made when its end is on record. Its ids follow from what it is about, so that making it again gives the same
span. Spans name ids, agents and outcomes, and no word of a message.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Protocol

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from mailboxd import ids
from mailboxd.core.events import Kind
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import TERMINAL, Phase
from mailboxd.errors import UnavailableError
from mailboxd.mailbox.files import directory, open_regular, read_up_to, replace, world_errors
from mailboxd.mailbox.layout import STATE, Workspace
from mailboxd.store import metrics_query
from mailboxd.store.metrics_query import Family, Happened
from mailboxd.store.reports import Report, opened

KINDS = (
    Kind.TASK_TRANSITIONED, Kind.ATTEMPT_FINISHED, Kind.TURN_ENDED, Kind.APPROVAL_RESOLVED, Kind.MESSAGE_RECEIVED,
    Kind.MESSAGE_SENT,
)  # fmt: skip
Value = str | int | float | bool


class Way(StrEnum):
    """OpenTelemetry's kind of a span."""

    INTERNAL = "internal"
    CLIENT = "client"
    CONSUMER = "consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span. `began` and `ended` are ISO-8601 UTC; `problem` is a word for how it failed, empty if it did
    not."""

    name: str
    trace: str
    id: str
    parent: str
    way: Way
    began: str
    ended: str
    problem: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)


def spans(report: Report, event: Happened) -> Iterator[Span]:
    """The spans that end with this event: one or none."""
    if event.task is None or (task := metrics_query.family(report, event.task)) is None:
        return
    span = _MAKERS[event.kind](report, event, task)
    if span is not None:
        yield span


def _task(_: Report, event: Happened, task: Family) -> Span | None:
    phase = Phase(event.data["to"])
    if phase not in TERMINAL:
        return None
    said = ids.parse(task.traceparent) if task.parent is None else None
    parent = ids.span_of(task.parent) if task.parent is not None else said.span if said is not None else ""
    return Span(
        name="task",
        trace=_trace(task),
        id=ids.span_of(task.id),
        parent=parent,
        way=Way.INTERNAL,
        began=task.created_at,
        ended=event.at,
        problem="" if phase is Phase.COMPLETED else phase.value,
        attributes=_of(task) | {"mailboxd.task.phase": phase.value, "mailboxd.task.depth": task.depth},
    )


def _attempt(report: Report, event: Happened, task: Family) -> Span | None:
    row = metrics_query.attempt_began(report, event.data["attempt"])
    if row is None:
        return None
    status = str(event.data["changes"].get("status", row["status"]))
    return Span(
        name="attempt",
        trace=_trace(task),
        id=ids.span_of(event.data["attempt"]),
        parent=ids.span_of(task.id),
        way=Way.INTERNAL,
        began=row["started_at"],
        ended=event.at,
        problem="" if status == "succeeded" else status,
        attributes=_of(task)
        | {
            "mailboxd.attempt.id": event.data["attempt"],
            "mailboxd.attempt.ordinal": row["ordinal"],
            "mailboxd.attempt.status": status,
            "mailboxd.attempt.executor": row["executor"],
            "mailboxd.attempt.runtime": row["runtime"],
        },
    )


def _turn(report: Report, event: Happened, task: Family) -> Span | None:
    data = event.data
    ordered = metrics_query.ordered_at(report, event)
    if ordered is None:
        return None
    usage = data["usage"] or {}
    used = {
        "gen_ai.usage.input_tokens": usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens"),
        "mailboxd.turn.cost_usd": usage.get("cost_usd"),
    }
    is_attempts = metrics_query.attempt_began(report, data["attempt"]) is not None
    outcome = {"mailboxd.turn.outcome": data["outcome"], "mailboxd.turn.called": data["agent"]}
    return Span(
        name=f"turn {data['turn']}",
        trace=_trace(task),
        id=ids.span_of(task.id, "turn", str(event.seq)),
        parent=ids.span_of(data["attempt"] if is_attempts else task.id),
        way=Way.CLIENT,
        began=ordered,
        ended=event.at,
        problem="" if data["outcome"] == "succeeded" else data["outcome"],
        attributes=_of(task) | outcome | {name: value for name, value in used.items() if value is not None},
    )


def _approval(report: Report, event: Happened, task: Family) -> Span | None:
    row = metrics_query.approval_asked(report, event.data["approval"])
    if row is None:
        return None
    status = str(event.data.get("changes", {}).get("status", row["status"]))
    return Span(
        name="approval",
        trace=_trace(task),
        id=ids.span_of(event.data["approval"]),
        parent=ids.span_of(task.id),
        way=Way.INTERNAL,
        began=row["at"],
        ended=event.at,
        problem="" if status == "approved" else status,
        attributes=_of(task)
        | {
            "mailboxd.approval.id": event.data["approval"],
            "mailboxd.approval.status": status,
            "mailboxd.approval.purpose": row["purpose"],
            "mailboxd.approval.kind": row["side_effect_kind"],
        },
    )


def _message(_: Report, event: Happened, task: Family) -> Span | None:
    row = event.data["message"]
    received = row["direction"] == "in"
    other = row.get("sender" if received else "receiver") or ""
    return Span(
        name=f"message {row.get('type') or 'plain'} {'received' if received else 'sent'}",
        trace=_trace(task),
        id=ids.span_of(task.id, "message", row["id"]),
        parent=ids.span_of(task.id),
        way=Way.CONSUMER if received else Way.PRODUCER,
        began=event.at,
        ended=event.at,
        attributes=_of(task)
        | {
            "messaging.system": "mailboxd",
            "messaging.message.id": row.get("message_id") or row["id"],
            "mailboxd.message.verdict": row["verdict"],
            "mailboxd.message.from" if received else "mailboxd.message.to": other,
        },
    )


_MAKERS = {
    Kind.TASK_TRANSITIONED: _task,
    Kind.ATTEMPT_FINISHED: _attempt,
    Kind.TURN_ENDED: _turn,
    Kind.APPROVAL_RESOLVED: _approval,
    Kind.MESSAGE_RECEIVED: _message,
    Kind.MESSAGE_SENT: _message,
}


def _trace(task: Family) -> str:
    return ids.trace_of(task.root, task.root_traceparent)


def _of(task: Family) -> dict[str, Value]:
    return {"mailboxd.task.id": task.id, "mailboxd.task.local_id": task.local_id, "mailboxd.task.agent": task.executor}


# ---------------------------------------------------------------------------------------------------------------------
# Spans in OpenTelemetry's form: sent over HTTP as protobuf, or written as JSON lines that a collector reads.
#
# `OTEL_EXPORTER_OTLP_HEADERS` of the environment carries what a receiver wants as credentials: they stand in no file of
# ours, and in no argument.

SECONDS = 30
"""How long one sending may take, with what the exporter repeats by itself."""
_KINDS = {
    Way.INTERNAL: SpanKind.INTERNAL,
    Way.CLIENT: SpanKind.CLIENT,
    Way.CONSUMER: SpanKind.CONSUMER,
    Way.PRODUCER: SpanKind.PRODUCER,
}
_IDS = ("traceId", "spanId", "parentSpanId")


class Target(Protocol):
    """Where spans go."""

    def send(self, spans: Sequence[Span]) -> None:
        """Hand over the spans, all of them. Raises UnavailableError: then they are sent again."""
        ...


class Endpoint:
    """A receiver of OTLP over HTTP; `agent` is whose workspace the spans are of."""

    def __init__(self, address: str, agent: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it says of a failure is said by us
        self._address, self._agent = address, agent
        self._exporter = OTLPSpanExporter(endpoint=address, timeout=SECONDS)

    def send(self, spans: Sequence[Span]) -> None:
        """Hand over the spans, all of them. Raises UnavailableError."""
        if self._exporter.export(readable(spans, self._agent)) is not SpanExportResult.SUCCESS:
            raise UnavailableError(f"{self._address} did not take {len(spans)} spans; they are sent again")


def readable(spans: Iterable[Span], agent: str) -> list[ReadableSpan]:
    """The spans as the SDK has them."""
    resource = Resource(
        {"service.name": "mailboxd", "service.version": version("mailboxd"), "service.instance.id": agent}
    )
    scope = InstrumentationScope("mailboxd", version("mailboxd"))
    return [_readable(span, resource, scope) for span in spans]


def as_json(spans: Iterable[Span], agent: str) -> dict[str, Any]:
    """One request in OTLP's JSON form, in which ids are hexadecimal."""
    said: dict[str, Any] = MessageToDict(encode_spans(readable(spans, agent)))
    for resource in said.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                span |= {name: base64.b64decode(span[name]).hex() for name in _IDS if name in span}
    return said


def line(spans: Iterable[Span], agent: str) -> bytes:
    """One line of a file that a collector's `otlpjsonfile` receiver reads."""
    return json.dumps(as_json(spans, agent), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    status = Status(StatusCode.ERROR, span.problem) if span.problem else Status(StatusCode.OK)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.id, remote=False),
        parent=_context(span.trace, span.parent, remote=True) if span.parent else None,
        resource=resource,
        attributes=dict(span.attributes),
        kind=_KINDS[span.way],
        status=status,
        start_time=_nanoseconds(span.began),
        end_time=max(_nanoseconds(span.ended), _nanoseconds(span.began)),
        instrumentation_scope=scope,
    )


def _context(trace: str, span: str, *, remote: bool) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), remote, TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(moment: str) -> int:
    return round(to_epoch(moment) * 1000) * 1_000_000


# ---------------------------------------------------------------------------------------------------------------------
# Handing spans over, in order, and remembering how far: at least once, and the same spans when it is more often.

CURSOR = "traces.json"
"""In `.mailboxd/`: up to which event spans were taken by which receiver."""
MOST = 500
"""Events whose spans go into one sending."""
_LARGEST = 65_536


@dataclass(frozen=True, slots=True)
class Sent:
    """What one look handed over."""

    seq: int
    spans: int
    more: bool


def batches(report: Report, after: int, wanted: Callable[[str], bool]) -> Iterator[tuple[int, list[Span]]]:
    """The spans of the tasks that are `wanted` (ids), from the event after `after`; each batch with its last event."""
    while events := list(metrics_query.happened(report, after, KINDS, MOST)):
        after = events[-1].seq
        chosen = [event for event in events if event.task is not None and wanted(event.task)]
        yield after, [span for event in chosen for span in spans(report, event)]


def go_on(ws: Workspace, address: str, target: Target) -> Sent:
    """Hand over the next spans, and remember that once they were taken.

    Raises UnavailableError when they were not taken or there is no database, WorldError.
    """
    before = remembered(ws, address)
    with opened(ws.database) as report:
        if before > report.last_event():
            before = 0  # the database was made again: its events have other numbers
        found = next(batches(report, before, lambda _task: True), None)
    if found is None:
        return Sent(before, 0, more=False)
    seq, ended = found
    if ended:
        target.send(ended)
    remember(ws, address, seq)
    return Sent(seq, len(ended), more=True)


def remembered(ws: Workspace, address: str) -> int:
    """Up to which event the receiver has the spans; 0 for another receiver, and for a note that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError), directory(ws.root, STATE) as state:
        fd = open_regular(state, CURSOR)
        if fd is None:
            return 0
        try:
            said = json.loads(read_up_to(fd, _LARGEST))
        finally:
            os.close(fd)
        return int(said["seq"]) if said["endpoint"] == address else 0
    return 0


def remember(ws: Workspace, address: str, seq: int) -> None:
    """Note that the receiver has the spans up to this event. Raises WorldError."""
    raw = json.dumps({"endpoint": address, "seq": seq}).encode() + b"\n"
    with world_errors(f"write {ws.state / CURSOR}"), directory(ws.root, STATE) as state:
        replace(state, CURSOR, raw, lambda: True)
