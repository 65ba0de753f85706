"""What the daemon wants of one turn: a file in the call's directory, beside the prompt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mailboxd.core.wire import from_json

NAME = "order.json"


@dataclass(frozen=True, slots=True)
class Order:
    """One turn. The environment of the program is that of the harness, and the call's id is the turn's."""

    argv: tuple[str, ...]
    cwd: str
    """The directory that the harness is given, absolute and without links."""
    state: str
    """`.mailboxd` of the workspace: where the daemon can be woken."""
    task_id: str
    attempt_id: str
    capabilities: tuple[str, ...]
    timeout: int
    """Seconds of work; the time in which a person is asked does not count."""
    grace: float
    """Seconds between SIGTERM and SIGKILL: the harness has to be gone by then."""
    patience: float = 60.0
    """Seconds that it may take to answer before it has the prompt: the first time it may load things."""
    backend: str = "direct"
    acpx: tuple[str, ...] = ()
    session: str = ""
    """A session of the harness to go on with, if it can."""
    asks: bool = False
    """Nothing is to be done: it is asked what became of a turn of that session, and gets no permission."""


def read(path: Path) -> Order:
    """The order in a file. Raises OSError, or ValueError for what is none."""
    try:
        return from_json(Order, json.loads(path.read_bytes()))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no order: {error}") from error
