"""Latency: from dropping a file to its row and to its turn, and from the end of a turn to the next one."""

from __future__ import annotations

import itertools
import random
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import processes
from bench.daemon import Daemon, plan, task, until
from bench.inotify import MODIFY, Inotify
from bench.measure import Stats, ratio
from bench.processes import Broken
from bench.workshop import Workshop, say

_PAUSE = 0.0001


class Observer:
    """Notices a row in another process's database soon after its commit: a write to the WAL wakes it, then it polls.

    It sleeps between two questions. It is the writer who wakes it, so it often comes to the writer's own processor: one
    that asks without a pause kept the writer from its commit for 2 to 5 ms, while the other processor was idle. The
    same for whoever writes, so what the looking costs is in both sides of a comparison.
    """

    def __init__(self, database: Path, asked: str) -> None:
        """`asked` finds the row of a message by its file name, through an index."""
        self.asked = asked
        self.db = sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)
        self.inotify = Inotify()
        self.inotify.watch(database.with_name(f"{database.name}-wal"), MODIFY)

    def seen(self, inbox: Path, name: str, raw: bytes) -> float:
        """Drop `name`.md; returns the milliseconds from its rename to its committed row. Raises Broken."""
        hidden = inbox.parent / f"{name}.tmp"
        hidden.write_bytes(raw)
        while self.inotify.wait(0):
            pass
        begun = time.perf_counter()
        hidden.rename(inbox / f"{name}.md")
        self.inotify.wait(10)
        while not self.db.execute(self.asked, (name,)).fetchone():
            if time.perf_counter() - begun > 20:
                raise Broken(f"{name} was not recorded within 20 s")
            time.sleep(_PAUSE)
        return (time.perf_counter() - begun) * 1e3

    def close(self) -> None:
        self.db.close()
        self.inotify.close()


def measure(shop: Workshop) -> dict[str, Any]:
    """Drop files one at a time, alternating between the bare loop and mailboxd. Raises Broken."""
    count = shop.pick(60, 300)
    say(f"latency: {count} messages, one at a time")
    place = shop.place("bare")
    (place / "inbox").mkdir()
    bare = processes.start(
        [sys.executable, "-m", "bench.bare", place / "inbox", place / "bare.db"],
        Path(__file__).parents[1],
        (place / "log").open("wb"),
    )
    try:
        with Daemon(shop, "latency") as daemon:
            until(lambda: (place / "log").read_bytes(), 30, daemon)
            return _compare(daemon, place, count)
    finally:
        processes.end(bare)


def _compare(daemon: Daemon, place: Path, count: int) -> dict[str, Any]:
    floor = Observer(place / "bare.db", "SELECT 1 FROM messages WHERE name = ? || '.md'")
    ours = Observer(daemon.database, "SELECT 1 FROM v_messages WHERE message_id = 'bench-' || ?")
    chance = random.Random(1)
    floors, committed, planned, spawned = [], [], [], []
    try:
        for number in range(count):
            floors.append(floor.seen(place / "inbox", f"drop{number}", b"x" * 1024))
            committed.append(ours.seen(daemon.inbox, f"task{number}", task(f"task{number}")))
            _let_rest(daemon, f"task{number}", chance)
            name = f"plan{number}"
            before = time.time_ns()
            planned.append(ours.seen(daemon.inbox, name, plan(name, [[]])))
            _let_rest(daemon, name, chance)
            spawned.append((daemon.started_at([f"{name}.n0"])[0] - before) / 1e6)
    finally:
        floor.close()
        ours.close()
    rows = {"committed": Stats.of(committed, "ms"), "committed with a plan": Stats.of(planned, "ms")}
    bare = Stats.of(floors, "ms")
    return {
        "drop -> row committed": rows["committed"].json(),
        "drop -> row committed, with a plan": rows["committed with a plan"].json(),
        "drop -> turn spawned": Stats.of(spawned, "ms").json(),
        "floor: raw inotify and one commit": bare.json(),
        **{f"{name} over floor, p50": ratio(row.p50, bare.p50) for name, row in rows.items()},
    }


def _let_rest(daemon: Daemon, name: str, chance: random.Random) -> None:
    """Wait until nothing is left to do for that task, and a random while longer, to avoid a common rhythm."""
    daemon.until_ended(name, 30)
    daemon.until_quiet()
    time.sleep(chance.uniform(0.01, 0.05))


def between(starts: Sequence[int]) -> Stats:
    """Milliseconds from one turn of a chain to the next, between the starts of programs that end at once."""
    return Stats.of([(after - before) / 1e6 for before, after in itertools.pairwise(starts)], "ms")
