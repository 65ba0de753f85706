"""Inputs: everything that can happen to a task. They may be late, repeated or false; `core.decide` judges them.

The outcome of a turn, and the answer of its agent, are in `core.outcomes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mailboxd.core.approvals import OfApproval
from mailboxd.core.model import NO_USAGE, Finding, NewChild, Origin, Plan, PlannedChild, Policy, Spec, Usage
from mailboxd.core.outcomes import Answer, Correction, Made, Outcome, PromptDigest
from mailboxd.core.vocabulary import CheckVerdict, Gate, Turn, Verdict, WaitsFor

# Inputs of callers of MCP tools. A verdict also comes by message.


class ReviewKind(StrEnum):
    """The kind of a review; `spec` covers both gates that compare with the specification."""

    SPEC = "spec"
    QUALITY = "quality"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Progress of the caller; extends the lease of the attempt. `attempt_id` is a fence."""

    note: str
    attempt_id: str | None = None
    type: str = "progress"
    payload: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FileMade:
    """A file of the workspace as evidence, with the `sha256` that mailboxd computed, or an address without one."""

    kind: str
    uri: str
    sha256: str
    summary: str = ""
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReviewGiven:
    """A reviewer's verdict, by tool or message, before or instead of the answer of its turn."""

    kind: ReviewKind
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    attempt_id: str | None = None
    round: int | None = None
    """The review round that it is about; None: the present one."""


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """Stop trying and wait for the operator."""

    reason: str


ByTool = Checkpoint | FileMade | ReviewGiven | OpenCircuit


# All other inputs.

NO_ORIGIN = Origin()


@dataclass(frozen=True, slots=True)
class NewTask:
    """New work: a message, a task.md, or a command. The caller has checked that the local id is free."""

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
    needs: tuple[str, ...] = ()
    """The ids of the root tasks that have to be completed before."""
    cancelled: str = ""
    """The reason, if the work was cancelled before it arrived."""
    refused: str = ""
    """Why it is not done at all; the chat that asked for it is told."""
    extra: tuple[tuple[str, str], ...] = ()
    sections: tuple[tuple[str, str], ...] = ()
    answers: tuple[str, ...] = ()
    """The answers of which its result has to declare one."""
    created_at: str = ""
    """When the work was created, if that was before mailboxd had it."""
    doubts: tuple[str, ...] = ()
    """What may have been meant otherwise in the head of its task.md."""
    held: str = ""
    """Why it is on hold from the start; empty = it is not."""


@dataclass(frozen=True, slots=True)
class Redispatch:
    """The sender dispatches known work again: as a newer attempt (a retry, rework), or with other content."""

    spec: Spec
    origin: Origin
    findings: str
    deadline: str | None = None
    text: str = ""
    """The body of its message, for work that is under way."""
    needs: tuple[str, ...] | None = None
    """What it is to follow now, as in NewTask; None if that is as before, or not said."""
    given_as: str = ""
    """The key of the subtask that does the work, if its message names the agent to give it to."""


@dataclass(frozen=True, slots=True)
class Start:
    """The scheduler has a slot for this task."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn ended. `answer` is the meaning of its text, for a `Succeeded` outcome only."""

    turn: Turn
    attempt_id: str
    agent: str
    outcome: Outcome
    answer: Answer | None = None
    gate: Gate | None = None
    called: bool = True
    """False: no agent was called. The result was composed here, or the message could not be sent."""
    made: tuple[Made, ...] = ()
    harness: str = ""
    """The harness that took the turn: it says nothing about the agent's health."""
    question: str = ""
    """The question, for a turn that answers one."""
    correction: Correction | None = None
    """The turn asked again for an answer that had not been taken."""
    turn_id: str = ""
    """The ordered turn or look-up; empty if the result was composed here."""
    heard: str = ""
    """The new instructions that were given in the turn itself."""
    session_key: str = ""
    prompt: PromptDigest | None = None
    """What the call gave to the agent; None if that was not recorded (by an earlier version), or nothing was called."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A peer's message about its attempt: results, failure, plan, question, acknowledgement or progress."""

    sender: str
    answer: Answer | Progress
    attempt_id: str | None = None
    reply_token: str | None = None
    older_attempt: bool = False
    """`attempt_id` names an earlier attempt of this task."""
    ordinal: int | None = None
    """The attempt's ordinal, if the sender gives it instead of the id."""
    usage: Usage = NO_USAGE
    """The cost that the sender reports; it cannot be checked."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A heartbeat or checkpoint: extends the lease."""

    note: str
    waits_for: WaitsFor | None = None
    """What the peer waits for, if it says so."""


@dataclass(frozen=True, slots=True)
class WorkForgotten:
    """The peer's host will say no more of work that it had taken: it was restored, or revoked. `why` is one line."""

    attempt_id: str
    why: str


@dataclass(frozen=True, slots=True)
class SenderTold:
    """What a task of a peer waits for has changed: its sender is told. `why` is one line."""

    waits_for: WaitsFor
    why: str


@dataclass(frozen=True, slots=True)
class Clarification:
    """An answer to the task's question. `ends`: the body was exactly REPLY_SKIP.

    `spec` is the spec as rewritten by the sections in the text, if the question was about it.
    """

    sender: str
    text: str
    ends: bool = False
    spec: Spec | None = None


@dataclass(frozen=True, slots=True)
class SpecWritten:
    """The operator rewrites the spec, by command or in task.md."""

    spec: Spec


@dataclass(frozen=True, slots=True)
class CheckEnded:
    """A check of the spec ended. `report` is the part of its output that is kept."""

    check_id: str
    attempt_id: str
    verdict: CheckVerdict
    summary: str
    report: str


@dataclass(frozen=True, slots=True)
class Steer:
    """New instructions from the task's sender or the operator."""

    sender: str
    text: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """The operator, the sender or the parent cancels the task."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """The operator runs a task again; other good results are kept."""

    instructions: str = ""
    only_failed: bool = False
    """Only failed tasks, this one or any below it; each gets the instructions."""
    with_dependants: bool = False
    """Also completed tasks that used the result of this one."""
    reviewers: tuple[str, ...] | None = None
    """Who reviews it at its gate, in place of reviewers whom nobody can ask; empty: nobody, and it passes."""


class Remedy(StrEnum):
    RETRY = "retry"
    ACCEPT = "accept"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Unblock:
    """The operator decides about an open circuit, or releases work that is on hold for its budget."""

    remedy: Remedy
    note: str = ""
    budget_usd: float | None = None
    budget_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """The operator puts a task, and everything below it, on hold: running turns finish, and no other starts."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """The operator ends a pause."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time in `task.due` has passed."""

    read_until: str | None = None
    """Mail has been read up to this time; None = all of it."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """What the task waits for may have changed: the configuration, the agents of OpenClaw, who may be reached."""


@dataclass(frozen=True, slots=True)
class ChildrenDue:
    """More children of an adopted plan are to be created."""

    children: tuple[NewChild, ...]


@dataclass(frozen=True, slots=True)
class Edited:
    """A legal edit of task.md, by a person or by the agent in its turn."""

    added: tuple[PlannedChild, ...] = ()
    notes: str | None = None
    results: str | None = None
    instructions: str | None = None
    sections: tuple[tuple[str, str], ...] | None = None
    doubts: tuple[str, ...] = ()
    """As in `Plan`."""


@dataclass(frozen=True, slots=True)
class ChildEdited:
    """A pending child was edited in its parent's task.md. `needs`: its dependencies' ids; None = unchanged."""

    planned: PlannedChild
    needs: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ImportedDone:
    """The imported task is done, with this result. Its summary and its times are kept where the file has them."""

    result: str
    summary: str = ""
    dispatched_at: str = ""
    completed_at: str = ""


@dataclass(frozen=True, slots=True)
class ImportedFailed:
    error: str
    summary: str = ""
    dispatched_at: str = ""
    completed_at: str = ""


@dataclass(frozen=True, slots=True)
class ImportedDispatched:
    """A peer has the imported task and will reply."""

    dispatched_at: str = ""


Imported = ImportedDone | ImportedFailed | ImportedDispatched


OperatorInput = Clarification | Steer | Cancel | Retry | Unblock | Pause | Resume | SpecWritten
"""The operator's orders about a task (`core.operator_orders`); the task's sender may give some of them."""
Order = OperatorInput | Edited | ChildEdited
"""Those, and the edits of task.md."""
Input = (
    NewTask
    | Redispatch
    | ChildrenDue
    | Start
    | TurnEnded
    | Reply
    | TimePassed
    | LookAgain
    | SenderTold
    | WorkForgotten
    | CheckEnded
    | ByTool
    | OfApproval
    | Imported
    | Order
)
