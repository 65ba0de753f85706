"""Moving one judged file out of the inbox: claim it, check it, give it its name.

The claim is a rename to a hidden name that depends on nothing but what is moved: from then on no writer reaches the
file by name. If it is not what was judged (a writer replaced it, appended to it, has it open), it goes back and the
judged bytes are written instead. A second rename gives it its name. No rename replaces anything, and every step
looks first for what an earlier run of it left: a kill at any point is mended by a repetition.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from mailboxd.workspace.files import (
    ObstructedError,
    Stamp,
    holds,
    is_being_written,
    look,
    move,
    open_regular,
    publish,
    read_up_to,
)
from mailboxd.workspace.names import clash_name, first_free, numbers_in_use, printable

REASON = ".reason.json"

Taken = Callable[[str], bool]
"""Whether a path (relative to mailbox/) is on record as the place of another file already."""

_STUCK = frozenset({errno.EPERM, errno.EBUSY})
"""What one file may do (immutable, another user's in a sticky directory, a mount point) while all others are well."""


@dataclass(frozen=True)
class Judged:
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
class Filing:
    """One move: which file, to which directory below mailbox/, with which reason beside it."""

    item: Judged
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

    def __init__(self, inbox: int, target: int, filing: Filing) -> None:
        self._inbox = inbox
        self._target = target
        self._filing = filing
        self._where: int | None = None
        self._done: str | None = None
        self._stuck: ObstructedError | None = None

    def claim(self, taken: Taken) -> None:
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


def _is_untouched(inbox: int, filing: Filing) -> bool:
    """Whether the very file still lies in the inbox: then no earlier run has moved it."""
    status = look(inbox, filing.item.name)
    return status is not None and Stamp.of(status) == filing.item.stamp


def _find(target: int, filing: Filing, taken: Taken) -> str | None:
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


def _left_claim(inbox: int, target: int, filing: Filing) -> int | None:
    for where in (target, inbox):
        if look(where, filing.claim) is not None:
            return where
    return None


def _claim(inbox: int, target: int, filing: Filing) -> int | None:
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
            raise ObstructedError(f"cannot move inbox/{printable(item.name)}: {error.strerror}") from error
        raise


def _is_locked_directory(inbox: int, name: str, error: OSError) -> bool:
    # to move a directory takes write permission on itself: without it, it says nothing about the inbox
    status = look(inbox, name)
    return error.errno == errno.EACCES and status is not None and stat.S_ISDIR(status.st_mode)


def _begin_writing(where: int, filing: Filing) -> None:
    with suppress(OSError):  # this is advice
        fd = None if filing.item.raw is None else open_regular(where, filing.claim)
        if fd is not None:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _is_judged(where: int, filing: Filing, *, durable: bool) -> bool:
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


def _put_back(where: int, inbox: int, filing: Filing) -> None:
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


def _write(target: int, filing: Filing) -> str:
    raw = filing.item.raw
    if raw is None:
        raise ObstructedError(f"inbox/{printable(filing.item.name)} is gone, and it was never read")
    return _name(target, filing, lambda name: publish(target, name, raw))


def _name(target: int, filing: Filing, put: Callable[[str], None]) -> str:
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
