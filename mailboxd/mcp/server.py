"""The MCP server: lists the tools of the caller's role and runs its calls."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
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

from mailboxd.engine.engine import Engine
from mailboxd.errors import MailboxdError, PlanError, Refused
from mailboxd.host import wakeup
from mailboxd.mcp.tokens import Caller
from mailboxd.mcp.tools import Answer, Tool, ToolCall, input_schema, run, tools_of

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
