"""tasks/*/task.md: the readable face of each task, which people and agents edit while we render it.

A file has changed when its stamp is not the one that was last rendered or last seen. What is remembered is in memory
only: after a restart each file is reported once, and its seal says whether it is our own rendering.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MessageError, WorldError
from mailboxd.mailbox import files
from mailboxd.mailbox.files import (
    ObstructedError,
    Stamp,
    directory,
    is_being_written,
    look,
    move,
    open_regular,
    prepare,
    put,
    world_errors,
)
from mailboxd.mailbox.inbox import NotReady, QuietPeriod, read_stable
from mailboxd.mailbox.layout import Workspace, clash_name, first_free
from mailboxd.mailbox.maildir import publish_once

# ---------------------------------------------------------------------------------------------------------------------
# Putting rendered task.md files in their places: complete, durable, and never over what somebody wrote.

TASK_FILE = "task.md"

OBSTACLES = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.EACCES, errno.EPERM})
"""What somebody can do to one task's directory; it says nothing about the others."""

Answer = Stamp | WorldError | None
"""What a file looks like now; or why it could not be written; None: somebody has changed it, or is writing it."""


def put_all(
    tasks: int, texts: Iterable[tuple[str, bytes]], seen: Mapping[str, Stamp], *, together: bool
) -> list[tuple[str, Answer]]:
    """Puts a text into the task.md of each task, whose directory is made if needed; what came of it, in order.

    `seen` is how each file was when it was last looked at. `together`: all are synced before the first gets its name,
    and all names after the last; otherwise one comes after the other. What fails is an answer, and holds up no other.
    Raises OSError if they cannot be synced together; ValueError on a bad id.
    """
    if not together:
        return [
            (local_id, _put(tasks, local_id, _prepare(tasks, local_id, raw, seen.get(local_id)), seen.get(local_id)))
            for local_id, raw in texts
        ]
    prepared = [
        (local_id, _prepare(tasks, local_id, raw, seen.get(local_id), durable=False)) for local_id, raw in texts
    ]
    files.sync_file_system(tasks)
    answers = [
        (local_id, _put(tasks, local_id, stamp, seen.get(local_id), durable=False)) for local_id, stamp in prepared
    ]
    files.sync_file_system(tasks)
    return answers


@contextmanager
def directory_of(tasks: int, local_id: str, *, make: bool = False, durable: bool = True) -> Iterator[int]:
    """A descriptor of the directory of a task, closed at the end. Raises ObstructedError, OSError, ValueError."""
    if not is_id(local_id):
        raise ValueError(f"{local_id!r} is no id")
    if make:
        with suppress(FileExistsError):
            os.mkdir(local_id, 0o700, dir_fd=tasks)
            if durable:
                os.fsync(tasks)
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


def _prepare(tasks: int, local_id: str, raw: bytes, expected: Stamp | None, *, durable: bool = True) -> Answer:
    try:
        with world_errors("write to tasks/"), directory_of(tasks, local_id, make=True, durable=durable) as fd:
            return prepare(fd, TASK_FILE, raw, durable=durable) if _is_as_expected(fd, expected) else None
    except WorldError as failure:
        return failure


def _put(tasks: int, local_id: str, prepared: Answer, expected: Stamp | None, *, durable: bool = True) -> Answer:
    if not isinstance(prepared, Stamp):
        return prepared
    try:
        with world_errors("write to tasks/"), directory_of(tasks, local_id) as fd:
            done = put(fd, TASK_FILE, lambda: _is_as_expected(fd, expected), durable=durable)
    except WorldError as failure:
        return failure
    return prepared if done else None


def _is_as_expected(fd: int, expected: Stamp | None) -> bool:
    """Whether task.md is absent, or is what was last rendered or seen and nobody is writing it."""
    status = look(fd, TASK_FILE)
    if status is None:
        return True
    if Stamp.of(status) != expected:
        return False
    file = open_regular(fd, TASK_FILE)
    if file is None:
        return True  # a link or the like, which was seen and reported: a rename replaces it, not its target
    try:
        return not is_being_written(file)
    finally:
        os.close(file)


# ---------------------------------------------------------------------------------------------------------------------
# tasks/*/task.md: the readable face of each task, which people and agents edit while we render it.

ARCHIVE = ".archive"

_MAX_BYTES = 16 << 20
_READ_AT_ONCE = 32 << 20
"""Bytes of task files that one look may bring into memory, give or take one file."""

_TIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:.+-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A task.md that somebody else wrote, complete."""

    local_id: str
    raw: bytes
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """Something stands in the place of a task.md that cannot be read as one: a link, a directory, 5 MiB."""

    local_id: str
    error: MessageError
    stamp: Stamp


@dataclass(slots=True)
class TaskFileChanges:
    """One look at the task files."""

    changed: list[ChangedFile] = field(default_factory=list)
    unusable: list[UnreadableFile] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Local ids whose task.md was rendered or seen before, and is gone."""
    look_again: float | None = None
    """When a file that waits may be ready (seconds since 1970); None if only a change can do it."""
    truncated: bool = False
    """There is more: look again as soon as this is handled."""


class TaskFiles:
    """The task files of one workspace.

    `settle_seconds`: how long a file must be quiet where the kernel cannot say whether somebody writes it.
    """

    def __init__(self, ws: Workspace, *, settle_seconds: float = 0.5) -> None:
        self._ws = ws
        self._patience = QuietPeriod(closed=0.0, unknown=settle_seconds)
        self._seen: dict[str, Stamp] = {}
        self._waiting: dict[str, tuple[Stamp, float]] = {}
        self._unvisited: list[str] = []
        """What a look at every directory has left for the next one."""

    def look(self, now: float, among: Collection[str] | None = None, limit: int = 256) -> TaskFileChanges:
        """What was changed by others since the last look; each change is reported once, missing files every time.

        `among`: look at these local ids only; None: at every directory below tasks/, which costs one stat for each. The
        next such look goes on where one that was truncated has ended; when all were visited one starts anew, for what
        has changed meanwhile. `now` is seconds since 1970. Raises WorldError if tasks/ is not there, is a link, or
        cannot be read: then nothing counts as reported.
        """
        found = TaskFileChanges()
        goes_on = among is None and bool(self._unvisited)
        try:
            with world_errors(f"read {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
                ids = self._unvisited if goes_on else self._ids(tasks, among)
                visited = self._visit(tasks, ids, now, limit, found)
        except WorldError:
            reported: list[ChangedFile | UnreadableFile] = [*found.changed, *found.unusable]
            for one in reported:
                self.forget(one.local_id)
            raise
        if among is None:
            self._unvisited = ids[visited:]
        found.truncated = visited < len(ids) or goes_on
        found.missing.sort()
        return found

    def missing(self, among: Iterable[str]) -> set[str]:
        """Those of these local ids in the place of whose task.md nothing stands. Raises WorldError."""
        with world_errors(f"read {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            return {local_id for local_id in among if not is_id(local_id) or _status(tasks, local_id) is None}

    def remember(self, local_id: str, stamp: Stamp) -> None:
        """This is how the file was when it was last rendered or dealt with: only another stamp is a change."""
        self._seen[local_id] = stamp
        self._waiting.pop(local_id, None)

    def forget(self, local_id: str) -> None:
        """The next look reports the file as changed: it could not be dealt with, or the task is over."""
        self._seen.pop(local_id, None)

    def write(self, local_id: str, raw: bytes) -> bool:
        """Puts a rendered task.md in place, atomically and durably, and remembers it; makes its directory if needed.

        False, and nothing is done, if somebody has changed the file since the last look or is writing it: look first.
        Raises WorldError; ObstructedError if only this task's directory is in the way; ValueError on a bad id.
        """
        (answer,) = self.write_all([(local_id, raw)])
        if isinstance(answer, WorldError):
            raise answer
        return answer

    def write_all(self, texts: Iterable[tuple[str, bytes]], *, many: bool = False) -> list[bool | WorldError]:
        """`write` for each, in order; what it would raise is the answer for that file, and holds up no other.

        `many`: they are made durable all together, which also waits for what others have written. Raises WorldError if
        that fails, or tasks/ cannot be opened; ValueError on a bad id.
        """
        with world_errors(f"write to {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            answers = put_all(tasks, texts, self._seen, together=many and files.sync_reports_errors())
        for local_id, answer in answers:
            if isinstance(answer, Stamp):
                self.remember(local_id, answer)
        return [answer if isinstance(answer, WorldError) else answer is not None for _, answer in answers]

    def keep_rejected(self, local_id: str, raw: bytes | None, time: str) -> str:
        """Keeps a text that was not accepted as tasks/<id>/task.rejected-<time>.md; its path relative to the root.

        `raw` None: it could not be read, so the thing itself is moved there. `time` is any text for a file name, such
        as ISO-8601. The same bytes at the same time are kept once. Raises as `write` does.
        """
        if _TIME.fullmatch(time) is None:
            raise ValueError(f"{time!r} is no time for a file name")
        name = f"task.rejected-{time}.md"
        with (
            world_errors(f"write to {self._ws.tasks}"),
            directory(self._ws.root, "tasks") as tasks,
            directory_of(tasks, local_id, make=raw is not None) as fd,
        ):
            kept = _move_aside(fd, name) if raw is None else publish_once(fd, name, raw)
            os.fsync(fd)
        if raw is None:
            self.forget(local_id)
        return f"tasks/{local_id}/{kept}"

    def directories(self) -> list[str]:
        """The local ids that have a directory below tasks/. Raises WorldError."""
        with world_errors(f"read {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            return sorted(_directories(tasks))

    def move_to_archive(self, local_id: str) -> str | None:
        """Moves the whole directory of a task to tasks/.archive/; its new path relative to the root.

        None if it cannot be moved now: it is gone, or somebody has put something else in its place. Raises WorldError.
        """
        with world_errors(f"write to {self._ws.tasks}"), directory(self._ws.root, "tasks") as tasks:
            with suppress(FileExistsError):
                os.mkdir(ARCHIVE, 0o700, dir_fd=tasks)
            with directory(self._ws.root, "tasks", ARCHIVE) as archive:
                free = first_free(lambda number: look(archive, clash_name(local_id, "0", number)) is not None)
                name = clash_name(local_id, "0", free)
                try:
                    move(tasks, local_id, archive, name)
                except (FileNotFoundError, FileExistsError):
                    return None
                os.fsync(archive)
            os.fsync(tasks)
        self.forget(local_id)
        return f"tasks/{ARCHIVE}/{name}"

    def _ids(self, tasks: int, among: Collection[str] | None) -> list[str]:
        if among is not None:
            return [local_id for local_id in among if is_id(local_id)]
        return list(dict.fromkeys((*_directories(tasks), *self._seen, *self._waiting)))

    def _visit(self, tasks: int, ids: Sequence[str], now: float, limit: int, found: TaskFileChanges) -> int:
        """Looks at one after the other until so many have changed, or are too large together; how many it looked at."""
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
        """Reads one changed file into `found`; how many bytes that was."""
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
            return 0  # the directory is a link, or was replaced this very moment
        if isinstance(content, NotReady):
            self._waiting[local_id] = (stamp, since)
            if content.until is not None:
                found.look_again = min(content.until, found.look_again or content.until)
            return 0
        self.remember(local_id, stamp)
        found.changed.append(ChangedFile(local_id, content, stamp))
        return len(content)


def _directories(tasks: int) -> Iterable[str]:
    with os.scandir(tasks) as entries:
        return [entry.name for entry in entries if is_id(entry.name) and entry.is_dir(follow_symlinks=False)]


def _status(tasks: int, local_id: str) -> os.stat_result | None:
    try:
        return look(tasks, f"{local_id}/{TASK_FILE}")
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


def _move_aside(fd: int, name: str) -> str:
    while True:
        free = first_free(lambda number: look(fd, clash_name(name, "0", number)) is not None)
        with suppress(FileExistsError):
            move(fd, TASK_FILE, fd, clash_name(name, "0", free))
            return clash_name(name, "0", free)
