"""Planned actions: side effects that work declares and that a person has to approve before they happen.

Nothing here does anything. An action is only what stands there: `digest` is over all of it, so whoever approved a
digest approved exactly that.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from mailboxd.core.text import first_line
from mailboxd.core.wire import to_json

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
