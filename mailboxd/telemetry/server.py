"""The process beside the daemon: /metrics on the loopback interface, and spans to their receiver as they end.

Every user of the machine can connect to the loopback interface, so a request has to bring the bearer token that lies in
`.mailboxd/metrics.token` (0600). It is read again for every request: another token counts as soon as it is in the file.

It ends when its standard input does, so it does not outlive the daemon. What it cannot do it says once, and tries
again: no instrument may hold up the work.
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

from mailboxd.clock import Clock
from mailboxd.errors import ConfigError, MailboxdError, WorldError
from mailboxd.mailbox.files import directory, open_regular, read_up_to, replace, world_errors
from mailboxd.mailbox.layout import STATE, Workspace
from mailboxd.telemetry import metrics, traces
from mailboxd.telemetry.metrics import Tally
from mailboxd.telemetry.traces import Endpoint

CREDENTIAL = "metrics.token"
_SHORTEST, _LARGEST = 16, 4096
HOST, PATH = "127.0.0.1", "/metrics"
EVERY = 2.0
"""Seconds between two looks for spans that ended."""
_SLOWEST = 60.0
"""Seconds between two tries while the receiver takes nothing, at most."""
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = 10.0
_log = logging.getLogger("mailboxd")


class Server(ThreadingHTTPServer):
    """Answers GET /metrics to programs of this machine that address it as such, and that bring the token."""

    daemon_threads = True

    def __init__(self, ws: Workspace, agent: str, clock: Clock, port: int) -> None:
        """Raises WorldError when the port is taken, or no token can be made; ConfigError for one that is no token."""
        _token(ws)
        self._ws, self._agent, self._clock = ws, agent, clock
        self._tally, self._guard = Tally(), threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            hint = f"{error.strerror}; choose another `metrics.port`"
            raise WorldError(f"cannot listen on {HOST}:{port}: {hint}") from error

    @property
    def hosts(self) -> set[str]:
        """How it may be addressed: a name that a web page made up for 127.0.0.1 is not among them."""
        return {f"{name}:{self.server_address[1]}" for name in (HOST, "localhost")}

    def knows(self, said: str | None) -> bool:
        """Whether the header `Authorization` has the token. Raises MailboxdError when that cannot be read."""
        kind, _, token = (said or "").partition(" ")
        return hmac.compare_digest(token.strip().encode(), _token(self._ws)) and kind.lower() == "bearer"

    def text(self) -> tuple[bytes, str]:
        """The metrics, or why there are none."""
        with self._guard:  # one after the other: they share what was counted
            found, problem = metrics.taken(self._ws, self._agent, self._tally, self._clock)
        return (metrics.text(found), "") if found is not None else (b"", problem)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "mailboxd"
    sys_version = ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._answer(421, b"ask for it by the name 127.0.0.1 or localhost\n", "text/plain")
        elif self.path.partition("?")[0] != PATH:
            self._answer(404, b"there is nothing here; the metrics are at /metrics\n", "text/plain")
        else:
            self._measured()

    def _measured(self) -> None:
        try:
            known, (body, problem) = self.server.knows(self.headers.get("Authorization")), (b"", "")
            if known:
                body, problem = self.server.text()
        except MailboxdError as error:
            known, body, problem = True, b"", str(error)
        if not known:
            self._answer(401, f"the bearer token of .mailboxd/{CREDENTIAL} is needed\n".encode(), "text/plain")
        elif problem:
            _log.error("nothing can be measured: %s", problem)
            self._answer(503, b"nothing can be measured; the log says why\n", "text/plain")
        else:
            self._answer(200, body, _TYPE)

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Bearer realm="mailboxd"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news."""


def _token(ws: Workspace) -> bytes:
    """The token that a request has to bring; one is made where there is none. Raises ConfigError, WorldError."""
    path = ws.state / CREDENTIAL
    with world_errors(f"read or write {path}"), directory(ws.root, STATE) as state:
        fd = open_regular(state, CREDENTIAL)
        if fd is None:
            token = secrets.token_urlsafe(32).encode()
            replace(state, CREDENTIAL, token + b"\n", lambda: True)
            return token
        try:
            token = read_up_to(fd, _LARGEST).strip()
        finally:
            os.close(fd)
    if len(token) < _SHORTEST:
        raise ConfigError(f"{path} has no token of at least {_SHORTEST} characters; remove it, and another one is made")
    return token


def serve(ws: Workspace, agent: str, clock: Clock, *, port: int, endpoint: str, until_eof: bool) -> None:
    """Serve the metrics at `port` (0: not), send spans to `endpoint` (empty: not), until interrupted.

    With `until_eof` until standard input ends. Raises WorldError when the port is taken, ConfigError.
    """
    if port:
        server = Server(ws, agent, clock, port)
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
        _log.info("metrics at http://%s:%d%s", HOST, port, PATH)
    target = Endpoint(endpoint, agent) if endpoint else None
    pause, troubled = EVERY, False
    while not (until_eof and _at_eof(pause)):
        if not until_eof:
            select.select((), (), (), pause)
        if target is not None:
            problem = _export(ws, endpoint, target)
            if problem and not troubled:
                _log.error("traces are not taken: %s", problem)
            elif troubled and not problem:
                _log.info("traces: they are taken again")
            troubled = bool(problem)
            pause = min(pause * 2, _SLOWEST) if problem else EVERY


def _export(ws: Workspace, endpoint: str, target: Endpoint) -> str:
    """All that there is to hand over; why it could not be, or nothing."""
    try:
        while traces.go_on(ws, endpoint, target).more:
            continue
    except MailboxdError as error:
        return str(error)
    return ""


def _at_eof(seconds: float) -> bool:
    ready, _, _ = select.select([0], (), (), seconds)
    return bool(ready) and not os.read(0, 4096)
