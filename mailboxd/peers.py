"""Whom this agent may give work to, as OpenClaw's own configuration says. No file of ours lists peers.

The last good answer is kept in the database: turns still run when the commands that list agents fail. Until there
ever was an answer nobody is refused here; OpenClaw refuses an unknown agent by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.discovery import parse_agents, parse_allowed
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.process import NotStarted
from mailboxd.calls import Call, Calls, NewCall
from mailboxd.core.terms import OPERATORS, SELF
from mailboxd.engine import Engine
from mailboxd.messages.prompts import Peer

_CALL_SECONDS = 60.0
_META = "peers"


@dataclass(slots=True)
class Peers:
    engine: Engine
    calls: Calls
    openclaw: OpenClaw
    agent: str
    enabled: bool = True
    known: dict[str, str] = field(default_factory=dict)
    """Agent id -> display name."""
    allowed: tuple[str, ...] | None = None
    """Whom this agent may reach; None = anybody that is known."""
    _waiting: set[str] = field(default_factory=set)

    def load(self) -> None:
        """The answer that an earlier daemon got."""
        stored: dict[str, Any] = json.loads(self.engine.store.meta(_META) or "{}")
        self.known = stored.get("known", {})
        allowed = stored.get("allowed")
        self.allowed = None if allowed is None else tuple(allowed)

    def ask(self) -> None:
        """Begin to ask OpenClaw; the answers arrive through `ended`. A program that is missing is not asked."""
        if not self.enabled:
            return
        for name, argv in (
            ("agents", self.openclaw.agents_list_argv()),
            ("allowed", self.openclaw.config_agents_argv()),
        ):
            call_id = f"discovery.{name}"
            self.calls.discard(call_id)
            try:
                self.calls.start(NewCall(call_id, "", call_id, _CALL_SECONDS), argv, self.engine.clock.monotonic())
            except NotStarted:
                return
            self._waiting.add(call_id)

    @property
    def is_asking(self) -> bool:
        return bool(self._waiting)

    def owns(self, call: Call) -> bool:
        return call.id in self._waiting

    def ended(self, call: Call, exit_: Exit) -> None:
        """Take an answer; inside a batch. One that cannot be read changes nothing."""
        self._waiting.discard(call.id)
        self.calls.discard(call.id)
        if call.id == "discovery.agents":
            agents = parse_agents(exit_)
            if agents:
                self.known = {peer.id: peer.name for peer in agents}
        else:
            rule = parse_allowed(exit_, self.agent)
            if rule is not None:
                self.allowed = None if rule.anyone else tuple(sorted(rule.agents))
        self.engine.store.set_meta(_META, json.dumps({"known": self.known, "allowed": self.allowed}))

    def may_reach(self, agent: str) -> str | None:
        """Why `agent` may not be given work; None = it may. Ids match case-insensitively."""
        if agent == SELF or agent.lower() == self.agent.lower():
            return None
        if self.known and agent.lower() not in {name.lower() for name in self.known}:
            return f"there is no agent {agent}; there are {', '.join(sorted(self.known))}"
        if self.allowed is not None and agent.lower() not in self.allowed:
            allowed = ", ".join(self.allowed) or "nobody"
            return f"OpenClaw's configuration does not let {self.agent} give work to {agent}; it may reach {allowed}"
        return None

    def route(self, agent: str) -> str | None:
        """Why a message cannot be handed to `agent`; None = it can. An answer needs no permission, only a receiver."""
        if agent in OPERATORS:
            return ""
        if self.known and agent.lower() not in {name.lower() for name in self.known}:
            return f"there is no agent {agent} in this OpenClaw"
        return None

    def offered(self) -> tuple[Peer, ...]:
        """The peers a plan may name."""
        names = sorted(self.known) if self.known else sorted(self.allowed or ())
        return tuple(
            Peer(name, self.known.get(name, ""))
            for name in names
            if name != self.agent and self.may_reach(name) is None
        )
