"""The measures in the words of Prometheus. Every metric has its row in METRICS; the documentation is made from it.

Values of labels come from closed lists (phases, outcomes, states) or are agents' names, of which there are at most
fifty. Nothing that a message says becomes a name or a label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from mailboxd.core.breaker import State
from mailboxd.core.terms import AttemptStatus
from mailboxd.health import Grade
from mailboxd.telemetry.measures import Measures
from mailboxd.telemetry.tally import BOUNDS, Durations

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
