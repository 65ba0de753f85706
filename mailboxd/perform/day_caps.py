"""What a day may cost: counts it, reserves the estimate of each turn before it begins, and says when no more may begin.

The agent's cap covers all turns that its daemon has ordered: work, reviews, answers, corrections, messages that a model
reads. The host's cap covers those of all daemons of this user (`engine.spending`). What was spent is read from the
database, never counted up in memory, so a daemon that was killed goes on from what is recorded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import tzinfo

from mailboxd.core.spending import LATEST, MEASURES, NOTHING, Account, Spend, Standing, estimate
from mailboxd.core.times import plus
from mailboxd.engine import spending
from mailboxd.engine.engine import Engine
from mailboxd.engine.spending import Book, Ledger, LiveCaps, Row, Scope
from mailboxd.errors import ConfigError, WorldError
from mailboxd.host.clock import Day, day_of
from mailboxd.ledger.store import Order
from mailboxd.perform.process_table import PATIENCE, CallKind, ProcessTable

EVERY = 15.0
"""Seconds between two looks at what other daemons have spent, and at whether the day is over."""
SOON = 2.0
"""The same while turns wait for what others have reserved, and after a turn while no cap holds."""
_NO_DAY = Day("", "", "")
_NO_BOOK = Book({}, {})
_TURNS = (CallKind.TURN, CallKind.HARNESS_TURN)


@dataclass(slots=True)
class DayCaps:
    """The caps of one workspace's agent and of its host."""

    engine: Engine
    calls: ProcessTable
    ledger: Ledger
    of_agent: LiveCaps
    of_host: LiveCaps
    zone: tzinfo | None = None
    """That of the operator; None is that of this machine."""
    trouble: str = ""
    """Why what others spend is not known; empty if it is."""
    waits: str = ""
    """Why turns wait although no cap is reached, as this round has found."""
    hold: bool = True
    """Whether one of the caps held when it was last looked: else nothing waits for what a turn has cost."""
    _day: Day = _NO_DAY
    _spent: Spend = NOTHING
    _reserved: dict[str, tuple[Spend, str]] = field(default_factory=dict)
    """By order: the estimate of a turn that runs, and when it can run no longer."""
    _others: list[Spend] = field(default_factory=list)
    """What a turn of other daemons costs."""
    _is_typical: Spend | None = None
    """The median of all of them; None = to be computed."""
    _book: Book = field(default_factory=lambda: _NO_BOOK)
    _stamp: tuple[int, int] = (0, 0)
    """Of the account as it was read."""
    _next_entry: float = 0.0
    """When this workspace's row is written again (monotonic clock), if nobody waits for that."""
    _latest: dict[str, deque[Spend]] | None = None
    """By agent: what its latest turns have cost."""

    def perform(self) -> float:
        """Count what was spent and settle what was reserved; inside a batch. Returns when to do so again."""
        engine, now = self.engine, self.engine.now
        self.hold = self.of_agent().holds or self.of_host().holds
        self._learn()
        if not self._day.start <= now < self._day.end:
            self._day = day_of(now, self.zone)
        self._spent = engine.store.spending.between(self._day.start, self._day.end)
        self._settle()
        book = self._enter()
        self._others = [row.typical for name, row in book.rows.items() if name != self.ledger.own]
        standing = self._standing(book)
        engine.is_capped = standing.reached is not None
        waits, self.waits = self.waits, ""
        engine.store.meta.set_spending(standing, "" if engine.is_capped else waits)
        return engine.clock.monotonic() + (SOON if waits else EVERY)

    def leave(self) -> None:
        """Write what is spent and reserved for other daemons, for this one ends; inside a batch."""
        self._next_entry = 0.0
        self.perform()

    def reserve(self, order: Order) -> bool:
        """Reserve the estimate of a turn that is about to begin; False if it has to wait. May be repeated.

        While no cap holds, nothing asks for that: what runs when one comes to hold is reserved for then (`_settle`).
        """
        of_agent, of_host = self.of_agent().holds, self.of_host().holds
        if not (of_agent or of_host) or self.engine.is_remote(order.agent) or order.id in self._reserved:
            return True
        if not self.hold:  # since the last look
            self.perform()
        now, cost = self.engine.now, self.estimate(order.agent)
        if of_agent and not self._own().has_room(cost):
            self.waits = "agent"
            return False
        if not of_host:
            self._reserved[order.id] = (cost, self._until(order.task))
            return True
        try:
            with self.ledger.changing(self._day.name, now) as book:
                if not self._standing(book).host.has_room(cost):
                    self.waits = "host"
                    return False
                self._reserved[order.id] = (cost, self._until(order.task))
                book.rows[self.ledger.own] = self._row()
        except (WorldError, ConfigError) as error:  # the cap of the agent still counts
            self.trouble = str(error)
            self._reserved[order.id] = (cost, self._until(order.task))
        return True

    def estimate(self, agent: str) -> Spend:
        """What a turn of this agent will cost, as far as its latest ones tell, else those of others on this host."""
        known = self._latest or {}
        others = [one for one in (self._typical(), *self._others) if one]
        return estimate(tuple(known.get(agent.lower(), ())), others)

    def _typical(self) -> Spend:
        """The median of the latest turns that this daemon has ordered; nothing without any."""
        if self._is_typical is None:
            latest = [cost for costs in (self._latest or {}).values() for cost in costs]
            self._is_typical = estimate(latest) if latest else NOTHING
        return self._is_typical

    def _learn(self) -> None:
        """Take account of the turns that have ended."""
        if self._latest is None:
            known = self.engine.store.spending.latest()
            self._latest = {agent: deque(costs, LATEST) for agent, costs in known.items()}
            self.engine.costs.clear()  # those are among them
        self._is_typical = None if self.engine.costs else self._is_typical
        for agent, cost in self.engine.costs:
            if cost:
                self._latest.setdefault(agent.lower(), deque(maxlen=LATEST)).append(cost)
        self.engine.costs.clear()

    def _settle(self) -> None:
        """Reserve for those turns that run, also if another daemon began them, and for no others."""
        begun = {order: (task, agent) for order, task, agent in self.engine.store.outbox.begun_turns()}
        for call in self.calls.running.values():
            if call.kind in _TURNS and call.order is not None:
                begun[call.order.id] = (call.task, call.agent)
        kept, self._reserved = self._reserved, {}
        for order, (task, agent) in begun.items():
            if not self.engine.is_remote(agent):
                self._reserved[order] = kept.get(order) or (self.estimate(agent), self._until(task))

    def _until(self, task_id: str) -> str:
        task = self.engine.store.tasks.get(task_id)
        timeout = (task.policy if task is not None else self.engine.settings.policy).timeout
        return plus(self.engine.now, timeout + PATIENCE)

    def _enter(self) -> Book:
        """Write this workspace's row where it differs; returns the account."""
        now, row, mono = self.engine.now, self._row(), self.engine.clock.monotonic()
        try:
            if (stamp := self.ledger.stamp()) != self._stamp:
                self._book, self._stamp = self.ledger.book(), stamp
            known = self._book.rows.get(self.ledger.own)
            differs = known != row and (known is not None or bool(row.spent or row.reserved))
            if differs and mono < self._next_entry and not self._is_close(self._book):
                return self._book
            if differs:
                self._next_entry = mono + SOON
                with self.ledger.changing(self._day.name, now) as book:
                    book.rows[self.ledger.own] = row
                self._book = book
        except (WorldError, ConfigError) as error:
            # without a cap that holds, nothing depends on the account
            self.trouble = str(error) if self.of_host().holds else ""
            return _NO_BOOK
        self.trouble = self.of_host.problem  # that of the agent's file is told as any other of the configuration
        return self._book

    def _is_close(self, book: Book) -> bool:
        """Whether most of the host's cap is spent or reserved: what this workspace settles may let others go on."""
        if not self.of_host().holds:
            return False
        host = self._standing(book).host
        return any(
            2 * (host.spent.amount(name) + host.reserved.amount(name)) > host.caps.amount(name) > 0 for name in MEASURES
        )

    def _row(self) -> Row:
        return Row(self._day.name, self._spent, dict(self._reserved), self._typical())

    def _own(self) -> Account:
        """The cap of the agent."""
        return self._standing(_NO_BOOK).agent

    def _standing(self, book: Book) -> Standing:
        raised = self.engine.store.spending.raised(self._day.name)
        scope = Scope(self.engine.settings.agent, self.ledger.own, self._day, self.of_agent(), self.of_host())
        return spending.standing(scope, self._row(), raised, book, self.engine.now)
