"""The queue of tasks that may start: in memory as in the tables."""

from __future__ import annotations

import random
from typing import Any

from mailboxd.ledger.ready_queue import ReadyQueue, ReadyTask

NOW, LATER = "2026-11-21T00:00:00.000Z", "2026-11-21T00:01:00.000Z"


def waiting(seq: int, **changes: Any) -> ReadyTask:
    return ReadyTask(False, "alpha", False, 0, True, seq, f"tsk_{seq}", None)._replace(**changes)


def test_priority_comes_before_people_and_people_before_age() -> None:
    by_person, urgent = waiting(3, of_agent=False), waiting(4, behind=-1)
    queue = ReadyQueue([waiting(2), by_person, urgent, waiting(1)])
    assert [one.seq for one in queue.first("alpha", NOW, 9, again=False)] == [4, 3, 1, 2]
    assert [one.seq for one in queue.first("alpha", NOW, 2, again=False)] == [4, 3]


def test_what_was_tried_before_has_its_own_line_and_so_has_each_executor() -> None:
    queue = ReadyQueue([waiting(1), waiting(2, again=True), waiting(3, executor="alpha2"), waiting(4, executor="b")])
    assert [*queue.executors()] == ["alpha", "alpha2", "b"]
    assert [one.seq for one in queue.first("alpha", NOW, 9, again=True)] == [2]
    assert [one.seq for one in queue.first("alpha", NOW, 9, again=False)] == [1]
    assert queue.first("nobody", NOW, 9, again=False) == []


def test_a_pause_is_waited_for() -> None:
    queue = ReadyQueue([waiting(1, not_before=LATER), waiting(2), waiting(3, by_children=True, not_before=LATER)])
    assert [one.seq for one in queue.first("alpha", NOW, 9, again=False)] == [2]
    assert [one.seq for one in queue.first("alpha", LATER, 1, again=False)] == [1]
    assert (queue.by_children(NOW), len(queue.by_children(LATER))) == ([], 1)


def test_what_needs_no_turn_has_no_executor_that_waits_for_one() -> None:
    queue = ReadyQueue([waiting(1, by_children=True)])
    assert [*queue.executors()] == []


def test_it_stays_in_order_whatever_changes() -> None:
    order = random.Random(7)
    queue, known = ReadyQueue([]), dict[str, ReadyTask]()
    for _ in range(500):
        one = waiting(order.randrange(30), executor=order.choice("ab"), again=order.random() < 0.5)
        gone = order.random() < 0.4
        queue.place(one.id, None if gone else one)
        known.pop(one.id, None)
        known |= {} if gone else {one.id: one}
        assert [*queue] == sorted(known.values())
    assert len(queue) == len(known)
