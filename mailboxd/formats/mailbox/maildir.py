"""Deliver, archive and reject messages: every file ends in exactly one place, with the bytes that were read.

Raises WorldError if a directory is missing, a link, full or forbidden: stop the intake and repeat later, nothing is
lost. ObstructedError: this one file cannot be moved; report it and continue. ValueError: an invalid name, a bug.
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
from itertools import groupby
from pathlib import Path, PurePosixPath

from mailboxd.core.sanitize import for_file_name
from mailboxd.formats.mailbox import files
from mailboxd.formats.mailbox.files import (
    ObstructedError,
    Stamp,
    directory,
    holds,
    lstat,
    move,
    open_regular,
    publish,
    read_file,
    read_up_to,
    refusal,
    replace,
    world_errors,
)
from mailboxd.formats.mailbox.layout import (
    Workspace,
    clash_name,
    first_free,
    is_file_name,
    is_temporary,
    numbers_in_use,
)
from mailboxd.host.system import system

# Moving a file out of the inbox: claim it, check it, give it its final name
#
# The claim is a rename to a hidden name that depends only on what is moved; then no writer reaches the file by name.
# If the file is not what was read (a writer replaced it, appended to it, or has it open), it is moved back and the
# bytes that were read are written instead. A second rename gives it its final name. No rename replaces anything, and
# every step first checks for the work of an earlier run, so a kill at any point is repaired by a repetition.

REASON = ".reason.json"
INDEX = "INDEX.md"
"""The list of a day's messages in archive/DATE/; no message has that name."""
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

IsFiled = Callable[[str], bool]
"""Whether a path (relative to mailbox/) is recorded as that of another file."""

_STUCK = frozenset({errno.EPERM, errno.EBUSY})
"""Errors of one file only: it is immutable, a mount point, or another user's in a sticky directory."""


@dataclass(frozen=True)
class MoveRequest:
    """A file of the inbox, the directory below mailbox/ that it moves to, and the reason to write beside it.

    `stamp` None: lost by a restart, the bytes decide. `raw` None: it was never read.
    """

    name: str
    stamp: Stamp | None
    raw: bytes | None
    place: str
    reason: Mapping[str, object] | None = None

    @cached_property
    def reason_text(self) -> bytes | None:
        return None if self.reason is None else _text_of(self.reason)

    @cached_property
    def digest(self) -> str:
        """Identifies this move in every repetition. Hexadecimal."""
        content = b"unread" if self.raw is None else hashlib.sha256(self.raw).digest()
        return hashlib.sha256(os.fsencode(self.name) + b"\0" + content).hexdigest()

    @property
    def claim(self) -> str:
        return f".mailboxd-{self.digest[:32]}.claim"

    def final_name(self, number: int) -> str:
        return clash_name(self.name, self.digest, number, 0 if self.reason is None else len(REASON))


class Move:
    """One move in three steps, `claim`, `check` and `finish`, so that a group of moves shares slow disk operations.

    Each raises OSError for trouble with the directories. Durable after the caller's fsync of both directories.
    """

    def __init__(self, inbox: int, target: int, request: MoveRequest) -> None:
        self._inbox = inbox
        self._target = target
        self._request = request
        self._done: str | None = None
        self._stuck: ObstructedError | None = None
        self.place: int | None = None
        """Descriptor of the directory with the claimed file; None if there is none."""

    def claim(self, taken: IsFiled) -> None:
        """Move the file out of reach of its writers, unless an earlier run has finished the move."""
        claim, status = self._request.claim, lstat(self._inbox, self._request.name)
        self.place = next((fd for fd in (self._target, self._inbox) if lstat(fd, claim) is not None), None)
        if self.place is not None or status is None or Stamp.of(status) != self._request.stamp:
            self._done = self._find_done(taken)
        if self.place is None and self._done is None:
            try:
                self.place = self._rename_to_claim()
            except ObstructedError as stuck:
                self._stuck = stuck

    def begin_writing(self) -> None:
        """Start the write that `check` waits for, so that a group waits only about once."""
        if self.place is None or self._request.raw is None:
            return
        with suppress(OSError):  # only a hint to the kernel
            if (fd := open_regular(self.place, self._request.claim)) is not None:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

    def check(self, *, durable: bool = True) -> None:
        """Move back a file that is not the one that was read; make it durable otherwise, unless the caller does."""
        if self.place is not None and not self._is_unchanged(self.place, durable=durable):
            self._move_back(self.place)
            self.place = None

    def finish(self) -> str | ObstructedError:
        """Give the file its final name; return its path relative to mailbox/.

        Returns ObstructedError if it could not be moved, or was never read and is gone.
        """
        target, request = self._target, self._request
        if self._stuck is not None:
            return self._stuck
        if self._done is None and self.place == target:
            return f"{request.place}/{self._name(lambda name: move(target, request.claim, target, name))}"
        if self._done is None:
            raw = request.raw
            if raw is None:
                return ObstructedError(f"inbox/{for_file_name(request.name)} is gone, and it was never read")
            self._done = self._name(lambda name: publish(target, name, raw))
        if self.place is not None:
            os.unlink(request.claim, dir_fd=self.place)
        return f"{request.place}/{self._done}"

    def _find_done(self, taken: IsFiled) -> str | None:
        """The final name given by an earlier run, if one finished."""
        target, request = self._target, self._request
        first = first_free(lambda number: lstat(target, request.final_name(number)) is not None)
        for name in map(request.final_name, numbers_in_use(first)):
            if lstat(target, name) is None or taken(f"{request.place}/{name}"):
                continue
            if request.raw is not None and not holds(target, name, request.raw):
                continue
            if request.reason_text is None or holds(target, name + REASON, request.reason_text):
                return name
        return None

    def _rename_to_claim(self) -> int | None:
        """Rename the file to its claim; return the directory that it is in now, None if it is gone."""
        inbox, request = self._inbox, self._request
        if request.raw is None and request.stamp is None:
            return None  # it cannot be recognized: the file there now is a new arrival
        try:
            try:
                move(inbox, request.name, self._target, request.claim)
                return self._target
            except OSError as error:
                if error.errno != errno.EXDEV or request.raw is None:
                    raise
                # the inbox is another file system: the bytes are copied, and the claim is deleted afterwards
                move(inbox, request.name, inbox, request.claim)
                return inbox
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _STUCK or error.errno == errno.EXDEV or self._is_locked_directory(error):
                raise ObstructedError(f"cannot move inbox/{for_file_name(request.name)}: {error.strerror}") from error
            raise

    def _is_locked_directory(self, error: OSError) -> bool:
        # moving a directory needs write permission on it: the error is not about the inbox
        status = lstat(self._inbox, self._request.name)
        return error.errno == errno.EACCES and status is not None and stat.S_ISDIR(status.st_mode)

    def _is_unchanged(self, place: int, *, durable: bool) -> bool:
        """Whether the claimed file is the one that was read and has no writer; made durable if so."""
        request = self._request
        if request.raw is None:
            status, stamp = lstat(place, request.claim), request.stamp
            return stamp is None or (status is not None and (status.st_dev, status.st_ino) == (stamp.dev, stamp.ino))
        try:
            fd = open_regular(place, request.claim)
        except PermissionError:
            return False
        if fd is None:
            return False
        try:
            now = Stamp.of(os.fstat(fd))
            if now.size != len(request.raw) or request.stamp not in (None, now) or system.is_being_written(fd):
                return False
            if read_up_to(fd, len(request.raw) + 1) != request.raw:
                return False
            if durable:
                system.sync_data(fd)
            return True
        finally:
            os.close(fd)

    def _move_back(self, place: int) -> None:
        inbox, request = self._inbox, self._request
        name = request.name
        while True:
            with suppress(FileExistsError):
                move(place, request.claim, inbox, name)
                return
            name = _free_name(inbox, request.name, request.digest)

    def _name(self, put: Callable[[str], None]) -> str:
        """Give the file the first free name, after its reason was written beside that."""
        target, request, reason = self._target, self._request, self._request.reason_text

        def is_used(number: int) -> bool:
            name = request.final_name(number)
            if name == INDEX:
                return True
            beside = None if reason is None else lstat(target, name + REASON)
            return lstat(target, name) is not None or (
                beside is not None and not holds(target, name + REASON, reason or b"")
            )

        while True:
            name = request.final_name(first_free(is_used))
            with suppress(FileExistsError):
                if reason is not None and lstat(target, name + REASON) is None:
                    publish(target, name + REASON, reason)
                put(name)
                return name


def _free_name(fd: int, name: str, digest: str) -> str:
    return clash_name(name, digest, first_free(lambda number: lstat(fd, clash_name(name, digest, number)) is not None))


def _text_of(reason: Mapping[str, object]) -> bytes:
    return json.dumps(reason, indent=2, sort_keys=True).encode() + b"\n"


def move_out(ws: Workspace, requests: Sequence[MoveRequest], taken: IsFiled) -> list[str | ObstructedError]:
    """Move files out of the inbox; return for each, in order, its path relative to mailbox/, or why it is stuck.

    If a file is gone or no longer the one that was read, the bytes that were read are written to the target, and the
    file now in the inbox stays there as a new arrival. Anything but a regular file is moved as it is, a link itself and
    not its target. With a reason, `<name there>.reason.json` is written beside it, and the name is shortened to leave
    room for that. The requests must be the same in a repetition. Record the results before the next call, for `taken`
    must know them. After a WorldError, repeat all. Each directory is synced once.
    """
    for request in requests:
        if not is_file_name(request.name):
            raise ValueError(f"{request.name!r} is not a file name")
    answers: list[str | ObstructedError] = []
    given: set[str] = set()
    with ExitStack() as opened, world_errors(f"move mail out of {ws.inbox}"):
        inbox = opened.enter_context(directory(ws.root, "mailbox", "inbox"))
        targets = {
            place: opened.enter_context(require_day(ws, place))
            for place in dict.fromkeys(one.place for one in requests)
        }
        for group in _groups(requests):
            moves = [Move(inbox, targets[request.place], request) for request in group]
            # each step for all moves before the next one, so that the disk works on all of them at once
            for one in moves:
                one.claim(lambda path: path in given or taken(path))
            _check(moves)
            answers += [one.finish() for one in moves]
            given.update(answer for answer in answers[-len(group) :] if isinstance(answer, str))
        for fd in (*targets.values(), inbox):
            system.sync(fd)
    return answers


def _check(moves: Sequence[Move]) -> None:
    """Move back what is not what was read, and make the others durable: one by one, or all at once."""
    together = len(moves) > files.MANY and system.sync_reports_errors()
    if not together:
        for one in moves:
            one.begin_writing()
    for one in moves:
        one.check(durable=not together)
    if together:
        for place in {os.fstat(one.place).st_dev: one.place for one in moves if one.place is not None}.values():
            system.sync_file_system(place)


def _groups(requests: Iterable[MoveRequest]) -> Iterator[list[MoveRequest]]:
    """Split the moves where a name repeats: it is of a later file, which the earlier move must not claim."""
    group: dict[str, MoveRequest] = {}
    for request in requests:
        if request.name in group:
            yield list(group.values())
            group = {}
        group[request.name] = request
    yield list(group.values())


@contextmanager
def require_day(ws: Workspace, place: str) -> Iterator[int]:
    """Open a directory below mailbox/; that of a day is created, archive/, rejected/ and outbox/ must exist."""
    top, *day = place.split("/")
    with directory(ws.root, "mailbox", top) as fd:
        for name in day:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
                system.sync(fd)
    with directory(ws.root, "mailbox", *place.split("/")) as fd:
        yield fd


def write(ws: Workspace, path: str, raw: bytes, reason: Mapping[str, object] | None = None) -> None:
    """Write a message to its path below mailbox/, and its reason beside it; durable. It may be there already.

    Replaces nothing. Raises WorldError, also if another file has that name.
    """
    place, name = path.rsplit("/", 1)
    with world_errors(f"write mailbox/{path}"), require_day(ws, place) as fd:
        if reason is not None:
            with suppress(FileExistsError):
                publish(fd, name + REASON, _text_of(reason))
        try:
            publish(fd, name, raw)
        except FileExistsError:
            if not holds(fd, name, raw):
                raise
        system.sync(fd)


# The other directories of mailbox/

_PLACES = ("inbox", "archive", "rejected", "outbox")
_LARGEST = 8 << 20


def require_directories(ws: Workspace) -> None:
    """Raise WorldError unless mail can be moved out of the inbox. Call it before reading any.

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


def deliver(
    target: Path, name: str, raw: bytes, *, below: Path | None = None, renamed: bool = False, program: str = ""
) -> str:
    """Write a message into a directory, complete and durable or not at all; return its final name.

    A name that is taken gets a suffix, unless the file there has the same bytes: then this message was delivered before
    a crash. No link is followed below the directory `below`, by default the parent of `target`. `renamed`: for an
    inbox, where only a rename proves that a file is complete; a crash may leave a hidden file. `program`: see
    `publish`.
    Raises WorldError; ValueError if `name` is hidden or not a file name.
    """
    if not is_file_name(name) or name.startswith("."):
        raise ValueError(f"{name!r} is not a name for a message")
    root = below or target.parent
    with world_errors(f"write to {target}"), directory(root, *target.relative_to(root).parts) as fd:
        name = publish_once(fd, name, raw, renamed=renamed, program=program)
        system.sync(fd)
    return name


def publish_once(target: int, name: str, raw: bytes, *, renamed: bool = False, program: str = "") -> str:
    """Create a file as `name` or the next free name, unless one of these has the same bytes; return the name.

    Durable after the caller's fsync of the directory. `renamed`, `program`: see `publish`. Raises OSError.
    """
    digest = hashlib.sha256(raw).hexdigest()
    while True:
        free = first_free(lambda number: lstat(target, clash_name(name, digest, number)) is not None)
        for number in numbers_in_use(free) if free else []:
            if holds(target, clash_name(name, digest, number), raw):
                return clash_name(name, digest, number)
        with suppress(FileExistsError):
            publish(target, clash_name(name, digest, free), raw, renamed=renamed, program=program)
            return clash_name(name, digest, free)


def read_message(ws: Workspace, path: str, most: int = _LARGEST) -> bytes | None:
    """Read a message by its path below mailbox/, at most `most` bytes; None if it cannot be read. Raises nothing."""
    return next(read_messages(ws, [path], most))


def read_messages(ws: Workspace, paths: Iterable[str], most: int = _LARGEST) -> Iterator[bytes | None]:
    """Read messages in the order of `paths`, which is fastest if those of one directory follow each other."""
    for folder, of_folder in groupby(paths, key=lambda path: path.rpartition("/")[0]):
        with ExitStack() as opened:
            fd = None
            if not folder.startswith("/") and ".." not in folder.split("/"):
                with suppress(OSError):
                    fd = opened.enter_context(directory(ws.mailbox, *filter(None, folder.split("/"))))
            for path in of_folder:
                raw = None
                with suppress(OSError):
                    raw = None if fd is None else read_file(fd, path.rpartition("/")[2], most)
                yield raw


def walk(ws: Workspace, below: PurePosixPath, depth: int = 4) -> Iterator[PurePosixPath]:
    """The paths of all files below a directory of mailbox/, by name, without temporary ones, journal and indexes.

    A directory more than `depth` levels down counts as a file. No link is followed. Raises OSError.
    """
    with directory(ws.mailbox, *below.parts) as fd, os.scandir(fd) as entries:
        found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_directory in found:
        if below.parts == ("archive",) and name.split(".replaced-")[0] == "events":
            continue  # the journal, and those of earlier logs
        if is_directory and depth:
            yield from walk(ws, below / name, depth - 1)
        elif not is_temporary(name) and not (name == INDEX and day_in(str(below))):
            yield below / name


def day_in(folder: str) -> str:
    """The day of a directory below mailbox/, archive/DATE, rejected/DATE or outbox/DATE; empty if it is of none."""
    day = folder.partition("/")[2]
    return day if _DAY.fullmatch(day) else ""


# Files in outbox/, whose bytes are in the database too: written at once, synced later, restored after a power cut

_MANY = 8
"""From this number of files on the whole file system is synced, which also waits for writes of other processes."""


def put(ws: Workspace, messages: Iterable[tuple[str, bytes]]) -> None:
    """Create files by their paths below mailbox/, complete but not yet durable; skip those with the same bytes.

    Raises WorldError, also if a file of that name has other bytes: it is left as it is.
    """
    for place, of_place in groupby(messages, key=lambda message: message[0].rpartition("/")[0]):
        with world_errors(f"enter mailbox/{place}"), require_day(ws, place) as fd:
            for path, raw in of_place:
                try:
                    _put(fd, path.rpartition("/")[2], raw)
                except OSError as error:
                    raise refusal(f"write mailbox/{path}", error) from error


def _put(dir_fd: int, name: str, raw: bytes) -> None:
    try:
        publish(dir_fd, name, raw, durable=False)
    except FileExistsError:
        if not holds(dir_fd, name, raw):
            raise OSError(errno.EEXIST, "another file has that name; move it away") from None


def sync(ws: Workspace, paths: Iterable[str]) -> None:
    """Make files durable that `put` wrote. Raises WorldError: then none counts as durable."""
    paths = list(paths)
    many = len(paths) >= _MANY and system.sync_reports_errors()
    for place, of_place in groupby(paths, key=lambda path: path.rpartition("/")[0]):
        with world_errors(f"sync mailbox/{place}"), require_day(ws, place) as fd:
            if many:
                system.sync_file_system(fd)
                return
            for path in of_place:
                if (file := open_regular(fd, path.rpartition("/")[2])) is not None:
                    try:
                        system.sync(file)
                    finally:
                        os.close(file)
            system.sync(fd)


def restore(ws: Workspace, path: str, raw: bytes) -> None:
    """Write a file durably with its original bytes, whatever is there now. Raises WorldError."""
    place, name = path.rsplit("/", 1)
    with world_errors(f"restore mailbox/{path}"), require_day(ws, place) as fd:
        replace(fd, name, raw, lambda: True)
