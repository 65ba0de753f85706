"""A receiver of OTLP over HTTP: a real server that decodes what it is sent, or refuses it for as long as it shall."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Received:
    """A span as it came over the wire; ids as hexadecimal digits, times in nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    began: int
    ended: int
    failed: bool
    agent: str
    attributes: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)


class Receiver:
    """Listens on a port of its own. `spans` holds each once, `came` all that came."""

    def __init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    raw = gzip.decompress(raw)
                receiver.requests.append((dict(self.headers), raw))
                status = 400 if receiver.refuses else 200
                if not receiver.refuses:
                    receiver.came += decoded(raw)
                body = ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.refuses = False
        self.came: list[Received] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    @property
    def spans(self) -> dict[str, Received]:
        return {span.id: span for span in list(self.came)}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def decoded(raw: bytes) -> list[Received]:
    found: list[Received] = []
    for resource in ExportTraceServiceRequest.FromString(raw).resource_spans:
        agent = {pair.key: value(pair.value) for pair in resource.resource.attributes}["service.instance.id"]
        for scope in resource.scope_spans:
            found += [received(span, agent) for span in scope.spans]
    return found


def received(span: Any, agent: str) -> Received:
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    times = (span.start_time_unix_nano, span.end_time_unix_nano)
    attributes = {pair.key: value(pair.value) for pair in span.attributes}
    return Received(span.name, *ids, span.kind, *times, span.status.code == 2, agent, attributes)


def value(said: Any) -> Any:
    return getattr(said, said.WhichOneof("value"))
