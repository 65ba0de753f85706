"""A database is examined without being changed, whatever state it is in."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.errors import NoRoomError, WorldError
from mailboxd.ledger import integrity as examining
from mailboxd.ledger.backup import integrity_problem
from mailboxd.ledger.database import connect
from mailboxd.ledger.integrity import check_database
from mailboxd.ledger.store import Store

NOW = "2026-01-01T00:00:00.000Z"
EVENTS = 12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "mailboxd.db"
    store = Store.open(place, NOW)
    with store.transaction():
        for number in range(EVENTS):
            message = {
                "id": f"msg_{number}",
                "direction": "in",
                "name": f"{number}.md",
                "sha256": "0",
                "verdict": "orphan",
            }
            store.append([Event(Kind.MESSAGE_RECEIVED, None, {"at": NOW, "message": message})], NOW)
    store.close()
    return place


def spoil(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for name in ("events_append_only_update", "events_append_only_delete"):
            db.execute(f"DROP TRIGGER IF EXISTS {name}")
        for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute(sql)
        db.commit()


def test_a_sound_database(path: Path) -> None:
    found = check_database(path)
    assert found.exists
    assert (found.damage, found.broken, found.latest) == ((), "", NOW)
    assert found.schema == found.known > 0


def test_no_database(tmp_path: Path) -> None:
    assert not check_database(tmp_path / "none.db").exists


@pytest.mark.parametrize("newest", [1000, 5])
@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE events SET data = '{}' WHERE seq = 10", "event 10 is not what was recorded"),
        ("DELETE FROM events WHERE seq = 10", "event 10 is missing"),
    ],
)
def test_a_break_in_the_chain(path: Path, sql: str, says: str, newest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "_NEWEST", newest)
    assert check_database(path).broken == ""
    spoil(path, sql)
    assert check_database(path).broken == says


def test_what_is_old_is_left_to_history_verify(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(path, "UPDATE events SET data = '{}' WHERE seq = 2")
    assert check_database(path).broken
    monkeypatch.setattr(examining, "_NEWEST", 5)
    assert check_database(path).broken == ""


def test_another_schema_is_named_and_not_read(path: Path) -> None:
    spoil(path, "PRAGMA user_version = 99")
    found = check_database(path)
    assert (found.schema, found.latest) == (99, "")


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, however long it may be " * 100)


def _torn(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4096 * 3 : 4096 * 9] = b"\xff" * (4096 * 6)
    path.write_bytes(raw)


@pytest.mark.parametrize("harm", [_garbage, _torn])
def test_damage_is_told_and_survived(path: Path, harm: Callable[[Path], None]) -> None:
    harm(path)
    assert check_database(path).damage


def test_a_database_that_cannot_be_opened_is_the_worlds_fault(tmp_path: Path) -> None:
    (tmp_path / "mailboxd.db").mkdir()
    with pytest.raises(WorldError):
        check_database(tmp_path / "mailboxd.db")


def test_a_disk_that_is_full_is_no_damage(path: Path) -> None:
    """SQLite cannot read then, as it has to create the shared memory beside the database."""
    with closing(connect(path)) as db:
        db.execute("INSERT INTO meta (name, value) VALUES ('x', 'y')")
        copy = path.with_name("copy.db")
        for ending in ("", "-wal"):
            shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(NoRoomError, match=r"copy\.db: the database cannot be read: .*ulimit -f"):
            check_database(copy)
        with (
            closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as db,
            pytest.raises(NoRoomError, match="ulimit"),
        ):
            integrity_problem(db, path=copy)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert check_database(copy).damage == ()
