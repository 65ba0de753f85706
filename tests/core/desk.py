"""A desk to write examples at: the real engine and an in-memory database, tasks by name, turns ended by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest

from mailboxd.core.approvals import Action, ActionKind, Approval
from mailboxd.core.breaker import Breaker
from mailboxd.core.corrections import MOST
from mailboxd.core.effects import Compose, Effect, LookUp, RunTurn, Send
from mailboxd.core.events import Event, Kind, Role, passed
from mailboxd.core.explain.model import Cause
from mailboxd.core.explain.why import explain
from mailboxd.core.inputs import Input, NewTask, OperatorInput, Redispatch, TurnEnded
from mailboxd.core.model import NO_USAGE, Attempt, Origin, Plan, PlannedChild, Policy, Spec, Spent, Task, Usage
from mailboxd.core.outcomes import Answer, Outcome, Planned, Results, Reviewed, Succeeded
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import Phase, Turn, Verdict
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import InboxFile
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import MessageError, Refused
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.protocol.front_matter import split
from mailboxd.formats.protocol.messages import parse_message, render_message_with
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.protocol.taskmd import TaskFile
from mailboxd.formats.user.state import UserState
from mailboxd.host.clock import ManualClock
from mailboxd.host.ids import Ids
from mailboxd.hub.files.view import HubView
from mailboxd.ledger import event_log, explain_queries
from mailboxd.ledger.meta import PEERS
from mailboxd.ledger.store import Order, Store
from mailboxd.perform import turns
from mailboxd.perform.hub_mail import HubMail
from mailboxd.perform.message_builder import MessageBuilder, PromptBuilder, composed
from mailboxd.surfaces.taskmd.sync import to_record

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
        is_gone: Callable[[str], str | None] = lambda _agent: None,
        database: Path | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.policy = policy or Policy(backoff_base=10.0)
        self.clock = clock or ManualClock()
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
            is_gone=is_gone,
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

    def configured(self, **fields: Any) -> Self:
        """The daemon is started with other settings; nobody looks again at what waits."""
        self.engine.settings = replace(self.engine.settings, **fields)
        return self

    def look_again(self) -> None:
        """Look again at everything that waits, as after a start with another configuration."""
        with self.engine.batch():
            self.engine.look_again()
        self.start()

    def tick(self) -> bool:
        """Apply what is due; returns whether more of it is left for the next round."""
        with self.engine.batch():
            return self.engine.tick()

    def schedule(self) -> int:
        """Start what is ready; returns how much that was."""
        with self.engine.batch():
            return self.engine.schedule()

    def start(self) -> int:
        with self.engine.batch():
            self.engine.tick()
            return self.engine.schedule()

    def knows_agents(self, agents: Mapping[str, Sequence[str]]) -> None:
        """The daemon has found these agents: the name and the workspace of each."""
        with self.engine.batch():
            self.store.meta.report(PEERS, json.dumps({"known": agents}))

    def receive(self, name: str, raw: bytes) -> tuple[str, str]:
        """A file of the inbox is read: the verdict on it, and the rule that it broke, if any."""
        with self.engine.batch():
            intake = Intake(self.engine)
            file = InboxFile(name, raw, hashlib.sha256(raw).hexdigest(), len(raw), {})
            parsed = intake.parse(file)
            assert not isinstance(parsed, MessageError), parsed
            verdict = intake.receive(file, parsed)
        ((reason,),) = self.sql("SELECT reason FROM v_messages WHERE name = ?", name)
        return verdict, json.loads(reason).get("rule", "") if reason else ""

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.start()

    def ends(self, name: str, said: Answer | Outcome, *, agent: str = "", usage: Usage = NO_USAGE) -> list[Event]:
        """The turn (or look-up, or composition) that is ordered for a task ends."""
        order = self._ordered(name, agent)
        outcome, answer = (Succeeded("said", usage), said) if isinstance(said, Answer) else (said, None)
        if isinstance(order.effect, Compose):
            ended = TurnEnded(Turn.SYNTHESIS, order.effect.attempt_id, "main", outcome, self.composed(name))
        else:
            ended = self.end_of(order, outcome, answer)
        events = self.settles(order, ended)
        self.start()
        return events

    def end_of(self, order: Order, outcome: Outcome, answer: Answer | None = None) -> TurnEnded:
        """What the core is told when an ordered turn or look-up ends like this."""
        assert isinstance(order.effect, RunTurn | LookUp)
        return turns.ended(order, order.effect, outcome, answer)

    def settles(self, order: Order, ended: Input) -> list[Event]:
        """What was ordered has ended: the core is told, and it is ordered no longer. Nothing else starts."""
        with self.engine.batch():
            events = self.engine.handle(order.task, ended)
            self.store.outbox.finish(order.id)
        return events

    def finish(self, *orders: Order) -> None:
        """These have been performed, and nobody is told."""
        with self.engine.batch():
            for order in orders:
                self.store.outbox.finish(order.id)

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

    def attempt(self, name: str = "t", number: int | None = None) -> Attempt:
        """An attempt of a task; its latest, if no number is given."""
        task = self.task(name)
        attempt = self.store.tasks.attempt(task.id, task.attempt if number is None else number)
        assert attempt is not None, f"{name} has no such attempt"
        return attempt

    @property
    def settings(self) -> Settings:
        return self.engine.settings

    def pending(self, kind: type[Effect] | None = None, name: str | None = None) -> list[Order]:
        """What is ordered and not done yet, in order; delayed orders when their time has come."""
        task = None if name is None else self.task(name).id
        return [
            order
            for order in self.store.outbox.pending(self.clock.now(), 10_000)
            if (kind is None or isinstance(order.effect, kind)) and task in (None, order.task)
        ]

    def orders(self, kind: type[Effect] | None = None, name: str | None = None) -> list[Any]:
        """The effects that are ordered and not done yet."""
        return [order.effect for order in self.pending(kind, name)]

    def name(self, order: Order) -> str:
        """The name of the task that an order is for."""
        return self.store.tasks.local_id(order.task)

    def count(self) -> int:
        """How many tasks there are."""
        return self.store.tasks.count()

    def children(self, name: str = "t") -> list[Task]:
        return self.store.tasks.children(self.task(name).id)

    def needs(self, name: str) -> list[Task]:
        """What a task depends on."""
        return self.store.tasks.dependencies(self.task(name).id)

    def approvals(self, name: str = "t") -> tuple[Approval, ...]:
        return self.store.approvals.of_task(self.task(name).id)

    def reviewers(self, name: str = "t") -> list[str]:
        """Who is asked for a review of it."""
        return sorted(one.reviewer for one in self.store.tasks.view(self.task(name).id).asked_reviewers)

    def answers(self, name: str = "t") -> tuple[str, ...]:
        """The answers that a task may give."""
        return self.store.tasks.declared_answers(self.task(name).id)

    def composed(self, name: str) -> Answer:
        """What the results of its children make, without an agent."""
        return composed(self.store, self.task(name))

    def prompt(self, turn: RunTurn, name: str, most: int = 4096) -> str:
        """What the agent of an ordered turn reads; `most`: bytes of background."""
        return self._prompts(most).prompt(turn, self.task(name)).text

    def dispatch(self, turn: RunTurn, name: str, elsewhere: Path, most: int = 4096) -> bytes:
        """The message to the agent of an ordered turn that has a mailbox. No hub is `elsewhere`.

        It is written without the model of its type, which must write the same.
        """
        now = self.clock.now()
        raw = self._messages(elsewhere, most).dispatch(turn, self.task(name), self.attempt(name), now)[0]
        assert render_message_with(parse_message(raw, "sent.md").message, split(raw, "sent.md").body) == raw
        return raw

    def message(self, effect: Send, name: str, elsewhere: Path) -> bytes:
        """The ordered message about a task. No hub is `elsewhere`."""
        return self._messages(elsewhere, 4096).message(effect, self.task(name), self.clock.now())

    def _messages(self, elsewhere: Path, most: int) -> MessageBuilder:
        hub = HubMail(HubView(Workspace(elsewhere), "main", UserState(elsewhere)))
        return MessageBuilder("main", self.store, Templates(None), lambda *_: "", self._prompts(most), hub)

    def _prompts(self, most: int) -> PromptBuilder:
        limits = self.settings.limits
        return PromptBuilder("main", self.store, Templates(None), limits, 100_000, most, lambda *_: "", tuple)

    def task_file(self, name: str = "t") -> TaskFile:
        """What its task.md shows."""
        return to_record(self.engine, self.task(name))

    def is_held(self, name: str = "t") -> bool:
        """Whether it, or a task above it, is held."""
        return self.store.tasks.is_held(self.task(name).id)

    def breaker(self, agent: str = "main") -> Breaker:
        return self.store.breakers.get(agent)

    def busy(self) -> dict[str, int]:
        """How many slots of each agent are taken."""
        return self.store.schedule.busy(self.clock.now())

    def due(self) -> str | None:
        """When something is due next of itself."""
        return self.store.schedule.next_due(self.clock.now())

    def spent(self, name: str = "t") -> Spent:
        return self.store.budgets.spent(self.task(name).id)

    def remaining(self, name: str = "t") -> tuple[float | None, int | None]:
        """What is left for a task, of USD and of tokens."""
        return self.store.budgets.remaining(self.store.tasks.lineage(self.task(name)))

    def causes(self, name: str) -> Sequence[Cause]:
        """Why it waits, the first cause first."""
        task = self.task(name).id
        return explain(explain_queries.load(self.store.db, [task], self.clock.now(), 0), task).causes

    def waits_at_peer(self, name: str) -> Mapping[str, tuple[str, str]]:
        """What each attempt waits for at its peer, and why."""
        return explain_queries.waits_at_peer(self.store.db, self.task(name).id)

    def events(self, name: str | None = None, kind: Kind | None = None) -> list[Event]:
        """What is on record, of one task or of all."""
        task = None if name is None else self.task(name).id
        found = (recorded.event for recorded in event_log.read(self.store.db, task))
        return [event for event in found if kind in (None, event.kind)]

    def last_event(self) -> int:
        """The number of the latest event."""
        return self.store.last_event()

    def verify(self) -> None:
        """The chain is whole, and the tables are what the events add up to."""
        event_log.check(self.store.db)

    def sql(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.store.db.execute(query, parameters)]

    def keys(self, name: str = "t") -> list[str]:
        """The keys of its children."""
        return [child.key for child in self.children(name)]

    def path(self, name: str = "t") -> list[str]:
        """The phases the task went through."""
        steps = [step for event in self.events(name) for step in passed(event)]
        return [steps[0]["from"], *(step["to"] for step in steps)] if steps else []

    def kinds(self, name: str = "t") -> list[str]:
        return [event.kind.value for event in self.events(name)]

    def _ordered(self, name: str, agent: str) -> Order:
        found = [
            order
            for order in self.pending(name=name)
            if isinstance(order.effect, RunTurn | LookUp | Compose) and agent in ("", order.agent)
        ]
        assert found, f"nothing is ordered for {name}"
        return found[0]


@contextmanager
def refused(desk: Desk, rule: str) -> Iterator[None]:
    """The body is refused by this rule, and nothing happens."""
    before = desk.last_event()
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.rule == rule
    assert desk.last_event() == before


def with_policy(**fields: Any) -> Policy:
    return replace(Policy(backoff_base=10.0), **fields)


def again(number: int) -> Redispatch:
    """The sender gives its work out once more."""
    origin = Origin(attempt=number, attempt_id=f"theirs-{number}")
    return Redispatch(Spec(goal="t", instructions="Better."), origin, "It was too short.")
