"""The files of archive/, rejected/, outbox/ and tasks/, each read without following a link.

They are read in batches, which need nothing of each other; many of them are shared out among processes.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any

from mailboxd.core.sanitize import for_file_name
from mailboxd.core.times import to_epoch, to_text
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MessageError
from mailboxd.ids import time_of
from mailboxd.mailbox.files import directory, look, open_regular, read_up_to, world_errors
from mailboxd.mailbox.layout import Workspace, is_temporary
from mailboxd.mailbox.maildir import REASON
from mailboxd.mailbox.task_files import ARCHIVE, TASK_FILE
from mailboxd.progress import Progress, silent
from mailboxd.protocol import headers
from mailboxd.protocol.messages import AnyMessage, Parsed, QuestionMessage, ReplyMessage, TaskMessage, parse_message
from mailboxd.protocol.taskmd import TaskFile, parse_task_file, unsealed
from mailboxd.rebuild.workers import ENOUGH, Hand, processors

# ---------------------------------------------------------------------------------------------------------------------
# What there is to rebuild from, as it was read from the files of archive/, rejected/, outbox/ and tasks/.
#
# The bytes of the messages are kept until they are recorded, as far as they fit; the rest is read a second time then,
# so a large mailbox does not have to fit into memory.

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


# ---------------------------------------------------------------------------------------------------------------------
# What foreign files say that the past can be made of: moments that can be counted from, names that can be recorded.

EARLIEST = "1970-01-01T00:00:00.000Z"
"""Before it no id can be made."""
_LATEST = "8999-12-31T23:59:59.999Z"
"""What is added to a moment (a timeout, a pause) has to end before the year 10,000."""


def moment(text: str) -> str:
    """The moment that a file names, as times are written here. Raises MessageError for none that can be."""
    found = headers.time(text, lambda _: None)
    _require_possible(found, text)
    return found


def _require_possible(moment: str, said: str) -> None:
    if not EARLIEST <= moment <= _LATEST:
        raise MessageError("bad-time", f"{said!r} is not a possible time")


def of_file(mtime: float) -> str:
    """When a file was written, as its file system has it: whatever its writer wanted it to be."""
    return to_text(min(max(mtime, 0.0), to_epoch(_LATEST)))


@lru_cache(maxsize=16)  # the files of a day are read one after the other
def is_day(folder: str) -> bool:
    """Whether a directory of archive/ is that of a day."""
    try:
        return moment(f"{folder}T00:00:00.000Z")[:10] == folder
    except MessageError:
        return False


def is_text(name: str) -> bool:
    """Whether a name is UTF-8: the database holds no others."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def dated(written: TaskFile, mtime: float) -> TaskFile:
    """With moments that can be. One that somebody has just made says none: it came when it was written.

    Raises MessageError.
    """
    for said in filter(None, (written.created_at, written.updated_at)):
        _require_possible(said, said)
    dag = tuple(
        replace(node, dispatched_at=_said(node.dispatched_at), completed_at=_said(node.completed_at))
        for node in written.dag
    )
    if written.created_at and dag == written.dag:
        return written
    return replace(written, created_at=written.created_at or of_file(mtime), dag=dag)


def _said(text: str) -> str:
    return moment(text) if text else ""


# ---------------------------------------------------------------------------------------------------------------------
# What our own messages tell: when work was given out and when it ended. Their ids begin with the millisecond.

Work = tuple[str, str]
"""The task_id and the subtask_id of a message."""


@dataclass(slots=True)
class Outbox:
    """The messages of outbox/, by what they are about; each list in the order in which they were made."""

    dispatches: dict[Work, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    given: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    """Dispatches by local id."""
    replies: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    """By local id; not those that said that a task was rejected."""
    questions: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    attempts: dict[str, Sent] = field(default_factory=dict)
    """Dispatches by the id of the attempt that they began."""

    @classmethod
    def of(cls, sent: Iterable[Sent]) -> Outbox:
        found = cls()
        for one in sorted(sent, key=lambda one: (one.message.attempt or 0, one.path)):
            match one.message:
                case TaskMessage() as message:
                    found.dispatches[message.task_id, message.subtask_id or ""].append(one)
                    found.given[one.of].append(one)
                    if message.attempt_id is not None:
                        found.attempts[message.attempt_id] = one
                case ReplyMessage() as message if not _is_bounce(message):
                    found.replies[one.of].append(one)
                case QuestionMessage():
                    found.questions[one.of].append(one)
        for replies in found.replies.values():
            replies.sort(key=lambda one: one.path)
        return found


def _is_bounce(message: ReplyMessage) -> bool:
    return message.section("Error").startswith("The task was rejected: ")


def made(sent: Sent) -> str:
    """When a message of ours was decided: with the attempt that it began, or when its id was given."""
    message = sent.message
    begun = time_of(message.attempt_id or "") if isinstance(message, TaskMessage) else None
    return begun or time_of(message.message_id or "") or message.sent_at or message.completed_at or ""


# ---------------------------------------------------------------------------------------------------------------------
# The files of archive/, rejected/, outbox/ and tasks/, each read without following a link.

READER = "mailboxd.rebuild.read_worker"
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
            if is_text(path):
                read_one(fd, path, name, found)
            else:
                found.problems.append((f"mailbox/{for_file_name(path)}", "its name is not UTF-8"))
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
        parsed = parse_message(raw, name, max_bytes=max(len(raw), 1))
    except MessageError as error:
        found.problems.append((f"mailbox/{path}", error.problem))
        return
    found.keep(path, raw)
    written_at = of_file(status.st_mtime)
    found.came.append(Came(path, day if is_day(day) else "", name, written_at, parsed))


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
    if not all(is_text(str(value)) for value in said.values()):
        raise ValueError
    return said | {"rejected_at": moment(said["rejected_at"])}


def _sent(fd: int, path: str, name: str, found: Sources) -> None:
    with world_errors(f"read mailbox/{path}"):
        raw = bytes_of(fd, name)
    if raw is None:
        found.problems.append((f"mailbox/{path}", "it is no regular file"))
        return
    try:
        parsed = parse_message(raw, name)
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
        moment(made(sent))
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
        written = dated(written, status.st_mtime)
    except MessageError as error:
        found.problems.append((f"{place}/{TASK_FILE}", error.problem))
        return
    found.shown[name] = Shown(name, written, place, parts[-1] == ARCHIVE)
