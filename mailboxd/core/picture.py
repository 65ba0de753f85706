"""What an explanation is made of: tasks as they stand, with what each waits for. `core.why` tells it in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mailboxd.core.terms import AttemptStatus, Phase, Waiting


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt, as far as it explains something."""

    ordinal: int
    executor: str
    status: AttemptStatus
    waiting_for: Waiting
    started_at: str
    error: str = ""
    run_id: str | None = None
    session_key: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """An effect that was ordered at `at` and is not done; `kind` as in the outbox (`run_turn`, `look_up` ...)."""

    kind: str
    agent: str
    at: str
    not_before: str | None = None


@dataclass(frozen=True, slots=True)
class Occupied:
    """A call that is ordered or running: whom it occupies, for which task (local id), since when."""

    agent: str
    task: str
    at: str


@dataclass(frozen=True, slots=True)
class Sign:
    """The latest event that concerns a picture: the last sign of life."""

    seq: int
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A task as an explanation needs it. `needs` and `children` hold ids, and may be cut: the counts are whole."""

    id: str
    local_id: str
    phase: Phase
    executor: str
    reason: str = ""
    error: str = ""
    parent: str | None = None
    parent_live: bool = True
    missing: tuple[str, ...] = ()
    timeout: int = 0
    """Seconds that a call of it may take; 0 where none is ordered."""
    due: str | None = None
    not_before: str | None = None
    has_result: bool = False
    planned_actions: str = ""
    coordinates: bool = False
    attempts: tuple[Try, ...] = ()
    """The latest ones, oldest first."""
    pending: tuple[Pending, ...] = ()
    silent: tuple[str, ...] = ()
    """Reviewers that were asked at the present gate and have not answered."""
    question: tuple[str, str] | None = None
    """Whom the latest question was put to, and its text."""
    unmet: int = 0
    needs: tuple[str, ...] = ()
    open_children: int = 0
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """Tasks by id, at the moment `now`. `daemon` is the pid of the one that runs here (0 = it did not say)."""

    now: str
    daemon: int | None
    tasks: Mapping[str, Standing]
    calls: tuple[Occupied, ...] = ()
    sign: Sign | None = None
