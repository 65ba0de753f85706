"""What there is to rebuild from: the files of archive/, rejected/, outbox/ and tasks/, each read without a link.

The bytes of the messages are kept until they are recorded, as far as they fit; the rest is read a second time then, so
a large mailbox does not have to fit into memory.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from mailboxd.core.terms import is_id
from mailboxd.core.times import to_text
from mailboxd.errors import MessageError
from mailboxd.messages.codec import Parsed, parse
from mailboxd.messages.models import AnyMessage
from mailboxd.messages.seal import unsealed
from mailboxd.messages.taskfile import TaskFile, parse_task_file
from mailboxd.workspace.files import directory, look, open_regular, read_up_to, world_errors
from mailboxd.workspace.filing import REASON
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_temporary
from mailboxd.workspace.taskfiles import ARCHIVE, TASK_FILE

_LARGEST = 16 << 20
_KEPT = 64 << 20
"""Bytes of messages that are kept."""
_DEEPEST = 4
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLASH = re.compile(r"^(.*)~(?:[0-9a-f]{12}-)?(\d+)(\.[^.~]*)?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file of rejected/, with what stands beside it."""

    path: str
    reason: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of outbox/. `of` is the local id in its name: the task it is about."""

    path: str
    of: str
    sha256: str
    size: int
    message: AnyMessage


@dataclass(frozen=True, slots=True)
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

    def raw_of(self, ws: Workspace, path: str) -> bytes | None:
        """The bytes of a file below mailbox/, asked for once; None if it is no regular file. Raises WorldError."""
        kept = self._kept.pop(path, None)
        return raw_of(ws, path) if kept is None else kept


def read(ws: Workspace) -> Sources:
    """Everything there is. Raises WorldError when a directory cannot be read."""
    found = Sources()
    for fd, folder, name in _files(ws, "archive", _DEEPEST):
        _archived(fd, folder, name, found)
    for fd, folder, name in _files(ws, "rejected", 0):
        if not name.endswith(REASON):
            _rejected(fd, folder, name, found)
    for fd, folder, name in _files(ws, "outbox", 0):
        _sent(fd, folder, name, found)
    for parts in (("tasks", ARCHIVE), ("tasks",)):  # what is live stands before what was put away
        _tasks(ws, parts, found)
    found.sent.sort(key=lambda sent: sent.path)
    return found


def raw_of(ws: Workspace, path: str) -> bytes | None:
    """The bytes of a file below mailbox/; None if it is no regular file. Raises WorldError."""
    place = PurePosixPath(path)
    with world_errors(f"read mailbox/{path}"), directory(ws.mailbox, *place.parent.parts) as fd:
        return _bytes(fd, place.name)


def _bytes(fd: int, name: str) -> bytes | None:
    file = open_regular(fd, name)
    if file is None:
        return None
    try:
        return read_up_to(file, _LARGEST)
    finally:
        os.close(file)


def _files(ws: Workspace, folder: str, depth: int) -> Iterator[tuple[int, str, str]]:
    """Every file below a directory of mailbox/, in the order in which names of a clash were given out.

    Each as a descriptor of the directory that it lies in, open until the next one is asked for, the path of that
    directory, and its name.
    """
    with world_errors(f"read mailbox/{folder}"), directory(ws.mailbox, *folder.split("/")) as fd:
        with os.scandir(fd) as entries:
            found = sorted(
                ((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries),
                key=lambda item: natural(item[0]),
            )
        for name, is_directory in found:
            if is_directory and depth:
                yield from _files(ws, f"{folder}/{name}", depth - 1)
            elif not is_temporary(name) and (not is_directory or folder == "rejected"):
                yield fd, folder, name


def natural(name: str) -> tuple[str, int, str]:
    """`x.md` before `x~2.md` before `x~10.md`."""
    clash = _CLASH.match(name) if "~" in name else None
    return (clash[1] + (clash[3] or ""), int(clash[2]), name) if clash else (name, 1, name)


def _archived(fd: int, folder: str, file: str, found: Sources) -> None:
    path = f"{folder}/{file}"
    with world_errors(f"read mailbox/{path}"):
        status = look(fd, file)
        raw = _bytes(fd, file)
        base = natural(file)[0]
        name = base if base != file and look(fd, base) is not None else file
    if raw is None or status is None:
        found.problems.append((f"mailbox/{path}", "it is no regular file"))
        return
    day = folder.removeprefix("archive/")
    try:
        parsed = parse(raw, name, max_bytes=max(len(raw), 1))
    except MessageError as error:
        found.problems.append((f"mailbox/{path}", error.problem))
        return
    written_at = to_text(max(status.st_mtime, 0.0))
    found.keep(path, raw)
    found.came.append(Came(path, day if _DAY.fullmatch(day) else "", name, written_at, parsed))


def _rejected(fd: int, folder: str, name: str, found: Sources) -> None:
    path = f"{folder}/{name}"
    with world_errors(f"read mailbox/{path}{REASON}"):
        raw = _bytes(fd, f"{name}{REASON}")
    try:
        reason = json.loads(raw or b"")
        wanted = ("name", "rejected_at", "message", "rule", "problem")
        if not all(isinstance(reason[key], str) for key in wanted):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        found.problems.append((f"mailbox/{path}", f"its {REASON} is missing or cannot be read"))
        return
    found.refusals.append(Refusal(path, reason))


def _sent(fd: int, folder: str, name: str, found: Sources) -> None:
    path = f"{folder}/{name}"
    with world_errors(f"read mailbox/{path}"):
        raw = _bytes(fd, name)
    if raw is None:
        found.problems.append((f"mailbox/{path}", "it is no regular file"))
        return
    try:
        parsed = parse(raw, name)
    except MessageError as error:
        found.problems.append((f"mailbox/{path}", error.problem))
        return
    message = parsed.message
    beginning = f"{message.message_id}.{message.type}."
    if message.message_id is None or not name.startswith(beginning):
        found.problems.append((f"mailbox/{path}", "mailboxd did not send it: its name does not begin with its id"))
        return
    of = name.removeprefix(beginning).removesuffix(".md")
    found.keep(path, raw)
    found.sent.append(Sent(path, of, parsed.sha256, len(raw), message))


def _tasks(ws: Workspace, parts: tuple[str, ...], found: Sources) -> None:
    try:
        with world_errors(f"read {'/'.join(parts)}"), directory(ws.root, *parts) as fd, os.scandir(fd) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and is_id(entry.name))
    except Exception as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    for name in names:
        place = "/".join((*parts, name))
        with world_errors(f"read {place}"), directory(ws.root, *parts, name) as fd:
            raw = _bytes(fd, TASK_FILE)
        if raw is None:
            continue
        try:
            written = parse_task_file(unsealed(raw), f"{place}/{TASK_FILE}")
        except MessageError as error:
            found.problems.append((f"{place}/{TASK_FILE}", error.problem))
            continue
        found.shown[name] = Shown(name, written, place, parts[-1] == ARCHIVE)
