"""What we heard: it may be late, repeated, or a lie. `core.decide` turns it into events and effects.

What an agent said in a turn, and how that turn ended, is in `core.outcomes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.approvals import OfApproval
from mailboxd.core.model import NO_USAGE, Finding, Origin, Plan, PlannedChild, Policy, Spec, Usage
from mailboxd.core.outcomes import Answer, Made, Outcome
from mailboxd.core.vocabulary import CheckVerdict, Gate, Turn, Verdict

# ---------------------------------------------------------------------------------------------------------------------
# What a caller of a typed tool says for itself: inputs as those of `core.inputs`, each with a row in `core.roles`.


class ReviewKind(StrEnum):
    """Which of the two reviews a verdict is; `spec` is for both gates that compare with the specification."""

    SPEC = "spec"
    QUALITY = "quality"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The caller is at work: extends the lease of the attempt. `attempt_id`: the one that is meant, as a fence."""

    note: str
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class FileMade:
    """A file below the workspace is evidence; the entrance has read it and computed `sha256` itself."""

    kind: str
    uri: str
    sha256: str
    summary: str = ""
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReviewGiven:
    """A reviewer's verdict, given before (or instead of) the answer of its turn."""

    kind: ReviewKind
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """Stop trying, and wait for the operator."""

    reason: str


ByTool = Checkpoint | FileMade | ReviewGiven | OpenCircuit


# ---------------------------------------------------------------------------------------------------------------------
# What we heard: it may be late, repeated, or a lie. `core.decide` turns it into events and effects.

NO_ORIGIN = Origin()


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
    deadline: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """The scheduler has a slot for this task.

    `begun`: it was begun before the database was lost, as its call or the message that gave it out shows, so what it
    needs was there then.
    """

    begun: bool = False


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn of ours is over. `answer` is what its text means (only for a `Succeeded` outcome)."""

    turn: Turn
    attempt_id: str
    agent: str
    outcome: Outcome
    answer: Answer | None = None
    gate: Gate | None = None
    called: bool = True
    """False: nobody was called for it. It was composed here, or its message could not be sent."""
    made: tuple[Made, ...] = ()
    harness: str = ""
    """Who took the turn for the agent: what it does says nothing of the agent's health."""
    question: str = ""
    """What it was to answer, for a turn that answers."""


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
    usage: Usage = NO_USAGE
    """What the sender says it cost; nobody can check that."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A heartbeat or checkpoint: extends the lease."""

    note: str


@dataclass(frozen=True, slots=True)
class Clarification:
    """An `answer` to a question this task asked. `ends` = the body was exactly REPLY_SKIP.

    `spec` is the task's spec as the sections in the text rewrite it, for a question about that.
    """

    sender: str
    text: str
    ends: bool = False
    spec: Spec | None = None


@dataclass(frozen=True, slots=True)
class SpecWritten:
    """A person writes the spec anew, by command or in the task's task.md."""

    spec: Spec


@dataclass(frozen=True, slots=True)
class CheckEnded:
    """A check of the spec was run. `report` is what is kept of its output."""

    check_id: str
    attempt_id: str
    verdict: CheckVerdict
    summary: str
    report: str


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
    """The operator runs work again, keeping every good result that is not asked for."""

    instructions: str = ""
    only_failed: bool = False
    """Only what failed at or below the task; each of them gets the instructions."""
    with_dependants: bool = False
    """Also what completed with the result of the task."""


class Remedy(StrEnum):
    RETRY = "retry"
    ACCEPT = "accept"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Unblock:
    """The operator decides what an open circuit becomes, or lets work go on that is held for its budget."""

    remedy: Remedy
    note: str = ""
    budget_usd: float | None = None
    budget_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The moment in `task.due` has come."""

    read_until: str | None = None
    """What came by mail before that moment has been heard; None: everything."""


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
    """A pending child was rewritten in its parent's task.md. `needs`: ids of what it needs now; None: as before."""

    planned: PlannedChild
    needs: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ImportedDone:
    """It was done already, with this result."""

    result: str


@dataclass(frozen=True, slots=True)
class ImportedFailed:
    error: str


@dataclass(frozen=True, slots=True)
class ImportedDispatched:
    """A peer has it, and will reply."""


Imported = ImportedDone | ImportedFailed | ImportedDispatched


OperatorInput = Clarification | Steer | Cancel | Retry | Unblock | SpecWritten
"""What the operator can order about a task: `core.operator_orders`. The task's sender may send some of them."""
Order = OperatorInput | Edited | ChildEdited
"""What whoever gave the work, or whose workspace it is, may want of it."""
Input = (
    NewTask | Redispatch | Start | TurnEnded | Reply | TimePassed | CheckEnded | ByTool | OfApproval | Imported | Order
)
