"""The state of the workspaces here, as reported to other hosts: read again only when something has changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mailboxd import attention, health, user_state
from mailboxd.clock import Clock
from mailboxd.errors import MailboxdError
from mailboxd.hub.wire.cards import AgentCard, Waiting
from mailboxd.mailbox import lock
from mailboxd.mailbox.files import Stamp
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.reports import opened, workspace_summary

if TYPE_CHECKING:
    from mailboxd.hub.process.hub import Local


_MOST = 20
"""Items of each sort in a workspace."""


@dataclass(frozen=True, slots=True)
class _Standing:
    seen: tuple[object, ...]
    """Values that differ if anything has changed."""
    card: AgentCard
    items: tuple[Waiting, ...] = ()


@dataclass(slots=True)
class Standings:
    """How it stands with each workspace."""

    clock: Clock
    _known: dict[Path, _Standing] = field(default_factory=dict)

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
                known = user_state.seen(one.ws.root, os.environ, self.clock.now())
                open_tasks = sum(workspace_summary(report)["open"].values())
                waiting = attention.of(one.ws, report, self.clock, attention.program_for(one.ws), known, most=_MOST)
        except (MailboxdError, OSError):
            return _Standing(seen, AgentCard(health=health.Grade.RED))
        items = tuple(Waiting(agent=one.agent, **item.as_json()) for item in waiting.items)
        return _Standing(seen, AgentCard(health=grade, open=open_tasks, waiting=waiting.total), items)


def _stamps(ws: Workspace) -> Iterator[Stamp | None]:
    for path in (ws.database, ws.database.with_name(f"{ws.database.name}-wal"), ws.inbox):
        stamp = None
        with suppress(OSError):
            stamp = Stamp.of(path.stat())
        yield stamp
