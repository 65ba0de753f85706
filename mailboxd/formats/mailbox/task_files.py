"""tasks/*/task.md on disk: detects edits by people and agents, and replaces files without overwriting an edit.

A file has changed if its stamp is not the one last rendered or seen. Stamps are in memory only: after a restart each
file is reported once, and its seal shows whether mailboxd has rendered it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from mailboxd.core.entrance import Owner
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MessageError, WorldError
from mailboxd.formats.mailbox.files import (
    ObstructedError,
    Stamp,
    directory,
    lstat,
    move,
    open_regular,
    prepare,
    put,
    read_file,
    world_errors,
)
from mailboxd.formats.mailbox.inbox import NotReady, QuietPeriod, read_stable
from mailboxd.formats.mailbox.layout import Workspace, clash_name, first_free
from mailboxd.formats.mailbox.maildir import publish_once
from mailboxd.host.process import owner
from mailboxd.host.system import system

# Writing rendered files: complete, durable, and never over an edit

TASK_FILE = "task.md"

OBSTACLES = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.EACCES, errno.EPERM})
"""Errors of one task's directory, caused by its users; they say nothing about the others."""

WriteResult = Stamp | WorldError | None
"""The stamp of the new file, or why it could not be written; None: it was edited, or is being written."""


def put_all(
    tasks: int, texts: Iterable[tuple[str, bytes]], seen: Mapping[str, Stamp], *, together: bool
) -> list[tuple[str, WriteResult]]:
    """Write each task's task.md, creating its directory if needed; return the results in order.

    `seen` has the last known stamp of each file. `together`: sync all before the first gets its name, and all names
    after the last; otherwise each on its own. A failure is a result, and does not stop the others. Raises OSError if
    they cannot be synced together; ValueError on a bad id.
    """
    if not together:
        return [
            (local_id, _put(tasks, local_id, _prepare(tasks, local_id, raw, seen.get(local_id)), seen.get(local_id)))
            for local_id, raw in texts
        ]
    prepared = [
        (local_id, _prepare(tasks, local_id, raw, seen.get(local_id), durable=False)) for local_id, raw in texts
    ]
    system.sync_file_system(tasks)
    answers = [
        (local_id, _put(tasks, local_id, stamp, seen.get(local_id), durable=False)) for local_id, stamp in prepared
    ]
    system.sync_file_system(tasks)
    return answers


@contextmanager
def directory_of(tasks: int, local_id: str, *, make: bool = False, durable: bool = True) -> Iterator[int]:
    """Open the directory of a task; close it at the end. Raises ObstructedError, OSError, ValueError."""
    if not is_id(local_id):
        raise ValueError(f"{local_id!r} is not an id")
    if make:
        with suppress(FileExistsError):
            os.mkdir(local_id, 0o700, dir_fd=tasks)
            if durable:
                system.sync(tasks)
    try:
        fd = os.open(local_id, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=tasks)
        try:
            yield fd
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in OBSTACLES:
            raise
        raise ObstructedError(f"cannot write to tasks/{local_id}: {error.strerror}") from error


def _prepare(tasks: int, local_id: str, raw: bytes, expected: Stamp | None, *, durable: bool = True) -> WriteResult:
    try:
        with world_errors("write to tasks/"), directory_of(tasks, local_id, make=True, durable=durable) as fd:
            return prepare(fd, TASK_FILE, raw, durable=durable) if _is_as_expected(fd, expected) else None
    except WorldError as failure:
        return failure


def _put(
    tasks: int, local_id: str, prepared: WriteResult, expected: Stamp | None, *, durable: bool = True
) -> WriteResult:
    if not isinstance(prepared, Stamp):
        return prepared
    try:
        with world_errors("write to tasks/"), directory_of(tasks, local_id) as fd:
            done = put(fd, TASK_FILE, lambda: _is_as_expected(fd, expected), durable=durable)
    except WorldError as failure:
        return failure
    return prepared if done else None


def _is_as_expected(fd: int, expected: Stamp | None) -> bool:
    """Whether task.md is missing, or has the expected stamp and no writer."""
    status = lstat(fd, TASK_FILE)
    if status is None:
        return True
    if Stamp.of(status) != expected:
        return False
    file = open_regular(fd, TASK_FILE)
    if file is None:
        return True  # a link or the like, which was reported: a rename replaces it, not its target
    try:
        return not system.is_being_written(file)
    finally:
        os.close(file)


# Scanning for edits

ARCHIVE = ".archive"
_REJECTED = "task.rejected-"

_MAX_BYTES = 16 << 20
_READ_AT_ONCE = 32 << 20
"""Bytes of task files read by one scan, give or take one file."""

_TIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:.+-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A complete task.md that was written by someone else, or before the restart."""

    local_id: str
    raw: bytes
    stamp: Stamp
    owner: Owner | None = None
    """As the file was when it was read."""


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A task.md that cannot be read: a link, a directory, too large."""

    local_id: str
    error: MessageError
    stamp: Stamp


@dataclass(slots=True)
class TaskFileChanges:
    """The result of one scan."""

    changed: list[ChangedFile] = field(default_factory=list)
    unusable: list[UnreadableFile] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Local ids whose task.md was rendered or seen before, and is missing now."""
    next_scan_at: float | None = None
    """When a waiting file may be ready (seconds since 1970); None: only after a change."""
    truncated: bool = False
    """There is more: scan again as soon as this is handled."""


class TaskFiles:
    """The task files of one workspace.

    `settle_seconds`: how long a file must be unchanged where the kernel cannot say whether it is being written.
    """

    def __init__(self, ws: Workspace, *, settle_seconds: float = 0.5) -> None:
        self._ws = ws
        self._patience = QuietPeriod(closed=0.0, unknown=settle_seconds)
        self._seen: dict[str, Stamp] = {}
        self._waiting: dict[str, tuple[Stamp, float]] = {}
        self._unvisited: list[str] = []
        """Local ids that a truncated scan has left for the next one."""

    def scan(self, now: float, among: Collection[str] | None = None, limit: int = 256) -> TaskFileChanges:
        """Find files changed by others since the last scan; report each change once, missing files every time.

        `among`: scan these local ids only; None: every directory below tasks/, at one stat each. A truncated scan is
        continued by the next one, and followed by a whole one for later changes. `now` is seconds since 1970. Raises
        WorldError if tasks/ is missing, a link, or unreadable: then nothing counts as reported.
        """
        found = TaskFileChanges()
        continues = among is None and bool(self._unvisited)
        try:
            with world_errors(f"read {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
                ids = self._unvisited if continues else self._ids(tasks, among)
                visited = self._visit(tasks, ids, now, limit, found)
        except WorldError:
            reported: list[ChangedFile | UnreadableFile] = [*found.changed, *found.unusable]
            for one in reported:
                self.forget(one.local_id)
            raise
        if among is None:
            self._unvisited = ids[visited:]
        found.truncated = visited < len(ids) or continues
        found.missing.sort()
        return found

    def missing(self, among: Iterable[str]) -> set[str]:
        """Return those of these local ids that have no task.md. Raises WorldError."""
        with world_errors(f"read {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            return {local_id for local_id in among if not is_id(local_id) or _status(tasks, local_id) is None}

    def remember(self, local_id: str, stamp: Stamp) -> None:
        """Remember the stamp of a file that was rendered or handled: only another stamp is a change."""
        self._seen[local_id] = stamp
        self._waiting.pop(local_id, None)

    def forget(self, local_id: str) -> None:
        """Have the next scan report the file as changed: it could not be handled, or its task has ended."""
        self._seen.pop(local_id, None)

    def write(self, local_id: str, raw: bytes) -> bool:
        """Write a rendered task.md atomically and durably, creating its directory if needed.

        Return False, and do nothing, if the file was changed since the last scan or is being written: scan first.
        Raises WorldError; ObstructedError if only this task's directory is at fault; ValueError on a bad id.
        """
        (answer,) = self.write_all([(local_id, raw)])
        if isinstance(answer, WorldError):
            raise answer
        return answer

    def write_all(self, texts: Iterable[tuple[str, bytes]], *, many: bool = False) -> list[bool | WorldError]:
        """`write` for each, in order; what `write` would raise is the result for that file.

        `many`: make them durable together, which also waits for the writes of other processes. Raises WorldError if
        that fails, or tasks/ cannot be opened; ValueError on a bad id.
        """
        with world_errors(f"write to {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            answers = put_all(tasks, texts, self._seen, together=many and system.sync_reports_errors())
        for local_id, answer in answers:
            if isinstance(answer, Stamp):
                self.remember(local_id, answer)
        return [answer if isinstance(answer, WorldError) else answer is not None for _, answer in answers]

    def keep_rejected(self, local_id: str, raw: bytes | None, time: str) -> str:
        """Keep a refused text as tasks/<id>/task.rejected-<time>.md; return its path relative to the root.

        `raw` None: it could not be read, so the file itself is moved there. `time` is any text valid in a file name,
        such as ISO-8601. The same bytes are kept once. Raises as `write` does.
        """
        if _TIME.fullmatch(time) is None:
            raise ValueError(f"{time!r} is not a time for a file name")
        name = f"{_REJECTED}{time}.md"
        with (
            world_errors(f"write to {self._ws.tasks}"),
            directory(self._ws.root, "tasks") as tasks,
            directory_of(tasks, local_id, make=raw is not None) as fd,
        ):
            kept = _move_aside(fd, name) if raw is None else _kept_before(fd, raw) or publish_once(fd, name, raw)
            system.sync(fd)
        if raw is None:
            self.forget(local_id)
        return f"tasks/{local_id}/{kept}"

    def directories(self) -> list[str]:
        """Return the local ids that have a directory below tasks/. Raises WorldError."""
        with world_errors(f"read {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            return sorted(_directories(tasks))

    def move_to_archive(self, local_id: str) -> str | None:
        """Move the directory of a task to tasks/.archive/; return its new path relative to the root.

        None if it cannot be moved now because it is gone, or the new name was taken meanwhile. Raises WorldError.
        """
        with world_errors(f"write to {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            with suppress(FileExistsError):
                os.mkdir(ARCHIVE, 0o700, dir_fd=tasks)
            with directory(self._ws.root, "tasks", ARCHIVE) as archive:
                free = first_free(lambda number: lstat(archive, clash_name(local_id, "0", number)) is not None)
                name = clash_name(local_id, "0", free)
                try:
                    move(tasks, local_id, archive, name)
                except (FileNotFoundError, FileExistsError):
                    return None
                system.sync(archive)
            system.sync(tasks)
        self.forget(local_id)
        return f"tasks/{ARCHIVE}/{name}"

    def _ids(self, tasks: int, among: Collection[str] | None) -> list[str]:
        if among is not None:
            return [local_id for local_id in among if is_id(local_id)]
        return list(dict.fromkeys((*_directories(tasks), *self._seen, *self._waiting)))

    def _visit(self, tasks: int, ids: Sequence[str], now: float, limit: int, found: TaskFileChanges) -> int:
        """Scan until `limit` files have changed, or they are too large together; return how many were scanned."""
        size = 0
        for number, local_id in enumerate(ids):
            status = _status(tasks, local_id)
            if status is None:
                self._waiting.pop(local_id, None)
                if local_id in self._seen:
                    found.missing.append(local_id)
            elif self._seen.get(local_id) != Stamp.of(status):
                if len(found.changed) + len(found.unusable) >= limit or size >= _READ_AT_ONCE:
                    return number
                size += self._read(local_id, status, now, found)
        return len(ids)

    def _read(self, local_id: str, status: os.stat_result, now: float, found: TaskFileChanges) -> int:
        """Read one changed file into `found`; return its size in bytes."""
        stamp = Stamp.of(status)
        problem = _problem(local_id, status)
        if problem is not None:
            self.remember(local_id, stamp)
            found.unusable.append(UnreadableFile(local_id, problem, stamp))
            return 0
        seen, since = self._waiting.get(local_id, (stamp, now))
        since = min(now, stamp.mtime, since if seen == stamp else now)
        try:
            with directory(self._ws.root, "tasks", local_id) as fd:
                content = read_stable(fd, TASK_FILE, stamp, since, now, self._patience)
        except OSError as error:
            if error.errno not in OBSTACLES:
                raise
            return 0  # the directory is a link, or was replaced just now
        if isinstance(content, NotReady):
            self._waiting[local_id] = (stamp, since)
            if content.until is not None:
                found.next_scan_at = min(content.until, found.next_scan_at or content.until)
            return 0
        self.remember(local_id, stamp)
        found.changed.append(ChangedFile(local_id, content.raw, stamp, owner(content.uid, now)))
        return len(content.raw)


def _directories(tasks: int) -> Iterable[str]:
    with os.scandir(tasks) as entries:
        return [entry.name for entry in entries if is_id(entry.name) and entry.is_dir(follow_symlinks=False)]


def _status(tasks: int, local_id: str) -> os.stat_result | None:
    try:
        return lstat(tasks, f"{local_id}/{TASK_FILE}")
    except OSError as error:
        if error.errno not in OBSTACLES:
            raise
        return None


def _problem(local_id: str, status: os.stat_result) -> MessageError | None:
    path = f"tasks/{local_id}/{TASK_FILE}"
    if stat.S_ISLNK(status.st_mode):
        return MessageError("symlink", "it is a symbolic link", "Write the text itself.", path)
    if not stat.S_ISREG(status.st_mode):
        return MessageError("not-regular", "it is not a file", "Write a regular file.", path)
    if status.st_size > _MAX_BYTES:
        problem = f"it has {status.st_size} bytes, more than {_MAX_BYTES}"
        return MessageError("too-large", problem, "Name large files instead of quoting them.", path)
    return None


def _kept_before(fd: int, raw: bytes) -> str | None:
    """The name under which these bytes were kept before."""
    with os.scandir(fd) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith(_REJECTED))
    for name in names:
        status = lstat(fd, name)
        if status is not None and status.st_size == len(raw) and read_file(fd, name, len(raw)) == raw:
            return name
    return None


def _move_aside(fd: int, name: str) -> str:
    while True:
        free = first_free(lambda number: lstat(fd, clash_name(name, "0", number)) is not None)
        with suppress(FileExistsError):
            move(fd, TASK_FILE, fd, clash_name(name, "0", free))
            return clash_name(name, "0", free)
