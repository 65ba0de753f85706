"""Compared with the real openclaw: turns made by its command line alone and by mailboxd, four at once.

Uses the installation of the live tests, a gateway of its own, and a model that answers at once.
"""

from __future__ import annotations

import resource
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.daemon import Daemon
from bench.graphs import Graph
from bench.measure import ratio
from bench.processes import Broken
from bench.workshop import Workshop, say
from mailboxd.perform.agents.openclaw import OpenClaw
from tests.live.gateway import Gateway, run_of
from tests.live.install import standard
from tests.live.model import Model

AT_ONCE = 4


def measure(shop: Workshop) -> dict[str, Any]:
    """In turn: the command line alone, then mailboxd. The best rate of each counts, of several rounds: the rate of the
    very same turns differs by a tenth from one to the next. Raises Broken.
    """
    if not standard().openclaw.exists():
        raise Broken("the real openclaw is not installed: python -m tests.live.install (1 GB)")
    turns, rounds = shop.pick(12, 24), shop.pick(2, 4)
    place = shop.place("real")
    with Model() as model:
        gateway = Gateway(place, model.url, run_of(["alpha", "beta"]))
        try:
            say("openclaw: starting a gateway")
            gateway.start()
            _alone(gateway, place, 2, "warm")  # the first turn of a gateway is slow for whoever asks
            found = [_round(shop, gateway, place, turns, number) for number in range(rounds)]
        except AssertionError as problem:
            raise Broken(f"openclaw: {problem}") from problem
        finally:
            gateway.close()
    best = max(one["openclaw alone, turns/s"] for one in found)
    ours = max(one["by mailboxd, turns/s"] for one in found)
    cpu = min(one["mailboxd's CPU over openclaw's"] for one in found)
    return {"turns": turns, "rounds": found, "rate over its own": ratio(ours, best), "CPU over its own": cpu}


def _round(shop: Workshop, gateway: Gateway, place: Path, turns: int, number: int) -> dict[str, Any]:
    def alone() -> tuple[float, float]:
        say(f"openclaw: {turns} turns alone, {AT_ONCE} at once")
        return _alone(gateway, place, turns, f"round{number}")

    def by_mailboxd() -> tuple[float, float]:
        say(f"openclaw: {turns} turns by mailboxd")
        return _by_mailboxd(shop, gateway, turns)

    if number % 2:  # who comes second finds a gateway with more sessions
        (ours, own), (wall, cpu) = by_mailboxd(), alone()
    else:
        (wall, cpu), (ours, own) = alone(), by_mailboxd()
    return {
        "openclaw alone, turns/s": round(turns / wall, 3),
        "by mailboxd, turns/s": round(turns / ours, 3),
        "openclaw's CPU s per turn": round(cpu / turns, 3),
        "mailboxd's CPU s per turn": round(own / turns, 4),
        "mailboxd's CPU over openclaw's": round(own / cpu, 4),
    }


def _alone(gateway: Gateway, place: Path, turns: int, name: str) -> tuple[float, float]:
    """Seconds, and of CPU of the programs (not of the gateway)."""
    openclaw = OpenClaw((str(gateway.installation.openclaw),))

    def one(number: int) -> None:
        file = place / f"{name}-{number}.md"
        file.write_text("Say something.\n")
        argv = openclaw.turn_argv("beta", f"agent:beta:bench:{name}-{number}", file, 300)
        subprocess.run(argv, cwd=place, env=gateway.env, stdin=subprocess.DEVNULL, capture_output=True, check=True)

    before, begun = _spent(), time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(turns)))
    return time.perf_counter() - begun, _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _by_mailboxd(shop: Workshop, gateway: Gateway, turns: int) -> tuple[float, float]:
    """Seconds from the drop of a plan to the reply, and of the daemon's own CPU."""
    limits = {"turns": AT_ONCE, "turns_per_agent": AT_ONCE}
    daemon = Daemon(shop, "real", limits=limits, env=gateway.env, command=[str(gateway.installation.openclaw)])
    graph: Graph = [[] for _ in range(turns)]
    with daemon:
        return daemon.work("g", graph, 600)
