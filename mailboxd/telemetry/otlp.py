"""Spans in OpenTelemetry's form: sent over HTTP as protobuf, or written as JSON lines that a collector reads.

`OTEL_EXPORTER_OTLP_HEADERS` of the environment carries what a receiver wants as credentials: they stand in no file of
ours, and in no argument.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Sequence
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

from mailboxd.core.times import to_epoch
from mailboxd.errors import UnavailableError
from mailboxd.telemetry.spans import Span, Way

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
