"""What there is to rebuild from, as it was read from the files of archive/, rejected/, outbox/ and tasks/.

The bytes of the messages are kept until they are recorded, as far as they fit; the rest is read a second time then, so
a large mailbox does not have to fit into memory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from mailboxd.messages.codec import Parsed
from mailboxd.messages.models import AnyMessage
from mailboxd.messages.taskfile import TaskFile
from mailboxd.workspace.files import directory, open_regular, read_up_to, world_errors
from mailboxd.workspace.layout import Workspace

_LARGEST = 16 << 20
_KEPT = 64 << 20
"""Bytes of messages that are kept."""
_CLASH = re.compile(r"^(.*)~(?:[0-9a-f]{12}-)?(\d+)(\.[^.~]*)?$", re.DOTALL)


@dataclass(frozen=True)
class Came:
    """A file of archive/. `day` is empty for one that mailboxd did not put there (it was imported)."""

    path: str
    day: str
    name: str
    written_at: str
    """When its sender wrote it, as the file system has it."""
    parsed: Parsed

    @property
    def message(self) -> AnyMessage:
        return self.parsed.message


@dataclass(frozen=True)
class Refusal:
    """A file of rejected/, with what stands beside it."""

    path: str
    reason: dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A message of outbox/. `of` is the local id in its name: the task it is about."""

    path: str
    of: str
    sha256: str
    size: int
    message: AnyMessage


@dataclass(frozen=True)
class Shown:
    """A task.md. `place` is where its directory lies, relative to the workspace."""

    local_id: str
    written: TaskFile
    place: str
    archived: bool


@dataclass(slots=True)
class Sources:
    came: list[Came] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    shown: dict[str, Shown] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """A path relative to the workspace, and why nothing can be made of what lies there."""
    _kept: dict[str, bytes] = field(default_factory=dict)
    _room: int = _KEPT

    def keep(self, path: str, raw: bytes) -> None:
        """Keep the bytes of the file `path` below mailbox/ for `raw_of`, if there is room."""
        if len(raw) <= self._room:
            self._room -= len(raw)
            self._kept[path] = raw

    def add(self, more: Sources) -> None:
        """What was read after this."""
        self.came += more.came
        self.refusals += more.refusals
        self.sent += more.sent
        self.shown |= more.shown
        self.problems += more.problems
        for path, raw in more._kept.items():
            self.keep(path, raw)

    def raw_of(self, ws: Workspace, path: str) -> bytes | None:
        """The bytes of a file below mailbox/, asked for once; None if it is no regular file. Raises WorldError."""
        kept = self._kept.pop(path, None)
        return raw_of(ws, path) if kept is None else kept


def raw_of(ws: Workspace, path: str) -> bytes | None:
    """The bytes of a file below mailbox/; None if it is no regular file. Raises WorldError."""
    place = PurePosixPath(path)
    with world_errors(f"read mailbox/{path}"), directory(ws.mailbox, *place.parent.parts) as fd:
        return bytes_of(fd, place.name)


def bytes_of(fd: int, name: str) -> bytes | None:
    """The bytes of a file in the directory of this descriptor; None if it is no regular file. Raises OSError."""
    file = open_regular(fd, name)
    if file is None:
        return None
    try:
        return read_up_to(file, _LARGEST)
    finally:
        os.close(file)


def natural(name: str) -> tuple[str, int, str]:
    """`x.md` before `x~2.md` before `x~10.md`."""
    clash = _CLASH.match(name) if "~" in name else None
    return (clash[1] + (clash[3] or ""), int(clash[2]), name) if clash else (name, 1, name)
