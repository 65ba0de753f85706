"""The metrics of a workspace for Prometheus. METRICS has one row per metric; docs/observability.md is generated.

Label values come from closed sets (phases, outcomes, states) or are agent names, at most fifty of them. No content of a
message becomes a name or a label.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from mailboxd.core.breaker import BreakerState
from mailboxd.core.events import Kind
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import AttemptStatus, Phase
from mailboxd.formats import health
from mailboxd.formats.health import Grade
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import Clock
from mailboxd.ledger import metrics_queries
from mailboxd.ledger.metrics_queries import LoggedEvent
from mailboxd.ledger.reports import Report, opened

BOUNDS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds of the duration buckets in seconds: from a turn that only acknowledges to one that takes an hour."""
NAMES = 50
"""How many agent names become label values; all further ones are counted as OTHER."""
OTHER = "(others)"
_KINDS = (Kind.ATTEMPT_STARTED, Kind.ATTEMPT_ENDED, Kind.TURN_ENDED, Kind.BREAKER_OPENED, Kind.CIRCUIT_OPENED)


@dataclass(slots=True)
class Durations:
    """A histogram: a count per bucket, and the total in seconds."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Counters:
    """Counters folded from the events up to `seq`: the first update reads all events, later ones only the new ones."""

    seq: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    """Finished attempts by outcome."""
    retries: int = 0
    turns: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Finished turns by agent and outcome."""
    durations: dict[str, Durations] = field(default_factory=dict)
    """Durations by the purpose of the turn."""
    tokens: Counter[str] = field(default_factory=Counter)
    cost_usd: float = 0.0
    opened: int = 0
    circuits: int = 0
    _names: set[str] = field(default_factory=set)

    def update(self, report: Report) -> None:
        """Count the events since the last update. Call it inside a snapshot. Raises what the database raises."""
        last = report.last_event()
        while batch := list(metrics_queries.events_after(report, self.seq, _KINDS)):
            for event in batch:
                self._count(report, event)
            self.seq = batch[-1].seq
        self.seq = last

    def _count(self, report: Report, event: LoggedEvent) -> None:
        match event.kind:
            case Kind.ATTEMPT_STARTED:
                self.retries += event.data["attempt"]["ordinal"] > 1
            case Kind.ATTEMPT_ENDED:
                self.attempts[event.data["attempt_changes"]["status"]] += 1
            case Kind.BREAKER_OPENED:
                self.opened += 1
            case Kind.CIRCUIT_OPENED:
                self.circuits += 1
        if "turn" in event.data:
            self._count_turn(report, event)

    def _count_turn(self, report: Report, event: LoggedEvent) -> None:
        turn = event.data["turn"]
        usage = turn["usage"] or {}
        self.tokens["input"] += usage.get("input_tokens") or 0
        self.tokens["output"] += usage.get("output_tokens") or 0
        self.cost_usd += usage.get("cost_usd") or 0.0
        if not turn["ran"]:
            return
        self.turns[self._name(turn["agent"]), turn["outcome"]] += 1
        ordered = metrics_queries.ordered_at(report, event)
        if ordered is not None:
            seconds = max(to_epoch(event.at) - to_epoch(ordered), 0.0)
            self.durations.setdefault(turn["purpose"], Durations()).add(seconds)

    def _name(self, name: str) -> str:
        """The label value for an agent name. Bounded, since plans may name any number of agents."""
        name = name.lower()
        if name not in self._names and len(self._names) >= NAMES:
            return OTHER
        self._names.add(name)
        return name


@dataclass(frozen=True, slots=True)
class Source:
    """What metrics are read from: a snapshot of the database, and what was seen of the workspace just before."""

    ws: Workspace
    report: Report
    counters: Counters
    now: str
    pid: int | None
    grade: Grade
    troubles: int
    messages: Mapping[str, int]
    breakers: Sequence[tuple[str, str, int]]
    """Each agent with the state of its breaker and its consecutive faults."""
    inbox: Mapping[str, float]
    """Files that were not processed yet, and when they were written."""

    @property
    def unarchived(self) -> int:
        """Processed files that are still in the inbox."""
        return self.messages["judged"] - self.messages["archived"] - self.messages["rejected"]

    @property
    def ages(self) -> dict[str, float]:
        """Seconds since the oldest entry of each queue came; 0 if nothing waits there."""
        ages = {name: _age(since, self.now) for name, since in metrics_queries.oldest_waiting(self.report).items()}
        written = min(self.inbox.values(), default=None)
        return ages | {"inbox": 0.0 if written is None else max(to_epoch(self.now) - written, 0.0)}

    @property
    def scan_age(self) -> float | None:
        scanned = health.scanned_at(self.ws)
        return None if scanned is None else _age(scanned, self.now)


def _age(since: str | None, now: str) -> float:
    return max(to_epoch(now) - to_epoch(since), 0.0) if since is not None else 0.0


def _size(database: Path) -> int:
    """Bytes of the database and its write-ahead log."""
    size = 0
    for path in (database, Path(f"{database}-wal")):
        with suppress(OSError):
            size += path.stat().st_size
    return size


_OUTCOMES = [status for status in AttemptStatus if status is not AttemptStatus.RUNNING]
Samples = Mapping[Any, float]
"""Numbers by the value of their label, or by the tuple of the values."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. Every metric also has the label `agent`, the owner of the workspace, beside `labels`."""

    name: str
    help: str
    value: Callable[[Source], float | Samples | None]
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"

    def samples(self, source: Source) -> Iterator[tuple[tuple[str, ...], float]]:
        value = self.value(source)
        if isinstance(value, Mapping):
            for key, number in value.items():
                yield key if isinstance(key, tuple) else (key,), float(number)
        elif value is not None:
            yield (), float(value)


METRICS: tuple[Definition, ...] = (
    Definition(
        "mailboxd_build_info",
        "Always 1; the label is the version of mailboxd.",
        lambda _: {version("mailboxd"): 1},
        ("version",),
    ),
    Definition("mailboxd_up", "Whether a daemon runs in the workspace.", lambda s: s.pid is not None),
    Definition(
        "mailboxd_health",
        "1 for the grade of the daemon's health, 0 for the others.",
        lambda s: {grade: grade is s.grade for grade in Grade},
        ("grade",),
    ),
    Definition("mailboxd_troubles", "Problems that the daemon reports.", lambda s: s.troubles),
    Definition(
        "mailboxd_scan_age_seconds",
        "Seconds since the daemon last scanned its directories; exact to 15 s.",
        lambda s: s.scan_age,
    ),
    Definition(
        "mailboxd_database_bytes", "Size of the database and its write-ahead log.", lambda s: _size(s.ws.database)
    ),
    Definition("mailboxd_events_total", "Events on record.", lambda s: s.report.last_event()),
    Definition(
        "mailboxd_tasks",
        "Tasks and subtasks by phase.",
        lambda s: dict.fromkeys(Phase, 0) | s.report.phases(),
        ("phase",),
    ),
    Definition(
        "mailboxd_tasks_blocked",
        "Tasks that need attention: they continue only after an operator acts.",
        lambda s: metrics_queries.waiting_for_person(s.report),
    ),
    Definition(
        "mailboxd_messages_received_total",
        "Files from the inbox that were processed.",
        lambda s: s.messages["judged"],
    ),
    Definition(
        "mailboxd_messages_archived_total",
        "Processed files that are in archive/.",
        lambda s: s.messages["archived"],
    ),
    Definition(
        "mailboxd_messages_rejected_total",
        "Processed files that are in rejected/.",
        lambda s: s.messages["rejected"],
    ),
    Definition(
        "mailboxd_messages_pending",
        "Files in the inbox: not processed yet (unprocessed), or processed but not moved yet (unarchived). "
        "received = archived + rejected + unarchived.",
        lambda s: {"unprocessed": len(s.inbox), "unarchived": s.unarchived},
        ("state",),
    ),
    Definition("mailboxd_messages_sent_total", "Messages written to outbox/.", lambda s: s.messages["sent"]),
    Definition(
        "mailboxd_attempts_total",
        "Finished attempts by outcome.",
        lambda s: {status: s.counters.attempts[status] for status in _OUTCOMES},
        ("outcome",),
    ),
    Definition(
        "mailboxd_attempts_running", "Attempts in progress.", lambda s: metrics_queries.running_attempts(s.report)
    ),
    Definition("mailboxd_retries_total", "Attempts after the first one of a task.", lambda s: s.counters.retries),
    Definition(
        "mailboxd_turns_total",
        "Finished turns by agent and outcome.",
        lambda s: dict(sorted(s.counters.turns.items())),
        ("called", "outcome"),
    ),
    Definition(
        "mailboxd_tokens_total",
        "Tokens used by turns, as reported by their runtime.",
        lambda s: {way: s.counters.tokens[way] for way in ("input", "output")},
        ("direction",),
    ),
    Definition(
        "mailboxd_cost_usd_total",
        "Cost of turns in US dollars, as reported by their runtime.",
        lambda s: s.counters.cost_usd,
    ),
    Definition(
        "mailboxd_breaker",
        "1 for the state of an agent's circuit breaker, 0 for the others.",
        lambda s: {(agent, one): one == state for agent, state, _ in s.breakers for one in BreakerState},
        ("called", "state"),
    ),
    Definition(
        "mailboxd_breaker_faults",
        "Consecutive faults of an agent.",
        lambda s: {agent: faults for agent, _, faults in s.breakers},
        ("called",),
    ),
    Definition(
        "mailboxd_breaker_openings_total",
        "How often the circuit breaker of an agent opened.",
        lambda s: s.counters.opened,
    ),
    Definition(
        "mailboxd_circuit_openings_total",
        "How often the circuit of a task opened.",
        lambda s: s.counters.circuits,
    ),
    Definition(
        "mailboxd_approvals_waiting",
        "Approval requests that wait for a person.",
        lambda s: s.report.pending_approvals(),
    ),
    Definition(
        "mailboxd_queue_age_seconds",
        "Age of the oldest entry of each queue: a file in the inbox, a processed file to be moved, a ready task, an "
        "ordered effect, an approval request. 0 if the queue is empty.",
        lambda s: s.ages,
        ("queue",),
    ),
)
DURATIONS = "mailboxd_turn_duration_seconds"
DURATIONS_HELP = "From the order of a turn to its end, by its purpose."


def text(ws: Workspace, agent: str, counters: Counters, clock: Clock) -> bytes:
    """All metrics of a workspace in Prometheus' text format, version 0.0.4; updates `counters`.

    Raises UnavailableError, WorldError.
    """
    pid, now, inbox = lock.holder(ws), clock.now(), ws.mail()
    grade, troubles = health.read(ws, pid, now, clock.monotonic())
    with opened(ws.database) as report, report.snapshot():
        counters.update(report)
        unfiled = report.unfiled()
        waiting = {name: written for name, written in inbox.items() if name not in unfiled}
        messages, breakers = report.messages(), metrics_queries.breakers(report, NAMES)
        source = Source(ws, report, counters, now, pid, grade, len(troubles), messages, breakers, waiting)
        families = [_family(definition, agent, source) for definition in METRICS]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*families, _durations(agent, counters)]))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families


def _family(definition: Definition, agent: str, source: Source) -> Metric:
    kind = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
    family = kind(definition.name, definition.help, labels=["agent", *definition.labels])
    for values, number in definition.samples(source):
        family.add_metric([agent, *values], number)
    return family


def _durations(agent: str, counters: Counters) -> Metric:
    family = HistogramMetricFamily(DURATIONS, DURATIONS_HELP, labels=["agent", "turn"])
    for turn, durations in sorted(counters.durations.items()):
        family.add_metric([agent, turn], list(_cumulated(durations)), durations.total)
    return family


def _cumulated(durations: Durations) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), durations.buckets, strict=True):
        count += number
        yield bound, float(count)
