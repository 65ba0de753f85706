"""The listener of the page: loopback, and nowhere else."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mailboxd.host import loopback
from mailboxd.web.app import Site

# ---------------------------------------------------------------------------------------------------------------------
# What stands around every answer: what is refused before anything is looked at, and what a browser is told.
#
# The browser is the confused party: any page it shows can make it send a request to 127.0.0.1. So the name that it was
# called by has to be ours (a foreign name that resolves to loopback is refused), and what changes something has to come
# from a page of ours.

MOST_BYTES = 256 << 10
"""Of the body of a request."""
METHODS = ("GET", "HEAD", "POST")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all, a form of our own would name the origin `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Guard:
    """The application behind it is only asked what may be asked. `hosts` are its names with the port."""

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
        _log.warning("a request was refused: %s", bytes(refusal.body).decode().strip())
        await refusal(scope, receive, answer)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        named = headers.getlist("host")
        if len(named) != 1 or named[0].lower() not in self.hosts:
            return _refuse(421, "this name is not the page's: open it at 127.0.0.1 or localhost")
        if scope["method"] not in METHODS:
            return _refuse(405, "only GET, HEAD and POST")
        origins = headers.getlist("origin")
        ours = {f"http://{host}" for host in self.hosts}
        if any(origin.lower() not in ours for origin in origins) or (scope["method"] == "POST" and len(origins) != 1):
            return _refuse(403, "the request does not come from a page of mailboxd")
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _refuse(403, "the request does not come from a page of mailboxd")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES or "transfer-encoding" in headers:
            return _refuse(413, f"a request has at most {MOST_BYTES} bytes, and says how many")
        return None


def _refuse(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status, {"allow": ", ".join(METHODS)} if status == 405 else None)


# ---------------------------------------------------------------------------------------------------------------------
# The listener of the page: loopback, and nowhere else.

_AT_ONCE = 64
"""Connections; more are answered 503."""


def address(listening: socket.socket) -> str:
    """What to open: `http://127.0.0.1:8770`."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def names(listening: socket.socket) -> frozenset[str]:
    """What a browser may have called us."""
    port = listening.getsockname()[1]
    return frozenset({address(listening).removeprefix("http://"), f"localhost:{port}"})


def serve(site: Site, listening: socket.socket, *, until_eof: bool) -> None:
    """Serve until a signal, or with `until_eof` until standard input ends."""
    _log.info("the page is at %s", address(listening))
    guarded = Guard(site.application(), names(listening))
    try:
        loopback.serve(
            guarded, listening, until_eof=until_eof, ending=site.ending, lifespan="off", limit_concurrency=_AT_ONCE
        )
    finally:
        site.watch.close()
