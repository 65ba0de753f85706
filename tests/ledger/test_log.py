"""The audit trail: append-only, chained, and enough to make every table again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.core.events import Event, Kind
from mailboxd.core.json_codec import to_json
from mailboxd.core.lifecycle import Trigger, move
from mailboxd.core.outcomes import Failure
from mailboxd.core.vocabulary import Phase
from mailboxd.errors import WorldError
from mailboxd.ledger import event_log
from mailboxd.ledger.event_log import GENESIS, REPLAYED
from mailboxd.ledger.store import Store
from tests.core.desk import Desk, child, plan, with_policy
from tests.simulation.happenings import step
from tests.simulation.world import World


@pytest.fixture
def desk() -> Desk:
    desk = Desk(with_policy(max_attempts=1))
    desk.give(plan=plan(child("a", "bob"), child("b", "self", "a")))
    desk.done("t.a")
    desk.ends("t.b", Failure("no"))
    return desk


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET data = '{}' WHERE seq = 1",
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT seq, at, kind, task, role, actor, '{}', hash FROM events WHERE seq = 1",
        "REPLACE INTO events SELECT seq, at, kind, task, role, 'somebody', data, hash FROM events WHERE seq = 2",
        "UPDATE OR REPLACE events SET seq = 1 WHERE seq = 2",
        "INSERT INTO events SELECT seq, at, kind, task, role, actor, '{}', hash FROM events WHERE seq = 1"
        " ON CONFLICT (seq) DO UPDATE SET data = excluded.data",
    ],
)
def test_no_statement_changes_or_removes_an_event(desk: Desk, statement: str) -> None:
    before = desk.store.db.execute("SELECT * FROM events").fetchall()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        desk.store.db.execute(statement)
    assert desk.store.db.execute("SELECT * FROM events").fetchall() == before


def tampered(desk: Desk, *statements: str) -> None:
    """What somebody can do who removes the triggers first."""
    desk.store.db.execute("DROP TRIGGER events_are_never_changed")
    desk.store.db.execute("DROP TRIGGER events_are_never_removed")
    for statement in statements:
        desk.store.db.execute(statement)


@pytest.mark.parametrize("column", ["at", "kind", "task", "role", "actor", "data", "hash"])
def test_a_changed_event_is_found(desk: Desk, column: str) -> None:
    assert event_log.verify_chain(desk.store.db) is None
    tampered(desk, f"UPDATE events SET {column} = 'x' WHERE seq = 5")
    assert event_log.verify_chain(desk.store.db) == "event 5 is not what was recorded"


def test_a_removed_event_is_found(desk: Desk) -> None:
    tampered(desk, "DELETE FROM events WHERE seq = 7")
    assert event_log.verify_chain(desk.store.db) == "event 7 is missing"


def test_events_in_another_order_are_found(desk: Desk) -> None:
    tampered(
        desk,
        "UPDATE events SET seq = -1 WHERE seq = 3",
        "UPDATE events SET seq = 3 WHERE seq = 4",
        "UPDATE events SET seq = 4 WHERE seq = -1",
    )
    assert event_log.verify_chain(desk.store.db) == "event 3 is not what was recorded"


def test_an_event_that_was_chained_again_by_hand_does_not_fit_the_tables(desk: Desk) -> None:
    row = desk.store.db.execute("SELECT * FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    tampered(desk, f"DELETE FROM events WHERE seq = {row[0]}")
    assert event_log.verify_chain(desk.store.db) is None
    with pytest.raises(WorldError, match="the audit trail does not hold"):
        event_log.check(desk.store.db)


def test_the_first_event_is_chained_to_nothing_and_each_to_the_one_before(desk: Desk) -> None:
    rows = desk.store.db.execute("SELECT seq, at, kind, task, role, actor, data, hash FROM events ORDER BY seq")
    before = GENESIS
    for row in rows:
        assert event_log.chain(before, row[:7]) == row[7]
        before = row[7]


@pytest.mark.parametrize("seed", range(5))
def test_replaying_the_events_gives_the_tables(seed: int) -> None:
    world = World.begin(seed)
    for _ in range(80):
        step(world)
    assert event_log.differences(world.store.db) == []
    event_log.check(world.store.db)
    world.store.close()


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("tasks", "UPDATE tasks SET phase = 'completed' WHERE local_id = 't.b'"),
        ("tasks", "UPDATE tasks SET unmet = unmet + 1"),
        ("tasks", "DELETE FROM tasks WHERE local_id = 't.b'"),
        ("dependencies", "DELETE FROM dependencies"),
        ("attempts", "UPDATE attempts SET session_key = 'x'"),
        ("artifacts", "UPDATE artifacts SET body = 'another result'"),
        (
            "reviews",
            "INSERT INTO reviews VALUES ('r', 't', NULL, 'spec_gate', 1, 'rex', 'approved', '', '[]', '', NULL)",
        ),
    ],
)
def test_a_table_that_was_changed_behind_the_log_is_found(desk: Desk, table: str, statement: str) -> None:
    desk.store.db.execute(statement)
    (found,) = event_log.differences(desk.store.db)
    assert found.startswith(f"{table}: ")
    assert table in REPLAYED


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE tasks ADD COLUMN surplus TEXT", "tasks: its column surplus is not of mailboxd"),
        ("ALTER TABLE doubts DROP COLUMN text", "doubts: its column text is missing"),
        ("DROP TABLE outbox", "outbox: the table is missing"),
        ("DROP TABLE doubts", "doubts: the table is missing"),
        ("DROP TRIGGER events_are_never_changed", "events_are_never_changed: the trigger is missing"),
    ],
)
def test_a_schema_that_was_changed_is_found(desk: Desk, statement: str, said: str) -> None:
    desk.store.db.execute(statement)
    assert event_log.differences(desk.store.db) == [said]


def test_a_table_of_another_program_changes_nothing(desk: Desk) -> None:
    desk.store.db.execute("CREATE TABLE notes (text)")
    assert event_log.differences(desk.store.db) == []


def test_reading_is_in_order_and_can_go_on_from_where_it_was(desk: Desk) -> None:
    everything = [recorded.seq for recorded in event_log.read(desk.store.db)]
    assert everything == list(range(1, desk.store.last_event() + 1))
    assert [recorded.seq for recorded in event_log.read(desk.store.db, after=5)] == everything[5:]
    task = desk.task("t.a").id
    assert {recorded.event.task for recorded in event_log.read(desk.store.db, task)} == {task}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_at_once_is_what_is_written_one_by_one(seed: int) -> None:
    """The events of a whole history again, as many at a time as it happens."""
    world, chance = World.begin(seed), Random(seed)
    for _ in range(80):
        step(world)
    events = [recorded.event for recorded in event_log.read(world.store.db)]
    with closing(Store.open(None, "")) as again, again.transaction():
        while events:
            size = chance.randint(1, 12)
            again.append(events[:size], "")
            del events[:size]
        assert event_log.tip(again.db) == event_log.tip(world.store.db)
        assert event_log.differing(world.store.db, again.db) == []
    world.store.close()


def test_a_child_that_ends_at_once_has_ended_for_its_parent(desk: Desk) -> None:
    child = replace(desk.task("t.b"), id="tsk_new", local_id="t.new", key="new", phase=Phase.SPEC_DRAFT)
    step, changes, _ = move(child, Trigger.CANCELLED, child.created_at, "at once")
    parts = {"passed": [step], "changes": to_json(changes)}
    created = {"at": child.created_at, "needs": [], "task": to_json(child), **parts}
    with desk.store.transaction():
        desk.store.append([Event(Kind.TASK_CREATED, child.id, created)], "")
    event_log.check(desk.store.db)


_SPACED = "UPDATE tasks SET spec = replace(spec, '\":', '\" : ')"


def test_structures_are_compared_by_what_they_say(desk: Desk) -> None:
    """An earlier version wrote them with spaces."""
    desk.store.db.execute(_SPACED)
    assert event_log.differences(desk.store.db) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tasks SET spec = replace(spec, 'do', 'undo')",
        "UPDATE tasks SET result = '{\"a\": 1}' WHERE local_id = 't.a'",
        "UPDATE tasks SET policy = 'no JSON'",
    ],
)
def test_what_they_say_is_compared(desk: Desk, statement: str) -> None:
    desk.store.db.execute(_SPACED)
    assert desk.store.db.execute(statement).rowcount > 0
    (said,) = event_log.differences(desk.store.db)
    assert said.startswith("tasks: ")


def test_text_that_looks_like_a_structure_is_compared_to_the_letter(desk: Desk) -> None:
    desk.store.db.execute("UPDATE tasks SET title = '{\"a\":1}' WHERE local_id = 't.a'")
    (said,) = event_log.differences(desk.store.db)
    assert said.startswith("tasks: ")


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.integers(0, 1 << 62) | st.none(), max_size=8))
def test_the_hash_is_over_json_as_it_is_documented(row: list[object]) -> None:
    """docs/audit.md says how to compute it again, with any program."""
    documented = json.dumps(["before", *row], ensure_ascii=False, separators=(",", ":")).encode()
    assert event_log.chain("before", row) == hashlib.sha256(documented).hexdigest()
