"""What the operator allows beyond a task's own policy, and what was used of it: plain values, like `core.types`."""

from __future__ import annotations

from dataclasses import dataclass


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
