"""What a recorded event says, in the words of the core.

Apart from the queries, and imported when it is needed: the core's types take 15 ms, and `mailboxd status` seldom needs
them.
"""

from __future__ import annotations

import json

from mailboxd.core.describe import describe
from mailboxd.core.events import Event, Kind, Role


def sentence(kind: str, task: str | None, data: str, role: str, actor: str, name: str) -> str:
    """What `history` says of an event; `name` is the local id of its task."""
    return describe(Event(Kind(kind), task, json.loads(data), Role(role), actor), name)
