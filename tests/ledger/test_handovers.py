"""What came from a source before: asked for each task that comes, so it must not cost more the more came."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from mailboxd.core.events import Event, Kind
from mailboxd.core.handovers import MOST_TIMES, PILE, Bounds, Earlier, most_tasks
from mailboxd.core.model import Handover
from mailboxd.core.times import plus
from mailboxd.ledger.handovers import Handovers
from mailboxd.ledger.projection import project
from mailboxd.ledger.store import Store
from mailboxd.ledger.task_cache import TaskCache

NOW = "2026-11-28T12:00:00.000Z"
BOUNDS = Bounds(tasks=50, turns=10)


@pytest.fixture
def db(tmp_path: Path) -> sqlite3.Connection:
    return Store.open(tmp_path / "mailboxd.db", NOW).db


def came(
    db: sqlite3.Connection, source: str, count: int, *, text: str = "", began: str = "", ago: float = 60.0
) -> None:
    first = db.execute("SELECT count(*) FROM handovers").fetchone()[0]
    rows = [(f"tsk_{first + n}", plus(NOW, -ago), source, began, text, 1, None) for n in range(count)]
    db.executemany("INSERT INTO handovers VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def steps(db: sqlite3.Connection, given: Handover) -> int:
    """The steps that SQLite takes for it."""
    taken = [0]

    def step() -> int:
        taken[0] += 1
        return 0

    db.set_progress_handler(step, 1)
    try:
        Handovers(db, TaskCache(db)).earlier(given, BOUNDS, NOW)
    finally:
        db.set_progress_handler(None, 0)
    return taken[0]


@pytest.mark.parametrize(
    "given", [Handover("beta", "a text"), Handover("operator"), Handover("beta", "a text", "tsk_0")]
)
def test_no_more_is_counted_than_what_holds_a_task(db: sqlite3.Connection, given: Handover) -> None:
    came(db, given.source, BOUNDS.tasks, text=given.text, began=given.began)
    few = steps(db, given)
    came(db, given.source, 1_000, text=given.text, began=given.began)
    assert steps(db, given) == few


def test_of_a_pile_nothing_is_read_but_an_index(db: sqlite3.Connection) -> None:
    before = steps(db, Handover(PILE))
    came(db, PILE, 400)
    assert (steps(db, Handover(PILE)) - before) / 400 < 15, "instructions for each"


def test_what_counts_came_within_the_hour_and_since_a_person_let_the_source_go_on(db: sqlite3.Connection) -> None:
    came(db, "beta", 3, text="a text")
    came(db, "beta", 4, text="another")
    came(db, "beta", 5, text="a text", ago=3_700.0)
    came(db, "gamma", 6, text="a text")
    given = Handover("beta", "a text")
    assert Handovers(db, TaskCache(db)).earlier(given, BOUNDS, NOW) == Earlier(MOST_TIMES, tasks=7)
    db.execute("UPDATE handovers SET let_go = ? WHERE task = 'tsk_0'", (plus(NOW, -30.0),))
    came(db, "beta", 1, text="a third", ago=10.0)
    assert Handovers(db, TaskCache(db)).earlier(Handover("beta", "a third"), BOUNDS, NOW) == Earlier(1, tasks=1)


def handed_over(store: Store, number: int, source: str, at: str, *, counts: bool) -> None:
    """A repetition that came from this source, which is recorded as a task is."""
    one = dict.fromkeys(("name", "sender", "title", "said", "rule", "zone", "anchor", "text", "digest"), "")
    one |= {"id": f"rpt_{number}", "created_at": at, "next_at": at}
    data = {"at": at, "repetition": one, "handover": {"source": source, "counts": counts}}
    project(store.db, 1, [Event(Kind.REPETITION_CREATED, None, data)], store.cache)


ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from(["beta", PILE]),
        st.booleans(),
        st.integers(-600, 3_000),  # seconds since the one before; a clock may be set back
        st.integers(0, 9),
        st.sampled_from([2, 3]),
    ),
    max_size=40,
)


@pytest.mark.slow
@hypothesis.settings(max_examples=50)
@hypothesis.given(arrivals=ARRIVALS)
def test_whether_a_limit_is_reached_is_remembered_as_it_would_be_counted(
    arrivals: list[tuple[str, bool, int, int, int]],
) -> None:
    store, now = Store.open(None, NOW), NOW
    with store.transaction():
        for number, (source, counts, later, let_go, limit) in enumerate(arrivals):
            now = plus(now, later)
            given, bounds = Handover(source), Bounds(tasks=limit, turns=0)
            most = most_tasks(given, bounds)
            remembered = store.handovers.earlier(given, bounds, now).tasks
            counted = Handovers(store.db, TaskCache(store.db)).earlier(given, bounds, now).tasks
            assert (remembered >= most) is (counted >= most)
            handed_over(store, number, source, now, counts=counts)
            if not let_go:
                store.db.execute("UPDATE handovers SET let_go = ? WHERE task = ?", (now, f"rpt_{number}"))


def test_of_a_pile_that_is_asked_about_for_each_nothing_is_counted_again() -> None:
    store = Store.open(None, NOW)
    with store.transaction():
        given, bounds, taken = Handover("operator"), Bounds(tasks=300, turns=0), 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        store.db.set_progress_handler(step, 1)
        for number in range(900):  # it is reached, and stays so
            store.handovers.earlier(given, bounds, NOW)
            handed_over(store, number, "operator", NOW, counts=True)
    assert taken / 900 < 150, "instructions for each"
