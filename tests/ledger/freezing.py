"""Freezes the database of a release as SQL: `python -m tests.ledger.freezing 0.2.0`, once, when it is released.

The rows are what a small simulated town left in one of its houses: tasks in several phases, attempts, messages, an
outbox, and the chain of events over all of it. A frozen file is never made again once its version is released.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

from tests.simulation import townlife
from tests.simulation.town import Town

FOLDER = Path(__file__).with_name("schemas")
MOST_SEEDS, STEPS = 50, 60
TABLES = ("tasks", "attempts", "events", "messages", "bodies", "outbox", "dependencies")
"""What has to hold something."""


def dump(db: sqlite3.Connection) -> str:
    """The whole database as a script: schema, rows, version."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    lines = [line for line in db.iterdump() if line not in ("BEGIN TRANSACTION;", "COMMIT;")]
    return "\n".join(["BEGIN;", *lines, f"PRAGMA user_version = {version};", "COMMIT;"]) + "\n"


def lived_in() -> str:
    """The dump of a database that has seen something of everything."""
    for seed in range(MOST_SEEDS):
        root = Path(tempfile.mkdtemp(prefix="freezing-"))
        try:
            with Town.founded(seed, root) as town:
                for number in range(STEPS):
                    townlife.step(town, number)
                for house in town.houses.values():
                    house.die()
                    if all(house.store.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES):
                        return dump(house.store.db)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    raise AssertionError("no town has left enough behind")


def main() -> int:
    logging.disable()
    target = FOLDER / f"{sys.argv[1]}.sql"
    target.write_text(lived_in(), encoding="utf-8")
    print(f"{target}: {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
