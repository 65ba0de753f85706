"""When task.md is written again: coalesced, and never for a large part of the time while turns run."""

from __future__ import annotations

from mailboxd.clock import ManualClock
from mailboxd.rendering import Rendering


class Desk:
    """One stale file, whose writing takes `seconds`."""

    def __init__(self, seconds: float, *, held_up: bool = False, troubled: bool = False) -> None:
        self.clock = ManualClock()
        self.seconds = seconds
        self.held_up = held_up
        self.rendering = Rendering(
            self.clock, 0.2, self.write, stale=lambda: held_up, is_troubled=lambda: troubled
        )  # fmt: skip

    def write(self) -> int:
        self.clock.advance(self.seconds)
        return 0 if self.held_up else 1

    def pause(self, *, busy: bool) -> float:
        """Seconds until it may write again."""
        return round(self.rendering.due(busy=busy) - self.clock.monotonic(), 3)


def test_what_changes_within_a_moment_is_one_writing() -> None:
    desk = Desk(0.0)
    assert desk.rendering.perform(busy=True) == 1
    assert desk.rendering.perform(busy=True) == 0
    desk.clock.advance(0.2)
    assert desk.rendering.perform(busy=True) == 1


def test_a_long_writing_is_followed_by_a_longer_pause_while_turns_run() -> None:
    desk = Desk(0.1)
    desk.rendering.perform(busy=True)
    assert desk.pause(busy=True) == 2.0
    assert desk.pause(busy=False) == 0.2


def test_no_file_is_far_behind() -> None:
    desk = Desk(60.0)
    desk.rendering.perform(busy=True)
    assert desk.pause(busy=True) == 10.0


def test_a_file_that_somebody_is_writing_is_left_alone_for_a_second() -> None:
    desk = Desk(0.0, held_up=True)
    desk.rendering.perform(busy=False)
    assert desk.pause(busy=False) == 1.0


def test_what_the_disk_refuses_is_tried_again_later() -> None:
    desk = Desk(0.0, troubled=True)
    desk.rendering.perform(busy=False)
    assert desk.pause(busy=False) == 5.0


def test_a_short_writing_is_followed_by_no_longer_pause_though_turns_run() -> None:
    desk = Desk(0.04)
    desk.rendering.perform(busy=True)
    assert desk.pause(busy=True) == 0.2
