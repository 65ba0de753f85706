"""Wakes the loop when something changes in mailbox/ or tasks/, with watchdog.

An event only says "look": the loop scans the directories, so a burst of events is one scan, and a lost event costs time
but never a message. One fact is taken from events because nothing else shows it: which files were renamed into the
inbox, and are therefore complete.

mailbox/ is watched as a whole, so that watchdog sees both halves of its own moves from inbox/ to archive/: it holds an
unpaired half back, and all events behind it (docs/decisions/0010-watchdog.md). tasks/ is watched down to the
directories of tasks, and not below: an agent may have a checkout of thousands of directories there.

Some file systems report nothing, and threads die. So the watcher tests itself: the events of a hidden probe file in
inbox/ and tasks/ must arrive within seconds. If they do not, `reason` says so, and the loop scans more often.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

from watchdog import events
from watchdog.observers.api import BaseObserver

from mailboxd.core.entrance import Entrance, Way, claimed_by
from mailboxd.formats.mailbox.files import directory, hidden_name
from mailboxd.formats.mailbox.layout import Workspace, is_temporary
from mailboxd.formats.mailbox.task_files import TASK_FILE
from mailboxd.host.system import system
from mailboxd.host.wakeup import Wake

PROBE_NAME = ".mailboxd-probe"

_PROBE_EVERY = 30.0
"""Seconds between two self-tests, and between two attempts to watch what cannot be watched."""
_PROBE_PATIENCE = 5.0
"""Seconds after which a probe whose events did not arrive has failed."""
_STOP_PATIENCE = 2.0
"""Seconds to wait for an observer's thread. One that hangs is a daemon thread and does no harm."""

# Not opened, modified or closed without writing: reads by mailboxd would wake it, and every write of a slow writer
_EVENTS: list[type[events.FileSystemEvent]] = [
    *(events.FileCreatedEvent, events.FileClosedEvent, events.FileMovedEvent, events.FileDeletedEvent),
    *(events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent),
]
_GONE = (events.FileDeletedEvent, events.DirDeletedEvent)

_LIMITS = {
    errno.ENOSPC: "too many watches: raise them with `sysctl fs.inotify.max_user_watches=524288`",
    errno.EMFILE: "too many inotify instances or open files: `sysctl fs.inotify.max_user_instances=512`, `ulimit -n`",
}


class Watcher(events.FileSystemEventHandler):
    """Pokes `wake` for mail, and for changes of task files.

    It raises nothing because of what cannot be watched: `reason` says why, and the caller scans on a timer. `polls` is
    the reason why watching is pointless; then nothing is watched.
    """

    def __init__(self, ws: Workspace, wake: Wake, polls: str = "") -> None:
        self._root = ws.root
        self._wake = wake
        self._polls = polls
        self._mailbox, self._inbox, self._tasks = str(ws.mailbox), str(ws.inbox), str(ws.tasks)
        self._observer: BaseObserver | None = None
        self._lock = threading.Lock()
        self._arrived: dict[str, Entrance] = {}
        self._is_disturbed = False
        """One of the three directories was created, moved or deleted."""
        self._watched = self._identities()
        self._last_inbox: tuple[int, int] | None = None
        self._inbox_replaced = False
        self._started_at = self._probed_at = 0.0
        self._unconfirmed: set[str] = set()
        """Directories whose probe was not reported yet."""
        self._problems = {self._inbox: "", self._tasks: ""}

    def start(self, now: float) -> None:
        """Start watching. `now` is seconds of the clock that `check` gets too."""
        if not self._polls:
            self._restart(now)

    def check(self, now: float) -> bool:
        """Test that events arrive; watch again where they do not, or where a directory was replaced.

        Returns whether events may have been missed: then scan everything. Call it before a scan, at least every 30
        seconds, every 5 while `reason` is set. Takes microseconds, or half a second to start again.
        """
        if self._polls:
            return False
        if now - self._probed_at >= _PROBE_PATIENCE:
            for path in self._unconfirmed.copy():
                self._problems[path] = self._problems[path] or f"{path} is watched, but {PROBE_NAME} was not reported"
        was_replaced = self._is_disturbed or self._identities() != self._watched
        if was_replaced or (self.reason and not 0 <= now - self._started_at < _PROBE_EVERY):
            self._restart(now)
            return True
        if not self.reason and not 0 <= now - self._probed_at < _PROBE_EVERY:
            self._probe(now)
        return False

    def arrived(self) -> dict[str, Entrance]:
        """How files came into the inbox since the last call, by name: one that was renamed in, and written to
        afterwards, was written in place. Lost events are missing here.
        """
        with self._lock:
            came, self._arrived = self._arrived, {}
            return came

    def inbox_was_replaced(self) -> bool:
        """Whether another directory has become the inbox since the last call, and is watched now."""
        was_replaced, self._inbox_replaced = self._inbox_replaced, False
        return was_replaced

    @property
    def reason(self) -> str:
        """Why changes may go unnoticed, for the operator; empty if all is well."""
        return self._polls or self.problem

    @property
    def polls(self) -> str:
        """Why watching is pointless here; empty if it is not."""
        return self._polls

    @property
    def problem(self) -> str:
        """Why what is to be watched is not; empty if it is, or nothing is to be."""
        return "; ".join(filter(None, self._problems.values()))

    def close(self) -> None:
        """Stop watching. May take half a second."""
        logging.getLogger("watchdog").setLevel(logging.CRITICAL)  # its threads report being stopped as an error
        self._stop()

    def on_any_event(self, event: events.FileSystemEvent) -> None:
        """Called in watchdog's thread. An exception ends that thread, which the self-test notices."""
        is_move = isinstance(event, events.FileSystemMovedEvent)
        source, target = os.fsdecode(event.src_path), os.fsdecode(event.dest_path if is_move else event.src_path)
        folder, _, name = target.rpartition("/")
        if name == PROBE_NAME and folder in self._problems:
            if isinstance(event, events.FileDeletedEvent):  # the last of its events: none is left for the next probe
                self._unconfirmed.discard(folder)
                self._problems[folder] = ""
        elif {source, target} & {self._mailbox, self._inbox, self._tasks}:
            self._is_disturbed = True
            self._wake.poke()
        elif folder == self._inbox:
            if not isinstance(event, _GONE) and not is_temporary(name):
                claimed = claimed_by(source.rpartition("/")[2]) if is_move else ""
                with self._lock:
                    self._arrived[name] = Entrance(None, Way.RENAMED if is_move else Way.IN_PLACE, claimed)
                self._wake.poke_inbox()
        elif not source.endswith(f"/{hidden_name(TASK_FILE)}") and (self._is_task(source) or self._is_task(target)):
            self._wake.poke()

    def _is_task(self, path: str) -> bool:
        """Whether it is a task's directory or its task.md."""
        folder, _, name = path.rpartition("/")
        return folder == self._tasks or (name == TASK_FILE and folder.rpartition("/")[0] == self._tasks)

    def _is_inside_task(self, path: str) -> bool:
        """Whether a directory is inside that of a task, where a whole checkout may be, and no file of ours."""
        folder, _, _ = path.rpartition("/")
        return folder != self._tasks and path.startswith(f"{self._tasks}/")

    def _restart(self, now: float) -> None:
        self._stop()
        self._is_disturbed = False
        self.arrived()  # of a directory that became the inbox, watchdog reports every file as moved
        self._started_at = now
        self._watched = self._identities()
        inbox = self._watched[1]
        if inbox is not None:
            self._inbox_replaced = self._last_inbox not in {None, inbox}
            self._last_inbox = inbox
        try:
            observer = system.observer(self._is_inside_task)
            observer.start()
        except OSError as error:
            self._problems = {path: f"{path} is not watched: {_advice(error)}" for path in self._problems}
            return
        self._observer = observer
        for path, below in (self._mailbox, self._inbox), (self._tasks, self._tasks):
            try:
                observer.schedule(self, path, recursive=True, event_filter=_EVENTS)
            except OSError as error:
                self._problems[below] = f"{below} is not watched: {_advice(error)}"
        self._probe(now)

    def _stop(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            # KeyError: watchdog 6 and 7 lose track when a directory is exchanged for another while they read it
            with suppress(OSError, RuntimeError, KeyError):
                observer.stop()
            observer.join(_STOP_PATIENCE)

    def _probe(self, now: float) -> None:
        self._probed_at = now
        for path in self._problems:
            self._unconfirmed.add(path)
            try:
                with directory(self._root, *Path(path).relative_to(self._root).parts) as fd:
                    with suppress(FileNotFoundError):  # left by a crash
                        os.unlink(PROBE_NAME, dir_fd=fd)
                    os.close(os.open(PROBE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd))
                    os.unlink(PROBE_NAME, dir_fd=fd)
            except OSError as error:
                self._problems[path] = f"whether {path} is watched cannot be tested: {_advice(error)}"

    def _identities(self) -> list[tuple[int, int] | None]:
        """Device and inode of each of the three directories; None where it is missing."""
        return [_identity(path) for path in (self._mailbox, self._inbox, self._tasks)]


def _identity(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.lstat(path)
        return status.st_dev, status.st_ino
    return None


def _advice(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{error.strerror} (make uid {os.geteuid()} its owner and run `chmod u+rwx`)"
    return _LIMITS.get(error.errno or 0, error.strerror or str(error))
