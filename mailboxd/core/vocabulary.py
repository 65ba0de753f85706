"""Enums of the protocol (section 1), names of tasks, and clawflow's status words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum

SELF = "self"
OPERATORS = frozenset({"operator", "human"})
"""Senders that are people: a reply to them is a file in outbox/, not a turn."""

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
"""The name of a model in OpenClaw."""
ADDRESS = re.compile(r"[a-z][a-z0-9-]{0,31}:[!-~]{1,200}")
"""Where OpenClaw reaches people: `CHANNEL:TARGET`, `session:KEY` or `wake:KEY`."""

POOL = "pool:"
"""The prefix of pools: roles that agents on several hosts serve, like `pool:reviewer`."""

ANSWER_TOOLS = (
    "mailboxd_finish", "mailboxd_plan", "mailboxd_ask", "mailboxd_fail", "mailboxd_verdict", "mailboxd_answer",
)  # fmt: skip
"""By which an agent may answer a turn inside OpenClaw; the plugin's manifest declares them."""

NO_SUCH_AGENT = "OpenClaw has no agent "
"""The beginning of the trouble of a daemon whose own agent OpenClaw does not know."""
NOT_KNOWN_YET = "the hub does not know yet "
"""The beginning of the reason of what waits until another host is heard from: no person can do anything about it."""
CANNOT_HELP = "retrying cannot help"
"""In the reason of a task that has failed for good: what has to be mended first."""
MAY_CONTINUE = "its work may continue"
"""In the error of an attempt whose call had to be killed: what it does elsewhere goes on, for all that is known."""
TURN_SECONDS = 600
"""Default maximum length of a turn."""
LOOKUP_SECONDS = 120
"""How long after its timeout a lost turn is looked up before its outcome counts as unknown."""


def is_id(text: str) -> bool:
    """Whether `text` is a valid name of a task, child, agent or message (protocol section 2, "Ids")."""
    return _ID.fullmatch(text) is not None and ".." not in text


def is_agent(text: str) -> bool:
    """Whether `text` names an agent or a pool."""
    return is_id(text.removeprefix(POOL))


def as_id(agent: str) -> str:
    """The name of an agent or a pool where only an id can stand."""
    return agent.replace(":", ".")


def may_answer(executor: str, sender: str) -> bool:
    """Whether `sender` may report about work given to `executor`: for a pool, any agent of a host."""
    return same_agent(executor, sender) or (executor.startswith(POOL) and "." in sender)


def same_agent(one: str, other: str) -> bool:
    """Compare agent ids; OpenClaw's are case-insensitive."""
    return one.lower() == other.lower()


class Phase(StrEnum):
    """The phase of a task. `core.lifecycle` has the transitions."""

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

    @property
    def told(self) -> str:
        """As the predicate of a sentence about the task: `is done`."""
        return _TOLD.get(self, "has not ended")


TERMINAL = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED})
_TOLD: Mapping[Phase, str] = {
    Phase.COMPLETED: "is done",
    Phase.FAILED: "has failed",
    Phase.CANCELLED: "is cancelled",
    Phase.CIRCUIT_OPEN: "needs you",
}


class State(StrEnum):
    """The four words in which people read what a task does. Failed and cancelled work is done, too."""

    NEEDS_YOU = "needs you"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"


FAILED = f"{State.DONE}: failed"
CANCELLED = f"{State.DONE}: cancelled"
_STATES: Mapping[Phase, str] = {
    Phase.SPEC_DRAFT: State.RUNNING,
    Phase.SPEC_REVIEW: State.RUNNING,
    Phase.EXECUTION_READY: State.WAITING,
    Phase.EXECUTING: State.RUNNING,
    Phase.SPEC_GATE: State.RUNNING,
    Phase.QUALITY_GATE: State.RUNNING,
    Phase.AWAITING_APPROVAL: State.NEEDS_YOU,
    Phase.READY_TO_RESUME: State.RUNNING,
    Phase.COMPLETED: State.DONE,
    Phase.FAILED: FAILED,
    Phase.CIRCUIT_OPEN: State.NEEDS_YOU,
    Phase.CANCELLED: CANCELLED,
}


def phase_words(phase: str) -> str:
    """A phase in the words of a sentence."""
    return _COMING.get(phase) or phase.replace("_", " ")


_COMING: Mapping[str, str] = {
    Phase.EXECUTION_READY: "to be run",
    Phase.READY_TO_RESUME: "its approved actions are to be run",
    Phase.CIRCUIT_OPEN: "stopped",
}


def state_words(phase: str, need: str | None = None) -> str:
    """The state of a task in this phase as views show it, with the kind of its end: `running`, `done: failed`.

    `need` is why it waits for a person; None: it does not.
    """
    return State.NEEDS_YOU if need else str(_STATES[Phase(phase)])


def state_of(phase: str, need: str | None = None) -> State:
    """The state of a task in this phase, which waits for a person because of `need` (None: it does not)."""
    return without_kind(state_words(phase, need))


def without_kind(words: str) -> State:
    """The state of which `words` (see `state_words`) may also say the kind."""
    return State(words.partition(":")[0])


def in_states(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by `state_words`, as counts by the four words."""
    return {
        state: count for state in State if (count := sum(counts[one] for one in counts if without_kind(one) is state))
    }


STATES = tuple(dict.fromkeys((*map(str, State), *_STATES.values())))
"""Every result of `state_words`: the four words, then the kinds of done."""


class Mode(StrEnum):
    DIRECT = "direct"
    COORDINATING = "coordinating"


class Runtime(StrEnum):
    OPENCLAW = "openclaw"
    ACP = "acp"


class ExecutorKind(StrEnum):
    """The kind of worker: an agent, a harness that only reads, or one that changes files."""

    BUILDER = "builder"
    RESEARCH = "research"
    EXTERNAL_CODER = "external_coder"


class Join(StrEnum):
    """The condition that completes a broadcast: every copy, the first one, or more than half with the same answer."""

    ALL = "all"
    FIRST = "first"
    MAJORITY = "majority"


class Synthesis(StrEnum):
    """How a coordinating task makes its result: a turn, its children's results in order, nothing."""

    AGENT = "agent"
    CONCAT = "concat"
    NONE = "none"


class Waiting(StrEnum):
    """The event that a running attempt waits for."""

    TURN = "turn"
    LOOKUP = "lookup"
    REPLY = "reply"
    ANSWER = "answer"
    CHILDREN = "children"
    NOTHING = ""


class WaitsFor(StrEnum):
    """What work of a sender waits for that the sender cannot see: the header `x-waits-for` of a progress message."""

    PERSON = "person"
    REVIEWER = "reviewer"
    BUDGET = "budget"
    LIMIT = "limit"
    """A limit on turns per hour."""
    AGENT = "agent"
    """An agent that does not exist, or may no longer be asked."""
    BREAKER = "breaker"
    GATEWAY = "gateway"
    NOTHING = "nothing"
    """It goes on."""

    @property
    def told(self) -> str:
        """As people read it after "waits for"."""
        return _AWAITED.get(self, f"the {self}")


_AWAITED: Mapping[WaitsFor, str] = {
    WaitsFor.PERSON: "a person",
    WaitsFor.REVIEWER: "a reviewer",
    WaitsFor.LIMIT: "a limit on turns",
    WaitsFor.AGENT: "an agent",
    WaitsFor.BREAKER: "an agent that gets no turns for now",
}

FOR_PERSON = frozenset({WaitsFor.PERSON, WaitsFor.REVIEWER, WaitsFor.BUDGET, WaitsFor.AGENT})
"""Those that last until somebody acts."""


class Turn(StrEnum):
    """The purpose of a turn. DISPATCH gives work to a peer; the others are about this agent's work."""

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
    """The three review gates (section 4), each on or off per task."""

    SPEC_REVIEW = "spec_review"
    SPEC_GATE = "spec_gate"
    QUALITY_GATE = "quality_gate"


class Verdict(StrEnum):
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    BLOCKED = "blocked"


class Quorum(StrEnum):
    """How many reviewers must approve: all, more than half, or one."""

    ALL = "all"
    MAJORITY = "majority"
    ANY = "any"


class WeakSpec(StrEnum):
    """How a weak spec is completed: derive a criterion, let this agent draft it, or ask the sender."""

    DERIVE = "derive"
    DRAFT = "draft"
    ASK = "ask"


class ReviewLoss(StrEnum):
    """Why a review turn brought no verdict: unreadable, failed, or never reached the reviewer."""

    UNREADABLE = "unreadable"
    FAILED = "failed"
    STALLED = "stalled"


class Notice(StrEnum):
    """The kinds of notices: a given task has ended, or a task waits for a person."""

    COMPLETED = "completed"
    FAILED = "failed"
    QUESTION = "question"
    APPROVAL = "approval"
    CIRCUIT = "circuit"
    HOLD = "hold"
    TROUBLE = "trouble"
    """The daemon, the gateway, a peer or another host."""
    PROGRESS = "progress"
    """What a task waits for, or something below it: for the session that asked, which is not notified otherwise."""
    DIGEST = "digest"
    """The overview, at the times of `notify.digest`."""


NOTICES = tuple(kind for kind in Notice if kind not in (Notice.PROGRESS, Notice.DIGEST))
"""The kinds of which people are notified as they choose."""
REPLIED = frozenset({Notice.COMPLETED, Notice.FAILED, Notice.QUESTION})
"""The notices that go to the `reply_to` of a task."""
SESSION, WAKE = "session", "wake"
"""The kinds of addresses that name a session: its transcript gets the notice; its agent gets a turn with it."""


class CheckVerdict(StrEnum):
    """The verdict of a check. IMPOSSIBLE: it could not be run."""

    PASSED = "passed"
    FAILED = "failed"
    IMPOSSIBLE = "impossible"


# Local ids: the names of tasks in commands and in tasks/ (protocol section 2)

_LONGEST = 128


def local_id_of(task_id: str, subtask_id: str | None) -> str:
    """`task_id` for a root task, `task_id.subtask_id` for a child and for work from a coordinator."""
    return _fit(task_id if subtask_id is None else f"{task_id}.{subtask_id}")


def distinct(local_id: str, ordinal: int) -> str:
    """The `ordinal`-th candidate when another sender already uses `local_id`; 1 is the name itself."""
    return local_id if ordinal == 1 else _fit(f"{local_id}-{ordinal}")


def _fit(name: str) -> str:
    """A name that is too long keeps its beginning and gets a hash of the whole, so that it stays distinct."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 13].rstrip('.')}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


# clawflow's status, derived from the phase (protocol section 3)

RESTING = {
    Phase.COMPLETED: "done",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
    Phase.CIRCUIT_OPEN: "blocked",
    Phase.AWAITING_APPROVAL: "blocked",
}


def task_status(phase: Phase, mode: Mode, *, attempted: bool, has_result: bool) -> str:
    """The `status` in the task's own task.md."""
    if phase in RESTING:
        return RESTING[phase]
    if mode is Mode.DIRECT:
        return "in-progress" if attempted else "pending"
    if phase is Phase.EXECUTING:
        return "executing"
    return "aggregating" if has_result else "planning"


def child_status(phase: Phase, *, attempted: bool) -> str:
    """The `status` of the task in its parent's DAG."""
    return RESTING.get(phase) or ("dispatched" if attempted else "pending")
