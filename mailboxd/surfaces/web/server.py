"""Serves the page on loopback: request checks, security headers, listener."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mailboxd.host import loopback
from mailboxd.surfaces.web.app import WebApp

# Any page in a browser can make it send requests to 127.0.0.1. So the Host header must be one of our names (this stops
# DNS rebinding), and a POST must come from one of our own pages.

MAX_BODY_BYTES = 256 << 10
"""Maximum size of a request body."""
METHODS = ("GET", "HEAD", "POST")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer` the page's own forms would send the origin `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Middleware that refuses unsafe requests and adds security headers. `hosts` are our names, with the port."""

    app: ASGIApp
    hosts: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers.update(HEADERS)
                message["headers"] = headers.raw
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, answer)
            return
        _log.warning("refused a request: %s", bytes(refusal.body).decode().strip())
        await refusal(scope, receive, answer)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        named = headers.getlist("host")
        if len(named) != 1 or named[0].lower() not in self.hosts:
            return _refuse(421, "wrong host name: open the page at 127.0.0.1 or localhost")
        if scope["method"] not in METHODS:
            return _refuse(405, "only GET, HEAD and POST are supported")
        origins = headers.getlist("origin")
        own = {f"http://{host}" for host in self.hosts}
        if any(origin.lower() not in own for origin in origins) or (scope["method"] == "POST" and len(origins) != 1):
            return _refuse(403, "the request does not come from mailboxd's own page")
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _refuse(403, "the request does not come from mailboxd's own page")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES or "transfer-encoding" in headers:
            return _refuse(413, f"a request needs a Content-Length of at most {MAX_BODY_BYTES} bytes")
        return None


def _refuse(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status, {"allow": ", ".join(METHODS)} if status == 405 else None)


_MAX_CONNECTIONS = 64
"""Further connections get 503."""


def url(listening: socket.socket) -> str:
    """The address of the page: `http://127.0.0.1:8770`."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def host_names(listening: socket.socket) -> frozenset[str]:
    """The names, with the port, that a browser may use for us."""
    port = listening.getsockname()[1]
    return frozenset({url(listening).removeprefix("http://"), f"localhost:{port}"})


def serve(app: WebApp, listening: socket.socket, *, until_eof: bool) -> None:
    """Serve until a signal, or with `until_eof` until standard input ends."""
    _log.info("the page is at %s", url(listening))
    guarded = RequestGuard(app.application(), host_names(listening))
    loopback.serve(guarded, listening, until_eof=until_eof, lifespan="off", limit_concurrency=_MAX_CONNECTIONS)
