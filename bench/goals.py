"""The goals, and whether a run meets them; ratios wherever absolute times depend on the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """A number, read from the parts of a run by `measured`, that must be at most (`at_least`: at least) the limit.

    It raises KeyError where the run did not measure it.
    """

    part: str
    what: str
    limit: float
    unit: str
    measured: Callable[[Mapping[str, Any]], float | None]
    at_least: bool = False


def _in(*path: str) -> Callable[[Mapping[str, Any]], float | None]:
    def read(parts: Mapping[str, Any]) -> float | None:
        value: Any = parts
        for key in path:
            value = value[key]
        return None if value is None else float(value)

    return read


def _own_cpu(shape: str) -> Callable[[Mapping[str, Any]], float | None]:
    def read(parts: Mapping[str, Any]) -> float:
        ours, theirs = (parts[shape]["contestants"][who]["own CPU µs per node"] for who in ("mailboxd", "huey"))
        return float(ours / theirs)

    return read


_OVER_HUEY = {
    "chain": (2.5, 3.0), "fan": (2.0, 1.5), "random": (2.7, 2.0), "layered": (2.7, 2.0), "large": (2.7, 2.0),
    "chain on tmpfs": (2.5, 3.0), "fan on tmpfs": (2.0, 1.5), "random on tmpfs": (2.7, 2.0),
}  # fmt: skip
"""The most that a node may cost in wall time and in CPU, by the shape of its graph (decision 8)."""
_COMMITTED, _SPAWNED = ("latency", "drop -> row committed"), ("latency", "drop -> turn spawned")

GOALS = (
    Goal("latency", "drop to row committed, p50, over the floor of the same run", 3.0, "x",
         _in("latency", "committed over floor, p50")),
    Goal("latency", "the same of a task with a plan, p50, over that floor", 4.0, "x",
         _in("latency", "committed with a plan over floor, p50")),
    Goal("latency", "drop to row committed, p99", 25.0, "ms", _in(*_COMMITTED, "p99")),
    Goal("latency", "drop to turn spawned, p50", 8.0, "ms", _in(*_SPAWNED, "p50")),
    Goal("latency", "drop to turn spawned, p99", 50.0, "ms", _in(*_SPAWNED, "p99")),
    *(
        Goal(shape, f"overhead per subtask, {shape} of {{n}}, over huey's", wall, "x",
             _in(shape, "contestants", "mailboxd", "over huey"))
        for shape, (wall, _) in _OVER_HUEY.items()
    ),
    *(
        Goal(shape, f"own CPU per subtask, {shape} of {{n}}, over huey's", cpu, "x", _own_cpu(shape))
        for shape, (_, cpu) in _OVER_HUEY.items()
    ),
    Goal("messages", "{n} messages at once, per second", 2000.0, "/s", _in("messages", "per second"), at_least=True),
    Goal("messages", "{n} messages at once, missed", 0.0, "", _in("messages", "missed")),
    Goal("messages", "restart with {n} open tasks until ready, p50", 1.0, "s",
         _in("messages", "restart", "ready", "p50")),
    Goal("growth", "cost per message, largest over smallest history", 1.2, "x", _in("growth", "messages", "ratio")),
    Goal("growth", "cost per completion, {n} over 100 nodes", 1.2, "x", _in("growth", "completions", "ratio")),
    Goal("rebuild", "rebuild, for 100,000 messages (measured with {n})", 10.0, "s",
         _in("rebuild", "s for 100,000 messages")),
    Goal("rebuild", "rebuild, a second time: differences", 0.0, "", _in("rebuild", "differs")),
    Goal("idle", "idle, CPU", 0.03, "%", _in("idle", "CPU %")),
    Goal("idle", "idle, resident memory", 45.0, "MB", _in("idle", "memory MB")),
    Goal("host", "twelve agents of a host at rest, by `run --all`, PSS", 500.0, "MB",
         _in("host", "12 agents by run --all", "at rest", "PSS MB")),
    Goal("idle", "idle, wake-ups in a minute", 4.0, "", _in("idle", "wake-ups per minute")),
    Goal("status", "status, cold, over `python -c pass`", 80.0, "ms", _in("status", "difference", "p50")),
    Goal("messages", "status, cold, with {n} open tasks, over `python -c pass`", 80.0, "ms",
         _in("messages", "status", "difference", "p50")),
    Goal("taskmd", "what is ready, asked at {n} nodes", 1.0, "ms", _in("taskmd", "ready query", "p50")),
    Goal("openclaw", "rate of turns by the real openclaw, over its own best", 0.95, "x",
         _in("openclaw", "rate over its own"), at_least=True),
    Goal("openclaw", "our CPU over that of openclaw", 0.02, "x", _in("openclaw", "CPU over its own")),
)  # fmt: skip


def judge(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each goal with the measured number and whether it is met; goals of parts that were not run are left out."""
    found = []
    for goal in GOALS:
        try:
            value, size = goal.measured(parts), parts[goal.part].get("size", 0)
        except (KeyError, TypeError):
            continue
        met = None if value is None else (value >= goal.limit if goal.at_least else value <= goal.limit)
        sign = ">=" if goal.at_least else "<="
        row = {
            "part": goal.part,
            "what": goal.what.format(n=f"{size:,}"),
            "goal": f"{sign} {goal.limit:g} {goal.unit}".strip(),
        }
        found.append(row | {"measured": value, "met": met})
    return found
