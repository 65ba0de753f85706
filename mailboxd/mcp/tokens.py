"""Who holds which bearer token: `.mailboxd/mcp.json`, readable by its owner only, with hashes and never a token.

A token is 256 random bits, so a plain SHA-256 of it is enough: there is nothing to guess. With each row stands the
entry of OpenClaw's configuration that carries it, and what was added there for its sake, so that exactly that can be
taken back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from mailboxd.core.events import Role
from mailboxd.core.roles import REVIEWERS
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import ConfigError
from mailboxd.mailbox.files import directory, open_regular, read_up_to, replace, world_errors
from mailboxd.mailbox.layout import STATE, Workspace

# ---------------------------------------------------------------------------------------------------------------------
# Who speaks over a connection: one role, for one name. Nothing a message says can change it.

AGENT_ROLES = frozenset({Role.EXECUTOR, *REVIEWERS})
"""What an agent may be given a token for: it adds evidence. To command and to approve is never an agent's."""


@dataclass(frozen=True, slots=True)
class Caller:
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role}:{self.name}"


def parse(text: str) -> Caller:
    """The caller that `ROLE:NAME` names. Raises ConfigError, which lists the roles."""
    role, _, name = text.partition(":")
    if role not in set(Role) or not is_id(name):
        raise ConfigError(f"{text[:160]!r} is not ROLE:NAME with one of the roles {', '.join(Role)} and an id as name")
    return Caller(Role(role), name)


# ---------------------------------------------------------------------------------------------------------------------
# Who holds which bearer token: `.mailboxd/mcp.json`, readable by its owner only, with hashes and never a token.

NAME = "mcp.json"
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Grant:
    """A token that was given out. `entry`: of OpenClaw's configuration; empty = it is for another client.

    `made` are the objects that were missing in OpenClaw's configuration, as dotted paths, innermost last.
    """

    caller: Caller
    sha256: str
    made_at: str
    entry: str = ""
    made: tuple[str, ...] = ()


def new_token() -> str:
    return secrets.token_urlsafe(32)


def fingerprint(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def holder(grants: Iterable[Grant], token: str) -> Caller | None:
    """Whose token this is; every row is compared, in constant time, whatever the others said."""
    presented, found = fingerprint(token), None
    for grant in grants:
        if hmac.compare_digest(grant.sha256, presented):
            found = grant.caller
    return found


def load(ws: Workspace) -> tuple[Grant, ...]:
    """What was given out; empty when nothing was. Raises ConfigError for a damaged file, WorldError."""
    path = ws.state / NAME
    with world_errors(f"read {path}"), directory(ws.root, STATE) as state:
        fd = open_regular(state, NAME)
        if fd is None:
            return ()
        try:
            raw = read_up_to(fd, _LARGEST)
        finally:
            os.close(fd)
    try:
        rows = json.loads(raw)["grants"]
        return tuple(
            Grant(parse(row["caller"]), row["sha256"], row["made_at"], row["entry"], tuple(row["made"])) for row in rows
        )
    except (ValueError, KeyError, TypeError) as error:
        remedy = "remove it and run `mailboxd mcp install` again (tokens given out before are void then)"
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from error


def save(ws: Workspace, grants: Iterable[Grant]) -> None:
    """Put the file in its place, atomically and durably, mode 0600. Raises WorldError."""
    rows = [asdict(grant) | {"caller": str(grant.caller)} for grant in grants]
    raw = json.dumps({"grants": rows}, indent=2).encode() + b"\n"
    with world_errors(f"write {ws.state / NAME}"), directory(ws.root, STATE) as state:
        replace(state, NAME, raw, lambda: True)
