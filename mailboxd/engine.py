"""load -> decide -> record, in one transaction. The only caller of `decide`, and the same for every entrance.

The daemon groups all that one wake-up brought into one `batch`, which is one commit. The CLI calls the same engine
in its own process, so commands work while the daemon is down; only the daemon performs effects.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from random import Random
from typing import Any

from mailboxd import reach, rewound
from mailboxd.clock import Clock, JumpWatch
from mailboxd.core import breaker, dag, schedule
from mailboxd.core.approvals import ActionPrepared, ActionStarted, ApprovalExpired, OfApproval
from mailboxd.core.approving import derived_key
from mailboxd.core.checks import may_not_run
from mailboxd.core.decide import decide
from mailboxd.core.draft import Decision
from mailboxd.core.effects import Bounce, Effect, LookUp, RunCheck, RunTurn, Send
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import (
    Cancel,
    Edited,
    Input,
    Redispatch,
    Reply,
    Retry,
    Start,
    TimePassed,
    TurnEnded,
    Unblock,
)
from mailboxd.core.lifecycle import CLOSES_CHILDREN
from mailboxd.core.outcomes import Planned
from mailboxd.core.roles import require, require_read, verb_of
from mailboxd.core.settle import settle
from mailboxd.core.specs import unknown_harness
from mailboxd.core.terms import TERMINAL, Phase
from mailboxd.core.times import plus
from mailboxd.core.types import Plan, PlannedChild, Task
from mailboxd.core.view import Context, Level, View
from mailboxd.errors import Refused
from mailboxd.ids import Ids
from mailboxd.pacing import Pacing
from mailboxd.settings import Settings
from mailboxd.store.store import Store

_HOUR = 3600.0
_SPENDS = frozenset({Kind.TURN_ENDED, Kind.USAGE_REPORTED, Kind.PLAN_ADOPTED})
"""What uses up budgets, of the task and of those above it."""
_SETTLES = frozenset({Kind.REVIEW_APPENDED, Kind.REVIEW_LOST, Kind.CHECK_ENDED, Kind.NEEDS_CHANGED})
"""Evidence after which something may follow for its task."""


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
    is_gone: Callable[[str], str | None] = lambda _agent: None
    room: Callable[[], schedule.Room] | None = None
    """What calls may run now, where there are calls; else the settings say it."""
    now: str = ""
    broken: Sequence[breaker.Breaker] = ()
    """The breakers that are not closed, as the latest `tick` found them."""
    _touched: set[str] = field(default_factory=set)
    _jumps: JumpWatch = field(default_factory=JumpWatch)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction for any number of inputs; they all happen at one moment. Raises WorldError."""
        with self.store.transaction():
            self.now = self.clock.now()
            self._touched.clear()
            if jump := self._jumps.look(self.now, self.clock.monotonic()):
                why = f"it moved by {jump:+.0f} s in no time: it was set, or the machine slept"
                self.record(Event(Kind.ALARM, None, {"at": self.now, "what": "clock", "why": why}))
                for event in rewound.kept(self.store, self.now, jump):
                    self.record(event)
            yield
            self.store.mark_for_rendering(self._touched)

    def hear(
        self, task_id: str | None, heard: Input, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
    ) -> list[Event]:
        """Let one input happen, with everything that follows from it; inside a batch. Returns the events.

        Raises Refused or PlanError, and then nothing was recorded.
        """
        require(role, verb_of(heard, role))
        view = None if task_id is None else self._view(task_id, heard)
        events: list[Event] = []
        worklist: deque[str] = deque()
        self._record(decide(view, heard, self._context(), role, actor), events, worklist)
        if isinstance(heard, TurnEnded) and heard.called and not heard.harness:
            moved = breaker.after_turn(self.store.breaker(heard.agent), heard.outcome, self.now, self.settings.breaker)
            self._record(Decision((moved,) if moved else ()), events, worklist)
        while worklist:
            self._record(settle(self.store.view(worklist.popleft()), self._context()), events, worklist)
        opened = isinstance(heard, Redispatch) and any(event.data.get("from") in TERMINAL for event in events)
        if opened and view is not None:
            for fallen in self.store.fallen_below(view.task.id, also=""):
                events += self.hear(fallen, Retry())
        return events

    def _view(self, task_id: str, heard: Input) -> View:
        """The task as a decision about `heard` has to see it."""
        asks = isinstance(heard, OfApproval)
        view = self.store.view(task_id, family=_brings_plan(heard), approvals=asks)
        match heard:
            case ActionPrepared(action=action, digest=digest):
                key = action.idempotency_key or derived_key(view.task.local_id, action, digest)
            case ActionStarted(approval_id=name):
                key = next((row.idempotency_key for row in view.approvals if row.id == name), "")
            case _:
                return view
        return replace(view, same_key=self.store.performed_under(key))

    def command(self, task: Task, heard: Retry | Cancel | Unblock, actor: str) -> list[Event]:
        """An operator's order, with its reach: a retry opens what ended around the task. Raises Refused."""
        if not isinstance(heard, Retry):
            return self.hear(task.id, heard, Role.OPERATOR, actor)
        events: list[Event] = []
        for target in reach.retried(self.store, task, heard):
            named = target == task.id or heard.only_failed
            events += self.hear(target, Retry(heard.instructions if named else ""), Role.OPERATOR, actor)
        return events

    def read(self, task_id: str, role: Role, actor: str) -> Task:
        """The task, if this caller may read it. Raises Refused; KeyError for an unknown id."""
        task = self.store.task(task_id)
        if task is None:
            raise KeyError(task_id)
        require_read(role, actor, task)
        return task

    def needs_of_edited(self, parent: Task, planned: PlannedChild) -> tuple[str, ...]:
        """The ids of what an edited child needs. Raises PlanError when it could no longer be carried out."""
        family = self.store.family(parent)
        others = {key: needs for key, needs in family.existing.nodes.items() if key != planned.key}
        dag.admit(Plan((planned,)), self.settings.limits, parent.depth, Level(others), family.outer)
        scopes = (family.existing.ids, *(level.ids for level in family.outer))
        return tuple(next(ids[need] for ids in scopes if need in ids) for need in planned.depends_on)

    def record(self, event: Event) -> None:
        """Evidence from the edge (a message received, filed, sent): recorded as it is, inside a batch."""
        self.store.append([event], self.now)
        if event.task is not None:
            self._touched.add(event.task)

    def order(self, task_id: str, effect: Effect) -> None:
        self.store.order(_effect_id(effect) or self.new_id("trn"), task_id, effect, self.now)

    def new_id(self, prefix: str) -> str:
        return self.ids.new(prefix, self.now or self.clock.now())

    @property
    def pacing(self) -> Pacing:
        return Pacing(self.store, self.settings.slots_per_agent, self.settings.turns_per_hour, self.is_gone)

    def close_breaker(self, agent: str, actor: str) -> list[Event]:
        """The operator's order; inside a batch. Raises Refused when it is closed."""
        event = breaker.ordered(self.store.breaker(agent), self.now, actor)
        if event is None:
            raise Refused("not-blocked", f"the breaker of {agent} is closed", "See `mailboxd status`.")
        self.record(event)
        return [event]

    def look_again(self) -> None:
        """Ask of every weak spec and every hold whether it still is: what the configuration says may have changed."""
        for task_id in [*self.store.drafts(), *self.store.held()]:
            self.hear(task_id, TimePassed(""))

    def tick(self, read_until: str | None = None) -> None:
        """Everything whose moment has come. `read_until`: mail that came later may lie unread; None: none does."""
        self.broken = self.store.broken()
        for broken in self.broken:
            if (event := breaker.pause_over(broken, self.now)) is not None:
                self.record(event)
        for task_id in self.store.due(self.now):
            self.hear(task_id, TimePassed(read_until))
        for task_id, approval_id in self.store.expired_approvals(self.now):
            self.hear(task_id, ApprovalExpired(approval_id))

    def gateway_is_back(self, unreached: Collection[str]) -> None:
        """The gateway answers again: those whose turns did not reach it, or were locked out, may try at once."""
        for broken in self.store.broken():
            waited = broken.agent in unreached or broken.is_locked_out
            if waited and (event := breaker.gateway_is_back(broken, self.now)) is not None:
                self.record(event)

    def schedule(self) -> int:
        """Start what is ready and has a slot; inside a batch. Returns how many were started."""
        started, slots = 0, self._slots()
        while True:
            ready = list(self.store.ready(self.now, self.settings.slots))
            busy = self.store.busy(self.now)
            allowed = self.pacing.allowed({*busy, *(item.executor for item in ready)}, self.now)
            picked = schedule.pick(ready, busy, slots, self.settings.slots_per_agent, allowed)
            now_started = sum([self._start(task_id) for task_id in picked])
            if not now_started:
                return started
            started += now_started
            if not any(item.by_children for item in ready) and schedule.is_full(busy, slots - now_started, allowed):
                return started  # what only now became ready needs a slot as well

    def _slots(self) -> int:
        """How many turns may be under way."""
        return self.settings.slots if self.room is None else self.room().in_all

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
            escalation=self.settings.escalation,
            heartbeat=self.settings.heartbeat,
            is_free=self.store.is_free,
            may_reach=self.may_reach,
            may_use=partial(unknown_harness, self.settings.harnesses),
            may_check=partial(may_not_run, self.settings.checks),
            may_perform=self.settings.may_perform,
            approval_seconds=self.settings.approval_seconds,
            notifies=self.settings.notifies,
            approvers=self.settings.approvers,
            planned_lately=lambda: self.store.planned_since(plus(self.now, -_HOUR)),
        )

    def _record(self, decision: Decision, events: list[Event], worklist: deque[str]) -> None:
        born = {event.task for event in decision.events if event.kind is Kind.TASK_CREATED}
        if decision.events:
            self.store.append(decision.events, self.now, decision.left)
            events += decision.events
        for event in decision.events:
            if event.task is None:
                continue
            self._touched.add(event.task)
            if event.kind is Kind.TASK_TRANSITIONED:
                worklist += self._woken(event.task, event.data)
            elif event.kind in _SPENDS:
                worklist += self.store.used_up(event.task)
                if planned := event.data.get("planned"):
                    self.store.note_planned(self.now, plus(self.now, -_HOUR), planned)
            elif event.kind in _SETTLES or (
                event.kind is Kind.TASK_CREATED and not born.issuperset(event.data["needs"])
            ):
                worklist.append(event.task)
        for task_id, effect in decision.effects:
            self.order(task_id, effect)

    def _woken(self, task_id: str, moved: Mapping[str, Any]) -> list[str]:
        """The neighbours for whom something may follow from this task's transition."""
        source, target = moved["from"], moved["to"]
        woken = []
        if target in TERMINAL or source in TERMINAL:
            parents = islice(self.store.above(task_id), 1, 2)
            woken += [parent.id for parent in parents if target != Phase.COMPLETED or self._may_go_on(parent)]
        if target in CLOSES_CHILDREN and source not in CLOSES_CHILDREN and self.store.has_open_children(task_id):
            woken += self.store.open_children(task_id)
        if target == Phase.CANCELLED and not moved["changes"].get("cancelled_with_parent"):
            woken += self.store.open_dependants(task_id)
        return woken

    def _may_go_on(self, parent: Task) -> bool:
        """Whether a completed child may be what it waits for: while others are open, only for a broadcast."""
        return parent.broadcast or not self.store.has_open_children(parent.id)


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
        case RunCheck(check_run_id=name):
            return name
        case RunTurn(turn_id=name) | LookUp(turn_id=name):
            return name
        case Send(message_id=name) | Bounce(message_id=name):
            return name
        case _:
            return ""
