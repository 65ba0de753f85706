"""What the daemon wants of one turn: a file in the call's directory, beside the prompt."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailboxd.agents.call_dir import open_regular, read_capped
from mailboxd.core.json_codec import from_json

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


def read_request(path: Path) -> Order:
    """The order in a file. Raises OSError, or ValueError for what is none."""
    try:
        return from_json(Order, json.loads(path.read_bytes()))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no order: {error}") from error


# ---------------------------------------------------------------------------------------------------------------------
# The files by which the program of a turn and the daemon talk while it runs. Each is whole, or not there.
#
#     order.json                 daemon -> program: what is wanted
#     harness.json               program: the process of the harness, so that a daemon finds what a killed program left
#     session.json               program: the session, by which the harness can be asked later
#     progress.json              program -> daemon: what it does, at most one every few seconds
#     permission-N.json          program -> daemon: the harness asks for more than it was given
#     permission-N.answer.json   daemon -> program: what was decided
#     changes.json               program -> daemon: what changed, and what was refused
#     frames                     the journal of everything that was said, capped
#
# An agent of the same user can write them as well: they are read with a cap, and nothing in them is believed further
# than a person is shown it.

HARNESS, SESSION, PROGRESS, CHANGES = "harness.json", "session.json", "progress.json", "changes.json"
CAP = 4 * 1024 * 1024
MOST_QUESTIONS = 1_000
"""Permissions that one turn may ask a person for."""
_PERMISSION = re.compile(r"permission-([1-9][0-9]{0,3})\.json")


def write(directory: Path, name: str, value: object) -> None:
    """Put a note there, replacing an earlier one at once. Raises OSError."""
    temporary = directory / f".{name}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    descriptor = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(value, file, ensure_ascii=False)
        file.flush()
        os.fsync(descriptor)
    temporary.rename(directory / name)


def read_note(directory: Path, name: str) -> dict[str, Any] | None:
    """A note; None if it is not there, or is none."""
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
    """The numbers of the permissions that are asked for there; none where nothing can be listed."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if found := _PERMISSION.fullmatch(entry.name):
                yield int(found[1])
