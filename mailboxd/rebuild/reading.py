"""The files of archive/, rejected/, outbox/ and tasks/, each read without following a link.

They are read in batches, which need nothing of each other; many of them are shared out among processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mailboxd.core.terms import is_id
from mailboxd.errors import MessageError
from mailboxd.messages.codec import parse
from mailboxd.messages.seal import unsealed
from mailboxd.messages.taskfile import parse_task_file
from mailboxd.progress import Progress, silent
from mailboxd.rebuild import bounds
from mailboxd.rebuild.hands import ENOUGH, Hand, processors
from mailboxd.rebuild.outgoing import made
from mailboxd.rebuild.sources import Came, Refusal, Sent, Shown, Sources, bytes_of, natural
from mailboxd.workspace.files import directory, look, world_errors
from mailboxd.workspace.filing import REASON
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_temporary, printable
from mailboxd.workspace.rendered import TASK_FILE
from mailboxd.workspace.taskfiles import ARCHIVE

READER = "mailboxd.rebuild.reader"
_DEEPEST = 4
_MOST_READERS = 8
"""More than these read faster than one process takes it in."""
_BATCH = 100
_NEEDED = dict.fromkeys(("name", "rejected_at", "message", "rule", "problem"), str)
_REASON = {**_NEEDED, "hint": str, "line": int | None, "field": str | None, "sha256": str | None}
"""What stands beside a rejected file."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some files of one directory below mailbox/, or, where the folder begins with "tasks", some tasks."""

    folder: str
    names: Sequence[str]


def read(ws: Workspace, progress: Progress = silent) -> Sources:
    """Everything there is. Raises WorldError when a directory cannot be read."""
    batches = [
        Batch(folder, names[first : first + _BATCH])
        for folder, names in _listed(ws)
        for first in range(0, len(names), _BATCH)
    ]
    total = sum(len(batch.names) for batch in batches)
    found, done = Sources(), 0
    progress("files", 0, total)
    for batch, part in zip(batches, _parts(ws, batches, total), strict=True):
        found.add(part)
        done += len(batch.names)
        progress("files", done, total)
    found.sent.sort(key=lambda sent: sent.path)
    _leave_copies(found)
    return found


def _leave_copies(found: Sources) -> None:
    """Somebody may have copied a file of ours, and with it the id that stands in it: the shorter name has it."""
    named = [(str(one.message.message_id), one.path) for one in found.sent]
    named += [(one.reason["message"], one.path) for one in found.refusals]
    first: dict[str, str] = {}
    for message_id, path in sorted(named, key=lambda item: (len(item[1]), item[1])):
        if first.setdefault(message_id, path) != path:
            found.problems.append((f"mailbox/{path}", f"it has the id of another one ({message_id}): it is a copy"))
    own = set(first.values())
    found.sent = [one for one in found.sent if one.path in own]
    found.refusals = [one for one in found.refusals if one.path in own]


def _parts(ws: Workspace, batches: Sequence[Batch], total: int) -> Iterator[Sources]:
    """What each batch holds, in their order."""
    readers = min(processors(), _MOST_READERS) if total >= ENOUGH else 1
    if readers == 1:
        yield from (read_batch(ws, batch) for batch in batches)
        return
    with ExitStack() as stack:
        hands = [stack.enter_context(Hand("reads files", READER, str(ws.root))) for _ in range(readers)]
        for number, hand in enumerate(hands):
            hand.tell(batches[number::readers])
        for number in range(len(batches)):
            yield hands[number % readers].hear()


def _listed(ws: Workspace) -> Iterator[tuple[str, Sequence[str]]]:
    """The names in each directory, in the order in which they are to be read."""
    for folder, depth in (("archive", _DEEPEST), ("rejected", 0), ("outbox", 0)):
        for place, names in groupby(_files(ws, folder, depth), key=lambda found: found[0]):
            yield place, [name for _, name in names if place != "rejected" or not name.endswith(REASON)]
    for parts in (("tasks", ARCHIVE), ("tasks",)):  # what is live stands before what was put away
        yield "/".join(parts), _tasks(ws, parts)


def _files(ws: Workspace, folder: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every file below a directory of mailbox/, as the path of its directory and its name.

    In the order in which names of a clash were given out.
    """
    with (
        world_errors(f"read mailbox/{folder}"),
        directory(ws.mailbox, *folder.split("/")) as fd,
        os.scandir(fd) as entries,
    ):
        found = sorted(
            ((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries), key=lambda item: natural(item[0])
        )
    for name, is_directory in found:
        if is_directory and depth:
            yield from _files(ws, f"{folder}/{name}", depth - 1)
        elif not is_temporary(name) and (not is_directory or folder == "rejected"):
            yield folder, name


def _tasks(ws: Workspace, parts: tuple[str, ...]) -> Sequence[str]:
    """The tasks that have a directory."""
    try:
        with world_errors(f"read {'/'.join(parts)}"), directory(ws.root, *parts) as fd, os.scandir(fd) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and is_id(entry.name))
    except Exception as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ()
        raise


def read_batch(ws: Workspace, batch: Batch) -> Sources:
    """What these files hold. Raises WorldError."""
    found, folder = Sources(), batch.folder
    parts = tuple(folder.split("/"))
    if parts[0] == "tasks":
        for name in batch.names:
            _task(ws, parts, name, found)
        return found
    read_one = {"archive": _archived, "rejected": _rejected, "outbox": _sent}[parts[0]]
    with ExitStack() as stack:
        with world_errors(f"read mailbox/{folder}"):
            fd = stack.enter_context(directory(ws.mailbox, *parts))
        for name in batch.names:
            path = f"{folder}/{name}"
            if bounds.is_text(path):
                read_one(fd, path, name, found)
            else:
                found.problems.append((f"mailbox/{printable(path)}", "its name is not UTF-8"))
    return found


def _archived(fd: int, path: str, file: str, found: Sources) -> None:
    with world_errors(f"read mailbox/{path}"):
        status = look(fd, file)
        raw = bytes_of(fd, file)
        base = natural(file)[0]
        name = base if base != file and look(fd, base) is not None else file
    if raw is None or status is None:
        found.problems.append((f"mailbox/{path}", "it is no regular file"))
        return
    day = path.removeprefix("archive/").removesuffix(f"/{file}")
    try:
        parsed = parse(raw, name, max_bytes=max(len(raw), 1))
    except MessageError as error:
        found.problems.append((f"mailbox/{path}", error.problem))
        return
    found.keep(path, raw)
    written_at = bounds.of_file(status.st_mtime)
    found.came.append(Came(path, day if bounds.is_day(day) else "", name, written_at, parsed))


def _rejected(fd: int, path: str, name: str, found: Sources) -> None:
    with world_errors(f"read mailbox/{path}{REASON}"):
        raw = bytes_of(fd, f"{name}{REASON}")
    try:
        found.refusals.append(Refusal(path, _reason(raw or b"")))
    except (ValueError, KeyError, TypeError, RecursionError, MessageError):
        found.problems.append((f"mailbox/{path}", f"its {REASON} is missing or cannot be read"))


def _reason(raw: bytes) -> dict[str, Any]:
    """What stands beside a rejected file. Raises one of many errors if it is not what we write there."""
    found = json.loads(raw)
    said: dict[str, Any] = {name: found[name] for name in _REASON if name in found or name in _NEEDED}
    if not all(isinstance(value, _REASON[name]) for name, value in said.items()):
        raise TypeError
    if not all(bounds.is_text(str(value)) for value in said.values()):
        raise ValueError
    return said | {"rejected_at": bounds.moment(said["rejected_at"])}


def _sent(fd: int, path: str, name: str, found: Sources) -> None:
    with world_errors(f"read mailbox/{path}"):
        raw = bytes_of(fd, name)
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
    sent = Sent(path, name.removeprefix(beginning).removesuffix(".md"), parsed.sha256, len(raw), message)
    try:
        bounds.moment(made(sent))
    except MessageError as error:
        found.problems.append((f"mailbox/{path}", f"it does not say when it was made: {error.problem}"))
        return
    found.keep(path, raw)
    found.sent.append(sent)


def _task(ws: Workspace, parts: tuple[str, ...], name: str, found: Sources) -> None:
    place = "/".join((*parts, name))
    with world_errors(f"read {place}"), directory(ws.root, *parts, name) as fd:
        raw, status = bytes_of(fd, TASK_FILE), look(fd, TASK_FILE)
    if raw is None or status is None:
        return
    try:
        written = parse_task_file(unsealed(raw), f"{place}/{TASK_FILE}")
        written = bounds.dated(written, status.st_mtime)
    except MessageError as error:
        found.problems.append((f"{place}/{TASK_FILE}", error.problem))
        return
    found.shown[name] = Shown(name, written, place, parts[-1] == ARCHIVE)
