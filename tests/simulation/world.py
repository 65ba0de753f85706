"""A workspace without a file system or processes: the real engine on a real database, scripted agents, a counted clock.

`World` plays the effect runner: it performs what the outbox orders, at most once each, with delays, losses, repetitions
and crashes drawn from a seed. What it launched it remembers itself (as the call directories on disk would), so a crash
takes the engine and every uncommitted statement, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from mailboxd.core import reviews, spec_drafting
from mailboxd.core.checks import CheckRules
from mailboxd.core.effects import Compose, LookUp, Perform, Prepare, RunCheck, RunTurn, Send, Verify
from mailboxd.core.events import Event, Role
from mailboxd.core.inputs import CheckEnded, Input, TurnEnded
from mailboxd.core.model import Attempt, BreakerRules, Escalation, Policy, Task
from mailboxd.core.outcomes import Answer, Failed, Outcome, Reviewed, Succeeded, Unclear, Unknown
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import CheckVerdict, Notice, Phase, Turn, Waiting
from mailboxd.engine.engine import Engine
from mailboxd.errors import MessageError, PlanError, Refused
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.protocol.answer import Asked
from mailboxd.host.clock import ManualClock
from mailboxd.host.ids import Ids
from mailboxd.ledger.store import Order, Store
from mailboxd.perform import turns
from mailboxd.perform.agents.scripted.dialects import ScriptedReply, say
from mailboxd.perform.message_builder import composed
from tests.simulation.script import OWN, Script

MOST_TASKS = 60
SLOTS, SLOTS_PER_AGENT = 3, 1


class Crash(BaseException):
    """The process ends here. No handler of ours may catch it."""


@dataclass(slots=True)
class World:
    """One history. `happenings.step` lets something happen; `journal` says what."""

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
    effects: Counter[str] = field(default_factory=Counter)
    """What really happened outside, by idempotency key."""
    begun: list[str] = field(default_factory=list)
    """Approvals whose runner died in the middle, and nobody has noticed it yet."""
    configured: Policy = Policy()
    """What the configuration says now."""
    away: set[str] = field(default_factory=lambda: {"ghost"})
    """The agents that may not be reached now."""
    dialect: str = ""
    """How answers are written and read; empty: they are not, and come as what they mean."""

    @classmethod
    def begin(cls, seed: int, dialect: str = "") -> World:
        random = Random(seed)
        clock = ManualClock()
        store = Store.open(None, clock.now())
        world = cls(seed, Script(random), clock, store, new_engine(store, clock, random), dialect=dialect)
        world.configure(world.engine)
        return world

    def configure(self, engine: Engine) -> Engine:
        """Tell an engine what the world is like now."""
        engine.settings = replace(engine.settings, policy=self.configured)
        engine.may_reach = lambda agent: "there is no such agent" if agent in self.away else None
        return engine

    def look_again(self) -> None:
        """A daemon notices that the agents or the configuration have changed."""
        self.configure(self.engine)
        with self.engine.batch():
            self.engine.look_again()

    # -------------------------------------------------------------- inputs

    def handle(
        self, task_id: str | None, heard: Input, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
    ) -> list[Event] | None:
        """Let an input happen in a batch of its own; None when it was refused, and then the log has not grown."""
        self.journal[-1:] = [f"{self.journal[-1] if self.journal else ''} {heard} -> {task_id}"[:300]]
        before = self.store.last_event()
        with self.engine.batch():
            try:
                return self.engine.handle(task_id, heard, role, actor)
            except (Refused, PlanError):
                pass  # the transaction goes on, as in the daemon
        assert self.store.last_event() == before, "it was refused, and yet something was recorded"
        return None

    # -------------------------------------------------------------- the effect runner's part

    def launch(self) -> None:
        """Begin the calls there is room for, as the effect runner does."""
        with self.engine.batch():
            self.engine.tick()
            before = self._given_out()
            self.engine.schedule()
            self.store.schedule.next_due(self.engine.now)  # until then it sleeps
        for agent, calls in self._given_out().items():
            assert calls <= max(before.get(agent, 0), SLOTS_PER_AGENT), f"{agent} was given work without a slot"
        for order in self.store.outbox.pending(self.clock.now(), 500):
            effect = order.effect
            if isinstance(effect, RunTurn) and order.id not in self.launched and self._has_room(effect):
                if self.store.tasks.is_held(order.task):
                    continue
                if self._is_wanted(order, effect):
                    self.flights[order.id] = order
                    self.launched.add(order.id)
                else:
                    self._finish(order)

    def _given_out(self) -> dict[str, int]:
        """How many pieces of work each agent has. A synthesis or a review waits for its slot in the outbox.

        What is held occupies nobody.
        """
        rows = self.store.db.execute(
            "SELECT agent, task FROM v_outbox WHERE state = 'pending' AND kind = 'run_turn'"
            " AND json_extract(data, '$.turn') IN ('work', 'dispatch')"
        ).fetchall()
        return Counter(agent for agent, task in rows if not self.store.tasks.is_held(task))

    def _has_room(self, effect: RunTurn) -> bool:
        running = [order.effect for order in self.flights.values()]
        keys = {turn.session_key for turn in running if isinstance(turn, RunTurn)}
        of_agent = sum(order.agent == effect.agent for order in self.flights.values())
        allowed = self.engine.pacing.starts(effect.agent)
        return len(running) < SLOTS and of_agent < allowed and effect.session_key not in keys

    def _is_wanted(self, order: Order, effect: RunTurn) -> bool:
        task = self.store.tasks.get(order.task)
        assert task is not None
        attempt = self.store.tasks.attempt(task.id, task.attempt)
        if effect.turn is Turn.REVIEW:
            at_gate = effect.gate is not None and task.phase.value == effect.gate.value
            return at_gate and effect.attempt_id == reviews.fence(task, attempt)
        if effect.turn is Turn.DRAFT:
            return task.phase is Phase.SPEC_DRAFT and effect.attempt_id == spec_drafting.fence(task.mending.drafts)
        if effect.turn is Turn.ANSWER and (attempt is None or attempt.question != effect.note):
            return False
        corrects = effect.turn is not Turn.ANSWER and effect.correction is not None
        if corrects and attempt is not None and attempt.waiting_for is not Waiting.TURN:
            return False
        return attempt is not None and attempt.id == effect.attempt_id and attempt.status.value == "running"

    def land(self) -> None:
        if self.flights:
            order = self.flights[self.script.random.choice(list(self.flights))]
            with self.engine.batch():
                self.turn_ended(order)
            del self.flights[order.id]

    def turn_ended(self, order: Order) -> None:
        effect = order.effect
        assert isinstance(effect, RunTurn)
        may_plan = self.store.db.execute("SELECT count(*) FROM v_tasks").fetchone()[0] < MOST_TASKS
        outcome, answer = self.script.outcome(effect.turn, may_plan=may_plan)
        ended = self._ended(order, effect, outcome, answer)
        self.journal[-1:] = [f"land {ended} -> {order.task}"[:300]]
        self.engine.handle(order.task, ended)
        self.store.outbox.finish(order.id)
        self.ended.append((order.task, ended))

    def _ended(self, order: Order, effect: RunTurn | LookUp, outcome: Outcome, meant: Answer | None) -> TurnEnded:
        """The end of a turn. In a dialect the answer is what is read of its text: what was meant, or unclear."""
        answers = self.store.tasks.declared_answers(order.task)
        asked = Asked(effect.turn, answers=answers, correction=effect.correction)
        said = self._said(meant, asked, f"{self.seed} {order.id}")
        if said is None or not isinstance(outcome, Succeeded):
            return turns.ended(order, effect, outcome, meant)
        outcome = replace(outcome, text=said.text)
        read = turns.answer(asked, outcome)
        insists = said.evades and effect.correction is not None  # then a refusal is a failure
        assert insists or isinstance(read, (type(meant), Unclear)), f"{meant}, as {said.text!r}, was read as {read}"
        assert insists or not said.evades or isinstance(read, Unclear), f"{said.text!r} was not asked about: {read}"
        return turns.ended(order, effect, outcome, read)

    def _said(self, meant: Answer | None, asked: Asked, seed: str) -> ScriptedReply | None:
        """The text of an answer; None if it has none."""
        if meant is None or not self.dialect or (isinstance(meant, Reviewed) and asked.turn is not Turn.REVIEW):
            return None
        try:
            return say(meant, asked, self.dialect, seed)
        except MessageError:
            return None  # a plan with two subtasks of one name

    def look_up(self) -> None:
        """OpenClaw's ledger answers, or cannot tell either."""
        for order in self.store.outbox.pending(self.clock.now(), 500):
            effect = order.effect
            if isinstance(effect, LookUp):
                tells = self.script.one_of(found=40, failed=20, never_ran=10, unknown=30)
                outcome: Succeeded | Failed | Unknown = Unknown("the ledger cannot tell", looked_up=True)
                answer: Answer | None = None
                if tells == "found":
                    outcome, answer = Succeeded("found"), self.script.answer(effect.turn, may_plan=False)
                elif tells != "unknown":
                    outcome = Failed("it had failed") if tells == "failed" else Failed("refused", started=False)
                ended = self._ended(order, effect, outcome, answer)
                live = self.store.tasks.attempt(order.task, self.task(order.task).attempt)
                awaited = live is not None and (live.id, live.waiting_for) == (effect.attempt_id, Waiting.LOOKUP)
                self._report(order, ended)
                if tells == "unknown" and live is not None and awaited:
                    after = self.store.tasks.attempt(order.task, live.ordinal)
                    assert after is not None
                    assert after.status.value == "unknown", "an unknown outcome is stored as unknown, not guessed"
                return

    def deliver(self) -> None:
        """Compositions, messages that we send, stop orders."""
        for order in self.store.outbox.pending(self.clock.now(), 500):
            match order.effect:
                case Compose(attempt_id):
                    said = composed(self.store, self.task(order.task))
                    ended = TurnEnded(Turn.SYNTHESIS, attempt_id, OWN, Succeeded("composed"), said)
                    self._report(order, replace(ended, called=False))
                case RunTurn() | LookUp() | Prepare() | Perform() | Verify():
                    pass
                case RunCheck(_, attempt_id, check):
                    verdict = CheckVerdict(self.script.one_of(passed=70, failed=25, impossible=5))
                    self.check(order, CheckEnded(check.id, attempt_id, verdict, f"it {verdict}", "output"))
                case Send("question") | _:
                    self._finish(order)

    def check(self, order: Order, ended: CheckEnded) -> None:
        with self.engine.batch():
            self.engine.handle(order.task, ended)
            self.store.outbox.finish(order.id)

    def _report(self, order: Order, ended: TurnEnded) -> None:
        self.journal[-1:] = [f"{self.journal[-1]} {ended} -> {order.task}"[:300]]
        with self.engine.batch():
            self.engine.handle(order.task, ended)
            self.store.outbox.finish(order.id)
        self.ended.append((order.task, ended))

    def _finish(self, order: Order) -> None:
        with self.engine.batch():
            self.store.outbox.finish(order.id)

    # -------------------------------------------------------------- looking

    def task(self, task_id: str) -> Task:
        task = self.store.tasks.get(task_id)
        assert task is not None
        return task

    def tasks_where(self, where: str) -> list[Task]:
        return [
            self.task(row[0]) for row in self.store.db.execute(f"SELECT id FROM v_tasks WHERE {where} ORDER BY seq")
        ]

    def attempts(self, where: str) -> list[Attempt]:
        found = self.store.db.execute(f"SELECT task, ordinal FROM v_attempts WHERE {where} ORDER BY id").fetchall()
        return [attempt for row in found if (attempt := self.store.tasks.attempt(*row)) is not None]


def new_engine(store: Store, clock: ManualClock, random: Random) -> Engine:
    return Engine(
        store,
        Settings(
            agent=OWN,
            limits=Limits(children_at_once=2),
            slots=SLOTS,
            slots_per_agent=SLOTS_PER_AGENT,
            escalation=Escalation(2, "big", "eve"),
            breaker=BreakerRules(3, 60.0, 300.0),
            heartbeat=600.0,
            checks=CheckRules((("make", "test"),)),
            approval_seconds=3600.0,
            notices=frozenset(Notice),
        ),
        clock,
        Ids(random.getrandbits),
        Random(random.random()),
        new_token=lambda: f"{random.getrandbits(64):x}",
    )
