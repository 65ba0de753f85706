"""A workspace with its three entrances: files, commands, and typed tools over a real connection in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp import Client

from mailboxd.core.inputs import OpenCircuit
from mailboxd.core.model import Overrides, PlannedChild, Policy
from mailboxd.core.vocabulary import Gate
from mailboxd.engine import open
from mailboxd.engine.intake.archive import InboxFile
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import MessageError
from mailboxd.formats import config
from mailboxd.ledger.reports import opened
from mailboxd.surfaces.mcp.server import ToolService, server
from mailboxd.surfaces.mcp.tokens import parse
from tests.cli.stage import Stage, task_of

T = TypeVar("T")

POLICY = Policy(backoff_base=10.0)
EXECUTOR, SPEC, QUALITY = "executor:alpha", "spec_reviewer:critic", "quality_reviewer:critic"
LOBSTER, OPERATOR, ORCHESTRATOR = "lobster:gate", "operator:kim", "orchestrator:mailboxd"
EVERYBODY = (ORCHESTRATOR, EXECUTOR, SPEC, QUALITY, LOBSTER, OPERATOR)


class Stand:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        settings = config.load(stage.ws.config)
        self.desk = ToolService(stage.ws.root, stage.ws.state, lambda: open.engine(stage.ws, settings))

    # ------------------------------------------------------------ how it comes to be

    def executing(self, name: str = "t") -> str:
        """A task whose turn runs; the id of its attempt."""
        self.stage.create(name, policy=POLICY)
        self.stage.start()
        return self.attempt(name)

    def at_gate(self, gate: Gate, name: str = "t", reviewers: tuple[str, ...] = ("critic",)) -> str:
        """A task that waits for its reviewers at this gate; the id of its attempt, if it has one."""
        self.stage.create(name, policy=replace(POLICY, gates=frozenset({gate}), reviewers=reviewers))
        if gate is not Gate.SPEC_REVIEW:
            self.stage.start()
            self.stage.end_turn(name, "the result")
        assert self.phase(name) == gate.value
        return "" if gate is Gate.SPEC_REVIEW else self.attempt(name)

    def to_be_reviewed(self, name: str = "t") -> str:
        """A task whose turn runs and for which a reviewer is named; the id of its attempt."""
        gates = frozenset({Gate.QUALITY_GATE})
        self.stage.create(name, policy=replace(POLICY, gates=gates, reviewers=("critic",)))
        self.stage.start()
        return self.attempt(name)

    def given_away(self, gate: Gate | None = None) -> None:
        """Work of boss's, whose child c the peer worker has acknowledged, or done, so that it waits at `gate`."""
        said = Overrides(gates=frozenset({gate}) if gate else frozenset(), reviewers=("critic",))
        self.stage.create("t", PlannedChild("c", ("worker",), "do it", overrides=said), sender="boss")
        self.stage.start()
        self.stage.end_turn("t.c", "---\ntype: ack\n---\n" if gate is None else "the result")

    def open_circuit(self, name: str = "t", result: str = "") -> None:
        """A task that waits for the operator; with `result`, it has one that could be accepted."""
        if result:
            self.at_gate(Gate.QUALITY_GATE, name)
        else:
            self.executing(name)
        with self.stage.engine() as engine:
            engine.handle(task_of(engine, name).id, OpenCircuit("stuck"))

    # ------------------------------------------------------------ what is seen

    def phase(self, name: str = "t") -> str:
        with self.stage.engine() as engine:
            return task_of(engine, name).phase.value

    def attempt(self, name: str = "t") -> str:
        with self.stage.engine() as engine:
            task = task_of(engine, name)
            attempt = engine.store.tasks.attempt(task.id, task.attempt)
        assert attempt is not None
        return attempt.id

    def last_event(self) -> int:
        with opened(self.stage.ws.database) as report:
            return report.last_event()

    def rows(self, sql: str, *args: object) -> list[dict[str, Any]]:
        with opened(self.stage.ws.database) as report:
            return report.rows(sql, *args)

    # ------------------------------------------------------------ the entrances

    def listed(self, who: str) -> list[types.Tool]:
        """The tools that this caller is shown."""

        async def ask(client: Client) -> list[types.Tool]:
            return (await client.list_tools()).tools

        return self._connected(who, ask)

    def call(self, who: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The tool's answer; a refusal is `{"error": {"rule": ...}}`."""

        async def ask(client: Client) -> types.CallToolResult:
            return await client.call_tool(tool, arguments)

        result = self._connected(who, ask)
        assert isinstance(result.structured_content, dict), result
        assert result.is_error is ("error" in result.structured_content)
        assert result.content
        return result.structured_content

    def _connected(self, who: str, ask: Callable[[Client], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with Client(server(self.desk, lambda _: parse(who))) as client:
                return await ask(client)

        return anyio.run(connected)

    def drop(self, text: str) -> str:
        """A file in the inbox; its verdict, or the rule by which it is rejected."""
        raw = text.encode()
        with self.stage.engine() as engine:
            intake = Intake(engine)
            file = InboxFile("dropped.md", raw, hashlib.sha256(raw).hexdigest(), len(raw), {})
            parsed = intake.parse(file)
            if isinstance(parsed, MessageError):
                return parsed.rule
            verdict = intake.receive(file, parsed)
            if verdict != "rejected":
                return verdict
            row = engine.store.db.execute(
                "SELECT reason FROM v_messages WHERE verdict = 'rejected' AND sha256 = ?", (file.sha256,)
            ).fetchone()
        return str(json.loads(row[0])["rule"])
