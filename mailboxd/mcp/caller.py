"""Who speaks over a connection: one role, for one name. Nothing a message says can change it."""

from __future__ import annotations

from dataclasses import dataclass

from mailboxd.core.events import Role
from mailboxd.core.roles import REVIEWERS
from mailboxd.core.terms import is_id
from mailboxd.errors import ConfigError

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
