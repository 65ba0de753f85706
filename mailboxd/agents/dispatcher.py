"""The seam between mailboxd and whatever carries a turn to its agent: one object decides the argv of every turn.

A turn is a program that is started, watched and judged the same way whoever it is: it gets its message in a file and
prints what `openclaw agent --json` prints (`agents.outcome` reads it), with the same exit codes, and SIGTERM aborts
the turn. `OpenClaw`, the command line, is the default; another transport is another program with that contract.
Looking up a lost turn and asking who is there stay with `OpenClaw`: they work without a connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Dispatcher(Protocol):
    """What `relay` and `posting` need to know of a transport."""

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """The program of one turn of `agent`, with `timeout` in seconds. Raises ValueError for what is no turn."""
        ...
