"""Bearer tokens and their callers, in `.mailboxd/mcp.json` (mode 0600), which holds hashes and never a token.

Tokens are 256 random bits, so a plain SHA-256 suffices. Each row also names the entry in OpenClaw's configuration that
carries the token.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from mailboxd.core.events import Role
from mailboxd.core.roles import REVIEWERS
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import ConfigError
from mailboxd.formats.mailbox.files import directory, read_file, replace, world_errors
from mailboxd.formats.mailbox.layout import STATE, Workspace

AGENT_ROLES = frozenset({Role.EXECUTOR, *REVIEWERS})
"""The roles for which an agent may get a token: they add evidence. An agent never commands or approves."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The role and name of a connection; no argument of a call can change them."""

    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


def parse(text: str) -> Caller:
    """Parse `ROLE:NAME`. Raises ConfigError, which lists the roles."""
    role, _, name = text.partition(":")
    if role not in set(Role) or not is_id(name):
        raise ConfigError(f"{text[:160]!r} is not ROLE:NAME with one of the roles {', '.join(Role)} and an id as name")
    return Caller(Role(role), name)


NAME = "mcp.json"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Grant:
    """An issued token. `entry` is its entry in OpenClaw's configuration; empty for another client.

    `requested`: a person asked for this caller's entry by name (`--as`), so `install` without names keeps it.
    """

    caller: Caller
    sha256: str
    made_at: str
    entry: str = ""
    requested: bool = False


def new_token() -> str:
    return secrets.token_urlsafe(32)


def fingerprint(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def caller_of(grants: Iterable[Grant], token: str) -> Caller | None:
    """The caller of this token, or None. Every row is compared, in constant time."""
    presented, found = fingerprint(token), None
    for grant in grants:
        if hmac.compare_digest(grant.sha256, presented):
            found = grant.caller
    return found


def load(ws: Workspace) -> tuple[Grant, ...]:
    """The issued tokens. Raises ConfigError for a damaged file, WorldError."""
    path = ws.state / NAME
    with world_errors(f"read {path}"), directory(ws.root, STATE) as state:
        raw = read_file(state, NAME, _MAX_BYTES)
    if raw is None:
        return ()
    try:
        rows = json.loads(raw)["grants"]
        return tuple(
            Grant(parse(row["caller"]), row["sha256"], row["made_at"], row["entry"], bool(row.get("requested")))
            for row in rows
        )
    except (ValueError, KeyError, TypeError) as error:
        remedy = "remove it and run `mailboxd connect mcp install` again (existing tokens then become invalid)"
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from error


def save(ws: Workspace, grants: Iterable[Grant]) -> None:
    """Write the file atomically and durably, mode 0600. Raises WorldError."""
    rows = [asdict(grant) | {"caller": str(grant.caller)} for grant in grants]
    raw = json.dumps({"grants": rows}, indent=2).encode() + b"\n"
    with world_errors(f"write {ws.state / NAME}"), directory(ws.root, STATE) as state:
        replace(state, NAME, raw, lambda: True)
