"""The agents that may be given work, according to OpenClaw's configuration. mailboxd has no list of peers.

OpenClaw is asked when the daemon starts, when its configuration file changes (a `stat` per round), soon after a peer
was refused, and periodically, because included files are not watched. Until a change has been read, no message or plan
is taken, so outdated rules are never applied.

The last good answer is kept in the database, so work continues if the commands that list agents fail. Until there is
one, no peer is given work: `openclaw agent`, the operator's command, does not enforce these rules.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mailboxd.core.messaging import Messaging
from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import NO_SUCH_AGENT, OPERATORS, SELF
from mailboxd.daemon.placement import Misplaced, misplaced
from mailboxd.engine.engine import Engine
from mailboxd.errors import ConfigError, WorldError
from mailboxd.formats import health
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import Stamp
from mailboxd.formats.mailbox.identity import brief_role, read_identity
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.prompts import Peer
from mailboxd.host.process import cores
from mailboxd.hub.files.view import HubInfo, HubView
from mailboxd.ledger.attention import program_for
from mailboxd.ledger.meta import PEERS
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.gateway.transport import from_config
from mailboxd.perform.agents.json_output import parse_object
from mailboxd.perform.agents.openclaw import (
    AGENTS_LIST,
    CONFIG_FILE,
    OpenClaw,
    config_get,
    hides_plugin,
    messaging,
    parse_agents,
    parse_config_file,
    parse_rules,
    parse_section,
    parse_version,
)
from mailboxd.perform.agents.openclaw_versions import Version, offer, why_too_old, why_untested
from mailboxd.perform.agents.process import NotStarted
from mailboxd.perform.agents.readiness import Gateway, is_loopback
from mailboxd.perform.process_table import Call, CallKind, ProcessTable

_CALL_SECONDS = 60.0
_REFRESH_SECONDS = 900.0
_RECHECK_SECONDS = 60.0
"""Seconds between two queries after an agent was refused."""
_VERSION, _FILE = "discovery.version", "discovery.file"
_AGENTS, _RULES, _TOOLS = "discovery.agents", "discovery.allowed", "discovery.tools"
_CHANGEABLE = (_AGENTS, _RULES, _TOOLS)
_GATEWAY = "discovery.gateway"
"""Asked last, because nothing waits for it."""
_QUERIES = {
    _VERSION: ("--version",),
    _FILE: CONFIG_FILE,
    _AGENTS: AGENTS_LIST,
    _RULES: config_get("agents"),
    _TOOLS: config_get("tools"),
    _GATEWAY: config_get("gateway"),
}
ANYONE = Messaging(enabled=True, patterns=())
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Known:
    """An agent of this OpenClaw: its name and its workspace."""

    name: str
    workspace: str = ""


@dataclass(slots=True)
class Peers:
    engine: Engine
    calls: ProcessTable
    openclaw: OpenClaw
    agent: str
    enabled: bool = True
    gateway: Gateway = field(default_factory=Gateway)
    known: dict[str, Known] = field(default_factory=dict)
    """By agent id."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The roles in the configuration, by agent id in lower case."""
    allowed: tuple[str, ...] | None = None
    """The agents that this agent may reach; None = all that are known."""
    hub: HubView | None = None
    """The known agents on other hosts."""
    has_rules: bool = False
    """OpenClaw has answered this or an earlier daemon. Until then no other agent is given work."""
    messaging: Messaging = ANYONE
    hiding: frozenset[str] = frozenset()
    """Agents (lower case) that may not see the tools of mailboxd's plugin."""
    hides_all: bool = False
    """No agent may see them."""
    version: Version | None = None
    too_old: str = ""
    """Why this OpenClaw must not be used; empty = it may be."""
    root: Path = Path()
    """The workspace of this daemon."""
    misplaced: Misplaced | None = None
    """Why this daemon must not work for its agent here; None = it may."""
    _config_file: str = ""
    _queue: list[str] = field(default_factory=list)
    _waiting: set[str] = field(default_factory=set)
    _blocks_intake: bool = True
    """No message is taken before OpenClaw has answered."""
    _seen: Stamp | None = None
    _asked_at: float = 0.0
    _was_refused: bool = False
    _judged: tuple[str, HubInfo | None] = ("", None)
    """What was known when the tasks that wait for it were judged last."""
    _stored: str = ""
    _gateway_is_asked: bool = False

    def load(self) -> None:
        """Load the answers that an earlier daemon got."""
        self._stored = self.engine.store.meta.get(PEERS) or "{}"
        stored: dict[str, Any] = json.loads(self._stored)
        self.known = {name: Known(*fields) for name, fields in stored.get("known", {}).items()}
        self._find_place()
        self._blocks_intake = not self.known
        self.roles = stored.get("roles", {})
        allowed = stored.get("allowed")
        self.allowed = None if allowed is None else tuple(allowed)
        self.has_rules = bool(stored.get("has_rules"))
        self._config_file = stored.get("file", "")
        self.calls.lane = stored.get("lane")
        if "gateway" in stored:
            self.gateway.is_at(*stored["gateway"])
        hiding = stored.get("hiding", [])
        self.hiding, self.hides_all = frozenset(hiding), "*" in hiding
        if "messaging" in stored:
            enabled, patterns = stored["messaging"]
            self.messaging = Messaging(enabled, tuple(patterns))

    def ask(self) -> None:
        """Ask OpenClaw everything; the answers arrive through `ended`."""
        if self.enabled:
            self._queue = [_VERSION, _FILE, *_CHANGEABLE]
            self.continue_asking()

    def continue_asking(self) -> None:
        """Start the next queries, and repeat those whose answers may be out of date; outside of any batch."""
        if not self.enabled:
            return
        now = self.engine.clock.monotonic()
        if not self._queue and self._waiting <= {_GATEWAY}:
            self._check_age(now)
            if not (self._queue or self._waiting or self._gateway_is_asked):
                self._queue, self._gateway_is_asked = [_GATEWAY], True
        while self._queue and not self._must_pause(self._queue[0], now):
            name = self._queue.pop(0)
            if name == _AGENTS:
                self._asked_at, self._seen, self._was_refused = now, _stamp(self._config_file), False
            self.calls.discard(name)
            try:
                argv = self.openclaw.argv(*_QUERIES[name])
                self.calls.start(Call(name, CallKind.DISCOVERY, "", name, _CALL_SECONDS), argv, now)
            except NotStarted:  # a program that is missing is not asked
                self._queue.clear()
                self._asked_at, self._blocks_intake = now, False
                return
            except WorldError:
                self._queue.insert(0, name)
                raise
            self._waiting.add(name)

    @property
    def must_wait(self) -> bool:
        """Whether no turn may start and no message may be taken yet.

        No turn before the version is known, no plan before the peers are or while their rules are being read again. At
        the start, the answers of an earlier daemon are used until there are new ones, unless they say that this is the
        wrong place.
        """
        asking = {*self._waiting, *self._queue}
        return _VERSION in asking or (bool(asking) and (self._blocks_intake or self.misplaced is not None))

    @property
    def is_asking(self) -> bool:
        return bool(self._waiting)

    def ended(self, call: Call, exit_: Exit) -> None:
        """Take an answer; inside a batch. One that cannot be read changes nothing."""
        self._waiting.discard(call.id)
        self.calls.discard(call.id)
        match call.id:
            case "discovery.version":
                self._take_version(exit_)
            case "discovery.file":
                self._config_file = parse_config_file(exit_) or self._config_file
            case "discovery.agents":
                self._take_agents(exit_)
            case "discovery.allowed":
                self._take_rules(exit_)
            case "discovery.gateway":
                self._take_gateway(exit_)
            case _:
                self._take_tools(exit_)
        if not self._waiting and not self._queue:
            self._blocks_intake = False
            if not self.known:
                _log.warning("OpenClaw did not list its agents; see `mailboxd doctor`")
            self._store()

    # asking

    def _check_age(self, now: float) -> None:
        if self._config_file and _stamp(self._config_file) != self._seen:
            _log.info("%s has changed: asking OpenClaw for its agents", self._config_file)
            self._queue, self._blocks_intake, self._gateway_is_asked = list(_CHANGEABLE), True, False
        elif now - self._asked_at >= self._shelf_life:
            self._queue = list(_CHANGEABLE)

    @property
    def _shelf_life(self) -> float:
        """For how many seconds an answer counts."""
        return _RECHECK_SECONDS if self._was_refused or self.misplaced is not None else _REFRESH_SECONDS

    def _must_pause(self, name: str, now: float) -> bool:
        """One query at a time if memory is short; none about the rules before the file to watch is known."""
        if name in _CHANGEABLE and _FILE in self._waiting and not self._config_file:
            return True
        free = self.calls.free_bytes(now)
        return bool(self._waiting) and free is not None and free < self.calls.caps.call_bytes

    def _take_version(self, exit_: Exit) -> None:
        self.version = parse_version(exit_)
        if self.version is not None:
            self.too_old = why_too_old(self.version)
            if untested := why_untested(self.version):
                _log.warning("%s: `mailboxd doctor`", untested)

    def _take_agents(self, exit_: Exit) -> None:
        found = parse_agents(exit_)
        people = [peer.id for peer in found or () if peer.id.lower() in OPERATORS]
        if people:
            _log.warning(
                "the agent %s has a name reserved for operators and is given no work: rename it", ", ".join(people)
            )
        if found:
            self.known = {peer.id: Known(peer.name, peer.workspace) for peer in found if peer.id not in people}
            self._find_place()

    def _find_place(self) -> None:
        """Judge whether OpenClaw runs the agent in this workspace."""
        if self.enabled:
            homes = {name: one.workspace for name, one in self.known.items()}
            self.misplaced = misplaced(self.root, self.agent, homes)

    def _take_rules(self, exit_: Exit) -> None:
        rules = parse_rules(exit_, self.agent)
        if rules is not None:
            self.allowed = None if rules.allowed.anyone else tuple(sorted(rules.allowed.agents))
            self.roles, self.has_rules, self.hiding = rules.roles, True, rules.hiding
            self.calls.lane = rules.lane or offer(self.version).lane(cores())

    def _take_tools(self, exit_: Exit) -> None:
        """The rules about tools that are there for all agents."""
        section = parse_section(exit_)
        if section is not None:
            self.messaging, self.hides_all = messaging(section.get("agentToAgent"), self.version), hides_plugin(section)

    def _take_gateway(self, exit_: Exit) -> None:
        """The gateway's address; only one on this machine, without TLS, can be asked whether it is ready."""
        section = parse_object(exit_)
        if exit_.rc != 0 or section is None:
            return
        try:
            parts = urlsplit(from_config(section, self.calls.environment))
            host, port = parts.hostname or "", parts.port
        except (ConfigError, ValueError):
            return
        self.gateway.is_at(host, port if parts.scheme == "ws" and is_loopback(host) else None)

    def _store(self) -> None:
        answer = {
            "known": {name: (one.name, one.workspace) for name, one in self.known.items()},
            "command": shlex.join(self.openclaw.command),
            "roles": self.roles,
            "allowed": self.allowed,
            "has_rules": self.has_rules,
            "messaging": (self.messaging.enabled, self.messaging.patterns),
            "hiding": [*sorted(self.hiding), *(["*"] if self.hides_all else [])],
            "file": self._config_file,
            "lane": self.calls.lane,
            "gateway": (self.gateway.host, self.gateway.port),
        }
        text = json.dumps(answer)
        if text != self._stored:
            self._stored = text
            self.engine.store.meta.report(PEERS, text)

    # what is known

    def has_changed(self) -> bool:
        """Whether what is known of other agents has changed since this was last asked."""
        known = self._stored, self.hub.info if self.hub is not None else None
        changed, self._judged = known != self._judged, known
        return changed

    def may_reach(self, agent: str) -> str | None:
        """Why `agent` may not be given work, and who may be; None = it may. Ids match case-insensitively.

        Work for a host of the hub that was never heard from is taken: it waits until the host says whom it has.
        """
        if self.hub is not None and self.is_remote(agent) and self.hub.is_member and not self.hub.is_informed(agent):
            return None
        refused = self._refused(agent)
        self._was_refused = self._was_refused or refused is not None
        return refused

    def hides_tools(self, agent: str) -> bool:
        """Whether an agent may not see the tools of mailboxd's plugin."""
        return self.hides_all or agent.lower() in self.hiding

    def is_local(self, agent: str) -> bool:
        """Whether OpenClaw listed an agent of this id."""
        return agent.lower() in {name.lower() for name in self.known}

    def is_remote(self, agent: str) -> bool:
        """Whether the agent is on another host, or a pool; an agent of this OpenClaw with such an id comes first."""
        return self.hub is not None and self.hub.carries(agent) and not self.is_local(agent)

    def is_gone(self, agent: str) -> str | None:
        """Why `agent` no longer exists or may no longer be reached, according to OpenClaw; None = it may."""
        if agent.lower() == self.agent.lower():
            return self.own_missing() or None
        return self._refused(agent) if (self.has_rules and self.known) or self.is_remote(agent) else None

    def own_missing(self) -> str:
        """Why this daemon's own agent gets no work: OpenClaw has answered, and does not know it. Empty if it does."""
        if not (self.enabled and self.has_rules and self.known) or self.is_local(self.agent):
            return ""
        has, named = ", ".join(sorted(self.known)), "`agent:` in .mailboxd/config.yaml"
        return f"{NO_SUCH_AGENT}{self.agent}, only {has}; add it, or name one of these ({named})"

    def _refused(self, agent: str) -> str | None:
        if agent == SELF or agent.lower() == self.agent.lower():
            return None
        if self.hub is not None and self.is_remote(agent):
            return self.hub.refused(agent)
        if agent.lower() in OPERATORS:
            return f"{agent} is an operator, not an agent: use a question to ask an operator"
        if self.enabled and not self.has_rules:
            return f"it is not known yet which agents {self.agent} may give work to; `mailboxd doctor` says why"
        if self.known and not self.is_local(agent):
            return f"there is no agent {agent}; {self.agent} may give work to {self._reachable()}"
        if self.allowed is not None and agent.lower() not in self.allowed:
            why = f"OpenClaw's configuration does not let {self.agent} give work to {agent}"
            return f"{why}; it may reach {self._reachable()}"
        if not self.messaging.permits(self.agent, agent):
            why = f"OpenClaw's tools.agentToAgent does not let {self.agent} send work to {agent}"
            return f"{why}; it may reach {self._reachable()}"
        return None

    def _reachable(self) -> str:
        return ", ".join(name for name in sorted(self.known) if self._permitted(name)) or "nobody"

    def _permitted(self, name: str) -> bool:
        allowed = self.allowed is None or name.lower() in self.allowed
        return name.lower() != self.agent.lower() and allowed and self.messaging.permits(self.agent, name)

    def route(self, agent: str) -> str | None:
        """Why a message cannot be handed to `agent`; None = it can. An answer needs no permission, only a receiver."""
        if agent in OPERATORS:
            return ""
        if self.is_remote(agent):
            return None
        if self.known and not self.is_local(agent):
            return f"there is no agent {agent} in this OpenClaw"
        return None

    def away(self, agents: Iterable[str]) -> dict[str, str]:
        """Those of these agents whose mailbox has no working daemon: id in lower case -> reason.

        Agents without a mailbox, or with one that cannot be read, are left out; of those on other hosts, what their
        hosts say.
        """
        remote = {name.lower() for name in agents if self.is_remote(name)}
        found = {name: why for name in sorted(remote) if self.hub is not None and (why := self.hub.unwell(name))}
        places = {name.lower(): Workspace(Path(one.workspace)) for name, one in self.known.items() if one.workspace}
        clock = self.engine.clock
        for name in ({agent.lower() for agent in agents} - remote) & places.keys() - {self.agent.lower()}:
            ws = places[name]
            try:
                if not ws.inbox.is_dir():
                    continue
                pid = lock.holder(ws)
                grade, troubles = health.read(ws, pid, clock.now(), clock.monotonic())
            except (OSError, WorldError):
                continue
            why = next((trouble.why for trouble in troubles if trouble.grade is health.Grade.RED), "")
            if pid is None:
                found[name] = f"no daemon runs for {name}: `{program_for(ws)} run`"
            elif grade is health.Grade.RED:
                found[name] = f"the daemon of {name} does not work: {first_line(why)}"
        return found

    def offered(self) -> tuple[Peer, ...]:
        """The peers that a plan may name, with their roles from the configuration, else from their IDENTITY.md."""
        remote = self.hub.offered() if self.hub is not None else {}
        others = tuple(Peer(name, brief_role(role)) for name, role in remote.items() if not self.is_local(name))
        if not self.known:
            return (*(Peer(name) for name in sorted(self.allowed or ()) if name != self.agent), *others)
        return (*(Peer(name, self._does(name)) for name in sorted(self.known) if self._permitted(name)), *others)

    def _does(self, name: str) -> str:
        known = self.known[name]
        role = self.roles.get(name.lower()) or read_identity(known.workspace)
        called = known.name if known.name.lower() != name.lower() else ""
        return "; ".join(text for text in (brief_role(called), brief_role(role)) if text)


def _stamp(path: str) -> Stamp | None:
    try:
        return Stamp.of(Path(path).stat()) if path else None
    except OSError:
        return None
