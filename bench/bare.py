"""The floor for recording a message: raw inotify, one row, one commit with synchronous=FULL, nothing else.

python -m bench.bare DIRECTORY DATABASE
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from bench.inotify import MOVED_TO, Inotify


def main() -> None:
    directory, database = Path(sys.argv[1]), Path(sys.argv[2])
    inotify = Inotify()
    inotify.watch(directory, MOVED_TO)
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE messages (name TEXT PRIMARY KEY) WITHOUT ROWID")
    print("ready", flush=True)
    while True:
        for name in inotify.wait(3600):
            db.execute("INSERT INTO messages VALUES (?)", (name,))


if __name__ == "__main__":
    main()
