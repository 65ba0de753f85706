"""Approvals: the nouns. What waits for a person, what the person said, and what became of the action.

A row never changes what it asks for: an edit voids the request, and another one is made. What is decided and done
about it is in `core.approval_requests` and `core.approved_actions`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from mailboxd.core.json_codec import to_json
from mailboxd.core.sanitize import first_line

# Planned actions: side effects that work declares and that a person has to approve before they happen.
#
# Nothing here does anything. An action is only what stands there: `digest` is over all of it, so whoever approved a
# digest approved exactly that.

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ActionKind(StrEnum):
    """What performs it. MANUAL: nothing of ours can; a person does what the words say, and approving says so."""

    COMMAND = "command"
    MESSAGE = "message"
    FILE = "file"
    HTTP = "http"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Action:
    """One side effect, as a spec, a plan or a result declares it. Which fields count follows from `kind`."""

    id: str
    kind: ActionKind
    action: str = ""
    """What it does, in the words of who declares it. All that a MANUAL one has."""
    risk: str = ""
    idempotency_key: str = ""
    """Under one key it runs at most once in this workspace; empty: a key is derived, see `core.approvals`."""
    argv: tuple[str, ...] = ()
    """COMMAND: words, no shell."""
    cwd: str = ""
    """COMMAND: a directory, relative to the workspace or absolute; empty: the workspace."""
    env: tuple[str, ...] = ()
    """COMMAND, HTTP: names of environment variables that it is given; the configuration has to allow each."""
    timeout: int = 0
    """Seconds it may take; 0: as long as the configuration allows."""
    channel: str = ""
    target: str = ""
    account: str = ""
    text: str = ""
    """MESSAGE: what is said, to whom, over which channel of OpenClaw (and which account of it)."""
    path: str = ""
    """FILE: the absolute path that is written, whole."""
    content: str = ""
    source: str = ""
    """FILE: what is written: these words, or this file of the workspace."""
    method: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """HTTP: headers as they are sent; `${NAME}` in a value is the environment variable, which `env` has to name."""
    body: str = ""
    verify: tuple[str, ...] = ()
    """A command that tells what became of it when nobody saw: 0 = it happened, 1 = it did not, else unknown."""
    undo: tuple[str, ...] = ()
    """A command that takes it back; offered to the operator, and approved like any other."""


def canonical(action: Action) -> str:
    """The action as JSON in one fixed form: what a digest is over and what a gate stores."""
    return json.dumps(to_json(action), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(action: Action, content_sha256: str = "", target_sha256: str = "") -> str:
    """sha256 over the action and, for a file, over what is written and what stood there when a person was asked."""
    text = "\n".join([canonical(action), content_sha256, target_sha256])
    return hashlib.sha256(text.encode()).hexdigest()


def merged(declared: tuple[Action, ...], more: tuple[Action, ...]) -> tuple[Action, ...]:
    """Both, each action once. Another action under an id that is taken gets an id of its own."""
    actions = list(declared)
    for action in more:
        if action in actions:
            continue
        taken = {known.id for known in actions}
        name, number = action.id, 1
        while name in taken:
            number += 1
            name = f"{action.id[:120]}-{number}"
        actions.append(replace(action, id=name))
    return tuple(actions)


def in_words(action: Action) -> str:
    """What will happen, in one line of at most 200 characters, for a person."""
    match action.kind:
        case ActionKind.COMMAND:
            said = "run " + " ".join(word if word.isalnum() else json.dumps(word) for word in action.argv)
        case ActionKind.MESSAGE:
            said = f"send to {action.target} on {action.channel}: {action.text}"
        case ActionKind.FILE:
            said = f"write {action.path}" + (f" from {action.source}" if action.source else "")
        case ActionKind.HTTP:
            said = f"{action.method} {action.url}"
        case ActionKind.MANUAL:
            said = action.action
    return first_line(said, 200)


@dataclass(frozen=True, slots=True)
class ActionRules:
    """What the operator lets actions have here."""

    environment: frozenset[str] = frozenset()
    """Names of environment variables that an action may be given."""


def may_not_perform(rules: ActionRules, action: Action) -> str | None:
    """Why an action cannot be performed here, as far as the configuration says; None = it can."""
    used = {*action.env, *(name for _, text in action.headers for name in _VARIABLE.findall(text))}
    if forbidden := sorted(used - rules.environment):
        return f"actions.environment of this workspace's configuration does not name {', '.join(forbidden)}"
    if unnamed := sorted(used - set(action.env)):
        return f"its headers use {', '.join(unnamed)}, which its env does not name"
    return None


# Approvals: the nouns. What waits for a person, what the person said, and what became of the action.


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


class ApprovalDecision(StrEnum):
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


# What is heard of them


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
    decision: ApprovalDecision
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
