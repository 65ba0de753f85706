"""The protocol: one server for a transport, which asks for every request who speaks, and answers in that role."""

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
from mailboxd.mcp import arguments
from mailboxd.mcp.tokens import Caller
from mailboxd.mcp.tools import Answer, Call, Tool, run, shown

INSTRUCTIONS = (
    "Tasks of this workspace. Everything you record is evidence in your name; only mailboxd moves phases. "
    "A refusal names the rule it follows from: mend the call, do not repeat it."
)
_AT_ONCE = 4
"""Calls that have the database open at the same time; it has one writer anyway."""
_log = logging.getLogger("mailboxd")

Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """A workspace that is served. `opened` gives an engine for one call, which records and leaves effects undone."""

    root: Path
    state: Path
    opened: Callable[[], AbstractContextManager[Engine]]

    def do(self, caller: Caller, name: str, values: object) -> Answer:
        """One call, start to end, in any thread; the daemon is woken for what follows. Raises MailboxdError."""
        with self.opened() as engine:
            answer = run(Call(engine, caller, self.root), name, values)
        wakeup.poke(self.state)
        return answer


def server(desk: Desk, caller_of: Callable[[Context], Caller]) -> Server[Any]:
    """An MCP server for the desk; `caller_of` says for a request who speaks."""
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def list_tools(context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=descriptions(caller_of(context)))

    async def call_tool(context: Context, given: types.CallToolRequestParams) -> types.CallToolResult:
        act = partial(_attempt, desk, caller_of(context), given.name, given.arguments or {})
        return await anyio.to_thread.run_sync(act, limiter=limiter)

    return Server(
        "mailboxd",
        version=version("mailboxd"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def descriptions(caller: Caller) -> list[types.Tool]:
    """The tools of the caller's role, as they are listed."""
    return [_description(name, tool) for name, tool in shown(caller).items()]


def _description(name: str, tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads,
        destructive_hint=None if tool.reads else tool.ends,
        idempotent_hint=None if tool.reads else tool.again,
        open_world_hint=False,
    )
    return types.Tool(name=name, description=tool.says, input_schema=arguments.schema(tool.takes), annotations=hints)


def _attempt(desk: Desk, caller: Caller, name: str, values: object) -> types.CallToolResult:
    """A call and its result. What is refused is a result, too: the model has to read the rule."""
    try:
        answer = desk.do(caller, name, values)
    except (Refused, PlanError) as refusal:
        _log.info("%s: %s: refused: %s", caller, name, refusal)
        return _refusal(str(refusal), rule=refusal.rule, problem=refusal.problem, hint=refusal.hint)
    except MailboxdError as error:
        _log.error("%s: %s: %s", caller, name, error)
        return _refusal(f"mailboxd cannot do it now: {error}", rule="unavailable", problem=str(error))
    except Exception as bug:
        _log.exception("a bug of mailboxd: %s could not be done; please report this", name)
        said = f"a bug of mailboxd ({type(bug).__name__}); its log has the details. Nothing was changed."
        return _refusal(said, rule="internal", problem=said)
    return types.CallToolResult(content=[_text(answer)], structured_content=answer)


def _refusal(text: str, **error: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content={"error": error}, is_error=True
    )


def _text(answer: Answer) -> types.TextContent:
    return types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))


async def stdio(desk: Desk, caller: Caller) -> None:
    """Serve one caller over standard input and output until the input ends."""
    serving = server(desk, lambda _: caller)
    async with stdio_server() as (incoming, outgoing):
        await serving.run(incoming, outgoing, serving.create_initialization_options())
