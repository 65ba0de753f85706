"""The outcome of an agent's turn and, if it succeeded, the agent's answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.approvals import Action
from mailboxd.core.model import NO_USAGE, Finding, GivenVerdict, Plan, Spec, Usage
from mailboxd.core.vocabulary import Verdict

# Answers of agents


@dataclass(frozen=True, slots=True)
class Results:
    """The work is done. `answer` is the declared answer, if the reply had one."""

    text: str
    answer: str = ""
    planned_actions: tuple[Action, ...] = ()
    verdicts: tuple[GivenVerdict, ...] = ()
    """Those of the gates that it passed at a peer; never those that an agent claims in the answer of a turn."""
    summary: str = ""
    """What the agent said as its summary, beside the text; empty if it said none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The agent says that it failed."""

    error: str
    partial: str = ""
    permanent: bool = False
    """The agent says that the failure is final: a retry would change nothing."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The agent answered with a plan instead of a result."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Silence:
    """The agent answers a question with one of OpenClaw's words for no answer: the work can go on without."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    text: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A peer's daemon accepted the dispatch and will reply by message."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Unclear:
    """The answer has no single meaning. The agent is asked again, in the same session.

    Each of `problems` is one paragraph: what is wrong, with the lines that it is about quoted, and what to write
    instead. All of them are given at once.
    """

    problems: tuple[str, ...]
    text: str
    is_claim: bool = False
    """The text can be a result, but reads like a refusal, a promise or a question: `status: done` confirms it."""
    is_silence: bool = False
    """There is no answer, at most one of OpenClaw's words for that: what the agent wrote into its task.md counts."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """A drafting turn's answer: a spec in which only some fields are set."""

    spec: Spec


Answer = Results | Failure | Planned | Silence | Question | Acknowledged | Reviewed | Unclear | Drafted


@dataclass(frozen=True, slots=True)
class Correction:
    """Why the answer of a turn was not taken; the next turn of the same session asks for another one."""

    problems: tuple[str, ...]
    number: int = 1
    """How many times this answer has been asked for again, with this one."""
    claim: str = ""
    """The answer that was asked about, if `status: done` alone confirms it as the result."""


# What a turn was asked


class PromptText(StrEnum):
    """What has become of a prompt's text, where the configuration says to keep it."""

    KEPT = "kept"
    LEFT_OUT = "left_out"
    """It is larger than `archive.prompt_bytes`."""


@dataclass(frozen=True, slots=True)
class PromptDigest:
    """The exact bytes that a call gave to its agent: their SHA-256 (hex), and how many there are."""

    sha256: str
    size: int
    text: PromptText | None = None
    """None: texts of prompts are not kept."""


# How a turn ended


class Permanence(StrEnum):
    """Whether a retry can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Outage(StrEnum):
    """An outage that keeps every turn from starting. It costs no task an attempt."""

    UNREACHABLE = "unreachable"
    """The gateway is down, or accepts no turns because it is starting, draining or restarting."""
    LOCKED_OUT = "locked_out"
    """The gateway answers but refuses every turn of this agent until it is restarted."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The turn succeeded; `text` is what the agent said."""

    text: str
    usage: Usage = NO_USAGE
    run_id: str | None = None
    session_ref: str | None = None
    truncated: bool = False
    """The runtime says the text was cut (`stopReason: length`)."""
    model: str | None = None
    """The model that the runtime reports to have used, as provider/model; None if it reports none."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn has provably ended without success."""

    error: str
    permanence: Permanence = Permanence.TRANSIENT
    started: bool = True
    """False: it provably never reached the agent, and costs no attempt."""
    retry_after: float = 0.0
    """Seconds to wait at least before a retry."""
    usage: Usage = NO_USAGE
    run_id: str | None = None
    session_ref: str | None = None
    silent: bool = False
    """The turn ran to its end and the agent read its prompt, but gave no answer."""
    outage: Outage | None = None
    """Set if the host is to blame for a turn that never started."""
    model: str | None = None
    """As in `Succeeded`."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """mailboxd stopped the turn, and it has provably ended."""

    error: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is unknown whether the turn ran or still runs. It is looked up before anything is repeated."""

    error: str
    run_id: str | None = None
    looked_up: bool = False
    """True: the ledger was queried and does not know either."""
    harmless: bool = False
    """No tool was used: repeating it in the same session does nothing twice."""


Outcome = Succeeded | Failed | Aborted | Unknown


@dataclass(frozen=True, slots=True)
class Made:
    """Evidence that a turn left beside its answer."""

    kind: str
    body: str
    summary: str
