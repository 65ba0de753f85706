"""Deliver, archive and reject messages: every file ends in exactly one place, with the bytes that were judged.

Raises WorldError if a directory is missing, a link, full or forbidden: stop the intake and repeat later, nothing is
lost. ObstructedError: this one file cannot be moved; report it and continue. ValueError: an invalid name or day, a bug.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from mailboxd.core.sanitize import for_file_name
from mailboxd.mailbox import files
from mailboxd.mailbox.files import (
    ObstructedError,
    Stamp,
    directory,
    holds,
    is_being_written,
    lstat,
    move,
    open_regular,
    publish,
    read_up_to,
    refusal,
    replace,
    world_errors,
)
from mailboxd.mailbox.layout import Workspace, clash_name, first_free, is_file_name, numbers_in_use

# Moving one judged file out of the inbox: claim it, check it, give it its final name
#
# The claim is a rename to a hidden name that depends only on what is moved; then no writer reaches the file by name.
# If the file is not what was judged (a writer replaced it, appended to it, or has it open), it is moved back and the
# judged bytes are written instead. A second rename gives it its final name. No rename replaces anything, and every step
# first checks for the work of an earlier run, so a kill at any point is repaired by a repetition.

REASON = ".reason.json"

IsFiled = Callable[[str], bool]
"""Whether a path (relative to mailbox/) is recorded as that of another file."""

_STUCK = frozenset({errno.EPERM, errno.EBUSY})
"""Errors of one file only: it is immutable, a mount point, or another user's in a sticky directory."""


@dataclass(frozen=True)
class JudgedFile:
    """A file of the inbox that was judged. `stamp` None: lost by a restart, the bytes decide. `raw` None: unread."""

    name: str
    stamp: Stamp | None
    raw: bytes | None

    @cached_property
    def digest(self) -> str:
        """Identifies this move in every repetition. Hexadecimal."""
        content = b"unread" if self.raw is None else hashlib.sha256(self.raw).digest()
        return hashlib.sha256(os.fsencode(self.name) + b"\0" + content).hexdigest()


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """Which file to move to which directory below mailbox/, with the reason to write beside it."""

    item: JudgedFile
    place: str
    reason: bytes | None = None

    @property
    def claim(self) -> str:
        return f".mailboxd-{self.item.digest[:32]}.claim"

    def name(self, number: int) -> str:
        room = 0 if self.reason is None else len(REASON)
        return clash_name(self.item.name, self.item.digest, number, room)


class Move:
    """One move in three steps, `claim`, `check` and `finish`, so that a group of moves shares slow disk operations.

    Each raises OSError for trouble with the directories. Durable after the caller's fsync of both directories.
    """

    def __init__(self, inbox: int, target: int, request: MoveRequest) -> None:
        self._inbox = inbox
        self._target = target
        self._request = request
        self._where: int | None = None
        self._done: str | None = None
        self._stuck: ObstructedError | None = None

    def claim(self, taken: IsFiled) -> None:
        """Move the file out of reach of its writers, unless an earlier run has finished the move."""
        inbox, target, request = self._inbox, self._target, self._request
        self._where = _left_claim(inbox, target, request)
        if self._where is not None or not _is_untouched(inbox, request):
            self._done = _find(target, request, taken)
        if self._where is None and self._done is None:
            try:
                self._where = _claim(inbox, target, request)
            except ObstructedError as stuck:
                self._stuck = stuck

    @property
    def place(self) -> int | None:
        """Descriptor of the directory with the claimed file; None if there is none."""
        return self._where

    def begin_writing(self) -> None:
        """Start the write that `check` waits for, so that a group waits only about once."""
        if self._where is not None:
            _begin_writing(self._where, self._request)

    def check(self, *, durable: bool = True) -> None:
        """Move back a file that is not the judged one; make it durable otherwise, unless the caller does."""
        if self._where is not None and not _is_judged(self._where, self._request, durable=durable):
            _put_back(self._where, self._inbox, self._request)
            self._where = None

    def finish(self) -> str:
        """Give the file its final name; return its path relative to mailbox/.

        Raises ObstructedError if it could not be moved, or was never read and is gone.
        """
        if self._stuck is not None:
            raise self._stuck
        target, request = self._target, self._request
        if self._done is None and self._where == target:
            return f"{request.place}/{_name(target, request, lambda name: move(target, request.claim, target, name))}"
        if self._done is None:
            self._done = _write(target, request)
        if self._where is not None:
            os.unlink(request.claim, dir_fd=self._where)
        return f"{request.place}/{self._done}"


def _is_untouched(inbox: int, request: MoveRequest) -> bool:
    """Whether that file is still in the inbox, so that no earlier run has moved it."""
    status = lstat(inbox, request.item.name)
    return status is not None and Stamp.of(status) == request.item.stamp


def _find(target: int, request: MoveRequest, taken: IsFiled) -> str | None:
    """The final name given by an earlier run, if one finished."""
    first = first_free(lambda number: lstat(target, request.name(number)) is not None)
    for name in (request.name(number) for number in numbers_in_use(first)):
        if lstat(target, name) is None or taken(f"{request.place}/{name}"):
            continue
        if request.item.raw is not None and not holds(target, name, request.item.raw):
            continue
        if request.reason is None or holds(target, name + REASON, request.reason):
            return name
    return None


def _left_claim(inbox: int, target: int, request: MoveRequest) -> int | None:
    for where in (target, inbox):
        if lstat(where, request.claim) is not None:
            return where
    return None


def _claim(inbox: int, target: int, request: MoveRequest) -> int | None:
    """Rename the file to its claim; return the directory that it is in now, None if it is gone."""
    item = request.item
    if item.raw is None and item.stamp is None:
        return None  # it cannot be recognized: the file there now must be judged
    try:
        try:
            move(inbox, item.name, target, request.claim)
            return target
        except OSError as error:
            if error.errno != errno.EXDEV or item.raw is None:
                raise
            # the inbox is another file system: the bytes are copied, and the claim is deleted afterwards
            move(inbox, item.name, inbox, request.claim)
            return inbox
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _STUCK or error.errno == errno.EXDEV or _is_locked_directory(inbox, item.name, error):
            raise ObstructedError(f"cannot move inbox/{for_file_name(item.name)}: {error.strerror}") from error
        raise


def _is_locked_directory(inbox: int, name: str, error: OSError) -> bool:
    # moving a directory needs write permission on it: the error is not about the inbox
    status = lstat(inbox, name)
    return error.errno == errno.EACCES and status is not None and stat.S_ISDIR(status.st_mode)


def _begin_writing(where: int, request: MoveRequest) -> None:
    with suppress(OSError):  # only a hint to the kernel
        fd = None if request.item.raw is None else open_regular(where, request.claim)
        if fd is not None:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _is_judged(where: int, request: MoveRequest, *, durable: bool) -> bool:
    """Whether the claimed file is the judged one and has no writer; made durable if so."""
    item = request.item
    if item.raw is None:
        status = lstat(where, request.claim)
        return item.stamp is None or (
            status is not None and (status.st_dev, status.st_ino) == (item.stamp.dev, item.stamp.ino)
        )
    try:
        fd = open_regular(where, request.claim)
    except PermissionError:
        return False
    if fd is None:
        return False
    try:
        now = Stamp.of(os.fstat(fd))
        if now.size != len(item.raw) or (item.stamp is not None and now != item.stamp) or is_being_written(fd):
            return False
        if read_up_to(fd, len(item.raw) + 1) != item.raw:
            return False
        if durable:
            os.fdatasync(fd)
        return True
    finally:
        os.close(fd)


def _put_back(where: int, inbox: int, request: MoveRequest) -> None:
    name = request.item.name
    while True:
        try:
            move(where, request.claim, inbox, name)
            return
        except FileExistsError:
            number = first_free(
                lambda number: lstat(inbox, clash_name(request.item.name, request.item.digest, number)) is not None
            )
            name = clash_name(request.item.name, request.item.digest, number)


def _write(target: int, request: MoveRequest) -> str:
    raw = request.item.raw
    if raw is None:
        raise ObstructedError(f"inbox/{for_file_name(request.item.name)} is gone, and it was never read")
    return _name(target, request, lambda name: publish(target, name, raw))


def _name(target: int, request: MoveRequest, put: Callable[[str], None]) -> str:
    """Give the file the first free name, after its reason was written beside that."""

    def is_used(number: int) -> bool:
        name = request.name(number)
        if lstat(target, name) is not None:
            return True
        beside = None if request.reason is None else lstat(target, name + REASON)
        return beside is not None and not holds(target, name + REASON, request.reason or b"")

    while True:
        name = request.name(first_free(is_used))
        with suppress(FileExistsError):
            if request.reason is not None and lstat(target, name + REASON) is None:
                publish(target, name + REASON, request.reason)
            put(name)
            return name


def publish_once(target: int, name: str, raw: bytes, *, renamed: bool = False) -> str:
    """Create a file as `name` or the next free name, unless one of these has the same bytes; return the name.

    Durable after the caller's fsync of the directory. `renamed`: see `publish`. Raises OSError.
    """
    digest = hashlib.sha256(raw).hexdigest()
    while True:
        free = first_free(lambda number: lstat(target, clash_name(name, digest, number)) is not None)
        for number in numbers_in_use(free) if free else []:
            if holds(target, clash_name(name, digest, number), raw):
                return clash_name(name, digest, number)
        with suppress(FileExistsError):
            publish(target, clash_name(name, digest, free), raw, renamed=renamed)
            return clash_name(name, digest, free)


# Deliver, archive, reject

_PLACES = ("inbox", "archive", "rejected", "outbox")
_LARGEST = 8 << 20
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

MoveResults = list[str | ObstructedError]
"""For each file its path relative to mailbox/, or the reason why it could not be moved."""


def deliver(target: Path, name: str, raw: bytes, *, below: Path | None = None, renamed: bool = False) -> str:
    """Write a message into a directory, complete and durable or not at all; return its final name.

    A name that is taken gets a suffix, unless the file there has the same bytes: then this message was delivered before
    a crash. No link is followed below the directory `below`, by default the parent of `target`. `renamed`: for an
    inbox, where only a rename proves that a file is complete; a crash may leave a hidden file.
    Raises WorldError; ValueError if `name` is hidden or not a file name.
    """
    return deliver_many(target, [(name, raw)], below=below, renamed=renamed)[0]


def deliver_many(
    target: Path, messages: Iterable[tuple[str, bytes]], *, below: Path | None = None, renamed: bool = False
) -> list[str]:
    """`deliver` for many, with one fsync of the directory."""
    root = below or target.parent
    with world_errors(f"write to {target}"), directory(root, *target.relative_to(root).parts) as fd:
        names = [_deliver(fd, name, raw, renamed) for name, raw in messages]
        os.fsync(fd)
    return names


def _deliver(fd: int, name: str, raw: bytes, renamed: bool) -> str:
    if not is_file_name(name) or name.startswith("."):
        raise ValueError(f"{name!r} is not a name for a message")
    return publish_once(fd, name, raw, renamed=renamed)


def archive(ws: Workspace, name: str, stamp: Stamp | None, raw: bytes, day: str, taken: IsFiled) -> str:
    """Move inbox/<name> to archive/<day>/; return its path there relative to mailbox/.

    If the file is gone or no longer the one that was judged, the judged bytes are written to the archive, and the file
    now in the inbox stays there as a new arrival. `day` is `YYYY-MM-DD` and must be the same in a repetition.
    Raises WorldError, ObstructedError, ValueError.
    """
    return _only(archive_many(ws, [(JudgedFile(name, stamp, raw), day)], taken))


def archive_many(ws: Workspace, items: Sequence[tuple[JudgedFile, str]], taken: IsFiled) -> MoveResults:
    """`archive` for many, with one result for each in order and one fsync of each directory.

    Record the results before the next call, for `taken` must know them. After a WorldError, repeat all.
    """
    for _, day in items:
        if _DAY.fullmatch(day) is None:
            raise ValueError(f"{day!r} is not a day like 2026-11-21")
    return _move_all(ws, [MoveRequest(item, f"archive/{day}") for item, day in items], taken)


def reject(
    ws: Workspace, name: str, stamp: Stamp | None, raw: bytes | None, reason: Mapping[str, object], taken: IsFiled
) -> str:
    """Move inbox/<name> to rejected/ as `archive` does, and write `<name there>.reason.json` beside it.

    The name is shortened to leave room for that, and made printable. Anything but a regular file is moved as it is, a
    link itself and not its target. `reason` is JSON and must be the same in a repetition. Raises as `archive` does;
    ObstructedError also if the file was never read and is gone.
    """
    return _only(reject_many(ws, [(JudgedFile(name, stamp, raw), reason)], taken))


def reject_many(ws: Workspace, items: Sequence[tuple[JudgedFile, Mapping[str, object]]], taken: IsFiled) -> MoveResults:
    """`reject` for many, as `archive_many`."""
    requests = [MoveRequest(item, "rejected", _text_of(reason)) for item, reason in items]
    return _move_all(ws, requests, taken)


def _text_of(reason: Mapping[str, object]) -> bytes:
    return json.dumps(reason, indent=2, sort_keys=True).encode() + b"\n"


def put_back(ws: Workspace, path: str, raw: bytes, reason: Mapping[str, object] | None) -> None:
    """Write a missing message to its path below mailbox/ again, and its reason beside it; durable.

    Replaces nothing. Raises WorldError.
    """
    place, name = path.rsplit("/", 1)
    with world_errors(f"put back mailbox/{path}"), _target(ws, place) as fd:
        if reason is not None:
            with suppress(FileExistsError):
                publish(fd, name + REASON, _text_of(reason))
        publish(fd, name, raw)
        os.fsync(fd)


def require_directories(ws: Workspace) -> None:
    """Raise WorldError unless mail can be moved out of the inbox. Call it before judging any.

    So no message is accepted, and no work begun, while its file has nowhere to go.
    """
    name = "mailbox"
    try:
        with directory(ws.root, name) as mailbox:
            for place in _PLACES:
                name = f"mailbox/{place}"
                _require_place(mailbox, place)
    except OSError as error:
        raise refusal(f"take mail, because of {ws.root / name}", error) from error


def _require_place(mailbox: int, name: str) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=mailbox)
    try:
        # also fails on a read-only mount, and for root in an immutable directory
        if not os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
            code = errno.EROFS if os.fstatvfs(fd).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)


def _only(answers: MoveResults) -> str:
    answer = answers[0]
    if isinstance(answer, ObstructedError):
        raise answer
    return answer


def _move_all(ws: Workspace, requests: Sequence[MoveRequest], taken: IsFiled) -> MoveResults:
    for request in requests:
        if not is_file_name(request.item.name):
            raise ValueError(f"{request.item.name!r} is not a file name")
    answers: MoveResults = []
    given: set[str] = set()
    with ExitStack() as opened, world_errors(f"move mail out of {ws.inbox}"):
        inbox = opened.enter_context(directory(ws.root, "mailbox", "inbox"))
        targets = {
            place: opened.enter_context(_target(ws, place)) for place in dict.fromkeys(f.place for f in requests)
        }
        for group in _groups(requests):
            moves = [Move(inbox, targets[request.place], request) for request in group]
            # each step for all moves before the next one, so that the disk works on all of them at once
            for move in moves:
                move.claim(lambda path: path in given or taken(path))
            _check(moves)
            answers += [_finish(move) for move in moves]
            given.update(answer for answer in answers[-len(group) :] if isinstance(answer, str))
        for fd in (*targets.values(), inbox):
            os.fsync(fd)
    return answers


def _check(moves: Sequence[Move]) -> None:
    """Move back what is not what was judged, and make the others durable: one by one, or all at once."""
    together = len(moves) > files.MANY and files.sync_reports_errors()
    if not together:
        for move in moves:
            move.begin_writing()
    for move in moves:
        move.check(durable=not together)
    if together:
        for place in {os.fstat(move.place).st_dev: move.place for move in moves if move.place is not None}.values():
            files.sync_file_system(place)


def _finish(move: Move) -> str | ObstructedError:
    try:
        return move.finish()
    except ObstructedError as stuck:
        return stuck


def _groups(requests: Iterable[MoveRequest]) -> Iterator[list[MoveRequest]]:
    """Split the moves where a name repeats: it is of a later file, which the earlier move must not claim."""
    group: dict[str, MoveRequest] = {}
    for request in requests:
        if request.item.name in group:
            yield list(group.values())
            group = {}
        group[request.item.name] = request
    yield list(group.values())


@contextmanager
def _target(ws: Workspace, place: str) -> Iterator[int]:
    """Open a directory below mailbox/; that of a day is created, archive/ and rejected/ must exist."""
    top, *day = place.split("/")
    with directory(ws.root, "mailbox", top) as fd:
        for name in day:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
                os.fsync(fd)
    with directory(ws.root, "mailbox", *place.split("/")) as fd:
        yield fd


def read_message(ws: Workspace, path: str, most: int = _LARGEST) -> bytes | None:
    """Read a message by its path below mailbox/, at most `most` bytes; None if it cannot be read. Raises nothing."""
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts:
        return None
    try:
        with directory(ws.mailbox, *place.parent.parts) as fd:
            file = open_regular(fd, place.name)
            if file is None:
                return None
            try:
                return read_up_to(file, most)
            finally:
                os.close(file)
    except OSError:
        return None


# Files in outbox/, whose bytes are in the database too: written at once, synced later, restored after a power cut

_MANY = 8
"""From so many files on the whole file system is synced, which also waits for other processes' writes."""


def put(ws: Workspace, messages: Iterable[tuple[str, bytes]]) -> None:
    """Create files, complete but not yet durable; skip those that exist with the same bytes.

    Raises WorldError, also if a file of that name has other bytes: it is left as it is.
    """
    with world_errors("enter mailbox/outbox"), directory(ws.root, "mailbox", "outbox") as fd:
        for name, raw in messages:
            try:
                _put(fd, name, raw)
            except OSError as error:
                raise refusal(f"write mailbox/outbox/{name}", error) from error


def _put(dir_fd: int, name: str, raw: bytes) -> None:
    try:
        publish(dir_fd, name, raw, durable=False)
    except FileExistsError:
        if not holds(dir_fd, name, raw):
            raise OSError(errno.EEXIST, "another file has that name; move it away") from None


def sync(ws: Workspace, names: Iterable[str]) -> None:
    """Make files durable that `put` wrote. Raises WorldError: then none counts as durable."""
    names = list(names)
    if not names:
        return
    with world_errors("sync mailbox/outbox"), directory(ws.root, "mailbox", "outbox") as fd:
        if len(names) >= _MANY and files.sync_reports_errors():
            files.sync_file_system(fd)
            return
        for name in names:
            if (file := open_regular(fd, name)) is not None:
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        os.fsync(fd)


def restore(ws: Workspace, name: str, raw: bytes) -> None:
    """Write a file durably with its original bytes, whatever is there now. Raises WorldError."""
    with world_errors(f"restore mailbox/outbox/{name}"), directory(ws.root, "mailbox", "outbox") as fd:
        replace(fd, name, raw, lambda: True)
