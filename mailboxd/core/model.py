"""The records of the core: tasks, attempts, specs, policies, plans. Frozen values without behaviour.

Times are ISO-8601 UTC strings (`2026-11-21T02:07:53.120Z`), which sort as text. Durations are seconds. The enums are in
`core.vocabulary`. Field names are stored in the database and in events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from mailboxd.core.approvals import Action
from mailboxd.core.vocabulary import (
    REPLIED,
    SESSION,
    TURN_SECONDS,
    WAKE,
    AttemptStatus,
    ExecutorKind,
    Gate,
    Join,
    Mode,
    Notice,
    Phase,
    Quorum,
    Runtime,
    Synthesis,
    Verdict,
    Waiting,
    WeakSpec,
)

# Cost of a turn


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and dollars that a turn cost, as reported by the agent's runtime. None = not reported."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def plus(self, more: Usage) -> Usage:
        """The sum; what neither reported stays None."""
        return Usage(
            _sum(self.input_tokens, more.input_tokens),
            _sum(self.output_tokens, more.output_tokens),
            _sum(self.cost_usd, more.cost_usd),
        )


NO_USAGE = Usage()

_Number = TypeVar("_Number", int, float)


def _sum(one: _Number | None, more: _Number | None) -> _Number | None:
    return more if one is None else one if more is None else one + more


# Escalation, circuit breakers, and what was spent


@dataclass(frozen=True, slots=True)
class Escalation:
    """A stronger model, agent or harness after failures (config `escalation`); off if none is named."""

    from_attempt: int = 3
    """The first attempt to be escalated, counted in failures: 3 = after two failed attempts."""
    model: str = ""
    agent: str = ""
    harness: str = ""
    """A harness that works for this agent, instead of another agent or model."""


@dataclass(frozen=True, slots=True)
class Stronger:
    """The present escalation of a task; all empty = none."""

    model: str = ""
    instead_of: str = ""
    """The original executor while another agent tries; it gets the task back at the next fresh start."""
    why: str = ""
    """The escalation and its reason, or why there was none."""
    harness: str = ""


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When an agent's circuit breaker opens, and for how many seconds (config `breaker`)."""

    failures: int = 5
    """Consecutive faults, over all tasks, that open it; 0 = never."""
    pause: float = 60.0
    """How long it stays open the first time; doubles each time it opens again."""
    longest: float = 3600.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Costs: tokens and dollars of a task and all below it, turns of the task alone."""

    tokens: int = 0
    usd: float = 0.0
    turns: int = 0
    tree_turns: int = 0
    """For a root: turns of the whole tree. Otherwise 0."""
    tree_tasks: int = 0
    """For a root: tasks below it. Otherwise 0."""


# Specs, policies, plans, tasks, attempts


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a spec (section `## Checks`): exactly one of a command, a file, a JSON schema.

    Paths are relative to the workspace. `timeout` is in seconds, 0 = the maximum of the configuration. The schema is
    `schema_text` (inline JSON) or `schema_file`; `of` is the file it applies to, empty = the result.
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
    """The specification of a task (protocol sections 2 and 6).

    `instructions`, `context` and `expected_output` are clawflow's sections, unchanged; the other fields are the v2
    spec, from sections of their own or derived from those three.
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
    """The completion of a weak spec: what it waits for, and what was tried.

    `drafts` counts the drafting turns that were ordered, `rounds` the reviews of the spec; both are fences. `failures`
    and `stalls` are those of the present draft; `drafted`: it was made or given up. `questions` counts those of the
    task's attempts, too: all share one limit.
    """

    waiting_for: Waiting = Waiting.NOTHING
    """TURN or LOOKUP: a drafting turn. ANSWER: the sender was asked. NOTHING: neither."""
    drafts: int = 0
    rounds: int = 0
    failures: int = 0
    stalls: int = 0
    drafted: bool = False
    questions: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one task: the workspace's defaults, overridden by the task's headers."""

    max_attempts: int = 3
    timeout: int = TURN_SECONDS
    """Maximum seconds of a turn."""
    reply_within: int = 86_400
    """Seconds in which a peer that acknowledged a dispatch must reply."""
    backoff_base: float = 5.0
    backoff_max: float = 900.0
    circuit_hold: int = 86_400
    """Seconds an open circuit waits for the operator before the task fails."""
    max_rework: int = 3
    idempotent: bool = False
    """The work may be repeated after an unknown outcome."""
    gates: frozenset[Gate] = frozenset()
    """The review gates that are on; written in sorted order."""
    reviewers: tuple[str, ...] = ()
    quorum: Quorum = Quorum.ALL
    same_reviewer: bool = False
    """A reviewer may review both the specification and the quality of the same work."""
    weak: WeakSpec = WeakSpec.DERIVE
    """How a weak spec is completed."""
    synthesis: str = Synthesis.AGENT
    """One of `Synthesis`, or the key of the child whose result is the task's."""
    join: Join = Join.ALL
    labels: tuple[str, ...] = ()
    """Names by which people find the task and, unless they have their own, its children."""
    background: bool = True
    """Its children are shown this task's goal and Context."""
    priority: int = 0
    deadline: str | None = None
    not_before: str | None = None
    """The work begins at this time at the earliest; not inherited, as a subtask begins after its parent."""
    budget_usd: float | None = None
    budget_tokens: int | None = None
    max_turns: int = 0
    """Turns of the task itself before it is put on hold; 0 = no limit."""
    max_tree_turns: int = 0
    """For a root: turns of the tree before it is put on hold; 0 = no limit."""
    max_tree_tasks: int = 0
    """For a root: tasks below it beyond which it is put on hold; 0 = no limit."""
    runtime: Runtime = Runtime.OPENCLAW
    harness: str = ""
    """The harness that works for this agent, as named in the configuration; empty = the agent itself."""
    model: str = ""
    """The model of the task's own turns; empty = the agent's own."""
    named: frozenset[str] | None = None
    """Which of `specs.FOLLOWING` its sender, a plan or an order set: the others follow the configuration. None: a task
    of an earlier version, of which this is not known."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """The policy that a message's headers or a plan's node set. None = not set."""

    max_attempts: int | None = None
    timeout: int | None = None
    idempotent: bool | None = None
    gates: frozenset[Gate] | None = None
    reviewers: tuple[str, ...] | None = None
    synthesis: str | None = None
    join: Join | None = None
    labels: tuple[str, ...] | None = None
    background: bool | None = None
    priority: int | None = None
    deadline: str | None = None
    not_before: str | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    runtime: Runtime | None = None
    harness: str | None = None
    model: str | None = None


NO_OVERRIDES = Overrides()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on an answer: one of `answers`; if `negated`, none of them."""

    answers: tuple[str, ...]
    of: str = ""
    """The key of the task that gives the answer; empty = the task itself."""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Flow:
    """When a child runs, and how often.

    Each of its rounds is a child of its own, with the round's number as its key.
    """

    when: tuple[Condition, ...] = ()
    """The answers that its dependencies must have given; otherwise it is skipped."""
    needs_any: bool = False
    """It waits until its dependencies have ended, and needs only one of them to be completed."""
    rounds: int = 0
    """The most rounds; 0 = it is not repeated."""
    until: Condition | None = None
    """The answer that ends the rounds; `of` is one of its subtasks."""
    answers: tuple[str, ...] = ()
    """The answers of which it has to declare one; empty: it declares what it likes, or nothing."""


NO_FLOW = Flow()


@dataclass(frozen=True, slots=True)
class PlannedChild:
    """One node of a plan, as written. Several `agents` make a broadcast."""

    key: str
    agents: tuple[str, ...]
    description: str
    depends_on: tuple[str, ...] = ()
    instructions: str = ""
    expected_output: str = ""
    goal: str = ""
    context: str = ""
    scope_in: str = ""
    scope_out: str = ""
    inputs: str = ""
    outputs: str = ""
    acceptance_criteria: tuple[str, ...] = ()
    risks: str = ""
    checks: tuple[Check, ...] = ()
    planned_actions: tuple[Action, ...] = ()
    overrides: Overrides = NO_OVERRIDES
    flow: Flow = NO_FLOW
    claims: tuple[str, ...] = ()
    children: tuple[PlannedChild, ...] = ()
    """A nested plan (`subtasks:` of the node): the node then coordinates."""
    extra: tuple[tuple[str, str], ...] = ()
    """The keys that begin with `x-`, preserved (value as YAML text)."""


@dataclass(frozen=True, slots=True)
class NewChild:
    """A child of an adopted plan that is to be created, with its id and those of its dependencies."""

    id: str
    planned: PlannedChild
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    children: tuple[PlannedChild, ...]
    synthesis: str | None = None
    doubts: tuple[str, ...] = ()
    """What its author wrote that has no effect here, or not quite the one that was meant: for a person to see."""


@dataclass(frozen=True, slots=True)
class Finding:
    severity: str
    message: str
    file: str | None = None
    line: int | None = None
    artifact_uri: str | None = None


@dataclass(frozen=True, slots=True)
class GivenVerdict:
    """A verdict of a gate that a result passed at the peer that executed it, as the peer's reply tells."""

    gate: Gate
    reviewer: str
    """By the name that this agent knows the reviewer by."""
    verdict: Verdict
    of: str
    """The SHA-256 of the result that was reviewed."""
    given_at: str
    """The agent at whose gate it was given."""
    summary: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """Where a task comes from that an agent, or whoever says to be one, wrote into the inbox (`core.handovers`)."""

    source: str
    """Whose limits it counts towards: the sender in lower case, or one name for all whom nobody knows."""
    text: str = ""
    """A digest of what the task is."""
    began: str = ""
    """What its chain began with: the id of a task, or the run of a chat; empty = unknown."""
    passed: tuple[str, ...] = ()
    """A step for each agent that had the work before, from the first one down to the sender."""
    counts: bool = True
    """Whether it counts towards the limits of an hour."""
    let_go: str = ""
    """When a person let it go on; empty = nobody had to."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The identifiers of the sender's latest dispatch; a reply echoes them (protocol section 2, "Repeats")."""

    message_id: str | None = None
    attempt: int = 0
    attempt_id: str | None = None
    reply_token: str | None = None
    root_task_id: str | None = None
    traceparent: str | None = None
    content: str = ""
    """A digest of what the work is; empty = unknown."""
    terms: str = ""
    """A digest of the policy and the plan that came with it."""
    reply_to: str = ""
    """The address for the result and questions of the work: `CHANNEL:TARGET`, `session:KEY` or `wake:KEY`."""
    delegation_path: tuple[str, ...] = ()
    """`core.plans.step` of each agent from the first one down to the sender."""
    file: str = ""
    """The SHA-256 of the task.md that the task was created from; empty = none."""
    spec: str = ""
    """`core.specs.digest` of the specification that it was dispatched with; empty = unknown."""
    handover: Handover | None = None
    """Who handed it over; None for what a person, a schedule or mailboxd itself gave."""
    repetition: str = ""
    """The id of the repetition of which it is a run; empty = none."""


R = TypeVar("R")


def changed(record: R, **changes: Any) -> R:
    """A copy of a record without slots (`Task`, `Attempt`, `TaskView`, `SpecDrafting`) with these fields changed.

    As `dataclasses.replace`, which calls __init__ with every field and takes ten times as long: each step of a task
    makes several copies.
    """
    copy: R = object.__new__(type(record))
    copy.__dict__.update(record.__dict__)
    copy.__dict__.update(changes)
    return copy


@dataclass(frozen=True)
class Task:
    """One row of `tasks`. `executor` is the agent's id, never "self"."""

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
    """Ordinal of the latest attempt: a fence. Anything about an older one is late."""
    failures: int = 0
    """Failed attempts since the circuit last closed, limited by `max_attempts`. Rework is not a failure."""
    rework: int = 0
    circuit_open: bool = False
    not_before: str | None = None
    """No attempt starts earlier: it pauses after a failure, or is to begin later (`begins_later`)."""
    due: str | None = None
    """When the next lease, hold or deadline ends."""
    reason: str = ""
    """Why the task is in its phase, for people."""
    findings: str = ""
    """Instructions for the next attempt: review findings, or the error of the last attempt."""
    result: str = ""
    result_summary: str = ""
    error: str = ""
    notes: str = ""
    answer: str = ""
    """The declared answer, for a majority."""
    stalls: int = 0
    """Consecutive attempts that provably never reached the agent: they only lengthen the backoff."""
    broadcast: bool = False
    """The children are copies of this task, joined by `policy.join`."""
    cancelled_with_parent: bool = False
    """Cancelled because the parent ended, or by its sender: either can reopen it."""
    draft_result: str = ""
    """The Results section that the agent wrote into its task.md during the live attempt."""
    planned_actions: tuple[Action, ...] = ()
    """Side effects that the spec or the result declares; they need approval."""
    dispatched_at: str | None = None
    completed_at: str | None = None
    origin: Origin = Origin()
    said: Overrides = NO_OVERRIDES
    """The policy that the plan set for this child, as written."""
    extra: tuple[tuple[str, str], ...] = ()
    """Headers and keys that begin with `x-`, and unknown headers of its task.md, preserved (value as YAML text)."""
    sections: tuple[tuple[str, str], ...] = ()
    """Unknown sections of its task.md, preserved."""
    mending: SpecDrafting = SpecDrafting()
    held: str = ""
    """Why it is on hold: neither it nor a task below it gets a turn until the operator releases it. Empty = not."""
    heartbeat: str | None = None
    """When its sender gets the next progress message or, with a peer, when the peer counts as silent."""
    stronger: Stronger = Stronger()
    flow: Flow = NO_FLOW
    claims: tuple[str, ...] = ()
    """The paths that it writes, as patterns below the workspace of its executor; its children inherit them."""
    body: PlannedChild | None = None
    """The plan that each of its rounds repeats."""
    skipped: bool = False
    """Cancelled because its condition does not hold, or because what it needs was skipped: a retry can reopen it."""

    @property
    def begins_later(self) -> bool:
        """Whether `not_before` is the beginning that was ordered, and not a pause after a failure."""
        return self.not_before is not None and self.not_before == self.policy.not_before

    @property
    def composes(self) -> bool:
        """Whether its result is composed of its children's without a model."""
        return self.broadcast or self.body is not None or self.policy.synthesis != Synthesis.AGENT

    def reply_address(self, what: Notice) -> str:
        """The address that gets this notice besides; empty = none.

        What a task waits for is told in sessions only: it costs nothing there, and disturbs nobody.
        """
        address = self.origin.reply_to if self.parent is None else ""
        if what is Notice.PROGRESS:
            kind, _, key = address.partition(":")
            return f"{SESSION}:{key}" if kind in (SESSION, WAKE) else ""
        return address if what in REPLIED else ""


@dataclass(frozen=True)
class Attempt:
    """One row of `attempts`. `waiting_for`: what its end depends on."""

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
    """The executor has echoed the reply token: from now on it must."""
    question_turns: int = 0
    acknowledged: bool = False
    """The executor's daemon has the work: it gets messages, not turns."""
    model: str = ""
    escalated: str = ""
    """The escalation of this attempt and its reason; empty = none."""
    question: str = ""
    """The open question while it waits for an answer."""
    steered: str = ""
    """New instructions that arrived during its turn; delivered by another turn of the same session."""
    silent: bool = False
    """The peer missed its heartbeat, which was recorded."""
    worker_ref: str = ""
    """The harness that works for the executor; empty = the executor itself."""
    executor_kind: ExecutorKind = ExecutorKind.BUILDER
    verdicts: tuple[GivenVerdict, ...] = ()
    """The verdicts on its result that came with it."""


# Backoff (protocol section 4, "Retry")


def backoff(policy: Policy, failures: int, jitter: float, share: float) -> float:
    """Seconds before the next attempt after the `failures`-th consecutive failure (from 1).

    Doubles from `backoff_base` to `backoff_max`; `jitter` in [0, 1) varies it by up to ±`share`, so that tasks that
    failed together are not retried together.
    """
    exponent = min(max(failures, 1) - 1, 30)
    plain = min(policy.backoff_base * 2.0**exponent, policy.backoff_max)
    return plain * (1.0 + share * (2.0 * jitter - 1.0))
