"""Rows that wait to be written: whoever looks sees what he would see if nothing waited."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailboxd.ledger.connection import Connection, update
from mailboxd.ledger.database import connect, transaction

SCHEMA = (
    "CREATE TABLE kept (id TEXT PRIMARY KEY, name TEXT, count INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE log (seq INTEGER PRIMARY KEY, text TEXT)",
    "CREATE VIEW v_kept AS SELECT * FROM kept",
)
PUT = "INSERT INTO kept (id, name) VALUES (?, ?)"
APPEND = "INSERT INTO log VALUES (?, ?)"


@pytest.fixture
def db() -> Iterator[Connection]:
    with closing(fresh()) as made:
        made.execute("INSERT INTO kept VALUES ('a', 'one', 1)")
        yield made


def fresh() -> Connection:
    made = connect(None)
    for sql in SCHEMA:
        made.execute(sql)
    return made


def names(db: sqlite3.Connection, table: str = "kept") -> dict[str, tuple[str, int]]:
    return {row[0]: (row[1], row[2]) for row in db.execute(f"SELECT id, name, count FROM {table}")}


def traced(db: Connection) -> list[str]:
    said: list[str] = []
    db.set_trace_callback(said.append)
    return said


@pytest.mark.parametrize("table", ["kept", "v_kept"])
def test_a_statement_that_names_the_table_or_a_view_sees_what_waits(db: Connection, table: str) -> None:
    with transaction(db):
        db.change_later("kept", "a", {"name": "two"}, {"count": 1})
        db.write_later("kept", PUT, ("b", "new"))
        assert names(db, table) == {"a": ("two", 2), "b": ("new", 0)}


def test_the_changes_of_a_row_are_one_statement_and_so_are_the_rows_of_a_log(db: Connection) -> None:
    said = traced(db)
    with transaction(db):
        db.change_later("kept", "a", {"name": "two"})
        db.change_later("kept", "a", {}, {"count": 1})
        db.change_later("kept", "a", {"name": "three"}, {"count": 2})
        for seq in range(3):
            db.write_later("log", APPEND, (seq, "x"))
        db.execute("SELECT 1")
        assert said == ["BEGIN IMMEDIATE", "SELECT 1"]
    assert [sql.partition(" ")[0] for sql in said[2:]] == ["INSERT", "UPDATE", "COMMIT"]
    assert names(db) == {"a": ("three", 4)}
    assert [row[0] for row in db.execute("SELECT seq FROM log")] == [0, 1, 2]


def test_a_row_under_a_key_is_written_as_it_was_left(db: Connection) -> None:
    with transaction(db):
        db.write_later("kept", PUT, ("b", "first"), "b")
        assert db.waiting("kept", "b") == (PUT, ("b", "first"))
        db.write_later("kept", PUT, ("b", "last"), "b")
    assert names(db)["b"] == ("last", 0)


def test_outside_of_a_transaction_nothing_waits(db: Connection) -> None:
    said = traced(db)
    db.write_later("kept", PUT, ("b", "new"))
    db.change_later("kept", "b", {"name": "newer"}, {"count": 3})
    assert len(said) == 2
    assert names(db)["b"] == ("newer", 3)


def test_what_waits_goes_with_the_transaction(db: Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        fail(db)
    with transaction(db):
        assert names(db) == {"a": ("one", 1)}


def fail(db: Connection) -> None:
    with transaction(db):
        db.write_later("kept", PUT, ("b", "new"))
        db.change_later("kept", "a", {"name": "two"})
        assert 1 // 0


def test_a_part_in_which_nothing_is_written_yet_costs_no_statement(db: Connection) -> None:
    said = traced(db)
    with transaction(db):
        db.begin_part()
        db.change_later("kept", "a", {"name": "two"})
        db.end_part()
    assert not [sql for sql in said if "part" in sql]
    assert names(db) == {"a": ("two", 1)}


@pytest.mark.parametrize("written", [False, True])
def test_a_part_that_is_taken_back_leaves_what_waited_before_it(db: Connection, *, written: bool) -> None:
    with transaction(db):
        db.write_later("kept", PUT, ("b", "before"))
        db.begin_part()
        db.change_later("kept", "b", {"name": "in it"})
        if written:
            assert names(db)["b"] == ("in it", 0)
        db.undo_part()
        assert names(db) == {"a": ("one", 1), "b": ("before", 0)}


IDS = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("put"), IDS),
    st.tuples(st.just("change"), IDS),
    st.tuples(st.just("count"), IDS),
    st.tuples(st.just("at once"), IDS),
    st.tuples(st.sampled_from(["append", "look", "log", "begin", "end", "undo"]), st.just("")),
)
UPSERT = "INSERT INTO kept (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = ?2"


@given(st.lists(STEPS, max_size=40))
def test_nobody_can_tell_whether_rows_wait(steps: list[tuple[str, str]]) -> None:
    """The same steps, once with rows that wait and once without."""
    with closing(fresh()) as waiting, closing(sqlite3.connect(":memory:", isolation_level=None)) as plain:
        for sql in SCHEMA:
            plain.execute(sql)
        waiting.execute("BEGIN IMMEDIATE")
        plain.execute("BEGIN IMMEDIATE")
        parts = 0
        for number, (what, row) in enumerate(steps):
            match what:
                case "put":  # as in the ledger, a table has either rows that are written later or changes of them
                    waiting.execute(UPSERT, (row, str(number)))
                    plain.execute(UPSERT, (row, str(number)))
                case "change":
                    waiting.change_later("kept", row, {"name": str(number)})
                    plain.execute(update("kept", ("name",)), (str(number), row))
                case "count":
                    waiting.change_later("kept", row, {}, {"count": number})
                    plain.execute(update("kept", (), ("count",)), (number, row))
                case "at once":
                    for db in (waiting, plain):
                        db.execute("UPDATE kept SET count = count * 2 WHERE id = ?", (row,))
                case "append":
                    waiting.write_later("log", APPEND, (number, row))
                    plain.execute(APPEND, (number, row))
                case "look":
                    assert names(waiting) == names(plain)
                case "log":
                    assert (
                        waiting.execute("SELECT * FROM log").fetchall() == plain.execute("SELECT * FROM log").fetchall()
                    )
                case "begin":
                    parts += 1
                    waiting.begin_part()
                    plain.execute("SAVEPOINT part")
                case "end" if parts:
                    parts -= 1
                    waiting.end_part()
                    plain.execute("RELEASE part")
                case "undo" if parts:
                    parts -= 1
                    waiting.undo_part()
                    plain.execute("ROLLBACK TO part")
                    plain.execute("RELEASE part")
        waiting.execute("COMMIT")
        plain.execute("COMMIT")
        assert names(waiting) == names(plain)
        assert waiting.execute("SELECT * FROM log").fetchall() == plain.execute("SELECT * FROM log").fetchall()
