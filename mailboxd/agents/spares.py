"""Directories of ended calls, emptied and given to later ones.

To make five files and soon remove them is what a call costs the kernel most. An ext4 without a journal, as small
virtual machines have it, steps over all that were removed in the last minutes to make a new one (`recently_deleted` in
fs/ext4/ialloc.c): after a thousand calls that was two thirds of the daemon's time.

A call must never read what belongs to another one. So a directory is kept only when the kernel says of each of its
files that nobody else has it open: a program that an ended call has left running may still hold its output. Else it is
removed. That it was emptied is not synced, so what a power cut brings back is not believed (`liveness.is_its_own`).
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.agents.callfiles import CALL, OURS, UNUSED, remove


@dataclass(slots=True)
class Spares:
    """The spare directories among those of calls, all below `turns`. Their names begin with a dot."""

    turns: Path
    _names: list[str] = field(default_factory=list)
    _unused: int = 0
    """So many have not been taken since the last `trim`."""

    def take(self, call_id: str) -> None:
        """Let a spare one be the directory of this call, if there is one, and nothing lies there yet."""
        while self._names:
            name = self._names.pop()
            self._unused = min(self._unused, len(self._names))
            try:
                os.rename(self._path(name), self._path(call_id))  # noqa: PTH104 - as in callfiles: this is done per call
            except FileNotFoundError:
                continue  # somebody has tidied up
            except OSError:  # it is there already: the call is prepared a second time
                self._names.append(name)
            return

    def put(self, call_id: str) -> None:
        """Keep the directory of an ended call, emptied, or remove it. Of what it says nothing is needed any more."""
        name = f".{call_id}"
        directory, spare = self._path(call_id), self._path(name)
        try:
            os.rename(directory, spare)  # noqa: PTH104 - at once: half emptied, it would speak for a call
        except FileNotFoundError:
            return  # nothing lies there: a question is discarded before it is asked
        except OSError:
            remove(directory)
            return
        if _emptied(spare):
            self._names.append(name)
        else:
            remove(spare)

    def trim(self) -> frozenset[str]:
        """Forget those that were not needed since the last time, and name those that are kept."""
        del self._names[: self._unused]
        self._unused = len(self._names)
        return frozenset(self._names)

    def _path(self, name: str) -> str:
        return f"{self.turns}/{name}"


def _emptied(directory: str) -> bool:
    """Whether it holds nothing but files of a call, empty now, that nobody has open."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            names = os.listdir(descriptor)  # noqa: PTH208
            is_ours = OURS.issuperset(names) and _rights(os.fstat(descriptor)) == 0o700
            if not (is_ours and all(_is_empty_now(descriptor, name) for name in names)):
                return False
            with suppress(FileNotFoundError):
                os.rename(CALL, UNUSED, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _is_empty_now(dir_fd: int, name: str) -> bool:
    """Empty a file that nobody else has open, or can reach by another name. Raises OSError."""
    file = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode) or _rights(seen) != 0o600 or seen.st_nlink != 1:
            return False
        # A write lease is given only to the one who has the file open alone (F_SETLEASE in fcntl(2)). Who opens it
        # before it is closed here waits for that, and we are told: by a signal that is not SIGIO, which would end us.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        if seen.st_size:
            # Here and not when it is written again: ext4 writes a file to the disk as soon as it is closed after it was
            # cut to nothing (`auto_da_alloc` in ext4(5)); now there is nothing to be written.
            os.ftruncate(file, 0)
        return True
    finally:
        os.close(file)


def _rights(seen: os.stat_result) -> int:
    return stat.S_IMODE(seen.st_mode)
