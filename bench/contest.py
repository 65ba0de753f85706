"""The schedulers that are compared: each gets the same graph, the same concurrency and the same `/bin/true`."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.daemon import Daemon
from bench.graphs import Graph
from bench.processes import Broken
from bench.workshop import TRUE, Workshop

DRIVERS = Path(__file__).parent / "peers"


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds from the first node to the last, seconds of CPU without children, and where known the start-up time."""

    wall: float
    cpu: float | None = None
    peak_mb: float | None = None
    startup: float | None = None
    starts: tuple[int, ...] = ()


Contestant = Callable[[Workshop, Graph, int, float], Run]
"""Runs a graph with this concurrency, within this number of seconds. Raises Broken."""


def mailboxd(shop: Workshop, graph: Graph, at_once: int, seconds: float) -> Run:
    """From dropping the plan into the inbox to the reply in the outbox, with a daemon that is already running."""
    daemon = Daemon(shop, "dag", limits={"turns": at_once, "turns_per_agent": at_once})
    try:
        startup = daemon.start()
        wall, cpu = daemon.work("g", graph, seconds)
        starts = daemon.started_at([f"g.n{node}" for node in range(len(graph))])
        return Run(wall, cpu, processes.memory_mb(daemon.pid)[1], startup, tuple(starts))
    finally:
        daemon.__exit__()


def ninja(shop: Workshop, graph: Graph, at_once: int, seconds: float) -> Run:
    """Its log is not synced, and it cannot resume."""
    place = shop.place("ninja")
    lines = ["rule true", f"  command = {TRUE}"]
    lines += [f"build n{node}: true{''.join(f' n{need}' for need in needs)}" for node, needs in enumerate(graph)]
    (place / "build.ninja").write_text("\n".join(lines) + "\n")
    return _timed([shop.peers.with_name("ninja"), "--quiet", "-j", str(at_once)], place, seconds)


def doit(shop: Workshop, graph: Graph, at_once: int, seconds: float) -> Run:
    """Its state is written at the end."""
    place = shop.place("doit")
    (place / "graph.json").write_text(json.dumps(graph))
    env = {**os.environ, "BENCH_GRAPH": str(place / "graph.json"), "BENCH_TRUE": TRUE}
    argv: list[str | Path] = [
        shop.peers.with_name("doit"),
        "-f",
        DRIVERS / "dodo.py",
        "--dir",
        place,
        "--db-file",
        place / "db",
    ]
    threads = ["-n", str(at_once), "-P", "thread"] if at_once > 1 else []
    return _timed([*argv, *threads], place, seconds, env)


def _timed(argv: list[str | Path], place: Path, seconds: float, env: dict[str, str] | None = None) -> Run:
    begun = time.perf_counter()
    _, cpu = processes.timed(argv, place, seconds, env)
    return Run(time.perf_counter() - begun, cpu)


def driven(name: str) -> Contestant:
    """A scheduler that is a library: a driver in bench/peers runs it and prints how long the work took."""

    def contestant(shop: Workshop, graph: Graph, at_once: int, seconds: float) -> Run:
        place = shop.place(name)
        (place / "graph.json").write_text(json.dumps(graph))
        begun = time.perf_counter()
        out = processes.run([shop.peers, DRIVERS / f"{name}_dag.py", "graph.json", str(at_once), TRUE], place, seconds)
        whole = time.perf_counter() - begun
        said = json.loads(out.splitlines()[-1])
        return Run(said["wall"], said["cpu"], said["peak_mb"], whole - said["wall"])

    return contestant


def huey_enqueues(shop: Workshop, count: int) -> float:
    """How many tasks per second huey enqueues, each synced: the closest that a peer comes to receiving messages."""
    place = shop.place("huey")
    (place / "graph.json").write_text("[]")
    argv: list[str | Path] = [shop.peers, DRIVERS / "huey_dag.py", "graph.json", "1", TRUE, "enqueue", str(count)]
    wall = json.loads(processes.run(argv, place, 300).splitlines()[-1])["wall"]
    return float(count / wall)


QUICK: dict[str, Contestant] = {"mailboxd": mailboxd, "huey": driven("huey"), "ninja": ninja, "doit": doit}
"""These run in every repetition."""
SLOW: dict[str, Contestant] = {"luigi": driven("luigi"), "dbos": driven("dbos")}
"""These run once, in the full run."""
LEFT_OUT = {
    "prefect": "a server and 2 GB of memory at 1,000 nodes: too heavy beside everything else",
    "procrastinate": "needs a PostgreSQL",
    "snakemake, redun": "10 to 20 ms a node: minutes for each shape, far from the others",
    "luigi, dbos on 10,000 nodes": "minutes for one run",
}
KEPT = {
    "mailboxd": "hash-chained events, messages, task.md; each step is a synced commit, files follow within a second",
    "huey": "SQLite with fsync; the graph itself only in memory",
    "ninja": "a log that is not synced",
    "doit": "state written at the end",
    "luigi": "a file for each node",
    "dbos": "SQLite; the graph itself only in memory",
}
"""What survives a crash."""


def versions(shop: Workshop) -> dict[str, str]:
    """The installed versions of the peers, by name."""
    try:
        out = processes.run([shop.peers, "-m", "pip", "freeze", "--all"], shop.root, 120).decode()
    except Broken:
        out = ""
    pinned = re.findall(r"^(\w+)==", (Path(__file__).with_name("requirements.txt")).read_text(), re.MULTILINE)
    found = dict(line.split("==", 1) for line in out.splitlines() if "==" in line)
    return {name: found.get(name, "missing") for name in pinned}
