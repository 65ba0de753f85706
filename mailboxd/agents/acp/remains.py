"""What a program that was killed has left behind: its harness may still be at work, and must not be."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from mailboxd.agents.acp import notes
from mailboxd.agents.liveness import survivors


def sweep(folder: Path) -> int:
    """Kill what is left of the harness of a call whose program has ended; how many processes that were.

    A note that names somebody else's session can cost nobody but processes of our own user: whoever can write it can
    kill those himself.
    """
    left = survivors(notes.read(folder, notes.HARNESS) or {})
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
