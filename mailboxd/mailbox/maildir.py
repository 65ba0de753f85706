"""Delivering, archiving and rejecting: every file ends in exactly one place, with the bytes that were judged.

DIAGNOSTICS. WorldError: a directory is missing, is a link, is full or forbidden; stop the intake, nothing is lost,
repeat when it is mended. ObstructedError: this one file does not let itself be moved; report it, carry on. ValueError:
a name or a day that is none; our bug.
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
from mailboxd.mailbox import files as syncing
from mailboxd.mailbox.files import (
    ObstructedError,
    Stamp,
    directory,
    holds,
    is_being_written,
    look,
    move,
    open_regular,
    publish,
    read_up_to,
    refusal,
    replace,
    world_errors,
)
from mailboxd.mailbox.layout import Workspace, clash_name, first_free, is_file_name, numbers_in_use

# ---------------------------------------------------------------------------------------------------------------------
# Moving one judged file out of the inbox: claim it, check it, give it its name.
#
# The claim is a rename to a hidden name that depends on nothing but what is moved: from then on no writer reaches the
# file by name. If it is not what was judged (a writer replaced it, appended to it, has it open), it goes back and the
# judged bytes are written instead. A second rename gives it its name. No rename replaces anything, and every step
# looks first for what an earlier run of it left: a kill at any point is mended by a repetition.

REASON = ".reason.json"

IsFiled = Callable[[str], bool]
"""Whether a path (relative to mailbox/) is on record as the place of another file already."""

_STUCK = frozenset({errno.EPERM, errno.EBUSY})
"""What one file may do (immutable, another user's in a sticky directory, a mount point) while all others are well."""


@dataclass(frozen=True)
class JudgedFile:
    """A file of the inbox that has been judged, with what it was judged by.

    `stamp` None: not known any more (a restart lost it), the bytes decide. `raw` None: it was refused unread.
    """

    name: str
    stamp: Stamp | None
    raw: bytes | None

    @cached_property
    def digest(self) -> str:
        """Names this move in every repetition of it, whatever else is forgotten. Hexadecimal."""
        content = b"unread" if self.raw is None else hashlib.sha256(self.raw).digest()
        return hashlib.sha256(os.fsencode(self.name) + b"\0" + content).hexdigest()


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """One move: which file, to which directory below mailbox/, with which reason beside it."""

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
    """One filing on its way, in three steps, so that a group of them shares what a disk does slowly.

    `claim`, `check`, then `finish`; each raises OSError if the world is wrong. Durable once the caller has fsynced both
    directories.
    """

    def __init__(self, inbox: int, target: int, filing: MoveRequest) -> None:
        self._inbox = inbox
        self._target = target
        self._filing = filing
        self._where: int | None = None
        self._done: str | None = None
        self._stuck: ObstructedError | None = None

    def claim(self, taken: IsFiled) -> None:
        """Takes the file away from its writers, unless an earlier run has finished this."""
        inbox, target, filing = self._inbox, self._target, self._filing
        self._where = _left_claim(inbox, target, filing)
        if self._where is not None or not _is_untouched(inbox, filing):
            self._done = _find(target, filing, taken)
        if self._where is None and self._done is None:
            try:
                self._where = _claim(inbox, target, filing)
            except ObstructedError as stuck:
                self._stuck = stuck

    @property
    def place(self) -> int | None:
        """The directory in which the claimed file lies now; None if there is none."""
        return self._where

    def begin_writing(self) -> None:
        """Has the disk begin with what `check` waits for: then a group waits about once."""
        if self._where is not None:
            _begin_writing(self._where, self._filing)

    def check(self, *, durable: bool = True) -> None:
        """Gives back what is not the file that was judged; makes durable what is, unless the caller does so."""
        if self._where is not None and not _is_judged(self._where, self._filing, durable=durable):
            _put_back(self._where, self._inbox, self._filing)
            self._where = None

    def finish(self) -> str:
        """Gives the file its name; its path relative to mailbox/.

        Raises ObstructedError if it did not let itself be moved, or was never read and is gone.
        """
        if self._stuck is not None:
            raise self._stuck
        target, filing = self._target, self._filing
        if self._done is None and self._where == target:
            return f"{filing.place}/{_name(target, filing, lambda name: move(target, filing.claim, target, name))}"
        if self._done is None:
            self._done = _write(target, filing)
        if self._where is not None:
            os.unlink(filing.claim, dir_fd=self._where)
        return f"{filing.place}/{self._done}"


def _is_untouched(inbox: int, filing: MoveRequest) -> bool:
    """Whether the very file still lies in the inbox: then no earlier run has moved it."""
    status = look(inbox, filing.item.name)
    return status is not None and Stamp.of(status) == filing.item.stamp


def _find(target: int, filing: MoveRequest, taken: IsFiled) -> str | None:
    """The name under which an earlier run finished this filing, if one did."""
    first = first_free(lambda number: look(target, filing.name(number)) is not None)
    for name in (filing.name(number) for number in numbers_in_use(first)):
        if look(target, name) is None or taken(f"{filing.place}/{name}"):
            continue
        if filing.item.raw is not None and not holds(target, name, filing.item.raw):
            continue
        if filing.reason is None or holds(target, name + REASON, filing.reason):
            return name
    return None


def _left_claim(inbox: int, target: int, filing: MoveRequest) -> int | None:
    for where in (target, inbox):
        if look(where, filing.claim) is not None:
            return where
    return None


def _claim(inbox: int, target: int, filing: MoveRequest) -> int | None:
    """Takes the file out of everybody's reach; the directory that it is in now, None if it is gone."""
    item = filing.item
    if item.raw is None and item.stamp is None:
        return None  # nothing to know it by: what lies there now must be judged anew
    try:
        try:
            move(inbox, item.name, target, filing.claim)
            return target
        except OSError as error:
            if error.errno != errno.EXDEV or item.raw is None:
                raise
            # the inbox is a file system of its own: the bytes are copied, and the claim is deleted after that
            move(inbox, item.name, inbox, filing.claim)
            return inbox
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _STUCK or error.errno == errno.EXDEV or _is_locked_directory(inbox, item.name, error):
            raise ObstructedError(f"cannot move inbox/{for_file_name(item.name)}: {error.strerror}") from error
        raise


def _is_locked_directory(inbox: int, name: str, error: OSError) -> bool:
    # to move a directory takes write permission on itself: without it, it says nothing about the inbox
    status = look(inbox, name)
    return error.errno == errno.EACCES and status is not None and stat.S_ISDIR(status.st_mode)


def _begin_writing(where: int, filing: MoveRequest) -> None:
    with suppress(OSError):  # this is advice
        fd = None if filing.item.raw is None else open_regular(where, filing.claim)
        if fd is not None:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _is_judged(where: int, filing: MoveRequest, *, durable: bool) -> bool:
    """Whether the claimed file is the one that was judged and nobody can change it; made `durable` then."""
    item = filing.item
    if item.raw is None:
        status = look(where, filing.claim)
        return item.stamp is None or (
            status is not None and (status.st_dev, status.st_ino) == (item.stamp.dev, item.stamp.ino)
        )
    try:
        fd = open_regular(where, filing.claim)
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


def _put_back(where: int, inbox: int, filing: MoveRequest) -> None:
    name = filing.item.name
    while True:
        try:
            move(where, filing.claim, inbox, name)
            return
        except FileExistsError:
            number = first_free(
                lambda number: look(inbox, clash_name(filing.item.name, filing.item.digest, number)) is not None
            )
            name = clash_name(filing.item.name, filing.item.digest, number)


def _write(target: int, filing: MoveRequest) -> str:
    raw = filing.item.raw
    if raw is None:
        raise ObstructedError(f"inbox/{for_file_name(filing.item.name)} is gone, and it was never read")
    return _name(target, filing, lambda name: publish(target, name, raw))


def _name(target: int, filing: MoveRequest, put: Callable[[str], None]) -> str:
    """Puts the file under the first name that is free for it, with its reason there before it."""

    def is_used(number: int) -> bool:
        name = filing.name(number)
        if look(target, name) is not None:
            return True
        beside = None if filing.reason is None else look(target, name + REASON)
        return beside is not None and not holds(target, name + REASON, filing.reason or b"")

    while True:
        name = filing.name(first_free(is_used))
        with suppress(FileExistsError):
            if filing.reason is not None and look(target, name + REASON) is None:
                publish(target, name + REASON, filing.reason)
            put(name)
            return name


def publish_once(target: int, name: str, raw: bytes, *, renamed: bool = False) -> str:
    """Makes a new file under `name` or the next free one after it; its name. If one of these has the bytes, that is it.

    Durable once the caller has fsynced the directory. `renamed` as for `publish`. Raises OSError.
    """
    digest = hashlib.sha256(raw).hexdigest()
    while True:
        free = first_free(lambda number: look(target, clash_name(name, digest, number)) is not None)
        for number in numbers_in_use(free) if free else []:
            if holds(target, clash_name(name, digest, number), raw):
                return clash_name(name, digest, number)
        with suppress(FileExistsError):
            publish(target, clash_name(name, digest, free), raw, renamed=renamed)
            return clash_name(name, digest, free)


# ---------------------------------------------------------------------------------------------------------------------
# Delivering, archiving and rejecting: every file ends in exactly one place, with the bytes that were judged.

_PLACES = ("inbox", "archive", "rejected", "outbox")
_LARGEST = 8 << 20
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

Answers = list[str | ObstructedError]
"""For each file its path relative to mailbox/, or why it could not be moved."""


def deliver(target: Path, name: str, raw: bytes, *, below: Path | None = None, renamed: bool = False) -> str:
    """Writes a message into a directory so that it appears there complete and durable, or not at all; its final name.

    A name that is used gets a suffix, unless the file there has the same bytes: then it is this message, delivered
    before a crash. No link is followed below the directory `below`, which is the parent of `target` unless it is said.
    `renamed`: for an inbox, where only a rename proves that a file is complete; a crash may leave a hidden file then.
    Raises WorldError; ValueError if `name` is hidden or no file name.
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
        raise ValueError(f"{name!r} is no name for a message")
    return publish_once(fd, name, raw, renamed=renamed)


def archive(ws: Workspace, name: str, stamp: Stamp | None, raw: bytes, day: str, taken: IsFiled) -> str:
    """Moves inbox/<name> to archive/<day>/, and returns its path there relative to mailbox/.

    If the file is gone or is no longer the one that was judged, the judged bytes are written to the archive, and what
    now lies in the inbox stays there as a new arrival. `day` is `YYYY-MM-DD` and must be the same in a repetition.
    Raises WorldError, ObstructedError, ValueError.
    """
    return _only(archive_many(ws, [(JudgedFile(name, stamp, raw), day)], taken))


def archive_many(ws: Workspace, items: Sequence[tuple[JudgedFile, str]], taken: IsFiled) -> Answers:
    """`archive` for many, one answer for each in order, with one fsync of each directory.

    Record the answers before the next call, or `taken` does not know them. A WorldError may come half-way: then
    repeat all of them.
    """
    for _, day in items:
        if _DAY.fullmatch(day) is None:
            raise ValueError(f"{day!r} is not a day like 2026-11-21")
    return _file_all(ws, [MoveRequest(item, f"archive/{day}") for item, day in items], taken)


def reject(
    ws: Workspace, name: str, stamp: Stamp | None, raw: bytes | None, reason: Mapping[str, object], taken: IsFiled
) -> str:
    """Moves inbox/<name> to rejected/ as `archive` does, and writes `<its name there>.reason.json` beside it.

    The name is shortened to leave room for that, and made printable. What is not a regular file is moved as it is, a
    link itself and not its target. `reason` is what JSON can say, and must be the same in a repetition. Raises as
    `archive` does; ObstructedError also if the file was never read and is gone.
    """
    return _only(reject_many(ws, [(JudgedFile(name, stamp, raw), reason)], taken))


def reject_many(ws: Workspace, items: Sequence[tuple[JudgedFile, Mapping[str, object]]], taken: IsFiled) -> Answers:
    """`reject` for many, as `archive_many` is for `archive`."""
    filings = [MoveRequest(item, "rejected", _text_of(reason)) for item, reason in items]
    return _file_all(ws, filings, taken)


def _text_of(reason: Mapping[str, object]) -> bytes:
    return json.dumps(reason, indent=2, sort_keys=True).encode() + b"\n"


def put_back(ws: Workspace, path: str, raw: bytes, reason: Mapping[str, object] | None) -> None:
    """Writes a filed message again to the path below mailbox/ where it lay, and the reason beside it; durable.

    Nothing is replaced. Raises WorldError.
    """
    place, name = path.rsplit("/", 1)
    with world_errors(f"put back mailbox/{path}"), _target(ws, place) as fd:
        if reason is not None:
            with suppress(FileExistsError):
                publish(fd, name + REASON, _text_of(reason))
        publish(fd, name, raw)
        os.fsync(fd)


def require_directories(ws: Workspace) -> None:
    """Raises WorldError unless mail can be taken out of the inbox and put where it belongs: ask before judging any.

    So a message is not accepted, and the work that it asks for not begun, while its file has nowhere to go.
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
        # also no on a read-only mount, and for root in a directory that was made immutable
        if not os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
            code = errno.EROFS if os.fstatvfs(fd).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)


def _only(answers: Answers) -> str:
    answer = answers[0]
    if isinstance(answer, ObstructedError):
        raise answer
    return answer


def _file_all(ws: Workspace, filings: Sequence[MoveRequest], taken: IsFiled) -> Answers:
    for filing in filings:
        if not is_file_name(filing.item.name):
            raise ValueError(f"{filing.item.name!r} is no file name")
    answers: Answers = []
    given: set[str] = set()
    with ExitStack() as opened, world_errors(f"move mail out of {ws.inbox}"):
        inbox = opened.enter_context(directory(ws.root, "mailbox", "inbox"))
        targets = {place: opened.enter_context(_target(ws, place)) for place in dict.fromkeys(f.place for f in filings)}
        for wave in _waves(filings):
            moves = [Move(inbox, targets[filing.place], filing) for filing in wave]
            # each step for all before the next: so the disk works for all of them at once
            for move in moves:
                move.claim(lambda path: path in given or taken(path))
            _check(moves)
            answers += [_finish(move) for move in moves]
            given.update(answer for answer in answers[-len(wave) :] if isinstance(answer, str))
        for fd in (*targets.values(), inbox):
            os.fsync(fd)
    return answers


def _check(moves: Sequence[Move]) -> None:
    """Sorts out what is not what was judged, and makes the others durable: one by one, or many in one go."""
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


def _waves(filings: Iterable[MoveRequest]) -> Iterator[list[MoveRequest]]:
    """Cuts the group where a name comes again: that is about a later file, which the earlier one must not take."""
    wave: dict[str, MoveRequest] = {}
    for filing in filings:
        if filing.item.name in wave:
            yield list(wave.values())
            wave = {}
        wave[filing.item.name] = filing
    yield list(wave.values())


@contextmanager
def _target(ws: Workspace, place: str) -> Iterator[int]:
    """The directory below mailbox/; that of a day is made, archive/ and rejected/ must be there."""
    top, *day = place.split("/")
    with directory(ws.root, "mailbox", top) as fd:
        for name in day:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
                os.fsync(fd)
    with directory(ws.root, "mailbox", *place.split("/")) as fd:
        yield fd


def read_message(ws: Workspace, path: str, most: int = _LARGEST) -> bytes | None:
    """A message by its path below mailbox/, at most `most` bytes of it; None when it is not there. Raises nothing."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Files in outbox/ whose bytes the database has too: written at once, synced later, written again after a power cut.

_MANY = 8
"""Files from which on the file system is synced as a whole, which also waits for what others have written to it."""


def put(ws: Workspace, files: Iterable[tuple[str, bytes]]) -> None:
    """Make files of these names and bytes appear whole, not yet durable; nothing to do for one that is there.

    Raises WorldError. A file of that name with other bytes is not ours: it is left as it is.
    """
    with world_errors("enter mailbox/outbox"), directory(ws.root, "mailbox", "outbox") as fd:
        for name, raw in files:
            try:
                _put(fd, name, raw)
            except OSError as error:
                raise refusal(f"write mailbox/outbox/{name}", error) from error


def _put(dir_fd: int, name: str, raw: bytes) -> None:
    try:
        publish(dir_fd, name, raw, durable=False)
    except FileExistsError:
        if not holds(dir_fd, name, raw):
            raise OSError(errno.EEXIST, "another file of that name lies there; move it away") from None


def sync(ws: Workspace, names: Iterable[str]) -> None:
    """Make files durable that `put` wrote. Raises WorldError: then nothing is known of any of them."""
    names = list(names)
    if not names:
        return
    with world_errors("sync mailbox/outbox"), directory(ws.root, "mailbox", "outbox") as fd:
        if len(names) >= _MANY and syncing.sync_reports_errors():
            syncing.sync_file_system(fd)
            return
        for name in names:
            if (file := open_regular(fd, name)) is not None:
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        os.fsync(fd)


def restore(ws: Workspace, name: str, raw: bytes) -> None:
    """Make a file durable as it was put, whatever became of it. Raises WorldError."""
    with world_errors(f"restore mailbox/outbox/{name}"), directory(ws.root, "mailbox", "outbox") as fd:
        replace(fd, name, raw, lambda: True)
