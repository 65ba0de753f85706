"""Opening, migrating, and one transaction at a time."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from mailboxd.errors import WorldError
from mailboxd.ledger import database
from mailboxd.ledger.connection import Connection
from mailboxd.ledger.database import connect, migrate, migrations, transaction
from mailboxd.ledger.store import Store

NOW = "2026-01-01T00:00:00.000Z"


def schema(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    return db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    db = connect(tmp_path / "x.db")
    migrate(db, NOW)
    before = (schema(db), db.execute("SELECT * FROM migrations").fetchall())
    migrate(db, "2027-01-01T00:00:00.000Z")
    assert (schema(db), db.execute("SELECT * FROM migrations").fetchall()) == before
    assert db.execute("PRAGMA user_version").fetchone()[0] == len(migrations())


def test_every_migration_is_on_record() -> None:
    db = connect(None)
    migrate(db, NOW)
    names = [(number, name, NOW) for number, (name, _) in enumerate(migrations(), 1)]
    assert db.execute("SELECT * FROM migrations").fetchall() == names
    assert [int(name[:4]) for name, _ in migrations()] == [*range(1, len(names) + 1)], "each has a number of its own"


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    Store.open(path, NOW).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(migrations()) + 1}")
    with pytest.raises(WorldError, match="install a newer mailboxd"):
        Store.open(path, NOW)


def test_a_migration_that_is_interrupted_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are one transaction: a database that is half of one version and half of another there is not."""
    path = tmp_path / "x.db"
    steps = [*migrations(), ("9999_broken.sql", "CREATE TABLE half (x TEXT);\nCREATE TABLE tasks (again TEXT);\n")]
    monkeypatch.setattr(database, "migrations", lambda: steps)
    with pytest.raises(WorldError, match="tasks"):
        Store.open(path, NOW)
    monkeypatch.undo()
    db = connect(path)
    assert (db.execute("PRAGMA user_version").fetchone()[0], schema(db)) == (0, [])
    migrate(db, NOW)


def test_bytes_that_were_kept_by_their_hash_are_kept_by_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each message, where several have the same; what was never read has none."""
    db, steps = connect(None), migrations()
    monkeypatch.setattr(database, "migrations", lambda: steps[:4])
    migrate(db, NOW)
    for name, sha256 in (("m1", "a"), ("m2", None), ("m3", "b"), ("m4", "a")):
        db.execute(
            "INSERT INTO messages (id, direction, verdict, name, sha256, at)"
            " VALUES (?, 'in', 'accepted', 'x.md', ?, ?)",
            (name, sha256, NOW),
        )
    db.executemany("INSERT INTO bodies VALUES (?, ?)", [("b", b"B"), ("a", b"A")])
    monkeypatch.undo()
    migrate(db, NOW)
    assert db.execute("SELECT * FROM bodies ORDER BY rowid").fetchall() == [("m1", b"A"), ("m3", b"B"), ("m4", b"A")]


def test_two_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    connect(path).close()
    problems: list[BaseException] = []
    gate = threading.Barrier(4)

    def opens() -> None:
        db = connect(path)
        gate.wait()
        try:
            migrate(db, NOW)
        except BaseException as error:
            problems.append(error)
        db.close()

    threads = [threading.Thread(target=opens) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_the_database_is_its_owners_alone(tmp_path: Path) -> None:
    Store.open(tmp_path / "x.db", NOW).close()
    assert (tmp_path / "x.db").stat().st_mode & 0o777 == 0o600


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"this is no database, and long enough to be looked at " * 20)
    with pytest.raises(WorldError, match="cannot be opened"):
        Store.open(tmp_path / "x.db", NOW)


def test_a_commit_is_on_the_disk_before_anything_follows_from_it() -> None:
    db = connect(None)
    assert db.execute("PRAGMA synchronous").fetchone()[0] == 2, "FULL"


def test_what_undoes_a_savepoint_is_kept_in_memory_and_not_in_a_file_of_its_own() -> None:
    db = connect(None)
    assert db.execute("PRAGMA temp_store").fetchone()[0] == 2, "MEMORY"


def test_a_reader_sees_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    Store.open(path, NOW).close()
    db = connect(path, read_only=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("INSERT INTO meta (name, value) VALUES ('a', 'b')")


def breaks_off(store: Store, part: AbstractContextManager[None], value: str) -> None:
    with part:
        store.meta.set("a", value)
        raise ZeroDivisionError


def test_an_exception_undoes_the_whole_transaction() -> None:
    store = Store.open(None, NOW)
    with pytest.raises(ZeroDivisionError):
        breaks_off(store, store.transaction(), "1")
    assert store.meta.get("a") is None
    with store.transaction():
        store.meta.set("a", "2")
    assert store.meta.get("a") == "2"


def test_a_savepoint_undoes_its_part_alone() -> None:
    store = Store.open(None, NOW)
    with store.transaction():
        store.meta.set("a", "1")
        with store.savepoint():
            store.meta.set("b", "1")
            with pytest.raises(ZeroDivisionError):
                breaks_off(store, store.savepoint(), "2")
    assert (store.meta.get("a"), store.meta.get("b")) == ("1", "1")


def test_a_second_writer_waits_and_then_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 1)
    one, two = Store.open(tmp_path / "x.db", NOW), Store.open(tmp_path / "x.db", NOW)
    with one.transaction(), pytest.raises(WorldError, match="locked"), two.transaction():
        pass
    with two.transaction():
        two.meta.set("a", "1")
    assert one.meta.get("a") == "1"


def write_what_cannot_be_written(db: Connection) -> None:
    with transaction(db):
        db.execute("INSERT INTO meta (name, value) VALUES ('a', 'b')")
        db.execute("INSERT INTO no_such_table VALUES (1)")


def test_a_failing_statement_is_the_worlds_fault_and_undoes_everything() -> None:
    db = connect(None)
    migrate(db, NOW)
    with pytest.raises(WorldError, match="could not be read or written"):
        write_what_cannot_be_written(db)
    assert db.execute("SELECT count(*) FROM meta").fetchone()[0] == 0
