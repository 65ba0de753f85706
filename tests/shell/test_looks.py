"""What a round looks at: the inbox at every poke, tasks/ unless only mail was heard, both by the timer."""

from __future__ import annotations

import os
import selectors
from pathlib import Path

import pytest

from mailboxd.clock import ManualClock
from mailboxd.looks import Looks
from mailboxd.wake import Wake, poke
from mailboxd.workspace.taskfiles import Look


def test_a_wake_up_by_mail_alone_is_told_from_all_others(tmp_path: Path) -> None:
    with selectors.DefaultSelector() as selector:
        wake = Wake(selector, tmp_path)
        try:
            wake.mail()
            wake.mail()
            assert wake.drain() is False
            wake.mail()
            wake.poke()
            wake.mail()
            assert wake.drain() is True
            assert poke(tmp_path)  # a command: nobody knows what it did
            assert wake.drain() is True
            assert wake.drain() is False
        finally:
            wake.close()


def test_what_is_said_while_it_is_drained_holds_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread says that there is mail right before the pipe is read; what comes after that is heard, too."""
    read = os.read
    with selectors.DefaultSelector() as selector:
        wake = Wake(selector, tmp_path)

        def said_before(fd: int, most: int) -> bytes:
            monkeypatch.setattr(os, "read", read)
            wake.mail()
            return read(fd, most)

        try:
            monkeypatch.setattr(os, "read", said_before)
            wake.drain()
            assert not selector.select(0)
            wake.mail()
            assert selector.select(0)
        finally:
            wake.close()


def test_what_was_said_is_not_said_again_until_it_was_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call for each file lets go of the interpreter: the thread that hears fell behind, and its queue grew."""
    written: list[bytes] = []
    write = os.write
    with selectors.DefaultSelector() as selector:
        wake = Wake(selector, tmp_path)

        def noted(fd: int, raw: bytes) -> int:
            written.append(raw)
            return write(fd, raw)

        monkeypatch.setattr(os, "write", noted)
        try:
            for _ in range(3):
                wake.mail()
            wake.poke()
            wake.mail()
            wake.poke()
            assert written == [b"m", b"!"]
            assert wake.drain() is True
            wake.mail()
            assert written == [b"m", b"!", b"m"]
            assert wake.drain() is False
        finally:
            wake.close()


def looked(looks: Looks, mono: float) -> tuple[bool, bool]:
    """One round at that moment: whether it looks at the inbox, and at tasks/."""
    if not looks.is_due(mono):
        return False, False
    at = True, looks.tasks
    looks.rest(mono, 30.0)
    looks.mail = looks.tasks = False
    return at


def test_the_first_look_is_at_everything_and_mail_leaves_tasks_out() -> None:
    looks = Looks()
    assert looked(looks, 100.0) == (True, True)
    assert looked(looks, 101.0) == (False, False)
    looks.heard(False)
    assert looked(looks, 102.0) == (True, False)
    looks.heard(True)
    looks.heard(False)
    assert looked(looks, 103.0) == (True, True)


def test_mail_that_never_ends_does_not_put_off_the_look_at_tasks() -> None:
    looks = Looks()
    assert looked(looks, 100.0) == (True, True)
    for second in range(101, 130):
        looks.heard(False)
        assert looked(looks, float(second)) == (True, False)
    assert looks.next == 130.0
    looks.heard(False)
    assert looked(looks, 130.0) == (True, True)


def test_a_file_that_waits_is_looked_at_when_it_may_be_ready() -> None:
    looks = Looks()
    assert looked(looks, 100.0) == (True, True)
    looks.wait_until = 100.5
    assert looks.next == 100.5
    assert looked(looks, 100.4) == (False, False)
    assert looked(looks, 100.5) == (True, True)


def test_who_was_stopped_looks_before_anything_is_judged_by_the_clock() -> None:
    looks = Looks()
    assert looked(looks, 100.0) == (True, True)
    looks.awake_by = 102.0
    assert looked(looks, 102.0) == (False, False)
    assert looked(looks, 102.1) == (True, True)


def test_a_look_that_is_due_soon_comes_with_another_timer_and_not_in_a_wake_up_of_its_own() -> None:
    looks = Looks()
    assert looked(looks, 100.0) == (True, True)
    looks.by_timer(119.0)
    assert looked(looks, 119.0) == (False, False)
    looks.by_timer(120.0)
    assert looked(looks, 120.0) == (True, True)
    assert looks.next == 150.0


class Tasks:
    """tasks/, a look at which takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.clock, self.seconds, self.looks = ManualClock(), seconds, Looks()
        self.times = 0

    def look(self) -> Look:
        self.clock.advance(self.seconds)
        self.times += 1
        return Look()

    def round(self) -> int:
        """A round of the daemon; how often it looked at tasks/ so far."""
        if self.looks.is_due(self.clock.monotonic()):
            self.looks.mail = False
            self.looks.rest(self.clock.monotonic(), 30.0)
            self.looks.at_tasks(self.clock, self.look)
        return self.times


def test_after_a_dear_look_at_tasks_what_is_heard_waits_for_fifty_times_its_length() -> None:
    tasks = Tasks(0.3)
    assert tasks.round() == 1
    for _ in range(9):
        tasks.looks.heard(True)
        assert tasks.round() == 1
        tasks.clock.advance(1.5)
    assert round(tasks.looks.next - tasks.clock.monotonic(), 3) == 1.5
    tasks.clock.advance(1.5)
    assert tasks.round() == 2
    tasks.clock.advance(6.0)
    assert tasks.round() == 2, "nothing was heard"


def test_after_a_quick_look_the_next_one_is_at_once() -> None:
    tasks = Tasks(0.01)
    for times in (1, 2, 3):
        tasks.looks.heard(True)
        assert tasks.round() == times


def test_who_asks_for_everything_waits_for_nothing() -> None:
    tasks = Tasks(0.3)
    assert tasks.round() == 1
    tasks.looks.everywhere()
    assert tasks.round() == 2
