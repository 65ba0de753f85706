"""What a round looks at: the inbox at every poke, tasks/ unless only mail was heard, both by the timer."""

from __future__ import annotations

import os
import selectors
from pathlib import Path

import pytest

from mailboxd.daemon.scan_schedule import ScanSchedule
from mailboxd.formats.mailbox.task_files import TaskFileChanges
from mailboxd.host.clock import ManualClock
from mailboxd.host.wakeup import Wake, WakeReason, poke


def test_a_wake_up_by_mail_alone_is_told_from_all_others(tmp_path: Path) -> None:
    with selectors.DefaultSelector() as selector:
        wake = Wake(selector, tmp_path)
        try:
            wake.poke_inbox()
            assert wake.wait(0.0) == WakeReason(mail=True)
            assert wake.wait(0.0) == WakeReason(by_timer=True)
            wake.poke_inbox()
            wake.poke()
            assert wake.wait(0.0) == WakeReason(mail=True, everything=True)
            wake.poke_inbox()
            assert wake.wait(0.0) == WakeReason(mail=True)
            assert poke(tmp_path)  # a command: what it did is not known
            assert wake.wait(0.0) == WakeReason(mail=True, everything=True)
            assert wake.wait(0.0) == WakeReason(by_timer=True)
        finally:
            wake.close()


def test_commands_that_a_busy_daemon_has_not_heard_yet_are_told_that_one_runs(tmp_path: Path) -> None:
    """A socket holds ten of their words (net.unix.max_dgram_qlen); one is enough for the daemon to look."""
    with selectors.DefaultSelector() as selector:
        wake = Wake(selector, tmp_path)
        try:
            assert all(poke(tmp_path) for _ in range(1000))
            assert wake.wait(0.0) == WakeReason(mail=True, everything=True)
            assert wake.wait(0.0) == WakeReason(by_timer=True)
        finally:
            wake.close()
    assert not poke(tmp_path)


def test_the_end_of_a_call_ends_a_sleep_and_is_no_mail(tmp_path: Path) -> None:
    with selectors.DefaultSelector() as selector:
        wake, call = Wake(selector, tmp_path), os.eventfd(1)
        selector.register(call, selectors.EVENT_READ, "a call")
        try:
            assert wake.wait(10.0) == WakeReason()
        finally:
            os.close(call)
            wake.close()


def test_what_is_said_while_it_is_drained_holds_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread pokes right before the pipe is read; what comes after that is heard, too."""
    read = os.read
    with selectors.DefaultSelector() as selector:
        wake = Wake(selector, tmp_path)

        def said_before(fd: int, most: int) -> bytes:
            monkeypatch.setattr(os, "read", read)
            wake.poke()
            return read(fd, most)

        try:
            monkeypatch.setattr(os, "read", said_before)
            wake.drain()
            assert not selector.select(0)
            wake.poke()
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
                wake.poke()
            assert written == [b"!"]
            wake.drain()
            wake.poke()
            assert written == [b"!", b"!"]
        finally:
            wake.close()


def looked(schedule: ScanSchedule, mono: float) -> tuple[bool, bool]:
    """One round at that moment: whether it looks at the inbox, and at tasks/."""
    if not schedule.is_due(mono):
        return False, False
    at = True, schedule.tasks
    schedule.restart_timer(mono, 30.0)
    schedule.mail = schedule.tasks = False
    return at


def test_the_first_look_is_at_everything_and_mail_leaves_tasks_out() -> None:
    schedule = ScanSchedule()
    assert looked(schedule, 100.0) == (True, True)
    assert looked(schedule, 101.0) == (False, False)
    schedule.notify(False)
    assert looked(schedule, 102.0) == (True, False)
    schedule.notify(True)
    schedule.notify(False)
    assert looked(schedule, 103.0) == (True, True)


def test_mail_that_never_ends_does_not_put_off_the_look_at_tasks() -> None:
    schedule = ScanSchedule()
    assert looked(schedule, 100.0) == (True, True)
    for second in range(101, 130):
        schedule.notify(False)
        assert looked(schedule, float(second)) == (True, False)
    assert schedule.next == 130.0
    schedule.notify(False)
    assert looked(schedule, 130.0) == (True, True)


def test_a_file_that_waits_is_looked_at_when_it_may_be_ready() -> None:
    schedule = ScanSchedule()
    assert looked(schedule, 100.0) == (True, True)
    schedule.file_ready_at = 100.5
    assert schedule.next == 100.5
    assert looked(schedule, 100.4) == (False, False)
    assert looked(schedule, 100.5) == (True, True)


def test_mail_is_read_before_anything_is_judged_by_the_clock() -> None:
    schedule = ScanSchedule()
    assert looked(schedule, 100.0) == (True, True)
    schedule.timer_fired(102.0)
    assert looked(schedule, 102.0) == (True, False)


def test_a_look_that_is_due_soon_comes_with_another_timer_and_not_in_a_wake_up_of_its_own() -> None:
    schedule = ScanSchedule()
    assert looked(schedule, 100.0) == (True, True)
    schedule.timer_fired(119.0)
    assert looked(schedule, 119.0) == (True, False)
    schedule.timer_fired(120.0)
    assert looked(schedule, 120.0) == (True, True)
    assert schedule.next == 150.0


class Tasks:
    """tasks/, a look at which takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.clock, self.seconds, self.schedule = ManualClock(), seconds, ScanSchedule()
        self.times = self.left = 0

    def look(self) -> TaskFileChanges:
        self.clock.advance(self.seconds)
        self.times += 1
        self.left = max(self.left - 1, 0)
        return TaskFileChanges(truncated=self.left > 0)

    def round(self) -> int:
        """A round of the daemon; how often it looked at tasks/ so far."""
        if self.schedule.is_due(self.clock.monotonic()):
            self.schedule.mail = False
            self.schedule.restart_timer(self.clock.monotonic(), 30.0)
            self.schedule.scan_tasks(self.clock, self.look)
        return self.times


def test_after_a_slow_scan_of_tasks_events_wait_for_fifty_times_its_length() -> None:
    tasks = Tasks(0.3)
    assert tasks.round() == 1
    for _ in range(9):
        tasks.schedule.notify(True)
        assert tasks.round() == 1
        tasks.clock.advance(1.5)
    assert round(tasks.schedule.next - tasks.clock.monotonic(), 3) == 1.5
    tasks.clock.advance(1.5)
    assert tasks.round() == 2
    tasks.clock.advance(6.0)
    assert tasks.round() == 2, "nothing was heard"


def test_a_slow_scan_that_was_truncated_continues_at_once() -> None:
    """After a restart all of thousands of files are read: what was edited meanwhile waited behind such pauses."""
    tasks = Tasks(0.3)
    tasks.left = 3
    for times in (1, 2, 3, 3):
        tasks.schedule.mail = True
        assert tasks.round() == times
    assert tasks.schedule.tasks_paused_until > tasks.clock.monotonic()


def test_after_a_quick_look_the_next_one_is_at_once() -> None:
    tasks = Tasks(0.01)
    for times in (1, 2, 3):
        tasks.schedule.notify(True)
        assert tasks.round() == times


def test_a_request_for_everything_waits_for_nothing() -> None:
    tasks = Tasks(0.3)
    assert tasks.round() == 1
    tasks.schedule.request_all()
    assert tasks.round() == 2
