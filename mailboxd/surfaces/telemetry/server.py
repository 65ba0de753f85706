"""The process beside the daemon that serves /metrics on the loopback interface and exports spans as they end.

Every user of the machine can connect to the loopback interface, so each request needs the bearer token from
`.mailboxd/metrics.token` (mode 0600). The file is read for every request, so a new token takes effect at once.

The process ends with its standard input, so it does not outlive the daemon. It logs a failure once and keeps trying.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import select
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mailboxd.errors import ConfigError, MailboxdError, WorldError
from mailboxd.formats.mailbox.files import directory, read_file, replace, world_errors
from mailboxd.formats.mailbox.layout import STATE, Workspace
from mailboxd.host.clock import Clock
from mailboxd.surfaces.telemetry import metrics
from mailboxd.surfaces.telemetry.metrics import Counters
from mailboxd.surfaces.telemetry.traces import Exporter

CREDENTIAL = "metrics.token"
_SHORTEST, _LARGEST = 16, 4096
HOST, PATH = "127.0.0.1", "/metrics"
EVERY = 2.0
"""Seconds between two exports."""
_SLOWEST = 60.0
"""The longest pause in seconds while the receiver is unavailable."""
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = 10.0
_log = logging.getLogger("mailboxd")


class Server(ThreadingHTTPServer):
    """Answers GET /metrics for local programs that have the token."""

    daemon_threads = True

    def __init__(self, ws: Workspace, agent: str, clock: Clock, port: int) -> None:
        """Raises WorldError if the port is in use or the token cannot be created, ConfigError for an invalid token."""
        _token(ws)
        self._ws, self._agent, self._clock = ws, agent, clock
        self._counters, self._lock = Counters(), threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            hint = f"{error.strerror}; choose another `metrics.port`"
            raise WorldError(f"cannot listen on {HOST}:{port}: {hint}") from error

    @property
    def hosts(self) -> set[str]:
        """The accepted Host headers. Refusing all others prevents DNS rebinding by a web page."""
        return {f"{name}:{self.server_address[1]}" for name in (HOST, "localhost")}

    def authorizes(self, header: str | None) -> bool:
        """Whether the header `Authorization` has the token. Raises MailboxdError if the token cannot be read."""
        kind, _, token = (header or "").partition(" ")
        return hmac.compare_digest(token.strip().encode(), _token(self._ws)) and kind.lower() == "bearer"

    def text(self) -> bytes:
        """The metrics as text. Raises MailboxdError if they cannot be read."""
        with self._lock:  # the counters are shared between requests
            return metrics.text(self._ws, self._agent, self._counters, self._clock)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "mailboxd"
    sys_version = ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._answer(421, b"use the host name 127.0.0.1 or localhost\n", "text/plain")
        elif self.path.partition("?")[0] != PATH:
            self._answer(404, b"not found; the metrics are at /metrics\n", "text/plain")
        else:
            self._answer_metrics()

    def _answer_metrics(self) -> None:
        try:
            if not self.server.authorizes(self.headers.get("Authorization")):
                problem = f"the bearer token from .mailboxd/{CREDENTIAL} is required\n"
                return self._answer(401, problem.encode(), "text/plain")
            body = self.server.text()
        except MailboxdError as error:
            _log.error("nothing can be measured: %s", error)
            return self._answer(503, b"the metrics cannot be read; see the daemon's log\n", "text/plain")
        return self._answer(200, body, _TYPE)

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Bearer realm="mailboxd"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def _token(ws: Workspace) -> bytes:
    """The token that requests need; it is created if there is none. Raises ConfigError, WorldError."""
    path = ws.state / CREDENTIAL
    with world_errors(f"read or write {path}"), directory(ws.root, STATE) as state:
        token = read_file(state, CREDENTIAL, _LARGEST)
        if token is None:
            token = secrets.token_urlsafe(32).encode()
            replace(state, CREDENTIAL, token + b"\n", lambda: True)
    token = token.strip()
    if len(token) < _SHORTEST:
        raise ConfigError(f"{path} has no token of at least {_SHORTEST} characters; remove it to get a new one")
    return token


def serve(ws: Workspace, agent: str, clock: Clock, *, port: int, endpoint: str, until_eof: bool) -> None:
    """Serve the metrics on `port` (0 = do not) and export spans to `endpoint` (empty = do not) until interrupted.

    With `until_eof`, until standard input ends. Raises WorldError if the port is in use, ConfigError.
    """
    if port:
        server = Server(ws, agent, clock, port)
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        _log.info("metrics at http://%s:%d%s", HOST, port, PATH)
    exporter = Exporter(ws, endpoint, agent) if endpoint else None
    pause, failing = EVERY, False
    while not (until_eof and _at_eof(pause)):
        if not until_eof:
            select.select((), (), (), pause)
        if exporter is not None:
            problem = _export(exporter)
            if problem and not failing:
                _log.error("traces are not accepted: %s", problem)
            elif failing and not problem:
                _log.info("traces are accepted again")
            failing = bool(problem)
            pause = min(pause * 2, _SLOWEST) if problem else EVERY


def _export(exporter: Exporter) -> str:
    """Export all finished spans; returns the problem, or an empty string."""
    try:
        while exporter.export_next():
            continue
    except MailboxdError as error:
        return str(error)
    return ""


def _at_eof(seconds: float) -> bool:
    ready, _, _ = select.select([0], (), (), seconds)
    return bool(ready) and not os.read(0, 4096)
