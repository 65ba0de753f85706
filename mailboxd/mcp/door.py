"""The loopback listener: streamable HTTP at /mcp, for who has a token, and for no web page.

Stateless: every POST is one exchange and is answered in JSON; there are no sessions to keep, steal or forget, and a
restart is not noticed. The tokens are read again for every request, so what is taken back is void at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from mailboxd.errors import MailboxdError
from mailboxd.host import loopback
from mailboxd.mcp import tokens
from mailboxd.mcp.caller import AGENT_ROLES, Caller
from mailboxd.mcp.registration import HOST, PATH
from mailboxd.mcp.serving import Context, Desk, server
from mailboxd.workspace.layout import Workspace

MOST_BYTES = 1 << 20
"""Of one request."""
_AT_ONCE = 64
"""Connections; more are answered 503."""
_SECONDS = 30.0
"""One request may take, its upload included."""
_CALLER = "mailboxd.caller"
_log = logging.getLogger("mailboxd")


class Door:
    """The ASGI application. Everything it can refuse without reading a body it refuses first."""

    def __init__(self, ws: Workspace, desk: Desk, port: int) -> None:
        self._ws = ws
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
        async with self._sessions.run():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            return await _refuse(send, 404, "there is nothing here; the tools are at /mcp")
        if scope["method"] != "POST":
            return await _refuse(send, 405, "only POST: there are no sessions", (b"allow", b"POST"))
        try:
            caller = tokens.holder(tokens.load(self._ws), _bearer(scope))
        except MailboxdError as error:
            _log.error("no token can be checked: %s", error)
            return await _refuse(send, 503, "the tokens cannot be read; the log says why")
        if caller is None or caller.role not in AGENT_ROLES:
            _log.warning("a request without a valid token was refused")
            return await _refuse(send, 401, "a bearer token of `mailboxd mcp install` is needed", _CHALLENGE)
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


def serve(ws: Workspace, desk: Desk, port: int, *, until_eof: bool = False) -> None:
    """Listen until a signal, or with `until_eof` until standard input ends, as it does when who started us has died.

    Raises WorldError when the port is taken.
    """
    listening = loopback.listen(port, "`mcp.port`", HOST)
    _log.info("typed tools at http://%s:%d%s", HOST, port, PATH)
    with listening:
        loopback.serve(Door(ws, desk, port), listening, until_eof=until_eof, lifespan="on", limit_concurrency=_AT_ONCE)
