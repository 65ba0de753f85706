"""A workspace without a file system or processes: the real engine on a real database, scripted agents, a counted clock.

`World` plays the relay: it performs what the outbox orders, at most once each, with delays, losses, repetitions and
crashes drawn from a seed. What it launched it remembers itself (as the call directories on disk would), so a crash
takes the engine and every uncommitted statement, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from mailboxd.clock import ManualClock
from mailboxd.core.effects import Compose, LookUp, RunTurn, Send
from mailboxd.core.events import Event, Role
from mailboxd.core.inputs import (
    Answer,
    Cancel,
    ChildEdited,
    Clarification,
    Edited,
    Failed,
    Input,
    Redispatch,
    Remedy,
    Reply,
    Results,
    Retry,
    Steer,
    Succeeded,
    TurnEnded,
    Unblock,
    Unknown,
)
from mailboxd.core.terms import Turn, Waiting
from mailboxd.core.types import Attempt, Origin, PlannedChild, Spec, Task
from mailboxd.engine import Engine, Settings
from mailboxd.errors import PlanError, Refused
from mailboxd.ids import Ids
from mailboxd.store.store import Order, Store
from tests.simulation.script import OWN, PEERS, Script

MOST_TASKS = 60
SLOTS, SLOTS_PER_AGENT = 3, 1


class Crash(BaseException):
    """The process ends here. No handler of ours may catch it."""


@dataclass(slots=True)
class World:
    """One history. `step` lets something happen; `journal` says what."""

    seed: int
    script: Script
    clock: ManualClock
    store: Store
    engine: Engine
    flights: dict[str, Order] = field(default_factory=dict)
    """Turns that were launched and whose end is not recorded yet."""
    launched: set[str] = field(default_factory=set)
    ended: list[tuple[str, TurnEnded]] = field(default_factory=list)
    journal: list[str] = field(default_factory=list)
    tasks: int = 0

    @classmethod
    def begin(cls, seed: int) -> World:
        random = Random(seed)
        clock = ManualClock()
        store = Store.open(None, clock.now())
        return cls(seed, Script(random), clock, store, _engine(store, clock, random))

    # -------------------------------------------------------------- one step

    def step(self) -> None:
        name = self.script.one_of(
            arrive=4, land=40, look_up=8, deliver=8, reply=12, mischief=6, operate=9, edit=4, wait=10, crash=3
        )
        if self.script.chance(0.8):
            self.launch()
        self.journal.append(name)
        actions: dict[str, Callable[[], None]] = {
            "arrive": self.arrive,
            "land": self.land,
            "look_up": self.look_up,
            "deliver": self.deliver,
            "reply": self.reply,
            "mischief": self.mischief,
            "operate": self.operate,
            "edit": self.edit,
            "wait": self.wait,
            "crash": self.crash,
        }
        actions[name]()

    def hear(self, task_id: str | None, heard: Input, role: Role = Role.ORCHESTRATOR) -> list[Event] | None:
        """Let an input happen in a batch of its own; None when it was refused, and then the log has not grown."""
        self.journal[-1:] = [f"{self.journal[-1] if self.journal else ''} {heard} -> {task_id}"[:300]]
        before = self.store.last_event()
        with self.engine.batch():
            try:
                return self.engine.hear(task_id, heard, role)
            except (Refused, PlanError):
                pass  # the transaction goes on, as in the daemon
        assert self.store.last_event() == before, "it was refused, and yet something was recorded"
        return None

    # -------------------------------------------------------------- the relay's part

    def arrive(self) -> None:
        count = self.store.db.execute("SELECT count(*) FROM tasks").fetchone()[0]
        if count < MOST_TASKS:
            self.tasks += 1
            self.hear(None, self.script.new_task(self.tasks))

    def launch(self) -> None:
        """Begin the calls there is room for, as the relay does."""
        with self.engine.batch():
            self.engine.tick()
            self.engine.schedule()
        for order in self.store.pending(self.clock.now(), 500):
            effect = order.effect
            if isinstance(effect, RunTurn) and order.id not in self.launched and self._has_room(effect):
                if self._is_wanted(order, effect):
                    self.flights[order.id] = order
                    self.launched.add(order.id)
                else:
                    self._finish(order)

    def _has_room(self, effect: RunTurn) -> bool:
        running = [order.effect for order in self.flights.values()]
        keys = {turn.session_key for turn in running if isinstance(turn, RunTurn)}
        of_agent = sum(order.agent == effect.agent for order in self.flights.values())
        return len(running) < SLOTS and of_agent < SLOTS_PER_AGENT and effect.session_key not in keys

    def _is_wanted(self, order: Order, effect: RunTurn) -> bool:
        task = self.store.task(order.task)
        assert task is not None
        attempt = self.store.attempt(task.id, task.attempt)
        if effect.turn is Turn.REVIEW:
            return effect.gate is not None and task.phase.value == effect.gate.value
        return attempt is not None and attempt.id == effect.attempt_id and attempt.status.value == "running"

    def land(self) -> None:
        if self.flights:
            order = self.flights[self.script.random.choice(list(self.flights))]
            with self.engine.batch():
                self._turn_ended(order)
            del self.flights[order.id]

    def _turn_ended(self, order: Order) -> None:
        effect = order.effect
        assert isinstance(effect, RunTurn)
        may_plan = self.store.db.execute("SELECT count(*) FROM tasks").fetchone()[0] < MOST_TASKS
        outcome, answer = self.script.outcome(effect.turn, may_plan=may_plan)
        ended = TurnEnded(effect.turn, effect.attempt_id, effect.agent, outcome, answer, effect.gate)
        self.journal[-1:] = [f"land {ended} -> {order.task}"[:300]]
        self.engine.hear(order.task, ended)
        self.store.finish(order.id)
        self.ended.append((order.task, ended))

    def look_up(self) -> None:
        """OpenClaw's ledger answers, or cannot tell either."""
        for order in self.store.pending(self.clock.now(), 500):
            effect = order.effect
            if isinstance(effect, LookUp):
                tells = self.script.one_of(found=40, failed=20, never_ran=10, unknown=30)
                outcome: Succeeded | Failed | Unknown = Unknown("the ledger cannot tell", looked_up=True)
                answer: Answer | None = None
                if tells == "found":
                    outcome, answer = Succeeded("found"), self.script.answer(effect.turn, may_plan=False)
                elif tells != "unknown":
                    outcome = Failed("it had failed") if tells == "failed" else Failed("refused", started=False)
                ended = TurnEnded(effect.turn, effect.attempt_id, effect.agent, outcome, answer, effect.gate)
                self._report(order, ended)
                return

    def deliver(self) -> None:
        """Compositions, messages that we send, stop orders."""
        for order in self.store.pending(self.clock.now(), 500):
            match order.effect:
                case Compose(attempt_id):
                    results = Results("composed", answer="yes")
                    self._report(order, TurnEnded(Turn.SYNTHESIS, attempt_id, OWN, Succeeded("composed"), results))
                case RunTurn() | LookUp():
                    pass
                case Send("question") | _:
                    self._finish(order)

    def _report(self, order: Order, ended: TurnEnded) -> None:
        self.journal[-1:] = [f"{self.journal[-1]} {ended} -> {order.task}"[:300]]
        with self.engine.batch():
            self.engine.hear(order.task, ended)
            self.store.finish(order.id)
        self.ended.append((order.task, ended))

    def _finish(self, order: Order) -> None:
        with self.engine.batch():
            self.store.finish(order.id)

    # -------------------------------------------------------------- what others say

    def reply(self) -> None:
        """A peer that has acknowledged reports, or a question is answered."""
        waiting = self.attempts("waiting_for IN ('reply', 'answer')")
        if not waiting:
            return
        attempt = self.script.random.choice(waiting)
        if attempt.waiting_for is Waiting.ANSWER:
            self.hear(attempt.task, Clarification("operator", "the red one", ends=self.script.chance(0.2)))
            return
        token = attempt.reply_token if attempt.token_echoed or self.script.chance(0.5) else None
        heard = Reply(attempt.executor, self.script.report(), attempt.id, token)
        self.hear(attempt.task, heard)
        if self.script.chance(0.15):
            self.hear(attempt.task, heard)

    def mischief(self) -> None:
        """Repetitions, lies and stragglers: nothing of it may count."""
        kind = self.script.one_of(repeated=3, straggler=3, stranger=1, forged=1, invented=1)
        if kind == "repeated" and self.ended:
            self._repeat(*self.script.random.choice(self.ended))
            return
        attempts = self.attempts("1")
        if not attempts:
            return
        attempt = self.script.random.choice(attempts)
        task = self.task(attempt.task)
        latest = task.attempt == attempt.ordinal
        if kind == "straggler" and not latest:
            events = self.hear(task.id, Reply(attempt.executor, Results("late"), attempt.id, None, older_attempt=True))
            assert events is None or [event.kind for event in events] == ["reply.late"], "a late reply was applied"
        elif kind == "stranger":
            assert self.hear(task.id, Reply("mallory", Results("mine"), attempt.id)) is None, "a stranger was believed"
        elif kind == "forged" and latest:
            reply = Reply(attempt.executor, Results("forged"), attempt.id, "guessed")
            assert self.hear(task.id, reply) is None, "a forged token was believed"
        elif kind == "invented":
            reply = Reply(attempt.executor, Results("invented"), "att_invented")
            assert self.hear(task.id, reply) is None, "an attempt that never was is believed"

    def _repeat(self, task_id: str, ended: TurnEnded) -> None:
        """A turn's end once more. While the attempt waits for another turn the relay's own record rules it out."""
        task = self.task(task_id)
        attempt = self.store.attempt(task_id, task.attempt) if task.attempt else None
        waits = attempt is not None and attempt.waiting_for in (Waiting.TURN, Waiting.LOOKUP)
        if ended.turn is Turn.REVIEW or not waits or attempt is None or attempt.id != ended.attempt_id:
            self.hear(task_id, ended)

    # -------------------------------------------------------------- people

    def operate(self) -> None:
        """A command, aimed where it can do something as a rule."""
        command = self.script.one_of(retry=4, unblock=5, cancel=2, steer=1, redispatch=2)
        where = {"retry": "phase IN ('failed', 'cancelled')", "unblock": "phase = 'circuit_open'"}.get(command, "1")
        where = {"redispatch": "parent IS NULL", "cancel": "completed_at IS NULL"}.get(command, where)
        tasks = self.tasks_where(where)
        if not tasks:
            return
        # by phase first: the rare ones would hardly ever be meant
        phase = self.script.random.choice(sorted({task.phase for task in tasks}))
        task = self.script.random.choice([task for task in tasks if task.phase is phase])
        match command:
            case "redispatch":
                number = task.origin.attempt + 1
                again = Origin(attempt=number, attempt_id=f"theirs-{number}")
                self.hear(task.id, Redispatch(Spec(goal=task.title, instructions="Again."), again, "Do it better."))
            case "steer":
                self.hear(task.id, Steer(task.sender, "Use blue."))
            case "retry":
                self.command(task, Retry("Try harder."))
            case "unblock":
                remedies = [Remedy.ACCEPT] * 4 if task.result else []
                self.command(task, Unblock(self.script.random.choice([*Remedy, *remedies])))
            case _:
                self.command(task, Cancel("operator", "not needed"))

    def command(self, task: Task, order: Retry | Cancel | Unblock) -> None:
        self.journal[-1:] = [f"{order} -> {task.local_id}"]
        with suppress(Refused), self.engine.batch():
            self.engine.command(task, order, "operator")

    def edit(self) -> None:
        """Somebody writes into a task.md."""
        tasks = self.tasks_where("1")
        if not tasks:
            return
        task = self.script.random.choice(tasks)
        if task.parent is not None and self.script.chance(0.4):
            parent = self.task(task.parent)
            needs = [child.key for child in self.store.children(parent.id) if child.key < task.key][:1]
            planned = PlannedChild(task.key, (self.script.random.choice(PEERS),), "edited", tuple(needs))
            ids = tuple(child.id for child in self.store.children(parent.id) if child.key in needs)
            self.hear(task.id, ChildEdited(planned, ids))
            return
        added = (PlannedChild(f"x{len(self.journal)}", (self.script.random.choice(PEERS),), "more"),)
        self.hear(task.id, Edited(added if self.script.chance(0.6) else (), "a note"))

    def wait(self) -> None:
        self.clock.advance(self.script.random.choice((0.0, 1.0, 10.0, 10.0, 100.0, 100.0, 4000.0)))

    def crash(self) -> None:
        """The daemon dies before a commit: what it did in that transaction has not happened."""
        before = self.store.last_event()
        with suppress(Crash), self.engine.batch():
            self.engine.tick()
            if self.flights and self.script.chance(0.7):
                self._turn_ended(self.flights[self.script.random.choice(list(self.flights))])
                self.ended.pop()
            self.engine.schedule()
            raise Crash
        assert self.store.last_event() == before, "a transaction that was not committed left traces"
        self.engine = _engine(self.store, self.clock, self.script.random)

    # -------------------------------------------------------------- looking

    def task(self, task_id: str) -> Task:
        task = self.store.task(task_id)
        assert task is not None
        return task

    def tasks_where(self, where: str) -> list[Task]:
        return [self.task(row[0]) for row in self.store.db.execute(f"SELECT id FROM tasks WHERE {where} ORDER BY seq")]

    def attempts(self, where: str) -> list[Attempt]:
        found = self.store.db.execute(f"SELECT task, ordinal FROM attempts WHERE {where} ORDER BY id").fetchall()
        return [attempt for row in found if (attempt := self.store.attempt(*row)) is not None]


def _engine(store: Store, clock: ManualClock, random: Random) -> Engine:
    return Engine(
        store,
        Settings(agent=OWN, slots=SLOTS, slots_per_agent=SLOTS_PER_AGENT),
        clock,
        Ids(random.getrandbits),
        Random(random.random()),
        new_token=lambda: f"{random.getrandbits(64):x}",
        may_reach=lambda agent: "there is no such agent" if agent == "ghost" else None,
    )
