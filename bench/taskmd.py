"""A plan with thousands of children: accepting it, rendering task.md, and the query for ready work."""

from __future__ import annotations

import time
from typing import Any

from bench import processes
from bench.daemon import Daemon, plan, until
from bench.graphs import scattered
from bench.measure import Stats
from bench.workshop import Workshop, drop, say
from mailboxd.host.clock import SystemClock
from mailboxd.ledger.database import connect
from mailboxd.ledger.store import Store


def measure(shop: Workshop) -> dict[str, Any]:
    """Measure with turns that hang, so that the graph does not change. Raises Broken."""
    nodes = shop.pick(2_000, 10_000)
    say(f"taskmd: a plan of {nodes} children")
    with Daemon(shop, "taskmd", hang=True) as daemon:
        begun = time.perf_counter()
        drop(daemon.inbox, "large.md", plan("large", scattered(nodes, 3 * nodes)))
        until(lambda: daemon.query("SELECT 1 FROM v_tasks WHERE local_id = 'large'"), 600, daemon)
        taken = time.perf_counter() - begun
        file = daemon.root / "tasks" / "large" / "task.md"
        until(file.exists, 600, daemon)
        daemon.until_quiet(600)
        return {
            "size": nodes,
            "drop -> all tasks committed, s": round(taken, 2),
            "task.md, bytes": file.stat().st_size,
            "task.md written again after it was removed": _written_again(shop, daemon).json(),
            "ready query": _ready(daemon).json(),
            "memory MB, peak": processes.memory_mb(daemon.pid)[1],
        }


def _written_again(shop: Workshop, daemon: Daemon) -> Stats:
    """Seconds from removing the file to its complete replacement."""
    file = daemon.root / "tasks" / "large" / "task.md"
    took = []
    for _ in range(shop.pick(3, 5)):
        time.sleep(0.5)
        begun = time.perf_counter()
        file.unlink()
        until(file.exists, 120, daemon, pause=0.005)
        took.append(time.perf_counter() - begun)
        daemon.until_quiet(120)
    return Stats.of(took, "s")


def _ready(daemon: Daemon) -> Stats:
    """The query that the scheduler makes after each completion, made here on its database."""
    now, store = SystemClock().now(), Store(connect(daemon.database, read_only=True))
    took = []
    try:
        for _ in range(300):
            begun = time.perf_counter()
            list(store.schedule.ready(now, 8))
            took.append((time.perf_counter() - begun) * 1e3)
    finally:
        store.db.close()
    return Stats.of(took, "ms")
