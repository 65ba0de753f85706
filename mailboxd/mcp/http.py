"""The loopback listener: streamable HTTP at /mcp, for who has a token, and for no web page.

Stateless: every POST is one exchange and is answered in JSON; there are no sessions to keep, steal or forget, and a
restart is not noticed. The tokens are read again for every request, so what is taken back is void at once.

OpenClaw gives every agent the tools of every entry that it is not denied, one that was added a moment ago too. So its
configuration is watched (a `stat` a second): after a change nothing is served until each agent is denied the entries
of others, and the denials that are missing are added.
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
from mailboxd.mcp.server import Context, Desk, server
from mailboxd.mcp.tokens import AGENT_ROLES, Caller, Grant

MOST_BYTES = 1 << 20
"""Of one request."""
_AT_ONCE = 64
"""Connections; more are answered 503."""
_SECONDS = 30.0
"""One request may take, its upload included."""
_LOOK_EVERY = 1.0
"""Seconds between two looks at whether OpenClaw's configuration has changed."""
_NOW_AND_THEN = 900.0
"""Seconds after which it is read again, because a file that it includes is not watched."""
_LONGEST_PAUSE = 60.0
"""Seconds before it is read again when that failed, after several times."""
_CALLER = "mailboxd.caller"
_log = logging.getLogger("mailboxd")


class Denials:
    """Whether each agent of OpenClaw is denied the entries of the others, as far as its configuration has been read."""

    def __init__(self, ws: Workspace, openclaw: OpenClawConfig, monotonic: Callable[[], float]) -> None:
        self._ws, self._openclaw, self._monotonic = ws, openclaw, monotonic
        self._lock = asyncio.Lock()
        self._file = ""
        self._sealed: Stamp | None = None
        """How the file looked when nothing was missing."""
        self._looked_at = -math.inf
        self._refusal = ""
        self._pause = 0.0

    async def missing(self, grants: Iterable[Grant]) -> str:
        """Why nobody may be served just now; empty if everybody may. What is missing is added, for the next time."""
        if not any(grant.entry for grant in grants):
            return ""
        async with self._lock:
            since = self._monotonic() - self._looked_at
            stamp = _stamp(self._file)
            if self._refusal and since < self._pause:
                return self._refusal
            if stamp is None or stamp != self._sealed or since >= _NOW_AND_THEN:
                self._refusal = await asyncio.to_thread(self._close)
                self._pause = min(_LONGEST_PAUSE, self._pause * 2 + _LOOK_EVERY) if self._refusal else 0.0
                self._looked_at = self._monotonic()
            return self._refusal

    def _close(self) -> str:
        try:
            self._file = self._file or self._openclaw.file()
            before = _stamp(self._file)  # first: what changes meanwhile is looked at again
            if before is None:
                raise UnavailableError(f"OpenClaw's configuration {self._file} cannot be read")
            done = registration.register_missing(self._ws, self._openclaw).done
        except MailboxdError as error:
            _log.error("nobody is served before it is known that no other agent may use these tools: %s", error)
            return "OpenClaw's configuration has changed and could not be checked; the log of mailboxd says why"
        for what in done:
            _log.warning("OpenClaw's configuration had a gap: %s", what)
        if done:
            return "an agent was added to OpenClaw, and is being denied these tools; try again"
        self._sealed = before
        return ""


class Door:
    """The ASGI application. Everything it can refuse without reading a body it refuses first."""

    def __init__(self, ws: Workspace, desk: Desk, port: int, denials: Denials) -> None:
        self._ws, self._denials = ws, denials
        hosts = [f"{HOST}:{port}", f"localhost:{port}"]
        self._sessions = StreamableHTTPSessionManager(
            server(desk, _caller_of),
            json_response=True,
            stateless=True,
            max_request_body_size=MOST_BYTES,
            # no origin is allowed: a request that names one comes from a web page
            security_settings=TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[]),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        watching = asyncio.create_task(self._watch())
        async with self._sessions.run():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        watching.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _watch(self) -> None:
        """Close a gap when it appears, not only when somebody comes in through it."""
        while True:
            try:
                await self._denials.missing(tokens.load(self._ws))
            except MailboxdError as error:
                _log.error("no token can be read: %s", error)
            await asyncio.sleep(_LOOK_EVERY)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            return await _refuse(send, 404, "there is nothing here; the tools are at /mcp")
        if scope["method"] != "POST":
            return await _refuse(send, 405, "only POST: there are no sessions", (b"allow", b"POST"))
        try:
            grants = tokens.load(self._ws)
            caller = tokens.holder(grants, _bearer(scope))
        except MailboxdError as error:
            _log.error("no token can be checked: %s", error)
            return await _refuse(send, 503, "the tokens cannot be read; the log says why")
        if caller is None or caller.role not in AGENT_ROLES:
            _log.warning("a request without a valid token was refused")
            return await _refuse(send, 401, "a bearer token of `mailboxd mcp install` is needed", _CHALLENGE)
        if why := await self._denials.missing(grants):
            return await _refuse(send, 503, why, (b"retry-after", b"5"))
        scope[_CALLER] = caller
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                await self._sessions.handle_request(scope, receive, send)
        return None


_CHALLENGE = (b"www-authenticate", b'Bearer realm="mailboxd"')


def _bearer(scope: Scope) -> str:
    """The token of the request; with two of them, or none, nothing that could be one."""
    said = [value for name, value in scope["headers"] if name == b"authorization"]
    kind, _, token = (said[0] if len(said) == 1 else b"").decode("latin-1").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _caller_of(context: Context) -> Caller:
    caller = context.request.scope[_CALLER] if context.request is not None else None
    if not isinstance(caller, Caller):
        raise AssertionError("a request came past the door")
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
    ws: Workspace, desk: Desk, port: int, openclaw: OpenClawConfig, clock: Clock, *, until_eof: bool = False
) -> None:
    """Listen until a signal, or with `until_eof` until standard input ends, as it does when who started us has died.

    Raises WorldError when the port is taken.
    """
    listening = loopback.listen(port, "`mcp.port`", HOST)
    _log.info("typed tools at http://%s:%d%s", HOST, port, PATH)
    with listening:
        door = Door(ws, desk, port, Denials(ws, openclaw, clock.monotonic))
        loopback.serve(door, listening, until_eof=until_eof, lifespan="on", limit_concurrency=_AT_ONCE)
