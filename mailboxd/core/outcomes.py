"""What a turn of an agent brought back: an `Outcome`, and in it, where it ended well, an `Answer`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.approvals import Action
from mailboxd.core.model import NO_USAGE, Finding, Plan, Spec, Usage
from mailboxd.core.vocabulary import Verdict

# ---------------------------------------------------------------- what an agent said


@dataclass(frozen=True, slots=True)
class Results:
    """The work is done. `answer` is the declared answer field, if the reply had one."""

    text: str
    answer: str = ""
    planned_actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """The agent itself says that it failed."""

    error: str
    partial: str = ""
    permanent: bool = False
    """It says that the failure is final: it has done what it could, and giving it the work again changes nothing."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The agent answered with a DAG instead of a result."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Silence:
    """The agent said nothing, or one of the words by which OpenClaw's agents say that. No result by itself."""

    said: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    text: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A peer's daemon has taken the dispatch and will reply by message."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The answer claims a structure (front matter, a DAG) that cannot be read; `problem` says why."""

    problem: str
    text: str


@dataclass(frozen=True, slots=True)
class Drafted:
    """A drafting turn's answer, as a spec of which only some fields are said."""

    spec: Spec


Answer = Results | Failure | Planned | Silence | Question | Acknowledged | Reviewed | Unreadable | Drafted


# ---------------------------------------------------------------- how a turn ended


class Permanence(StrEnum):
    """Whether trying the same thing again can help: the split that retry needs."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Outage(StrEnum):
    """What keeps every turn from starting, whatever is asked in it. No task loses an attempt to it."""

    UNREACHABLE = "unreachable"
    """The gateway is down, or takes no turns just now: it starts, drains or restarts."""
    LOCKED_OUT = "locked_out"
    """The gateway answers, and refuses every turn of this one agent until it is restarted."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The turn ended well; `text` is what the agent said."""

    text: str
    usage: Usage = NO_USAGE
    run_id: str | None = None
    session_ref: str | None = None
    truncated: bool = False
    """The runtime says the text was cut (`stopReason: length`)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn is proven to have ended without success."""

    error: str
    permanence: Permanence = Permanence.TRANSIENT
    started: bool = True
    """False: proven never to have reached the agent; costs no attempt."""
    retry_after: float = 0.0
    """Seconds before which a repetition is pointless."""
    usage: Usage = NO_USAGE
    run_id: str | None = None
    session_ref: str | None = None
    silent: bool = False
    """The turn ran to its end and the agent heard what it was told; it only gave no answer."""
    outage: Outage | None = None
    """Set where the host is to blame for a turn that never started."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """The turn was stopped by a signal of ours and is proven to have ended."""

    error: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say yet whether the turn ran or runs on. Looked up before anything is repeated."""

    error: str
    run_id: str | None = None
    looked_up: bool = False
    """True: the ledger was asked and could not tell either."""
    harmless: bool = False
    """No tool was used: whatever became of it, to repeat it in the same session does nothing twice."""


Outcome = Succeeded | Failed | Aborted | Unknown


@dataclass(frozen=True, slots=True)
class Made:
    """What a turn has left beside its answer, as evidence."""

    kind: str
    body: str
    summary: str
