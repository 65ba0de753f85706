"""What turns have cost: an older database gets from its events the rows that a replay gives, of any version."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from mailboxd.core.events import Event, upcast
from mailboxd.core.model import Usage
from mailboxd.core.outcomes import Acknowledged, Question
from mailboxd.core.spending import Spend, quarter
from mailboxd.host.clock import day_of
from mailboxd.ledger import event_log
from mailboxd.ledger.database import connect, migrate
from mailboxd.ledger.spending import turn_spent
from tests.core.desk import DONE, Desk, child, plan

Rows = list[tuple[object, ...]]


def rows(db: sqlite3.Connection) -> Rows:
    return db.execute("SELECT at, usd, tokens, turns FROM spending ORDER BY at").fetchall()


def migrated_again(db: sqlite3.Connection) -> Rows:
    """The rows that the migration makes of the events."""
    folder = files("mailboxd.ledger") / "migrations"
    (script,) = [entry.read_text() for entry in folder.iterdir() if entry.name.endswith("_spending.sql")]
    db.executescript(f"DROP TABLE spending; DROP TABLE raised_caps; {script}")
    return rows(db)


def test_an_older_database_gets_what_a_replay_of_its_events_gives(tmp_path: Path) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    desk.give(plan=plan(child("a", "bob"), child("b", "self"), child("c", "self")))
    desk.ends("t.a", DONE, usage=Usage(10, 5, 0.1))
    desk.clock.advance(1000.0)
    desk.ends("t.b", Question("Which?"), usage=Usage(7, None, None))
    desk.ends("t.c", DONE, usage=Usage())
    before = rows(desk.store.db)
    assert before == [("2026-01-01T00:00", 100_000, 15, 0), ("2026-01-01T00:15", 0, 7, 1)]
    assert not event_log.differences(desk.store.db)
    with closing(sqlite3.connect(tmp_path / "mailboxd.db")) as db:
        assert migrated_again(db) == before


def test_work_that_a_peers_mailbox_took_is_no_turn_of_unknown_cost(tmp_path: Path) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    desk.give(plan=plan(child("a", "bob")))
    desk.ends("t.a", Acknowledged())
    assert rows(desk.store.db) == []
    assert not event_log.differences(desk.store.db)


def test_an_acknowledgement_with_a_cost_counts_and_so_does_one_of_an_earlier_version(tmp_path: Path) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    desk.give(plan=plan(child("a", "bob")))
    (event,) = [one for one in desk.ends("t.a", Acknowledged(), usage=Usage(10, 5, 0.1)) if "turn" in one.data]
    assert rows(desk.store.db) == [("2026-01-01T00:00", 100_000, 15, 0)]
    turn = event.data["turn"] | {"usage": {}}
    assert Spend.of_turn(turn) == Spend(0, 0, 1)
    assert Spend.of_turn(turn | {"delivered": True}) == Spend()


@pytest.mark.parametrize(
    ("usage", "ran"),
    [({"cost_usd": 0.0000005}, True), ({"cost_usd": 1.2345675, "input_tokens": 3}, True), ({}, True), ({}, False)],
)
def test_events_of_the_first_version_are_read_alike(usage: dict[str, float], ran: bool) -> None:
    data = {
        "at": "2026-11-21T02:07:53.120Z", "turn": "work", "agent": "main", "attempt": "att_1", "outcome": "succeeded",
        "ran": ran, "fault": False, "said": "", "usage": usage,
    }  # fmt: skip
    with closing(connect(None)) as db, closing(connect(None)) as fresh:
        for one in (db, fresh):
            migrate(one, "")
        kind, now = upcast("turn.ended", data)
        turn_spent(fresh, Event(kind, None, now))
        db.execute(
            "INSERT INTO events (seq, at, kind, task, role, actor, data, hash) VALUES (1, ?, ?, NULL, '', '', ?, '')",
            (data["at"], "turn.ended", json.dumps(data)),
        )
        assert migrated_again(db) == rows(fresh)


def test_a_day_is_read_by_its_bounds_and_a_few_rows(tmp_path: Path) -> None:
    desk = Desk(database=tmp_path / "mailboxd.db")
    for number in range(30):
        desk.give(f"t{number}")
        desk.ends(f"t{number}", DONE, usage=Usage(1, 1, 1.0))
        desk.clock.advance(3600.0)
    day = day_of("2026-01-01T12:00:00.000Z")
    assert desk.store.spending.between(day.start, day.end) == Spend(24_000_000, 48, 0)
    text = f"EXPLAIN QUERY PLAN SELECT sum(usd) FROM spending WHERE at >= '{quarter(day.start)}' AND at < 'x'"
    assert "SEARCH spending USING PRIMARY KEY" in desk.store.db.execute(text).fetchone()[3]
