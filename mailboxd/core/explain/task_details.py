"""A task as people and scripts are told it: the JSON of `show`, and the values of its page, its export and its tool.

These are plain dicts, as the store reads them. The types say which keys there are and what they hold, so that no reader
has to guess; a test compares them with the details of real tasks. Texts are empty, and other values None, where there
is nothing to tell. Times are ISO-8601 UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

# `from` is a word of Python, so that no class can name it

_FromSender = TypedDict("_FromSender", {"from": str})
_FromAnybody = TypedDict("_FromAnybody", {"from": str | None})


class WithState(TypedDict):
    """Where a task stands: `phase`, the `need` of a person if there is one, and the word for both."""

    phase: str
    need: str | None
    state: str


# Values of the core, in full unless it is said that defaults are left out


class DeclaredAction(TypedDict, total=False):
    """`core.approvals.Action`; defaults are left out."""

    id: str
    kind: str
    action: str
    risk: str
    idempotency_key: str
    argv: list[str]
    cwd: str
    env: list[str]
    timeout: int
    channel: str
    target: str
    account: str
    text: str
    path: str
    content: str
    source: str
    method: str
    url: str
    headers: list[list[str]]
    body: str
    verify: list[str]
    undo: list[str]


class DeclaredCheck(TypedDict, total=False):
    """`core.model.Check`; defaults are left out."""

    id: str
    command: list[str]
    timeout: int
    cwd: str
    file: str
    min_bytes: int
    schema_file: str
    schema_text: str
    of: str


class SpecFields(TypedDict):
    """`core.model.Spec`."""

    goal: str
    instructions: str
    context: str
    expected_output: str
    scope_in: str
    scope_out: str
    inputs: str
    outputs: str
    acceptance_criteria: list[str]
    risks: str
    planned_actions: list[DeclaredAction]
    checks: list[DeclaredCheck]


class PolicyFields(TypedDict):
    """`core.model.Policy`."""

    max_attempts: int
    timeout: int
    reply_within: int
    backoff_base: float
    backoff_max: float
    circuit_hold: int
    max_rework: int
    idempotent: bool
    gates: list[str]
    reviewers: list[str]
    quorum: str
    same_reviewer: bool
    weak: str
    synthesis: str
    join: str
    labels: list[str]
    background: bool
    priority: int
    deadline: str | None
    not_before: str | None
    budget_usd: float | None
    budget_tokens: int | None
    max_turns: int
    max_tree_turns: int
    max_tree_tasks: int
    runtime: str
    harness: str
    model: str
    named: list[str] | None


class UsageFields(TypedDict):
    """`core.model.Usage`."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class ReportedUsage(TypedDict, total=False):
    """The same, with what was reported only."""

    input_tokens: int
    output_tokens: int
    cost_usd: float


class StrongerFields(TypedDict):
    """`core.model.Stronger`."""

    model: str
    instead_of: str
    why: str
    harness: str


# Parts of a task


class SpentSoFar(TypedDict):
    """The cost including subtasks, and its limits; the turns are the task's own."""

    usd: float
    tokens: int
    turns: int
    budget_usd: float | None
    budget_tokens: int | None


class CircuitCounts(TypedDict):
    """Whether it has stopped, until when, and what counts towards that."""

    open: bool
    held_until: str | None
    failures: int
    max_attempts: int
    rework: int
    stalls: int


class AttemptRow(TypedDict):
    id: str
    ordinal: int
    executor: str
    executor_kind: str
    runtime: str
    worker_ref: str
    status: str
    waiting_for: str
    session_key: str
    session_ref: str | None
    run_id: str | None
    error_summary: str
    usage: UsageFields
    question_turns: int
    model: str
    escalated: str
    silent: bool
    started_at: str
    finished_at: str | None
    seconds: float | None


class PromptFields(TypedDict):
    """`core.outcomes.PromptDigest`. Without `text`, texts of prompts are not kept."""

    sha256: str
    size: int
    text: NotRequired[str]


class TurnRow(TypedDict):
    """`number` counts from 1; `outcome` is None while the turn runs. The rest is None if it was not reported."""

    number: int
    at: str | None
    purpose: str | None
    agent: str | None
    attempt: str | None
    outcome: str | None
    model: str | None
    run: str | None
    session: str | None
    session_key: str | None
    prompt: PromptFields | None
    usage: ReportedUsage | None


class DependencyRow(WithState):
    key: str
    local_id: str


class ChildRow(WithState):
    """`depends_on` names what it needs, by key."""

    id: str
    local_id: str
    key: str
    title: str
    agent: str
    mode: str
    attempt: int
    result_summary: str
    error: str
    dispatched_at: str | None
    completed_at: str | None
    status: str
    depends_on: list[str]


class VoteRow(TypedDict):
    """`core.votes.Vote`; `vote` is the key of what was voted on."""

    vote: str
    key: str
    agent: str
    said: str
    why: str
    counts: bool


class FindingRow(TypedDict):
    severity: str
    message: str
    file: str | None
    line: int | None
    artifact_uri: str | None


class ReviewRow(TypedDict):
    """`given_at` is the peer at whose gate the verdict was given, unless it was here."""

    id: str
    gate: str
    round: int
    reviewer: str
    verdict: str
    summary: str
    findings: list[FindingRow]
    at: str
    given_at: str | None


class ArtifactRow(TypedDict):
    """`sha256` is None of what nobody has fetched, and empty for what has no text."""

    id: str
    kind: str
    uri: str
    sha256: str | None
    summary: str
    produced_by: str
    at: str


class MessageRow(_FromAnybody):
    """`owner_uid` to `claimed` say how its file came."""

    id: str
    message_id: str | None
    direction: str
    to: str | None
    type: str | None
    verdict: str
    verified: str | None
    name: str
    path: str | None
    at: str
    owner_uid: int | None
    owner: str | None
    came: str | None
    claimed: str | None


class WholeMessage(MessageRow):
    """A message with what is known of its file; `reason` says why it was rejected, `dismissed` when that was seen."""

    signer: str | None
    size: int | None
    reason: dict[str, Any] | None
    dismissed: str | None
    task: str | None


class ListedMessage(_FromAnybody):
    """A message of a list."""

    id: str
    direction: str
    type: str | None
    to: str | None
    verdict: str
    name: str
    at: str
    task: str | None


class Successor(TypedDict):
    """The message that was accepted in place of a rejected one; `task` is empty if it made none."""

    id: str
    task: str
    title: str


class ReceivedMessage(TypedDict):
    """The verdict on a received message, its task (an id), and why it was rejected."""

    id: str
    verdict: str
    task: str | None
    reason: dict[str, Any] | None


class DoubtRow(TypedDict):
    """`dismissed` is when a person had seen it."""

    id: str
    at: str
    text: str
    dismissed: str | None


class HeldOrderRow(TypedDict):
    """An order that is held until `due`; `approval` is what it rejects."""

    id: str
    name: str
    approval: str | None
    by: str
    at: str
    due: str
    task: str
    title: str


class OrderGiven(TypedDict):
    """What somebody said with an order; `about` is the approval's short id."""

    at: str
    by: str
    order: str
    about: str | None
    note: str


class ToldRow(TypedDict):
    """That a person was told something, or could not be, and `why`."""

    seq: int
    at: str
    to: str
    what: str
    sent: bool
    text: str
    words: str | None
    sha256: str | None
    together_with: str | None
    why: str


# Requests for approval


class Rejection(TypedDict):
    """That it is rejected soon: when, and by whom."""

    at: str
    by: str


class RequestRow(TypedDict):
    """A request for approval as far as another host tells it, too."""

    id: str
    short_id: str
    task: str
    attempt: str
    purpose: str
    status: str
    state: str
    requested_action: str
    side_effect_kind: str
    risk: str
    digest: str
    idempotency_key: str
    gate: str
    requested_by: str
    at: str
    expires_at: str
    resolved_by: str
    resolved_at: str
    note: str
    started_at: str
    finished_at: str
    summary: str
    artifact: str
    void: bool
    origin: str
    action: DeclaredAction
    preview: str


class ApprovalRow(RequestRow):
    """`approved_by` had approved one that is void now."""

    approved_by: str | None
    rejection: Rejection | None


class Undo(TypedDict):
    """A request to undo an action."""

    id: str
    short_id: str
    status: str
    state: str
    summary: str


class HistoryLine(TypedDict):
    """Another host tells neither kind nor actor."""

    at: str
    text: str
    kind: NotRequired[str]
    actor: NotRequired[str]


class DecidedUnder(TypedDict):
    """The configuration under which it was decided: the number of its event, and its fields."""

    event: int
    fields: Mapping[str, Any]


class ApprovalDetails(RequestRow):
    """All about an approval. What is not required is of this host only."""

    approved_by: NotRequired[str | None]
    rejection: NotRequired[Rejection | None]
    policy: NotRequired[DecidedUnder | None]
    taken_back: list[Undo]
    history: list[HistoryLine]


# The task


class TaskFacts(_FromSender, WithState):
    """What is said of the task itself. `agent` executes it, `root` and `parent` are local ids."""

    id: str
    local_id: str
    task_id: str
    subtask_id: str | None
    title: str
    mode: str
    key: str
    depth: int
    parent: str | None
    root: str
    runtime: str
    reason: str
    error: str
    findings: str
    notes: str
    answer: str
    result_summary: str
    not_before: str | None
    due: str | None
    created_at: str
    updated_at: str
    dispatched_at: str | None
    completed_at: str | None
    status: str
    reply_to: str | None
    agent: str
    broadcast: bool
    spec: SpecFields
    policy: PolicyFields
    results: str
    planned_actions: list[DeclaredAction]
    held: str | None
    spent: SpentSoFar
    escalated: StrongerFields
    circuit: CircuitCounts


class TaskDetails(TaskFacts):
    """A task with everything on record about it. `children` may be many; for a page they are left out."""

    attempts: list[AttemptRow]
    turns: list[TurnRow]
    dependencies: list[DependencyRow]
    children: list[ChildRow]
    votes: list[VoteRow]
    reviews: list[ReviewRow]
    artifacts: list[ArtifactRow]
    approvals: list[ApprovalRow]
    messages: list[MessageRow]
    doubts: list[DoubtRow]
    held_orders: list[HeldOrderRow]
    given: list[OrderGiven]
    told: list[ToldRow]


class SpecReport(WithState):
    """The spec of a task, and what it lacks."""

    task: str
    title: str
    spec: SpecFields
    lacks: str


class OpenQuestion(TypedDict):
    """`core.explain.model.Question`."""

    to: str
    text: str
    at: str


class ShownTask(TaskDetails):
    """A task as `show` prints it, with the question that it asks now."""

    question: OpenQuestion | None
    at_peers: list[str]
    """What tasks below it wait for at the peers that have them, each in a clause."""


class Split(TypedDict):
    """How many subtasks a task has, and since when."""

    children_total: int
    children_since: str | None


class QuestionRow(TypedDict):
    """A question that the task asked; `by` and `ended_at` say who answered it, when."""

    at: str
    to: str
    text: str
    by: str | None
    ended_at: str | None


class AncestorRow(TypedDict):
    """A task above this one; `key` is its name in its parent's plan."""

    local_id: str
    key: str
    title: str


class BelowCounts(TypedDict):
    """How far the work below a task is, at any depth."""

    total: int
    done: int
    failed: int
    cancelled: int


class AttemptResult(TypedDict):
    """The result of an attempt; `body` may be cut, `length` is that of all of it."""

    id: str
    ordinal: int | None
    produced_by: str
    at: str
    body: str
    length: int


class CheckRunDetails(TypedDict):
    """What a check of the spec found in an attempt."""

    id: str
    verdict: str
    summary: str
    at: str
    ordinal: int | None


class NoticeRow(TypedDict):
    """A sentence about something that is odd about a task."""

    at: str
    text: str


class EventRow(TypedDict):
    """An event of the log; `text` is its sentence, `data` what it carries, without reply tokens."""

    seq: int
    at: str
    kind: str
    task: str | None
    task_id: str | None
    role: str
    actor: str
    text: str
    data: dict[str, Any]
    hash: str


class CauseLine(TypedDict):
    """`core.explain.model.Cause`."""

    task: str
    kind: str
    text: str
    depth: int
    at: str | None
    then: str
    details: str
    hint: str


class LastSign(TypedDict):
    """`core.explain.model.LastEvent`."""

    seq: int
    at: str
    text: str


# Lists of tasks


class WaitingTask(WithState):
    """A task that waits for an agent, as MCP's `task_list_ready` has it."""

    task: str
    title: str
    agent: str
    attempt: int


class TaskRow(_FromSender, WithState):
    """A task in one line."""

    id: str
    local_id: str
    task_id: str
    key: str
    title: str
    mode: str
    agent: str
    attempt: int
    children_total: int
    children_completed: int
    children_failed: int
    reason: str
    created_at: str
    updated_at: str
    status: str


class ListedTask(TaskRow):
    """A task of a list. `parent` is an id."""

    error: str
    result_summary: str
    parent: str | None
    spent_usd: float
    spent_tokens: int


class EndingSoon(TypedDict):
    """That a task is ended soon, by an order that is held: when, and in words."""

    at: str
    text: str


class TaskOfList(ListedTask):
    """A task as `ls` prints it."""

    ending: EndingSoon | None


class TreeNode(TaskRow):
    """A task with its descendants; `running_since` is the start of its running attempt."""

    result_summary: str
    error: str
    held: str
    running_since: str | None
    waits_at_peer: str
    """What its work, or the work of a task below it, waits for at the peer that has it, in a clause; empty: nothing."""
    depends_on: list[str]
    children: list[TreeNode]
