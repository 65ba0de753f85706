"""Counters, as the events add up to them: read once from the beginning, then only what is new."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from mailboxd.core.events import Kind
from mailboxd.core.times import to_epoch
from mailboxd.store import measuring
from mailboxd.store.measuring import Happened
from mailboxd.store.report import Report

BOUNDS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper ends of the buckets for durations, in seconds: from a turn that only acknowledges to one that takes an hour."""
NAMES = 50
"""Names of others that become values of labels; more of them are counted together as OTHER."""
OTHER = "(others)"
_KINDS = (Kind.ATTEMPT_STARTED, Kind.ATTEMPT_FINISHED, Kind.TURN_ENDED, Kind.BREAKER_OPENED, Kind.CIRCUIT_OPENED)


@dataclass(slots=True)
class Durations:
    """A histogram: how many lasted at most each bound, and all of them together."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Tally:
    """What was counted up to the event `seq`."""

    seq: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    """Finished ones, by outcome."""
    retries: int = 0
    turns: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By who was called and how it ended."""
    durations: dict[str, Durations] = field(default_factory=dict)
    """By what the turn was for."""
    tokens: Counter[str] = field(default_factory=Counter)
    cost_usd: float = 0.0
    opened: int = 0
    circuits: int = 0
    _names: set[str] = field(default_factory=set)

    def go_on(self, report: Report) -> None:
        """Count what happened since; inside a snapshot. Raises what the database raises."""
        last = report.last_event()
        while batch := list(measuring.happened(report, self.seq, _KINDS)):
            for event in batch:
                self._count(report, event)
            self.seq = batch[-1].seq
        self.seq = last

    def _count(self, report: Report, event: Happened) -> None:
        match event.kind:
            case Kind.ATTEMPT_STARTED:
                self.retries += event.data["attempt"]["ordinal"] > 1
            case Kind.ATTEMPT_FINISHED:
                self.attempts[event.data["changes"].get("status", "unknown")] += 1
            case Kind.TURN_ENDED:
                self._count_turn(report, event)
            case Kind.BREAKER_OPENED:
                self.opened += 1
            case _:
                self.circuits += 1

    def _count_turn(self, report: Report, event: Happened) -> None:
        data = event.data
        usage = data["usage"] or {}
        self.tokens["input"] += usage.get("input_tokens") or 0
        self.tokens["output"] += usage.get("output_tokens") or 0
        self.cost_usd += usage.get("cost_usd") or 0.0
        if not data["ran"]:
            return
        self.turns[self._name(data["agent"]), data["outcome"]] += 1
        ordered = measuring.ordered_at(report, event)
        if ordered is not None:
            seconds = max(to_epoch(event.at) - to_epoch(ordered), 0.0)
            self.durations.setdefault(data["turn"], Durations()).add(seconds)

    def _name(self, name: str) -> str:
        """A name as the value of a label: there is no end to what a plan may name."""
        name = name.lower()
        if name not in self._names and len(self._names) >= NAMES:
            return OTHER
        self._names.add(name)
        return name
