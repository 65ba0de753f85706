"""Requests to OpenClaw's gateway that are no turns: how they reach it, and how one is begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from mailboxd.engine.engine import Engine
from mailboxd.perform.agents.call_dir import PROMPT
from mailboxd.perform.agents.gateway.transport import GatewayTransport
from mailboxd.perform.agents.process import NotStarted
from mailboxd.perform.process_table import Call, CallKind, ProcessTable

_UNKNOWN_METHOD = ("unknown method", "missing scope: operator.admin")
"""To a device without all rights a method that no plugin has registered is one that needs them."""


@dataclass(frozen=True, slots=True)
class GatewayCalls:
    """How requests reach the gateway: over the connection of a paired workspace, else by OpenClaw's CLI."""

    openclaw: tuple[str, ...]
    transport: GatewayTransport | None = None

    def request(
        self, method: str, params: Mapping[str, object], seconds: int
    ) -> tuple[tuple[str, ...], dict[str, bytes]]:
        """What makes this request, and the files for it."""
        if self.transport is not None:
            raw = json.dumps(params, ensure_ascii=False).encode("utf-8", "backslashreplace")
            return self.transport.request_argv(method, seconds), {PROMPT: raw}
        return (*self.openclaw, "gateway", "call", method, f"--params={json.dumps(params)}", "--json"), {}

    def begin(
        self, engine: Engine, calls: ProcessTable, method: str, params: Mapping[str, object], seconds: int
    ) -> str:
        """Begin this request as a call that no order has made; returns the call, empty if it cannot be started."""
        name = f".{engine.new_id('trn')}"  # no order's: what a daemon leaves that dies is removed
        call = Call(name, CallKind.PROMPT, "", f"request:{name}", float(seconds), without_slot=True)
        argv, files = self.request(method, params, seconds)
        try:
            calls.start(call, argv, engine.clock.monotonic(), files=files)
        except NotStarted:
            return ""
        return name


def is_unknown_method(problem: str) -> bool:
    """Whether the gateway has no such method: its plugin is missing or older."""
    return any(words in problem for words in _UNKNOWN_METHOD)
