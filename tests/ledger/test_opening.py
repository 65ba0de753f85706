"""Opening the database that belongs to a workspace, and no other; whatever has happened to it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.core.events import Event, Kind
from mailboxd.errors import BusyError, DamagedError, NoRoomError, OutdatedError, StoreError, WorldError
from mailboxd.ledger import database, event_log, opening
from mailboxd.ledger.database import mark_of, migrations, store_error
from mailboxd.ledger.opening import open_workspace
from mailboxd.ledger.store import Store

NOW = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a hundred events, closed."""
    path = tmp_path / "state" / "mailboxd.db"
    path.parent.mkdir()
    store = open_workspace(path, NOW)
    with store.transaction():
        for number in range(100):
            store.append([Event(Kind.ALARM, None, {"at": NOW, "what": f"{number}", "why": "x" * 500})], NOW)
    store.close()
    return path


def overwritten(path: Path, at: int, size: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + size] = b"\xa5" * size
    path.write_bytes(raw)


def truncated(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 8192 * 4096 - 1000])


def without_tables(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE x (y)")
        db.execute("DROP TABLE x")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "header": lambda path: overwritten(path, 0, 16),
    "page": lambda path: overwritten(path, 4096 * 3, 4096 * 3),
    "last page": lambda path: overwritten(path, path.stat().st_size - 4096, 4096),
    "truncated": truncated,
    "without tables": without_tables,
    "empty": lambda path: path.open("wb").close(),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_noticed_and_what_is_left_is_kept(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    before = path.read_bytes() if path.exists() else b""
    for _ in range(3):
        with pytest.raises(DamagedError, match="rebuild --replace"):
            open_workspace(path, NOW, thorough=True)
    assert (path.read_bytes() if path.exists() else b"") == before
    kept = [copy.read_bytes() for copy in path.parent.glob("mailboxd.db.damaged-*")]
    assert kept == ([before] if before else [])


def test_a_new_workspace_gets_a_database_and_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "mailboxd.db"
    store = open_workspace(path, NOW)
    assert mark_of(path).read_text() == f"{store.meta.get('uuid')}\n"
    assert mark_of(path).stat().st_mode & 0o777 == 0o600
    store.close()
    again = open_workspace(path, NOW)
    assert mark_of(path).read_text() == f"{again.meta.get('uuid')}\n"
    again.close()


def test_a_mark_that_is_missing_is_written_again_and_one_that_names_another_is_believed(path: Path) -> None:
    mark = mark_of(path).read_text()
    mark_of(path).unlink()
    open_workspace(path, NOW).close()
    assert mark_of(path).read_text() == mark
    mark_of(path).write_text("somebody-else\n")
    with pytest.raises(DamagedError, match="another workspace"):
        open_workspace(path, NOW)


def test_the_log_of_another_database_beside_the_right_one_is_named_as_what_is_wrong(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with closing(open_workspace(tmp_path / "other" / "mailboxd.db", NOW)):
        shutil.copy(tmp_path / "other" / "mailboxd.db-wal", f"{path}-wal")
    with pytest.raises(OutdatedError, match="-wal beside it is another database's"):
        open_workspace(path, NOW, thorough=True)
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)  # as it says
    open_workspace(path, NOW).close()


def test_an_older_database_is_copied_before_it_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*migrations(), ("0002_more.sql", "CREATE TABLE more (x TEXT);\n")]
    broken = [*steps, ("0003_broken.sql", "CREATE TABLE tasks (again TEXT);\n")]
    copy = path.with_name(f"{path.name}.schema-{len(migrations())}")
    for module in (database, opening):
        monkeypatch.setattr(module, "migrations", lambda: broken)
    for _ in range(2):  # interrupted, and once more
        with pytest.raises(WorldError):
            open_workspace(path, NOW)
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA user_version").fetchone()[0] == len(steps) - 1
            assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").fetchone()[0] == 0
    for module in (database, opening):
        monkeypatch.setattr(module, "migrations", lambda: steps)
    store = open_workspace(path, NOW)
    assert store.db.execute("SELECT count(*) FROM more").fetchone()[0] == 0
    assert event_log.verify_chain(store.db) is None
    store.close()
    monkeypatch.undo()
    old = Store.open(copy, NOW)
    assert event_log.tip(old.db).seq == 100
    event_log.check(old.db)
    old.close()


def test_a_database_of_a_newer_program_is_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(WorldError, match="install a newer mailboxd"):
        open_workspace(path, NOW)
    assert path.read_bytes() == before


@pytest.mark.parametrize("gone", [("",), ("-wal",), ("-shm", "-wal", "")], ids=str)
def test_what_an_open_database_holds_is_saved_when_its_file_is_deleted(path: Path, gone: tuple[str, ...]) -> None:
    store = open_workspace(path, NOW)
    with store.transaction():
        store.append([Event(Kind.ALARM, None, {"at": NOW, "what": "late", "why": "y"})], NOW)
    for ending in gone:
        Path(f"{path}{ending}").unlink()
    with pytest.raises(DamagedError, match="put back in place"), store.transaction():
        raise AssertionError("nothing is written into a file that has no name")
    store.close()
    again = open_workspace(path, NOW, thorough=True)
    assert event_log.tip(again.db).seq == 101
    event_log.check(again.db)
    again.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("trap", [os.mkfifo, lambda path: path.symlink_to("elsewhere.db"), Path.mkdir])
def test_what_is_no_file_is_neither_followed_nor_waited_for(
    path: Path, trap: Callable[[Path], object], read_only: bool
) -> None:
    path.rename(path.with_name("elsewhere.db"))
    trap(path)
    with pytest.raises(StoreError, match="not a regular file"):
        database.connect(path, read_only=read_only)
    with pytest.raises(WorldError, match="not a regular file"):
        open_workspace(path, NOW)


def test_a_pipe_in_the_place_of_the_mark_is_not_waited_for(path: Path) -> None:
    mark_of(path).unlink()
    os.mkfifo(mark_of(path))
    open_workspace(path, NOW).close()  # it says nothing, as if there were none, and is written anew
    assert mark_of(path).is_file()


def test_what_was_put_in_the_place_of_an_open_database_is_left_there(path: Path) -> None:
    store = open_workspace(path, NOW)
    path.rename(path.with_name("old.db"))
    path.write_bytes(b"something else")
    with pytest.raises(DamagedError, match=r"saved as mailboxd\.db\.rescued"), store.transaction():
        raise AssertionError("nothing is written into a file that has another name")
    store.close()
    assert path.read_bytes() == b"something else"
    with closing(sqlite3.connect(path.with_name("mailboxd.db.rescued"))) as db:
        assert event_log.tip(db).seq == 100


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, NoRoomError),
        (sqlite3.SQLITE_BUSY, BusyError),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, BusyError),
        (sqlite3.SQLITE_CORRUPT, DamagedError),
        (sqlite3.SQLITE_NOTADB, DamagedError),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreError),
        (sqlite3.SQLITE_CANTOPEN, StoreError),
    ],
)
def test_what_sqlite_says_is_named_by_who_has_to_do_something(
    tmp_path: Path, code: int, kind: type[StoreError]
) -> None:
    error = sqlite3.OperationalError("said")
    error.sqlite_errorcode = code
    assert type(store_error(error, "cannot be read", tmp_path / "x.db")) is kind
