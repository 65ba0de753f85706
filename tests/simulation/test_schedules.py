"""Work that repeats and a daemon, on a simulated clock: it wakes up when something is due, and may die at any step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mailboxd.core.standstill import Standstill
from mailboxd.core.times import to_epoch
from mailboxd.formats.mailbox.watcher import Watcher
from tests.simulation.house import House
from tests.simulation.test_power import founded
from tests.simulation.test_services import answer_all, let_pass

DAY = 86_400.0
_DAILY = b"""---
type: task
task_id: water
from: operator
message_id: m-1
repeat: daily at 07:00 UTC
---
Water the plants.
"""


@contextmanager
def watered(root: Path) -> Iterator[House]:
    """A daemon at five minutes to seven, with work that is done at seven each day."""
    with founded(root) as house:
        house.clock.text = "2026-01-01T06:55:00.000Z"
        house.drop("water.md", _DAILY, 1)
        house.work()
        yield house


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with watered(tmp_path / "ada") as made:
        yield made


def times(house: House) -> list[str]:
    """The times that the runs are for."""
    rows = house.store.db.execute("SELECT at FROM v_repetition_runs ORDER BY number").fetchall()
    return [str(row[0]) for row in rows]


def phases(house: House) -> list[tuple[str, str]]:
    return house.store.db.execute("SELECT local_id, phase FROM v_tasks ORDER BY seq").fetchall()


def finish(house: House) -> None:
    while answer_all(house):
        house.work()


def test_a_daemon_wakes_up_for_a_run_and_carries_it_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watcher, "polls", "")  # else it scans every five seconds
    let_pass(house, 250.0)
    assert times(house) == []
    let_pass(house, 50.0)
    assert times(house) == ["2026-01-01T07:00:00.000Z"]
    made_at = house.store.db.execute("SELECT made_at FROM v_repetition_runs").fetchone()[0]
    assert to_epoch(made_at) - to_epoch("2026-01-01T07:00:00.000Z") < 0.01, "it polls instead of waking up in time"
    finish(house)
    assert phases(house) == [("water-1", "completed")]


def test_a_run_that_is_late_because_of_the_one_before_begins_when_that_ends(house: House) -> None:
    for _ in range(2):
        house.clock.advance(DAY)
        house.work()
    assert times(house) == ["2026-01-01T07:00:00.000Z"]
    finish(house)
    assert times(house) == ["2026-01-01T07:00:00.000Z", "2026-01-02T07:00:00.000Z"]


def test_while_everything_is_paused_no_run_is_made_and_what_was_missed_is_made_up_for_afterwards(house: House) -> None:
    assert house.daemon is not None
    house.daemon.standstill = lambda: Standstill("ann", house.clock.now())
    house.clock.advance(3 * DAY)
    house.work()
    assert times(house) == []
    house.daemon.standstill = lambda: Standstill("ann", house.clock.now(), over=True)
    house.work()
    assert times(house) == ["2026-01-03T07:00:00.000Z"]


def killed(root: Path, step: int) -> bool:
    """Whether a daemon died at this step (a statement of SQL, a change of a file) after the time of a run had come;
    another one goes on.
    """
    with watered(root) as house:
        house.clock.text = "2026-01-01T07:00:00.000Z"
        house.fuse.left = step
        house.work()
        died = bool(house.crashes)
        house.fuse.left = None
        house.work()
        assert times(house) == ["2026-01-01T07:00:00.000Z"], f"killed at step {step}: {house.crashes}"
        assert [name for name, _ in phases(house)] == ["water-1"]
        assert len(house.processes.running()) == 1, "a turn, or the look-up of one that may have begun"
    return died


@pytest.mark.slow
def test_a_daemon_that_dies_at_a_step_of_a_run_makes_it_once(tmp_path: Path) -> None:
    steps = range(5, 100, 12)
    assert sum(killed(tmp_path / str(step), step) for step in steps) >= 3


@pytest.mark.soak
def test_a_daemon_that_dies_at_any_step_of_a_run_makes_it_once(tmp_path: Path) -> None:
    step = 1
    while killed(tmp_path / str(step), step):
        step += 1
    assert step > 30
