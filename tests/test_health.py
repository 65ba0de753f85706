"""What the daemon notes of itself, and what that means to who reads it: silence is red."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailboxd.core.times import plus
from mailboxd.daemon.health_writer import EVERY, Health
from mailboxd.errors import StoreError
from mailboxd.formats.health import (
    FILE,
    LONGEST_PAUSE,
    SILENT,
    Component,
    Grade,
    Halt,
    Stopping,
    Trouble,
    failed_starts,
    read,
)
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.host.sdnotify import Notifier

PID = os.getpid()


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Workspace.create(tmp_path)
    return Workspace(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def noted(ws: Workspace, clock: ManualClock) -> Health:
    return Health(ws, clock, Notifier({}), "alpha")


def grade(ws: Workspace, clock: ManualClock, pid: int | None = PID) -> Grade:
    return read(ws, pid, clock.now(), clock.monotonic())[0]


def test_a_loop_with_a_heartbeat_is_green_and_a_stuck_one_is_red_within_a_minute(
    ws: Workspace, clock: ManualClock
) -> None:
    assert EVERY + SILENT <= 60
    with noted(ws, clock) as health:
        for _ in range(100):
            clock.advance(EVERY)
            health.beat()
            assert grade(ws, clock) is Grade.GREEN
        clock.advance(SILENT + 1)
        assert grade(ws, clock) is Grade.RED
        assert "is stuck" in read(ws, PID, clock.now(), clock.monotonic())[1][0].why
        health.beat()
        assert grade(ws, clock) is Grade.GREEN


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_makes_nobody_ill_and_hides_no_silence(
    ws: Workspace, clock: ManualClock, jump: float
) -> None:
    with noted(ws, clock):
        wall, steady = clock.now(), clock.monotonic()
        assert read(ws, PID, plus(wall, jump), steady + 5)[0] is Grade.GREEN
        assert read(ws, PID, plus(wall, jump + SILENT + 1), steady + SILENT + 1)[0] is Grade.RED


def test_the_worst_grade_counts_and_each_trouble_is_logged_once(
    ws: Workspace, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mailboxd")
    with noted(ws, clock) as health:
        for left in (511, 510, 509):
            health.report(Component.SPACE, f"only {left} MiB are free", Grade.AMBER)
        assert grade(ws, clock) is Grade.AMBER
        health.report(Component.FILING, "the archive is gone")
        health.report(Component.FILING, "the archive is gone")
        assert grade(ws, clock) is Grade.RED
        assert health.line == "TROUBLE filing mail: the archive is gone"
        assert health.report(Component.FILING, "")
        assert not health.report(Component.FILING, "")
        assert (grade(ws, clock), health.line) == (Grade.AMBER, "TROUBLE disk space: only 509 MiB are free")
        health.report(Component.SPACE, "")
        assert (grade(ws, clock), health.line) == (Grade.GREEN, "agent alpha")
    said = [record.message for record in caplog.records]
    assert said == [
        "disk space: only 511 MiB are free",
        "filing mail: the archive is gone",
        "filing mail: works again",
        "disk space: works again",
    ]


def test_each_trouble_has_a_short_name_that_stays() -> None:
    def slug(where: Component, why: str) -> str:
        return Trouble(where, why, Grade.RED, "").slug

    assert slug(Component.FILING, "mailbox/archive is gone") == "filing-mail"
    assert slug(Component.DISCOVERY, "no answer") == "asking-openclaw"
    assert slug(Component.DATABASE, f"HALT({Halt.DISK_FULL}): no room") == "disk-full"
    assert slug(Component.DATABASE, f"HALT({Halt.DB_LOCKED}): pid 7 has it") == "db-locked"


def test_an_end_that_was_meant_is_off_and_any_other_is_red(ws: Workspace, clock: ManualClock) -> None:
    assert grade(ws, clock, pid=None) is Grade.OFF
    with noted(ws, clock):
        assert grade(ws, clock, pid=None) is Grade.RED  # killed
        assert grade(ws, clock, pid=PID + 1) is Grade.RED  # another one, which has not said how it is
    assert grade(ws, clock, pid=None) is Grade.OFF
    with pytest.raises(StoreError), noted(ws, clock):
        raise StoreError("the disk failed")
    found, troubles = read(ws, None, clock.now(), clock.monotonic())
    assert (found, troubles[0].why) == (Grade.RED, "it gave up: the disk failed")


def test_the_note_is_written_in_its_place_and_never_grows(ws: Workspace, clock: ManualClock) -> None:
    file = ws.state / FILE
    with noted(ws, clock) as health:
        before = file.stat()
        for number in range(5):
            for where in Component:
                health.report(where, "x\n\x1b" * 1000 + str(number))
        after = file.stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size) == (before.st_ino, 4096)
    assert after.st_mode & 0o777 == 0o600


@pytest.mark.parametrize("raw", [b"", b"{", b"null", b"[]", b'{"pid": 1}', b"\xff", b'{"pid": 1, "at": "x"}'])
def test_a_note_that_cannot_be_read_is_none(ws: Workspace, clock: ManualClock, raw: bytes) -> None:
    (ws.state / FILE).write_bytes(raw)
    assert grade(ws, clock) is Grade.RED
    assert grade(ws, clock, pid=None) is Grade.OFF


def test_a_link_in_its_place_is_not_followed(ws: Workspace, clock: ManualClock, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (ws.state / FILE).symlink_to(target)
    with noted(ws, clock) as health:
        health.report(Component.SENDING, "y")
    assert target.read_text() == "precious"


def test_each_start_that_fails_doubles_the_pause_before_the_next(ws: Workspace, clock: ManualClock) -> None:
    pauses = []
    for _ in range(8):
        health = noted(ws, clock).__enter__()
        pauses.append(health.failed.wait)
        health.__exit__(StoreError, StoreError("the database is damaged"), None)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE]
    clock.advance(LONGEST_PAUSE - 1)
    failed = failed_starts(ws, clock.now(), clock.monotonic())
    assert (failed.starts, round(failed.wait), failed.why) == (8, 1, "the database is damaged")
    clock.advance(1)
    assert failed_starts(ws, clock.now(), clock.monotonic()).wait == 0.0


def test_one_that_was_killed_before_it_read_the_mailbox_has_failed_as_well(ws: Workspace, clock: ManualClock) -> None:
    noted(ws, clock).__enter__()
    assert noted(ws, clock).__enter__().failed.why == "it died without a report"


@pytest.mark.parametrize("reads", [False, True])
def test_one_that_read_the_mailbox_or_was_asked_to_end_has_not_failed(
    ws: Workspace, clock: ManualClock, reads: bool
) -> None:
    health = noted(ws, clock).__enter__()
    if reads:
        health.report(Component.SCANNING, "")  # and then it is killed
    else:
        health.__exit__(None, None, None)
    assert failed_starts(ws, clock.now(), clock.monotonic()).starts == 0


def test_a_clock_that_was_set_back_makes_no_pause_longer(ws: Workspace, clock: ManualClock) -> None:
    noted(ws, clock).__enter__()
    assert failed_starts(ws, plus(clock.now(), -86_400.0), clock.monotonic() + 1).wait == 0.0


_NEVER = (Component.DAEMON, Component.AGENTS, Component.POLLING)


@pytest.mark.parametrize("where", Component)
def test_what_does_not_end_by_itself_needs_a_person_after_a_minute_and_a_recovery_after_half_an_hour(
    where: Component,
) -> None:
    since, patience = "2026-11-26T20:00:00.000Z", 1800.0 if where is Component.RECOVERY else 60.0
    trouble = Trouble(where, "it does not work", Grade.AMBER, since)
    assert not trouble.needs_person(plus(since, patience - 1))
    assert trouble.needs_person(plus(since, patience)) is (where not in _NEVER)


def test_one_that_stops_is_amber_and_says_since_when_and_what_it_waits_for(ws: Workspace, clock: ManualClock) -> None:
    with noted(ws, clock) as health:
        since, until = clock.now(), plus(clock.now(), 3_600)
        health.stop(Stopping(since, until, "the turn of q3"))
        clock.advance(EVERY)
        health.beat()
        found, (trouble,) = read(ws, PID, clock.now(), clock.monotonic())
        assert (found, trouble.where, trouble.since) == (Grade.AMBER, Component.DAEMON, since)
        assert " and waits for the turn of q3, at most until " in trouble.why
        assert f"`kill {PID}`" in trouble.why
        assert not trouble.needs_person(plus(clock.now(), 3_600))
        assert "stopping" in health.line
    assert grade(ws, clock, None) is Grade.OFF
