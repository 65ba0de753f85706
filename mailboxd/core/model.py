"""The nouns: tasks, attempts, specs, policies, plans. Frozen values; nothing here does anything.

Times are ISO-8601 UTC strings (`2026-11-21T02:07:53.120Z`): they sort as text and replay byte for byte.
Durations are seconds. The words they are made of are in `core.vocabulary`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from mailboxd.core.approvals import Action
from mailboxd.core.vocabulary import (
    TURN_SECONDS,
    AttemptStatus,
    Gate,
    Join,
    Mode,
    Phase,
    Quorum,
    Runtime,
    Synthesis,
    Waiting,
    WeakSpec,
)

# ---------------------------------------------------------------------------------------------------------------------
# What a turn cost.


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money one turn cost, as the agent's runtime reported them. None = not reported."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def plus(self, more: Usage) -> Usage:
        """Both together; what neither reported stays unknown."""
        return Usage(
            _sum(self.input_tokens, more.input_tokens),
            _sum(self.output_tokens, more.output_tokens),
            _sum(self.cost_usd, more.cost_usd),
        )


NO_USAGE = Usage()

_Number = TypeVar("_Number", int, float)


def _sum(one: _Number | None, more: _Number | None) -> _Number | None:
    return more if one is None else one if more is None else one + more


# ---------------------------------------------------------------------------------------------------------------------
# What the operator allows beyond a task's own policy, and what was used of it: plain values, like `core.types`.


@dataclass(frozen=True, slots=True)
class Escalation:
    """What a task is tried with after failures (config `escalation`). Off while nothing stronger is named."""

    from_attempt: int = 3
    """Which try in a row is the first stronger one, counted in failures: 3 = after two failed attempts."""
    model: str = ""
    agent: str = ""
    harness: str = ""
    """Instead of an agent and its model: a harness that works for this agent."""


@dataclass(frozen=True, slots=True)
class Stronger:
    """What one task is tried with at present, instead of what it was given to. Nothing = as it was given."""

    model: str = ""
    instead_of: str = ""
    """The agent the task was given to, while another one tries; it gets the task back with the next fresh start."""
    why: str = ""
    """What was escalated and why, in a sentence; also why it could not be."""
    harness: str = ""


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When the breaker of an agent opens, and for how long (config `breaker`). Times are in seconds."""

    failures: int = 5
    """Faults in a row, over all tasks, that open it; 0 = never."""
    pause: float = 60.0
    """How long it stays open the first time; it doubles each time it opens again."""
    longest: float = 3600.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used so far: tokens and dollars by a task and all below it, turns by the task alone."""

    tokens: int = 0
    usd: float = 0.0
    turns: int = 0
    tree_turns: int = 0
    """Of a root: turns of it and all below it. Else 0."""
    tree_tasks: int = 0
    """Of a root: tasks below it. Else 0."""


# ---------------------------------------------------------------------------------------------------------------------
# The nouns: tasks, attempts, specs, policies, plans. Frozen values; nothing here does anything.


@dataclass(frozen=True, slots=True)
class Check:
    """Evidence that a spec declares (section `## Checks`): exactly one of a command, a file, a JSON schema.

    Paths are relative to the workspace. `timeout` is in seconds, 0 = as long as the configuration allows.
    `schema_text` is an inline schema as JSON, else `schema_file` names one; `of` is what it is for, empty = the result.
    """

    id: str
    command: tuple[str, ...] = ()
    timeout: int = 0
    cwd: str = ""
    file: str = ""
    min_bytes: int = 0
    schema_file: str = ""
    schema_text: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a task must achieve, written down before anything executes (protocol sections 2 and 6).

    `instructions`, `context` and `expected_output` are the clawflow sections as they stand; the others are the
    v2 spec, taken from their own sections or derived from those three.
    """

    goal: str
    instructions: str = ""
    context: str = ""
    expected_output: str = ""
    scope_in: str = ""
    scope_out: str = ""
    inputs: str = ""
    outputs: str = ""
    acceptance_criteria: tuple[str, ...] = ()
    risks: str = ""
    planned_actions: tuple[Action, ...] = ()
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class SpecDrafting:
    """How far a weak spec is: who is at it, and what was tried. Counters of one task, kept with it.

    `drafts` counts the drafting turns that were ordered and is a fence, as `rounds` is for reviews of the spec.
    `failures` and `stalls` are of the present draft; `drafted` says that it was made or given up.
    """

    waiting_for: Waiting = Waiting.NOTHING
    """TURN or LOOKUP: a drafting turn. ANSWER: the sender was asked. NOTHING: nobody is at it."""
    drafts: int = 0
    rounds: int = 0
    failures: int = 0
    stalls: int = 0
    drafted: bool = False
    questions: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules one task runs under: the workspace's defaults, overridden by the task's own headers."""

    max_attempts: int = 3
    timeout: int = TURN_SECONDS
    """Seconds one turn may take."""
    reply_within: int = 86_400
    """Seconds a peer that has acknowledged a dispatch may stay silent."""
    backoff_base: float = 5.0
    backoff_max: float = 900.0
    circuit_hold: int = 86_400
    """Seconds an open circuit waits for the operator before the task fails upward."""
    max_rework: int = 3
    idempotent: bool = False
    """The work may be repeated after an unknown outcome."""
    gates: frozenset[Gate] = frozenset()
    """The review gates that are on; written in sorted order."""
    reviewers: tuple[str, ...] = ()
    quorum: Quorum = Quorum.ALL
    same_reviewer: bool = False
    """One reviewer may review both the specification and the quality of the same work."""
    weak: WeakSpec = WeakSpec.DERIVE
    """What is done about a weak spec."""
    synthesis: Synthesis = Synthesis.AGENT
    join: Join = Join.ALL
    priority: int = 0
    deadline: str | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    max_turns: int = 0
    """Turns of the task itself after which the operator is asked; 0 = no limit."""
    max_tree_turns: int = 0
    """Of a root: turns of it and all below it after which the operator is asked; 0 = no limit."""
    max_tree_tasks: int = 0
    """Of a root: tasks below it beyond which the operator is asked; 0 = no limit."""
    runtime: Runtime = Runtime.OPENCLAW
    harness: str = ""
    """Who does the work for this agent, by its name in the configuration; empty = the agent itself."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a message's headers, or a child of a plan, say of its own policy. None = not said."""

    max_attempts: int | None = None
    timeout: int | None = None
    idempotent: bool | None = None
    gates: frozenset[Gate] | None = None
    reviewers: tuple[str, ...] | None = None
    synthesis: Synthesis | None = None
    join: Join | None = None
    priority: int | None = None
    deadline: str | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    runtime: Runtime | None = None
    harness: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedChild:
    """One node of a plan, as a coordinator wrote it. `agents` with several names is a broadcast."""

    key: str
    agents: tuple[str, ...]
    description: str
    depends_on: tuple[str, ...] = ()
    instructions: str = ""
    expected_output: str = ""
    checks: tuple[Check, ...] = ()
    planned_actions: tuple[Action, ...] = ()
    overrides: Overrides = Overrides()
    children: tuple[PlannedChild, ...] = ()
    """A plan inside the plan (`subtasks:` of the node): the node is then a coordinating task itself."""
    extra: tuple[tuple[str, str], ...] = ()
    """Unknown keys, preserved (value as YAML text)."""


@dataclass(frozen=True, slots=True)
class Plan:
    children: tuple[PlannedChild, ...]
    synthesis: Synthesis | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    severity: str
    message: str
    file: str | None = None
    line: int | None = None
    artifact_uri: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What the sender's latest dispatch carried; a reply echoes it (protocol section 2, "Repeats")."""

    message_id: str | None = None
    attempt: int = 0
    attempt_id: str | None = None
    reply_token: str | None = None
    root_task_id: str | None = None
    traceparent: str | None = None
    delegation_path: tuple[str, ...] = ()
    """Who gave the work to whom, from the first agent down to the sender: `core.plans.step` of each."""


@dataclass(frozen=True)
class Task:
    """One row of `tasks`. `executor` is the agent that does the work (never the word "self")."""

    id: str
    local_id: str
    task_id: str
    subtask_id: str | None
    sender: str
    parent: str | None
    root: str
    key: str
    depth: int
    title: str
    mode: Mode
    executor: str
    runtime: Runtime
    phase: Phase
    spec: Spec
    policy: Policy
    created_at: str
    updated_at: str
    attempt: int = 0
    """Ordinal of the latest attempt: a fence. Anything that names an older one is late."""
    failures: int = 0
    """Failed attempts since the circuit last closed: a budget. Rework is not a failure."""
    rework: int = 0
    circuit_open: bool = False
    not_before: str | None = None
    """Backoff: no attempt starts earlier."""
    due: str | None = None
    """The next moment at which something happens by itself: a lease, a hold or a deadline ends."""
    reason: str = ""
    """Why the task is where it is, in a sentence for a person."""
    findings: str = ""
    """What the next attempt has to mend: review findings, or why the last one failed."""
    result: str = ""
    result_summary: str = ""
    error: str = ""
    notes: str = ""
    answer: str = ""
    """The declared answer that a majority is counted over."""
    stalls: int = 0
    """Attempts in a row that provably never reached the agent: they cost no budget, only longer backoff."""
    broadcast: bool = False
    """The children are copies of this task, joined by `policy.join`."""
    cancelled_with_parent: bool = False
    """Cancelled because the parent ended, or by whoever sent it: a retry of the parent, or he, reopens it."""
    draft_result: str = ""
    """What the agent wrote under Results of its own task.md during the live attempt."""
    planned_actions: tuple[Action, ...] = ()
    """Side effects the spec or the result declares; they need approval before anything runs."""
    dispatched_at: str | None = None
    completed_at: str | None = None
    origin: Origin = Origin()
    said: Overrides = Overrides()
    """What the plan said of the child's policy, as it said it."""
    extra: tuple[tuple[str, str], ...] = ()
    """Unknown keys or headers, preserved (value as YAML text)."""
    sections: tuple[tuple[str, str], ...] = ()
    """Unknown sections of its task.md, preserved."""
    mending: SpecDrafting = SpecDrafting()
    held: str = ""
    """Why neither it nor anything below it gets another turn until the operator says so; empty = it does."""
    heartbeat: str | None = None
    """When its sender is told that it is alive or, given away, when its peer counts as silent."""
    stronger: Stronger = Stronger()

    @property
    def shown_by(self) -> str:
        """The id of the task in whose task.md stands how this one ended."""
        return self.id if self.parent is None or self.mode is Mode.COORDINATING else self.parent


@dataclass(frozen=True)
class Attempt:
    """One row of `attempts`. `waiting_for` says what its end depends on."""

    id: str
    task: str
    ordinal: int
    executor: str
    runtime: Runtime
    status: AttemptStatus
    waiting_for: Waiting
    session_key: str
    reply_token: str
    started_at: str
    finished_at: str | None = None
    error_summary: str = ""
    run_id: str | None = None
    session_ref: str | None = None
    usage: Usage = NO_USAGE
    token_echoed: bool = False
    """The executor has echoed the reply token once: from then on it must."""
    question_turns: int = 0
    acknowledged: bool = False
    """The executor's own daemon has the work: it is spoken to by messages, not by turns."""
    model: str = ""
    escalated: str = ""
    """What was escalated for this attempt, and why; empty = nothing."""
    question: str = ""
    """What is asked while it waits for an answer."""
    steered: str = ""
    """New instructions that came during its turn: the next turn of the same session brings them."""
    silent: bool = False
    """The peer that has the work has missed its heartbeat, and that was reported."""
    worker_ref: str = ""
    """The harness that does the work for its executor; empty = the executor itself."""


# ---------------------------------------------------------------------------------------------------------------------
# Policy of repetition: whether, and after how long. Returns values; acts on nothing (protocol section 4, "Retry").


def backoff(policy: Policy, failures: int, jitter: float, share: float) -> float:
    """Seconds to wait before the next attempt after the `failures`-th failure in a row (counted from 1).

    Doubles from `backoff_base` up to `backoff_max`; `jitter` in [0, 1) moves the result by up to ±`share` of
    itself, so that tasks that failed together do not come back together.
    """
    exponent = min(max(failures, 1) - 1, 30)
    plain = min(policy.backoff_base * 2.0**exponent, policy.backoff_max)
    return plain * (1.0 + share * (2.0 * jitter - 1.0))
