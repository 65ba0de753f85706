"""What a daemon costs that has nothing to do."""

from __future__ import annotations

import time
from typing import Any

from bench import processes
from bench.daemon import Daemon
from bench.graphs import fan
from bench.workshop import Workshop, say


def measure(shop: Workshop) -> dict[str, Any]:
    """After a little work: processor, wake-ups and memory. Raises Broken."""
    with Daemon(shop, "idle") as daemon:
        daemon.work("before", fan(20), 120)
        return observe(daemon, shop.pick(35, 120))


def observe(daemon: Daemon, seconds: int) -> dict[str, Any]:
    """Watch it from outside. Raises Broken when it does not become quiet."""
    say(f"idle: {seconds} s")
    daemon.until_quiet()
    time.sleep(2)  # what it tidies up after its work belongs to the work
    loop = str(daemon.pid)
    ran, slept, begun = processes.run_ns(daemon.pid), processes.switches(daemon.pid), time.perf_counter()
    turned = processes.switches(daemon.pid, loop)
    time.sleep(seconds)
    passed = time.perf_counter() - begun
    now, most = processes.memory_mb(daemon.pid)
    return {
        "seconds": seconds,
        "CPU %": round((processes.run_ns(daemon.pid) - ran) / 1e9 / passed * 100, 4),
        "wake-ups of the loop per minute": round((processes.switches(daemon.pid, loop) - turned) / passed * 60, 1),
        "wake-ups per minute": round((processes.switches(daemon.pid) - slept) / passed * 60, 1),
        "memory MB": now,
        "memory MB, peak": most,
    }
