"""Whether a message or a completion costs more as the history grows; and a rebuild of that large database."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count, product
from pathlib import Path
from statistics import median
from typing import Any

from bench import contest, processes
from bench.daemon import Daemon, task, until
from bench.graphs import scattered
from bench.measure import ratio
from bench.processes import Broken
from bench.workshop import Workshop, say

FEW = 100
BATCH = 200
PROBES = 3
PAIRS = 15
"""Equal batches differ by up to half, depending on which of the two cores the bench runs on."""


def measure(shop: Workshop) -> dict[str, Any]:
    """Measure messages with growing history, and graphs with growing size. Raises Broken."""
    messages, completions = _messages(shop), _completions(shop)
    return {"size": completions["series"][-1]["at"], "messages": messages, "completions": completions}


# ---------------------------------------------------------------- messages


def _messages(shop: Workshop) -> dict[str, Any]:
    """Half of the messages are tasks and half cancel them, so each task ends and is answered, while one turn hangs.

    The ratio is that of two daemons in turn, one with all this behind it and one that is new: minutes lie between the
    first and the last of the series, and the host is not the same then. Leaves the workspace behind for `rebuild`.
    """
    series: list[dict[str, Any]] = []
    names = count()
    processed = 0
    with _hanging(shop, "growth", names) as daemon:
        for mark in (FEW, 1_000, 2_000) if shop.quick else (FEW, 1_000, 10_000, 100_000):
            say(f"growth: {mark} messages processed")
            while processed < mark:
                size = min(mark - processed, 2 * BATCH)
                _batch(daemon, names, size // 2)
                processed += size // 2 * 2
            series.append({"at": mark} | _each([_batch(daemon, names, BATCH // 2) for _ in range(PROBES)]))
            processed += PROBES * BATCH
        with _hanging(shop, "young", names) as young:
            _batch(young, names, FEW // 2)
            pairs = [[_batch(one, names, BATCH // 2) for one in (young, daemon)] for _ in range(PAIRS)]
        daemon.until_quiet(600)
        daemon.stop()
    shop.history = daemon
    wall, cpu = (median(old[by] / new[by] for new, old in pairs) for by in (0, 1))
    return {"series": series, "ratio": round(cpu, 3), "ratio, wall": round(wall, 3)}


@contextmanager
def _hanging(shop: Workshop, name: str, names: Iterator[int]) -> Iterator[Daemon]:
    """A daemon whose only slot is taken by a turn that hangs."""
    with Daemon(shop, name, hang=True, limits={"turns": 1, "turns_per_agent": 1}) as daemon:
        _batch(daemon, names, 1, cancel=False)
        yield daemon


def _each(probes: Iterable[tuple[float, float]]) -> dict[str, Any]:
    """The median cost per item, in wall time and CPU, over several probes."""
    wall, cpu = (round(median(of_one) * 1e6, 1) for of_one in zip(*probes, strict=True))
    return {"wall µs each": wall, "CPU µs each": cpu}


def _ratios(first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """The growth of the cost by CPU, which neighbours disturb less, and by wall time."""
    by = {"ratio": "CPU µs each", "ratio, wall": "wall µs each"}
    return {name: ratio(last[column], first[column]) for name, column in by.items()}


def _batch(daemon: Daemon, names: Iterator[int], tasks: int, *, cancel: bool = True) -> tuple[float, float]:
    """Drop tasks and then their cancels; returns wall time and CPU per message, in seconds, until all is written."""
    made = [f"t{next(names)}" for _ in range(tasks)]
    ran, begun = processes.ran(daemon.pid), time.perf_counter()
    for drop in (_drop_task, _drop_cancel) if cancel else (_drop_task,):
        for name in made:
            drop(daemon.inbox, name)
        until(lambda: not any(daemon.inbox.iterdir()), 300, daemon)
    if cancel:
        daemon.until_quiet(300)
    messages = tasks * (2 if cancel else 1)
    return (time.perf_counter() - begun) / messages, (processes.ran(daemon.pid) - ran) / messages


def _drop_task(inbox: Path, name: str) -> None:
    _rename_in(inbox, name, task(name))


def _drop_cancel(inbox: Path, name: str) -> None:
    head = f"---\ntype: cancel\ntask_id: {name}\nfrom: operator\nmessage_id: bench-cancel-{name}\n---\n\n"
    _rename_in(inbox, f"{name}-cancel", f"{head}Not wanted any more.\n".encode())


def _rename_in(inbox: Path, name: str, raw: bytes) -> None:
    hidden = inbox / f".{name}.tmp"
    hidden.write_bytes(raw)
    hidden.rename(inbox / f"{name}.md")


# ---------------------------------------------------------------- completions


def _completions(shop: Workshop) -> dict[str, Any]:
    """Measure random graphs with three edges per node, each in its own workspace, alternating between the sizes."""
    sizes = (100, 250) if shop.quick else (100, 1_000, 10_000)
    probes: dict[int, list[tuple[float, float]]] = {nodes: [] for nodes in sizes}
    for number, nodes in product(range(PROBES), sizes):
        say(f"growth: graphs of {nodes} nodes, round {number + 1}")
        for _ in range(max(1_000 // nodes, 1)):
            run = contest.mailboxd(shop, scattered(nodes, 3 * nodes), 8, 1800)
            probes[nodes].append((run.wall / nodes, (run.cpu or 0.0) / nodes))
    series = [{"at": nodes} | _each(probes[nodes]) for nodes in sizes]
    return {"series": series} | _ratios(series[0], series[-1])


# ---------------------------------------------------------------- rebuild


def rebuild(shop: Workshop) -> dict[str, Any]:
    """Rebuild twice from the files that the growing history has left. Raises Broken."""
    if shop.history is None:
        _messages(shop)
    assert shop.history is not None
    made, took = [], []
    copies = [shop.history.root / f"again{number}.db" for number in (1, 2)]
    for copy in copies:
        say(f"rebuild: {copy.name}")
        begun = time.perf_counter()
        out = shop.history.command("db", "rebuild", "--into", str(copy), "--json")
        took.append(time.perf_counter() - begun)
        made.append(json.loads(out))
    if not made[0]["messages"]:
        raise Broken("rebuild: there was nothing to rebuild from")
    return {
        "size": made[0]["messages"],
        "tasks": made[0]["tasks"],
        "first s": round(took[0], 2),
        "second s": round(took[1], 2),
        "s for 100,000 messages": round(min(took) / made[0]["messages"] * 100_000, 1),
        "differs": int(_content(copies[0]) != _content(copies[1])),
    }


def _content(database: Path) -> str:
    """A digest of all rows of all tables."""
    digest = hashlib.sha256()
    with closing(sqlite3.connect(database)) as db:
        for statement in db.iterdump():
            digest.update(statement.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
