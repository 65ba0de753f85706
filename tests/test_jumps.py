"""The wall clock jumps while a peer has work: its lease is as long as it was, whichever way the clock went."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mailboxd.core.outcomes import Acknowledged, Failed
from mailboxd.core.times import plus, to_epoch
from mailboxd.core.vocabulary import Phase
from mailboxd.host.clock import ManualClock
from tests.core.desk import Desk, child, plan, with_policy

HOUR = 3600.0


@dataclass
class Drifting(ManualClock):
    """A steady clock, and a wall clock that can be set."""

    off: float = 0.0

    def now(self) -> str:
        return plus(self.text, self.off)


@pytest.fixture
def desk() -> Desk:
    return Desk(with_policy(reply_within=600.0), clock=Drifting())


def jump(desk: Desk, seconds: float) -> None:
    assert isinstance(desk.clock, Drifting)
    desk.clock.off += seconds
    desk.start()


@pytest.mark.parametrize("by", [HOUR, -HOUR, 400 * 24 * HOUR])
def test_a_lease_is_as_long_as_it_was(desk: Desk, by: float) -> None:
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    jump(desk, 0.0)
    due = desk.task("t.a").due
    assert due is not None
    jump(desk, by)
    assert desk.attempt("t.a").status.value == "running", "a peer that had no time to answer was given up"
    assert desk.task("t.a").due == plus(due, by)
    desk.wait(590)
    assert desk.attempt("t.a").status.value == "running"
    desk.wait(20)
    assert desk.attempt("t.a").status.value != "running", "the lease has ended at last"
    desk.verify()


def test_a_pause_is_as_long_as_it_was(desk: Desk) -> None:
    desk.give()
    desk.ends("t", Failed("no"))
    jump(desk, 0.0)
    until = desk.task("t").not_before
    assert until is not None
    left = to_epoch(until) - to_epoch(desk.clock.now())
    jump(desk, HOUR)
    assert desk.phase("t") is Phase.EXECUTION_READY
    desk.wait(left + 1)
    assert desk.phase("t") is Phase.EXECUTING


def test_what_was_over_before_the_jump_stays_over(desk: Desk) -> None:
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    jump(desk, 0.0)
    desk.clock.advance(700)  # nobody looked meanwhile
    jump(desk, HOUR)
    assert desk.attempt("t.a").status.value != "running"
