"""The watch over the clock: deadlines are moments of the wall clock, and that may be set."""

from __future__ import annotations

import pytest

from mailboxd.core.times import plus
from mailboxd.host.clock import JumpWatch

NOW = "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("wall", "steady", "jump"),
    [(30, 30, 0.0), (30.5, 29.0, 0.0), (3630, 30, 3600.0), (-600, 0.0, -600.0), (8.0, 3.0, 0.0)],
)
def test_a_jump_is_what_the_wall_clock_did_and_the_steady_one_did_not(wall: float, steady: float, jump: float) -> None:
    watch = JumpWatch()
    assert watch.look(NOW, 100.0) == 0.0
    assert watch.look(plus(NOW, wall), 100.0 + steady) == pytest.approx(jump)
    assert watch.look(plus(NOW, wall + 1), 101.0 + steady) == 0.0, "noted once"
