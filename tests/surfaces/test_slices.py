"""Many task.md files are written in slices, and one that is always out of date holds up no other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from mailboxd.core.inputs import NewTask
from mailboxd.core.model import Policy, Spec
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.reports import Reports
from mailboxd.errors import WorldError
from mailboxd.formats.config.settings import Settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.task_files import TaskFiles
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.host.clock import ManualClock
from mailboxd.ledger.store import Store
from mailboxd.surfaces.taskmd.sync import TaskMarkdown

EACH = 0.02
"""Seconds that a file takes."""


class Slow(TaskFiles):
    """Writes nothing, and takes its time for it."""

    def __init__(self, ws: Workspace, clock: ManualClock) -> None:
        super().__init__(ws)
        self.clock = clock
        self.written: list[str] = []
        self.failing: set[str] = set()

    def write_all(self, texts: Iterable[tuple[str, bytes]], *, many: bool = False) -> list[bool | WorldError]:
        answers: list[bool | WorldError] = []
        for local_id, _ in texts:
            self.clock.advance(EACH)
            self.written.append(local_id)
            answers.append(WorldError("no room") if local_id in self.failing else True)
        return answers


class Desk:
    def __init__(self, root: Path, tasks: int) -> None:
        Workspace.create(root)
        clock = ManualClock()
        self.engine = Engine(Store.open(None, clock.now()), Settings(agent="alpha", policy=Policy()), clock)
        self.files = Slow(Workspace(root), clock)
        self.reports = Reports(self.engine)
        self.taskmd = TaskMarkdown(self.engine, Intake(self.engine), self.files, Templates(None), self.reports)
        self.ids: dict[str, str] = {}
        with self.engine.batch():
            for name in (f"t{number}" for number in range(tasks)):
                new = NewTask(name, None, name, "operator", name, Spec(name, "Do."), Policy())
                self.ids[name] = str(self.engine.handle(None, new)[0].task)

    def slice(self, *happens: str) -> list[str]:
        """One slice, and the round after it, in which something happens to these tasks."""
        before = len(self.files.written)
        self.taskmd.perform(0.05)
        with self.engine.batch():
            self.reports.record_all()
            self.engine.store.stale_files.mark([self.ids[name] for name in happens])
        return self.files.written[before:]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "alpha", 7)


def test_a_slice_ends_with_the_file_in_which_its_time_is_over(desk: Desk) -> None:
    assert (desk.slice(), desk.taskmd.more) == (["t0", "t1", "t2"], True)
    assert (desk.slice(), desk.taskmd.more) == (["t3", "t4", "t5"], True)
    assert (desk.slice(), desk.taskmd.more) == (["t6"], False)
    assert not desk.engine.store.stale_files.exist()


def test_what_is_always_out_of_date_holds_up_no_other(desk: Desk) -> None:
    first, second, third = (desk.slice("t0", "t1", "t2") for _ in range(3))
    assert (first, second, third) == (["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6"])
    assert desk.slice("t0", "t1", "t2") == ["t0", "t1", "t2"]


def test_newer_ones_that_are_always_out_of_date_do_not_put_off_an_older_one(desk: Desk) -> None:
    for _ in range(3):
        desk.slice()
    desk.slice("t3")
    assert desk.slice("t0", "t6") == ["t3"]
    assert desk.slice("t6") == ["t0", "t6"]


def test_one_file_is_written_however_long_it_takes(desk: Desk) -> None:
    assert desk.taskmd.perform(0.0) == 1


def test_a_failure_is_raised_when_all_were_tried_and_what_was_written_counts(desk: Desk) -> None:
    desk.files.failing = {"t0", "t1"}
    with pytest.raises(WorldError, match="no room"):
        desk.slice()
    assert desk.files.written == ["t0", "t1", "t2"]
    assert desk.slice() == ["t3", "t4", "t5"]

    desk.files.failing = set()
    assert (desk.slice(), desk.slice(), desk.slice()) == (["t6"], ["t0", "t1"], [])


def test_a_file_that_nobody_has_read_about_since_is_marked_once(desk: Desk) -> None:
    """And a mark that was taken back was none."""
    stale, task = desk.engine.store.stale_files, desk.ids["t0"]

    def mark(then: int = 1) -> None:
        with desk.engine.batch():
            stale.mark([task])
            assert 1 // then

    (read,) = [marks for name, marks in stale.batch() if name == task]
    with pytest.raises(ZeroDivisionError):
        mark(then=0)
    before = desk.engine.store.db.total_changes
    mark()
    mark()
    assert desk.engine.store.db.total_changes == before + 1
    stale.clear(task, read)
    (read,) = [marks for name, marks in stale.batch() if name == task]
    mark()
    stale.clear(task, read)
    assert task in dict(stale.batch())
    stale.clear(task, read + 1)
    assert task not in dict(stale.batch())
    mark()
    assert dict(stale.batch())[task] == 1
