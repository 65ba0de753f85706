"""A task whose task.md is edited, while a daemon writes it and others give orders."""

from __future__ import annotations

from pathlib import Path

from mailboxd.core.events import Role
from mailboxd.core.inputs import NewTask, SpecWritten, Steer
from mailboxd.core.model import Policy, Spec
from mailboxd.core.times import to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.reports import Reports
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.host.clock import ManualClock
from mailboxd.ledger.store import Store
from mailboxd.surfaces.taskmd.sync import TaskMarkdown


class Desk:
    """A task `job`, its file, and the daemon's part that keeps both the same."""

    def __init__(self, root: Path, goal: str = "Job") -> None:
        Workspace.create(root)
        self.ws, self.clock = Workspace(root), ManualClock()
        self.engine = Engine(Store.open(None, self.clock.now()), Settings(agent="alpha", policy=Policy()), self.clock)
        self.restart()
        with self.engine.batch():
            spec = Spec(goal, "Do job.", expected_output="One line.")
            created = self.engine.handle(None, NewTask("job", None, "job", "operator", "Job", spec, Policy()))
        self.id = str(created[0].task)
        self.render()

    @property
    def file(self) -> Path:
        return self.ws.tasks / "job" / "task.md"

    @property
    def spec(self) -> Spec:
        task = self.engine.store.tasks.get(self.id)
        assert task is not None
        return task.spec

    @property
    def instructions(self) -> str:
        return self.spec.instructions

    def order(self, given: Steer | SpecWritten) -> None:
        with self.engine.batch():
            self.engine.handle(self.id, given, Role.OPERATOR, "root")

    def restart(self) -> None:
        """Another daemon: it remembers nothing of what was shown."""
        files, self.reports = TaskFiles(self.ws, settle_seconds=0.0), Reports(self.engine)
        self.taskmd = TaskMarkdown(self.engine, Intake(self.engine), files, Templates(None), self.reports)

    def render(self) -> str:
        self.taskmd.perform()
        with self.engine.batch():
            self.reports.record_all()
        return self.file.read_text()

    def steer(self) -> None:
        """A person's command, in a process of its own."""
        self.clock.advance(1.0)
        self.order(Steer("operator", "Count the commas."))

    def save(self, text: str) -> None:
        """Somebody saves the file, and the daemon looks."""
        self.clock.advance(1.0)
        self.file.write_text(text)
        with self.engine.batch():
            self.taskmd.scan(to_epoch(self.clock.now()) + 3600.0)

    def edits(self) -> int:
        """How often the instructions were edited, as the history has it."""
        events = self.engine.store.recorded_since(0)
        return sum(event.data.get("reason") == "instructions edited in task.md" for _, event in events)
