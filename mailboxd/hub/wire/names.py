"""Names of hosts, agents and pools, as messages and subjects write them, and the patterns of hub.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mailboxd.core.vocabulary import POOL, is_id

_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Address:
    """An agent of a host, in lower case: agents' ids ignore case."""

    host: str
    agent: str

    def __str__(self) -> str:
        return f"{self.host}.{self.agent}"

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """The address `host.agent`; None if it is none."""
        host, dot, agent = text.lower().partition(".")
        return cls(host, agent) if dot and is_host(host) and is_id(text) and is_id(agent) else None


def role_of(agent: str) -> str:
    """The role that a pool serves, in lower case; empty for any other name."""
    if not agent.startswith(POOL):
        return ""
    role = agent.removeprefix(POOL)
    return role.lower() if is_id(role) else ""


def is_host(text: str) -> bool:
    """Whether `text` is a host's name: 1 to 63 of a-z 0-9 -, neither first nor last a hyphen."""
    return _HOST.fullmatch(text) is not None


def permits(patterns: tuple[str, ...], address: str) -> bool:
    """Whether one of the patterns (`beta.writer`, `beta.*`, `*`) matches an address."""
    return any(fnmatchcase(address.lower(), pattern.lower()) for pattern in patterns)


def token(name: str) -> str:
    """A name in a subject: a dot separates tokens, and no id contains "="."""
    return name.replace(".", "=")


def untoken(text: str) -> str:
    return text.replace("=", ".")
