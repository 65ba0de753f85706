"""The configuration as a type: every key with its default, unit, range and meaning, stated once.

The commented config.yaml, the reference page and the checks are all made from these fields. Values arrive as the text
that stands in the file and are converted by what the key is, never by how the text looks (`agent: 007` is a name).
Constructing a model with a value out of range raises pydantic's ValidationError; `mailboxd.config.load` translates it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mailboxd.core.terms import Gate, Synthesis, is_id
from mailboxd.core.types import Policy
from mailboxd.core.view import Limits

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


def _agent(value: str) -> str:
    if not is_id(value):
        raise ValueError("write an agent id: 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without ..")
    return value


def _argument(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("write a program or argument that is not empty")
    return value


def _variable(value: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value, re.ASCII) is None:
        raise ValueError("write the name of an environment variable, without its value")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Agent = Annotated[str, AfterValidator(_agent)]
Agents = Annotated[tuple[Agent, ...], BeforeValidator(_sequence), Field(max_length=100)]
Arguments = Annotated[
    tuple[Annotated[str, AfterValidator(_argument)], ...],
    BeforeValidator(_sequence),
    Field(min_length=1, max_length=64),
]
Variables = Annotated[
    tuple[Annotated[str, AfterValidator(_variable)], ...], BeforeValidator(_sequence), Field(max_length=100)
]


def _is(default: Any, says: str) -> Any:
    return Field(default, description=says)


def _amount(default: float, unit: str, low: float, high: float, says: str) -> Any:
    """A field with a unit and both ends of its range: no number in the configuration is without them."""
    return Field(default, ge=low, le=high, description=says, json_schema_extra={"unit": unit})


class Section(BaseModel):
    """A group of keys. Values are checked strictly, never change, and no key is taken that is not declared."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", validate_default=False)


class OpenClawSection(Section):
    """How agents are called."""

    command: Arguments = _is(("openclaw",), "The program that runs a turn, and arguments that go before ours.")
    turn_timeout_seconds: Whole = _amount(600, "seconds", 1, _WEEK, "How long one turn of an agent may take.")
    environment: Variables = _is((), "Names of further environment variables that are passed on to the program.")
    discovery: Flag = _is(True, "Ask OpenClaw which agents exist and which of them this agent may reach.")


class LimitsSection(Section):
    """How much at once, how deep, how large."""

    turns: Whole = _amount(4, "turns", 1, 256, "Turns that run at the same time, over all agents.")
    turns_per_agent: Whole = _amount(1, "turns", 1, 256, "Turns that run at the same time for one agent.")
    depth: Whole = _amount(8, "levels", 1, 64, "How deep a plan may nest: children of children ...")
    children: Whole = _amount(10_000, "tasks", 1, 100_000, "Children that one plan may have.")
    message_bytes: Whole = _amount(
        1_048_576, "bytes", 1_024, 67_108_864, "The largest message that is read; a larger one is rejected unread."
    )
    context_bytes: Whole = _amount(
        65_536, "bytes", 1_024, 1_048_576, "How much of the results of its dependencies a child is given."
    )
    output_bytes: Whole = _amount(
        16_777_216, "bytes", 65_536, 1_073_741_824, "The most a turn may print; a turn that prints more is stopped."
    )


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


class GatesSection(Section):
    """Which reviews work must pass, where a task does not say so itself."""

    spec_review: Flag = _is(False, "Review the specification before anything executes.")
    spec_gate: Flag = _is(False, "Review the result against the specification.")
    quality_gate: Flag = _is(False, "Review the quality of the result.")
    reviewers: Agents = _is((), "The agents that review, in this order of preference.")
    max_rework: Whole = _amount(3, "rounds", 0, 100, "Rounds of changes until the circuit of the task opens.")


class InboxSection(Section):
    """How arrivals are taken."""

    settle_seconds: Number = _amount(
        0.5, "seconds", 0.0, 60.0, "How long a file must lie unchanged, where the kernel cannot say it is closed."
    )
    incomplete_seconds: Whole = _amount(
        60, "seconds", 1, _DAY, "How long an empty or unfinished file is left before it is rejected."
    )
    rescan_seconds: Whole = _amount(
        30, "seconds", 1, 3_600, "How often the directories are read even if nothing was heard of them."
    )
    accept_plain_files: Flag = _is(True, "Take a file without front matter as a task from the operator.")


class TasksSection(Section):
    """The readable files under tasks/."""

    render_seconds: Number = _amount(
        0.2, "seconds", 0.0, 60.0, "Changes of a task within this time become one writing of its task.md."
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
    synthesis: Literal["agent", "concat", "none"] = _is(
        "agent", "How results of children become one: a turn of the agent, their texts in order, or nothing."
    )
    openclaw: OpenClawSection = OpenClawSection()
    limits: LimitsSection = LimitsSection()
    retry: RetrySection = RetrySection()
    circuit: CircuitSection = CircuitSection()
    gates: GatesSection = GatesSection()
    inbox: InboxSection = InboxSection()
    tasks: TasksSection = TasksSection()
    shutdown: ShutdownSection = ShutdownSection()
    log: LogSection = LogSection()


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
        synthesis=Synthesis(config.synthesis),
    )


def limits(config: Config) -> Limits:
    """The bounds that plans are admitted under."""
    return Limits(depth=config.limits.depth, children=config.limits.children)
