"""Approvals: the nouns. What waits for a person, what the person said, and what became of the action.

A row never changes what it asks for: an edit voids the request, and another one is made. What is decided and done
about it is in `core.approving` and `core.performing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.actions import Action, ActionKind


class Purpose(StrEnum):
    """Why a person is asked. Only an ACTION moves its task."""

    ACTION = "action"
    UNDO = "undo"
    PERMISSION = "permission"


class ApprovalStatus(StrEnum):
    """Protocol section 6. A request that an edit or the end of the task made void is EXPIRED as well, and `void`."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    REQUEST_CHANGES = "request_changes"
    EXPIRED = "expired"


class Decision(StrEnum):
    """What a person may say."""

    APPROVED = "approved"
    REJECTED = "rejected"
    REQUEST_CHANGES = "request_changes"


class Performed(StrEnum):
    """How far an approved action is. STARTED is committed before anything happens, and never goes back to NOT."""

    NOT = ""
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Approval:
    """One row of `approvals`."""

    id: str
    task: str
    attempt: str
    purpose: Purpose
    action: Action
    requested_action: str
    """In one line, for a person."""
    side_effect_kind: ActionKind
    risk: str
    preview: str
    digest: str
    """sha256 over everything that would happen, see `core.actions.digest`."""
    idempotency_key: str
    requested_by: str
    at: str
    gate: str = ""
    """Who keeps it from happening until then: `lobster`, or `builtin` and why not Lobster."""
    content_sha256: str = ""
    target_sha256: str = ""
    """FILE: what is written, and what stood there when the person was asked."""
    status: ApprovalStatus = ApprovalStatus.PENDING
    expires_at: str = ""
    resolved_by: str = ""
    resolved_at: str = ""
    note: str = ""
    state: Performed = Performed.NOT
    started_at: str = ""
    finished_at: str = ""
    summary: str = ""
    artifact: str = ""
    checked: bool = False
    """UNKNOWN: what it declares as `verify` was asked, or there is none."""
    tries: int = 0
    """How often it was tried to begin it, and provably nothing began."""
    void: bool = False
    """It was made void before anything came of it: by an edit, or because its task or its attempt ended."""
    origin: str = ""
    """UNDO: the approval that is taken back. PERMISSION: the call that waits."""

    @property
    def short_id(self) -> str:
        """What a person types: the end of the id, lower case."""
        return self.id[-6:].lower()

    @property
    def is_open(self) -> bool:
        """Whether something can still become of it."""
        return self.status is ApprovalStatus.PENDING or (
            self.status is ApprovalStatus.APPROVED and self.state in (Performed.NOT, Performed.STARTED)
        )


# ---------------------------------------------------------------- what is heard of them


@dataclass(frozen=True, slots=True)
class ActionPrepared:
    """An action can be performed, and this is what a person has to see of it."""

    approval_id: str
    action: Action
    preview: str
    digest: str
    gate: str
    content_sha256: str = ""
    target_sha256: str = ""
    undoes: str = ""
    """The approval of the action that it takes back."""


@dataclass(frozen=True, slots=True)
class ActionImpossible:
    """It cannot be performed as it was declared."""

    action: Action
    why: str
    undoes: str = ""


@dataclass(frozen=True, slots=True)
class ActionDeclared:
    """Somebody who may request approvals adds an action to the work."""

    action: Action


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """A harness wants more, in the middle of its turn, than its attempt was given. `call` is the turn's id."""

    approval_id: str
    call: str
    wish: str
    """What it wants, in its words: untrusted."""
    preview: str
    risk: str = ""
    attempt_id: str = ""
    """The attempt that its turn is of; empty = the present one."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """A person's decision."""

    approval_id: str
    decision: Decision
    note: str = ""


@dataclass(frozen=True, slots=True)
class RequestUndo:
    """A person wants a performed action taken back, as it was declared."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class ApprovalExpired:
    approval_id: str


@dataclass(frozen=True, slots=True)
class ActionStarted:
    """The runner is about to perform it: said, and committed, before anything happens. `digest` is of what it has."""

    approval_id: str
    digest: str


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """What became of it. UNKNOWN: it was begun, and nobody saw its end."""

    approval_id: str
    state: Performed
    summary: str
    report: str = ""


@dataclass(frozen=True, slots=True)
class ActionNotBegun:
    """It was tried to begin it, and provably nothing happened.

    `for_now`: the machine had no descriptor, no memory or no process to give. That is no verdict about the action, and
    costs no try; its runner says so, also after it was noted as started.
    """

    approval_id: str
    why: str
    for_now: bool = False


ByGate = (
    ActionDeclared | ActionPrepared | ActionImpossible | PermissionAsked | ActionStarted | ActionEnded | ActionNotBegun
)
"""What the daemon and its runner say."""
OfApproval = ByGate | Resolve | RequestUndo | ApprovalExpired
