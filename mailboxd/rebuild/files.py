"""Reads the files of archive/, rejected/, outbox/ and tasks/ without following links.

They are read in independent batches, which large rebuilds share among processes.
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
from mailboxd.mailbox.files import directory, lstat, open_regular, read_up_to, world_errors
from mailboxd.mailbox.layout import Workspace, is_temporary
from mailboxd.mailbox.maildir import REASON
from mailboxd.mailbox.task_files import ARCHIVE, TASK_FILE
from mailboxd.progress import Progress, silent
from mailboxd.protocol import headers
from mailboxd.protocol.messages import AnyMessage, Parsed, QuestionMessage, ReplyMessage, TaskMessage, parse_message
from mailboxd.protocol.taskmd import TaskFile, parse_task_file, unsealed
from mailboxd.rebuild.workers import ENOUGH, WorkerProcess, processors

# What was read. The bytes of messages are kept until they are recorded, as far as they fit into memory; others are read
# again then.

_LARGEST = 16 << 20
_KEPT = 64 << 20
"""Bytes of messages to keep."""
_CLASH = re.compile(r"^(.*)~(?:[0-9a-f]{12}-)?(\d+)(\.[^.~]*)?$", re.DOTALL)


@dataclass(frozen=True)
class Came:
    """A file of archive/. `day` is empty for one that was imported rather than filed by mailboxd."""

    path: str
    day: str
    name: str
    written_at: str
    """The mtime of the file."""
    parsed: Parsed

    @property
    def message(self) -> AnyMessage:
        return self.parsed.message


@dataclass(frozen=True)
class Refusal:
    """A file of rejected/ with its reason."""

    path: str
    reason: dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A message of outbox/. `of` is the local id in its name."""

    path: str
    of: str
    sha256: str
    size: int
    message: AnyMessage


@dataclass(frozen=True)
class Shown:
    """A task.md. `place` is its directory, relative to the workspace."""

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
    """Paths relative to the workspace, each with the reason why the file is unusable."""
    _kept: dict[str, bytes] = field(default_factory=dict)
    _room: int = _KEPT

    def keep(self, path: str, raw: bytes) -> None:
        """Keep the bytes of a file below mailbox/ for `raw_of`, if there is room."""
        if len(raw) <= self._room:
            self._room -= len(raw)
            self._kept[path] = raw

    def add(self, more: Sources) -> None:
        """Append what was read later."""
        self.came += more.came
        self.refusals += more.refusals
        self.sent += more.sent
        self.shown |= more.shown
        self.problems += more.problems
        for path, raw in more._kept.items():
            self.keep(path, raw)

    def raw_of(self, ws: Workspace, path: str) -> bytes | None:
        """The bytes of a file below mailbox/, which are then released; None if it is not a regular file. Raises
        WorldError.
        """
        kept = self._kept.pop(path, None)
        return raw_of(ws, path) if kept is None else kept


def raw_of(ws: Workspace, path: str) -> bytes | None:
    """The bytes of a file below mailbox/; None if it is not a regular file. Raises WorldError."""
    place = PurePosixPath(path)
    with world_errors(f"read mailbox/{path}"), directory(ws.mailbox, *place.parent.parts) as fd:
        return bytes_of(fd, place.name)


def bytes_of(fd: int, name: str) -> bytes | None:
    """The bytes of a file in an open directory; None if it is not a regular file. Raises OSError."""
    file = open_regular(fd, name)
    if file is None:
        return None
    try:
        return read_up_to(file, _LARGEST)
    finally:
        os.close(file)


def natural(name: str) -> tuple[str, int, str]:
    """Sorts `x.md` before `x~2.md` before `x~10.md`."""
    clash = _CLASH.match(name) if "~" in name else None
    return (clash[1] + (clash[3] or ""), int(clash[2]), name) if clash else (name, 1, name)


# Validation of times and names in files.

EARLIEST = "1970-01-01T00:00:00.000Z"
"""Ids cannot encode earlier times."""
_LATEST = "8999-12-31T23:59:59.999Z"
"""Leaves room to add a timeout or backoff before the year 10,000."""


def moment(text: str) -> str:
    """Normalize a time. Raises MessageError if it is invalid or out of range."""
    found = headers.time(text, lambda _: None)
    _require_possible(found, text)
    return found


def _require_possible(moment: str, said: str) -> None:
    if not EARLIEST <= moment <= _LATEST:
        raise MessageError("bad-time", f"{said!r} is not a possible time")


def of_file(mtime: float) -> str:
    """The mtime of a file as a time within the valid range."""
    return to_text(min(max(mtime, 0.0), to_epoch(_LATEST)))


@lru_cache(maxsize=16)  # the files of a day are read one after the other
def is_day(folder: str) -> bool:
    """Whether a directory of archive/ is that of a day."""
    try:
        return moment(f"{folder}T00:00:00.000Z")[:10] == folder
    except MessageError:
        return False


def is_text(name: str) -> bool:
    """Whether a name is valid UTF-8, as the database requires."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def dated(written: TaskFile, mtime: float) -> TaskFile:
    """The task file with valid times; a new one without any was created when the file was written.

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


# What sent messages tell: when work was dispatched and when it ended. Their ids begin with the time in ms.

Work = tuple[str, str]
"""task_id and subtask_id of a message."""


@dataclass(slots=True)
class Outbox:
    """The messages of outbox/ by subject, each list in order of creation."""

    dispatches: dict[Work, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    given: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    """Dispatches by local id."""
    replies: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    """By local id, without rejections."""
    questions: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    attempts: dict[str, Sent] = field(default_factory=dict)
    """Dispatches by the id of the attempt that they started."""

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
    """When a message was composed: the time in the id of its attempt, or in its own."""
    message = sent.message
    begun = time_of(message.attempt_id or "") if isinstance(message, TaskMessage) else None
    return begun or time_of(message.message_id or "") or message.sent_at or message.completed_at or ""


# Reading in batches.

READER = "mailboxd.rebuild.read_worker"
_DEEPEST = 4
_MOST_READERS = 8
"""More processes read faster than one can process the results."""
_BATCH = 100
_NEEDED = dict.fromkeys(("name", "rejected_at", "message", "rule", "problem"), str)
_REASON = {**_NEEDED, "hint": str, "line": int | None, "field": str | None, "sha256": str | None}
"""The fields of a reason file."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Files of one directory below mailbox/, or tasks if the folder begins with "tasks"."""

    folder: str
    names: Sequence[str]


def read(ws: Workspace, progress: Progress = silent) -> Sources:
    """Read everything. Raises WorldError if a directory cannot be read."""
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
    """Drop copies of sent messages, which have the same id: the shorter name is the original."""
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
    """The contents of the batches, in order."""
    readers = min(processors(), _MOST_READERS) if total >= ENOUGH else 1
    if readers == 1:
        yield from (read_batch(ws, batch) for batch in batches)
        return
    with ExitStack() as stack:
        hands = [stack.enter_context(WorkerProcess("reads files", READER, str(ws.root))) for _ in range(readers)]
        for number, hand in enumerate(hands):
            hand.tell(batches[number::readers])
        for number in range(len(batches)):
            yield hands[number % readers].hear()


def _listed(ws: Workspace) -> Iterator[tuple[str, Sequence[str]]]:
    """The names in each directory, in reading order."""
    for folder, depth in (("archive", _DEEPEST), ("rejected", 0), ("outbox", 0)):
        for place, names in groupby(_files(ws, folder, depth), key=lambda found: found[0]):
            yield place, [name for _, name in names if place != "rejected" or not name.endswith(REASON)]
    for parts in (("tasks", ARCHIVE), ("tasks",)):  # the later directory takes precedence
        yield "/".join(parts), _tasks(ws, parts)


def _files(ws: Workspace, folder: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every file below a directory of mailbox/, as directory and name, in the order in which clashing names were
    assigned.
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
    """Read the files of a batch. Raises WorldError."""
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
        status = lstat(fd, file)
        raw = bytes_of(fd, file)
        base = natural(file)[0]
        name = base if base != file and lstat(fd, base) is not None else file
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
    """Parse a reason file. Raises various errors for one that mailboxd did not write."""
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
        raw, status = bytes_of(fd, TASK_FILE), lstat(fd, TASK_FILE)
    if raw is None or status is None:
        return
    try:
        written = parse_task_file(unsealed(raw), f"{place}/{TASK_FILE}")
        written = dated(written, status.st_mtime)
    except MessageError as error:
        found.problems.append((f"{place}/{TASK_FILE}", error.problem))
        return
    found.shown[name] = Shown(name, written, place, parts[-1] == ARCHIVE)
