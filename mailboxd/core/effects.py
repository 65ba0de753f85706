"""What we ordered: performed by `relay` after the record is safe. What each promises stands in the relay's table."""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.core.terms import Gate, Turn


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
    """Words for this turn only: the answer to a question, new instructions."""


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
    tries: int = 0


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


Effect = RunTurn | LookUp | StopTurns | Compose | Send | Resend | Bounce
