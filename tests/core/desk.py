"""A desk to write examples at: the real engine and an in-memory database, tasks by name, turns ended by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mailboxd.clock import ManualClock
from mailboxd.config.settings import Settings
from mailboxd.core.approvals import Action, ActionKind
from mailboxd.core.corrections import MOST
from mailboxd.core.effects import Compose, Effect, LookUp, RunTurn
from mailboxd.core.events import Event, Role, passed
from mailboxd.core.inputs import Input, NewTask, OperatorInput, Redispatch, TurnEnded
from mailboxd.core.model import Attempt, Origin, Plan, PlannedChild, Policy, Spec, Task
from mailboxd.core.outcomes import Answer, Outcome, Planned, Results, Reviewed, Succeeded
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import Phase, Turn, Verdict
from mailboxd.effects import turns
from mailboxd.effects.message_builder import composed
from mailboxd.engine.engine import Engine
from mailboxd.errors import Refused
from mailboxd.ids import Ids
from mailboxd.store import event_log
from mailboxd.store.store import Order, Store

DONE = Results("done")
PUBLISH = Action("publish", ActionKind.COMMAND, argv=("make", "publish"))


def child(key: str, agent: str | Sequence[str] = "self", *needs: str, **fields: Any) -> PlannedChild:
    agents = (agent,) if isinstance(agent, str) else tuple(agent)
    return PlannedChild(key, agents, fields.pop("description", f"do {key}"), needs, **fields)


def plan(*children: PlannedChild) -> Plan:
    return Plan(children)


class Desk:
    """One workspace of the agent `main`, with as many slots as it likes."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        limits: Limits | None = None,
        slots: int = 100,
        slots_per_agent: int = 100,
        may_reach: Callable[[str], str | None] = lambda _agent: None,
        database: Path | None = None,
    ) -> None:
        self.policy = policy or Policy(backoff_base=10.0)
        self.clock = ManualClock()
        self.store = Store.open(database, self.clock.now())
        numbers = Random(1)
        self.engine = Engine(
            self.store,
            Settings("main", self.policy, limits or Limits(), 0.0, slots, slots_per_agent),
            self.clock,
            Ids(numbers.getrandbits),
            Random(2),
            new_token=lambda: f"token-{numbers.getrandbits(32)}",
            may_reach=may_reach,
        )

    # -------------------------------------------------------------- what happens

    def give(self, name: str = "t", plan: Plan | None = None, *, sender: str = "boss", **fields: Any) -> Task:
        """New work, and at once whatever can start."""
        self.arrive(name, plan, sender=sender, **fields)
        self.start()
        return self.task(name)

    def arrive(self, name: str = "t", plan: Plan | None = None, *, sender: str = "boss", **fields: Any) -> None:
        """New work."""
        spec = fields.pop("spec", Spec(goal=name, instructions="Do it.", expected_output="It, done."))
        policy = fields.pop("policy", self.policy)
        self.handle(None, NewTask(name, None, name, sender, name, spec, policy, plan=plan, **fields))

    def handle(
        self, name: str | None, heard: Input, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
    ) -> list[Event]:
        task_id = None if name is None else self.task(name).id
        with self.engine.batch():
            return self.engine.handle(task_id, heard, role, actor)

    def command(self, name: str, order: OperatorInput) -> list[Event]:
        with self.engine.batch():
            return self.engine.command(self.task(name), order, "operator")

    def start(self) -> int:
        with self.engine.batch():
            self.engine.tick()
            return self.engine.schedule()

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.start()

    def ends(self, name: str, said: Answer | Outcome, *, agent: str = "") -> list[Event]:
        """The turn (or look-up, or composition) that is ordered for a task ends."""
        order = self._ordered(name, agent)
        effect = order.effect
        outcome, answer = (Succeeded("said"), said) if isinstance(said, Answer) else (said, None)
        if isinstance(effect, Compose):
            answer = composed(self.store, self.task(name))
            ended = TurnEnded(Turn.SYNTHESIS, effect.attempt_id, "main", outcome, answer)
        else:
            assert isinstance(effect, RunTurn | LookUp)
            ended = turns.ended(order, effect, outcome, answer)
        with self.engine.batch():
            events = self.engine.handle(self.task(name).id, ended)
            self.store.outbox.finish(order.id)
        self.start()
        return events

    def plans(self, name: str, *children: PlannedChild) -> None:
        self.ends(name, Planned(Plan(children)))

    def done(self, *names: str) -> None:
        for name in names:
            self.ends(name, DONE)

    def told(self, name: str) -> str:
        """What is wrong with the answer that a pending turn asks for again."""
        corrections = [turn.correction for turn in self.orders(RunTurn, name) if turn.correction is not None]
        assert corrections, f"nothing is asked for again of {name}"
        return "\n\n".join(corrections[0].problems)

    def insists(self, name: str, answer: Answer, *, agent: str = "") -> None:
        """The agent gives the same answer, as often as it is asked for another one."""
        for _ in range(MOST + 1):
            self.ends(name, answer, agent=agent)

    def reviews(self, name: str, reviewer: str, verdict: Verdict) -> None:
        self.ends(name, Reviewed(verdict, f"{reviewer} says {verdict}"), agent=reviewer)

    # -------------------------------------------------------------- what is seen

    def task(self, name: str) -> Task:
        task = self.store.tasks.by_local_id(name)
        assert task is not None, f"there is no {name}"
        return task

    def phase(self, name: str = "t") -> Phase:
        return self.task(name).phase

    def phases(self, *names: str) -> list[str]:
        return [self.phase(name).value for name in names]

    def attempt(self, name: str = "t") -> Attempt:
        task = self.task(name)
        attempt = self.store.tasks.attempt(task.id, task.attempt)
        assert attempt is not None, f"{name} has no attempt"
        return attempt

    def orders(self, kind: type[Effect] | None = None, name: str | None = None) -> list[Any]:
        """What is ordered and not done yet."""
        pending = self.store.outbox.pending(self.clock.now(), 10_000)
        task = None if name is None else self.task(name).id
        return [
            order.effect
            for order in pending
            if (kind is None or isinstance(order.effect, kind)) and task in (None, order.task)
        ]

    def keys(self, name: str = "t") -> list[str]:
        """The keys of its children."""
        return [child.key for child in self.store.tasks.children(self.task(name).id)]

    def path(self, name: str = "t") -> list[str]:
        """The phases the task went through."""
        steps = [step for one in event_log.read(self.store.db, self.task(name).id) for step in passed(one.event)]
        return [steps[0]["from"], *(step["to"] for step in steps)] if steps else []

    def kinds(self, name: str = "t") -> list[str]:
        return [recorded.event.kind.value for recorded in event_log.read(self.store.db, self.task(name).id)]

    def _ordered(self, name: str, agent: str) -> Order:
        task = self.task(name).id
        calls = (RunTurn, LookUp, Compose)
        found = [
            order
            for order in self.store.outbox.pending(self.clock.now(), 10_000)
            if order.task == task and isinstance(order.effect, calls) and agent in ("", order.agent)
        ]
        assert found, f"nothing is ordered for {name}"
        return found[0]


@contextmanager
def refused(desk: Desk, rule: str) -> Iterator[None]:
    """The body is refused by this rule, and nothing happens."""
    before = desk.store.last_event()
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.rule == rule
    assert desk.store.last_event() == before


def with_policy(**fields: Any) -> Policy:
    return replace(Policy(backoff_base=10.0), **fields)


def again(number: int) -> Redispatch:
    """The sender gives its work out once more."""
    origin = Origin(attempt=number, attempt_id=f"theirs-{number}")
    return Redispatch(Spec(goal="t", instructions="Better."), origin, "It was too short.")
