"""The cost of the machine itself: no program that does the same work can be faster."""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from bench import processes
from bench.measure import Stats
from bench.workshop import TRUE, Workshop, bare_spawn, deliver, say

BODY = b"x" * 1024


def measure(shop: Workshop) -> dict[str, Any]:
    """Measure commits, synced deliveries, processes and a bare Python. Raises Broken."""
    say("floors: commits, deliveries, bare processes")
    place, repeats = shop.place("floors"), shop.pick(3, 5)
    found: dict[str, Any] = {}
    for rows in (1, 16, 128):
        name = f"SQLite commit, WAL FULL, {rows} row{'s' if rows > 1 else ''}"
        found[name] = Stats.of(_commits(place / f"{rows}.db", rows, shop.pick(200, 1000)), "ms").json()
    found["delivery: write, fsync, rename, fsync of the directory, 1 KB"] = Stats.of(
        _deliveries(place, shop.pick(200, 1000)), "ms"
    ).json()
    for label, program in (("/bin/true", TRUE), ("the agent's program of the bench", str(shop.agent))):
        for at_once in (1, 8):
            each = [bare_spawn([program], 400, at_once) * 1e6 for _ in range(repeats)]
            found[f"bare process, {label}, {at_once} at once"] = Stats.of(each, "µs").json()
    python = [_bare_python(place) for _ in range(repeats * 3)]
    found["python -c pass"] = Stats.of(python, "ms").json()
    return found


def _commits(path: Path, rows: int, count: int) -> list[float]:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE one (body BLOB)")
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO one VALUES (?)", [(BODY[:100],)] * rows)
        db.execute("COMMIT")
        took.append((time.perf_counter() - begun) * 1e3)
    db.close()
    return took


def _deliveries(place: Path, count: int) -> list[float]:
    took = []
    for number in range(count):
        begun = time.perf_counter()
        deliver(place, f"{number}.md", BODY)
        took.append((time.perf_counter() - begun) * 1e3)
    return took


def _bare_python(place: Path) -> float:
    begun = time.perf_counter()
    processes.run([sys.executable, "-c", "pass"], place, 60)
    return (time.perf_counter() - begun) * 1e3
