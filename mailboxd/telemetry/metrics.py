"""The measures in the words of Prometheus. Every metric has its row in METRICS; the documentation is made from it.

Values of labels come from closed lists (phases, outcomes, states) or are agents' names, of which there are at most
fifty. Nothing that a message says becomes a name or a label.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from mailboxd import health
from mailboxd.clock import Clock
from mailboxd.core.breaker import State
from mailboxd.core.events import Kind
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import AttemptStatus, Phase
from mailboxd.errors import MailboxdError
from mailboxd.health import Grade
from mailboxd.mailbox import lock
from mailboxd.mailbox.files import directory, world_errors
from mailboxd.mailbox.layout import Workspace, is_temporary
from mailboxd.store import metrics_query
from mailboxd.store.metrics_query import Happened
from mailboxd.store.reports import Report, opened

# ---------------------------------------------------------------------------------------------------------------------
# Counters, as the events add up to them: read once from the beginning, then only what is new.

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
        while batch := list(metrics_query.happened(report, self.seq, _KINDS)):
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
        ordered = metrics_query.ordered_at(report, event)
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


# ---------------------------------------------------------------------------------------------------------------------
# How a workspace stands at one moment, in numbers: what `exposition` shows.


@dataclass(frozen=True, slots=True)
class Measures:
    """One look. Ages are in seconds, 0 where nothing waits; None where nothing is known."""

    agent: str
    tally: Tally
    phases: dict[str, int]
    messages: dict[str, int]
    unjudged: int
    events: int
    running: int
    approvals: int
    blocked: int
    ages: dict[str, float]
    breakers: list[tuple[str, str, int]]
    database_bytes: int
    grade: Grade
    troubles: int
    up: bool
    scan_age: float | None


def take(ws: Workspace, agent: str, tally: Tally, clock: Clock) -> Measures:
    """Look at the workspace; `tally` goes on from where it was. Raises UnavailableError, WorldError."""
    pid, now = lock.holder(ws), clock.now()
    grade, troubles = health.read(ws, pid, now, clock.monotonic())
    scanned = health.scanned_at(ws)
    unjudged = _inbox(ws)
    with opened(ws.database) as report, report.snapshot():
        tally.go_on(report)
        unfiled = report.unfiled()
        waiting = {name: mtime for name, mtime in unjudged.items() if _storable(name) not in unfiled}
        ages = {queue: _age(since, now) for queue, since in metrics_query.oldest(report).items()}
        ages["inbox"] = max((to_epoch(now) - mtime for mtime in waiting.values()), default=0.0)
        phases = report.phases()
        return Measures(
            agent=agent,
            tally=tally,
            phases={phase: phases.get(phase, 0) for phase in Phase},
            messages=report.messages(),
            unjudged=len(waiting),
            events=report.last_event(),
            running=metrics_query.running_attempts(report),
            approvals=report.asked(),
            blocked=report.blocked_count(),
            ages={queue: max(age, 0.0) for queue, age in ages.items()},
            breakers=metrics_query.breakers(report, NAMES),
            database_bytes=_size(ws.database),
            grade=grade,
            troubles=len(troubles),
            up=pid is not None,
            scan_age=None if scanned is None else _age(scanned, now),
        )


def _age(since: str | None, now: str) -> float:
    return max(to_epoch(now) - to_epoch(since), 0.0) if since is not None else 0.0


def _inbox(ws: Workspace) -> dict[str, float]:
    """The messages that lie in the inbox, and when each was last written."""
    found = {}
    with world_errors(f"read the inbox {ws.inbox}"), directory(ws.root, "mailbox", "inbox") as fd:
        for entry in os.scandir(fd):
            if not is_temporary(entry.name):
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    return found


def _storable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _size(database: Path) -> int:
    """Bytes of the database with its log; what is gone counts nothing."""
    size = 0
    for path in (database, Path(f"{database}-wal")):
        with suppress(OSError):
            size += path.stat().st_size
    return size


def taken(ws: Workspace, agent: str, tally: Tally, clock: Clock) -> tuple[Measures | None, str]:
    """As `take`, or why nothing can be measured: an instrument that is asked again and again must not fall over."""
    try:
        return take(ws, agent, tally, clock), ""
    except MailboxdError as error:
        return None, str(error)


# ---------------------------------------------------------------------------------------------------------------------
# The measures in the words of Prometheus. Every metric has its row in METRICS; the documentation is made from it.

Samples = Iterable[tuple[tuple[str, ...], float]]
_ENDS = [status for status in AttemptStatus if status is not AttemptStatus.RUNNING]


@dataclass(frozen=True, slots=True)
class Told:
    """One metric: `labels` beside `agent`, which every metric has: whose workspace it is."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...]
    values: Callable[[Measures], Samples]


def _one(value: Callable[[Measures], float | None]) -> Callable[[Measures], Samples]:
    def samples(found: Measures) -> Samples:
        number = value(found)
        return [] if number is None else [((), float(number))]

    return samples


def _by(values: Callable[[Measures], Mapping[str, float]]) -> Callable[[Measures], Samples]:
    return lambda found: [((name,), float(value)) for name, value in values(found).items()]


METRICS: tuple[Told, ...] = (
    Told("mailboxd_build_info", "gauge", "1, for the version of mailboxd that measures.", ("version",),
         lambda _: [((version("mailboxd"),), 1.0)]),
    Told("mailboxd_up", "gauge", "Whether a daemon holds the workspace.", (), _one(lambda m: m.up)),
    Told("mailboxd_health", "gauge", "1 for the grade that the daemon's health has, 0 for the others.", ("grade",),
         lambda m: [((grade,), float(grade is m.grade)) for grade in Grade]),
    Told("mailboxd_troubles", "gauge", "Things that do not work, as the daemon notes them.", (),
         _one(lambda m: m.troubles)),
    Told("mailboxd_scan_age_seconds", "gauge", "Since the daemon last read its directories; exact to 15 s.", (),
         _one(lambda m: m.scan_age)),
    Told("mailboxd_database_bytes", "gauge", "Size of the database with its write-ahead log.", (),
         _one(lambda m: m.database_bytes)),
    Told("mailboxd_events_total", "counter", "Events on record.", (), _one(lambda m: m.events)),
    Told("mailboxd_tasks", "gauge", "Tasks and child tasks by phase.", ("phase",), _by(lambda m: m.phases)),
    Told("mailboxd_tasks_blocked", "gauge", "Tasks that go on only when somebody does something.", (),
         _one(lambda m: m.blocked)),
    Told("mailboxd_messages_received_total", "counter", "Files of the inbox that were judged.", (),
         _one(lambda m: m.messages["judged"])),
    Told("mailboxd_messages_archived_total", "counter", "Of these, those that lie in archive/.", (),
         _one(lambda m: m.messages["archived"])),
    Told("mailboxd_messages_rejected_total", "counter", "Of these, those that lie in rejected/.", (),
         _one(lambda m: m.messages["rejected"])),
    Told("mailboxd_messages_pending", "gauge",
         "Files in the inbox: not judged yet, or judged and not moved yet. received = archived + rejected + unfiled.",
         ("state",), _by(lambda m: {"unjudged": m.unjudged, "unfiled": unfiled(m)})),
    Told("mailboxd_messages_sent_total", "counter", "Messages written to outbox/.", (),
         _one(lambda m: m.messages["sent"])),
    Told("mailboxd_attempts_total", "counter", "Attempts that ended, by outcome.", ("outcome",),
         _by(lambda m: {status: m.tally.attempts[status] for status in _ENDS})),
    Told("mailboxd_attempts_running", "gauge", "Attempts that are under way.", (), _one(lambda m: m.running)),
    Told("mailboxd_retries_total", "counter", "Attempts that were not the first of their task.", (),
         _one(lambda m: m.tally.retries)),
    Told("mailboxd_turns_total", "counter", "Turns that ended, by who was called and how they ended.",
         ("called", "outcome"), lambda m: [(key, float(count)) for key, count in sorted(m.tally.turns.items())]),
    Told("mailboxd_tokens_total", "counter", "Tokens that turns used, as their runtime reported them.",
         ("direction",), _by(lambda m: {way: m.tally.tokens[way] for way in ("input", "output")})),
    Told("mailboxd_cost_usd_total", "counter", "US dollars that turns cost, as their runtime reported them.", (),
         _one(lambda m: m.tally.cost_usd)),
    Told("mailboxd_breaker", "gauge", "1 for the state of an agent's breaker, 0 for the others.",
         ("called", "state"),
         lambda m: [((agent, one), float(one == state)) for agent, state, _ in m.breakers for one in State]),
    Told("mailboxd_breaker_faults", "gauge", "Faults of an agent in a row.", ("called",),
         lambda m: [((agent,), float(faults)) for agent, _, faults in m.breakers]),
    Told("mailboxd_breaker_openings_total", "counter", "How often a breaker opened.", (),
         _one(lambda m: m.tally.opened)),
    Told("mailboxd_circuit_openings_total", "counter", "How often the circuit of a task opened.", (),
         _one(lambda m: m.tally.circuits)),
    Told("mailboxd_approvals_waiting", "gauge", "Requests that wait for a person.", (), _one(lambda m: m.approvals)),
    Told("mailboxd_queue_age_seconds", "gauge",
         "How long the oldest has waited: a file in the inbox, a judged file to be filed, a task that is ready, an "
         "effect that was ordered, a request for approval. 0 where none waits.", ("queue",), _by(lambda m: m.ages)),
)  # fmt: skip
DURATIONS = "mailboxd_turn_duration_seconds"
DURATIONS_HELP = "From the order of a turn to its end, by what it was for."


def unfiled(found: Measures) -> int:
    """Files that were judged and still lie in the inbox."""
    return found.messages["judged"] - found.messages["archived"] - found.messages["rejected"]


def text(found: Measures) -> bytes:
    """Everything in the text format of Prometheus, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(found))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, found: Measures) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        for told in METRICS:
            labels = ["agent", *told.labels]
            kind = CounterMetricFamily if told.kind == "counter" else GaugeMetricFamily
            family = kind(told.name, told.help, labels=labels)
            for values, number in told.values(self._found):
                family.add_metric([self._found.agent, *values], number)
            yield family
        yield self._durations()

    def _durations(self) -> Metric:
        family = HistogramMetricFamily(DURATIONS, DURATIONS_HELP, labels=["agent", "turn"])
        for turn, durations in sorted(self._found.tally.durations.items()):
            family.add_metric([self._found.agent, turn], list(_cumulated(durations)), durations.total)
        return family


def _cumulated(durations: Durations) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, number in zip((*map(str, BOUNDS), "+Inf"), durations.buckets, strict=True):
        count += number
        yield bound, float(count)
