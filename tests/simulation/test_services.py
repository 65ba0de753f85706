"""The services of the loop: each is called when it has something to do, and the loop sleeps until the next one has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mailboxd.core.vocabulary import Phase
from mailboxd.errors import WorldError
from mailboxd.formats.health import Component, Trouble, read
from mailboxd.formats.mailbox.files import ObstructedError
from mailboxd.formats.mailbox.maildir import MoveRequest
from mailboxd.formats.mailbox.watcher import Watcher
from mailboxd.perform.agents.scripted import program
from mailboxd.surfaces.taskmd.sync import TaskMarkdown
from tests.simulation.house import House
from tests.simulation.processes import said
from tests.simulation.test_power import TASK, founded

CHAIN = TASK.replace(
    b"  x: {agent: carl, description: part x}\n",
    b"""  s0: {agent: ada, description: first}
  s1: {agent: ada, description: second, depends_on: [s0]}
  s2: {agent: ada, description: third, depends_on: [s1]}
""",
)


def answer_all(house: House) -> int:
    """End every turn that runs, successfully; returns how many."""
    running = house.processes.running()
    for process in running:
        house.processes.end(process, said(program.success(process.id, process.session_key, "", "It is done.")))
    return len(running)


def let_pass(house: House, seconds: float) -> int:
    """Do as the loop does for so long when nothing happens; returns how often it woke up."""
    daemon = house.daemon
    assert daemon is not None
    until, awoken = house.clock.monotonic() + seconds, 0
    while house.clock.monotonic() < until:
        daemon.health.beat()
        house.clock.advance(daemon._timeout() + 0.001)  # the clock has milliseconds
        daemon._schedule.timer_fired(house.clock.monotonic())
        while daemon.round():
            pass
        awoken += 1
    return awoken


def test_a_chain_goes_on_by_the_ends_of_its_turns_alone(tmp_path: Path) -> None:
    """Nothing pokes the daemon and no timer fires: what a turn's end allows begins in the round that records it."""
    with founded(tmp_path / "ada") as house:
        house.drop("job.md", CHAIN, 1)
        house.work()
        assert house.daemon is not None
        while answer_all(house):
            assert not house.daemon._schedule.is_due(house.clock.monotonic())
            while house.daemon.round():
                pass
        job = house.store.tasks.by_local_id("job")
        assert job is not None
        assert job.phase is Phase.COMPLETED


def test_an_idle_daemon_wakes_four_times_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a dozen services have something to do from time to time: they share the wake-up of the heartbeat."""
    with founded(tmp_path / "ada") as house:
        house.drop("job.md", CHAIN, 1)
        house.work()
        while answer_all(house):
            house.work()
        monkeypatch.setattr(Watcher, "polls", "")  # else it scans every five seconds
        let_pass(house, 60.0)
        assert let_pass(house, 600.0) <= 40


def test_what_fails_is_said_once_retried_after_some_seconds_and_well_again_when_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []

    def refuse(_archiver: object) -> int:
        tried.append(house.clock.monotonic())
        raise WorldError("no room")

    with founded(tmp_path / "ada") as house:
        house.work()
        assert house.daemon is not None
        assert house.health is not None
        begun = house.clock.monotonic()
        with monkeypatch.context() as patched:
            patched.setattr("mailboxd.engine.intake.archive.Archiver.perform", refuse)
            house.daemon._filing.mark()
            for _ in range(10):
                house.daemon.round()
            assert tried == [begun]
            assert house.health.is_troubled(Component.FILING)
            let_pass(house, 4.0)
            assert tried[-1] - begun == pytest.approx(5.0, abs=0.1)
        let_pass(house, 6.0)
        assert not house.health.is_troubled(Component.FILING)


def test_a_disk_that_takes_no_task_files_is_not_tried_at_every_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []

    def refuse(_taskmd: object, _seconds: float) -> int:
        tried.append(house.clock.monotonic())
        raise WorldError("no room")

    with founded(tmp_path / "ada") as house:
        house.work()
        monkeypatch.setattr(TaskMarkdown, "perform", refuse)
        house.drop("job.md", CHAIN, 1)
        house.work()
        let_pass(house, 1.0)
        assert len(tried) == 1
        while answer_all(house):
            house.work()
        assert len(tried) == 1
        let_pass(house, 20.0)
        assert 2 <= len(tried) <= 5


def stuck(house: House) -> Trouble | None:
    """What is said of files that stay in the inbox, as every view reads it."""
    _, found = read(house.ws, 0, house.clock.now(), house.clock.monotonic())
    return next((one for one in found if one.where == Component.LEFT), None)


def test_a_file_that_cannot_be_moved_out_of_the_inbox_is_told_and_after_a_minute_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def obstruct(_ws: object, requests: Sequence[MoveRequest], _is_filed: object) -> list[ObstructedError]:
        return [ObstructedError(f"cannot move inbox/{one.name}: Operation not permitted") for one in requests]

    with founded(tmp_path / "ada") as house:
        house.work()
        with monkeypatch.context() as patched:
            patched.setattr("mailboxd.engine.intake.archive.move_out", obstruct)
            house.drop("stuck.md", CHAIN, 1)
            let_pass(house, 120.0)
            told = stuck(house)
            assert told is not None
            assert "inbox/stuck.md: Operation not permitted" in told.why
            assert told.needs_person(house.clock.now())
            house.drop("next.md", CHAIN.replace(b"job", b"next"), 2)
            let_pass(house, 20.0)
            told = stuck(house)
            assert told is not None
            assert "and 1 more" in told.why
        let_pass(house, 60.0)
        assert stuck(house) is None
