"""The words: phases, modes, what things are called (protocol section 1), and what may be a name."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

SELF = "self"
OPERATORS = frozenset({"operator", "human"})
"""Senders that are people, not agents: a reply to them is a file in outbox/, not a turn."""

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

TURN_SECONDS = 600
"""How long a turn of a task may take that says nothing of it."""
LOOKUP_SECONDS = 120
"""How long a lost turn is asked about, past the timeout of a turn: then its outcome counts as unknown."""


def is_id(text: str) -> bool:
    """Whether `text` may name a task, child, agent or message (protocol section 2, "Ids")."""
    return _ID.fullmatch(text) is not None and ".." not in text


def same_agent(one: str, other: str) -> bool:
    """Whether two names mean one agent: OpenClaw's ids match case-insensitively."""
    return one.lower() == other.lower()


class Phase(StrEnum):
    """Where a task stands. The transitions are in `core.lifecycle`."""

    SPEC_DRAFT = "spec_draft"
    SPEC_REVIEW = "spec_review"
    EXECUTION_READY = "execution_ready"
    EXECUTING = "executing"
    SPEC_GATE = "spec_gate"
    QUALITY_GATE = "quality_gate"
    AWAITING_APPROVAL = "awaiting_approval"
    READY_TO_RESUME = "ready_to_resume"
    COMPLETED = "completed"
    FAILED = "failed"
    CIRCUIT_OPEN = "circuit_open"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED})


class Mode(StrEnum):
    DIRECT = "direct"
    COORDINATING = "coordinating"


class Runtime(StrEnum):
    OPENCLAW = "openclaw"
    ACP = "acp"


class Join(StrEnum):
    """When a broadcast is completed: every copy, the first one, or more than half with the same answer."""

    ALL = "all"
    FIRST = "first"
    MAJORITY = "majority"


class Synthesis(StrEnum):
    """How a coordinating task makes its result of its children's: one turn, their texts in order, nothing."""

    AGENT = "agent"
    CONCAT = "concat"
    NONE = "none"


class Waiting(StrEnum):
    """What the end of a running attempt depends on."""

    TURN = "turn"
    LOOKUP = "lookup"
    REPLY = "reply"
    ANSWER = "answer"
    CHILDREN = "children"
    NOTHING = ""


class Turn(StrEnum):
    """What an agent is called for. DISPATCH hands work to a peer; the others are turns over work of our own."""

    WORK = "work"
    DISPATCH = "dispatch"
    SYNTHESIS = "synthesis"
    REVIEW = "review"
    DRAFT = "draft"
    ANSWER = "answer"


class AttemptStatus(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Gate(StrEnum):
    """The three review gates of the protocol (section 4); each may be on or off per task."""

    SPEC_REVIEW = "spec_review"
    SPEC_GATE = "spec_gate"
    QUALITY_GATE = "quality_gate"


class Verdict(StrEnum):
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    BLOCKED = "blocked"


class Quorum(StrEnum):
    """How many of the reviewers must approve: each of them, more than half, or one."""

    ALL = "all"
    MAJORITY = "majority"
    ANY = "any"


class WeakSpec(StrEnum):
    """What is done about a weak spec: a criterion is derived, the own agent drafts it, or its sender is asked."""

    DERIVE = "derive"
    DRAFT = "draft"
    ASK = "ask"


class ReviewLoss(StrEnum):
    """Why a turn of a reviewer brought no verdict: what it said, that it failed, or that it never reached him."""

    UNREADABLE = "unreadable"
    FAILED = "failed"
    STALLED = "stalled"


class CheckVerdict(StrEnum):
    """What a check of a spec said. IMPOSSIBLE: it could not be run at all, so nobody knows."""

    PASSED = "passed"
    FAILED = "failed"
    IMPOSSIBLE = "impossible"


# ---------------------------------------------------------------------------------------------------------------------
# Names of tasks in this agent's own store: what people type, and what stands in tasks/ (protocol section 2).

_LONGEST = 128


def root_local_id(task_id: str, subtask_id: str | None) -> str:
    """`task_id` for a root task, `task_id.subtask_id` for work that a coordinator sent."""
    return _fit(task_id if subtask_id is None else f"{task_id}.{subtask_id}")


def child_local_id(parent_local_id: str, key: str) -> str:
    return _fit(f"{parent_local_id}.{key}")


def distinct(local_id: str, ordinal: int) -> str:
    """The `ordinal`-th name to try when another sender already uses `local_id`; 1 is the name itself."""
    return local_id if ordinal == 1 else _fit(f"{local_id}-{ordinal}")


def _fit(name: str) -> str:
    """Names past the limit keep their beginning and end in a hash of the whole, so that they stay distinct."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 13].rstrip('.')}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


# ---------------------------------------------------------------------------------------------------------------------
# clawflow's words for where a task stands: projections of its phase (protocol section 3).

RESTING = {
    Phase.COMPLETED: "done",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
    Phase.CIRCUIT_OPEN: "blocked",
    Phase.AWAITING_APPROVAL: "blocked",
}


def task_status(phase: Phase, mode: Mode, *, attempted: bool, has_result: bool) -> str:
    """The `status` that the task's own task.md shows."""
    if phase in RESTING:
        return RESTING[phase]
    if mode is Mode.DIRECT:
        return "in-progress" if attempted else "pending"
    if phase is Phase.EXECUTING:
        return "executing"
    return "aggregating" if has_result else "planning"


def child_status(phase: Phase, *, attempted: bool) -> str:
    """The `status` that the task has as a child in its parent's DAG."""
    return RESTING.get(phase) or ("dispatched" if attempted else "pending")
