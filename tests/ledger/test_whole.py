"""The database as a whole: nothing takes its place before it is proven and durable, and what it replaces is kept."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.errors import NoRoomError, UnavailableError, WorldError
from mailboxd.ledger.backup import back_up, close_as_one_file, prove, replace_database
from mailboxd.ledger.database import connect
from mailboxd.ledger.store import Store

NOW = "2026-03-01T08:00:00.000Z"


def made(path: Path, events: int) -> Path:
    store = Store.open(path, NOW)
    with store.transaction():
        for number in range(events):
            store.append([Event(Kind.ALARM, None, {"at": NOW, "what": str(number), "why": ""})], NOW)
    close_as_one_file(store.db)
    return path


def events(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM events").fetchone()[0])


def test_the_new_one_takes_the_place_and_the_old_one_is_kept(tmp_path: Path) -> None:
    database, new = made(tmp_path / "m.db", 2), made(tmp_path / "new.db", 5)
    kept = replace_database(new, database, "m.db.old")
    assert kept == tmp_path / "m.db.old"
    assert (events(database), events(kept)) == (5, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.db", "m.db.old"]


def test_what_stands_in_the_log_of_the_old_one_is_kept_with_it(tmp_path: Path) -> None:
    """A daemon that was killed leaves a write-ahead log: beside another database it would be poison."""
    database = tmp_path / "m.db"
    store = Store.open(database, NOW)
    with store.transaction():
        store.append([Event(Kind.ALARM, None, {"at": NOW, "what": "x", "why": ""})], NOW)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    store.close()
    for name, raw in left.items():
        (tmp_path / name).write_bytes(raw)
    assert (tmp_path / "m.db-wal").stat().st_size
    kept = replace_database(made(tmp_path / "new.db", 5), database, "m.db.old")
    assert kept is not None
    assert not (tmp_path / "m.db-wal").exists()
    assert (events(database), events(kept)) == (5, 1)


def test_a_refused_rename_leaves_the_old_one_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, new = made(tmp_path / "m.db", 2), made(tmp_path / "new.db", 5)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(WorldError, match=r"new\.db"):
        replace_database(new, database, "m.db.old")
    assert events(database) == 2


def test_a_refused_link_leaves_the_old_one_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody reads the old database, its write-ahead log cannot be folded into it, and holds what is newest."""
    database, new = made(tmp_path / "m.db", 2), made(tmp_path / "new.db", 5)
    with closing(connect(database)) as writer, closing(connect(database, read_only=True)) as reader:
        reader.execute("BEGIN").connection.execute("SELECT count(*) FROM events").fetchone()
        writer.execute("INSERT INTO meta (name, value) VALUES ('newest', 'x')")

        def refuse(*_: object) -> None:
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr("mailboxd.ledger.database.BUSY_MS", 0)
        monkeypatch.setattr("os.link", refuse)
        with pytest.raises(WorldError, match="cannot be replaced: Operation not permitted"):
            replace_database(new, database, "m.db.old")
        with closing(connect(database, read_only=True)) as db:
            assert db.execute("SELECT value FROM meta WHERE name = 'newest'").fetchone() == ("x",)


def test_a_new_database_for_which_there_is_no_room_names_the_place(tmp_path: Path) -> None:
    db = connect(made(tmp_path / "m.db", 2))
    db.execute("INSERT INTO meta (name, value) VALUES ('x', 'y')")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(NoRoomError, match=r"m\.db: the database cannot be written.*ulimit -f"):
            close_as_one_file(db)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_copy_of_what_is_wrong_is_no_backup(tmp_path: Path) -> None:
    database = made(tmp_path / "m.db", 3)
    with closing(sqlite3.connect(database)) as db:
        db.execute("DROP TRIGGER events_are_never_changed")
        db.execute("UPDATE events SET actor = 'mallory' WHERE seq = 2")
        db.commit()
        with pytest.raises(WorldError, match="event 2"):
            prove(db)
    with pytest.raises(WorldError, match="event 2"):
        back_up(database, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["m.db"]


def test_a_backup_needs_a_database_and_a_free_name(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no database"):
        back_up(tmp_path / "m.db", tmp_path / "copy.db")
    database = made(tmp_path / "m.db", 3)
    (tmp_path / "copy.db").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnavailableError, match="already"):
        back_up(database, tmp_path / "copy.db")
