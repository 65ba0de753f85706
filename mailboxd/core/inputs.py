"""What we heard: it may be late, repeated, or a lie. `core.lifecycle.decide` turns it into events and effects.

The first half is what a turn of an agent brought back (an `Outcome`, carrying an `Answer`); the second half is
every other thing that can happen to a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.terms import Gate, Turn, Verdict
from mailboxd.core.types import Finding, Origin, Plan, PlannedChild, Policy, Spec, Usage

NO_USAGE = Usage()
NO_ORIGIN = Origin()

# ---------------------------------------------------------------- what an agent said


@dataclass(frozen=True, slots=True)
class Results:
    """The work is done. `answer` is the declared answer field, if the reply had one."""

    text: str
    answer: str = ""
    planned_actions: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The agent itself says that it failed."""

    error: str
    partial: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """The agent answered with a DAG instead of a result."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Question:
    text: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A peer's daemon has taken the dispatch and will reply by message."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The answer claims a structure (front matter, a DAG) that cannot be read; `problem` says why."""

    problem: str
    text: str


Answer = Results | Failure | Planned | Question | Acknowledged | Reviewed | Unreadable


# ---------------------------------------------------------------- how a turn ended


class Permanence(StrEnum):
    """Whether trying the same thing again can help: the split that retry needs."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The turn ended well; `text` is what the agent said."""

    text: str
    usage: Usage = NO_USAGE
    run_id: str | None = None
    session_ref: str | None = None
    truncated: bool = False
    """The runtime says the text was cut (`stopReason: length`)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn is proven to have ended without success."""

    error: str
    permanence: Permanence = Permanence.TRANSIENT
    started: bool = True
    """False: proven never to have reached the agent; costs no attempt."""
    retry_after: float = 0.0
    """Seconds before which a repetition is pointless."""
    usage: Usage = NO_USAGE
    run_id: str | None = None
    session_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """The turn was stopped by a signal of ours and is proven to have ended."""

    error: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say yet whether the turn ran or runs on. Looked up before anything is repeated."""

    error: str
    run_id: str | None = None
    looked_up: bool = False
    """True: the ledger was asked and could not tell either."""


Outcome = Succeeded | Failed | Aborted | Unknown


# ---------------------------------------------------------------- what can happen to a task


@dataclass(frozen=True, slots=True)
class NewTask:
    """Work arrived: by message, as a task.md, or through the CLI. The caller has found the local id free."""

    task_id: str
    subtask_id: str | None
    local_id: str
    sender: str
    title: str
    spec: Spec
    policy: Policy
    origin: Origin = NO_ORIGIN
    depth: int = 0
    plan: Plan | None = None
    planned_actions: str = ""
    cancelled: str = ""
    """Not empty: a cancel for this work arrived before the work did."""
    extra: tuple[tuple[str, str], ...] = ()
    sections: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Redispatch:
    """The sender gives ended work out again, with a newer attempt: a retry or rework."""

    spec: Spec
    origin: Origin
    findings: str


@dataclass(frozen=True, slots=True)
class Start:
    """The scheduler has a slot for this task."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn of ours is over. `answer` is what its text means (only for a `Succeeded` outcome)."""

    turn: Turn
    attempt_id: str
    agent: str
    outcome: Outcome
    answer: Answer | None = None
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A message about an attempt that was given to a peer: results, failure, plan, question, ack or progress."""

    sender: str
    answer: Answer | Progress
    attempt_id: str | None = None
    reply_token: str | None = None
    older_attempt: bool = False
    """`attempt_id` names an earlier attempt of this very task."""
    ordinal: int | None = None
    """The attempt's ordinal, where the sender gives that instead of its id."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A heartbeat or checkpoint: extends the lease."""

    note: str


@dataclass(frozen=True, slots=True)
class Clarification:
    """An `answer` to a question this task asked. `ends` = the body was exactly REPLY_SKIP."""

    sender: str
    text: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Steer:
    """New instructions from whoever gave the work."""

    sender: str
    text: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """The operator, the sender or the parent no longer wants the work."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """The operator runs failed work again, keeping every good result."""

    instructions: str = ""


class Remedy(StrEnum):
    RETRY = "retry"
    ACCEPT = "accept"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Unblock:
    """The operator decides what an open circuit becomes."""

    remedy: Remedy
    note: str = ""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The moment in `task.due` has come."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A legal edit of the task's task.md by a person or by the agent in its turn."""

    added: tuple[PlannedChild, ...] = ()
    notes: str | None = None
    results: str | None = None
    instructions: str | None = None
    sections: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class ChildEdited:
    """A pending child was rewritten in its parent's task.md; `needs` are the ids of what it now depends on."""

    planned: PlannedChild
    needs: tuple[str, ...]


Input = (
    NewTask
    | Redispatch
    | Start
    | TurnEnded
    | Reply
    | Clarification
    | Steer
    | Cancel
    | Retry
    | Unblock
    | TimePassed
    | Edited
    | ChildEdited
)
