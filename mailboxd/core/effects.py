"""Effects: performed after the decision is committed. `effects.effect_runner` has the table of performers."""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.core.approvals import Action
from mailboxd.core.model import Check, NewChild
from mailboxd.core.outcomes import Correction, PromptDigest
from mailboxd.core.vocabulary import Gate, Notice, Turn


@dataclass(frozen=True, slots=True)
class RunTurn:
    """Call an agent once. `turn_id` identifies the call: its directory, its row, its process."""

    turn_id: str
    turn: Turn
    agent: str
    attempt_id: str
    session_key: str
    message_id: str = ""
    """For a dispatch: the message, and its file in outbox/."""
    gate: Gate | None = None
    note: str = ""
    """Text for this turn only: the answer to a question, new instructions, or the question to answer."""
    model: str = ""
    """A model instead of the agent's own; empty = its own."""
    not_before: str | None = None
    """Not started earlier: a pause after a failure."""
    harness: str = ""
    """The harness that takes the turn for the agent; empty = the agent itself."""
    correction: Correction | None = None
    """The turn asks again for an answer that was not taken."""

    @property
    def sends_message(self) -> bool:
        """Whether it gives work to a peer, by a message that is kept in outbox/."""
        return self.turn is Turn.DISPATCH and self.correction is None and not self.harness


@dataclass(frozen=True, slots=True)
class LookUp:
    """Query OpenClaw's ledger for the outcome of a turn."""

    turn_id: str
    turn: Turn
    agent: str
    attempt_id: str
    session_key: str
    run_id: str | None
    gate: Gate | None = None
    heard: str | None = None
    """An earlier run of this session that is known to have ended: its row says nothing about the lost turn."""
    harness: str = ""
    """The harness that took the turn; `run_id` is then the call's."""
    correction: Correction | None = None
    """The lost turn was to correct an answer."""
    prompt: PromptDigest | None = None
    """What the lost turn was asked."""


@dataclass(frozen=True, slots=True)
class StopTurns:
    """Stop every running turn of this task: it was cancelled or superseded."""


@dataclass(frozen=True, slots=True)
class CreateChildren:
    """Create children of the task: a part of a plan that is too large for one transaction. Done by `Engine.tick`."""

    children: tuple[NewChild, ...]


@dataclass(frozen=True, slots=True)
class Compose:
    """Compose a coordinating task's result from its children's, without a model."""

    attempt_id: str


@dataclass(frozen=True, slots=True)
class Send:
    """Write a message to outbox/ and, if the receiver is an agent, deliver it."""

    message_id: str
    type: str
    to: str
    note: str = ""
    attempt: int = 0
    """For a message to the executing peer: the ordinal of its attempt."""
    waits_for: str = ""
    """For progress: what the work waits for, as `WaitsFor`; empty if that has not changed."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Deliver the stored reply of finished work again (clawflow's rule for a repeated dispatch)."""


@dataclass(frozen=True, slots=True)
class Bounce:
    """Notify the sender why its task was rejected. No task exists, so the effect carries the ids itself."""

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
    """Run a check of the spec here, without a model. `check_run_id` identifies the run."""

    check_run_id: str
    attempt_id: str
    check: Check


@dataclass(frozen=True, slots=True)
class Prepare:
    """Find out what an action would do, so that an approval can show it. Performs nothing."""

    approval_id: str
    """The id of the approval to be requested."""
    action: Action
    undoes: str = ""
    """The approval of the action to be undone."""


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform an approved action, once."""

    approval_id: str
    not_before: str | None = None


@dataclass(frozen=True, slots=True)
class Verify:
    """Ask the action's own `verify` for its outcome."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell people what has become of the task, or what of it waits for them."""

    what: Notice = Notice.APPROVAL
    """Orders of earlier versions name an approval only."""
    approval_id: str = ""
    trouble: str = ""
    """The obstacle, if it concerns no task."""
    people_only: bool = False
    """Not also to the `reply_to` of its task: that was told before."""
    not_before: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerPermission:
    """Send the decision to the waiting harness."""

    approval_id: str


Acting = Prepare | Perform | Verify | AnswerPermission
"""The effects of planned actions."""
Effect = RunTurn | LookUp | StopTurns | CreateChildren | Compose | Send | Resend | Bounce | RunCheck | Notify | Acting
