"""Which daemons of `run --all` are started again, and when: what systemd does with the unit of one workspace."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from mailboxd.daemon.restarts import MOST, PAUSE, WITHIN, Restarts, Then
from mailboxd.errors import EXIT_BUG, EXIT_CONFIG, EXIT_LOCKED, EXIT_TRY_AGAIN

UNIT = (Path(__file__).resolve().parents[2] / "systemd" / "user" / "mailboxd@.service").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("status", "then"),
    [
        (0, Then.STOPPED),
        (-signal.SIGTERM, Then.STOPPED),
        (-signal.SIGKILL, Then.AGAIN),
        (-signal.SIGSEGV, Then.AGAIN),
        (EXIT_BUG, Then.AGAIN),
        (EXIT_TRY_AGAIN, Then.AGAIN),
        (EXIT_LOCKED, Then.LOCKED),
        (EXIT_CONFIG, Then.BROKEN),
    ],
)
def test_what_follows_depends_on_how_it_ended(status: int, then: Then) -> None:
    assert Restarts().started(0.0).after(status, 1.0) is then


def test_after_the_tenth_start_within_ten_minutes_it_is_left_alone() -> None:
    restarts, now = Restarts(), 0.0
    for _ in range(MOST - 1):
        restarts = restarts.started(now)
        assert restarts.after(EXIT_BUG, now) is Then.AGAIN
        now += PAUSE
    restarts = restarts.started(now)
    assert restarts.after(EXIT_BUG, now) is Then.TOO_OFTEN
    assert restarts.after(EXIT_BUG, WITHIN) is Then.AGAIN, "the first start is long ago"


def test_one_that_fails_now_and_then_is_always_started_again() -> None:
    restarts = Restarts()
    for now in range(0, 100_000, 70):
        restarts = restarts.started(now)
        assert restarts.after(EXIT_TRY_AGAIN, now) is Then.AGAIN
    assert len(restarts.starts) <= MOST


def test_these_are_the_rules_of_the_unit() -> None:
    said = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    assert float(said["RestartSec"]) == PAUSE
    assert (int(said["StartLimitBurst"]), float(said["StartLimitIntervalSec"])) == (MOST, WITHIN)
