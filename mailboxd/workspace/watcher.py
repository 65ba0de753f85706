"""Hears that something happened below mailbox/ and tasks/, and says "look": never what, because events get lost.

Of mailbox/ itself only the replacing of the inbox is heard, and of the inbox only what comes: what leaves it is our
own work. To watchdog each such event costs more than the move itself, and it holds up all later ones by half a second
to see where the file went. Which of the events matter is decided by their path. That we hear anything at all is never
assumed: now and then a hidden file of our own must be heard.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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
from watchdog.observers.inotify import InotifyEmitter, InotifyObserver
from watchdog.observers.inotify_c import InotifyConstants

from mailboxd.workspace.files import directory, hidden_name
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.names import is_temporary
from mailboxd.workspace.taskfiles import TASK_FILE

PROBE_NAME = ".mailboxd-probe"

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

_ARRIVALS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileClosedEvent,
    FileDeletedEvent,  # of the probe
    DirCreatedEvent,
    DirDeletedEvent,
]
"""What is heard of the inbox: without moves, so that it does not matter where a file came from."""

_LIMITS = {
    errno.ENOSPC: "too many watches: raise them with `sysctl fs.inotify.max_user_watches=524288`",
    errno.EMFILE: "too many inotify instances or open files: `sysctl fs.inotify.max_user_instances=512`, `ulimit -n`",
}


_Identity = tuple[tuple[int, int], ...] | None


class Watcher:
    """Calls `poke` (from another thread) whenever an inbox or a task file may have changed.

    `poke` must only set a flag or write a byte. Nothing here raises because of what the directories look like: what
    cannot be watched has to be scanned on a timer, and `reason` says why. `polls`: why it is no use to listen at all.
    `mail` is called in place of `poke` where it was the inbox: tasks/ may hold a lot that need not be looked at then.
    """

    def __init__(
        self, ws: Workspace, poke: Callable[[], None], polls: str = "", mail: Callable[[], None] | None = None
    ) -> None:
        inbox = _Tree(ws.root, ws.mailbox, ws.inbox, lambda event: _concerns_inbox(event, ws.inbox))
        tasks = _Tree(ws.root, ws.tasks, ws.tasks, lambda event: _concerns_tasks(event, ws.tasks), recursive=True)
        self._ears: tuple[_Ear, ...] = () if polls else (_Ear(inbox, mail or poke), _Ear(tasks, poke))
        self._polls = polls

    def start(self, now: float) -> None:
        """Begins to listen. `now` is seconds, of any clock that is used for `check` too."""
        for ear in self._ears:
            ear.arm(now)

    def check(self, now: float) -> bool:
        """Proves that we still hear, and listens anew where we do not or a directory was replaced.

        True: something may have been missed, scan now. To be called at every poke, every 30 seconds at least, and every
        5 while not `healthy`. Takes microseconds if all is well, half a second if not.
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


@dataclass(frozen=True, slots=True)
class _Tree:
    """What one ear listens to, proven by a file in `probed`; both directories lie below the workspace `root`.

    The whole tree below `top` when it is `recursive`; else what comes into `probed`, and what happens in `top` itself.
    """

    root: Path
    top: Path
    probed: Path
    concerns: Callable[[FileSystemEvent], bool]
    recursive: bool = False


class _Emitter(InotifyEmitter):
    """Asks the kernel for IN_MOVED_FROM only where somebody wants to hear of moves; watchdog's asks always."""

    def get_event_mask_from_filter(self) -> Any:
        mask = super().get_event_mask_from_filter()
        wanted: Iterable[type[FileSystemEvent]] = self._event_filter or ()
        return mask if FileMovedEvent in wanted else type(mask)(mask & ~InotifyConstants.IN_MOVED_FROM)


class _Straight(EventQueue):
    """Has each event heard in the thread that brings it: a queue and one more thread made every message later."""

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
        self._emitter_class = _Emitter
        self._event_queue = _Straight(hear)


class _Ear(FileSystemEventHandler):
    def __init__(self, tree: _Tree, poke: Callable[[], None]) -> None:
        self._tree = tree
        self._poke = poke
        self._observer: InotifyObserver | None = None
        self._listens_to: _Identity = None
        self._known: _Identity = None
        self._disturbed = False
        self._tried_at = 0.0
        self._probed_at = 0.0
        self._heard = threading.Event()
        self._deaf = ""
        self._failed = ""

    @property
    def reason(self) -> str:
        return self._failed or self._deaf

    def dispatch(self, event: FileSystemEvent) -> None:
        """Runs in a thread of watchdog's, which an exception would end for ever and in silence."""
        try:
            paths = {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)}
            if f"{self._tree.probed}/{PROBE_NAME}" in paths:
                if _is_deletion(event):  # the last of a probe's events: none of them is left for the next probe
                    self._deaf = ""
                    self._heard.set()
            elif paths & {str(self._tree.top), str(self._tree.probed)}:
                self._disturbed = True
                self._poke()
            elif self._tree.concerns(event):
                self._poke()
        except Exception as error:
            self._failed = f"the watcher of {self._tree.top} failed: {error!r}"

    def arm(self, now: float) -> None:
        self._tried_at = now
        self._disturbed = False
        self._listens_to = self._identity()
        try:
            self._observer = _Observer(self.dispatch)
            self._observer.schedule(self, str(self._tree.top), recursive=self._tree.recursive, event_filter=_EVENTS)
            if not self._tree.recursive:
                self._observer.schedule(self, str(self._tree.probed), event_filter=_ARRIVALS)
            self._observer.start()
        except OSError as error:
            self.disarm()
            self._deaf = f"{self._tree.probed} is not watched: {_LIMITS.get(error.errno or 0, error.strerror)}"
        else:
            self._probe(now)
        self._known = self._known or self._listens_to

    def was_replaced(self) -> bool:
        before, self._known = self._known, self._listens_to or self._known
        return before != self._known

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

    def check(self, now: float) -> bool:
        replaced = self._disturbed or self._identity() != self._listens_to
        unheard = self._observer is not None and not self._heard.is_set() and now - self._probed_at >= _PROBE_PATIENCE
        if unheard and not self._deaf:
            self._deaf = f"{self._tree.top} is watched, but {PROBE_NAME} in {self._tree.probed} was not heard"
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
            stats = [path.lstat() for path in (self._tree.top, self._tree.probed)]
            return tuple((status.st_dev, status.st_ino) for status in stats)
        return None

    def _probe(self, now: float) -> None:
        self._probed_at = now
        self._heard.clear()
        try:
            with directory(self._tree.root, *self._tree.probed.relative_to(self._tree.root).parts) as fd:
                with suppress(FileNotFoundError):  # a crash left it
                    os.unlink(PROBE_NAME, dir_fd=fd)
                os.close(os.open(PROBE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd))
                os.unlink(PROBE_NAME, dir_fd=fd)
        except OSError as error:
            self._deaf = f"whether {self._tree.probed} is watched cannot be proven: {error.strerror}"
            if error.errno in (errno.EACCES, errno.EPERM):
                self._deaf += f" (we may not write there: make uid {os.geteuid()} its owner and run `chmod u+rwx`)"


def _concerns_inbox(event: FileSystemEvent, inbox: Path) -> bool:
    """Something came into the inbox or was finished there. What leaves it, and temporary names, do not matter."""
    parent, _, name = _last_path(event).rpartition("/")
    return parent == str(inbox) and not _is_deletion(event) and not is_temporary(name)


def _concerns_tasks(event: FileSystemEvent, tasks: Path) -> bool:
    """A task's directory or its task.md came, changed or went, and it was not our own rendering."""
    source, last = os.fsdecode(event.src_path), _last_path(event)
    if source.endswith("/" + hidden_name(TASK_FILE)):
        return False
    below = [path.removeprefix(f"{tasks}/").split("/") for path in (source, last)]
    return any(len(names) == 1 or (len(names) == 2 and names[1] == TASK_FILE) for names in below)


def _last_path(event: FileSystemEvent) -> str:
    return os.fsdecode(event.dest_path if isinstance(event, FileSystemMovedEvent) else event.src_path)


def _is_deletion(event: FileSystemEvent) -> bool:
    return isinstance(event, (FileDeletedEvent, DirDeletedEvent))
