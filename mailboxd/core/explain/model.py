"""The data of an explanation: tasks and what each waits for. `explain.why` puts it into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mailboxd.core.schedule import Capacity
from mailboxd.core.spending import Standing
from mailboxd.core.vocabulary import AttemptStatus, Phase, Waiting, WaitsFor


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """An attempt, as an explanation needs it."""

    ordinal: int
    executor: str
    status: AttemptStatus
    waiting_for: Waiting
    started_at: str
    error: str = ""
    run_id: str | None = None
    session_key: str = ""
    finished_at: str | None = None
    model: str = ""
    escalated: str = ""
    silent: bool = False
    tokens: int = 0
    usd: float = 0.0
    confirmed: bool = True
    """Whether the executor has confirmed it; until then only the delivery is known."""
    holder: str = ""
    """The host that has it, if it was given to a pool."""
    peer_waits: tuple[WaitsFor, str] | None = None
    """What the executing peer says that it waits for, and why."""


@dataclass(frozen=True, slots=True)
class PendingEffect:
    """An effect ordered at `at` and not done; `kind` as in the outbox (`run_turn`, `look_up` ...)."""

    kind: str
    agent: str
    at: str
    not_before: str | None = None
    id: str = ""
    refused: str = ""
    """For a turn that asks again: why the answer was not taken."""
    type: str = ""
    """For a message: its type."""
    to: str = ""
    """For a message: its receiver."""


@dataclass(frozen=True, slots=True)
class Undo:
    """An action is to be undone: both ids are short. Without `approval` that is being prepared."""

    action: str
    approval: str = ""
    is_approved: bool = False
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that a task has asked."""

    to: str
    text: str
    at: str


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call that is ordered or running: its agent, its task (local id), and since when."""

    agent: str
    task: str
    at: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last activity: the latest event of the tasks of a snapshot."""

    seq: int
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One line of an explanation. `then` is what happens next, at `at` (None: as soon as possible); empty: nothing."""

    task: str
    kind: str
    text: str
    depth: int = 0
    at: str | None = None
    then: str = ""
    details: str = ""
    """The whole text of a question, if `text` has only its first line."""
    hint: str = ""
    """The remedy: a command, with a comment after two spaces and `#`; or only words."""
    at_peer: WaitsFor = WaitsFor.NOTHING
    """What the peer that has the work says that it waits for."""

    @property
    def command(self) -> str:
        """The command of the hint; where it has only words, the one that shows them."""
        return self.hint.partition("  #")[0] if self.hint.startswith("mailboxd ") else f"mailboxd why {self.task}"


@dataclass(frozen=True, slots=True)
class Ending:
    """An order that ends a task, held until `due`; `task` is its local id."""

    task: str
    name: str
    approval: str | None
    by: str
    due: str


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """A breaker that is not closed: open `until` then, or half open (None)."""

    until: str | None
    reason: str = ""


MOST_AHEAD = 1_000


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many ready tasks of the same agent come before one."""

    higher: int = 0
    """Of higher priority."""
    of_people: int = 0
    """Of a person, at the same priority, if it is an agent's."""
    earlier: int = 0
    """Those that came before it, else equal to it."""
    more: bool = False
    """More than `MOST_AHEAD`, which were not counted."""


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task, as an explanation needs it. `needs` and `children` are ids and may be cut; the counts are complete."""

    id: str
    local_id: str
    phase: Phase
    executor: str
    reason: str = ""
    error: str = ""
    parent: str | None = None
    parent_live: bool = True
    timeout: int = 0
    """Maximum seconds of its call; 0 if none is ordered."""
    due: str | None = None
    not_before: str | None = None
    begins_later: bool = False
    """`not_before` is the beginning that was ordered."""
    has_result: bool = False
    asks: tuple[tuple[str, str, str], ...] = ()
    """Its pending approvals: short id, action, expiry."""
    undoes: tuple[Undo, ...] = ()
    """Of its actions that were performed."""
    coordinates: bool = False
    attempts: tuple[AttemptSummary, ...] = ()
    """The latest attempts, oldest first."""
    pending: tuple[PendingEffect, ...] = ()
    own_reviewers: bool = False
    """Whether it names its reviewers itself; else the configuration does."""
    own_gates: bool = False
    """Whether it says itself which gates are on."""
    silent: tuple[str, ...] = ()
    """Reviewers who were asked at the present gate and have not answered."""
    question: AskedQuestion | None = None
    """The open question."""
    since: str = ""
    """When it last changed."""
    unmet: int = 0
    claimed: tuple[str, str] | None = None
    """The live task that writes what it claims, and the path."""
    needs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """The names of tasks that it follows and that have not arrived."""
    asked_at: str | None = None
    """When a person is asked about these."""
    open_children: int = 0
    children: tuple[str, ...] = ()
    held: str = ""
    raised: str = ""
    """The options that raise the budget that holds it, with the same amount again."""
    held_by: str = ""
    """The local id of the task above it that is on hold."""
    paused_by: str = ""
    """That of the one above it which a person has paused, if its actions are to be performed."""
    ahead: Ahead = Ahead()
    """What comes before it, if it is ready."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tasks by id, at the time `now`. `daemon` is the pid of the running daemon (0 = unknown, None = none)."""

    now: str
    daemon: int | None
    tasks: Mapping[str, TaskSnapshot]
    calls: tuple[RunningCall, ...] = ()
    last_activity: LastEvent | None = None
    room: Capacity | None = None
    """The running calls, and the reason why no further one starts; None until a daemon has reported it."""
    breakers: Mapping[str, OpenBreaker] = field(default_factory=dict)
    """Agents (lower case) whose breaker is not closed."""
    paced: Mapping[str, str] = field(default_factory=dict)
    """Agents that have used all their turns of an hour, and when they may have the next one."""
    gateway: str = ""
    """Why OpenClaw's gateway accepts no turns, as the daemon found."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Agents that are waited for and have no working daemon, and what is known about it."""
    held_up: Mapping[str, str] = field(default_factory=dict)
    """Agents on other hosts to which mail waits for a receipt, and what holds it up."""
    agents: tuple[str, ...] = ()
    """The agents of this OpenClaw, as far as they are known."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Agents that no longer exist in OpenClaw or may no longer be given work, and why."""
    openclaw: str = "openclaw"
    """OpenClaw's command line, as the latest daemon had it."""
    recovering: Mapping[str, str] = field(default_factory=dict)
    """Turns (the ids of their effects) whose gateway died, and how far their recovery is."""
    endings: tuple[Ending, ...] = ()
    """The held orders of the workspace, the next first."""
    standstill: str = ""
    """That a person has paused everything, as the daemon has heard, in a clause."""
    spending: Standing | None = None
    """What is spent of the caps of the day; None until a daemon has reported it."""
    reserved: str = ""
    """Whose cap (`agent`, `host`) has no room beside the turns that run; empty: there is room."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """What peers of this user call the work that they were given, by the ids of its tasks here."""
    tools: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The last tool of each running turn of which the gateway tells, and when it began; by the ids of their effects."""

    @property
    def turns(self) -> tuple[str, ...]:
        """The ids of the effects of the turns that are ordered for its tasks."""
        pending = (order for task in self.tasks.values() for order in task.pending)
        return tuple(order.id for order in pending if order.kind == "run_turn" and order.id)
