"""The MCP server: lists the tools of the caller's role and runs its calls, over stdio or HTTP.

Over HTTP it is at /mcp on loopback, for clients with a bearer token; requests from web pages are refused. Stateless:
each POST gets one JSON response, so a restart goes unnoticed. The tokens are read for every request, so a revoked one
stops working immediately.

OpenClaw gives every agent, including new ones, the tools of all entries that it is not denied. So its configuration is
watched (one `stat` per second; while no server runs, the daemon notices new agents). After a change no request is
served until each agent is denied the entries of others; missing denials are added.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from mailboxd.engine.engine import Engine
from mailboxd.errors import MailboxdError, PlanError, Refused, UnavailableError
from mailboxd.formats.mailbox.files import Stamp
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host import loopback, wakeup
from mailboxd.host.clock import Clock
from mailboxd.surfaces.mcp import registration, tokens
from mailboxd.surfaces.mcp.registration import HOST, PATH, OpenClawConfig
from mailboxd.surfaces.mcp.tokens import AGENT_ROLES, Caller, Grant
from mailboxd.surfaces.mcp.tools import Answer, Tool, ToolCall, input_schema, run, tools_of

INSTRUCTIONS = (
    "Tasks of this workspace. Everything you record is evidence in your name; only mailboxd moves phases. "
    "A refusal names the rule that was broken: correct the call, do not repeat it."
)
_AT_ONCE = 4
"""Maximum number of concurrent calls; the database has one writer anyway."""
_log = logging.getLogger("mailboxd")

Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class ToolService:
    """Runs tool calls in a workspace. `open_engine` opens one that leaves effects to the daemon."""

    root: Path
    state: Path
    open_engine: Callable[[], AbstractContextManager[Engine]]

    def call(self, caller: Caller, name: str, values: object) -> Answer:
        """Run one call, in any thread, and wake the daemon. Raises MailboxdError."""
        with self.open_engine() as engine:
            answer = run(ToolCall(engine, caller, self.root), name, values)
        wakeup.poke(self.state)
        return answer


def server(service: ToolService, caller_of: Callable[[Context], Caller]) -> Server[Any]:
    """An MCP server for `service`; `caller_of` finds the caller of a request."""
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def list_tools(context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=descriptions(caller_of(context)))

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        act = partial(_call, service, caller_of(context), params.name, params.arguments or {})
        return await anyio.to_thread.run_sync(act, limiter=limiter)

    return Server(
        "mailboxd",
        version=version("mailboxd"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def descriptions(caller: Caller) -> list[types.Tool]:
    """The tools of the caller's role, as MCP lists them."""
    return [_description(name, tool) for name, tool in tools_of(caller).items()]


def _description(name: str, tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.read_only,
        destructive_hint=None if tool.read_only else tool.destructive,
        idempotent_hint=None if tool.read_only else tool.idempotent,
        open_world_hint=False,
    )
    return types.Tool(
        name=name, description=tool.description, input_schema=input_schema(tool.arguments), annotations=hints
    )


def _call(service: ToolService, caller: Caller, name: str, values: object) -> types.CallToolResult:
    """Run a call. A refusal is a result too, because the model must read the rule."""
    try:
        answer = service.call(caller, name, values)
    except (Refused, PlanError) as refusal:
        _log.info("%s: %s: refused: %s", caller, name, refusal)
        return _refusal(str(refusal), rule=refusal.rule, problem=refusal.problem, hint=refusal.hint)
    except MailboxdError as error:
        _log.error("%s: %s: %s", caller, name, error)
        return _refusal(f"mailboxd is unavailable: {error}", rule="unavailable", problem=str(error))
    except Exception as bug:
        _log.exception("a bug in mailboxd: %s failed; please report this", name)
        text = f"a bug in mailboxd ({type(bug).__name__}); see its log. Nothing was changed."
        return _refusal(text, rule="internal", problem=text)
    return types.CallToolResult(content=[_text(answer)], structured_content=answer)


def _refusal(text: str, **error: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content={"error": error}, is_error=True
    )


def _text(answer: Answer) -> types.TextContent:
    return types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))


async def stdio(service: ToolService, caller: Caller) -> None:
    """Serve one caller over standard input and output until the input ends."""
    mcp_server = server(service, lambda _: caller)
    async with stdio_server() as (incoming, outgoing):
        await mcp_server.run(incoming, outgoing, mcp_server.create_initialization_options())


MOST_BYTES = 1 << 20
"""Maximum size of a request."""
_MAX_CONNECTIONS = 64
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


class Memory:
    """What one server leaves to the next, in an open file without a name that the daemon hands to each of them.

    Only the daemon and its servers can reach it, and it goes with the daemon.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def recall(self) -> tuple[str, Stamp | None, float]:
        """OpenClaw's configuration, its stamp when no denial was missing, and when that was; the last two are None and
        never if it is to be checked.
        """
        if not (raw := os.pread(self._descriptor, _MEMORY_BYTES, 0)):
            return "", None, -math.inf
        file, stamp, checked_at = json.loads(raw)
        return file, Stamp(*stamp), checked_at

    def keep(self, file: str, stamp: Stamp, checked_at: float) -> None:
        """Remember it. A server that is killed meanwhile leaves nothing, and the next one checks."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps((file, stamp, checked_at)).encode(), 0)


_MEMORY_BYTES = 16_384


class Denials:
    """Whether each OpenClaw agent is denied the entries of the others, as of the last check."""

    def __init__(
        self, ws: Workspace, openclaw: OpenClawConfig, monotonic: Callable[[], float], memory: Memory | None = None
    ) -> None:
        self._ws, self._openclaw, self._monotonic, self._memory = ws, openclaw, monotonic, memory
        self._lock = asyncio.Lock()
        self._file = ""
        self._checked: Stamp | None = None
        """The stamp of the file when no denial was missing."""
        self._checked_at = -math.inf
        if memory is not None:
            self._file, self._checked, self._checked_at = memory.recall()
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
                if self._memory is not None and self._checked is not None and not self._refusal:
                    self._memory.keep(self._file, self._checked, self._checked_at)
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
            return await _refuse(
                send, 401, "a bearer token from `mailboxd connect mcp install` is required", _CHALLENGE
            )
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


REST_SECONDS = 120.0
"""A server that the daemon started on demand ends when nobody has asked for so long. Its start takes 1.5 s of CPU."""


def serve_http(
    ws: Workspace, service: ToolService, listening: socket.socket, openclaw: OpenClawConfig, clock: Clock,
    *, until_eof: bool = False, memory: Memory | None = None,
) -> None:  # fmt: skip
    """Serve on a listening socket until a signal, or with `until_eof` until standard input ends, as it does when the
    parent dies.

    `memory`: it was started on demand, so it ends when nobody asks for a while, and remembers there for the next one
    that OpenClaw's configuration has been checked.
    """
    port = listening.getsockname()[1]
    _log.info("typed tools at http://%s:%d%s", HOST, port, PATH)
    with listening:
        app = HttpApp(ws, service, port, Denials(ws, openclaw, clock.monotonic, memory))
        rest = REST_SECONDS if memory is not None else 0.0
        loopback.serve(
            app, listening, until_eof=until_eof, rest_seconds=rest, lifespan="on", limit_concurrency=_MAX_CONNECTIONS
        )
