"""load -> decide -> record, in one transaction. The only caller of `decide`, and the same for every entrance.

The daemon groups all that one wake-up brought into one `batch`, which is one commit. The CLI calls the same engine
in its own process, so commands work while the daemon is down; only the daemon performs effects.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mailboxd.clock import Clock
from mailboxd.core import dag, schedule
from mailboxd.core.decide import decide
from mailboxd.core.draft import Decision
from mailboxd.core.effects import Bounce, Effect, LookUp, RunTurn, Send
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import (
    Cancel,
    Clarification,
    Edited,
    Input,
    Planned,
    Redispatch,
    Reply,
    Retry,
    Start,
    TimePassed,
    TurnEnded,
    Unblock,
)
from mailboxd.core.lifecycle import CLOSES_CHILDREN
from mailboxd.core.roles import Verb, require
from mailboxd.core.settle import settle
from mailboxd.core.terms import TERMINAL, Phase
from mailboxd.core.types import Plan, PlannedChild, Policy, Task
from mailboxd.core.view import Context, Level, Limits
from mailboxd.errors import Refused
from mailboxd.ids import Ids
from mailboxd.store.store import Store

_VERBS: dict[type, Verb] = dict.fromkeys((Cancel, Clarification, Retry, Unblock), Verb.COMMAND)


@dataclass(frozen=True, slots=True)
class Settings:
    """What decisions read of the configuration."""

    agent: str
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    jitter_share: float = 0.2
    slots: int = 4
    slots_per_agent: int = 1


@dataclass(slots=True)
class Engine:
    """One workspace's decisions. `random` and `new_token` are injected so that a simulation repeats itself."""

    store: Store
    settings: Settings
    clock: Clock
    ids: Ids = field(default_factory=Ids)
    random: Random = field(default_factory=Random)
    new_token: Callable[[], str] = lambda: secrets.token_urlsafe(24)
    may_reach: Callable[[str], str | None] = lambda _agent: None
    now: str = ""
    _touched: set[str] = field(default_factory=set)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction for any number of inputs; they all happen at one moment. Raises WorldError."""
        with self.store.transaction():
            self.now = self.clock.now()
            self._touched.clear()
            yield
            self.store.mark_for_rendering(self._touched)

    def hear(
        self, task_id: str | None, heard: Input, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
    ) -> list[Event]:
        """Let one input happen, with everything that follows from it; inside a batch. Returns the events.

        Raises Refused or PlanError, and then nothing was recorded.
        """
        require(role, _VERBS.get(type(heard), Verb.TRANSITION) if role is Role.OPERATOR else Verb.TRANSITION)
        view = None if task_id is None else self.store.view(task_id, family=_brings_plan(heard))
        events: list[Event] = []
        worklist: deque[str] = deque()
        self._record(decide(view, heard, self._context(), role, actor), events, worklist)
        while worklist:
            self._record(settle(self.store.view(worklist.popleft()), self._context()), events, worklist)
        if isinstance(heard, Redispatch) and view is not None and view.task.phase in (Phase.FAILED, Phase.COMPLETED):
            for fallen in self.store.fallen_below(view.task.id, also=""):
                events += self.hear(fallen, Retry())
        return events

    def command(self, task: Task, heard: Retry | Cancel | Unblock, actor: str) -> list[Event]:
        """An operator's order, with its reach: a retry reopens the failed tree around the task. Raises Refused."""
        events: list[Event] = []
        reach = self._reach(task, heard)
        for target in reach if task.id in reach else (task.id,):
            plain = heard if target == task.id or not isinstance(heard, Retry) else Retry()
            events += self.hear(target, plain, Role.OPERATOR, actor)
        return events

    def _reach(self, task: Task, heard: Retry | Cancel | Unblock) -> Sequence[str]:
        """Which tasks an order concerns: for a retry the failed ancestors first, then all that fell with them."""
        if not isinstance(heard, Retry):
            return (task.id,)
        top = task
        while top.parent is not None and (parent := self.store.task(top.parent)) and parent.phase is Phase.FAILED:
            top = parent
        fallen = [top.id] if top.phase in TERMINAL or top.id == task.id else []
        return fallen + self.store.fallen_below(top.id, also=task.id)

    def needs_of_edited(self, parent: Task, planned: PlannedChild) -> tuple[str, ...]:
        """The ids of what an edited child needs. Raises PlanError when it could no longer be carried out."""
        family = self.store.family(parent)
        others = {key: needs for key, needs in family.existing.nodes.items() if key != planned.key}
        dag.admit(Plan((planned,)), self.settings.limits, parent.depth, Level(others), family.outer)
        scopes = (family.existing.ids, *(level.ids for level in family.outer))
        return tuple(next(ids[need] for ids in scopes if need in ids) for need in planned.depends_on)

    def record(self, event: Event) -> None:
        """Evidence from the edge (a message received, filed, sent): recorded as it is, inside a batch."""
        self.store.append(event, self.now)
        if event.task is not None:
            self._touched.add(event.task)

    def order(self, task_id: str, effect: Effect) -> None:
        effect_id = _effect_id(effect) or self.new_id("trn")
        self.store.order(effect_id, task_id, effect, self.now)

    def new_id(self, prefix: str) -> str:
        return self.ids.new(prefix, self.now or self.clock.now())

    def tick(self) -> None:
        """Everything whose moment has come."""
        for task_id in self.store.due(self.now):
            self.hear(task_id, TimePassed())

    def schedule(self) -> int:
        """Start what is ready and has a slot; inside a batch. Returns how many were started."""
        started = 0
        while True:
            ready = [schedule.Ready(*row) for row in self.store.ready(self.now, self.settings.slots)]
            picked = schedule.pick(ready, self.store.busy(), self.settings.slots, self.settings.slots_per_agent)
            now_started = sum([self._start(task_id) for task_id in picked])
            if not now_started:
                return started
            started += now_started

    def _start(self, task_id: str) -> bool:
        """False when it is no longer ready: the start of one before it may have ended their parent."""
        try:
            self.hear(task_id, Start())
        except Refused:
            return False
        return True

    # -------------------------------------------------------------- inside

    def _context(self) -> Context:
        return Context(
            agent=self.settings.agent,
            now=self.now,
            new_id=self.new_id,
            new_token=self.new_token,
            jitter=self.random.random(),
            jitter_share=self.settings.jitter_share,
            limits=self.settings.limits,
            is_free=self.store.is_free,
            may_reach=self.may_reach,
        )

    def _record(self, decision: Decision, events: list[Event], worklist: deque[str]) -> None:
        born = {event.task for event in decision.events if event.kind is Kind.TASK_CREATED}
        for event in decision.events:
            self.record(event)
            events.append(event)
            if event.task is None:
                continue
            if event.kind is Kind.TASK_TRANSITIONED:
                worklist += self._woken(event.task, event.data)
            elif event.kind in (Kind.REVIEW_APPENDED, Kind.NEEDS_CHANGED) or (
                event.kind is Kind.TASK_CREATED and not born.issuperset(event.data["needs"])
            ):
                worklist.append(event.task)
        for task_id, effect in decision.effects:
            self.order(task_id, effect)

    def _woken(self, task_id: str, moved: Mapping[str, Any]) -> list[str]:
        """The neighbours for whom something may follow from this task's transition."""
        source, target = Phase(moved["from"]), Phase(moved["to"])
        woken = []
        if target.is_terminal or source.is_terminal:
            parent = self.store.parent(task_id)
            woken += [parent] if parent is not None else []
        if target in CLOSES_CHILDREN and self.store.has_open_children(task_id):
            woken += self.store.open_children(task_id)
        if target is Phase.CANCELLED and not moved["changes"].get("cancelled_with_parent"):
            woken += self.store.open_dependants(task_id)
        return woken


def _brings_plan(heard: Input) -> bool:
    match heard:
        case TurnEnded(answer=Planned()) | Reply(answer=Planned()):
            return True
        case Edited(added=added):
            return bool(added)
        case _:
            return False


def _effect_id(effect: Effect) -> str:
    match effect:
        case RunTurn(turn_id=name) | LookUp(turn_id=name):
            return name
        case Send(message_id=name) | Bounce(message_id=name):
            return name
        case _:
            return ""
