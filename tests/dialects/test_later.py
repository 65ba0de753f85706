"""Work that is to begin later: it waits for its time, and for nothing else that the clock does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailboxd.core.explain.why import explain
from mailboxd.core.inputs import Retry
from mailboxd.core.times import plus, to_epoch
from mailboxd.engine.engine import kept
from mailboxd.ledger import explain_queries
from tests.dialects.desk import Desk

_MONDAY = "2026-11-30T07:00:00.000Z"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _dropped(desk: Desk, head: str = "not_before: mon 8:00", body: str = "Paint.") -> None:
    desk.drop("paint.md", f"---\n{head}\n---\n\n{body}\n".encode())
    desk.take()


def test_work_waits_for_its_time_which_is_when_the_daemon_wakes_up(desk: Desk) -> None:
    _dropped(desk)
    (task,) = desk.roots
    assert not desk.may_start(task)
    assert desk.due() == _MONDAY
    desk.look(to_epoch(_MONDAY) - to_epoch(desk.clock.now()) - 0.001)
    assert not desk.may_start(task)
    desk.look(0.001)
    assert desk.may_start(task)


def test_a_plan_waits_as_a_whole(desk: Desk) -> None:
    plan = "## DAG\n\nsubtasks:\n  a:\n    agent: beta\n    description: Buy paint\n"
    _dropped(desk, body=f"Paint.\n\n{plan}")
    (task,) = desk.roots
    (child,) = desk.children(task)
    assert (desk.may_start(task), desk.may_start(child), desk.due()) == (False, False, _MONDAY)


def test_a_part_of_a_plan_waits_by_itself(desk: Desk) -> None:
    plan = "## DAG\n\nsubtasks:\n  a:\n    agent: beta\n    description: Buy paint\n    not_before: 2026-12-01 17:00\n"
    _dropped(desk, "priority: 1", f"Paint.\n\n{plan}")
    (task,) = desk.roots
    desk.start(task)
    (child,) = desk.children(task)
    assert (child.not_before, desk.may_start(child)) == ("2026-12-01T16:00:00.000Z", False)


def test_a_machine_that_sleeps_does_not_move_the_beginning(desk: Desk) -> None:
    _dropped(desk)
    (task,) = desk.roots
    slept = 2 * 86_400.0
    for event in kept(desk.engine.store, plus(desk.clock.now(), slept), slept):
        raise AssertionError(event)
    assert desk.roots == [task]


def test_a_person_lets_it_begin_now(desk: Desk) -> None:
    _dropped(desk)
    (task,) = desk.roots
    desk.command(task, Retry())
    assert desk.may_start(task)


def test_what_begins_later_does_not_keep_a_daemon_that_ends_when_it_is_idle(desk: Desk) -> None:
    _dropped(desk)
    schedule = desk.engine.store.schedule
    assert not schedule.has_backoff(desk.clock.now())
    assert schedule.has_backoff(_MONDAY)


def test_it_says_what_it_waits_for(desk: Desk) -> None:
    _dropped(desk)
    (task,) = desk.roots
    store = desk.engine.store
    (cause, *_) = explain(explain_queries.load(store.db, [task.id], desk.clock.now(), 0), task.id).causes
    assert (cause.kind, cause.at, cause.then) == ("later", _MONDAY, "attempt 1 by alpha starts")
    assert "begins now" in cause.hint
