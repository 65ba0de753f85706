"""What an explanation is made of: tasks as they stand, with what each waits for. `explain.why` tells it in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mailboxd.core.schedule import Capacity
from mailboxd.core.vocabulary import AttemptStatus, Phase, Waiting


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """One attempt, as far as it explains something."""

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
    heard: bool = True
    """Whether the executor itself has sent word of it: until then only its mailbox is known to have it."""


@dataclass(frozen=True, slots=True)
class PendingEffect:
    """An effect that was ordered at `at` and is not done; `kind` as in the outbox (`run_turn`, `look_up` ...)."""

    kind: str
    agent: str
    at: str
    not_before: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call that is ordered or running: whom it occupies, for which task (local id), since when."""

    agent: str
    task: str
    at: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The latest event that concerns a picture: the last sign of life."""

    seq: int
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One line of an explanation. `then` happens by itself at `at` (None: as soon as it can); empty: nothing does."""

    task: str
    kind: str
    text: str
    depth: int = 0
    at: str | None = None
    then: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """The breaker of an agent, when it is not closed: open `until` then, or half open (None)."""

    until: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task as an explanation needs it. `needs` and `children` hold ids, and may be cut: the counts are whole."""

    id: str
    local_id: str
    phase: Phase
    executor: str
    reason: str = ""
    error: str = ""
    parent: str | None = None
    parent_live: bool = True
    timeout: int = 0
    """Seconds that a call of it may take; 0 where none is ordered."""
    due: str | None = None
    not_before: str | None = None
    has_result: bool = False
    asks: tuple[tuple[str, str, str], ...] = ()
    """What a person has to decide about it: the short id, what it is, until when."""
    coordinates: bool = False
    attempts: tuple[AttemptSummary, ...] = ()
    """The latest ones, oldest first."""
    pending: tuple[PendingEffect, ...] = ()
    silent: tuple[str, ...] = ()
    """Reviewers that were asked at the present gate and have not answered."""
    question: tuple[str, str] | None = None
    """Whom the latest question was put to, and its text."""
    unmet: int = 0
    needs: tuple[str, ...] = ()
    open_children: int = 0
    children: tuple[str, ...] = ()
    held: str = ""
    held_by: str = ""
    """The local id of the task above it that is held."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Tasks by id, at the moment `now`. `daemon` is the pid of the one that runs here (0 = it did not say)."""

    now: str
    daemon: int | None
    tasks: Mapping[str, TaskSnapshot]
    calls: tuple[RunningCall, ...] = ()
    sign: LastEvent | None = None
    room: Capacity | None = None
    """What calls run, and what keeps further ones from starting; None while no daemon has said so."""
    breakers: Mapping[str, OpenBreaker] = field(default_factory=dict)
    """Agents (lower case) whose breaker is not closed."""
    paced: Mapping[str, str] = field(default_factory=dict)
    """Agents that have had all their turns of an hour, and when they may have another one."""
    gateway: str = ""
    """Why OpenClaw's gateway takes no turns, as the daemon that runs has found."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Agents that are waited for and have no daemon that works, and what is known of it."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Agents that OpenClaw no longer has, or no longer lets us give work to, and why."""
