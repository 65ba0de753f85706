"""What a decision may read: a task, how its neighbours stand, what the world passes in. Values, loaded by `store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mailboxd.core.approvals import Action, Approval, Purpose
from mailboxd.core.model import Attempt, Check, Escalation, Finding, Spent, Task
from mailboxd.core.vocabulary import CheckVerdict, Gate, Phase, Verdict


@dataclass(frozen=True, slots=True)
class ChildCounts:
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
class AskedReviewer:
    """A reviewer who was asked at the present gate: how often, and what became of it other than a verdict."""

    reviewer: str
    times: int = 1
    unreadable: int = 0
    failures: int = 0
    stalls: int = 0


@dataclass(frozen=True, slots=True)
class CheckRun:
    """What a check of the spec said of the current attempt."""

    id: str
    verdict: CheckVerdict
    summary: str


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
    tree: int = 0
    """Tasks in the whole tree, below its root."""
    above: tuple[Task, ...] = ()
    """The tasks that the children come below, from the root down to the one that plans them."""


@dataclass(frozen=True)
class TaskView:
    """A task and what its neighbours look like: all that a decision may read. Costs O(1) to load."""

    task: Task
    attempt: Attempt | None = None
    parent_phase: Phase | None = None
    unmet: int = 0
    """Dependencies that are not completed."""
    cancelled_need: str = ""
    """Key of a dependency that was cancelled for good."""
    children: ChildCounts = ChildCounts()
    failed_child: str = ""
    """Key and reason of a child that failed, when one has."""
    answers: tuple[tuple[str, int], ...] = ()
    """For a majority broadcast: each declared answer with its count, most frequent first."""
    reviews: tuple[Review, ...] = ()
    """Verdicts over the current attempt at the task's present gate."""
    asked_reviewers: tuple[AskedReviewer, ...] = ()
    """Reviewers asked at the present gate."""
    check_runs: tuple[CheckRun, ...] = ()
    """Checks of the current attempt that have ended, at the spec gate."""
    ordered_checks: tuple[str, ...] = ()
    """Checks that are ordered or running, by their ids."""
    checks: tuple[Check, ...] = ()
    """The checks that the current attempt has to pass here; filled in by `core.fixpoint`, which knows who we are."""
    turns: int = 0
    """Turns and checks of this task that are ordered or running."""
    refused_checks: tuple[str, ...] = ()
    """Why checks of the spec may not run here; filled in by `core.fixpoint`, which knows the configuration."""
    spent: Spent = Spent()
    approvals: tuple[Approval, ...] = ()
    """What was asked about the task, oldest first: where it executes, awaits an approval or acts on one, and for an
    input about approvals."""
    ordered_acts: frozenset[str] = frozenset()
    """What is ordered about its actions: `prepare:<action>`, `perform:<approval>`."""
    same_key: tuple[Approval, ...] = ()
    """Actions of any task that were performed under the idempotency key that an input is about."""
    family: Family | None = None
    """Loaded only for an input that can bring a plan."""

    @property
    def live_approvals(self) -> tuple[Approval, ...]:
        """The requests that count for the planned actions of the present attempt, in the order of these."""
        attempt = self.attempt.id if self.attempt else ""
        rows = {
            row.action.id: row
            for row in self.approvals
            if row.purpose is Purpose.ACTION and not row.void and row.attempt == attempt
        }
        return tuple(
            row for action in self.task.planned_actions if (row := rows.get(action.id)) and row.action == action
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's bounds on what plans and senders may ask for."""

    depth: int = 8
    children: int = 10_000
    edges: int = 50_000
    question_turns: int = 5
    tree: int = 100_000
    """Tasks below one root."""
    turns: int = 0
    """Turns a task is granted at a time; 0 = no limit. So the two below."""
    tree_turns: int = 0
    """Turns of a tree."""
    planned: int = 0
    """Tasks that agents may plan in one tree."""
    planned_hour: int = 0
    """Tasks that agents may plan in any hour, over all trees; 0 = no limit."""


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
    escalation: Escalation = Escalation()
    heartbeat: float = 0.0
    """Seconds between two signs of life to a mailboxd peer; 0 = none are sent or missed."""
    is_free: Callable[[str], bool] = lambda _local_id: True
    """Whether no task has this local id yet."""
    may_reach: Callable[[str], str | None] = lambda _agent: None
    """Why this agent may not be given work; None = it may (protocol section 5)."""
    may_use: Callable[[str], str | None] = lambda _harness: None
    """Why a harness may not be given work; None = it may."""
    may_check: Callable[[Check], str | None] = lambda _check: None
    """Why a check may not be run here; None = it may."""
    may_perform: Callable[[Action], str | None] = lambda _action: None
    """Why an action cannot be performed here, as far as the configuration says; None = it can."""
    approval_seconds: float = 86_400.0
    """How long a person has to decide."""
    notifies: bool = False
    """People are told that something waits for them."""
    approvers: tuple[str, ...] = ()
    """The only ones who may decide; none = every person."""
    planned_lately: Callable[[], int] = lambda: 0
    """How many tasks agents have planned within the last hour, over all trees."""
