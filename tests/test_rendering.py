"""When task.md is written again: coalesced, and never for a large part of the time while something happens."""

from __future__ import annotations

from mailboxd.host.clock import ManualClock
from mailboxd.surfaces.taskmd.schedule import RenderSchedule


class Desk:
    """Stale files, whose writing takes `seconds`: `files` of them, and more are left while `more`."""

    def __init__(
        self, seconds: float, *, files: int = 1, more: bool = False, held_up: bool = False, troubled: bool = False
    ) -> None:
        self.clock = ManualClock()
        self.seconds = seconds
        self.files = 0 if held_up else files
        self.event = 0
        self.rendering = RenderSchedule(
            self.clock,
            0.2,
            self.write,
            stale=lambda: held_up,
            more=lambda: more,
            is_troubled=lambda: troubled,
            last_event=lambda: self.event,
        )

    def write(self, _seconds: float) -> int:
        self.clock.advance(self.seconds)
        return self.files

    def happens(self) -> None:
        self.event += 1

    def pause(self, *, turns: bool) -> float:
        """Seconds until it may write again, unless something happens until then."""
        return round(self.rendering.due(turns=turns) - self.clock.monotonic(), 3)


def test_changes_within_a_second_are_written_once() -> None:
    desk = Desk(0.0)
    assert desk.rendering.perform(turns=True) == 1
    assert desk.rendering.perform(turns=True) == 0
    desk.clock.advance(0.2)
    assert desk.rendering.perform(turns=True) == 1


def test_a_slow_file_is_written_once_the_daemon_is_idle_or_much_later() -> None:
    desk = Desk(0.1)
    desk.rendering.perform(turns=True)
    assert desk.pause(turns=True) == 0.9  # a second after the event that made it stale
    assert desk.pause(turns=False) == 0.2
    desk.clock.advance(0.8)
    desk.happens()
    assert desk.rendering.perform(turns=True) == 0
    assert desk.pause(turns=True) == 1.0
    desk.clock.advance(0.9)
    desk.happens()
    desk.clock.advance(0.3)
    assert desk.rendering.perform(turns=True) == 0
    desk.clock.advance(8.0)
    desk.happens()
    assert desk.rendering.perform(turns=True) == 1  # 10 s after the last writing, though things go on


def test_no_file_is_far_behind() -> None:
    desk = Desk(60.0)
    desk.rendering.perform(turns=True)
    for _ in range(19):
        desk.clock.advance(0.5)
        desk.happens()
        assert desk.rendering.perform(turns=True) == 0
    desk.clock.advance(0.5)
    assert desk.rendering.perform(turns=True) == 1


def test_mail_that_waits_comes_first_and_mail_that_never_ends_puts_nothing_off_for_ever() -> None:
    desk = Desk(0.05, files=20, more=True)
    assert desk.rendering.perform(turns=False, mail=True) == 20
    for _ in range(19):
        desk.clock.advance(0.5)
        assert desk.rendering.perform(turns=False, mail=True) == 0
    desk.clock.advance(0.5)
    assert desk.rendering.perform(turns=False, mail=True) == 20
    assert desk.rendering.perform(turns=False) == 20


def test_many_files_are_written_without_a_pause_while_nothing_happens() -> None:
    desk = Desk(0.06, files=20, more=True)
    assert desk.rendering.perform(turns=False) == 20
    assert desk.pause(turns=False) == 0.0
    desk.clock.advance(1.0)
    assert desk.rendering.perform(turns=True) == 20
    assert desk.pause(turns=True) == 0.0


def test_many_files_take_a_quarter_of_the_time_while_something_happens() -> None:
    desk = Desk(0.06, files=20, more=True)
    desk.rendering.perform(turns=True)
    assert desk.pause(turns=True) == 0.18


def test_a_slow_file_among_many_counts_as_slow() -> None:
    desk = Desk(0.5, files=20, more=True)
    desk.rendering.perform(turns=True)
    desk.clock.advance(0.4)
    desk.happens()
    assert desk.rendering.perform(turns=True) == 0
    assert desk.pause(turns=True) == 1.0


def test_a_file_that_somebody_is_writing_is_left_alone_for_a_second() -> None:
    desk = Desk(0.0, held_up=True)
    desk.rendering.perform(turns=False)
    assert desk.pause(turns=False) == 1.0


def test_what_the_disk_refuses_is_tried_again_later() -> None:
    desk = Desk(0.0, troubled=True)
    desk.rendering.perform(turns=False)
    assert desk.pause(turns=False) == 5.0


def test_a_quick_file_is_followed_by_no_longer_pause_though_turns_run() -> None:
    desk = Desk(0.001)
    desk.rendering.perform(turns=True)
    assert desk.pause(turns=True) == 0.2


def test_a_file_takes_a_hundredth_of_the_time_while_something_happens() -> None:
    desk = Desk(0.005)
    desk.rendering.perform(turns=True)
    assert desk.pause(turns=True) == 0.5
