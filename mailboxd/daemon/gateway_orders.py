"""Takes the orders that people give in OpenClaw's chats and on its dashboard from the plugin in the gateway.

The daemon asks: a request that the plugin answers when there is an order, or after some seconds with none. The next
request brings the answers of the orders that were carried out. The plugin hands an order over until it is answered, and
`intake.remote_orders` carries each out once, so that a crash on either side does no harm. Only a paired workspace has a
connection that can ask.

The request is no call of the `ProcessTable`: nobody waits for its end, and it is dropped when the daemon stops.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailboxd.daemon.services import Service
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.remote_orders import carry_out, read
from mailboxd.errors import WorldError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.perform.agents.alive import has_ended
from mailboxd.perform.agents.call_dir import PROMPT, Exit
from mailboxd.perform.agents.gateway.transport import GatewayTransport
from mailboxd.perform.agents.json_output import parse_text
from mailboxd.perform.agents.process import Child, NotStarted, remove
from mailboxd.perform.gateway_calls import is_unknown_method

METHOD = "mailboxd.orders"
WAIT_SECONDS = 50
"""How long the plugin waits for an order."""
_TIMEOUT = WAIT_SECONDS + 20
_RETRY = 3.0
_SOON = 1.0
"""Seconds within which an answer without orders means that another daemon asks for the same agent, in turn with us."""
_MISSING = 300.0
"""Seconds until a gateway whose plugin does not know the method is asked again."""
_MOST = 100
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class GatewayOrders:
    engine: Engine
    ws: Workspace
    selector: selectors.BaseSelector
    transport: GatewayTransport | None
    environment: Mapping[str, str]
    service: Service = field(init=False)
    _child: Child | None = None
    _number: int = 0
    _asked_at: float = 0.0
    answers: dict[str, str] = field(default_factory=dict)
    """By order: carried out, and the plugin has not confirmed that it knows."""
    _told: tuple[str, ...] = ()
    """The orders whose answers the request under way brings."""

    def __post_init__(self) -> None:
        self.service = Service(self._ask)

    @property
    def _folder(self) -> Path:
        return self.ws.state / "orders"

    def _ask(self) -> float | None:
        """Ask for orders, unless that is under way."""
        if self.transport is None or self._child is not None:
            return None
        if self._number == 0:
            shutil.rmtree(self._folder, ignore_errors=True)  # of an earlier daemon: its request is replaced
        self._number += 1
        directory = self._folder / f"{os.getpid()}.{self._number}"
        told = list(self.answers)[:_MOST]
        params = {
            "agent": self.engine.settings.agent,
            "waitMs": WAIT_SECONDS * 1000,
            "done": [{"id": order, "text": self.answers[order]} for order in told],
        }
        now = self.engine.clock.monotonic()
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            argv, files = self.transport.request_argv(METHOD, _TIMEOUT), {PROMPT: json.dumps(params).encode()}
            child = self.transport.spawn(directory, argv, self.environment, files=files, marked=True)
        except (NotStarted, WorldError, OSError):  # the gateway's health says what is wrong
            return now + _RETRY
        self._child, self._told, self._asked_at = child, tuple(told), now
        self.selector.register(child.pidfd, selectors.EVENT_READ, self)
        return None

    def collect(self) -> None:
        """Carry out what has come; inside a batch."""
        child = self._child
        if child is None or not has_ended(child.pidfd):
            return
        self.selector.unregister(child.pidfd)
        self._child = None
        exit_: Exit | None = None
        with suppress(WorldError):  # an output that cannot be read: what it brought is handed over again
            exit_ = child.reap()
        child.leave()
        with suppress(WorldError):
            remove(child.directory)
        now = self.engine.clock.monotonic()
        said = parse_text(exit_.stdout) if exit_ is not None and exit_.rc == 0 else None
        if not isinstance(said, dict) or not isinstance(said.get("orders"), list):
            self.service.mark(now + (_MISSING if exit_ is not None and _has_no_plugin(exit_) else _RETRY))
            return
        for order in self._told:
            self.answers.pop(order, None)
        # first, because an order that fails must not be the last one that is asked for
        self.service.mark(now + _RETRY if not said["orders"] and now - self._asked_at < _SOON else 0.0)
        self.take(said["orders"][:_MOST])

    def take(self, orders: Sequence[Any]) -> None:
        """Carry out these orders, as they were handed over; inside a batch."""
        for raw in orders:
            self._carry_out(raw)

    def _carry_out(self, raw: Any) -> None:
        order = read(raw)
        if order is not None:
            try:
                with self.engine.store.savepoint():
                    self.answers[order.id] = carry_out(self.engine, self.ws, order)
            except (WorldError, MemoryError):
                raise
            except Exception:
                _log.exception("a bug in mailboxd: an order over the gateway failed; please report it")
                self.answers[order.id] = "Failed, and nothing was done: a bug in mailboxd; see its log."
        elif isinstance(raw, dict) and isinstance(raw.get("id"), str):
            self.answers[raw["id"]] = "Refused: nobody vouches for who ordered this, or it is no order."

    def close(self) -> None:
        """Forget the request under way: an order that it brings is handed over again."""
        if self._child is not None:
            self.selector.unregister(self._child.pidfd)
            self._child.kill()
            self._child.leave()
            self._child = None


def _has_no_plugin(exit_: Exit) -> bool:
    return is_unknown_method((exit_.stdout + exit_.stderr).decode("utf-8", "replace"))
