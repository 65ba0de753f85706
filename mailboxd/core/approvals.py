"""Records of planned actions and their approvals, and the inputs about them.

An approval never changes its action: an edit voids it, and another one is requested. The decisions are in
`core.approval_requests` and `core.approved_actions`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from mailboxd.core.json_codec import to_json
from mailboxd.core.sanitize import first_line

# Planned actions: declared side effects, which need approval. `digest` covers the whole action, so that an approval is
# for exactly that.

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ActionKind(StrEnum):
    """The way to perform an action. MANUAL: by a person, who confirms it by approving."""

    COMMAND = "command"
    MESSAGE = "message"
    FILE = "file"
    HTTP = "http"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Action:
    """A side effect declared by a spec, a plan or a result. `kind` says which fields apply."""

    id: str
    kind: ActionKind
    action: str = ""
    """A description by its author; the only content of a MANUAL action."""
    risk: str = ""
    idempotency_key: str = ""
    """With one key it runs at most once in this workspace; empty: a key is derived."""
    argv: tuple[str, ...] = ()
    """COMMAND: words, no shell."""
    cwd: str = ""
    """COMMAND: a directory, relative to the workspace or absolute; empty: the workspace."""
    env: tuple[str, ...] = ()
    """COMMAND, HTTP: names of environment variables that it gets; the configuration has to allow each."""
    timeout: int = 0
    """Maximum seconds; 0: the maximum of the configuration."""
    channel: str = ""
    target: str = ""
    account: str = ""
    text: str = ""
    """MESSAGE: the text, its recipient, and OpenClaw's channel and account."""
    path: str = ""
    """FILE: the absolute path of the file, which is replaced."""
    content: str = ""
    source: str = ""
    """FILE: the new content, or a file of the workspace with it."""
    method: str = ""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """HTTP: the headers; `${NAME}` in a value is an environment variable, which `env` has to name."""
    body: str = ""
    verify: tuple[str, ...] = ()
    """A command that finds out an unknown outcome: exit 0 = it happened, 1 = it did not, else unknown."""
    undo: tuple[str, ...] = ()
    """A command that undoes it; offered to the operator, and approved like any other."""


def canonical(action: Action) -> str:
    """The action as canonical JSON, for digests and gates."""
    return json.dumps(to_json(action), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(action: Action, content_sha256: str = "", target_sha256: str = "") -> str:
    """sha256 over the action and, for a file, the digests of its new content and of the target at the request."""
    text = "\n".join([canonical(action), content_sha256, target_sha256])
    return hashlib.sha256(text.encode()).hexdigest()


def merged(declared: tuple[Action, ...], more: tuple[Action, ...]) -> tuple[Action, ...]:
    """Both, each action once. A different action with a used id gets a new id."""
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
    """The action in one line of at most 200 characters, for people."""
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
    """The limits of the configuration for actions."""

    environment: frozenset[str] = frozenset()
    """Names of environment variables that an action may get."""


def may_not_perform(rules: ActionRules, action: Action) -> str | None:
    """Why the configuration does not allow an action here; None = it does."""
    used = {*action.env, *(name for _, text in action.headers for name in _VARIABLE.findall(text))}
    if forbidden := sorted(used - rules.environment):
        return f"actions.environment of this workspace's configuration does not name {', '.join(forbidden)}"
    if unnamed := sorted(used - set(action.env)):
        return f"its headers use {', '.join(unnamed)}, which its env does not name"
    return None


# Approvals


class Purpose(StrEnum):
    """The purpose of an approval. Only an ACTION moves its task."""

    ACTION = "action"
    UNDO = "undo"
    PERMISSION = "permission"


class ApprovalStatus(StrEnum):
    """Protocol section 6. An approval voided by an edit or by the end of its task is EXPIRED and `void`."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    REQUEST_CHANGES = "request_changes"
    EXPIRED = "expired"


class ApprovalDecision(StrEnum):
    """The decisions of people."""

    APPROVED = "approved"
    REJECTED = "rejected"
    REQUEST_CHANGES = "request_changes"


class Performed(StrEnum):
    """The progress of an approved action. STARTED is committed before it starts."""

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
    """The action in one line, for people."""
    side_effect_kind: ActionKind
    risk: str
    preview: str
    digest: str
    """sha256 over everything that would happen: `digest`."""
    idempotency_key: str
    requested_by: str
    at: str
    gate: str = ""
    """The gate in front of it: `lobster`, or `builtin` and why not Lobster."""
    content_sha256: str = ""
    target_sha256: str = ""
    """FILE: digests of its new content, and of the target when the approval was requested."""
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
    """UNKNOWN: its `verify` was run, or it has none."""
    tries: int = 0
    """Failed attempts to start it, in which provably nothing happened."""
    void: bool = False
    """Voided before it was used: by an edit, or because its task or attempt ended."""
    origin: str = ""
    """UNDO: the approval of the action to undo. PERMISSION: the waiting call."""

    @property
    def short_id(self) -> str:
        """The end of the id in lower case, for commands."""
        return self.id[-6:].lower()

    @property
    def is_reversible(self) -> bool:
        """Whether approving it can be taken back: it declares an `undo`, or a person performs it."""
        return self.purpose is Purpose.ACTION and (self.side_effect_kind is ActionKind.MANUAL or bool(self.action.undo))

    @property
    def is_open(self) -> bool:
        """Whether it can still be decided or performed."""
        return self.status is ApprovalStatus.PENDING or (
            self.status is ApprovalStatus.APPROVED and self.state in (Performed.NOT, Performed.STARTED)
        )


# Inputs about approvals


@dataclass(frozen=True, slots=True)
class ActionPrepared:
    """An action can be performed; this is its preview for people."""

    approval_id: str
    action: Action
    preview: str
    digest: str
    gate: str
    content_sha256: str = ""
    target_sha256: str = ""
    undoes: str = ""
    """The approval of the action to undo."""


@dataclass(frozen=True, slots=True)
class ActionImpossible:
    """The action cannot be performed as declared."""

    action: Action
    why: str
    undoes: str = ""


@dataclass(frozen=True, slots=True)
class ActionDeclared:
    """A caller who may request approvals adds an action to the task."""

    action: Action


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """A harness asks for a permission during its turn. `call` is the turn's id."""

    approval_id: str
    call: str
    wish: str
    """The harness's description: untrusted."""
    preview: str
    risk: str = ""
    attempt_id: str = ""
    """The attempt of its turn; empty = the present one."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """A person's decision."""

    approval_id: str
    decision: ApprovalDecision
    note: str = ""


@dataclass(frozen=True, slots=True)
class RequestUndo:
    """The operator wants a performed action undone, as declared."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class ApprovalExpired:
    approval_id: str


@dataclass(frozen=True, slots=True)
class ActionStarted:
    """The runner is about to perform the action with this digest: committed before anything happens."""

    approval_id: str
    digest: str


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """The action ended. UNKNOWN: it started, and its end was not observed."""

    approval_id: str
    state: Performed
    summary: str
    report: str = ""


@dataclass(frozen=True, slots=True)
class ActionNotBegun:
    """The action could not be started, and provably nothing happened.

    `for_now`: the machine lacked descriptors, memory or processes. That costs no try, and may be reported after
    ActionStarted.
    """

    approval_id: str
    why: str
    for_now: bool = False


ByGate = (
    ActionDeclared | ActionPrepared | ActionImpossible | PermissionAsked | ActionStarted | ActionEnded | ActionNotBegun
)
"""Inputs of the daemon and its runner."""
OfApproval = ByGate | Resolve | RequestUndo | ApprovalExpired
