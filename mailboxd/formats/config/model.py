"""The configuration as a type: every key with its default, unit, range and meaning.

The commented config.yaml, the reference page and the checks are made from these fields. Values arrive as the text in
the file and are converted by the type of the key, never by their look (`agent: 007` is a name). A value out of range
raises pydantic's ValidationError, which `mailboxd.formats.config.load` turns into a ConfigError.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
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

from mailboxd.core.notices import read_quiet
from mailboxd.core.people import is_person
from mailboxd.core.vocabulary import ADDRESS, MODEL, NOTICES, OPERATORS, Notice, is_id
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.repeats import read_repeat
from mailboxd.host import zone

_DAY = 86_400
_WEEK = 7 * _DAY
_YEAR = 366 * _DAY


class Shown(StrEnum):
    """How events record the values of a key (`config.recorded`). Numbers, flags and choices are shown; the type of any
    other key has to say it.
    """

    VALUE = "value"
    PROGRAM = "program"
    """The first word only: the arguments of a command may hold a secret."""
    HIDDEN = "hidden"
    """Whether there is a value, and that it has changed."""


def _parsed(pattern: str, convert: Callable[[str], object], remedy: str) -> BeforeValidator:
    """A value that is written as text of this form; `remedy` says what to write instead."""
    form = re.compile(pattern, re.ASCII)

    def parse(value: object) -> object:
        if not isinstance(value, str):
            return value
        if form.fullmatch(value) is None:
            raise ValueError(remedy)
        return convert(value)

    return BeforeValidator(parse)


def such(holds: Callable[[str], object], remedy: str) -> AfterValidator:
    """Text for which something holds; `remedy` says what to write instead."""

    def check(value: str) -> str:
        if not holds(value):
            raise ValueError(remedy)
        return value

    return AfterValidator(check)


def _matches(pattern: str, remedy: str) -> AfterValidator:
    return such(re.compile(pattern, re.ASCII).fullmatch, remedy)


def _is_directory(value: str) -> bool:
    parts = value.split("/")
    return value.isprintable() and not value.startswith("/") and not any(part in ("", ".", "..") for part in parts)


def _is_recipient(value: str) -> bool:
    return len(value) <= 200 and value.isprintable() and not value.startswith("-") and value == value.strip()


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_web and len(value) <= 500 and value.isprintable() and " " not in value


def _known_zone(value: str) -> str:
    zone.named(value)
    return value


def _is_rule(value: str) -> str:
    try:
        if value:
            read_repeat(value)
    except MessageError as error:
        raise ValueError(f"{error.problem}. {error.hint}") from None
    return value


def _is_quiet(value: str) -> bool:
    with suppress(ValueError):
        return not value or bool(read_quiet(value))
    return False


Digest = Annotated[str, AfterValidator(_is_rule), Shown.VALUE]
QuietWindow = Annotated[str, such(_is_quiet, "write the hours as 22:00-07:00"), Shown.VALUE]
Link = Annotated[
    str,
    such(lambda value: not value or _is_address(value), "write an address like https://mail.example"),
    Shown.HIDDEN,
]
ID_FORM = "1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -"
_LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
_MANY, _WORDS = Field(max_length=100), Field(max_length=64)
Whole = Annotated[int, _parsed(r"[0-9]{1,15}", int, "write a whole number in digits, like 4")]
Number = Annotated[
    float, _parsed(r"[0-9]{1,15}(\.[0-9]{1,9})?", float, "write a number, like 5 or 0.5"), Field(allow_inf_nan=False)
]
Zone = Annotated[str, AfterValidator(_known_zone), Shown.VALUE]
Flag = Annotated[bool, _parsed("true|false", "true".__eq__, "write true or false")]
Sender = Annotated[str, such(is_id, f"write an agent id: {ID_FORM}, without .."), Shown.VALUE]
Senders = Annotated[tuple[Sender, ...], _LIST, _MANY, Shown.VALUE]
_NOT_A_PERSON = such(
    lambda value: value.lower() not in OPERATORS,
    "rename the agent: messages from operator and human count as from a person",
)
Agent = Annotated[Sender, _NOT_A_PERSON]
Agents = Annotated[tuple[Agent, ...], _LIST, _MANY, Shown.VALUE]
Model = Annotated[
    str,
    such(lambda value: not value or MODEL.fullmatch(value), "write a model name as in OpenClaw, like openai/gpt-5"),
    Shown.VALUE,
]
Models = Annotated[tuple[Model, ...], _LIST, _MANY, Shown.VALUE]
ReplyTo = Annotated[
    str,
    such(
        ADDRESS.fullmatch,
        "write CHANNEL:TARGET, session:KEY or wake:KEY, like telegram:@ann; with * at the end: all that begin so",
    ),
]
Argument = Annotated[
    str, such(lambda value: value and "\0" not in value, "write a program or argument that is not empty")
]
OptionalArguments = Annotated[tuple[Argument, ...], _LIST, _WORDS, Shown.PROGRAM]
Arguments = Annotated[OptionalArguments, Field(min_length=1)]
Commands = Annotated[tuple[Arguments, ...], _LIST, _MANY, Shown.PROGRAM]
Person = Annotated[
    str,
    such(
        is_person,
        "write a user name of this machine, key:FINGERPRINT, chat:CHANNEL:SENDER (chat:telegram:12345) or device:ID",
    ),
]
Recipient = Annotated[
    str,
    such(_is_recipient, "write it as for OpenClaw: at most 200 characters, not beginning with a dash"),
    Shown.HIDDEN,
]
Address = Annotated[
    str,
    such(lambda value: not value or _is_address(value), "write an address like http://127.0.0.1:4318/v1/traces"),
    such(
        lambda value: "@" not in urlsplit(value).netloc,
        "remove the password; set it in the environment variable OTEL_EXPORTER_OTLP_HEADERS",
    ),
    Shown.HIDDEN,
]
Directory = Annotated[
    str,
    such(
        lambda value: not value or _is_directory(value),
        "write a directory relative to the workspace, like src or work/site",
    ),
    Shown.VALUE,
]
_ID_OR_NONE = such(lambda value: not value or is_id(value), f"write an id: {ID_FORM}, without ..")
HarnessName = Annotated[str, such(is_id, f"name the harness with {ID_FORM}")]
Variable = Annotated[
    str, _matches("[A-Za-z_][A-Za-z0-9_]{0,127}", "write the name of an environment variable, without its value")
]
Variables = Annotated[tuple[Variable, ...], _LIST, _MANY, Shown.VALUE]


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
    capabilities: Annotated[tuple[Literal["read", "edit", "execute", "network"], ...], _LIST] = value(
        ("read",), "Allowed without asking: read, edit, execute, network."
    )
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
    approvers: Annotated[tuple[Person, ...], _LIST, _MANY, Shown.VALUE] = value(
        (),
        "Who may decide: users, `key:...` for signatures, `chat:telegram:12345`, `device:...`; "
        "none: every user of the workspace.",
    )
    by_chat: Literal["reversible", "all"] = value(
        "reversible", "What chats and the dashboard may approve: what can be taken back, or everything."
    )


class NotifySection(Section):
    """Notices about what waits for people and how their tasks ended."""

    kinds: Annotated[
        tuple[Literal["completed", "failed", "question", "approval", "circuit", "hold", "trouble"], ...], _LIST
    ] = value(tuple(kind.value for kind in NOTICES), f"Of these: {', '.join(NOTICES)}.")
    command: OptionalArguments = value((), "Program started for each, with the path of a JSON file.")
    channel: Recipient = value("", "OpenClaw channel (`openclaw message send`).")
    target: Recipient = value("", "Its `--target`.")
    account: Recipient = value("", "The channel's account, if it has several.")
    reply_to: Annotated[tuple[ReplyTo, ...], _LIST, _MANY, Shown.VALUE] = value(
        (), "What `reply_to` of a task may name: `telegram:@ann`, `slack:*`, `session:...`, `wake:...`."
    )

    digest: Digest = value(
        "",
        "When the overview of `mailboxd status` is sent, like `daily at 08:00` (the words of `repeat`); empty: never.",
    )
    digest_always: Flag = value(False, "Send the digest also when there is nothing to say.")
    quiet: QuietWindow = value("", "Hours of the day in which notices wait, like `22:00-07:00`; empty: none.")
    link: Link = value("", "Address of the page in notices, if it is not on this machine; empty: that of the own page.")
    prompts: Flag = value(
        True, "Ask open questions in OpenClaw's chats too (needs `mailboxd connect gateway pair --questions`)."
    )

    workboard: Flag = value(
        False, "Show tasks as cards of OpenClaw's Workboard (2026.9.6; its plugin is to be enabled), one way."
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.channel) != bool(self.target):
            raise ValueError("write both channel and target, or neither")
        for name in ("digest", "quiet"):
            if getattr(self, name) and not (self.channel or self.command):
                raise ValueError(f"{name} has nobody to tell: write channel and target, or command, beside it")
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

    max_attempts: Whole = number(3, "attempts", 1, 100, "Failures until a task stops and waits for you.")
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

    hold_seconds: Whole = number(
        _DAY, "seconds", 1, _YEAR, "How long a task that stopped waits for you before it fails."
    )


class EscalationSection(Section):
    """A stronger model, agent or harness after failures. Off by default."""

    from_attempt: Whole = number(3, "attempts", 2, 100, "First escalated attempt: 3 is after two failures.")
    model: Model = value("", "Model for OpenClaw's `--model`.")
    agent: Annotated[str, _ID_OR_NONE, _NOT_A_PERSON, Shown.VALUE] = value(
        "", "Another agent in reach; never a reviewer of the task."
    )
    runtime: Literal["openclaw", "acp"] = value("openclaw", "`acp`: a harness takes over.")
    harness: Annotated[str, _ID_OR_NONE, Shown.VALUE] = value("", "One of `acp.harnesses`.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.runtime == "acp") != bool(self.harness):
            raise ValueError("write both `runtime: acp` and `harness`, or neither")
        if self.harness and (self.model or self.agent):
            raise ValueError("name a harness, or a model and an agent, not both: a harness has its own model")
        return self


class BreakerSection(Section):
    """Agents whose turns keep failing: for a while they get none, and tasks lose no attempts."""

    failures: Whole = number(5, "faults", 0, 1_000, "Faults in a row after which an agent gets no turns; 0: never.")
    open_seconds: Number = number(60.0, "seconds", 0.0, _DAY, "How long at first; it doubles.")
    open_max_seconds: Number = number(3_600.0, "seconds", 0.0, _WEEK, "The longest time.")


class OpenClawSection(Section):
    """How agents are called."""

    command: Arguments = value(("openclaw",), "Program that runs a turn, with leading arguments.")
    transport: Literal["auto", "cli", "gateway"] = value(
        "auto",
        "Run turns by that program or over a WebSocket; `auto`: over it once `mailboxd connect gateway pair` was run.",
    )
    delegate: Literal["tool", "takeover", "off"] = value(
        "tool",
        "Durable delegation in this agent's chats (needs the plugin): the tool `mailboxd_delegate`; `takeover`: "
        "`sessions_spawn` and `sessions_send` become such tasks as well.",
    )
    turn_timeout_seconds: Whole = number(600, "seconds", 1, _WEEK, "Timeout of a turn.")
    environment: Variables = value((), "Further environment variables passed to the program.")
    models: Models = value((), "Models that `model` of a task may name.")
    discovery: Flag = value(True, "Ask OpenClaw which agents exist and are in reach.")


class AnswersSection(Section):
    """How agents answer."""

    by: Literal["auto", "text"] = value(
        "auto", "`auto`: by the tools of the plugin where it offers them, else in text; `text`: always in text."
    )


class LimitsSection(Section):
    """Concurrency, depth and sizes."""

    turns: Whole = number(4, "turns", 1, 256, "Concurrent turns, at most half of the gateway's.")
    turns_per_agent: Whole = number(
        0, "turns", 0, 256, "Concurrent turns of one agent. 0: as many as there may be in all."
    )
    tree: Whole = number(100_000, "tasks", 1, 10_000_000, "Tasks below one root.")
    planned_per_tree: Whole = number(
        200, "tasks", 0, 10_000_000, "Tasks planned by agents below one root, then it stops; 0: no limit."
    )
    planned_per_hour: Whole = number(
        1_000, "tasks", 0, 10_000_000, "Tasks planned by agents in an hour, then more of them stop; 0: no limit."
    )
    usd_per_task: Number = number(
        0.0, "dollars", 0.0, 1_000_000.0, "Budget (US) of a root task that has none of its own; 0: none."
    )
    tokens_per_task: Whole = number(0, "tokens", 0, 1_000_000_000, "The same in tokens.")
    turns_per_task: Whole = number(50, "turns", 0, 1_000_000, "Turns of a task, then it stops; 0: no limit.")
    questions: Whole = number(5, "questions", 0, 1_000, "Questions of a task, over all its attempts.")
    turns_per_tree: Whole = number(
        1_000,
        "turns",
        0,
        100_000_000,
        "Turns of a tree, then it stops; each task that you plan adds ten. 0: no limit.",
    )
    turns_per_agent_hour: Whole = number(
        1_000, "turns", 0, 1_000_000, "Turns of an agent in an hour, then it waits; 0: no limit."
    )
    day_usd: Number = number(
        20.0,
        "dollars",
        0.0,
        1_000_000.0,
        "What all turns of a calendar day may cost (US); then none begins (see `caps`). 0: no cap.",
    )
    day_tokens: Whole = number(20_000_000, "tokens", 0, 10**12, "The same in tokens, where no cost is reported too.")
    day_turns: Whole = number(1_000, "turns", 0, 1_000_000, "The same in turns that report neither cost nor tokens.")
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
    sender_hour_tasks: Whole = number(
        500,
        "tasks",
        0,
        1_000_000,
        "Tasks that one sender writes into the inbox in an hour, then more of them stop; 0: no limit.",
    )
    sender_hour_turns: Whole = number(
        1_000, "turns", 0, 1_000_000, "Turns that one sender's tasks of an hour take, then they stop; 0: no limit."
    )
    output_bytes: Whole = number(16_777_216, "bytes", 65_536, 1_073_741_824, "A turn that prints more is stopped.")


class SchedulingSection(Section):
    """Which ready task is next: by priority, people's before agents', then by age."""

    ageing: Number = number(
        0.0, "seconds", 0.0, _YEAR, "For each such time that a task has waited, it rises by one priority; 0: never."
    )


class HostCaps(Section):
    """What all agents of a user on one machine may spend together in a day; 0: no cap."""

    day_usd: Number = number(50.0, "dollars", 0.0, 1_000_000.0, "What their turns may cost (US).")
    day_tokens: Whole = number(50_000_000, "tokens", 0, 10**12, "The same in tokens.")
    day_turns: Whole = number(2_500, "turns", 0, 1_000_000, "The same in turns that report neither.")


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
    same_reviewer: Flag = value(False, "One reviewer may judge specification and quality; otherwise half do each.")
    quorum: Literal["all", "majority", "any"] = value("all", "How many must approve.")
    max_rework: Whole = number(3, "rounds", 0, 100, "Rounds of rework until the task stops and waits for you.")

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


class ArchiveSection(Section):
    """What the journal in mailbox/archive/events/ has besides events. Its lines are never removed."""

    prompts: Literal["hash", "text"] = value(
        "hash",
        "Of each turn's prompt: its SHA-256 alone, or its text as well, with the secrets that tasks and results hold.",
    )
    prompt_bytes: Whole = number(
        1_048_576,
        "bytes",
        1,
        16_777_216,
        "The largest prompt whose text is kept; of a larger one it is said that it is not.",
    )


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
    caps: Literal["auto", "hold", "tell"] = value(
        "auto",
        "At a cap of the day (its keys are below limits) new turns wait (`hold`), or people are only told; `auto`: "
        "they wait if one is set. `mailboxd init` writes `hold`.",
    )
    reply_within_seconds: Whole = number(
        _DAY, "seconds", 1, _YEAR, "Lease: how long a peer may be silent after its `ack`."
    )
    heartbeat_seconds: Whole = number(300, "seconds", 0, _WEEK, "Interval of heartbeats to a mailboxd peer; 0: none.")
    zone: Zone = value("", "Your time zone, like Europe/Berlin, for dates and schedules; empty: that of the machine.")
    synthesis: Literal["agent", "concat", "none"] = value(
        "agent", "How children's results are combined: a turn, concatenation, or not."
    )
    openclaw: OpenClawSection = OpenClawSection()
    answers: AnswersSection = AnswersSection()
    limits: LimitsSection = LimitsSection()
    scheduling: SchedulingSection = SchedulingSection()
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
    archive: ArchiveSection = ArchiveSection()
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
