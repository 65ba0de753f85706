"""An edit of a task.md that was made to an older version of the file: what came since is not taken back by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.clock import ManualClock
from mailboxd.config.settings import Settings
from mailboxd.core.events import Role
from mailboxd.core.inputs import NewTask, SpecWritten, Steer
from mailboxd.core.model import Policy, Spec
from mailboxd.core.times import to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.intake.interpret import Intake
from mailboxd.mailbox.layout import Workspace
from mailboxd.mailbox.task_files import TaskFiles
from mailboxd.protocol.prompts import Templates
from mailboxd.protocol.spec import rewritten
from mailboxd.store.store import Store
from mailboxd.taskmd.sync import TaskMarkdown

STEERED = "New instructions from operator:\n> Count the commas."


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
    def instructions(self) -> str:
        task = self.engine.store.tasks.get(self.id)
        assert task is not None
        return task.spec.instructions

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
        with self.engine.batch():
            self.engine.handle(self.id, Steer("operator", "Count the commas."), Role.OPERATOR, "root")

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


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "alpha")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("rendered", [False, True])
def test_new_instructions_are_not_taken_back_by_an_edit_of_the_version_before(
    desk: Desk, restarts: bool, rendered: bool
) -> None:
    """It was open in an editor, or no daemon ran that could have shown them."""
    before = desk.file.read_text()
    desk.steer()
    if rendered:
        desk.render()
    if restarts:
        desk.restart()
    desk.save(before.replace("Do job.", "Do job with care."))
    assert desk.instructions == f"Do job with care.\n\n{STEERED}"
    desk.save(before.replace("Do job.", "Do job with great care."))
    assert desk.instructions == f"Do job with great care.\n\n{STEERED}"
    assert "Count the commas" in desk.render()


@pytest.mark.parametrize("header", [True, False])
def test_an_agent_that_writes_the_file_as_it_read_it_takes_nothing_back(desk: Desk, header: bool) -> None:
    before = desk.file.read_text()
    desk.steer()
    desk.render()
    if not header:
        before = "\n".join(line for line in before.splitlines() if not line.startswith(("updated_at:", "rendered:")))
    desk.save(before.replace("## Working Notes\n", "## Working Notes\n\nHalf of it.\n"))
    assert desk.instructions == f"Do job.\n\n{STEERED}"
    assert desk.edits() == 0
    assert "Half of it." in desk.render()


def test_an_author_who_has_read_the_new_instructions_may_remove_them(desk: Desk) -> None:
    desk.steer()
    text = desk.render()
    assert STEERED in text
    desk.save(text.replace(f"\n\n{STEERED}", ""))
    assert desk.instructions == "Do job."


def test_a_second_edit_may_undo_the_first(desk: Desk) -> None:
    text = desk.file.read_text()
    desk.save(text.replace("Do job.", "Do it twice."))
    assert desk.instructions == "Do it twice."
    desk.save(text.replace("## Working Notes\n", "## Working Notes\n\nAs it was.\n"))
    assert desk.instructions == "Do job."


def test_a_spec_that_was_written_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "alpha", goal="")
    before = desk.file.read_text()
    task = desk.engine.store.tasks.get(desk.id)
    assert task is not None
    written = rewritten(task.spec, "## Expected Output\n\nTwo lines.\n")
    assert written is not None
    desk.clock.advance(1.0)
    with desk.engine.batch():
        desk.engine.handle(desk.id, SpecWritten(written), Role.OPERATOR, "root")
    desk.restart()
    desk.save(f"{before}\n## Scope Out\n\nTables.\n")
    after = desk.engine.store.tasks.get(desk.id)
    assert after is not None
    assert (after.spec.expected_output, after.spec.scope_out) == ("Two lines.", "Tables.")
