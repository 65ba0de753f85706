"""A workspace with real files, the daemon's own parts, agents that a seed plays, and a clock that is moved."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

from mailboxd.core.effects import Bounce, Compose, RunTurn, Send
from mailboxd.core.events import Role
from mailboxd.core.inputs import Input, OperatorInput, TurnEnded
from mailboxd.core.model import Attempt, Plan, PlannedChild, Policy, Task
from mailboxd.core.outcomes import Acknowledged, Answer, Failed, Failure, Outcome, Planned, Results, Succeeded
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import Turn
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import Archiver, ArchiveWatch
from mailboxd.engine.intake.arrivals import Arrivals
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.reports import Finished, Reports
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.inbox import Inbox
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.user.state import UserState
from mailboxd.host.clock import ManualClock
from mailboxd.host.ids import Ids
from mailboxd.hub.files.view import HubView
from mailboxd.ledger import event_log, journal
from mailboxd.ledger.database import connect
from mailboxd.ledger.journal import Journal
from mailboxd.ledger.store import Order, Store
from mailboxd.perform import turns
from mailboxd.perform.agents.process import TurnTransport
from mailboxd.perform.delivery import MessageDelivery
from mailboxd.perform.hub_mail import HubMail
from mailboxd.perform.message_builder import MessageBuilder, PromptBuilder, composed
from mailboxd.perform.process_table import ProcessTable
from mailboxd.surfaces.taskmd.sync import TaskMarkdown
from tests.e2e.support import message, reply, task

SETTINGS = Settings(agent="alpha", policy=Policy(backoff_base=0.01, backoff_max=0.02), slots=3)
PEERS = ("beta", "gamma")


def verify(database: Path) -> None:
    """The chain of the database is whole, and its tables are what the events add up to."""
    with closing(connect(database, read_only=True)) as db:
        event_log.check(db)


@dataclass(frozen=True, slots=True)
class Ended:
    """A report: the end of a turn that an order called for."""

    order: Order
    ended: TurnEnded


@dataclass(slots=True)
class Mailroom:
    """`step` lets something happen; `settle` lets everything that is decided reach the files."""

    ws: Workspace
    random: Random
    clock: ManualClock
    engine: Engine
    reports: Reports = field(init=False)
    dropped: list[bytes] = field(default_factory=list)
    given: dict[str, RunTurn] = field(default_factory=dict)
    """What peers have acknowledged and not replied to, by the task's id."""
    tasks: int = 0
    parts: Parts | None = None

    def __post_init__(self) -> None:
        self.reports = Reports(self.engine)
        self.reports.route(Ended, lambda report: self._take(report.order, report.ended))

    @classmethod
    def begin(cls, root: Path, seed: int, agent: str = "alpha") -> Mailroom:
        Workspace.create(root)
        ws, random, clock = Workspace(root), Random(seed), ManualClock("2026-03-01T08:00:00.000Z")
        store = Store.open(ws.database, clock.now())
        store.journal = Journal(ws.root)
        ids = Ids(random.getrandbits)
        settings = replace(SETTINGS, agent=agent)
        engine = Engine(store, settings, clock, ids, random, new_token=lambda: f"{random.getrandbits(128):032x}")
        return cls(ws, random, clock, engine)

    def close(self) -> None:
        self.engine.store.close()

    def task(self, local_id: str) -> Task:
        task = self.engine.store.tasks.by_local_id(local_id)
        assert task is not None, local_id
        return task

    def attempt(self, local_id: str, ordinal: int) -> Attempt:
        attempt = self.engine.store.tasks.attempt(self.task(local_id).id, ordinal)
        assert attempt is not None, f"{local_id} has no attempt {ordinal}"
        return attempt

    def command(self, local_id: str, order: OperatorInput) -> None:
        with self.engine.batch():
            self.engine.command(self.task(local_id), order, "ops")

    def handle(self, local_id: str, heard: Input, role: Role = Role.OPERATOR, actor: str = "ops") -> None:
        with self.engine.batch():
            self.engine.handle(self.task(local_id).id, heard, role, actor)

    def turn_of(self, local_id: str) -> tuple[Order, RunTurn]:
        """The turn that is ordered for a task."""
        task, pending = self.task(local_id).id, self.engine.store.outbox.pending(self.clock.now(), 500)
        (found,) = [(o, o.effect) for o in pending if o.task == task and isinstance(o.effect, RunTurn)]
        return found

    def ended(self, order: Order, turn: RunTurn, outcome: Outcome, answer: Answer | None) -> None:
        """It has ended like this; the next round records it."""
        self.reports.append(Ended(order, turns.ended(order, turn, outcome, answer)))

    def sql(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a view."""
        return [tuple(row) for row in self.engine.store.db.execute(query, parameters)]

    def verify(self) -> None:
        event_log.check(self.engine.store.db)

    @property
    def journal(self) -> list[Path]:
        """The files of its journal, the oldest first."""
        return journal.files_of(self.ws.root)

    # ------------------------------------------------------------ what happens

    def step(self) -> None:
        """One of the things that happen in a workspace."""
        self.clock.advance(self.random.choice((0.003, 0.2, 5.0, 400.0)))
        self.random.choice((self.drop, self.look, self.look, self.work, self.work, self.work, self.answer))()

    def drop(self) -> None:
        """Somebody writes a message; sometimes one that came before, or one that is wrong."""
        if self.dropped and self.random.random() < 0.15:
            raw = self.random.choice(self.dropped)
        elif self.tasks and self.random.random() < 0.15:
            raw = self._again(f"t{self.random.randint(1, self.tasks)}")
        elif self.random.random() < 0.1:
            raw = b"---\ntype: task\ntask_id: ../x\nfrom: boss\n---\n"
        else:
            self.tasks += 1
            raw = task(f"t{self.tasks}", sender=self.random.choice(("operator", "boss")), plan=self._plan()).encode()
        self.put(raw)

    def _again(self, task_id: str) -> bytes:
        """A cancel, or the same work given out anew."""
        sender = self.random.choice(("operator", "boss"))
        if self.random.random() < 0.5:
            return message("cancel", task_id, "No longer needed.", sender=sender).encode()
        attempt = self.random.randint(2, 9)
        return task(task_id, sender=sender, attempt=attempt, attempt_id=f"again-{attempt}").encode()

    def put(self, raw: bytes) -> None:
        """A file in the inbox, written at this moment."""
        self.dropped.append(raw)
        path = self.ws.inbox / f"m{len(self.dropped)}.md"
        path.write_bytes(raw)
        os.utime(path, (to_epoch(self.clock.now()), to_epoch(self.clock.now())))

    def _plan(self) -> dict[str, dict[str, object]] | None:
        if self.random.random() < 0.4:
            return None
        keys = [f"c{number}" for number in range(self.random.randint(1, 4))]
        plan: dict[str, dict[str, object]] = {}
        for index, key in enumerate(keys):
            needs = [other for other in keys[:index] if self.random.random() < 0.4]
            agent: object = self.random.choice(("self", *PEERS, list(PEERS)))
            plan[key] = {"agent": agent, "description": f"Do {key}", "depends_on": needs}
        return plan

    def look(self) -> None:
        """A round of the daemon: what was reported, what lies in the inbox, what is due, what may start."""
        parts = self._parts()
        mail = parts.arrivals.read(to_epoch(self.clock.now()))
        with self.engine.batch():
            self.reports.record_all()
            parts.arrivals.take(mail)
            self.engine.tick()
            self.engine.schedule()
        parts.archiving.perform()
        self._round()
        parts.taskmd.perform()
        self._round()

    def _round(self) -> None:
        with self.engine.batch():
            self.reports.record_all()

    def work(self) -> None:
        """One of the effects that are ordered is performed."""
        orders = [
            order for order in self.engine.store.outbox.pending(self.clock.now(), 500) if order.task not in self.given
        ]
        if orders:
            self._perform(self.random.choice(orders))
            self._round()

    def answer(self) -> None:
        """A peer that has work replies by message; sometimes that it failed."""
        if not self.given:
            return
        task_id = self.random.choice(sorted(self.given))
        effect = self.given.pop(task_id)
        child = self.engine.store.tasks.get(task_id)
        attempt = None if child is None else self.engine.store.tasks.attempt(task_id, child.attempt)
        if child is None or attempt is None:
            return
        token = {"reply_token": attempt.reply_token} if self.random.random() < 0.5 else {}
        said = {"attempt_id": effect.attempt_id, **token}
        if self.random.random() < 0.2:
            said["status"] = "failed"
        text = reply(child.task_id, child.key, effect.agent, f"Peer result {self.random.random()}", **said)
        self.put(text.replace("## Results", "## Error").encode() if "status" in said else text.encode())

    def done(self, result: str) -> None:
        """The turns that are ordered end, with this result."""
        for order in self.engine.store.outbox.pending(self.clock.now(), 500):
            if isinstance(turn := order.effect, RunTurn):
                ended = TurnEnded(turn.turn, turn.attempt_id, turn.agent, Succeeded(result), Results(result))
                self.reports.append(Ended(order, ended))
        self._round()

    # ------------------------------------------------------------ the effect runner's part

    def _perform(self, order: Order) -> None:
        parts = self._parts()
        found = self.engine.store.tasks.get(order.task) if order.task else None
        match order.effect:
            case RunTurn() as effect if found is not None:
                self.give_out(found, effect)
                self._end(order, effect)
            case Send() | Bounce():
                parts.posting.begin(order, order.effect)
            case Compose() as effect if found is not None:
                answer = composed(self.engine.store, found)
                ended = TurnEnded(Turn.SYNTHESIS, effect.attempt_id, "alpha", Succeeded("composed"), answer)
                self.reports.append(Ended(order, replace(ended, called=False)))
            case _:
                self.reports.append(Finished(order.id))

    def give_out(self, task: Task, effect: RunTurn) -> None:
        """Write the message of a dispatch, if its attempt is still the present one."""
        parts, attempt = self._parts(), self.engine.store.tasks.attempt(task.id, task.attempt)
        if effect.turn is Turn.DISPATCH and attempt is not None and attempt.id == effect.attempt_id:
            raw, _ = parts.outgoing.dispatch(effect, task, attempt, self.clock.now())
            parts.posting.write(effect.message_id, "task", task.local_id, effect.agent, raw, task.id)
            self.clock.advance(0.02)

    def _end(self, order: Order, effect: RunTurn) -> None:
        chance, text = self.random.random(), f"Result {self.random.random()}"
        outcome: Succeeded | Failed = Succeeded(text)
        answer: Answer | None = Results(text)
        if effect.turn is Turn.DISPATCH and chance < 0.5:
            answer = Acknowledged()
            self.given[order.task] = effect
        elif chance < 0.2 and effect.turn is Turn.WORK:
            answer = Planned(
                Plan(tuple(PlannedChild(f"p{n}", (self.random.choice(("self", *PEERS)),), "Do") for n in (1, 2)))
            )
        elif chance > 0.9 and effect.turn is not Turn.SYNTHESIS:
            answer = Failure("It could not be done.")

        ended = TurnEnded(effect.turn, effect.attempt_id, effect.agent, outcome, answer)
        self.reports.append(Ended(order, ended))

    def _take(self, order: Order, ended: TurnEnded) -> None:
        self.engine.handle(order.task, ended, actor=ended.agent)
        self.engine.store.outbox.finish(order.id)

    # ------------------------------------------------------------ the end

    def settle(self) -> None:
        """Everything that is decided reaches the files: what was ordered to be sent, what was judged, task.md."""
        for _ in range(4):
            for order in self.engine.store.outbox.pending(self.clock.now(), 500):
                if isinstance(order.effect, Send | Bounce):
                    self._perform(order)
            self.clock.advance(0.01)
            self._round()
        parts = self._parts()
        parts.archiving.perform()
        self._round()
        parts.taskmd.perform()
        self._round()

    def _parts(self) -> Parts:
        if self.parts is None:
            self.parts = Parts.of(self)
        return self.parts


@dataclass(slots=True)
class Parts:
    arrivals: Arrivals
    archiving: Archiver
    taskmd: TaskMarkdown
    outgoing: MessageBuilder
    posting: MessageDelivery

    @classmethod
    def of(cls, room: Mailroom) -> Parts:
        ws, core, templates = room.ws, room.engine, Templates(None)
        intake = Intake(core)
        inbox = Inbox(ws, settle_seconds=0.0, incomplete_seconds=0.0, max_bytes=1 << 20)
        taskmd = TaskMarkdown(core, intake, TaskFiles(ws, settle_seconds=0.0), templates, room.reports)
        agent = core.settings.agent
        prompting = PromptBuilder(agent, core.store, templates, SETTINGS.limits, 100_000, 4_096, lambda *_: "", tuple)
        hub = HubMail(HubView(ws, agent, UserState(ws.root)))
        outgoing = MessageBuilder(agent, core.store, templates, lambda *_: "", prompting, hub)
        nobody = cast(ProcessTable, None), cast(TurnTransport, None)
        posting = MessageDelivery(core, *nobody, outgoing, ws, lambda *_: "", room.reports, hub)
        arrivals = Arrivals(core, intake, inbox, 0.0)
        return cls(
            arrivals, Archiver(core, ws, room.reports, ArchiveWatch(core, ws, room.reports)), taskmd, outgoing, posting
        )
