"""Whom this agent may give work to, as OpenClaw's own configuration says. No file of ours lists peers.

The last good answer is kept in the database: turns still run when the commands that list agents fail. Until there
ever was an answer nobody is refused here; OpenClaw refuses an unknown agent by itself.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.discovery import (
    MESSAGING_BY_DEFAULT,
    MINIMUM_VERSION,
    Messaging,
    parse_agents,
    parse_allowed,
    parse_messaging,
    parse_version,
)
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.process import NotStarted
from mailboxd.calls import Call, Calls, NewCall
from mailboxd.core.terms import OPERATORS, SELF
from mailboxd.engine import Engine
from mailboxd.messages.prompts import Peer

_CALL_SECONDS = 60.0
_META = "peers"
_log = logging.getLogger("mailboxd")
_VERSION, _AGENTS = "discovery.version", "discovery.agents"
_ALLOWED, _MESSAGING = "discovery.allowed", "discovery.messaging"
EVERYBODY = Messaging(enabled=True, patterns=())


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
    messaging: Messaging = EVERYBODY
    version: tuple[int, int, int] | None = None
    too_old: str = ""
    """Why this OpenClaw must not be used; empty = it may be."""
    _waiting: set[str] = field(default_factory=set)
    _remembered: bool = False

    def load(self) -> None:
        """The answer that an earlier daemon got."""
        stored: dict[str, Any] = json.loads(self.engine.store.meta(_META) or "{}")
        self.known = stored.get("known", {})
        self._remembered = bool(self.known)
        allowed = stored.get("allowed")
        self.allowed = None if allowed is None else tuple(allowed)
        if "messaging" in stored:
            enabled, patterns = stored["messaging"]
            self.messaging = Messaging(enabled, tuple(patterns))

    def ask(self) -> None:
        """Begin to ask OpenClaw; the answers arrive through `ended`. A program that is missing is not asked."""
        if not self.enabled:
            return
        for name, argv in (
            (_VERSION, self.openclaw.version_argv()),
            (_AGENTS, self.openclaw.agents_list_argv()),
            (_ALLOWED, self.openclaw.config_agents_argv()),
            (_MESSAGING, self.openclaw.config_agent_to_agent_argv()),
        ):
            self.calls.discard(name)
            try:
                self.calls.start(NewCall(name, "", name, _CALL_SECONDS), argv, self.engine.clock.monotonic())
            except NotStarted:
                return
            self._waiting.add(name)

    @property
    def must_wait(self) -> bool:
        """Whether nothing may start yet: no turn before the version is known, no plan before the peers are.

        What an earlier daemon learnt of the peers is used while they are asked again.
        """
        return _VERSION in self._waiting or (bool(self._waiting) and not self._remembered)

    def owns(self, call: Call) -> bool:
        return call.id in self._waiting

    def ended(self, call: Call, exit_: Exit) -> None:
        """Take an answer; inside a batch. One that cannot be read changes nothing."""
        self._waiting.discard(call.id)
        self.calls.discard(call.id)
        if call.id == _VERSION:
            self._take_version(exit_)
        elif call.id == _AGENTS:
            self.known = {peer.id: peer.name for peer in parse_agents(exit_) or ()} or self.known
        elif call.id == _ALLOWED:
            rule = parse_allowed(exit_, self.agent)
            if rule is not None:
                self.allowed = None if rule.anyone else tuple(sorted(rule.agents))
        else:
            self.messaging = parse_messaging(exit_, self.version or MESSAGING_BY_DEFAULT) or self.messaging
        if not self._waiting and not self.known:
            _log.warning("OpenClaw did not say which agents there are: whom plans may name is not checked")
        answer = {
            "known": self.known,
            "allowed": self.allowed,
            "messaging": (self.messaging.enabled, self.messaging.patterns),
        }
        self.engine.store.set_meta(_META, json.dumps(answer))

    def _take_version(self, exit_: Exit) -> None:
        self.version = parse_version(exit_)
        if self.version is not None and self.version < MINIMUM_VERSION:
            found, wanted = (".".join(map(str, version)) for version in (self.version, MINIMUM_VERSION))
            self.too_old = (
                f"OpenClaw {found} is too old: when its gateway goes away in the middle of a turn it silently runs the "
                f"turn again. Install {wanted} or newer, or name another one in openclaw.command."
            )

    def may_reach(self, agent: str) -> str | None:
        """Why `agent` may not be given work; None = it may. Ids match case-insensitively."""
        if agent == SELF or agent.lower() == self.agent.lower():
            return None
        if self.known and agent.lower() not in {name.lower() for name in self.known}:
            return f"there is no agent {agent}; there are {', '.join(sorted(self.known))}"
        if self.allowed is not None and agent.lower() not in self.allowed:
            allowed = ", ".join(self.allowed) or "nobody"
            return f"OpenClaw's configuration does not let {self.agent} give work to {agent}; it may reach {allowed}"
        if not self.messaging.permits(self.agent, agent):
            return f"OpenClaw's tools.agentToAgent does not let {self.agent} send work to {agent}"
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
