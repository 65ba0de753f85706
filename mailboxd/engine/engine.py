"""Load, decide, record: one transaction. The only caller of `decide`.

The daemon handles all inputs of one wake-up in one `batch`, which is one commit. The CLI, MCP and the web page call the
same engine in their own processes, so commands work while the daemon is down; only the daemon performs effects.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from mailboxd.core import breaker, conversation, endings, lifecycle, operator_orders, plans, schedule
from mailboxd.core.approval_requests import derived_key
from mailboxd.core.approvals import ActionPrepared, ActionStarted, ApprovalExpired, OfApproval, Resolve
from mailboxd.core.breaker import BreakerState, turns_at_once
from mailboxd.core.checks import may_not_run
from mailboxd.core.decide import decide
from mailboxd.core.decision_builder import Decision
from mailboxd.core.effects import Bounce, Effect, LookUp, RunCheck, RunTurn, Send
from mailboxd.core.entrance import Owner
from mailboxd.core.events import OF_TASKS, Event, Kind, Role, passed
from mailboxd.core.fixpoint import reach_fixpoint
from mailboxd.core.followed import LOST
from mailboxd.core.inputs import (
    ChildrenDue,
    Edited,
    Input,
    LookAgain,
    OperatorInput,
    Redispatch,
    Reply,
    Retry,
    Start,
    Steer,
    TimePassed,
    TurnEnded,
)
from mailboxd.core.lifecycle import CLOSES_CHILDREN
from mailboxd.core.model import Plan, PlannedChild, Task
from mailboxd.core.outcomes import Planned
from mailboxd.core.roles import require, require_read, verb_of
from mailboxd.core.specs import unknown_harness
from mailboxd.core.spending import Spend
from mailboxd.core.task_view import Context, Level, TaskView
from mailboxd.core.times import plus, to_epoch
from mailboxd.core.vocabulary import TERMINAL, Join, Phase, Waiting
from mailboxd.errors import Refused
from mailboxd.formats.config.settings import Settings
from mailboxd.host.clock import JUMP, Clock, JumpWatch
from mailboxd.host.ids import Ids
from mailboxd.ledger.store import Store

# Clock jumps: when the clock was set or the machine slept, waits keep the time that was left of them.
#
# Pauses, leases and holds are stored as times, so a jump would lengthen or end them: a peer on the same machine was
# asleep too, not silent. Deadlines and the expiry of approvals were announced to people, and do not move.

_NOTE = "the clock jumped: what is left of the wait is kept"


def kept(store: Store, now: str, jump: float) -> Iterator[Event]:
    """The events that move all waits by `jump` seconds; inside a transaction."""
    since = min(now, plus(now, -jump))  # waits that were over before the jump stay over
    for task in store.schedule.with_timers(since):
        pause = None if task.begins_later else task.not_before  # an ordered beginning is a time of the clock's
        moments = {"due": task.due, "not_before": pause, "heartbeat": task.heartbeat}
        moved: dict[str, Any] = {name: plus(at, jump) for name, at in moments.items() if at is not None and at > since}
        if moved:
            yield lifecycle.amend(task, now, _NOTE, **moved)[0]
    store.outbox.shift_delays(since, jump)
    if jump > 0:
        return  # breakers become half open through the tick
    for broken in store.breakers.not_closed():
        # allow a trial turn now: the clock says nothing about the agent
        event = breaker.pause_over(replace(broken, until=min(broken.until or now, now)), now)
        if event is not None:
            yield event


# Rate limits: how many turns an agent may have now, by its slots, its breaker, and its turns of the last hour.

_HOUR = 3600.0
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Pacing:
    """The pace of one round. `per_hour`: the maximum turns of an agent within an hour; 0 = no limit."""

    store: Store
    slots_per_agent: int
    per_hour: int
    gone: Callable[[str], str | None] = lambda _agent: None
    """Why the agent no longer exists or may not be given work; None = it may."""
    is_capped: Callable[[str], bool] = lambda _agent: False
    """Whether its turns would exceed what a day may cost."""
    _starts: dict[str, int] = field(default_factory=dict)
    """What `starts` says of the agents that were asked about."""

    def allowed(self, agents: Iterable[str], now: str) -> dict[str, int]:
        """How many turns each agent may have; the reasons for none are stored for `why` and `status`."""
        allowed, paced, gone = dict[str, int](), dict[str, str](), dict[str, str]()
        for agent in agents:
            if (why := self.gone(agent)) is not None:
                gone[agent] = why
            if self.per_hour and (at := self.resumes(agent, now)) is not None:
                paced[agent] = at
                self.store.schedule.starts_timer(at)
            self._starts[agent] = 0 if agent in gone else self._at_once(agent)
            allowed[agent] = 0 if agent in paced else self._starts[agent]
        self.store.meta.set_paced(paced)
        if self.store.meta.set_gone(gone):
            for agent, why in sorted(gone.items()):
                _log.warning("work waits for the agent %s: %s", agent, why)
        return allowed

    def starts(self, agent: str) -> int:
        """How many turns of the agent its breaker allows at once."""
        if agent not in self._starts:
            self._starts[agent] = 0 if self.gone(agent) else self._at_once(agent)
        return self._starts[agent]

    def _at_once(self, agent: str) -> int:
        """The same for an agent that is known to exist."""
        return 0 if self.is_capped(agent) else turns_at_once(self.store.breakers.get(agent), self.slots_per_agent)

    def is_shut(self, agent: str) -> bool:
        """Whether the agent's breaker is open: nothing is sent to it."""
        return self.store.breakers.get(agent).state is BreakerState.OPEN

    def resumes(self, agent: str, now: str) -> str | None:
        """When the agent may have turns again after using up its hour; None = now."""
        first = self.store.schedule.latest_turn(agent, self.per_hour) if self.per_hour else None
        return plus(first, _HOUR) if first is not None and first > plus(now, -_HOUR) else None


# Scope of a retry: which tasks run again, and which are reopened for them.
#
# A completed task runs again only if it is named, or depends on one that is (`Retry.with_dependants`). Ended tasks
# above it are reopened: they combine their results again, and keep those of their other children. What was skipped
# after a task that runs again is decided again.

_REOPENED = (Phase.COMPLETED, Phase.FAILED)
_PENDING = (Phase.SPEC_DRAFT, Phase.SPEC_REVIEW, Phase.EXECUTION_READY)


def retried(store: Store, task: Task, order: Retry) -> list[str]:
    """The ids of all tasks that a retry of `task` affects, parents first. Raises Refused."""
    if order.only_failed:
        return _only_failed(store, task)
    above = _ended_above(store, task)
    top = above[-1] if above else task
    concerned = {one.id: one for one in (*above, task)}
    for fallen in store.tasks.reopenable_below(top.id, also=task.id):
        concerned.setdefault(fallen, _load(store, fallen))
    if task.broadcast and task.phase is Phase.COMPLETED:
        concerned |= {copy.id: copy for copy in store.tasks.children(task.id)}
    if order.with_dependants:
        concerned |= _dependants(store, (task, *above), concerned)
    return _parents_first([*concerned.values(), *_skipped_after(store, concerned)])


def _only_failed(store: Store, task: Task) -> list[str]:
    """The failed tasks at or below the task, including open circuits. Raises Refused."""
    itself = task.phase in (Phase.FAILED, Phase.CIRCUIT_OPEN) or task.cancelled_with_parent
    fallen = [_load(store, one) for one in store.tasks.reopenable_below(task.id, also="", open_circuits=True)]
    if task.phase is Phase.COMPLETED or not (fallen or itself):
        raise Refused(
            "not-failed",
            f"nothing has failed at or below {task.local_id}",
            f"See `mailboxd show {task.local_id} --tree`.",
        )
    concerned = {one.id: one for one in (*_ended_above(store, task), *([task] if itself else []), *fallen)}
    return _parents_first([*concerned.values(), *_skipped_after(store, concerned)])


def _ended_above(store: Store, task: Task) -> list[Task]:
    """The ended ancestors, from the nearest up, which have to be reopened."""
    above: list[Task] = []
    below = task
    while below.parent is not None:
        parent = _load(store, below.parent)
        _may_reopen(store, parent, below)
        if parent.phase not in _REOPENED:
            break
        above.append(parent)
        below = parent
    return above


def _may_reopen(store: Store, parent: Task, child: Task) -> None:
    """Raise Refused if the parent was decided without the child, or is combining its results now."""
    if child.phase not in TERMINAL:
        return
    if parent.broadcast and parent.policy.join is not Join.ALL and parent.phase in _REOPENED:
        problem = f"{child.local_id} is one copy of the broadcast {parent.local_id}, which is decided"
        raise Refused("parent-ended", problem, f"Retry {parent.local_id} instead: all copies run again.")
    attempt = store.tasks.attempt(parent.id, parent.attempt)
    if parent.phase is Phase.EXECUTING and attempt is not None and attempt.waiting_for is not Waiting.CHILDREN:
        problem = f"{parent.local_id} is combining the results of its children"
        raise Refused("parent-busy", problem, "Wait until it has ended, then retry.")


def _dependants(store: Store, sources: Iterable[Task], known: dict[str, Task]) -> dict[str, Task]:
    """All direct and indirect dependents of `sources`, with the tasks below them. Raises Refused."""
    found: dict[str, Task] = {}
    waiting = [(source, False) for source in sources]  # each with whether the tasks below it are meant too
    while waiting:
        task, whole = waiting.pop()
        for one in (*store.tasks.dependents(task.id), *(store.tasks.children(task.id) if whole else ())):
            gone = one.phase is Phase.CANCELLED and not one.skipped and one.id not in known
            if one.id in found or one.phase in _PENDING or gone:
                continue
            if one.phase not in (*_REOPENED, Phase.CANCELLED, Phase.CIRCUIT_OPEN):
                problem = f"{one.local_id} works with the result that would be replaced"
                raise Refused("dependant-running", problem, "Wait until it has ended, or retry without dependants.")
            found[one.id] = one
            fresh = [above for above in _ended_above(store, one) if above.id not in known and above.id not in found]
            found |= {above.id: above for above in fresh}
            waiting += [(one, True), *((above, False) for above in fresh)]
    return found


def _skipped_after(store: Store, known: Mapping[str, Task]) -> list[Task]:
    """The tasks skipped because of these, directly or through others, with the tasks below them."""
    found: dict[str, Task] = {}
    waiting = list(known.values())
    while waiting:
        source = waiting.pop()
        below = store.tasks.children(source.id) if source.id in found else ()
        taken_along = (one for one in below if one.skipped or one.cancelled_with_parent)
        for one in (*(task for task in store.tasks.dependents(source.id) if task.skipped), *taken_along):
            if one.id not in known and one.id not in found:
                found[one.id] = one
                waiting.append(one)
    return list(found.values())


def _parents_first(tasks: Iterable[Task]) -> list[str]:
    """Also what was skipped after what it depends on: it would be skipped again because of the earlier answer."""
    return [task.id for task in sorted(tasks, key=lambda task: (task.depth, task.skipped, task.id))]


def _load(store: Store, task_id: str) -> Task:
    task = store.tasks.get(task_id)
    if task is None:
        raise AssertionError(f"{task_id} is named by another task and is not there")
    return task


# The engine.

_SPENDS = frozenset({Kind.ATTEMPT_ENDED, Kind.TURN_ENDED, Kind.USAGE_REPORTED, Kind.PLAN_ADOPTED})
"""Events that use up the budgets of the task and of its ancestors."""
_SETTLES = frozenset({Kind.REVIEW_APPENDED, Kind.REVIEW_LOST, Kind.CHECK_ENDED, Kind.NEEDS_CHANGED})
"""Events after which a state trigger of the task may apply."""


@dataclass(slots=True)
class Engine:
    """The engine of one workspace. A simulation injects `random` and `new_token` to be repeatable."""

    store: Store
    settings: Settings
    clock: Clock
    ids: Ids = field(default_factory=Ids)
    random: Random = field(default_factory=Random)
    new_token: Callable[[], str] = lambda: secrets.token_urlsafe(24)
    may_reach: Callable[[str], str | None] = lambda _agent: None
    is_gone: Callable[[str], str | None] = lambda _agent: None
    is_remote: Callable[[str], bool] = lambda _agent: False
    """Whether an agent is on another host: what it is given needs no slot here."""
    is_capped: bool = False
    """Whether a cap on what a day may cost is reached: no new turn begins."""
    costs: list[tuple[str, Spend]] = field(default_factory=list)
    """By agent, what turns have cost that ended and that nobody has taken account of yet."""
    now: str = ""
    goes_on: bool = False
    """It goes on with the log of an earlier process: what the clock did in between is recorded."""
    policy: Callable[[], int | None] = lambda: None
    """Records the configuration that counts for this process if that has changed, and returns the event's number."""
    file_owner: Owner | None = None
    """The owner of the task.md that is being taken."""
    broken: Sequence[breaker.Breaker] = ()
    """The breakers that were not closed at the latest `tick`."""
    _ctx: Context | None = None
    """What decisions of the present batch need from outside."""
    _pacing: Pacing | None = None
    _touched: set[str] = field(default_factory=set)
    _jumps: JumpWatch = field(default_factory=JumpWatch)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction, and one time, for any number of inputs. Raises WorldError."""
        with self.store.transaction():
            self.now, self._ctx, self._pacing = self.clock.now(), None, None
            self._touched.clear()
            if self.goes_on and not self._jumps.has_begun:
                self._compare_with_the_log()
            if jump := self._jumps.look(self.now, self.clock.monotonic()):
                self._clock(f"it jumped by {jump:+.0f} s: it was set, or the machine slept")
                for event in kept(self.store, self.now, jump):
                    self.record(event)
            yield
            self.store.stale_files.mark(self._touched)

    def _compare_with_the_log(self) -> None:
        """A clock that was set back before this process began would look like a log in another order."""
        last = self.store.last_event_at()
        if last and (back := to_epoch(last) - to_epoch(self.now)) > JUMP:
            self._clock(f"it is earlier than the last event, by {back:.0f} s: it was set back since, or was wrong then")

    def _clock(self, why: str) -> None:
        self.record(Event(Kind.ALARM, None, {"at": self.now, "what": "clock", "why": why}))

    @contextmanager
    def part(self) -> Iterator[None]:
        """A part of the batch of which nothing is kept if an exception leaves it."""
        touched = {*self._touched}
        try:
            with self.store.savepoint():
                yield
        except BaseException:
            self._touched = touched
            raise

    def handle(
        self, task_id: str | None, input_: Input, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
    ) -> list[Event]:
        """Handle one input and everything that follows from it; inside a batch. Returns the events.

        Raises Refused or PlanError; then nothing was recorded.
        """
        require(role, verb_of(input_, role))
        if task_id is not None and (role is Role.OPERATOR or isinstance(input_, Resolve)):
            self._require_not_ending(task_id, input_)
        view = None if task_id is None else self._view(task_id, input_)
        given = self._given_again(view.task, input_) if view is not None and isinstance(input_, Redispatch) else None
        events: list[Event] = []
        worklist: deque[str] = deque()
        decision = decide(view, input_, self._context(), role, actor)
        self._record(decision if self.file_owner is None else _of_file(decision, self.file_owner), events, worklist)
        if isinstance(input_, TurnEnded) and input_.called and not input_.harness:
            moved = breaker.after_turn(
                self.store.breakers.get(input_.agent), input_.outcome, self.now, self.settings.breaker
            )
            self._record(Decision((moved,) if moved else ()), events, worklist)
        while worklist:
            self._record(reach_fixpoint(self.store.tasks.view(worklist.popleft()), self._context()), events, worklist)
        opened = isinstance(input_, Redispatch) and any(
            step["from"] in TERMINAL for event in events for step in passed(event)
        )
        if opened and view is not None:
            for fallen in self.store.tasks.reopenable_below(view.task.id, also=""):
                events += self.handle(fallen, Retry())
        if given is not None and isinstance(input_, Redispatch):
            events += self._give_again(given.id, input_)
        elif view is not None and isinstance(input_, Steer | Redispatch) and conversation.is_passed_on(view):
            events += self._pass_on(view.task, [event.data["text"] for event in events if event.kind is Kind.STEERED])
        return events

    def _given_again(self, task: Task, new: Redispatch) -> Task | None:
        """The subtask with which the work was given to another agent, if that has to do it again or by another text.

        The task's own result is only what that agent said. Raises Refused while approved actions are about to run.
        """
        is_other = task.phase.is_terminal or task.origin.content not in ("", new.origin.content)
        children = self.store.tasks.children(task.id) if new.given_as and is_other else ()
        child = next((one for one in children if one.key == new.given_as), None)
        if child is not None:
            operator_orders.require_not_acting(child)
        return child

    def _give_again(self, child_id: str, new: Redispatch) -> list[Event]:
        child = self.store.tasks.get(child_id)
        assert child is not None
        spec = replace(new.spec, checks=(), planned_actions=())
        attempt = max(child.origin.attempt, 1) + child.phase.is_terminal
        origin = replace(child.origin, attempt=attempt, content=new.origin.content)
        return self.handle(child.id, Redispatch(spec, origin, new.findings, text=new.text))

    def _pass_on(self, task: Task, instructions: Sequence[str]) -> list[Event]:
        """Give new instructions for a task to its subtasks, but to those whose approved actions are about to run."""
        events: list[Event] = []
        for text in instructions:
            for child_id in self.store.tasks.open_children(task.id):
                child = self.store.tasks.get(child_id)
                if child is not None and child.phase is not Phase.READY_TO_RESUME:
                    events += self.handle(child_id, Steer(child.sender, text))
        return events

    def _view(self, task_id: str, input_: Input) -> TaskView:
        """The view of the task that a decision about this input needs."""
        asks = isinstance(input_, OfApproval)
        view = self.store.tasks.view(task_id, family=_brings_plan(input_), approvals=asks)
        match input_:
            case ActionPrepared(action=action, digest=digest):
                key = action.idempotency_key or derived_key(view.task.local_id, action, digest)
            case ActionStarted(approval_id=name):
                key = next((row.idempotency_key for row in view.approvals if row.id == name), "")
            case _:
                return view
        return replace(view, same_key=self.store.approvals.started_with_key(key))

    def check(self, task_id: str, order: OperatorInput | Resolve, actor: str) -> None:
        """Raise Refused if an operator's order would be refused now; record nothing. Inside a batch."""
        require(Role.OPERATOR, verb_of(order, Role.OPERATOR))
        self._require_not_ending(task_id, order)
        decide(self._view(task_id, order), order, self._context(), Role.OPERATOR, actor)

    def _require_not_ending(self, task_id: str, order: Input) -> None:
        """Raise Refused if the order contradicts one that is held: to end the task, or one above it."""
        if not endings.goes_on(order) or not self.store.held_orders.any():
            return
        for task in self.store.tasks.with_ancestors(task_id):
            for held in self.store.held_orders.of_task(task.id):
                when = endings.until(held.due, self.now)
                problem = f"{task.local_id}: {endings.becomes(held.name, held.approval)} {when}, ordered by {held.by}"
                hint = f"`mailboxd undo {task.local_id}` takes that back; then order this again."
                raise Refused("being-ended", problem, hint)

    def command(self, task: Task, input_: OperatorInput, actor: str) -> list[Event]:
        """Carry out an operator's order; a retry also reopens what ended around the task. Raises Refused."""
        if not isinstance(input_, Retry):
            return self.handle(task.id, input_, Role.OPERATOR, actor)
        events: list[Event] = []
        for target in retried(self.store, task, input_):
            named = target == task.id or input_.only_failed
            order = Retry(input_.instructions if named else "", reviewers=input_.reviewers if named else None)
            events += self.handle(target, order, Role.OPERATOR, actor)
        return events

    def read(self, task_id: str, role: Role, actor: str) -> Task:
        """The task, if this caller may read it. Raises Refused; KeyError for an unknown id."""
        task = self.store.tasks.get(task_id)
        if task is None:
            raise KeyError(task_id)
        require_read(role, actor, task)
        return task

    def needs_of_edited(self, parent: Task, planned: PlannedChild) -> tuple[str, ...]:
        """The ids of an edited child's dependencies. Raises PlanError if it could not be carried out."""
        family = self.store.tasks.family(parent)
        others = {key: needs for key, needs in family.existing.nodes.items() if key != planned.key}
        plans.admit(Plan((planned,)), self.settings.limits, parent.depth, Level(others), family.outer)
        scopes = (family.existing.ids, *(level.ids for level in family.outer))
        return tuple(next(ids[need] for ids in scopes if need in ids) for need in planned.depends_on)

    def record(self, event: Event) -> None:
        """Record an event that needs no decision (a message received, filed, sent); inside a batch."""
        self.store.append([event], self.now)
        if "turn" in event.data:
            self._note_cost(event)
        if event.task is not None:
            self._touched.add(event.task)

    def order(self, task_id: str, effect: Effect) -> None:
        self.store.outbox.add(_effect_id(effect) or self.new_id("trn"), task_id, effect, self.now)

    def new_id(self, prefix: str) -> str:
        return self.ids.new(prefix, self.now or self.clock.now())

    @property
    def pacing(self) -> Pacing:
        """That of the present batch."""
        if self._pacing is None:
            per_agent, per_hour = self.settings.slots_per_agent, self.settings.turns_per_hour
            self._pacing = Pacing(self.store, per_agent, per_hour, self.is_gone, self._is_capped)
        return self._pacing

    def _is_capped(self, agent: str) -> bool:
        return self.is_capped and not self.is_remote(agent)  # what another host does is its own cost

    def close_breaker(self, agent: str, actor: str) -> list[Event]:
        """Close a breaker by the operator's order; inside a batch. Raises Refused if it is closed."""
        event = breaker.ordered(self.store.breakers.get(agent), self.now, actor)
        if event is None:
            raise Refused("not-blocked", f"{agent} has not stopped", "See `mailboxd status`.")
        self.record(event)
        return [event]

    def look_again(self) -> None:
        """Judge all tasks anew that may wait for what has changed; inside a batch.

        For a new configuration, and when OpenClaw's agents or who may be reached have changed. What waits for a
        breaker, a slot, its turns of an hour or the agent that executes it is judged in every round (`schedule`).
        """
        for task_id in self.store.tasks.waiting_for_circumstances():
            self.handle(task_id, LookAgain())

    def tick(self, read_until: str | None = None) -> bool:
        """Handle everything that is due; returns whether more children of large plans are to be created.

        `read_until`: mail has been read up to this time; None = all of it.
        """
        self.broken = self.store.breakers.not_closed()
        for broken in self.broken:
            if (event := breaker.pause_over(broken, self.now)) is not None:
                self.record(event)
        if not self.store.schedule.is_quiet(self.now):
            for task_id in self.store.schedule.due(self.now):
                self.handle(task_id, TimePassed(read_until))
            for task_id, approval_id in self.store.approvals.expired(self.now):
                self.handle(task_id, ApprovalExpired(approval_id))
        due = self.store.outbox.children_due()
        if due is not None:
            order, effect = due
            self.store.outbox.finish(order.id)
            self.handle(order.task, ChildrenDue(effect.children))
        return due is not None

    def gateway_is_back(self, unreached: Collection[str]) -> None:
        """Allow trial turns at once, now that the gateway answers again, for agents that it had cut off."""
        for broken in self.store.breakers.not_closed():
            waited = broken.agent in unreached or broken.is_locked_out
            if waited and (event := breaker.gateway_is_back(broken, self.now)) is not None:
                self.record(event)

    def schedule(self, capacity: schedule.Capacity | None = None) -> int:
        """Start the ready tasks for which there are slots; inside a batch. Returns how many.

        Without a capacity the settings give the number of slots.
        """
        started, slots = 0, self.settings.slots if capacity is None else capacity.in_all
        while True:
            ready = self.store.schedule.ready(self.now, self.settings.slots, self.settings.ageing)
            busy = self.store.schedule.busy(self.now)
            allowed = self.pacing.allowed({*busy, *[item.executor for item in ready]}, self.now)
            if remote := {agent for agent in allowed if self.is_remote(agent)}:
                busy = {agent: count for agent, count in busy.items() if agent not in remote}
                ready = [
                    replace(item, by_children=True) if item.executor in remote else item
                    for item in ready
                    if item.executor not in remote or allowed[item.executor]
                ]
            picked = schedule.pick(ready, busy, slots, self.settings.slots_per_agent, allowed)
            begun = [events for task_id in picked if (events := self._start(task_id)) is not None]
            if not begun:
                return started
            started += len(begun)
            if any(item.by_children for item in ready):
                continue
            free = schedule.free_slots(busy, slots - len(begun), allowed)
            kinds = {event.kind for events in begun for event in events}
            if free <= 0 or (len(begun) == len(picked) and kinds == {Kind.ATTEMPT_STARTED}):
                return started  # newly ready tasks need slots too, and from turns that only began none follow

    def _start(self, task_id: str) -> list[Event] | None:
        """What it brought about; None if it is no longer ready: an earlier start may have ended its parent."""
        try:
            return self.handle(task_id, Start())
        except Refused:
            return None

    def _context(self) -> Context:
        if self._ctx is None:
            self._ctx = self._new_context()
        return self._ctx

    def _new_context(self) -> Context:
        return Context(
            agent=self.settings.agent,
            now=self.now,
            new_id=partial(self.ids.new, now=self.now),
            new_token=self.new_token,
            jitter=self.random.random,
            jitter_share=self.settings.jitter_share,
            limits=self.settings.limits,
            configured=self.settings.policy,
            escalation=self.settings.escalation,
            heartbeat=self.settings.heartbeat,
            is_free=self.store.tasks.is_unused,
            may_reach=self.may_reach,
            may_use=partial(unknown_harness, self.settings.harnesses),
            models=self.settings.models,
            only_reads=self.settings.readers.__contains__,
            may_check=partial(may_not_run, self.settings.checks),
            may_perform=self.settings.may_perform,
            approval_seconds=self.settings.approval_seconds,
            notices=self.settings.notices,
            approvers=self.settings.approvers,
            chat_approves_all=self.settings.chat_approves_all,
            planned_lately=lambda: self.store.meta.planned_since(plus(self.now, -_HOUR)),
        )

    def _record(self, decision: Decision, events: list[Event], worklist: deque[str]) -> None:
        if decision.events:
            self._append(decision, events, worklist)
        for task_id, effect in decision.effects:
            self.order(task_id, effect)

    def _append(self, decision: Decision, events: list[Event], worklist: deque[str]) -> None:
        """Record the events of a decision, and find the tasks that they may affect."""
        if Kind.APPROVAL_RESOLVED in [event.kind for event in decision.events]:
            decision = self._under_policy(decision)
        self.store.append(decision.events, self.now, decision.left, decision.born)
        events += decision.events
        born = {task.id for task in decision.born}
        for event in decision.events:
            if "turn" in event.data:
                self._note_cost(event)
            if event.task is None:
                continue
            self._touched.add(event.task)
            if steps := passed(event):
                worklist += self._woken(event.task, steps[0]["from"], steps[-1]["to"], event.data["changes"])
            if event.kind in _SPENDS:
                worklist += self.store.budgets.exhausted(event.task)
                if planned := event.data.get("planned"):
                    self.store.meta.add_planned(self.now, plus(self.now, -_HOUR), planned)
            elif event.kind in _SETTLES or (
                event.kind is Kind.TASK_CREATED
                and not born.issuperset(event.data["needs"])
                and (
                    "flow" in event.data["task"]
                    or event.data["task"]["parent"] is None
                    or self.store.tasks.cancelled_dependency(event.task)
                )
            ):
                worklist.append(event.task)

    def _under_policy(self, decision: Decision) -> Decision:
        """The decision, which names the event with the policy that it was made under, if that is recorded here."""
        if (seq := self.policy()) is None:
            return decision
        events = (
            replace(one, data={**one.data, "policy": seq}) if one.kind is Kind.APPROVAL_RESOLVED else one
            for one in decision.events
        )
        return replace(decision, events=tuple(events))

    def _note_cost(self, event: Event) -> None:
        if event.kind in OF_TASKS:
            turn = event.data["turn"]
            self.costs.append((turn["agent"], Spend.of_turn(turn)))

    def _woken(self, task_id: str, source: str, target: str, changes: Mapping[str, Any]) -> list[str]:
        """The neighbours that this task's way from one phase to another may affect."""
        woken = []
        if target in TERMINAL or source in TERMINAL:
            parent = _load(self.store, task_id).parent
            if parent is not None and (target != Phase.COMPLETED or self._may_go_on(_load(self.store, parent))):
                woken.append(parent)
        if target in CLOSES_CHILDREN and source not in CLOSES_CHILDREN and self.store.tasks.has_open_children(task_id):
            woken += self.store.tasks.open_children(task_id)
        is_lost = target == Phase.CANCELLED and not changes.get("cancelled_with_parent")
        if is_lost or (not LOST.isdisjoint((source, target)) and _load(self.store, task_id).parent is None):
            woken += self.store.tasks.open_dependents(task_id)
        elif target == Phase.COMPLETED:
            woken += self.store.tasks.choosing_dependents(task_id)
        return woken

    def _may_go_on(self, parent: Task) -> bool:
        """Whether a completed child may let it continue: if others are open, only for a broadcast."""
        return parent.broadcast or not self.store.tasks.has_open_children(parent.id)


def _of_file(decision: Decision, owner: Owner) -> Decision:
    """The decision, whose events name the owner of the file that brought it."""
    told = asdict(owner)
    return replace(decision, events=tuple(replace(one, data={**one.data, "owner": told}) for one in decision.events))


def _brings_plan(input_: Input) -> bool:
    match input_:
        case TurnEnded(answer=Planned()) | Reply(answer=Planned()):
            return True
        case ChildrenDue(children):
            return any(new.planned.children for new in children)
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
