"""The input of a decision: a task, the state of its neighbours, and the context. Values, loaded by `store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mailboxd.core.approvals import Action, Approval, Purpose
from mailboxd.core.model import Attempt, Check, Escalation, Finding, Policy, Spent, Task
from mailboxd.core.vocabulary import CheckVerdict, Gate, Notice, Phase, Verdict


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """How many children of a task there are, by outcome; `open` ones have not ended."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def open(self) -> int:
        return self.total - self.completed - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class Need:
    """An ended dependency; `answer` is None if it was not completed."""

    key: str
    answer: str | None


@dataclass(frozen=True, slots=True)
class Followed:
    """A dependency of a root task; `phase` is None for a task that has not arrived."""

    id: str
    name: str
    phase: Phase | None


@dataclass(frozen=True, slots=True)
class Review:
    """A verdict on the current attempt at one gate."""

    gate: Gate
    reviewer: str
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    given_at: str = ""
    """The peer at whose gate it was given; empty = here."""


@dataclass(frozen=True, slots=True)
class AskedReviewer:
    """A reviewer asked at the present gate: how often, and the turns that brought no verdict."""

    reviewer: str
    times: int = 1
    failures: int = 0
    stalls: int = 0


@dataclass(frozen=True, slots=True)
class CheckRun:
    """The result of a check of the current attempt."""

    id: str
    verdict: CheckVerdict
    summary: str


@dataclass(frozen=True, slots=True)
class Level:
    """The children at one level of a tree: key -> the keys of its dependencies.

    `node` is the key of the child above the next deeper level; `ids` are the tasks' ids by key.
    """

    nodes: Mapping[str, Sequence[str]]
    node: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """The facts needed to admit more children: the level they join, and the levels above it, innermost first."""

    existing: Level
    outer: tuple[Level, ...] = ()
    tree: int = 0
    """Tasks below the root of the tree."""
    above: tuple[Task, ...] = ()
    """The ancestors of the new children, from the root down to the task that plans them."""


@dataclass(frozen=True)
class TaskView:
    """A task and the state of its neighbours: all that a decision may read. Costs O(1) to load."""

    task: Task
    attempt: Attempt | None = None
    parent_phase: Phase | None = None
    unmet: int = 0
    """Dependencies that are not completed."""
    cancelled_need: str = ""
    """Key of a dependency that was cancelled for good, without which it cannot start."""
    need_skipped: bool = False
    """Whether that dependency was skipped."""
    followed: tuple[Followed, ...] = ()
    """The dependencies of a root task that has not begun and waits for one of them."""
    claimed_by: str = ""
    """The local id of live work that writes what this task claims."""
    needs: tuple[Need, ...] = ()
    """Its dependencies, once all have ended, for a task whose flow asks for them."""
    children: ChildCounts = ChildCounts()
    children_due: bool = False
    """Children of an adopted plan are still to be created."""
    failed_child: str = ""
    """Key and reason of a child that failed, when one has."""
    answers: tuple[tuple[str, int], ...] = ()
    """For a majority broadcast: each declared answer with its count, most frequent first."""
    reviews: tuple[Review, ...] = ()
    """Verdicts on the current attempt at the present gate."""
    asked_reviewers: tuple[AskedReviewer, ...] = ()
    """Reviewers asked at the present gate."""
    check_runs: tuple[CheckRun, ...] = ()
    """Checks of the current attempt that have ended, at the spec gate."""
    ordered_checks: tuple[str, ...] = ()
    """Ids of checks that are ordered or running."""
    checks: tuple[Check, ...] = ()
    """The checks that the current attempt has to pass here; set by `core.fixpoint`."""
    turns: frozenset[str] = frozenset()
    """The ids of the turns, look-ups and checks of this task that are ordered or running."""
    refused_checks: tuple[str, ...] = ()
    """Why checks of the spec may not run here; set by `core.fixpoint`."""
    spent: Spent = Spent()
    approvals: tuple[Approval, ...] = ()
    """The task's approvals, oldest first; loaded where it executes, awaits approval or performs actions, and for an
    input about approvals."""
    ordered_acts: frozenset[str] = frozenset()
    """Pending effects of its actions: `prepare:<action>`, `perform:<approval>`."""
    same_key: tuple[Approval, ...] = ()
    """Actions of any task that were performed under the idempotency key of the input."""
    family: Family | None = None
    """Loaded only for an input that can contain a plan."""

    @property
    def live_approvals(self) -> tuple[Approval, ...]:
        """The valid approvals of the present attempt's planned actions, in the order of these."""
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
    """The operator's limits on plans and senders; 0 = no limit."""

    depth: int = 8
    children: int = 10_000
    edges: int = 50_000
    questions: int = 5
    """Questions that a task may ask, over all its attempts."""
    children_at_once: int = 1_000
    """Children of a plan that are created in one transaction: no command waits for more."""
    tree: int = 100_000
    """Tasks below one root."""
    turns: int = 0
    """Turns granted to a task at a time."""
    tree_turns: int = 0
    """Turns granted to a tree at a time."""
    planned: int = 0
    """Tasks that agents may plan in one tree."""
    planned_hour: int = 0
    """Tasks that agents may plan within an hour, over all trees."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a decision needs from outside, passed in so that it stays a pure function.

    `new_id` returns a fresh id for a prefix; `jitter` draws a number in [0, 1).
    """

    agent: str
    """This daemon's agent: what `self` means."""
    now: str
    new_id: Callable[[str], str]
    new_token: Callable[[], str]
    """A fresh unguessable value for `reply_token`."""
    jitter: Callable[[], float] = lambda: 0.0
    jitter_share: float = 0.2
    limits: Limits = Limits()
    configured: Policy | None = None
    """The configuration's policy now; None = not known."""
    escalation: Escalation = Escalation()
    heartbeat: float = 0.0
    """Seconds between progress messages to a mailboxd peer; 0 = none are sent or expected."""
    is_free: Callable[[str], bool] = lambda _local_id: True
    """Whether no task has this local id yet."""
    may_reach: Callable[[str], str | None] = lambda _agent: None
    """Why this agent may not be given work; None = it may (protocol section 5)."""
    may_use: Callable[[str], str | None] = lambda _harness: None
    """Why a harness may not be given work; None = it may."""
    models: tuple[str, ...] = ()
    """Those that a task may name."""
    only_reads: Callable[[str], bool] = lambda _harness: False
    """Whether a harness may only read."""
    may_check: Callable[[Check], str | None] = lambda _check: None
    """Why a check may not be run here; None = it may."""
    may_perform: Callable[[Action], str | None] = lambda _action: None
    """Why the configuration does not allow an action here; None = it does."""
    approval_seconds: float = 86_400.0
    """Seconds until an undecided approval expires."""
    notices: frozenset[Notice] = frozenset()
    """The kinds of notices."""
    approvers: tuple[str, ...] = ()
    """The people who may decide (`core.people`); empty = every user of the workspace."""
    chat_approves_all: bool = False
    """Whether chats and the dashboard may approve what cannot be taken back."""
    planned_lately: Callable[[], int] = lambda: 0
    """How many tasks agents planned within the last hour, over all trees."""
