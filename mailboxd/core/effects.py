"""What is ordered: performed after the record is committed. `effects.relay` has the table of performers."""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.core.approvals import Action
from mailboxd.core.model import Check
from mailboxd.core.vocabulary import Gate, Turn


@dataclass(frozen=True, slots=True)
class RunTurn:
    """Call an agent once. `turn_id` names the call for ever: its directory, its row, its process."""

    turn_id: str
    turn: Turn
    agent: str
    attempt_id: str
    session_key: str
    message_id: str = ""
    """For a dispatch: the message that is sent, and its file in outbox/."""
    gate: Gate | None = None
    note: str = ""
    """Words for this turn only: the answer to a question, new instructions; the question that is to be answered."""
    model: str = ""
    """Another model than the agent's own; empty = its own."""
    not_before: str | None = None
    """A pause after a failure: it is not begun earlier."""
    harness: str = ""
    """Who takes the turn for the agent; empty = the agent."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask OpenClaw's ledger what became of a turn whose outcome is unknown."""

    turn_id: str
    turn: Turn
    agent: str
    attempt_id: str
    session_key: str
    run_id: str | None
    gate: Gate | None = None
    heard: str | None = None
    """A run of this session whose end was heard before the lost turn began: its row says nothing about that one."""
    harness: str = ""
    """Who took the turn; `run_id` is then the call's."""


@dataclass(frozen=True, slots=True)
class StopTurns:
    """Stop every running turn of this task (it was cancelled, or overtaken)."""


@dataclass(frozen=True, slots=True)
class Compose:
    """Make a coordinating task's result of its children's, without a model."""

    attempt_id: str


@dataclass(frozen=True, slots=True)
class Send:
    """Write a message to outbox/ and, when the receiver is an agent, hand it over."""

    message_id: str
    type: str
    to: str
    note: str = ""
    attempt: int = 0
    """What goes to the peer that has the work: the ordinal of the attempt that he was given."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Hand over again the reply that was stored for finished work (clawflow's rule for a repeated dispatch)."""


@dataclass(frozen=True, slots=True)
class Bounce:
    """Tell the sender of a task that was rejected why. There is no task to name: the message carries its own ids."""

    message_id: str
    to: str
    task_id: str
    subtask_id: str
    error: str
    in_reply_to: str | None = None
    attempt_id: str | None = None
    reply_token: str | None = None
    may_pass: bool = False
    """The same message may be accepted later."""


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Gather a piece of evidence that the spec declares, here, without any model. `check_run_id` names the run."""

    check_run_id: str
    attempt_id: str
    check: Check


@dataclass(frozen=True, slots=True)
class Prepare:
    """Find out what an action would do, for a person to see, and put a gate before it. It performs nothing."""

    approval_id: str
    """The id that the request will have."""
    action: Action
    undoes: str = ""
    """The approval of the action that it takes back."""


@dataclass(frozen=True, slots=True)
class Perform:
    """Let an approved action happen, once."""

    approval_id: str
    not_before: str | None = None


@dataclass(frozen=True, slots=True)
class Verify:
    """Ask the action's own `verify` what became of it."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell people that something waits for them."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class AnswerPermission:
    """Tell the harness that waits what was decided."""

    approval_id: str


Acting = Prepare | Perform | Verify | Notify | AnswerPermission
"""What follows from planned actions."""
Effect = RunTurn | LookUp | StopTurns | Compose | Send | Resend | Bounce | RunCheck | Acting
