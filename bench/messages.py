"""Ten thousand messages at once, a restart with that backlog, and the cost of `status` meanwhile."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from bench import contest, idle, processes
from bench.daemon import Daemon, task, until
from bench.measure import Stats, ratio
from bench.processes import Broken
from bench.workshop import MAILBOXD, Workshop, say


def measure(shop: Workshop) -> dict[str, Any]:
    """Drop tasks, which are the costliest messages, while one turn hangs: all but one form a backlog. Raises Broken."""
    size = shop.pick(2_000, 10_000)
    peer: dict[str, Any] = {}
    try:
        peer = {"huey, enqueued per second": round(contest.huey_enqueues(shop, size))}
    except Broken as problem:
        peer = {"huey, enqueued per second": str(problem)}
    daemon = Daemon(shop, "messages", hang=True, limits={"turns": 1, "turns_per_agent": 1})
    with daemon:
        names = [f"m{number}.md" for number in range(size)]
        prepare(daemon.root / "made", names)
        found = at_once(daemon, daemon.root / "made", names) | peer
        found["memory MB, peak"] = processes.memory_mb(daemon.pid)[1]
        say("messages: waiting until every task.md is written")
        begun = time.perf_counter()
        daemon.until_quiet(600)
        found["then task.md files, s"] = round(time.perf_counter() - begun, 1)
        found["restart"] = restart(shop, daemon)
        found["status"] = status(shop, daemon.root)
        found["idle"] = idle.observe(daemon, shop.pick(10, 60))
    return found


def prepare(place: Path, names: list[str]) -> None:
    """Write the messages next to the inbox, so that dropping them only takes renames."""
    place.mkdir()
    for name in names:
        (place / name).write_bytes(task(name.removesuffix(".md")))


def at_once(daemon: Daemon, made: Path, names: list[str]) -> dict[str, Any]:
    """Rename all of them into the inbox and wait until the last one has left it. Raises Broken if one is missing."""
    say(f"messages: {len(names)} at once")
    ran, begun = processes.ran(daemon.pid), time.perf_counter()
    for name in names:
        (made / name).rename(daemon.inbox / name)
    dropped = time.perf_counter() - begun
    until(lambda: not _holds(daemon.inbox), 900, daemon)
    wall = time.perf_counter() - begun
    spent = processes.ran(daemon.pid) - ran
    sql = "SELECT count(*) FROM v_messages WHERE direction = 'in' AND verdict = 'accepted' AND path LIKE 'archive/%'"
    until(lambda: not daemon.query("SELECT 1 FROM v_messages WHERE path IS NULL LIMIT 1"), 60, daemon)
    ((taken,),) = daemon.query(sql)
    archived = sum(len(files) for _, _, files in os.walk(daemon.root / "mailbox" / "archive"))
    return {
        "size": len(names),
        "dropped in s": round(dropped, 3),
        "accepted and archived in s": round(wall, 3),
        "per second": round(len(names) / wall, 1),
        "CPU µs per message": round(spent / len(names) * 1e6, 1),
        "missed": len(names) - min(taken, archived),
    }


def _holds(directory: Path) -> bool:
    with os.scandir(directory) as entries:
        return any(True for _ in entries)


def restart(shop: Workshop, daemon: Daemon) -> dict[str, Any]:
    """Kill the daemon with a backlog of open tasks; returns seconds until the next one is ready. Raises Broken."""
    ((count,),) = daemon.query("SELECT count(*) FROM v_tasks WHERE phase NOT IN ('completed', 'failed', 'cancelled')")
    say(f"restart: on {count} open tasks")
    took = []
    for _ in range(shop.pick(3, 5)):
        daemon.kill()
        took.append(daemon.start())
    return {"open tasks": count, "ready": Stats.of(took, "s").json()}


def status(shop: Workshop, root: Path) -> dict[str, Any]:
    """`mailboxd status` cold, alternating with a Python that does nothing. Raises Broken."""
    say("status: cold")
    found: dict[str, list[float]] = {}
    for _ in range(shop.pick(10, 30)):
        bare = _took([sys.executable, "-c", "pass"], root)
        ours = _took([MAILBOXD, "status"], root)
        for name, (wall, cpu) in (("mailboxd status", ours), ("python -c pass", bare)):
            found.setdefault(name, []).append(wall)
            found.setdefault(f"{name}, CPU", []).append(cpu)
        found.setdefault("difference", []).append(ours[0] - bare[0])
        found.setdefault("difference, CPU", []).append(ours[1] - bare[1])
    stats = {name: Stats.of(values, "ms") for name, values in found.items()}
    return {name: one.json() for name, one in stats.items()} | {
        "over python": ratio(stats["mailboxd status"].p50, stats["python -c pass"].p50)
    }


def _took(argv: list[str | Path], place: Path) -> tuple[float, float]:
    """Wall time and CPU, in milliseconds."""
    used, begun = _children(), time.perf_counter()
    processes.run(argv, place, 120)
    return (time.perf_counter() - begun) * 1e3, (_children() - used) * 1e3


def _children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def small_status(shop: Workshop) -> dict[str, Any]:
    """`status` with an idle daemon. Raises Broken."""
    with Daemon(shop, "status") as daemon:
        return status(shop, daemon.root)
