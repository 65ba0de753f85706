"""Who gives an order or decides: users of this machine, keys, and people who are known to OpenClaw's gateway.

    ann                      a user of the operating system: a command, the page, a typed tool
    key:0f3a...              whoever signed a file with that key
    chat:telegram:12345      a sender of a messenger, as OpenClaw's gateway knows them
    chat:webchat:owner       whoever OpenClaw's gateway lets write as its operator, in a chat of its own
    device:3c1f...           a device that is paired with the gateway: its dashboard

The last three are remote: the gateway says who they are, and only the configuration makes them count.
"""

from __future__ import annotations

import re

CHAT, DEVICE = "chat:", "device:"
OWNER = "chat:webchat:owner"
"""Everybody who may write on OpenClaw's gateway: whoever has its token, an agent with a shell as well."""
_REMOTE = re.compile(r"chat:[a-z0-9][a-z0-9_-]{0,63}:[!-~]{1,200}|device:[A-Za-z0-9_=.-]{4,128}", re.ASCII)
_HERE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+$-]{0,127}", re.ASCII)


def is_person(name: str) -> bool:
    """Whether this can be an entry of `approvals.approvers`."""
    return (_REMOTE if is_remote(name) else _HERE).fullmatch(name) is not None


def is_remote(person: str) -> bool:
    """Whether only OpenClaw's gateway vouches for this person."""
    return person.startswith((CHAT, DEVICE))


def may_decide(person: str, approvers: tuple[str, ...]) -> bool:
    """Whether this person may decide about approvals. An empty list lets every user of the workspace, and nobody
    whom only the gateway knows.
    """
    return person in approvers or (not approvers and not is_remote(person))
