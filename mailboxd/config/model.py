"""The configuration as a type: every key with its default, unit, range and meaning.

The commented config.yaml, the reference page and the checks are made from these fields. Values arrive as the text in
the file and are converted by the type of the key, never by their look (`agent: 007` is a name). A value out of range
raises pydantic's ValidationError, which `mailboxd.config.load` turns into a ConfigError.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mailboxd.core.vocabulary import OPERATORS, is_id

_DAY = 86_400
_WEEK = 7 * _DAY
_YEAR = 366 * _DAY


def _whole(value: object) -> object:
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[0-9]{1,15}", value, re.ASCII) is None:
        raise ValueError("write a whole number in digits, like 4")
    return int(value)


def _number(value: object) -> object:
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value, re.ASCII) is None:
        raise ValueError("write a number, like 5 or 0.5")
    return float(value)


def _flag(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in ("true", "false"):
        raise ValueError("write true or false")
    return value == "true"


def _sequence(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _sender(value: str) -> str:
    if not is_id(value):
        raise ValueError("write an agent id: 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without ..")
    return value


def _agent(value: str) -> str:
    _sender(value)
    if value.lower() in OPERATORS:
        raise ValueError("rename the agent: operator and human are people, and what they send counts as such")
    return value


def _optional_agent(value: str) -> str:
    return _agent(value) if value else value


def _harness(value: str) -> str:
    if not is_id(value):
        raise ValueError("name the harness with 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -")
    return value


def _model(value: str) -> str:
    if value and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}", value, re.ASCII) is None:
        raise ValueError("write the name of a model as OpenClaw has it, like openai/gpt-5")
    return value


def _argument(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("write a program or argument that is not empty")
    return value


def _variable(value: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value, re.ASCII) is None:
        raise ValueError("write the name of an environment variable, without its value")
    return value


def _directory(value: str) -> str:
    parts = value.split("/")
    if value and (not value.isprintable() or value.startswith("/") or any(part in ("", ".", "..") for part in parts)):
        raise ValueError("write a directory of the workspace, relative to it, like src or work/site")
    return value


def _person(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:@+$-]{0,127}", value, re.ASCII) is None:
        raise ValueError("write the name of a user of this machine, or key: and a fingerprint, like key:0f3a...")
    return value


def _recipient(value: str) -> str:
    if len(value) > 200 or not value.isprintable() or value.startswith("-") or value != value.strip():
        raise ValueError("write it as OpenClaw takes it: at most 200 characters, not beginning with a dash")
    return value


def _address(value: str) -> str:
    if not value:
        return value
    try:
        parts = urlsplit(value)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_fine = urlsplit(""), False
    plain = len(value) <= 500 and value.isprintable() and " " not in value
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine or not plain:
        raise ValueError("write an address like http://127.0.0.1:4318/v1/traces")
    if "@" in parts.netloc:
        raise ValueError("no password belongs here; it goes into the environment, OTEL_EXPORTER_OTLP_HEADERS")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Agent = Annotated[str, AfterValidator(_agent)]
OptionalAgent = Annotated[str, AfterValidator(_optional_agent)]
Model = Annotated[str, AfterValidator(_model)]
Sender = Annotated[str, AfterValidator(_sender)]
Senders = Annotated[tuple[Sender, ...], BeforeValidator(_sequence), Field(max_length=100)]
Agents = Annotated[tuple[Agent, ...], BeforeValidator(_sequence), Field(max_length=100)]
Arguments = Annotated[
    tuple[Annotated[str, AfterValidator(_argument)], ...],
    BeforeValidator(_sequence),
    Field(min_length=1, max_length=64),
]
OptionalArguments = Annotated[
    tuple[Annotated[str, AfterValidator(_argument)], ...], BeforeValidator(_sequence), Field(max_length=64)
]
Persons = Annotated[
    tuple[Annotated[str, AfterValidator(_person)], ...], BeforeValidator(_sequence), Field(max_length=100)
]
Recipient = Annotated[str, AfterValidator(_recipient)]
Address = Annotated[str, AfterValidator(_address)]
Directory = Annotated[str, AfterValidator(_directory)]
HarnessName = Annotated[str, AfterValidator(_harness)]
Commands = Annotated[tuple[Arguments, ...], BeforeValidator(_sequence), Field(max_length=100)]
Capabilities = Annotated[tuple[Literal["read", "edit", "execute", "network"], ...], BeforeValidator(_sequence)]
Variables = Annotated[
    tuple[Annotated[str, AfterValidator(_variable)], ...], BeforeValidator(_sequence), Field(max_length=100)
]


def value(default: Any, meaning: str) -> Any:
    """A key that is not a number."""
    return Field(default, description=meaning)


def number(default: float, unit: str, low: float, high: float, meaning: str) -> Any:
    """A key that is a number, with its unit and its range."""
    return Field(default, ge=low, le=high, description=meaning, json_schema_extra={"unit": unit})


class Section(BaseModel):
    """A group of keys: strictly typed, immutable, unknown keys are refused."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", validate_default=False)


class HarnessSection(Section):
    """One program that speaks ACP (docs/integrations.md)."""

    argv: Arguments = Field(description="The program and its arguments, like `[gemini, --acp]`.")
    backend: Literal["direct", "acpx"] = value("direct", "Who speaks ACP with it: mailboxd, or the program `acpx`.")
    capabilities: Capabilities = value(
        ("read",), "What it may do without asking: read, edit, execute, network. For the rest a person is asked."
    )
    environment: Variables = value((), "Names of further environment variables that it is given.")
    cwd: Directory = value("", "The directory that it works in, relative to the workspace, which is the default.")


class AcpSection(Section):
    """Harnesses that do work for this agent (needs the extra `acp`; docs/integrations.md)."""

    acpx: Arguments = value(("acpx",), "The program for harnesses with `backend: acpx`.")
    harnesses: dict[HarnessName, HarnessSection] = value(
        {}, "The harnesses by their names, each with the keys below; a task names one (`runtime: acp`, `harness:`)."
    )


class ApprovalsSection(Section):
    """What a person has to approve before it happens (docs/side-effects.md)."""

    expire_seconds: Whole = number(
        _DAY, "seconds", 1, _YEAR, "How long a request waits for you; then it has expired, and its task fails."
    )
    lobster: OptionalArguments = value(
        ("lobster",), "The Lobster that stands before each side effect; none, or not installed: mailboxd alone does."
    )
    approvers: Persons = value(
        (), "Users of this machine who may decide, and `key:...` for signed messages; none: who may use the workspace."
    )
    notify_command: OptionalArguments = value(
        (), "A program that is told of each request: it gets the path of a JSON file as its last argument."
    )
    notify_channel: Recipient = value("", "A channel of OpenClaw for notifications, sent with `openclaw message send`.")
    notify_target: Recipient = value("", "Whom to tell there, as `openclaw message send --target` takes it.")
    notify_account: Recipient = value("", "The account of the channel, where it has several.")

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

    environment: Variables = value((), "Names of environment variables of the daemon that an action may ask for.")
    timeout_seconds: Whole = number(300, "seconds", 1, _DAY, "The longest that one action may take.")


class RetrySection(Section):
    """What happens when an attempt fails."""

    max_attempts: Whole = number(3, "attempts", 1, 100, "Failed attempts until the circuit of a task opens.")
    backoff_seconds: Number = number(5.0, "seconds", 0.0, _DAY, "The wait after the first failure; it doubles.")
    backoff_max_seconds: Number = number(900.0, "seconds", 0.0, _WEEK, "The longest wait between two attempts.")
    jitter: Number = number(
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

    hold_seconds: Whole = number(
        _DAY, "seconds", 1, _YEAR, "How long a task with an open circuit waits for you before it fails upward."
    )


class EscalationSection(Section):
    """What a task is tried with after failures. Off while nothing stronger is named."""

    from_attempt: Whole = number(3, "attempts", 2, 100, "The first stronger try: 3 is after two failures.")
    model: Model = value("", "Another model, given to OpenClaw as `--model`.")
    agent: OptionalAgent = value("", "Another agent, if this one may reach it; never a reviewer of the task.")
    runtime: Literal["openclaw", "acp"] = value("openclaw", "`acp`: a harness takes over, with the model that it has.")
    harness: HarnessName | Literal[""] = value("", "The harness for `runtime: acp`, one of `acp.harnesses`.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.runtime == "acp") != bool(self.harness):
            raise ValueError("write both `runtime: acp` and `harness`, or neither")
        if self.harness and (self.model or self.agent):
            raise ValueError("name a harness, or a model and an agent: a harness works for this agent, with its own")
        return self


class BreakerSection(Section):
    """The breaker of each agent: while it is open the agent gets no turns, and no task loses attempts."""

    failures: Whole = number(5, "faults", 0, 1_000, "Faults of an agent in a row that open it; 0: never.")
    open_seconds: Number = number(60.0, "seconds", 0.0, _DAY, "How long it stays open; it doubles with each time.")
    open_max_seconds: Number = number(3_600.0, "seconds", 0.0, _WEEK, "The longest time that it stays open.")


class OpenClawSection(Section):
    """How agents are called."""

    command: Arguments = value(("openclaw",), "The program that runs a turn, and arguments that go before ours.")
    transport: Literal["cli", "gateway"] = value(
        "cli", "How a turn reaches its agent: that program, or a paired WebSocket (`mailboxd gateway pair`)."
    )
    turn_timeout_seconds: Whole = number(600, "seconds", 1, _WEEK, "How long one turn of an agent may take.")
    environment: Variables = value((), "Names of further environment variables that are passed on to the program.")
    discovery: Flag = value(True, "Ask OpenClaw which agents exist and which of them this agent may reach.")


class LimitsSection(Section):
    """How much at once, how deep, how large."""

    turns: Whole = number(4, "turns", 1, 256, "Turns at the same time; never more than half of the gateway's own.")
    turns_per_agent: Whole = number(1, "turns", 1, 256, "Turns that run at the same time for one agent.")
    tree: Whole = number(100_000, "tasks", 1, 10_000_000, "Tasks below one root, however deep.")
    planned_per_tree: Whole = number(
        200, "tasks", 0, 10_000_000, "Tasks that agents plan below one root until you are asked; 0: no limit."
    )
    planned_per_hour: Whole = number(
        1_000, "tasks", 0, 10_000_000, "Tasks that agents plan in any hour until you are asked; 0: no limit."
    )
    turns_per_task: Whole = number(50, "turns", 0, 1_000_000, "Turns of a task until you are asked; 0: no limit.")
    turns_per_tree: Whole = number(
        1_000,
        "turns",
        0,
        100_000_000,
        "Turns of a tree until you are asked; each task of a plan that you write adds ten. 0: no limit.",
    )
    turns_per_agent_hour: Whole = number(
        1_000, "turns", 0, 1_000_000, "Turns of an agent in any hour, then it waits; 0: no limit."
    )
    call_bytes: Whole = number(
        225_443_840,
        "bytes",
        1_048_576,
        68_719_476_736,
        "The memory that one call of OpenClaw is counted with; without room for another one, turns wait.",
    )
    depth: Whole = number(8, "levels", 1, 64, "How deep a plan may nest: children of children ...")
    children: Whole = number(10_000, "tasks", 1, 100_000, "Children that one plan may have.")
    message_bytes: Whole = number(
        1_048_576, "bytes", 1_024, 67_108_864, "The largest message that is read; a larger one is rejected unread."
    )
    context_bytes: Whole = number(
        65_536, "bytes", 1_024, 1_048_576, "How much of the results of its dependencies a child is given."
    )
    sender_messages: Whole = number(
        0, "messages", 0, 1_000_000, "Taken from one sender in a minute; the rest waits in the inbox. 0: no limit."
    )
    sender_bytes: Whole = number(
        0, "bytes", 0, 1_099_511_627_776, "The same in a minute, by the size of the messages; 0: no limit."
    )
    sender_open_tasks: Whole = number(
        0, "tasks", 0, 10_000_000, "Unfinished tasks of one sender; one more is refused. 0: no limit."
    )
    output_bytes: Whole = number(
        16_777_216, "bytes", 65_536, 1_073_741_824, "The most a turn may print; a turn that prints more is stopped."
    )


class SpecSection(Section):
    """What a task must say before it starts (docs/specs.md)."""

    weak: Literal["derive", "draft", "ask"] = value(
        "derive", "A weak specification: derive a criterion, let the agent draft it in a turn, or ask its sender."
    )


class ChecksSection(Section):
    """Evidence that a task declares (`## Checks`) and that is gathered here, without any agent."""

    commands: Commands = value(
        (), "Commands that may run, each as the list of words it must begin with, like [[make, test]]; none: nothing."
    )
    timeout_seconds: Whole = number(300, "seconds", 1, _DAY, "The longest that one check may take.")


class GatesSection(Section):
    """Which reviews work must pass, where a task does not say so itself."""

    spec_review: Flag = value(False, "Review the specification before anything executes.")
    spec_gate: Flag = value(False, "Review the result against the specification.")
    quality_gate: Flag = value(False, "Review the quality of the result.")
    reviewers: Agents = value((), "The agents that review, all at once; none reviews what it has done itself.")
    same_reviewer: Flag = value(
        False, "Let one reviewer judge both the specification and the quality of the same work; else they take turns."
    )
    quorum: Literal["all", "majority", "any"] = value("all", "How many of them must approve.")
    max_rework: Whole = number(3, "rounds", 0, 100, "Rounds of changes until the circuit of the task opens.")

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

    settle_seconds: Number = number(
        1.0,
        "seconds",
        0.0,
        60.0,
        "How long a file that was not renamed in must lie unchanged; twice that if the kernel cannot say it is closed.",
    )
    incomplete_seconds: Whole = number(
        60, "seconds", 1, _DAY, "How long an empty or unfinished file is left before it is rejected."
    )
    rescan_seconds: Whole = number(
        30, "seconds", 1, 3_600, "How often the directories are read even if nothing was heard of them."
    )
    accept_plain_files: Flag = value(True, "Take a file without front matter as a task from the operator.")


class SigningSection(Section):
    """Signed messages (docs/security.md; needs the extra `signing`)."""

    require: Senders = value((), "Senders whose messages are only taken with a valid signature; `operator` is you.")


class TasksSection(Section):
    """The readable files under tasks/."""

    render_seconds: Number = number(
        0.2, "seconds", 0.0, 60.0, "Changes of a task within this time become one writing of its task.md."
    )
    keep_days: Whole = number(
        30, "days", 0, 36_500, "How long the directory of a finished task stays before it moves to `tasks/.archive/`."
    )


class McpSection(Section):
    """Typed tools for agents (`mailboxd mcp`; needs the extra `mcp`)."""

    port: Whole = number(
        0, "port", 0, 65_535, "Where on 127.0.0.1 the daemon serves them, to who has a token; 0: nowhere."
    )


class MetricsSection(Section):
    """For instruments (docs/observability.md; needs the extra `metrics`)."""

    port: Whole = number(
        0,
        "port",
        0,
        65_535,
        "Where on 127.0.0.1 /metrics is served, for the bearer token in .mailboxd/metrics.token; 0: nowhere.",
    )
    otlp_endpoint: Address = value(
        "", "Where traces are sent by OTLP over HTTP, like http://127.0.0.1:4318/v1/traces; empty: nowhere."
    )


class WebSection(Section):
    """The page (`mailboxd web`; needs the extra `web`)."""

    port: Whole = number(
        0, "port", 0, 65_535, "Where on 127.0.0.1 the daemon serves it, for all workspaces of the user; 0: nowhere."
    )


class ShutdownSection(Section):
    """What happens on SIGTERM."""

    drain_seconds: Whole = number(60, "seconds", 0, 3_600, "How long running turns are waited for before the exit.")
    grace_seconds: Whole = number(
        5, "seconds", 0, 600, "How long a turn that is stopped has between SIGTERM and SIGKILL."
    )


class LogSection(Section):
    """What the daemon writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = value("info", "The least important records that are written.")
    format: Literal["text", "json"] = value("text", "One readable line per record, or one JSON object.")


class Config(Section):
    """All of `.mailboxd/config.yaml`. Only `agent` is required."""

    agent: Agent = Field(description="The OpenClaw id of the agent whose mailbox this is.")
    reply_within_seconds: Whole = number(
        _DAY, "seconds", 1, _YEAR, "How long a peer that has acknowledged a dispatch may be silent."
    )
    heartbeat_seconds: Whole = number(
        300, "seconds", 0, _WEEK, "How often a mailboxd peer is told that its work is alive; 0: never."
    )
    synthesis: Literal["agent", "concat", "none"] = value(
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
