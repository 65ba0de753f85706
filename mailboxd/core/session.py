"""Which OpenClaw session a turn runs in: the key belongs to the piece of work, not to the process.

A new key is taken only when the end of the earlier attempt is proven; an attempt after an unknown outcome keeps it
(protocol section 2, "Sessions": another key executed the same work twice).
"""

from __future__ import annotations

import hashlib

from mailboxd.core.types import Attempt, AttemptStatus

_LONGEST = 160


def session_key(agent: str, local_id: str, own_agent: str, ordinal: int) -> str:
    """The lower-case key of a piece of work; ids that differ only in case, or are very long, get a hash."""
    name = local_id.lower()
    if name != local_id or len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(local_id.encode()).hexdigest()[:8]}"
    by = "" if agent == own_agent else f":by-{own_agent.lower()}"
    again = "" if ordinal == 1 else f":a{ordinal}"
    return f"agent:{agent.lower()}:mailboxd:{name}{by}{again}"


def review_key(reviewer: str, local_id: str, own_agent: str, ordinal: int, gate: str) -> str:
    return f"{session_key(reviewer, local_id, own_agent, ordinal)}:{gate.replace('_', '-')}"


def next_session_key(previous: Attempt | None, executor: str, local_id: str, own_agent: str, ordinal: int) -> str:
    """The key for attempt `ordinal`, given how the attempt before it ended."""
    if previous is not None and previous.executor == executor and previous.status is AttemptStatus.UNKNOWN:
        return previous.session_key
    return session_key(executor, local_id, own_agent, ordinal)
