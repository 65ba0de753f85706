"""From events to spans, after the fact: a task, an attempt, a turn, a wait for a person, a message.

    task (from the file that brought it, or its parent's task)
    ├── message task received
    ├── attempt 1 ── turn work
    │       └── task of the peer's daemon ── ...          by the `traceparent` that was sent
    ├── approval
    └── message reply sent

A span is made when its end is on record. Its ids follow from what it is about, so that making it again gives the same
span. Spans name ids, agents and outcomes, and no word of a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mailboxd.core import tracing
from mailboxd.core.events import Kind
from mailboxd.core.terms import TERMINAL, Phase
from mailboxd.store import measuring
from mailboxd.store.measuring import Family, Happened
from mailboxd.store.report import Report

KINDS = (
    Kind.TASK_TRANSITIONED, Kind.ATTEMPT_FINISHED, Kind.TURN_ENDED, Kind.APPROVAL_RESOLVED, Kind.MESSAGE_RECEIVED,
    Kind.MESSAGE_SENT,
)  # fmt: skip
Value = str | int | float | bool


class Way(StrEnum):
    """OpenTelemetry's kind of a span."""

    INTERNAL = "internal"
    CLIENT = "client"
    CONSUMER = "consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span. `began` and `ended` are ISO-8601 UTC; `problem` is a word for how it failed, empty if it did
    not."""

    name: str
    trace: str
    id: str
    parent: str
    way: Way
    began: str
    ended: str
    problem: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)


def spans(report: Report, event: Happened) -> Iterator[Span]:
    """The spans that end with this event: one or none."""
    if event.task is None or (task := measuring.family(report, event.task)) is None:
        return
    span = _MAKERS[event.kind](report, event, task)
    if span is not None:
        yield span


def _task(_: Report, event: Happened, task: Family) -> Span | None:
    phase = Phase(event.data["to"])
    if phase not in TERMINAL:
        return None
    said = tracing.parse(task.traceparent) if task.parent is None else None
    parent = tracing.span_of(task.parent) if task.parent is not None else said.span if said is not None else ""
    return Span(
        name="task",
        trace=_trace(task),
        id=tracing.span_of(task.id),
        parent=parent,
        way=Way.INTERNAL,
        began=task.created_at,
        ended=event.at,
        problem="" if phase is Phase.COMPLETED else phase.value,
        attributes=_of(task) | {"mailboxd.task.phase": phase.value, "mailboxd.task.depth": task.depth},
    )


def _attempt(report: Report, event: Happened, task: Family) -> Span | None:
    row = measuring.attempt_began(report, event.data["attempt"])
    if row is None:
        return None
    status = str(event.data["changes"].get("status", row["status"]))
    return Span(
        name="attempt",
        trace=_trace(task),
        id=tracing.span_of(event.data["attempt"]),
        parent=tracing.span_of(task.id),
        way=Way.INTERNAL,
        began=row["started_at"],
        ended=event.at,
        problem="" if status == "succeeded" else status,
        attributes=_of(task)
        | {
            "mailboxd.attempt.id": event.data["attempt"],
            "mailboxd.attempt.ordinal": row["ordinal"],
            "mailboxd.attempt.status": status,
            "mailboxd.attempt.executor": row["executor"],
            "mailboxd.attempt.runtime": row["runtime"],
        },
    )


def _turn(report: Report, event: Happened, task: Family) -> Span | None:
    data = event.data
    ordered = measuring.ordered_at(report, event)
    if ordered is None:
        return None
    usage = data["usage"] or {}
    used = {
        "gen_ai.usage.input_tokens": usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens"),
        "mailboxd.turn.cost_usd": usage.get("cost_usd"),
    }
    is_attempts = measuring.attempt_began(report, data["attempt"]) is not None
    outcome = {"mailboxd.turn.outcome": data["outcome"], "mailboxd.turn.called": data["agent"]}
    return Span(
        name=f"turn {data['turn']}",
        trace=_trace(task),
        id=tracing.span_of(task.id, "turn", str(event.seq)),
        parent=tracing.span_of(data["attempt"] if is_attempts else task.id),
        way=Way.CLIENT,
        began=ordered,
        ended=event.at,
        problem="" if data["outcome"] == "succeeded" else data["outcome"],
        attributes=_of(task) | outcome | {name: value for name, value in used.items() if value is not None},
    )


def _approval(report: Report, event: Happened, task: Family) -> Span | None:
    row = measuring.approval_asked(report, event.data["approval"])
    if row is None:
        return None
    status = str(event.data.get("changes", {}).get("status", row["status"]))
    return Span(
        name="approval",
        trace=_trace(task),
        id=tracing.span_of(event.data["approval"]),
        parent=tracing.span_of(task.id),
        way=Way.INTERNAL,
        began=row["at"],
        ended=event.at,
        problem="" if status == "approved" else status,
        attributes=_of(task)
        | {
            "mailboxd.approval.id": event.data["approval"],
            "mailboxd.approval.status": status,
            "mailboxd.approval.purpose": row["purpose"],
            "mailboxd.approval.kind": row["side_effect_kind"],
        },
    )


def _message(_: Report, event: Happened, task: Family) -> Span | None:
    row = event.data["message"]
    received = row["direction"] == "in"
    other = row.get("sender" if received else "receiver") or ""
    return Span(
        name=f"message {row.get('type') or 'plain'} {'received' if received else 'sent'}",
        trace=_trace(task),
        id=tracing.span_of(task.id, "message", row["id"]),
        parent=tracing.span_of(task.id),
        way=Way.CONSUMER if received else Way.PRODUCER,
        began=event.at,
        ended=event.at,
        attributes=_of(task)
        | {
            "messaging.system": "mailboxd",
            "messaging.message.id": row.get("message_id") or row["id"],
            "mailboxd.message.verdict": row["verdict"],
            "mailboxd.message.from" if received else "mailboxd.message.to": other,
        },
    )


_MAKERS = {
    Kind.TASK_TRANSITIONED: _task,
    Kind.ATTEMPT_FINISHED: _attempt,
    Kind.TURN_ENDED: _turn,
    Kind.APPROVAL_RESOLVED: _approval,
    Kind.MESSAGE_RECEIVED: _message,
    Kind.MESSAGE_SENT: _message,
}


def _trace(task: Family) -> str:
    return tracing.trace_of(task.root, task.root_traceparent)


def _of(task: Family) -> dict[str, Value]:
    return {"mailboxd.task.id": task.id, "mailboxd.task.local_id": task.local_id, "mailboxd.task.agent": task.executor}
