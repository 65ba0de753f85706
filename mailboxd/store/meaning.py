"""What a column of JSON means, in the core's own types.

Apart from the queries, and imported when it is needed: those types take 15 ms, and `mailboxd status` seldom needs them.
"""

from __future__ import annotations

import json

from mailboxd.core.describe import describe
from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.types import Policy
from mailboxd.core.wire import from_json


def sentence(kind: str, task: str | None, data: str, role: str, actor: str, name: str) -> str:
    """What `history` says of an event; `name` is the local id of its task."""
    return describe(Event(Kind(kind), task, json.loads(data), Role(role), actor), name)


def timeout(policy: str) -> int:
    """How many seconds a turn of the task may take."""
    return from_json(Policy, json.loads(policy)).timeout
