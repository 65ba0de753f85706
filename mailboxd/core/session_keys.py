"""The OpenClaw session of a turn: its key belongs to the work, not to the process.

An attempt gets a new key only if the earlier attempt provably ended; after an unknown outcome the key is kept, because
a new session could execute the same work twice (protocol section 2, "Sessions").
"""

from __future__ import annotations

import hashlib
import re
from json.encoder import encode_basestring_ascii

from mailboxd.core.model import Attempt
from mailboxd.core.vocabulary import AttemptStatus, Gate

_UNREADABLE = re.compile(r"[^a-z0-9._-]")


def session_key(agent: str, local_id: str, own_agent: str, ordinal: int) -> str:
    """The session of one piece of work of `agent`, given by the daemon of `own_agent`.

    `ordinal` is the attempt that opened the session. Keys are lower case in OpenClaw and ids are not: a hash keeps
    apart what differs. At most 240 characters; no colon after `mailboxd:`, where OpenClaw would look for a thread.
    """
    agent = agent.lower()
    names = ", ".join(map(encode_basestring_ascii, (agent, local_id, own_agent.lower())))
    exact = f"[{names}, {ordinal}]"  # as `json.dumps` writes a list: keys of earlier versions stay what they are
    digest = hashlib.sha256(exact.encode()).hexdigest()[:12]
    readable = _UNREADABLE.sub("-", local_id.lower())[:60]
    return f"agent:{agent}:mailboxd:{readable}-{ordinal}-{digest}"


def review_key(reviewer: str, local_id: str, own_agent: str, gate: Gate, round_: int) -> str:
    """The session of one reviewer in one round at one gate."""
    return f"{session_key(reviewer, local_id, own_agent, round_ + 1)}-{gate.replace('_', '-')}"


def draft_key(agent: str, local_id: str, own_agent: str, round_: int) -> str:
    """The session in which a weak spec is drafted, between two reviews of it."""
    return f"{session_key(agent, local_id, own_agent, round_ + 1)}-draft"


def message_key(receiver: str, local_id: str, own_agent: str, order_id: str) -> str:
    """The session that delivers one message; ids of orders are unique."""
    return f"{session_key(receiver, local_id, own_agent, 1)}-{order_id.lower()}"


def next_session_key(previous: Attempt | None, executor: str, local_id: str, own_agent: str, ordinal: int) -> str:
    """The key for attempt `ordinal`, given how the attempt before it ended.

    An attempt that was stopped or never reached its agent proves nothing about an earlier one with the same key.
    """
    if previous is not None and previous.executor == executor:
        unproven = previous.status is AttemptStatus.ABORTED and previous.session_key != session_key(
            executor, local_id, own_agent, previous.ordinal
        )
        if previous.status is AttemptStatus.UNKNOWN or unproven:
            return previous.session_key
    return session_key(executor, local_id, own_agent, ordinal)


_NO_CHATS = ("mailboxd:", "subagent:", "acp:")
"""Sessions that nobody reads later: of our own turns, of OpenClaw's sub-agents and of harnesses."""


def is_chat_of(agent: str, address: str) -> bool:
    """Whether an address (`session:KEY`, `wake:KEY`) is a session in which people, or schedules, talk to the agent."""
    how, _, rest = address.lower().partition(f":agent:{agent.lower()}:")
    return how in ("session", "wake") and bool(rest) and not rest.startswith(_NO_CHATS) and ":subagent:" not in rest
