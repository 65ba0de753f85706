"""Work that repeats, on simulated clocks: each of its times has a run, whatever the clock, the machine and the daemon
do, and none has two.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mailboxd.core.model import Task
from mailboxd.core.outcomes import Results
from mailboxd.core.times import plus, to_epoch
from mailboxd.engine.intake import repetitions
from mailboxd.errors import Refused
from mailboxd.ledger import event_log
from mailboxd.ledger.repetitions import Run
from tests.dialects.desk import Desk

DAY = 86_400.0
_BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def repeat(desk: Desk, head: str, name: str = "water.md") -> None:
    desk.drop(name, f"---\n{head}\n---\n\nWater the plants.\n".encode())
    desk.take()
    assert desk.judged(name)[0] == "accepted", desk.judged(name)


def local(at: str) -> str:
    return f"{datetime.fromisoformat(at).astimezone(_BERLIN):%Y-%m-%d %H:%M}"


def runs(desk: Desk) -> list[Run]:
    (one,) = desk.engine.store.repetitions.going_on()
    return desk.engine.store.repetitions.runs(one.id, 100_000)[::-1]


def latest(desk: Desk) -> list[Task]:
    """The latest tasks, the latest first."""
    rows = desk.engine.store.db.execute("SELECT id FROM v_tasks ORDER BY seq DESC LIMIT 3").fetchall()
    return [task for (name,) in rows if (task := desk.engine.store.tasks.get(name)) is not None]


def end_open(desk: Desk) -> None:
    for task in latest(desk):
        if not task.phase.is_terminal:
            desk.end(task, Results("done"))


def _round(desk: Desk, seconds: float) -> None:
    """One round of the daemon, so many seconds later."""
    desk.clock.advance(seconds)
    with desk.engine.batch():
        desk.engine.tick()
        repetitions.run_due(desk.intake, desk.engine)


def live(desk: Desk, until: str, *, ends: bool = True) -> None:
    """The daemon sleeps until something is due, again and again."""
    while (at := desk.due()) is not None and at <= until:
        _round(desk, to_epoch(at) - to_epoch(desk.clock.now()))
        while ends and latest(desk) and not latest(desk)[0].phase.is_terminal:
            end_open(desk)
            _round(desk, 0.0)  # as the daemon does when a turn has ended
    desk.look(max(to_epoch(until) - to_epoch(desk.clock.now()), 0.0))


def test_each_time_is_one_task_with_an_id_of_its_own(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 07:00")
    (one,) = desk.engine.store.repetitions.going_on()
    assert (one.name, one.said, desk.roots) == (one.name, "daily at 07:00", [])
    live(desk, "2026-11-30T12:00:00.000Z")
    made = runs(desk)
    assert [local(run.at) for run in made] == [
        "2026-11-27 07:00",
        "2026-11-28 07:00",
        "2026-11-29 07:00",
        "2026-11-30 07:00",
    ]
    assert [run.local_id for run in made] == [f"{one.name}-{number}" for number in (1, 2, 3, 4)]
    assert {task.origin.repetition for task in desk.roots} == {one.id}
    assert {task.title for task in desk.roots} == {"Water the plants."}


@pytest.mark.slow
def test_over_a_year_no_day_is_left_out_and_none_has_two_runs(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 02:30")
    live(desk, "2027-11-26T00:00:00.000Z")
    days = [local(run.at) for run in runs(desk)]
    assert len(days) == len({day[:10] for day in days}) == 364
    odd = {day for day in days if not day.endswith("02:30")}
    assert odd == {"2027-03-28 03:00"}, "the time that does not exist is the next valid minute"
    assert "2027-10-31 02:30" in days


@pytest.mark.parametrize(
    ("repeated", "start", "hours"),
    [("every 2 h", "2027-03-27T20:00:00.000Z", 24), ("every 2 h", "2027-10-30T20:00:00.000Z", 24)],
)
def test_an_interval_is_as_long_as_it_is_when_the_clock_is_changed(
    desk: Desk, repeated: str, start: str, hours: int
) -> None:
    desk.clock.text = start
    repeat(desk, f"repeat: {repeated}")
    live(desk, plus(desk.clock.now(), hours * 3600.0))
    times = [to_epoch(run.at) for run in runs(desk)]
    assert len(times) == hours // 2
    assert {round(later - sooner) for sooner, later in pairwise(times)} == {7200}


def _asleep_for_a_week(desk: Desk) -> None:
    live(desk, "2026-11-27T07:00:00.000Z")  # one run
    desk.look(7 * DAY)
    while not desk.roots[-1].phase.is_terminal:
        end_open(desk)
        desk.look(0.0)
    live(desk, plus(desk.clock.now(), 3600.0))


@pytest.mark.parametrize(("missed", "made", "passed_over"), [("", 2, 6), ("once", 2, 6), ("skip", 1, 7), ("all", 8, 0)])
def test_a_machine_that_sleeps_for_a_week_makes_up_as_the_file_says(
    desk: Desk, missed: str, made: int, passed_over: int
) -> None:
    repeat(desk, "repeat: daily at 07:00" + (f"\nmissed: {missed}" if missed else ""))
    _asleep_for_a_week(desk)
    (one,) = desk.engine.store.repetitions.going_on()
    assert (one.runs, one.missed_runs) == (made, passed_over)
    assert local(one.next_at) == "2026-12-05 07:00"


def test_no_run_starts_while_one_is_open_and_the_late_one_follows_when_that_has_ended(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 07:00")
    live(desk, "2026-11-29T12:00:00.000Z", ends=False)
    assert len(desk.roots) == 1
    assert desk.due() is None, "nothing is to be done before the open run has ended"
    end_open(desk)
    desk.look(0.0)
    assert [local(run.at) for run in runs(desk)] == ["2026-11-27 07:00", "2026-11-29 07:00"]
    assert desk.due() == "2026-11-30T06:00:00.000Z"


def test_runs_overlap_if_the_file_says_so(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 07:00\noverlap: true")
    live(desk, "2026-11-29T12:00:00.000Z", ends=False)
    assert len(desk.roots) == 3


def test_of_very_many_missed_runs_the_latest_are_made_up(desk: Desk) -> None:
    repeat(desk, "repeat: every 5 min\nmissed: all\noverlap: true")
    desk.look(7 * DAY)
    (one,) = desk.engine.store.repetitions.going_on()
    assert one.runs == 100
    assert one.missed_runs >= 899
    assert one.last_at is not None
    assert to_epoch(desk.clock.now()) - to_epoch(one.last_at) < 300.0
    assert one.next_at > desk.clock.now()


def test_a_pause_makes_no_runs_and_none_is_made_up_afterwards(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 07:00\nmissed: all")
    with desk.engine.batch():
        (one,) = desk.engine.store.repetitions.going_on()
        repetitions.pause(desk.engine, one, "holidays", "mira")
    live(desk, "2026-12-10T12:00:00.000Z")
    assert (desk.roots, desk.due()) == ([], None)
    with desk.engine.batch():
        (one,) = desk.engine.store.repetitions.going_on()
        assert one.paused == "paused by mira: holidays"
        repetitions.resume(desk.engine, one, "", "mira")
    live(desk, "2026-12-11T12:00:00.000Z")
    assert [local(run.at) for run in runs(desk)] == ["2026-12-11 07:00"]


def test_a_file_put_back_unchanged_after_its_work_has_ended_says_what_starts_it_again(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 07:00")
    (one,) = desk.engine.store.repetitions.going_on()
    with desk.engine.batch():
        repetitions.end(desk.engine, one, "", "mira")
    file = b"---\nrepeat: daily at 07:00\n---\n\nWater the plants.\n"
    desk.drop("water.md", file)  # with the same modification time
    desk.take()
    verdict, told, _ = desk.judged("water.md")
    assert (verdict, "  " in told) == ("duplicate", False)
    assert "this copy was not, because it is unchanged since then, by its modification time" in told
    assert "To have it done again, `touch` the file before you put it back, or change a word in it" in told


def test_a_file_that_comes_again_while_its_work_is_repeated_is_told_so(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 07:00")
    desk.drop("water.md", b"---\nrepeat: daily at 07:00\n---\n\nWater the plants.\n")
    desk.take()
    assert desk.judged("water.md")[:2] == (
        "duplicate",
        "the same work is repeated already; this copy was not taken",
    )


def test_what_has_ended_has_no_more_runs_and_its_name_is_free(desk: Desk) -> None:
    repeat(desk, "task_id: water\nrepeat: daily at 07:00")
    with desk.engine.batch():
        (one,) = desk.engine.store.repetitions.going_on()
        repetitions.end(desk.engine, one, "", "mira")
    live(desk, "2026-12-10T12:00:00.000Z")
    assert desk.roots == []
    with desk.engine.batch(), pytest.raises(Refused, match="ended by mira"):
        repetitions.pause(desk.engine, desk.engine.store.repetitions.named("water") or one, "", "mira")
    repeat(desk, "task_id: water\nrepeat: daily at 08:00", "again.md")
    (fresh,) = desk.engine.store.repetitions.going_on()
    assert (fresh.name, local(fresh.next_at)) == ("water", "2026-12-11 08:00")


def test_the_same_id_with_other_work_is_refused_while_it_goes_on(desk: Desk) -> None:
    repeat(desk, "task_id: water\nrepeat: daily at 07:00")
    desk.drop("b.md", b"---\ntask_id: water\nrepeat: daily at 08:00\n---\n\nWater the plants.\n")
    desk.take()
    verdict, _, why = desk.judged("b.md")
    assert (verdict, "`mailboxd cancel water`" in why) == ("rejected", True)
    desk.drop("c.md", b"---\ntask_id: water\nrepeat:   daily at 07:00\n---\n\nWater the plants.\n")
    desk.take()
    assert desk.judged("c.md")[0] == "duplicate"


def test_a_run_that_cannot_be_made_is_said_and_the_next_is_tried(desk: Desk) -> None:
    desk.engine.settings = type(desk.engine.settings)(agent="alpha", models=("some/model",))
    repeat(desk, "repeat: daily at 07:00\nmodel: some/model")
    allowed, desk.engine.settings = desk.engine.settings, type(desk.engine.settings)(agent="alpha")
    desk.engine._ctx = None
    live(desk, "2026-11-27T12:00:00.000Z")
    (one,) = desk.engine.store.repetitions.going_on()
    assert ("some/model" in one.problem, one.runs, one.missed_runs, desk.roots) == (True, 0, 1, [])
    desk.engine.settings = allowed
    live(desk, "2026-11-28T12:00:00.000Z")
    (one,) = desk.engine.store.repetitions.going_on()
    assert (one.problem, one.runs, len(desk.roots)) == ("", 1, 1)


def test_a_person_has_it_done_now_beside_its_times(desk: Desk) -> None:
    repeat(desk, "repeat: daily at 07:00")
    (one,) = desk.engine.store.repetitions.going_on()
    with desk.engine.batch():
        event = repetitions.run_now(desk.intake, desk.engine, one, "mira")
    assert [run["name"] for run in event.data["runs"]] == [f"{one.name}-1"]
    (same,) = desk.engine.store.repetitions.going_on()
    assert (same.next_at, same.runs) == (one.next_at, 1)
    with desk.engine.batch(), pytest.raises(Refused, match="has not ended"):
        repetitions.run_now(desk.intake, desk.engine, same, "mira")


def test_the_log_gives_the_same_repetitions_and_runs(desk: Desk) -> None:
    repeat(desk, "repeat: every 2 h\nmissed: all")
    desk.look(DAY)
    while not desk.roots[-1].phase.is_terminal:
        end_open(desk)
        desk.look(0.0)
    live(desk, plus(desk.clock.now(), DAY))
    with desk.engine.batch():
        (one,) = desk.engine.store.repetitions.going_on()
        repetitions.pause(desk.engine, one, "", "mira")
    assert len(runs(desk)) == 24
    assert event_log.differences(desk.engine.store.db) == []
    fresh = event_log.replay(desk.engine.store.db)
    assert fresh.execute("SELECT runs, paused FROM v_repetitions").fetchall() == [(24, "paused by mira")]


class _Killed(BaseException):
    """The daemon dies here."""


def test_a_daemon_killed_at_any_step_of_a_run_neither_loses_it_nor_makes_it_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before each event of a run, and before the commit; then another daemon goes on."""
    repeat(desk, "repeat: daily at 07:00")
    desk.clock.text = "2026-11-27T06:00:00.000Z"
    store, append = desk.engine.store, desk.engine.store.append
    is_over, steps = False, 0
    while not is_over:
        left = steps

        def dying(*args: Any, **kwargs: Any) -> None:
            nonlocal left
            if left == 0:
                raise _Killed
            left -= 1
            append(*args, **kwargs)

        monkeypatch.setattr(store, "append", dying)
        with suppress(_Killed), desk.engine.batch():
            repetitions.run_due(desk.intake, desk.engine)
            is_over = True
            raise _Killed  # before the commit
        monkeypatch.setattr(store, "append", append)
        assert (runs(desk), desk.roots) == ([], [])
        steps += 1
    assert steps >= 3
    desk.look(0.0)
    desk.look(0.0)
    assert [local(run.at) for run in runs(desk)] == ["2026-11-27 07:00"]
    assert len(desk.roots) == 1
