"""Putting rendered task.md files in their places: complete, durable, and never over what somebody wrote."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from mailboxd.core.terms import is_id
from mailboxd.errors import WorldError
from mailboxd.workspace import syncing
from mailboxd.workspace.files import (
    ObstructedError,
    Stamp,
    is_being_written,
    look,
    open_regular,
    prepare,
    put,
    world_errors,
)

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
    syncing.sync_file_system(tasks)
    answers = [
        (local_id, _put(tasks, local_id, stamp, seen.get(local_id), durable=False)) for local_id, stamp in prepared
    ]
    syncing.sync_file_system(tasks)
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
