"""Every schema that was ever released is opened, migrated and verified by this program.

A release adds one: `python -m tests.ledger.freezing VERSION`, and commits `tests/ledger/schemas/VERSION.sql`. A change
of the schema after that is a new file in `mailboxd/ledger/migrations/`, never a change of one that was released.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mailboxd.core.effects import LookUp, Notify, RunTurn
from mailboxd.core.vocabulary import Notice
from mailboxd.ledger import event_log
from mailboxd.ledger.database import connect, migrate, migrations
from mailboxd.ledger.opening import open_workspace
from mailboxd.ledger.reports import Report
from mailboxd.ledger.store import Store
from mailboxd.ledger.task_queries import Filter, list_tasks
from tests.ledger.freezing import FOLDER, TABLES
from tests.ledger.shapes import well_shaped

NOW = "2027-01-01T00:00:00.000Z"
RELEASED = sorted(path.stem for path in FOLDER.glob("*.sql"))


@pytest.fixture(params=RELEASED)
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A database as that release left it."""
    made = tmp_path / "mailboxd.db"
    with closing(sqlite3.connect(made)) as db:
        db.executescript((FOLDER / f"{request.param}.sql").read_text(encoding="utf-8"))
    return made


def _schema(db: sqlite3.Connection) -> dict[str, str]:
    rows = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")
    return {name: " ".join(sql.replace('"', "").split()) for name, sql in rows}


def test_there_is_one() -> None:
    assert RELEASED


def test_it_holds_something_of_everything_that_matters(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        counts = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    assert all(counts.values()), counts


def test_it_is_migrated_and_its_events_replay_to_its_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        before = {row[0]: row[1] for row in db.execute("SELECT seq, hash FROM events")}
    store = open_workspace(path, NOW, thorough=True)
    with closing(store):
        assert store.db.execute("PRAGMA user_version").fetchone()[0] == len(migrations())
        after = {row[0]: row[1] for row in store.db.execute("SELECT seq, hash FROM events")}
        assert after == before, "a migration has touched the log"
        event_log.check(store.db)


def test_its_orders_can_be_read(path: Path) -> None:
    with closing(open_workspace(path, NOW)) as store:
        orders = store.outbox.pending("9999", 10_000)
        assert {order.effect.__class__ for order in orders} & {RunTurn, LookUp}
        notify = """INSERT INTO outbox (id, kind, task, agent, data, state, at)
                    VALUES ('x', 'notify', '', '', '{"approval_id": "apr_1"}', 'pending', '')"""
        store.db.execute(notify)
        assert store.outbox.get("x").effect == Notify(Notice.APPROVAL, "apr_1")


def test_it_can_be_reported_before_a_daemon_of_this_version_runs(path: Path) -> None:
    with closing(open_workspace(path, NOW)) as store:
        store.db.execute("""INSERT OR REPLACE INTO meta (name, value, rev)
                            VALUES ('room', '{"most": 4, "running": [], "memory": null}', 1)""")
        report = Report(store.db)
        assert report.room()
        for root in list_tasks(report, Filter(), limit=-1)[0]:
            assert report.task_snapshot([root["id"]], NOW, None).tasks
        well_shaped(report)


def test_what_it_becomes_is_what_a_new_database_is(path: Path) -> None:
    with closing(Store.open(path, NOW)) as store, closing(connect(None)) as fresh:
        migrate(fresh, NOW)
        assert _schema(store.db) == _schema(fresh), (
            "a migration that a frozen schema was made with has been changed: write a new one instead. (Only while "
            f"that version is not released yet: `python -m tests.ledger.freezing` makes {', '.join(RELEASED)} again.)"
        )
