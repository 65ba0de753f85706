"""What all tests share: how hypothesis behaves on a machine that others use too, and what is made once for all."""

import gc
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import settings

from mailboxd.ledger import database, event_log, store
from mailboxd.ledger.connection import Connection

# a shell ignores SIGINT for what it runs in the background, and so would every program that a test interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(10_000)  # as the program does

# a slow neighbour is no failure of ours; laws about time are measured where they are stated
settings.register_profile("explore", deadline=None, max_examples=500)
# few examples and the same each time, so that a green change stays green; `make soak` (EXPLORE=1) looks for new ones
settings.register_profile("repeatable", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "repeatable")


@pytest.fixture(scope="session", autouse=True)
def _schema_made_once() -> Iterator[None]:
    """A new database in the process of the tests is a copy of one that was migrated: that took a quarter of the time of
    many tests. tests/ledger/test_db.py has the migrations themselves.
    """
    migrate, migrations = database.migrate, database.migrations

    def copied(db: Connection, now: str) -> None:
        if database.schema_version(db) or database.migrations is not migrations:
            migrate(db, now)
        else:
            made.backup(db)
            db.execute("UPDATE migrations SET applied_at = ?", (now,))

    # threads open databases, too
    made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Connection)
    with pytest.MonkeyPatch.context() as patch, closing(made):
        migrate(made, "")
        for module in (store, event_log):
            patch.setattr(module, "migrate", copied)
        yield


@pytest.fixture(scope="session", autouse=True)
def _state_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test notes its workspaces, keys or tokens in the state directory of whoever runs it, nor heeds their caps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield
