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

from mailboxd.core.vocabulary import ADDRESS, MODEL, OPERATORS, Notice, is_id

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
        raise ValueError("rename the agent: messages from operator and human count as from a person")
    return value


def _optional_agent(value: str) -> str:
    return _agent(value) if value else value


def _harness(value: str) -> str:
    if not is_id(value):
        raise ValueError("name the harness with 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -")
    return value


def _model(value: str) -> str:
    if value and MODEL.fullmatch(value) is None:
        raise ValueError("write a model name as in OpenClaw, like openai/gpt-5")
    return value


def _reply_to(value: str) -> str:
    if ADDRESS.fullmatch(value) is None:
        raise ValueError(
            "write CHANNEL:TARGET or session:KEY, like telegram:@ann; with * at the end: all that begin so"
        )
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
        raise ValueError("write a directory relative to the workspace, like src or work/site")
    return value


def _person(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:@+$-]{0,127}", value, re.ASCII) is None:
        raise ValueError("write a user name of this machine, or key: and a fingerprint, like key:0f3a...")
    return value


def _recipient(value: str) -> str:
    if len(value) > 200 or not value.isprintable() or value.startswith("-") or value != value.strip():
        raise ValueError("write it as for OpenClaw: at most 200 characters, not beginning with a dash")
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
        raise ValueError("remove the password; set it in the environment variable OTEL_EXPORTER_OTLP_HEADERS")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Agent = Annotated[str, AfterValidator(_agent)]
OptionalAgent = Annotated[str, AfterValidator(_optional_agent)]
Model = Annotated[str, AfterValidator(_model)]
Models = Annotated[tuple[Model, ...], BeforeValidator(_sequence), Field(max_length=100)]
Addresses = Annotated[
    tuple[Annotated[str, AfterValidator(_reply_to)], ...], BeforeValidator(_sequence), Field(max_length=100)
]
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
Notices = Annotated[
    tuple[Literal["completed", "failed", "question", "approval", "circuit", "hold", "trouble"], ...],
    BeforeValidator(_sequence),
]
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
    """One program that speaks ACP."""

    argv: Arguments = Field(description="Program and arguments, like `[gemini, --acp]`.")
    capabilities: Capabilities = value(("read",), "Allowed without asking: read, edit, execute, network.")
    environment: Variables = value((), "Further environment variables passed to it.")
    cwd: Directory = value("", "Its directory in the workspace; default: the workspace.")


class AcpSection(Section):
    """Harnesses that work for this agent (needs the extra `acp`)."""

    harnesses: dict[HarnessName, HarnessSection] = value(
        {}, "Harnesses by name, for tasks with `runtime: acp` and `harness:`."
    )


class ApprovalsSection(Section):
    """Approvals of side effects by a person."""

    expire_seconds: Whole = number(_DAY, "seconds", 1, _YEAR, "How long a request waits; then its task fails.")
    lobster: OptionalArguments = value(("lobster",), "Lobster's program; none or missing: the builtin gate.")
    approvers: Persons = value(
        (), "Users who may decide, or `key:...` for signatures; none: every user of the workspace."
    )


class NotifySection(Section):
    """Notices about what waits for people and how their tasks ended."""

    kinds: Notices = value(tuple(kind.value for kind in Notice), f"Of these: {', '.join(Notice)}.")
    command: OptionalArguments = value((), "Program started for each, with the path of a JSON file.")
    channel: Recipient = value("", "OpenClaw channel (`openclaw message send`).")
    target: Recipient = value("", "Its `--target`.")
    account: Recipient = value("", "The channel's account, if it has several.")
    reply_to: Addresses = value((), "What `reply_to` of a task may name: `telegram:@ann`, `slack:*`, `session:...`.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.channel) != bool(self.target):
            raise ValueError("write both channel and target, or neither")
        return self

    @property
    def notices(self) -> frozenset[Notice]:
        """The kinds of notices."""
        return frozenset(map(Notice, self.kinds)) if self.command or self.channel else frozenset()


class ActionsSection(Section):
    """Side effects after their approval."""

    environment: Variables = value((), "Environment variables that actions may request.")
    timeout_seconds: Whole = number(300, "seconds", 1, _DAY, "Timeout of an action.")


class RetrySection(Section):
    """Retries of failed attempts."""

    max_attempts: Whole = number(3, "attempts", 1, 100, "Failures until a task's circuit opens.")
    backoff_seconds: Number = number(5.0, "seconds", 0.0, _DAY, "Pause after the first failure; it doubles.")
    backoff_max_seconds: Number = number(900.0, "seconds", 0.0, _WEEK, "Longest pause.")
    jitter: Number = number(0.2, "share", 0.0, 1.0, "Random share of the pause.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.backoff_max_seconds < self.backoff_seconds:
            raise ValueError("raise backoff_max_seconds to at least backoff_seconds")
        return self


class CircuitSection(Section):
    """When retries end."""

    hold_seconds: Whole = number(_DAY, "seconds", 1, _YEAR, "How long an open circuit waits before the task fails.")


class EscalationSection(Section):
    """A stronger model, agent or harness after failures. Off by default."""

    from_attempt: Whole = number(3, "attempts", 2, 100, "First escalated attempt: 3 is after two failures.")
    model: Model = value("", "Model for OpenClaw's `--model`.")
    agent: OptionalAgent = value("", "Another agent in reach; never a reviewer of the task.")
    runtime: Literal["openclaw", "acp"] = value("openclaw", "`acp`: a harness takes over.")
    harness: HarnessName | Literal[""] = value("", "One of `acp.harnesses`.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.runtime == "acp") != bool(self.harness):
            raise ValueError("write both `runtime: acp` and `harness`, or neither")
        if self.harness and (self.model or self.agent):
            raise ValueError("name a harness, or a model and an agent, not both: a harness has its own model")
        return self


class BreakerSection(Section):
    """The breaker of each agent: while it is open, the agent gets no turns and tasks lose no attempts."""

    failures: Whole = number(5, "faults", 0, 1_000, "Faults of an agent in a row that open it; 0: never.")
    open_seconds: Number = number(60.0, "seconds", 0.0, _DAY, "How long it stays open; it doubles.")
    open_max_seconds: Number = number(3_600.0, "seconds", 0.0, _WEEK, "Longest time open.")


class OpenClawSection(Section):
    """How agents are called."""

    command: Arguments = value(("openclaw",), "Program that runs a turn, with leading arguments.")
    transport: Literal["auto", "cli", "gateway"] = value(
        "auto",
        "Run turns by that program or over a WebSocket; `auto`: over it once `mailboxd connect gateway pair` was run.",
    )
    turn_timeout_seconds: Whole = number(600, "seconds", 1, _WEEK, "Timeout of a turn.")
    environment: Variables = value((), "Further environment variables passed to the program.")
    models: Models = value((), "Models that `model` of a task may name.")
    discovery: Flag = value(True, "Ask OpenClaw which agents exist and are in reach.")


class LimitsSection(Section):
    """Concurrency, depth and sizes."""

    turns: Whole = number(4, "turns", 1, 256, "Concurrent turns, at most half of the gateway's.")
    turns_per_agent: Whole = number(
        0, "turns", 0, 256, "Concurrent turns of one agent. 0: as many as there may be in all."
    )
    tree: Whole = number(100_000, "tasks", 1, 10_000_000, "Tasks below one root.")
    planned_per_tree: Whole = number(
        200, "tasks", 0, 10_000_000, "Tasks planned by agents below one root, then held; 0: no limit."
    )
    planned_per_hour: Whole = number(
        1_000, "tasks", 0, 10_000_000, "Tasks planned by agents in an hour, then held; 0: no limit."
    )
    usd_per_task: Number = number(
        0.0, "dollars", 0.0, 1_000_000.0, "Budget (US) of a root task that has none of its own; 0: none."
    )
    tokens_per_task: Whole = number(0, "tokens", 0, 1_000_000_000, "The same in tokens.")
    turns_per_task: Whole = number(50, "turns", 0, 1_000_000, "Turns of a task, then held; 0: no limit.")
    questions: Whole = number(5, "questions", 0, 1_000, "Questions of a task, over all its attempts.")
    turns_per_tree: Whole = number(
        1_000,
        "turns",
        0,
        100_000_000,
        "Turns of a tree, then held; each task that you plan adds ten. 0: no limit.",
    )
    turns_per_agent_hour: Whole = number(
        1_000, "turns", 0, 1_000_000, "Turns of an agent in an hour, then it waits; 0: no limit."
    )
    call_bytes: Whole = number(
        225_443_840,
        "bytes",
        1_048_576,
        68_719_476_736,
        "Memory reserved per turn by that program; further turns wait for it.",
    )
    depth: Whole = number(8, "levels", 1, 64, "Depth of nested plans.")
    children: Whole = number(10_000, "tasks", 1, 100_000, "Children of one plan.")
    message_bytes: Whole = number(1_048_576, "bytes", 1_024, 67_108_864, "Larger messages are rejected unread.")
    context_bytes: Whole = number(
        65_536, "bytes", 1_024, 1_048_576, "How much of its dependencies' results a child gets."
    )
    background_bytes: Whole = number(
        4_096, "bytes", 0, 1_048_576, "How much of its parent task a child is shown. 0: nothing."
    )
    sender_messages: Whole = number(
        0, "messages", 0, 1_000_000, "Messages of one sender per minute; others wait. 0: no limit."
    )
    sender_bytes: Whole = number(0, "bytes", 0, 1_099_511_627_776, "Bytes of one sender per minute; 0: no limit.")
    sender_open_tasks: Whole = number(
        0, "tasks", 0, 10_000_000, "Unfinished tasks of one sender; more are refused. 0: no limit."
    )
    output_bytes: Whole = number(16_777_216, "bytes", 65_536, 1_073_741_824, "A turn that prints more is stopped.")


class SpecSection(Section):
    """Requirements for specifications."""

    weak: Literal["derive", "draft", "ask"] = value(
        "derive", "Weak specifications: derive a criterion, draft one in a turn, or ask the sender."
    )


class ChecksSection(Section):
    """Checks that tasks declare (`## Checks`) and that run without an agent."""

    commands: Commands = value((), "Allowed commands by their first words, like [[make, test]].")
    timeout_seconds: Whole = number(300, "seconds", 1, _DAY, "Timeout of a check.")


class GatesSection(Section):
    """Reviews, unless a task sets its own."""

    spec_review: Flag = value(False, "Review the specification before execution.")
    spec_gate: Flag = value(False, "Review the result against the specification.")
    quality_gate: Flag = value(False, "Review the quality of the result.")
    reviewers: Agents = value((), "Reviewing agents; none reviews its own work.")
    same_reviewer: Flag = value(False, "One reviewer may judge specification and quality; otherwise they alternate.")
    quorum: Literal["all", "majority", "any"] = value("all", "How many must approve.")
    max_rework: Whole = number(3, "rounds", 0, 100, "Rounds of rework until the circuit opens.")

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
    """Intake of new files."""

    settle_seconds: Number = number(
        1.0,
        "seconds",
        0.0,
        60.0,
        "How long a file written in place must be unchanged; twice that if it may be open.",
    )
    incomplete_seconds: Whole = number(60, "seconds", 1, _DAY, "When an empty or unfinished file is rejected.")
    rescan_seconds: Whole = number(30, "seconds", 1, 3_600, "Interval of scans without notifications.")
    accept_plain_files: Flag = value(
        True, "Accept files without front matter, or with less than its required headers, as the operator's."
    )


class SigningSection(Section):
    """Signed messages (needs the extra `signing`)."""

    require: Senders = value((), "Senders that must sign their messages, or `operator`.")


class TasksSection(Section):
    """The files under tasks/."""

    render_seconds: Number = number(
        0.2, "seconds", 0.0, 60.0, "Changes within this time are written to task.md together."
    )
    keep_days: Whole = number(
        30, "days", 0, 36_500,
        "When a finished task's directory moves to `tasks/.archive/`, and files that came with mail are removed.",
    )  # fmt: skip


class McpSection(Section):
    """Typed tools for agents (`mailboxd connect mcp`; needs the extra `mcp`)."""

    port: Whole = number(0, "port", 0, 65_535, "Port on 127.0.0.1 for typed tools; 0: off.")


class MetricsSection(Section):
    """Metrics and traces (needs the extra `metrics`)."""

    port: Whole = number(
        0,
        "port",
        0,
        65_535,
        "Port on 127.0.0.1 for /metrics, with the token of .mailboxd/metrics.token; 0: off.",
    )
    otlp_endpoint: Address = value("", "OTLP address, like http://127.0.0.1:4318/v1/traces; empty: off.")


class WebSection(Section):
    """The page (`mailboxd web`; needs the extra `web`)."""

    port: Whole = number(0, "port", 0, 65_535, "Port on 127.0.0.1 for the page of all workspaces; 0: off.")


class ShutdownSection(Section):
    """Shutdown on SIGTERM."""

    drain_seconds: Whole = number(60, "seconds", 0, 3_600, "How long to wait for running turns at exit.")
    grace_seconds: Whole = number(5, "seconds", 0, 600, "Time between SIGTERM and SIGKILL.")


class LogSection(Section):
    """The daemon's log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = value("info", "Lowest level written.")
    format: Literal["text", "json"] = value("text", "Readable lines or JSON objects.")


STRICT: dict[str, dict[str, Any]] = {
    "gates": {"spec_review": True, "spec_gate": True, "quality_gate": True},
    "spec": {"weak": "ask"},
    "limits": {"usd_per_task": 10.0, "tokens_per_task": 2_000_000},
}
"""The defaults that `profile: strict` changes."""


class Config(Section):
    """All of `.mailboxd/config.yaml`. Only `agent` is required."""

    agent: Agent = Field(description="OpenClaw id of this mailbox's agent.")
    profile: Literal["standard", "strict"] = value(
        "standard", "`strict`: all reviews, weak specifications are asked about, budgets; keys that are set count."
    )
    reply_within_seconds: Whole = number(
        _DAY, "seconds", 1, _YEAR, "Lease: how long a peer may be silent after its `ack`."
    )
    heartbeat_seconds: Whole = number(300, "seconds", 0, _WEEK, "Interval of heartbeats to a mailboxd peer; 0: none.")
    synthesis: Literal["agent", "concat", "none"] = value(
        "agent", "How children's results are combined: a turn, concatenation, or not."
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
    notify: NotifySection = NotifySection()
    actions: ActionsSection = ActionsSection()
    inbox: InboxSection = InboxSection()
    signing: SigningSection = SigningSection()
    tasks: TasksSection = TasksSection()
    mcp: McpSection = McpSection()
    metrics: MetricsSection = MetricsSection()
    web: WebSection = WebSection()
    shutdown: ShutdownSection = ShutdownSection()
    log: LogSection = LogSection()

    @model_validator(mode="before")
    @classmethod
    def _profile(cls, given: Any) -> Any:
        """Fill in the defaults of the profile, under the keys that are set."""
        if not isinstance(given, dict) or given.get("profile") != "strict":
            return given
        groups = {name: (keys, given.get(name, {})) for name, keys in STRICT.items()}
        return given | {name: keys | own if isinstance(own, dict) else own for name, (keys, own) in groups.items()}

    @field_validator("escalation")
    @classmethod
    def _known(cls, escalation: EscalationSection, found: ValidationInfo) -> EscalationSection:
        acp = found.data.get("acp")
        if escalation.harness and acp is not None and escalation.harness not in acp.harnesses:
            names = ", ".join(acp.harnesses) or "none"
            raise ValueError(f"escalation.harness must be one of acp.harnesses: {names}")
        return escalation
