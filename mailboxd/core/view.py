"""What a decision may read: a task, how its neighbours stand, what the world passes in. Values, loaded by `store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mailboxd.core.terms import Gate, Phase, Verdict
from mailboxd.core.types import Attempt, Finding, Task


@dataclass(frozen=True, slots=True)
class Tally:
    """A coordinating task's children by how they ended. `open` ones may still run."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def open(self) -> int:
        return self.total - self.completed - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class Review:
    """One verdict over the current attempt at one gate."""

    gate: Gate
    reviewer: str
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """The children that stand at one level of a tree: key -> the keys it needs, as named in its scope.

    `node` is the key of the child below which the next deeper level hangs; `ids` are the tasks' ids by key.
    """

    nodes: Mapping[str, Sequence[str]]
    node: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """What admitting more children needs to know: the level they join and the levels around it, innermost first."""

    existing: Level
    outer: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """A task and what its neighbours look like: all that a decision may read. Costs O(1) to load."""

    task: Task
    attempt: Attempt | None = None
    parent_phase: Phase | None = None
    unmet: int = 0
    """Dependencies that are not completed."""
    cancelled_need: str = ""
    """Key of a dependency that was cancelled for good."""
    children: Tally = Tally()
    failed_child: str = ""
    """Key and reason of a child that failed, when one has."""
    answers: tuple[tuple[str, int], ...] = ()
    """For a majority broadcast: each declared answer with its count, most frequent first."""
    reviews: tuple[Review, ...] = ()
    """Verdicts over the current attempt at the task's present gate."""
    asked_reviewers: tuple[tuple[str, int], ...] = ()
    """Reviewers asked at the present gate, each with how often."""
    turns: int = 0
    """Turns of this task that are ordered or running."""
    family: Family | None = None
    """Loaded only for an input that can bring a plan."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's bounds on what plans and senders may ask for."""

    depth: int = 8
    children: int = 10_000
    edges: int = 50_000
    question_turns: int = 5


@dataclass(frozen=True, slots=True)
class Context:
    """What a decision needs from the world, passed in so that the decision stays a pure function.

    `new_id` gives a fresh id for a prefix; `jitter` is a number in [0, 1) drawn for this decision.
    """

    agent: str
    """The agent this daemon runs beside: what `self` means."""
    now: str
    new_id: Callable[[str], str]
    new_token: Callable[[], str]
    """A fresh value nobody can guess, for `reply_token`."""
    jitter: float = 0.0
    jitter_share: float = 0.2
    limits: Limits = Limits()
    is_free: Callable[[str], bool] = lambda _local_id: True
    """Whether no task has this local id yet."""
    may_reach: Callable[[str], str | None] = lambda _agent: None
    """Why this agent may not be given work; None = it may (protocol section 5)."""
