"""The part of the configuration that is about failures: retry, circuit, escalation, breaker (docs/failure.md)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from mailboxd.config.fields import AgentOrNobody, HarnessName, Model, Number, Section, Whole
from mailboxd.config.fields import amount as _amount
from mailboxd.config.fields import said as _is

_DAY = 86_400
_WEEK = 7 * _DAY
_YEAR = 366 * _DAY


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
