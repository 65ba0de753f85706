"""The engine of a rebuild: the daemon's own, on a clock that is set, with ids that are given, over files that exist.

What the engine orders and a file in outbox/ shows to be sent counts as sent: the order takes that file's id.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from mailboxd.clock import ManualClock
from mailboxd.core.effects import Bounce, Effect, RunTurn, Send
from mailboxd.core.events import Event, Kind
from mailboxd.core.view import View
from mailboxd.engine import Engine
from mailboxd.ids import Ids, time_of
from mailboxd.rebuild.sources import Sent
from mailboxd.settings import Settings
from mailboxd.store.fresh import FreshStore

_SEED = 0
"""Chance is fixed: the same files make the same database."""


class GivenIds(Ids):
    """Ids that are known from files come first, the others are made from the moment and a fixed sequence."""

    def __init__(self) -> None:
        random = Random(_SEED)  # noqa: S311 - nothing here is to be unguessable
        super().__init__(random.getrandbits)
        self._given: dict[str, deque[str]] = {}

    def give(self, prefix: str, name: str) -> None:
        """The next id with this prefix."""
        self._given.setdefault(prefix, deque()).append(name)

    def take_back(self) -> None:
        """Forget what was given and not used."""
        self._given.clear()

    def new(self, prefix: str, now: str) -> str:
        waiting = self._given.get(prefix)
        return waiting.popleft() if waiting else super().new(prefix, now)


@dataclass(slots=True)
class Ordered:
    """An effect that was ordered while the past was replayed."""

    id: str
    task: str
    effect: Effect
    sent: Sent | None


class ReplayStore(FreshStore):
    """The new database; it knows what lies in outbox/."""

    def know(self, sent: Sequence[Sent]) -> None:
        """What was sent, by type and the task in its name."""
        self.lies = ""
        """Where below mailbox/ the message lies that is judged now."""
        self.ordered: list[Ordered] = []
        self.fresh: list[Ordered] = []
        """Those for which a message was found that is not recorded yet."""
        self._of_task: dict[str, list[Effect]] = {}
        self.unmatched: dict[str, Sent] = {one.path: one for one in sent}
        self._by_work: dict[tuple[str, str], list[Sent]] = {}
        for one in sent:
            self._by_work.setdefault((one.message.type, one.of), []).append(one)

    def order(self, effect_id: str, task: str, effect: Effect, now: str) -> None:
        sent = self._find(task, effect, now)
        message_id = None if sent is None else sent.message.message_id
        if message_id is not None and isinstance(effect, Send | Bounce | RunTurn):
            effect = replace(effect, message_id=message_id)
            effect_id = effect_id if isinstance(effect, RunTurn) else message_id
        super().order(effect_id, task, effect, now)
        ordered = Ordered(effect_id, task, effect, sent)
        self.ordered.append(ordered)
        self._of_task.setdefault(task, []).append(effect)
        if sent is not None:
            self.fresh.append(ordered)

    def append(self, events: Sequence[Event], now: str, left: View | None = None) -> None:
        for event in events:
            if event.kind in (Kind.MESSAGE_RECEIVED, Kind.MESSAGE_REJECTED):
                # It was filed long ago: a second event that says only this was a quarter of all events.
                event.data["message"]["path"] = self.lies
        super().append(events, now, left)

    def ordered_for(self, task: str) -> Sequence[Effect]:
        """What was ordered for a task, in order."""
        return self._of_task.get(task, ())

    def _find(self, task: str, effect: Effect, now: str) -> Sent | None:
        match effect:
            case RunTurn(message_id=wanted, attempt_id=attempt_id) if wanted:
                known = self._by_work.get(("task", self.local_id(task)), [])
                fits = [one for one in known if one.message.attempt_id == attempt_id]
            case Send(type=kind):
                fits = self._by_work.get((kind, self.local_id(task)), [])
            case Bounce(task_id=task_id, in_reply_to=replied):
                known = self._by_work.get(("reply", task_id), [])
                fits = [one for one in known if one.message.in_reply_to == replied]
            case _:
                return None
        left = [one for one in fits if one.path in self.unmatched]
        exact = [one for one in left if time_of(one.message.message_id or "") == now]
        for one in exact or left:
            del self.unmatched[one.path]
            return one
        return None


@dataclass(slots=True)
class Desk:
    """The engine, and the clock that a replay sets."""

    engine: Engine
    store: ReplayStore
    clock: ManualClock
    ids: GivenIds
    tokens: deque[str] = field(default_factory=deque)
    _made: int = 0

    @classmethod
    def open(cls, settings: Settings, sent: Sequence[Sent], beginning: str) -> Desk:
        """A desk over the tables of a new database."""
        store = ReplayStore.empty(beginning)
        store.know(sent)
        clock, ids = ManualClock(beginning), GivenIds()
        random = Random(_SEED)  # noqa: S311 - the jitter of pauses that are over
        desk = cls(Engine(store, settings, clock, ids, random), store, clock, ids)
        desk.engine.new_token = desk._token
        return desk

    def _token(self) -> str:
        """That of the message that was sent; one for an attempt that nobody was sent is never compared."""
        self._made += 1
        return self.tokens.popleft() if self.tokens else hashlib.sha256(f"rebuilt {self._made}".encode()).hexdigest()
