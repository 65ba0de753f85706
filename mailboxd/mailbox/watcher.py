"""Hears that something happened below mailbox/ and tasks/, and says "look": never what, because events get lost.

One thing it says more of, because nothing else shows it: which files came into the inbox by a rename, and so are
complete. A rename that was not heard costs time, nothing else.

Of mailbox/ itself only the replacing of the inbox is heard, and of the inbox only what comes: what leaves it is our
own work. Which of the events matter is decided by their path. That we hear anything at all is never assumed: now and
then a hidden file of our own must be heard.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, BaseSelector
from typing import Any

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
    FileSystemMovedEvent,
)
from watchdog.observers.api import EventDispatcher, EventQueue
from watchdog.observers.inotify import InotifyObserver

from mailboxd.mailbox.files import directory, hidden_name
from mailboxd.mailbox.layout import Workspace, is_temporary
from mailboxd.mailbox.task_files import TASK_FILE

# ---------------------------------------------------------------------------------------------------------------------
# inotify(7) for a few directories, without threads: what the kernel has noted is read by who has time for it.

CLOSE_WRITE, MOVED_TO, CREATE = 0x8, 0x80, 0x100
DELETE_SELF, MOVE_SELF, IGNORED = 0x400, 0x800, 0x8000
OVERFLOW = 0x4000
"""The kernel had no room for all that happened."""
_ONLY_DIRECTORY, _DO_NOT_FOLLOW = 0x1000000, 0x2000000

_EVENT = struct.Struct("iIII")
_READ_AT_ONCE = 1 << 14
_LONGEST = _EVENT.size + 256
"""Bytes of an event: a name has 255 at most, and a zero behind it."""
_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """An inotify instance, which a selector can wait for. Raises OSError where the kernel refuses one."""

    def __init__(self) -> None:
        self._fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _refused()

    def fileno(self) -> int:
        return self._fd

    def watch(self, directory: Path, mask: int) -> int:
        """The number under which `events` speaks of this directory. A second call replaces the mask. Raises OSError."""
        number = _libc.inotify_add_watch(self._fd, os.fsencode(directory), mask | _ONLY_DIRECTORY | _DO_NOT_FOLLOW)
        if number < 0:
            raise _refused()
        return int(number)

    def events(self) -> Iterator[tuple[int, int, bytes]]:
        """What has happened and was not read yet: in which directory, what, and the name in it. Waits for nothing."""
        with suppress(BlockingIOError):
            full = True
            while full:  # else there was no more, which to ask again costs as much as to hear of one file
                raw = os.read(self._fd, _READ_AT_ONCE)
                full, at = len(raw) > _READ_AT_ONCE - _LONGEST, 0
                while at < len(raw):
                    number, mask, _, length = _EVENT.unpack_from(raw, at)
                    at += _EVENT.size + length
                    yield number, mask, raw[at - length : at].rstrip(b"\0")

    def close(self) -> None:
        os.close(self._fd)


def _refused() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


# ---------------------------------------------------------------------------------------------------------------------
# Hearing that something happened below two directories, and the proof that we hear.
#
# The inbox is heard by inotify itself, in the daemon's own thread: from the move of a file to the daemon there is one
# wake-up and no queue. tasks/ is a tree that grows, so it is left to watchdog, which has threads of its own.

PROBE_NAME = ".mailboxd-probe"
_PROBE = PROBE_NAME.encode()

_PROBE_EVERY = 30.0
"""Seconds between two proofs that we hear, and between two attempts to hear again."""

_STOP_PATIENCE = 2.0
"""Seconds for an observer to end. One that stumbled waits for ever for an event, hears nothing, and harms nobody."""
_PROBE_PATIENCE = 5.0
"""Seconds until an unheard probe means that we are deaf."""

# Not "opened", "modified" or "closed without writing": our own reading would wake us, and a writer at every write
_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileClosedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]

_ARRIVES = CREATE | CLOSE_WRITE | MOVED_TO
"""What is heard of the inbox: what leaves it is our own work."""
_GOES = DELETE_SELF | MOVE_SELF
_LOST = _GOES | IGNORED

_REMEMBERED = 100_000
"""Names of files that were renamed in while nobody looked at the inbox. Of more the rest counts as written in place."""

_LIMITS = {
    errno.ENOSPC: "too many watches: raise them with `sysctl fs.inotify.max_user_watches=524288`",
    errno.EMFILE: "too many inotify instances or open files: `sysctl fs.inotify.max_user_instances=512`, `ulimit -n`",
}

_Identity = tuple[tuple[int, int], ...] | None


class Ear(ABC):
    """Listens to what happens in `probed` and to the replacing of `top`, both below `root`; proven by a file there."""

    def __init__(self, root: Path, top: Path, probed: Path) -> None:
        self.root, self.top, self.probed = root, top, probed
        self._paths = [str(path) for path in dict.fromkeys((top, probed))]
        self.heard = threading.Event()
        """The last probe was."""
        self._listens_to: _Identity = None
        self._known: _Identity = None
        self.is_disturbed = False
        """Another directory may be there by now."""
        self._tried_at = 0.0
        self._probed_at = 0.0
        self._deaf = ""
        self._failed = ""

    @property
    def reason(self) -> str:
        return self._failed or self._deaf

    def arm(self, now: float) -> None:
        self._tried_at = now
        self.is_disturbed = False
        self._listens_to = self._identity()
        try:
            self.listen()
        except OSError as error:
            self._deaf = f"{self.probed} is not watched: {_advice(error)}"
        else:
            self._probe(now)
        self._known = self._known or self._listens_to

    @abstractmethod
    def listen(self) -> None:
        """Begin to. Raises OSError."""

    @abstractmethod
    def disarm(self) -> None:
        """End what `listen` began, also half-way."""

    @property
    @abstractmethod
    def is_armed(self) -> bool: ...

    def was_replaced(self) -> bool:
        before, self._known = self._known, self._listens_to or self._known
        return before != self._known

    def check(self, now: float) -> bool:
        replaced = self.is_disturbed or self._identity() != self._listens_to
        unheard = self.is_armed and not self.heard.is_set() and now - self._probed_at >= _PROBE_PATIENCE
        if unheard and not self._deaf:
            self._deaf = f"{self.top} is watched, but {PROBE_NAME} in {self.probed} was not heard"
        if not replaced and not self._deaf:
            if not 0 <= now - self._probed_at < _PROBE_EVERY:
                self._probe(now)
            return False
        if replaced or not 0 <= now - self._tried_at < _PROBE_EVERY:
            self.disarm()
            self.arm(now)
            return True
        return False

    def _identity(self) -> _Identity:
        """Which directories stand under our paths now; None if one is missing."""
        with suppress(OSError):
            stats = [os.lstat(path) for path in self._paths]
            return tuple((status.st_dev, status.st_ino) for status in stats)
        return None

    def _probe(self, now: float) -> None:
        self._probed_at = now
        self.heard.clear()
        try:
            with directory(self.root, *self.probed.relative_to(self.root).parts) as fd:
                with suppress(FileNotFoundError):  # a crash left it
                    os.unlink(PROBE_NAME, dir_fd=fd)
                os.close(os.open(PROBE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd))
                os.unlink(PROBE_NAME, dir_fd=fd)
        except OSError as error:
            self._deaf = f"whether {self.probed} is watched cannot be proven: {_advice(error)}"


def _advice(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{error.strerror} (make uid {os.geteuid()} its owner and run `chmod u+rwx`)"
    return _LIMITS.get(error.errno or 0, error.strerror or str(error))


class InboxEar(Ear):
    """Hears of the inbox what comes into it, and that it is another one; in the thread that calls `hear`.

    The selector is told of it under the key `as_key`, as long as there is something to wait for.
    """

    def __init__(self, ws: Workspace, selector: BaseSelector, as_key: object) -> None:
        super().__init__(ws.root, ws.mailbox, ws.inbox)
        self._selector = selector
        self._as_key = as_key
        self._inotify: Inotify | None = None
        self._of_inbox = -1
        """The number of its watch; -1: it is not watched."""
        self._renamed: set[bytes] = set()

    @property
    def is_armed(self) -> bool:
        return self._of_inbox >= 0

    def listen(self) -> None:
        self._inotify = Inotify()
        self._selector.register(self._inotify, EVENT_READ, self._as_key)
        # Without an inbox its coming is heard; with one, what is made beside it would wake us for nothing.
        self._inotify.watch(self.top, _GOES | CREATE | MOVED_TO)
        self._of_inbox = self._inotify.watch(self.probed, _ARRIVES | _GOES)
        self._inotify.watch(self.top, _GOES)

    def disarm(self) -> None:
        """What is not read yet is forgotten with it: who calls this looks at the inbox next."""
        if self._inotify is not None:
            self._selector.unregister(self._inotify)
            self._inotify.close()
        self._inotify, self._of_inbox = None, -1
        self._renamed.clear()

    def hear(self) -> bool:
        """Take what has happened; whether there may be mail. A temporary name is none."""
        mail = False
        for number, mask, name in () if self._inotify is None else self._inotify.events():
            if mask & OVERFLOW:
                mail = True
                self._renamed.clear()  # what was lost may say that somebody writes there again
            elif mask & _LOST or number != self._of_inbox:
                lost = bool(mask & _LOST) or name == os.fsencode(self.probed.name)
                self.is_disturbed = self.is_disturbed or lost
                mail = mail or lost
            elif name == _PROBE:
                self._deaf = ""
                self.heard.set()
            elif not is_temporary(os.fsdecode(name)):
                mail = True
                self._note(name, mask)
        return mail

    def renamed(self) -> set[str]:
        """The names that files got by a rename, each said once; not where the name was written to after that.

        What was not heard (an overflow, nobody listened) is missing here.
        """
        names, self._renamed = self._renamed, set()
        return {os.fsdecode(name) for name in names}

    def _note(self, name: bytes, mask: int) -> None:
        if not mask & MOVED_TO:
            self._renamed.discard(name)
        elif len(self._renamed) < _REMEMBERED:
            self._renamed.add(name)

    def _probe(self, now: float) -> None:
        """Heard at once or not at all: the kernel notes what happens while it happens. Mail is not told then, for who
        has us prove that we hear looks at the inbox next."""
        self.hear()  # so that there is room for one more
        super()._probe(now)
        self.hear()


class _Straight(EventQueue):
    """Has each event heard in the thread that brings it: a queue and one more thread made everything later."""

    def __init__(self, hear: Callable[[FileSystemEvent], None]) -> None:
        super().__init__()
        self._hear = hear

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is EventDispatcher.stop_event:
            super().put(item, block, timeout)
        else:
            self._hear(item[0])


class _Observer(InotifyObserver):
    def __init__(self, hear: Callable[[FileSystemEvent], None]) -> None:
        super().__init__()
        self._event_queue = _Straight(hear)


class TasksEar(Ear, FileSystemEventHandler):
    """Hears what happens to task files, and calls `poke` from a thread of watchdog's."""

    def __init__(self, ws: Workspace, poke: Callable[[], None]) -> None:
        super().__init__(ws.root, ws.tasks, ws.tasks)
        self._poke = poke
        self._observer: InotifyObserver | None = None

    @property
    def is_armed(self) -> bool:
        return self._observer is not None

    def dispatch(self, event: FileSystemEvent) -> None:
        """Runs in a thread of watchdog's, which an exception would end for ever and in silence."""
        try:
            paths = {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)}
            if f"{self.top}/{PROBE_NAME}" in paths:
                if isinstance(event, FileDeletedEvent):  # the last of a probe's events: none is left for the next one
                    self._deaf = ""
                    self.heard.set()
            elif str(self.top) in paths:
                self.is_disturbed = True
                self._poke()
            elif _concerns_tasks(event, self.top):
                self._poke()
        except Exception as error:
            self._failed = f"the watcher of {self.top} failed: {error!r}"

    def listen(self) -> None:
        try:
            self._observer = _Observer(self.dispatch)
            self._observer.schedule(self, str(self.top), recursive=True, event_filter=_EVENTS)
            self._observer.start()
        except OSError:
            self.disarm()
            raise

    def disarm(self) -> None:
        observer, self._observer = self._observer, None
        if observer is None:
            return
        # its parts may have died before, or have never lived; and its books are wrong (KeyError) when a directory was
        # exchanged for another while it read them (measured with watchdog 6 and 7)
        with suppress(OSError, RuntimeError, KeyError):
            observer.stop()
        if observer.is_alive():
            observer.join(_STOP_PATIENCE)


def _concerns_tasks(event: FileSystemEvent, tasks: Path) -> bool:
    """A task's directory or its task.md came, changed or went, and it was not our own rendering."""
    moved = isinstance(event, FileSystemMovedEvent)
    source, last = os.fsdecode(event.src_path), os.fsdecode(event.dest_path if moved else event.src_path)
    if source.endswith("/" + hidden_name(TASK_FILE)):
        return False
    below = [path.removeprefix(f"{tasks}/").split("/") for path in (source, last)]
    return any(len(names) == 1 or (len(names) == 2 and names[1] == TASK_FILE) for names in below)


# ---------------------------------------------------------------------------------------------------------------------
# Hears that something happened below mailbox/ and tasks/, and says "look": never what, because events get lost.


class Watcher:
    """Says that there may be mail, and calls `poke` (from another thread) whenever a task file may have changed.

    It stands in `selector` as a key's `data`: what is ready there is for `hear`. `poke` must only set a flag or write a
    byte. Nothing here raises because of what the directories look like: what cannot be watched has to be scanned on a
    timer, and `reason` says why. `polls`: why it is no use to listen at all.
    """

    def __init__(self, ws: Workspace, selector: BaseSelector, poke: Callable[[], None], polls: str = "") -> None:
        self._inbox = InboxEar(ws, selector, self)
        self._ears: tuple[Ear, ...] = () if polls else (self._inbox, TasksEar(ws, poke))
        self._polls = polls

    def start(self, now: float) -> None:
        """Begins to listen. `now` is seconds, of any clock that is used for `check` too."""
        for ear in self._ears:
            ear.arm(now)

    def hear(self) -> bool:
        """Takes what happened around the inbox since it was called last; whether it is to be looked at."""
        return self._inbox.hear()

    def renamed(self) -> set[str]:
        """The names that were renamed into the inbox, as far as `hear` was called, and not written to since."""
        return self._inbox.renamed()

    @property
    def is_disturbed(self) -> bool:
        """Whether another directory may be the inbox now: then `check` is due."""
        return self._inbox.is_disturbed

    def check(self, now: float) -> bool:
        """Proves that we still hear, and listens anew where we do not or a directory was replaced.

        True: something may have been missed, scan now. To be called before a look at the inbox, for what is heard
        meanwhile is not said by `hear`; every 30 seconds at least, every 5 while not `healthy`, and when disturbed.
        Takes microseconds if all is well, half a second if not.
        """
        missed = [ear.check(now) for ear in self._ears]
        return any(missed)

    def inbox_was_replaced(self) -> bool:
        """Whether the inbox is another directory than at the last time of asking, and is listened to anew."""
        return any(ear.was_replaced() for ear in self._ears[:1])

    @property
    def reason(self) -> str:
        """Why we are deaf, in a sentence for the operator; empty if we are not."""
        return self._polls or "; ".join(ear.reason for ear in self._ears if ear.reason)

    @property
    def healthy(self) -> bool:
        """Whether, as far as is known, every change is heard."""
        return not self.reason

    def close(self) -> None:
        """Stops listening. May take half a second."""
        # Its threads may notice between two steps that they are to end, and call that an error.
        logging.getLogger("watchdog").setLevel(logging.CRITICAL)
        for ear in self._ears:
            ear.disarm()
