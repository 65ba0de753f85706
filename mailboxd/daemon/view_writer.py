"""Writes what waits for a person to `.mailboxd/view.json`, for OpenClaw's chats and dashboard.

The plugin in OpenClaw's gateway reads the file, so that `/mailbox` and the dashboard need neither the daemon nor its
database. It is written again when what it says has changed, and looked at again at a pace that its own cost sets: in a
workspace with ten thousand tasks not after every event. Whether the daemon runs is in `health.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mailboxd.core.operator_orders import OPERATOR_ORDERS, OperatorOrder
from mailboxd.core.people import is_remote
from mailboxd.daemon.services import RELAXED, Service
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.remote_orders import card
from mailboxd.formats.health import Component
from mailboxd.formats.mailbox.files import directory, replace, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user import standstills
from mailboxd.ledger import attention, seen_items
from mailboxd.ledger.attention import Item, Need

FILE = "view.json"
VERSION = 1
_MOST = 30
"""Items of each sort."""
_MOST_DETAILS = 4_000
_QUIET = 1.0
"""Least seconds between two looks."""
_IDLE = 60.0
"""Seconds to the next look without an event: deadlines and troubles come without one."""
_SHARE = 50.0
"""A look may take this part of the time until the next."""


@dataclass(slots=True)
class ViewWriter:
    engine: Engine
    ws: Workspace
    service: Service = field(init=False)
    _next: float = 0.0
    _said: str = ""
    """The digest of what was last written."""

    def __post_init__(self) -> None:
        self.service = Service(self._look, Component.INDEX, RELAXED)

    def mark(self) -> None:
        """Something was recorded: look when it is time to."""
        if self.service.due > self._next:
            self.service.mark(self._next)

    def _look(self) -> float:
        """Write the file if it would say something else. Raises WorldError."""
        began = self.engine.clock.monotonic()
        said = _view(self.engine, self.ws)
        ended = self.engine.clock.monotonic()
        self._next = ended + max(_QUIET, (ended - began) * _SHARE)
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
        if digest != self._said:
            raw = json.dumps({"at": self.engine.clock.now(), **said}, ensure_ascii=False).encode(
                "utf-8", "backslashreplace"
            )
            with world_errors(f"write {self.ws.state / FILE}"), directory(self.ws.root, self.ws.state.name) as state:
                replace(state, FILE, raw + b"\n", lambda: True)
            self._said = digest
        return max(self._next, ended + _IDLE)


def _view(engine: Engine, ws: Workspace) -> dict[str, Any]:
    report, settings = engine.store.report, engine.settings
    seen = seen_items.seen(ws.root, os.environ, engine.clock.now())
    program = attention.program_for(ws)
    paused = standstills.standstill(os.environ)
    found = attention.of(ws, report, engine.clock, program, seen, most=_MOST, paused=paused)
    return {
        "version": VERSION,
        "agent": settings.agent,
        "command": program,
        "people": [person for person in settings.approvers if is_remote(person)],
        "approves_all": settings.chat_approves_all,
        "counts": found.states(found.open.phases),
        "total": found.total,
        "orders": {order.name: _words(order) for order in OPERATOR_ORDERS if order.chat},
        "items": list(_items(engine, found.items)),
    }


def _words(order: OperatorOrder) -> list[dict[str, Any]]:
    """What follows the task's name in a chat: each a word, the last one all that is left."""
    return [{"name": one.name.replace("_", "-"), "required": one.required} for one in order.in_chat]


def _items(engine: Engine, items: tuple[Item, ...]) -> Iterator[dict[str, Any]]:
    for item in items:
        said = item.as_json() | {"name": _name(engine, item), "details": item.details[:_MOST_DETAILS]}
        row = engine.store.approvals.get(item.id) if item.kind is Need.APPROVAL else None
        if row is not None:
            said |= {"name": row.short_id, "approval": card(row)}
        yield said


def _name(engine: Engine, item: Item) -> str:
    """What a person calls it in an order."""
    if item.kind is Need.FAILED:
        return engine.store.tasks.local_id(item.id) or item.task
    return item.task or (item.id[-6:].lower() if item.id.startswith(("msg_", "dbt_")) else item.id)
