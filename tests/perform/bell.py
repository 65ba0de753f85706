"""A bell: it rings for people when something waits for them, and its programs are real ones."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from mailboxd.core.effects import Notify
from mailboxd.engine import open
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.formats import config
from mailboxd.formats.config.model import NotifySection
from mailboxd.ledger.store import Order
from mailboxd.perform import notifier
from mailboxd.perform.gateway_calls import GatewayCalls
from mailboxd.perform.notifier import MOST_AT_ONCE, PeopleNotifier, Sending
from mailboxd.perform.process_table import CallKind, Caps, ProcessTable
from tests.cli.stage import Stage

PAUSES = notifier.PAUSES
"""Seconds between the tries of one notice."""
QUIET_TRIES = notifier.QUIET_TRIES
"""After so many that failed, people learn in the inbox that nobody was reached."""


@dataclass
class Bell:
    """A workspace whose requests are told, one round after the other."""

    stage: Stage
    calls: ProcessTable
    ways: NotifySection = field(default_factory=NotifySection)
    openclaw: tuple[str, ...] = ()
    sending: dict[str, Sending] = field(default_factory=dict)
    together: bool = False
    page: str = ""

    @classmethod
    def beside(cls, stage: Stage, selector: selectors.BaseSelector) -> Self:
        """A bell that starts the programs of this workspace, one at a time."""
        return cls(stage, ProcessTable(stage.ws.turns, selector, dict(os.environ), 1 << 20, 0.2, Caps(1, 1)))

    @contextmanager
    def opened(self) -> Iterator[Engine]:
        with open.engine(self.stage.ws, config.load(self.stage.ws.config)) as engine:
            engine.clock = self.stage.clock
            yield engine

    def orders(self, engine: Engine) -> list[Order]:
        pending = engine.store.outbox.pending(self.stage.clock.now(), 100)
        return [order for order in pending if isinstance(order.effect, Notify)]

    def ring(self) -> int:
        """Begin every notice that is due and wait for their ends; how many were begun."""
        with self.opened() as engine:
            reports = Reports(engine)
            notifying = PeopleNotifier(
                engine,
                self.calls,
                self.stage.ws,
                self.ways,
                GatewayCalls(self.openclaw),
                reports,
                sending=self.sending,
                page=self.page,
                together=self.together,
            )
            orders = self.orders(engine)
            for order in orders:
                assert isinstance(order.effect, Notify)
                notifying.begin(order, order.effect)
                assert self.calls.running or reports or len(orders) > MOST_AT_ONCE
            while self.calls.running:
                self.take_ended(notifying)
            with engine.batch():
                reports.record_all()
            self.calls.discard_recorded()
        return len(orders)

    def take_ended(self, notifying: PeopleNotifier) -> bool:
        """Whether nothing runs any more."""
        for call, exit_ in self.calls.ended():
            assert call.kind is CallKind.NOTICE
            assert call.order is not None
            notifying.ended(call.order, call, exit_)
        return not self.calls.running

    def ordered(self) -> list[str]:
        """The notices that are due, by the ids of their orders."""
        with self.opened() as engine:
            return [order.id for order in self.orders(engine)]

    def start(self) -> None:
        """What a daemon does as it starts."""
        with self.opened() as engine, engine.batch():
            self.notifying(engine).try_again()

    def order_trouble_notices(self) -> None:
        with self.opened() as engine, engine.batch():
            self.notifying(engine).order_trouble_notices()

    def order_digest(self) -> None:
        with self.opened() as engine, engine.batch():
            self.notifying(engine).order_digest()

    def notifying(self, engine: Engine) -> PeopleNotifier:
        return PeopleNotifier(
            engine, self.calls, self.stage.ws, self.ways, GatewayCalls(self.openclaw), Reports(engine)
        )

    def states(self) -> list[str]:
        with self.opened() as engine:
            return [row[0] for row in engine.store.db.execute("SELECT state FROM v_outbox WHERE kind = 'notify'")]

    def said(self, kind: str) -> list[str]:
        """The events of this kind, in words."""
        return [event["text"] for event in self.stage.json("log") if event["kind"] == kind]

    def untold(self) -> list[dict[str, Any]]:
        """The items of the inbox about what has not reached people."""
        return [item for item in self.stage.json("inbox") if item["kind"] == "notice"]
