"""A workspace on disk with a real database, the engine that fills it, and the program that is asked about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from mailboxd.cli.program import program
from mailboxd.cli.session import Session
from mailboxd.core.effects import Effect, RunTurn
from mailboxd.core.entrance import UNKNOWN, Entrance
from mailboxd.core.events import Event, Role
from mailboxd.core.inputs import Input, NewTask
from mailboxd.core.model import NO_USAGE, Attempt, Plan, PlannedChild, Policy, Spec, Task, Usage
from mailboxd.core.operator_orders import OperatorOrder
from mailboxd.core.outcomes import Outcome, Succeeded
from mailboxd.core.times import to_epoch
from mailboxd.engine import open
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import held_orders
from mailboxd.engine.intake.archive import InboxFile
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.reports import Reports
from mailboxd.errors import MessageError
from mailboxd.formats import config
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.formats.protocol.answer import Asked, read_answer
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.protocol.taskmd import TaskFile
from mailboxd.host.clock import ManualClock
from mailboxd.ledger.meta import PEERS
from mailboxd.ledger.reports import opened
from mailboxd.perform import turns
from mailboxd.surfaces.taskmd.sync import TaskMarkdown, to_record
from tests.ledger.shapes import well_printed

NOW = "2026-11-21T12:00:00.000Z"


@dataclass(slots=True)
class Stage:
    """The workspace of agent `alpha`. Its clock stands still until a test moves it."""

    ws: Workspace
    clock: ManualClock
    pause: Callable[[float], None]

    @property
    def program(self) -> str:
        """How a command begins where it is asked for: outside the workspace."""
        return f"mailboxd -w {self.ws.root}"

    def run(self, *arguments: str, text: str | None = None, env: dict[str, str | None] | None = None) -> Result:
        """The program with these arguments, in this process, through its error boundary."""
        session = Session(path=self.ws.root, clock=self.clock, pause=self.pause)
        return CliRunner().invoke(program, list(arguments), input=text, obj=session, prog_name="mailboxd", env=env)

    def json(self, *arguments: str) -> Any:
        """Its output with --json, parsed; the command must succeed."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        well_printed(arguments, found)
        return found

    def item(self, kind: str) -> Any:
        """The only item of this kind that waits for a person."""
        (found,) = [item for item in self.json("inbox") if item["kind"] == kind]
        return found

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine in one batch, with the stage's clock."""
        with open.engine(self.ws, config.load(self.ws.config)) as engine:
            engine.clock = self.clock
            with engine.batch():
                yield engine

    def handle(
        self, name: str | None, heard: Input, role: Role = Role.ORCHESTRATOR, actor: str = "mailboxd"
    ) -> list[Event]:
        """The engine hears this of a task, or of none yet. Raises Refused."""
        with self.engine() as engine:
            return engine.handle(None if name is None else task_of(engine, name).id, heard, role, actor)

    def give(self, *work: NewTask) -> None:
        with self.engine() as engine:
            for new in work:
                engine.handle(None, new)

    def hold(self, name: str, order: OperatorOrder, values: Mapping[str, str], by: str) -> None:
        """An order that ends work is held for some seconds. Raises Refused."""
        with self.engine() as engine:
            held_orders.hold(engine, task_of(engine, name), order, values, by)

    def hold_rejection(self, ids: Sequence[str], note: str, by: str) -> None:
        with self.engine() as engine:
            held_orders.hold_rejection(engine, ids, note, by)

    def carry_out_held(self) -> None:
        """Held orders whose time has come are carried out."""
        with self.engine() as engine:
            held_orders.carry_out_due(engine)

    def tick(self) -> None:
        """What is due happens."""
        with self.engine() as engine:
            engine.tick()

    def look_again(self) -> None:
        with self.engine() as engine:
            engine.look_again()

    def record(self, event: Event) -> None:
        with self.engine() as engine:
            engine.record(event)

    def knows(self, **peers: object) -> None:
        """What OpenClaw has answered about its agents, beside what it answered before."""
        with self.engine() as engine:
            before = json.loads(engine.store.meta.get(PEERS) or "{}")
            engine.store.meta.report(PEERS, json.dumps(before | peers))

    def lacks(self, **agents: str) -> None:
        """Which agents there are no more, and why; no others."""
        with self.engine() as engine:
            engine.store.meta.set_gone(agents)

    def finds_away(self, **peers: str) -> None:
        """Which peers have no daemon, and why."""
        with self.engine() as engine:
            engine.store.meta.set_away(peers)

    def task(self, name: str) -> Task:
        with self.engine() as engine:
            return task_of(engine, name)

    def attempt(self, name: str) -> Attempt:
        with self.engine() as engine:
            task = task_of(engine, name)
            attempt = engine.store.tasks.attempt(task.id, task.attempt)
        assert attempt is not None, name
        return attempt

    def answers(self, name: str) -> tuple[str, ...]:
        """The answers that a task may give."""
        with self.engine() as engine:
            return engine.store.tasks.declared_answers(task_of(engine, name).id)

    def orders(self, kind: type[Effect]) -> list[Effect]:
        """What is ordered and not done yet."""
        with self.engine() as engine:
            pending = engine.store.outbox.pending(self.clock.now(), 100)
        return [order.effect for order in pending if isinstance(order.effect, kind)]

    def sql(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        """The rows of a view."""
        with opened(self.ws.database) as report:
            return report.rows(query, *parameters)

    def task_file(self, name: str) -> TaskFile:
        """What the task.md of a task shows."""
        with self.engine() as engine:
            return to_record(engine, task_of(engine, name))

    @contextmanager
    def task_files(self) -> Iterator[TaskMarkdown]:
        """The part of a daemon that looks at tasks/, in one batch. It knows nothing of what others saw."""
        with self.engine() as engine:
            files = TaskFiles(self.ws, settle_seconds=0.0)
            yield TaskMarkdown(engine, Intake(engine), files, Templates(None), Reports(engine))

    def restart_with_task_files(self) -> None:
        """What a daemon does with tasks/ when it starts: it reads what was edited, and writes what is out of date."""
        with self.task_files() as taskmd:
            taskmd.restore()
            taskmd.scan(to_epoch(self.clock.now()))
        with self.engine() as engine:
            again = replace(taskmd, engine=engine, intake=Intake(engine), reports=Reports(engine))
            again.perform()
            again.reports.record_all()

    def create(
        self, name: str, *children: PlannedChild, policy: Policy | None = None, sender: str = "operator"
    ) -> None:
        """A root task, with a plan if there are children."""
        with self.engine() as engine:
            spec = Spec(goal=f"Do {name}", instructions=f"Do {name}", expected_output="One line")
            plan = Plan(children) if children else None
            engine.handle(None, NewTask(name, None, name, sender, f"Do {name}", spec, policy or Policy(), plan=plan))

    def start(self) -> None:
        """Let everything that is ready and has a slot start."""
        with self.engine() as engine:
            engine.schedule()

    def end_turn(self, name: str, said: str | Outcome, usage: Usage = NO_USAGE) -> None:
        """The turn of this task that is under way ends, with what the agent said or another outcome."""
        with self.engine() as engine:
            task = task_of(engine, name)
            pending = engine.store.outbox.pending(self.clock.now(), 100)
            order, effect = next((o, o.effect) for o in pending if o.task == task.id and isinstance(o.effect, RunTurn))
            outcome = Succeeded(said, usage) if isinstance(said, str) else said
            answer = read_answer(said, Asked(effect.turn)) if isinstance(said, str) else None
            ended = turns.ended(order, effect, outcome, answer)
            engine.handle(task.id, ended, actor=order.agent)
            engine.store.outbox.finish(order.id)

    def receive(self, came: Entrance = UNKNOWN) -> str:
        """The verdict on the only message in the inbox, judged as the daemon does."""
        (path,) = self.ws.inbox.iterdir()
        raw = path.read_bytes()
        with self.engine() as engine:
            intake = Intake(engine)
            file = InboxFile(path.name, raw, sha256(raw).hexdigest(), len(raw), {}, in_place=True, came=came)
            parsed = intake.parse(file)
            if isinstance(parsed, MessageError):
                intake.reject(file, parsed)
                verdict = "rejected"
            else:
                verdict = intake.receive(file, parsed)
        path.unlink()
        return verdict

    def phase(self, name: str) -> str:
        return str(self.json("show", name)["phase"])


def task_of(engine: Engine, name: str) -> Task:
    task = engine.store.tasks.by_local_id(name)
    assert task is not None, name
    return task


def child(key: str, agent: str = "beta", needs: tuple[str, ...] = (), *children: PlannedChild) -> PlannedChild:
    return PlannedChild(key, (agent,), f"Do {key}", needs, children=children)


def make(root: Path, settings: str = "") -> Stage:
    """A fresh workspace of agent alpha, with these further lines in its configuration."""

    def pause(_seconds: float) -> None:
        raise AssertionError("nothing here has to be waited for")

    stage = Stage(Workspace(root.resolve()), ManualClock(NOW), pause)
    made = stage.run("init", str(root), "--agent", "alpha")
    assert made.exit_code == 0, made.output
    with stage.ws.config.open("a") as file:
        file.write(settings)
    return stage
