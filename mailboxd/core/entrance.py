"""How a file came into the mailbox: what mailboxd has seen itself, and what the file only claims.

Whoever may write into the inbox can choose the name under which a file is prepared there, so the program that this name
tells is a claim. Its owner and what the kernel reported about the inbox are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Way(StrEnum):
    """What the daemon saw of a file's arrival."""

    RENAMED = "renamed"
    IN_PLACE = "in_place"
    AT_START = "at_start"
    UNSEEN = "unseen"

    @property
    def told(self) -> str:
        return _TOLD[self]


_TOLD = {
    Way.RENAMED: "renamed in",
    Way.IN_PLACE: "written in place",
    Way.AT_START: "found at the start",
    Way.UNSEEN: "found by a scan",
}
PROGRAMS = {
    "command": "a command",
    "page": "the page",
    "chat": "an order in a chat",
    "plugin": "the plugin in OpenClaw",
    "hub": "the hub",
}
"""The programs of mailboxd that write into an inbox, by the word in the hidden name under which they prepare a file."""
_PREPARED = re.compile(rf"\.mailboxd-({'|'.join(PROGRAMS)})-[0-9a-f-]{{1,80}}\.tmp", re.ASCII)


def prepared_name(program: str, unique: str) -> str:
    """The hidden name under which one of `PROGRAMS`, or "" for none of them, prepares a file."""
    return f".mailboxd-{program}-{unique}.tmp" if program else f".mailboxd-{unique}.tmp"


def claimed_by(name: str) -> str:
    """The program of mailboxd that a file claims to come from, by the name that it had before its rename; or empty."""
    found = _PREPARED.fullmatch(name)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a file when it was read. `name` is as the machine called them then; empty for one without a name."""

    uid: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} (uid {self.uid})" if self.name else f"uid {self.uid}"


@dataclass(frozen=True, slots=True)
class Entrance:
    """How a file came. `claimed`: one of `PROGRAMS`, or empty."""

    owner: Owner | None = None
    way: Way | None = None
    claimed: str = ""

    def columns(self) -> dict[str, Any]:
        """Its part of the row of a message; without what is not known."""
        owner = {} if self.owner is None else {"owner_uid": self.owner.uid, "owner": self.owner.name}
        way = {} if self.way is None else {"came": self.way.value}
        return owner | way | ({"claimed": self.claimed} if self.claimed else {})


UNKNOWN = Entrance()


def told(row: Mapping[str, Any]) -> str:
    """In words, what the row of a message says about how its file came; empty if it says nothing."""
    uid, way, claimed = row.get("owner_uid"), row.get("came"), row.get("claimed")
    parts = []
    if uid is not None:
        parts.append(f"owned by {Owner(uid, row.get('owner') or '')}")
    if way in _TOLD:
        parts.append(_TOLD[Way(way)])
    if claimed in PROGRAMS:
        parts.append(f"as its name says, by {PROGRAMS[claimed]}")
    return ", ".join(parts)
