"""Graphs of tasks that do nothing, so that the remaining time is the cost of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench import contest, graphs
from bench.contest import Contestant, Run
from bench.graphs import Graph
from bench.latency import between
from bench.measure import Stats, ratio
from bench.processes import Broken
from bench.workshop import TRUE, Workshop, bare_spawn, say

LIMIT = 900.0
"""Seconds after which a run is given up."""


def part(name: str, *, on_tmpfs: bool = False) -> Callable[[Workshop], dict[str, Any]]:
    """The part that measures one shape: in each repetition all take turns. A failure is reported and skipped.

    On tmpfs a sync costs nothing, so what remains is the programs themselves.
    """

    def measure(shop: Workshop) -> dict[str, Any]:
        if on_tmpfs:
            with shop.on_tmpfs() as there:
                return compare(there)
        return compare(shop)

    def compare(shop: Workshop) -> dict[str, Any]:
        large = name == "large"
        graph = graphs.SHAPES[name](10_000 if large else shop.pick(250, 1_000))
        at_once = graphs.jobs(name)
        repeats = 1 if large else shop.pick(1, 3)
        once: Mapping[str, Contestant] = {} if shop.quick or large or on_tmpfs else contest.SLOW
        runs: dict[str, list[float]] = {}
        rest: dict[str, dict[str, Any]] = {}
        floors: list[float] = []
        extra: dict[str, Any] = {}
        for repeat in range(repeats):
            floor = bare_spawn([TRUE], 1000, at_once)
            ours = bare_spawn([str(shop.agent)], 1000, at_once)
            floors.append(floor * 1e6)
            for who, contestant in {**contest.QUICK, **(once if repeat == 0 else {})}.items():
                done = _attempt(shop, who, contestant, name, graph, at_once, rest)
                if done is not None:
                    bare = ours if who == "mailboxd" else floor
                    runs.setdefault(who, []).append((done.wall / len(graph) - bare) * 1e6)
                    _note(rest.setdefault(who, {}), done, len(graph))
                    if at_once == 1 and done.starts:
                        extra["completion -> next dispatch"] = between(done.starts).json()
        return {"size": len(graph), "edges": sum(map(len, graph)), "at once": at_once} | extra | {
            "bare process": Stats.of(floors, "µs").json(),
            "contestants": {who: _row(who, rest[who], runs) for who in rest},
        }  # fmt: skip

    return measure


def _attempt(
    shop: Workshop,
    who: str,
    contestant: Contestant,
    name: str,
    graph: Graph,
    at_once: int,
    rest: dict[str, dict[str, Any]],
) -> Run | None:
    say(f"{name}: {who}")
    try:
        return contestant(shop, graph, at_once, LIMIT)
    except Broken as problem:
        say(f"{name}: {problem}")
        rest.setdefault(who, {})["problem"] = str(problem)
        return None


def _note(row: dict[str, Any], done: Run, nodes: int) -> None:
    """Keep the least CPU, the most memory and the shortest start-up of several runs."""
    row["wall s"] = round(min(row.get("wall s", done.wall), done.wall), 3)
    if done.cpu is not None:
        row["own CPU µs per node"] = round(min(row.get("own CPU µs per node", 1e12), done.cpu / nodes * 1e6), 1)
    if done.peak_mb is not None:
        row["peak MB"] = max(row.get("peak MB", 0.0), done.peak_mb)
    if done.startup is not None:
        row["start-up s"] = round(min(row.get("start-up s", 1e9), done.startup), 3)


def _row(who: str, rest: Mapping[str, Any], runs: Mapping[str, list[float]]) -> dict[str, Any]:
    found = dict(rest)
    if who in runs:
        found["overhead"] = Stats.of(runs[who], "µs").json()
        if "huey" in runs:
            found["over huey"] = ratio(Stats.of(runs[who], "µs").p50, Stats.of(runs["huey"], "µs").p50)
    return found
