"""The cost of an idle daemon.

A wake-up ends a sleep of the whole process, however many of its threads take part and however often each of them
blocks before all sleep again. Blocking calls alone do not measure that: a single timer wake-up has five to ten of them,
because the threads pass the interpreter lock to each other and wait for the disk. They are shown as well.
"""

from __future__ import annotations

import time
from typing import Any

from bench import processes
from bench.daemon import Daemon
from bench.graphs import fan
from bench.workshop import Workshop, say

_LOOK = 0.02
_TIDIED = 15.0
"""Seconds within which it has tidied up after its work: the index of the day is written again after ten."""


def measure(shop: Workshop) -> dict[str, Any]:
    """Measure CPU, wake-ups and memory after a little work. Raises Broken."""
    with Daemon(shop, "idle") as daemon:
        daemon.work("before", fan(20), 120)
        return observe(daemon, shop.pick(35, 120))


def observe(daemon: Daemon, seconds: int) -> dict[str, Any]:
    """Watch the daemon from outside. Raises Broken if it does not become quiet."""
    say(f"idle: {seconds} s")
    daemon.until_quiet()
    time.sleep(_TIDIED)
    ran, slept, begun = processes.ran(daemon.pid), processes.switches(daemon.pid), time.perf_counter()
    awoken = _wake_ups(daemon.pid, begun + seconds)
    passed = time.perf_counter() - begun
    now, most = processes.memory_mb(daemon.pid)
    return {
        "seconds": seconds,
        "CPU %": round((processes.ran(daemon.pid) - ran) / passed * 100, 4),
        "wake-ups per minute": round(awoken / passed * 60, 1),
        "blocking calls per minute": round((processes.switches(daemon.pid) - slept) / passed * 60, 1),
        "memory MB": now,
        "memory MB, peak": most,
    }


def _wake_ups(pid: int, until: float) -> int:
    """How often it woke up until that time, seen from outside; activity within one `_LOOK` counts as one wake-up."""
    count, before, was_awake = 0, processes.switches(pid), False
    while time.perf_counter() < until:
        time.sleep(_LOOK)
        now = processes.switches(pid)
        is_awake, before = now != before, now
        count += is_awake and not was_awake
        was_awake = is_awake
    return count
