"""The configuration as a type: every key with its default, unit, range and meaning, stated once.

The commented config.yaml, the reference page and the checks are all made from these fields. Values arrive as the text
that stands in the file and are converted by what the key is, never by how the text looks (`agent: 007` is a name).
Constructing a model with a value out of range raises pydantic's ValidationError; `mailboxd.config.load` translates it.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from mailboxd.config.fields import (
    Address,
    Agent,
    AgentOrNobody,
    Agents,
    Arguments,
    Capabilities,
    Commands,
    Directory,
    Flag,
    HarnessName,
    MaybeArguments,
    Model,
    Number,
    Persons,
    Recipient,
    Section,
    Senders,
    Variables,
    Whole,
    said,
)
from mailboxd.config.fields import amount as _amount
from mailboxd.config.fields import said as _is
from mailboxd.core.checks import CheckRules
from mailboxd.core.model import BreakerRules, Escalation, Policy
from mailboxd.core.task_view import Limits
from mailboxd.core.vocabulary import Gate, Quorum, Synthesis, Weak

# ---------------------------------------------------------------------------------------------------------------------
# The part of the configuration that is about ACP: which harnesses there are, and what each may do unasked.


class HarnessSection(Section):
    """One program that speaks ACP (docs/integrations.md)."""

    argv: Arguments = Field(description="The program and its arguments, like `[gemini, --acp]`.")
    backend: Literal["direct", "acpx"] = said("direct", "Who speaks ACP with it: mailboxd, or the program `acpx`.")
    capabilities: Capabilities = said(
        ("read",), "What it may do without asking: read, edit, execute, network. For the rest a person is asked."
    )
    environment: Variables = said((), "Names of further environment variables that it is given.")
    cwd: Directory = said("", "The directory that it works in, relative to the workspace, which is the default.")


class AcpSection(Section):
    """Harnesses that do work for this agent (needs the extra `acp`; docs/integrations.md)."""

    acpx: Arguments = said(("acpx",), "The program for harnesses with `backend: acpx`.")
    harnesses: dict[HarnessName, HarnessSection] = said(
        {}, "The harnesses by their names, each with the keys below; a task names one (`runtime: acp`, `harness:`)."
    )


# ---------------------------------------------------------------------------------------------------------------------
# The configuration of approvals: who decides, until when, and who is told (docs/side-effects.md).

_DAY = 86_400
_YEAR = 366 * _DAY


class ApprovalsSection(Section):
    """What a person has to approve before it happens (docs/side-effects.md)."""

    expire_seconds: Whole = _amount(
        _DAY, "seconds", 1, _YEAR, "How long a request waits for you; then it has expired, and its task fails."
    )
    lobster: MaybeArguments = _is(
        ("lobster",), "The Lobster that stands before each side effect; none, or not installed: mailboxd alone does."
    )
    approvers: Persons = _is(
        (), "Users of this machine who may decide, and `key:...` for signed messages; none: who may use the workspace."
    )
    notify_command: MaybeArguments = _is(
        (), "A program that is told of each request: it gets the path of a JSON file as its last argument."
    )
    notify_channel: Recipient = _is("", "A channel of OpenClaw over which you are told, with `openclaw message send`.")
    notify_target: Recipient = _is("", "Whom to tell there, as `openclaw message send --target` takes it.")
    notify_account: Recipient = _is("", "The account of the channel, where it has several.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.notify_channel) != bool(self.notify_target):
            raise ValueError("write both notify_channel and notify_target, or neither")
        return self

    @property
    def notifies(self) -> bool:
        """Whether anybody is told."""
        return bool(self.notify_command or self.notify_channel)


class ActionsSection(Section):
    """Side effects that a person has approved (docs/side-effects.md)."""

    environment: Variables = _is((), "Names of environment variables of the daemon that an action may ask for.")
    timeout_seconds: Whole = _amount(300, "seconds", 1, _DAY, "The longest that one action may take.")


# ---------------------------------------------------------------------------------------------------------------------
# The part of the configuration that is about failures: retry, circuit, escalation, breaker (docs/failures.md).

_WEEK = 7 * _DAY


class RetrySection(Section):
    """What happens when an attempt fails."""

    max_attempts: Whole = _amount(3, "attempts", 1, 100, "Failed attempts until the circuit of a task opens.")
    backoff_seconds: Number = _amount(5.0, "seconds", 0.0, _DAY, "The wait after the first failure; it doubles.")
    backoff_max_seconds: Number = _amount(900.0, "seconds", 0.0, _WEEK, "The longest wait between two attempts.")
    jitter: Number = _amount(
        0.2,
        "share",
        0.0,
        1.0,
        "By how much of itself a wait is moved at random: what failed together should not return so.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.backoff_max_seconds < self.backoff_seconds:
            raise ValueError("raise backoff_max_seconds to at least backoff_seconds")
        return self


class CircuitSection(Section):
    """When to stop trying."""

    hold_seconds: Whole = _amount(
        _DAY, "seconds", 1, _YEAR, "How long a task with an open circuit waits for you before it fails upward."
    )


class EscalationSection(Section):
    """What a task is tried with after failures. Off while nothing stronger is named."""

    from_attempt: Whole = _amount(3, "attempts", 2, 100, "The first stronger try: 3 is after two failures.")
    model: Model = _is("", "Another model, given to OpenClaw as `--model`.")
    agent: AgentOrNobody = _is("", "Another agent, if this one may reach it; never a reviewer of the task.")
    runtime: Literal["openclaw", "acp"] = _is("openclaw", "`acp`: a harness takes over, with the model that it has.")
    harness: HarnessName | Literal[""] = _is("", "The harness for `runtime: acp`, one of `acp.harnesses`.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.runtime == "acp") != bool(self.harness):
            raise ValueError("write both `runtime: acp` and `harness`, or neither")
        if self.harness and (self.model or self.agent):
            raise ValueError("name a harness, or a model and an agent: a harness works for this agent, with its own")
        return self


class BreakerSection(Section):
    """The breaker of each agent: while it is open the agent gets no turns, and no task loses attempts."""

    failures: Whole = _amount(5, "faults", 0, 1_000, "Faults of an agent in a row that open it; 0: never.")
    open_seconds: Number = _amount(60.0, "seconds", 0.0, _DAY, "How long it stays open; it doubles with each time.")
    open_max_seconds: Number = _amount(3_600.0, "seconds", 0.0, _WEEK, "The longest time that it stays open.")


# ---------------------------------------------------------------------------------------------------------------------
# The configuration as a type: every key with its default, unit, range and meaning, stated once.


class OpenClawSection(Section):
    """How agents are called."""

    command: Arguments = _is(("openclaw",), "The program that runs a turn, and arguments that go before ours.")
    transport: Literal["cli", "gateway"] = _is(
        "cli", "How a turn reaches its agent: that program, or a paired WebSocket (`mailboxd gateway pair`)."
    )
    turn_timeout_seconds: Whole = _amount(600, "seconds", 1, _WEEK, "How long one turn of an agent may take.")
    environment: Variables = _is((), "Names of further environment variables that are passed on to the program.")
    discovery: Flag = _is(True, "Ask OpenClaw which agents exist and which of them this agent may reach.")


class LimitsSection(Section):
    """How much at once, how deep, how large."""

    turns: Whole = _amount(4, "turns", 1, 256, "Turns at the same time; never more than half of the gateway's own.")
    turns_per_agent: Whole = _amount(1, "turns", 1, 256, "Turns that run at the same time for one agent.")
    tree: Whole = _amount(100_000, "tasks", 1, 10_000_000, "Tasks below one root, however deep.")
    planned_per_tree: Whole = _amount(
        200, "tasks", 0, 10_000_000, "Tasks that agents plan below one root until you are asked; 0: no limit."
    )
    planned_per_hour: Whole = _amount(
        1_000, "tasks", 0, 10_000_000, "Tasks that agents plan in any hour until you are asked; 0: no limit."
    )
    turns_per_task: Whole = _amount(50, "turns", 0, 1_000_000, "Turns of a task until you are asked; 0: no limit.")
    turns_per_tree: Whole = _amount(
        1_000,
        "turns",
        0,
        100_000_000,
        "Turns of a tree until you are asked; each task of a plan that you write adds ten. 0: no limit.",
    )
    turns_per_agent_hour: Whole = _amount(
        1_000, "turns", 0, 1_000_000, "Turns of an agent in any hour, then it waits; 0: no limit."
    )
    call_bytes: Whole = _amount(
        225_443_840,
        "bytes",
        1_048_576,
        68_719_476_736,
        "The memory that one call of OpenClaw is counted with; without room for another one, turns wait.",
    )
    depth: Whole = _amount(8, "levels", 1, 64, "How deep a plan may nest: children of children ...")
    children: Whole = _amount(10_000, "tasks", 1, 100_000, "Children that one plan may have.")
    message_bytes: Whole = _amount(
        1_048_576, "bytes", 1_024, 67_108_864, "The largest message that is read; a larger one is rejected unread."
    )
    context_bytes: Whole = _amount(
        65_536, "bytes", 1_024, 1_048_576, "How much of the results of its dependencies a child is given."
    )
    sender_messages: Whole = _amount(
        0, "messages", 0, 1_000_000, "Taken from one sender in a minute; the rest waits in the inbox. 0: no limit."
    )
    sender_bytes: Whole = _amount(
        0, "bytes", 0, 1_099_511_627_776, "The same in a minute, by the size of the messages; 0: no limit."
    )
    sender_open_tasks: Whole = _amount(
        0, "tasks", 0, 10_000_000, "Unfinished tasks of one sender; one more is refused. 0: no limit."
    )
    output_bytes: Whole = _amount(
        16_777_216, "bytes", 65_536, 1_073_741_824, "The most a turn may print; a turn that prints more is stopped."
    )


class SpecSection(Section):
    """What a task must say before it starts (docs/specs.md)."""

    weak: Literal["derive", "draft", "ask"] = _is(
        "derive", "A weak specification: derive a criterion, let the agent draft it in a turn, or ask its sender."
    )


class ChecksSection(Section):
    """Evidence that a task declares (`## Checks`) and that is gathered here, without any agent."""

    commands: Commands = _is(
        (), "Commands that may run, each as the list of words it must begin with, like [[make, test]]; none: nothing."
    )
    timeout_seconds: Whole = _amount(300, "seconds", 1, _DAY, "The longest that one check may take.")


class GatesSection(Section):
    """Which reviews work must pass, where a task does not say so itself."""

    spec_review: Flag = _is(False, "Review the specification before anything executes.")
    spec_gate: Flag = _is(False, "Review the result against the specification.")
    quality_gate: Flag = _is(False, "Review the quality of the result.")
    reviewers: Agents = _is((), "The agents that review, all at once; none reviews what it has done itself.")
    same_reviewer: Flag = _is(
        False, "Let one reviewer judge both the specification and the quality of the same work; else they take turns."
    )
    quorum: Literal["all", "majority", "any"] = _is("all", "How many of them must approve.")
    max_rework: Whole = _amount(3, "rounds", 0, 100, "Rounds of changes until the circuit of the task opens.")

    @model_validator(mode="after")
    def _two_reviewers(self) -> Self:
        both = self.quality_gate and (self.spec_review or self.spec_gate)
        names = {name.lower(): name for name in self.reviewers}
        if both and len(names) == 1 and not self.same_reviewer:
            (name,) = names.values()
            raise ValueError(
                f"{name} would review both the specification and the quality of the same work; "
                "name a second one in `reviewers`, or write `same_reviewer: true`"
            )
        return self


class InboxSection(Section):
    """How arrivals are taken."""

    settle_seconds: Number = _amount(
        1.0,
        "seconds",
        0.0,
        60.0,
        "How long a file that was not renamed in must lie unchanged; twice that if the kernel cannot say it is closed.",
    )
    incomplete_seconds: Whole = _amount(
        60, "seconds", 1, _DAY, "How long an empty or unfinished file is left before it is rejected."
    )
    rescan_seconds: Whole = _amount(
        30, "seconds", 1, 3_600, "How often the directories are read even if nothing was heard of them."
    )
    accept_plain_files: Flag = _is(True, "Take a file without front matter as a task from the operator.")


class SigningSection(Section):
    """Signed messages (docs/security.md; needs the extra `signing`)."""

    require: Senders = _is((), "Senders whose messages are only taken with a valid signature; `operator` is you.")


class TasksSection(Section):
    """The readable files under tasks/."""

    render_seconds: Number = _amount(
        0.2, "seconds", 0.0, 60.0, "Changes of a task within this time become one writing of its task.md."
    )
    keep_days: Whole = _amount(
        30, "days", 0, 36_500, "How long the directory of a finished task stays before it moves to `tasks/.archive/`."
    )


class McpSection(Section):
    """Typed tools for agents (`mailboxd mcp`; needs the extra `mcp`)."""

    port: Whole = _amount(
        0, "port", 0, 65_535, "Where on 127.0.0.1 the daemon serves them, to who has a token; 0: nowhere."
    )


class MetricsSection(Section):
    """For instruments (docs/observability.md; needs the extra `metrics`)."""

    port: Whole = _amount(
        0,
        "port",
        0,
        65_535,
        "Where on 127.0.0.1 /metrics is served, for the bearer token in .mailboxd/metrics.token; 0: nowhere.",
    )
    otlp_endpoint: Address = _is(
        "", "Where traces are sent by OTLP over HTTP, like http://127.0.0.1:4318/v1/traces; empty: nowhere."
    )


class WebSection(Section):
    """The page (`mailboxd web`; needs the extra `web`)."""

    port: Whole = _amount(
        0, "port", 0, 65_535, "Where on 127.0.0.1 the daemon serves it, for all workspaces of the user; 0: nowhere."
    )


class ShutdownSection(Section):
    """What happens on SIGTERM."""

    drain_seconds: Whole = _amount(60, "seconds", 0, 3_600, "How long running turns are waited for before the exit.")
    grace_seconds: Whole = _amount(
        5, "seconds", 0, 600, "How long a turn that is stopped has between SIGTERM and SIGKILL."
    )


class LogSection(Section):
    """What the daemon writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = _is("info", "The least important records that are written.")
    format: Literal["text", "json"] = _is("text", "One readable line per record, or one JSON object.")


class Config(Section):
    """All of `.mailboxd/config.yaml`. Only `agent` is required."""

    agent: Agent = Field(description="The OpenClaw id of the agent whose mailbox this is.")
    reply_within_seconds: Whole = _amount(
        _DAY, "seconds", 1, _YEAR, "How long a peer that has acknowledged a dispatch may be silent."
    )
    heartbeat_seconds: Whole = _amount(
        300, "seconds", 0, _WEEK, "How often a mailboxd peer is told that its work is alive; 0: never."
    )
    synthesis: Literal["agent", "concat", "none"] = _is(
        "agent", "How results of children become one: a turn of the agent, their texts in order, or nothing."
    )
    openclaw: OpenClawSection = OpenClawSection()
    limits: LimitsSection = LimitsSection()
    retry: RetrySection = RetrySection()
    circuit: CircuitSection = CircuitSection()
    acp: AcpSection = AcpSection()
    escalation: EscalationSection = EscalationSection()
    breaker: BreakerSection = BreakerSection()
    spec: SpecSection = SpecSection()
    checks: ChecksSection = ChecksSection()
    gates: GatesSection = GatesSection()
    approvals: ApprovalsSection = ApprovalsSection()
    actions: ActionsSection = ActionsSection()
    inbox: InboxSection = InboxSection()
    signing: SigningSection = SigningSection()
    tasks: TasksSection = TasksSection()
    mcp: McpSection = McpSection()
    metrics: MetricsSection = MetricsSection()
    web: WebSection = WebSection()
    shutdown: ShutdownSection = ShutdownSection()
    log: LogSection = LogSection()

    @field_validator("escalation")
    @classmethod
    def _known(cls, escalation: EscalationSection, found: ValidationInfo) -> EscalationSection:
        acp = found.data.get("acp")
        if escalation.harness and acp is not None and escalation.harness not in acp.harnesses:
            names = ", ".join(acp.harnesses) or "none"
            raise ValueError(f"escalation.harness has to be one of acp.harnesses: {names}")
        return escalation


def policy(config: Config) -> Policy:
    """The rules that a task runs under where its own headers say nothing (protocol section 4)."""
    return Policy(
        max_attempts=config.retry.max_attempts,
        timeout=config.openclaw.turn_timeout_seconds,
        reply_within=config.reply_within_seconds,
        backoff_base=config.retry.backoff_seconds,
        backoff_max=config.retry.backoff_max_seconds,
        circuit_hold=config.circuit.hold_seconds,
        max_rework=config.gates.max_rework,
        gates=frozenset(gate for gate in Gate if getattr(config.gates, gate.value)),
        reviewers=config.gates.reviewers,
        quorum=Quorum(config.gates.quorum),
        same_reviewer=config.gates.same_reviewer,
        weak=Weak(config.spec.weak),
        synthesis=Synthesis(config.synthesis),
        max_turns=config.limits.turns_per_task,
        max_tree_turns=config.limits.turns_per_tree,
        max_tree_tasks=config.limits.planned_per_tree,
    )


def limits(config: Config) -> Limits:
    """The bounds that plans are admitted under."""
    bounds = config.limits
    return Limits(
        bounds.depth,
        bounds.children,
        tree=bounds.tree,
        turns=bounds.turns_per_task,
        tree_turns=bounds.turns_per_tree,
        planned=bounds.planned_per_tree,
        planned_hour=bounds.planned_per_hour,
    )


def checks(config: Config, *, has_schemas: bool) -> CheckRules:
    """What checks may run; `has_schemas`: the library for JSON schemas is there."""
    return CheckRules(config.checks.commands, config.checks.timeout_seconds, has_schemas)


def escalation(config: Config) -> Escalation:
    """What failing tasks are tried with."""
    rules = config.escalation
    return Escalation(rules.from_attempt, rules.model, rules.agent, rules.harness)


def breaker(config: Config) -> BreakerRules:
    """When the breakers of agents open, and for how long."""
    rules = config.breaker
    return BreakerRules(rules.failures, rules.open_seconds, max(rules.open_seconds, rules.open_max_seconds))
