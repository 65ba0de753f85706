"""The workspaces of this user, and their state as reported to other hosts: read again only when it has changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.core.operator_orders import OPERATOR
from mailboxd.errors import MailboxdError, WorldError
from mailboxd.formats import config, health
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.files import Stamp
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import registry
from mailboxd.host import wakeup
from mailboxd.host.clock import Clock
from mailboxd.hub.client.decisions import operators_spool, operators_workspace
from mailboxd.hub.files.membership import Membership
from mailboxd.hub.files.spool import Spool
from mailboxd.hub.wire.mail import Refusal
from mailboxd.hub.wire.presence import AgentCard, Waiting
from mailboxd.ledger import attention, seen_items
from mailboxd.ledger.reports import opened

_MOST = 20
"""Items of each sort in a workspace."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Local:
    """A workspace here."""

    ws: Workspace
    agent: str
    spool: Spool


@dataclass(frozen=True, slots=True)
class _Standing:
    seen: tuple[object, ...]
    """Values that differ if anything has changed."""
    card: AgentCard
    items: tuple[Waiting, ...] = ()


@dataclass(slots=True)
class Workspaces:
    """The workspaces here, and the spool of what a person here decides on other hosts."""

    membership: Membership
    environ: Mapping[str, str]
    clock: Clock
    local: dict[str, Local] = field(default_factory=dict)
    """By agent id in lower case."""
    unread: dict[Path, str] = field(default_factory=dict)
    """Why a workspace takes no part: which agent it has is not known then."""
    operator: Local = field(init=False)
    _agents_of: dict[Path, tuple[Stamp, str]] = field(default_factory=dict)
    _known: dict[Path, _Standing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operator = Local(operators_workspace(self.membership), OPERATOR, operators_spool(self.membership))

    def find(self) -> None:
        """The workspaces of this user and their agents."""
        found: dict[str, Local] = {}
        unread: dict[Path, str] = {}
        for ws in registry.workspaces(self.environ):
            try:
                stamp = Stamp.of(ws.config.stat())
                if self._agents_of.get(ws.root, (None,))[0] != stamp:
                    self._agents_of[ws.root] = stamp, config.load(ws.config).agent
                spool = Spool(ws)
                spool.create()
            except (OSError, MailboxdError) as error:
                unread[ws.root] = str(error)
                if unread[ws.root] != self.unread.get(ws.root):
                    _log.warning("the workspace %s takes no part in the hub: %s", ws.root, error)
                continue
            agent = self._agents_of[ws.root][1]
            found.setdefault(agent.lower(), Local(ws, agent, spool))
        self.local, self.unread = found, unread

    def spools(self) -> list[Local]:
        """All from which mail is sent."""
        return [*self.local.values(), self.operator]

    def receiver(self, agent: str) -> Local:
        """The workspace of an agent here. Raises Refusal, WorldError."""
        one = self.local.get(agent)
        if one is None and self.unread:
            raise WorldError(f"{agent} may be the agent of {', '.join(map(str, self.unread))}")
        if one is None:
            raise Refusal(f"this host has no agent {agent}")
        return one

    def wake(self, agent: str) -> None:
        """Tell an agent's daemon that there is something new."""
        if agent in self.local:
            wakeup.poke(self.local[agent].ws.state)

    def card(self, one: Local) -> AgentCard:
        return self._of(one).card

    def items(self, one: Local) -> tuple[Waiting, ...]:
        """The items that wait for a person there."""
        return self._of(one).items

    def _of(self, one: Local) -> _Standing:
        pid, now = lock.holder(one.ws), self.clock.now()
        grade, _ = health.read(one.ws, pid, now, self.clock.monotonic())
        seen = (pid, grade, now[:16], *_stamps(one.ws))  # a minute: some of it expires
        known = self._known.get(one.ws.root)
        if known is None or known.seen != seen:
            known = self._known[one.ws.root] = self._read(one, grade, seen)
        return known

    def _read(self, one: Local, grade: str, seen: tuple[object, ...]) -> _Standing:
        try:
            with opened(one.ws.database) as report, report.snapshot():
                known = seen_items.seen(one.ws.root, os.environ, self.clock.now())
                waiting = attention.of(one.ws, report, self.clock, attention.program_for(one.ws), known, most=_MOST)
        except (MailboxdError, OSError):
            return _Standing(seen, AgentCard(health=health.Grade.RED))
        items = tuple(Waiting.model_validate({"agent": one.agent, **item.as_json()}) for item in waiting.items)
        return _Standing(seen, AgentCard(health=grade, open=waiting.open.total, waiting=waiting.total), items)


def _stamps(ws: Workspace) -> Iterator[Stamp | None]:
    for path in (ws.database, ws.database.with_name(f"{ws.database.name}-wal"), ws.inbox):
        stamp = None
        with suppress(OSError):
            stamp = Stamp.of(path.stat())
        yield stamp
