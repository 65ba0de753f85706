"""The files in the call's directory through which the program of a turn and the daemon communicate.

    order.json                 daemon -> program: the TurnRequest
    harness.json               the harness's process, so that a daemon can kill what a killed program left running
    session.json               the session, for asking the harness later
    progress.json              program -> daemon: current activity, at most once every few seconds
    permission-N.json          program -> daemon: the harness asks for more than it was given
    permission-N.answer.json   daemon -> program: the decision
    changes.json               program -> daemon: changed files, and refused permissions
    frames                     journal of all frames, capped

Each file is replaced atomically. An agent of the same user can write them as well, so they are read with a cap and
nothing is concluded from them except what to show to a person.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailboxd.core.json_codec import from_json
from mailboxd.host.system import system
from mailboxd.perform.agents.call_dir import open_regular, read_capped

REQUEST = "order.json"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn. The program's environment is also the harness's; the call's id is the turn's id."""

    argv: tuple[str, ...]
    cwd: str
    """The harness's working directory, a real path."""
    state: str
    """The workspace's `.mailboxd`, where the daemon can be woken."""
    task_id: str
    attempt_id: str
    capabilities: tuple[str, ...]
    timeout: int
    """Seconds of work, without the time spent waiting for approvals."""
    grace: float
    """Seconds between SIGTERM and SIGKILL; the harness has to exit within them."""
    patience: float = 60.0
    """Seconds for each answer before the prompt is sent; a first start may be slow."""
    session: str = ""
    """A session to resume, if the harness can."""
    asks: bool = False
    """Only ask about an earlier turn of that session: every permission is refused."""


def read_request(path: Path) -> TurnRequest:
    """Raises OSError, or ValueError if the file is invalid."""
    try:
        return from_json(TurnRequest, json.loads(path.read_bytes()))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not a turn request: {error}") from error


HARNESS, SESSION, PROGRESS, CHANGES = "harness.json", "session.json", "progress.json", "changes.json"
CAP = 4 * 1024 * 1024
MOST_QUESTIONS = 1_000
"""Questions that one turn may put to the operator."""
_PERMISSION = re.compile(r"permission-([1-9][0-9]{0,3})\.json")


def write(directory: Path, name: str, value: object) -> None:
    """Write a file atomically and durably. Raises OSError."""
    temporary = directory / f".{name}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    descriptor = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(value, file, ensure_ascii=False)
        file.flush()
        system.sync(descriptor)
    temporary.rename(directory / name)


def read_note(directory: Path, name: str) -> dict[str, Any] | None:
    """The JSON object in a file; None if it is missing or invalid."""
    try:
        raw, truncated = read_capped(directory / name, CAP)
        value = None if truncated or not raw else json.loads(raw)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def question(number: int) -> str:
    return f"permission-{number}.json"


def answer(number: int) -> str:
    return f"permission-{number}.answer.json"


def questions(directory: Path) -> Iterator[int]:
    """The numbers of the permission requests; none if the directory cannot be listed."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if found := _PERMISSION.fullmatch(entry.name):
                yield int(found[1])
