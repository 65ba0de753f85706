"""Streamable HTTP at /mcp on loopback, for clients with a bearer token; requests from web pages are refused.

Stateless: each POST gets one JSON response, so a restart goes unnoticed. The tokens are read for every request, so a
revoked one stops working immediately.

OpenClaw gives every agent, including new ones, the tools of all entries that it is not denied. So its configuration is
watched (one `stat` per second). After a change no request is served until each agent is denied the entries of others;
missing denials are added.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from mailboxd.clock import Clock
from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.host import loopback
from mailboxd.mailbox.files import Stamp
from mailboxd.mailbox.layout import Workspace
from mailboxd.mcp import registration, tokens
from mailboxd.mcp.registration import HOST, PATH, OpenClawConfig
from mailboxd.mcp.server import Context, ToolService, server
from mailboxd.mcp.tokens import AGENT_ROLES, Caller, Grant

MOST_BYTES = 1 << 20
"""Maximum size of a request."""
_AT_ONCE = 64
"""Maximum number of connections; further ones get 503."""
_REQUEST_SECONDS = 30.0
"""Time limit of one request, including its upload."""
_CHECK_INTERVAL = 1.0
"""Seconds between two checks whether OpenClaw's configuration has changed."""
_FULL_CHECK_INTERVAL = 900.0
"""Seconds until it is read again even if unchanged, because files that it includes are not watched."""
_MAX_RETRY_DELAY = 60.0
"""Maximum seconds until it is read again after repeated failures."""
_CALLER = "mailboxd.caller"
_log = logging.getLogger("mailboxd")


class Denials:
    """Whether each OpenClaw agent is denied the entries of the others, as of the last check."""

    def __init__(self, ws: Workspace, openclaw: OpenClawConfig, monotonic: Callable[[], float]) -> None:
        self._ws, self._openclaw, self._monotonic = ws, openclaw, monotonic
        self._lock = asyncio.Lock()
        self._file = ""
        self._checked: Stamp | None = None
        """The stamp of the file when no denial was missing."""
        self._checked_at = -math.inf
        self._refusal = ""
        self._retry_delay = 0.0

    async def missing(self, grants: Iterable[Grant]) -> str:
        """Why no request may be served now; empty if all may. Missing denials are added for the next request."""
        if not any(grant.entry for grant in grants):
            return ""
        async with self._lock:
            since = self._monotonic() - self._checked_at
            stamp = _stamp(self._file)
            if self._refusal and since < self._retry_delay:
                return self._refusal
            if stamp is None or stamp != self._checked or since >= _FULL_CHECK_INTERVAL:
                self._refusal = await asyncio.to_thread(self._add_denials)
                self._retry_delay = (
                    min(_MAX_RETRY_DELAY, self._retry_delay * 2 + _CHECK_INTERVAL) if self._refusal else 0.0
                )
                self._checked_at = self._monotonic()
            return self._refusal

    def _add_denials(self) -> str:
        try:
            self._file = self._file or self._openclaw.file()
            before = _stamp(self._file)  # before reading: a change meanwhile triggers another check
            if before is None:
                raise UnavailableError(f"OpenClaw's configuration {self._file} cannot be read")
            done = registration.register_missing(self._ws, self._openclaw).done
        except MailboxdError as error:
            _log.error("requests are refused until other agents are known to be denied these tools: %s", error)
            return "OpenClaw's configuration has changed and could not be checked; see the log of mailboxd"
        for what in done:
            _log.warning("added a missing denial to OpenClaw's configuration: %s", what)
        if done:
            return "a new agent in OpenClaw is being denied these tools; try again"
        self._checked = before
        return ""


class HttpApp:
    """The ASGI application. Whatever can be refused without reading the body is refused first."""

    def __init__(self, ws: Workspace, service: ToolService, port: int, denials: Denials) -> None:
        self._ws, self._denials = ws, denials
        hosts = [f"{HOST}:{port}", f"localhost:{port}"]
        self._sessions = StreamableHTTPSessionManager(
            server(service, _caller_of),
            json_response=True,
            stateless=True,
            max_request_body_size=MOST_BYTES,
            # no origin is allowed: only web pages send one
            security_settings=TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[]),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        watching = asyncio.create_task(self._watch())
        async with self._sessions.run():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        watching.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _watch(self) -> None:
        """Add missing denials as soon as they are needed, not only on the next request."""
        while True:
            try:
                await self._denials.missing(tokens.load(self._ws))
            except MailboxdError as error:
                _log.error("the tokens cannot be read: %s", error)
            await asyncio.sleep(_CHECK_INTERVAL)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            return await _refuse(send, 404, "not found; the tools are at /mcp")
        if scope["method"] != "POST":
            return await _refuse(send, 405, "only POST is supported: there are no sessions", (b"allow", b"POST"))
        try:
            grants = tokens.load(self._ws)
            caller = tokens.caller_of(grants, _bearer(scope))
        except MailboxdError as error:
            _log.error("the tokens cannot be read: %s", error)
            return await _refuse(send, 503, "the tokens cannot be read; see the log of mailboxd")
        if caller is None or caller.role not in AGENT_ROLES:
            _log.warning("a request without a valid token was refused")
            return await _refuse(send, 401, "a bearer token from `mailboxd mcp install` is required", _CHALLENGE)
        if why := await self._denials.missing(grants):
            return await _refuse(send, 503, why, (b"retry-after", b"5"))
        scope[_CALLER] = caller
        with suppress(TimeoutError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                await self._sessions.handle_request(scope, receive, send)
        return None


_CHALLENGE = (b"www-authenticate", b'Bearer realm="mailboxd"')


def _bearer(scope: Scope) -> str:
    """The token of the request; empty unless there is exactly one."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    kind, _, token = (values[0] if len(values) == 1 else b"").decode("latin-1").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _caller_of(context: Context) -> Caller:
    caller = context.request.scope[_CALLER] if context.request is not None else None
    if not isinstance(caller, Caller):
        raise AssertionError("a request bypassed the token check")
    return caller


async def _refuse(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": text}).encode()
    length = (b"content-length", str(len(body)).encode())
    shown = [(b"content-type", b"application/json"), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": shown})
    await send({"type": "http.response.body", "body": body})


def _stamp(path: str) -> Stamp | None:
    try:
        return Stamp.of(Path(path).stat()) if path else None
    except OSError:
        return None


def serve(
    ws: Workspace, service: ToolService, port: int, openclaw: OpenClawConfig, clock: Clock, *, until_eof: bool = False
) -> None:
    """Serve until a signal, or with `until_eof` until standard input ends, as it does when the parent dies.

    Raises WorldError when the port is taken.
    """
    listening = loopback.listen(port, "`mcp.port`", HOST)
    _log.info("typed tools at http://%s:%d%s", HOST, port, PATH)
    with listening:
        app = HttpApp(ws, service, port, Denials(ws, openclaw, clock.monotonic))
        loopback.serve(app, listening, until_eof=until_eof, lifespan="on", limit_concurrency=_AT_ONCE)
