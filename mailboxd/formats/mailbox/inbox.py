"""Scans the inbox: what is in it, and which files are ready to be read.

The directory is the truth: a scan lists all of it, and reads as much as its caller can handle. It changes nothing on
disk. What it remembers between scans (when a file was first seen) can be lost without harm.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mailboxd.core.entrance import UNKNOWN, Entrance, Way
from mailboxd.core.sanitize import for_file_name
from mailboxd.errors import MessageError
from mailboxd.formats.mailbox.files import Stamp, directory, lstat, open_regular, read_up_to, refusal
from mailboxd.formats.mailbox.layout import Workspace, is_temporary
from mailboxd.formats.protocol.left_aside import declares_sender, left_aside
from mailboxd.host.process import owner
from mailboxd.host.system import system

# Reading a file only when no process is still writing it


@dataclass(frozen=True, slots=True)
class NotReady:
    """The file cannot be read yet. `until`: when to try again (seconds since 1970); None: when it changes."""

    until: float | None = None
    denied: bool = False
    """We have no permission to read it."""
    is_settling: bool = False
    """It will be read within seconds, and may hold a reply that a task waits for."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All bytes of a file, and the uid of its owner, by the descriptor that they were read from."""

    raw: bytes
    uid: int


@dataclass(frozen=True, slots=True)
class QuietPeriod:
    """Seconds a file must have been unchanged: if the kernel says that no writer has it open, and if it cannot say.

    A closed file can be opened again, as between two `echo ... >> file`.
    """

    closed: float
    unknown: float


def read_stable(
    dir_fd: int, name: str, seen: Stamp, quiet_since: float, now: float, patience: QuietPeriod
) -> Whole | NotReady:
    """Return the whole file if no writer has it open, it was quiet for long enough, and its stamp is still `seen`.

    `quiet_since` and `now` are seconds since 1970. The kernel does not say whether files of other users are open, and
    on some file systems it never does. Reads at most as many bytes as `seen` has.
    """
    if now < quiet_since + patience.closed:
        return NotReady(quiet_since + patience.closed)
    try:
        fd = open_regular(dir_fd, name)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM}:
            return NotReady(denied=True)
        raise
    if fd is None:
        return NotReady(now)
    try:
        written = system.is_being_written(fd)
        if written:
            return NotReady()
        if written is None and now < quiet_since + patience.unknown:
            return NotReady(quiet_since + patience.unknown)
        raw = read_up_to(fd, seen.size + 1)
        status = os.fstat(fd)
        if Stamp.of(status) != seen or len(raw) != seen.size:
            return NotReady(now + patience.unknown)
        return Whole(raw, status.st_uid)
    finally:
        os.close(fd)


# Scanning the inbox

_READ_AT_ONCE = 16 << 20
"""Bytes of messages that one scan reads, give or take one message."""

_REMEMBERED = 100_000
"""Names remembered at a time. The rest of a larger inbox is seen when these are gone."""

_COMPLETE = QuietPeriod(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A complete file, ready to be parsed. `first_seen` is seconds since 1970, by this machine's clock.

    `in_place`: it is not known to have been renamed in, so more may still be appended.
    """

    name: str
    raw: bytes
    sha256: str
    stamp: Stamp
    first_seen: float
    in_place: bool = False
    came: Entrance = UNKNOWN


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file that cannot be a message whatever it contains. `raw` and `sha256` are None if it was not read.

    Only here may `name` be invalid text (rule `bad-name`); the error's `path` is always valid.
    """

    name: str
    error: MessageError
    stamp: Stamp
    raw: bytes | None = None
    sha256: str | None = None
    came: Entrance = UNKNOWN


@dataclass(slots=True)
class Scan:
    """The result of one scan. Handle arrivals and refusals in their order."""

    arrivals: list[Arrival] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    next_scan_at: float | None = None
    """When a waiting file may become ready without a change (seconds since 1970); None: never."""
    truncated: bool = False
    """More may be ready: scan again as soon as this is handled."""
    read_until: float = 0.0
    """All that came before this time (seconds since 1970) was read, or will not be read soon; 0: unknown."""


@dataclass(slots=True)
class _Known:
    ino: int
    first_seen: float
    came_after: float
    """Time of the scan before the one that first saw it; 0: there was none."""
    stamp: Stamp | None = None
    unchanged_since: float = 0.0
    deferred: float | None = None
    renamed: bool = False
    """It was renamed into place and has not changed since: it is complete."""
    way: Way | None = None
    """What was reported of its arrival; None: nothing was."""
    claimed: str = ""
    is_left: bool = False
    """It is no message, by its name and its beginning, and stays where it is."""

    def hear(self, came: Entrance) -> None:
        """Take over what was reported of its arrival."""
        self.renamed = self.renamed or came.way is Way.RENAMED
        if came.way is not None:
            self.way, self.claimed = came.way, came.claimed

    def came(self, uid: int, now: float) -> Entrance:
        unreported = Way.UNSEEN if self.came_after else Way.AT_START
        return Entrance(owner(uid, now), self.way or unreported, self.claimed)


class Inbox:
    """The inbox of one workspace.

    `arrived` returns what was reported of the files that came since its last call, by name. Only a rename proves that a
    file is complete. Any other file must be unchanged for `settle_seconds`, and twice as long where the kernel cannot
    say whether it is being written.
    `incomplete_seconds`: how long an empty or unreadable file is left before it is refused.
    `max_bytes`: a larger file is refused unread.
    """

    def __init__(
        self,
        ws: Workspace,
        arrived: Callable[[], Mapping[str, Entrance]] = dict,
        *,
        settle_seconds: float = 1.0,
        incomplete_seconds: float = 60.0,
        max_bytes: int = 1 << 20,
    ) -> None:
        self._ws = ws
        self._arrived = arrived
        self._patience = QuietPeriod(settle_seconds, 2 * settle_seconds)
        self._incomplete = incomplete_seconds
        self._max_bytes = max_bytes
        self._known: dict[str, _Known] = {}
        self._scanned_at = 0.0

    def scan(self, now: float, limit: int) -> Scan:
        """List the inbox and read up to `limit` files that are ready, fewer if they are large.

        Files seen by an earlier scan come first, then by (mtime, name), so a flood does not overtake what waits.
        `now` is seconds since 1970. Raises WorldError if the inbox is missing, a link, or unreadable.
        """
        try:
            with directory(self._ws.root, "mailbox", "inbox") as fd:
                has_room = self._list(fd, now)
                scan = Scan(read_until=now)
                self._take(fd, now, limit, scan)
                self._scanned_at = now
        except OSError as error:
            raise refusal(f"read the inbox {self._ws.inbox}", error) from error
        if not has_room and (scan.arrivals or scan.refused):
            scan.truncated = True
        return scan

    def defer(self, name: str, until: float) -> None:
        """Leave a file of the last scan alone until `until` (seconds since 1970), unless it changes before.

        For a file that is to be taken later: it is unfinished, its sender is over quota, or it cannot be moved. Not
        remembered across restarts.
        """
        if name in self._known:
            self._known[name].deferred = until

    def _list(self, fd: int, now: float) -> bool:
        """Update what is known; return whether there was room for all of it."""
        with os.scandir(fd) as entries:
            present = {entry.name: entry.inode() for entry in entries}
        self._known = {name: kept for name, kept in self._known.items() if present.get(name) == kept.ino}
        reported = self._arrived()
        for name, came in reported.items():
            if name in self._known:
                self._known[name].hear(came)
        room = max(0, _REMEMBERED - len(self._known))
        fresh = [name for name in present if name not in self._known and not is_temporary(name)]
        arrived = []
        for name in fresh[:room]:
            status = lstat(fd, name)
            if status is not None:
                known = _Known(status.st_ino, now, self._scanned_at, Stamp.of(status), now)
                known.hear(reported.get(name, UNKNOWN))
                if not self._scanned_at:  # it may be old; its writer can set its mtime, but not its ctime
                    known.unchanged_since = min(now, max(status.st_mtime, status.st_ctime))
                arrived.append((status.st_mtime_ns, name, known))
        arrived.sort(key=lambda item: item[:2])
        self._known.update((name, known) for _, name, known in arrived)
        return len(fresh) <= room

    def _take(self, fd: int, now: float, limit: int, scan: Scan) -> None:
        size = 0
        for name, known in self._known.items():
            if len(scan.arrivals) + len(scan.refused) >= limit or size >= _READ_AT_ONCE:
                scan.truncated, scan.read_until = True, min(scan.read_until, known.came_after)
                return
            match self._examine(fd, name, known, now):
                case Arrival() as arrival:
                    scan.arrivals.append(arrival)
                    size += len(arrival.raw)
                case Refusal() as refusal:
                    scan.refused.append(refusal)
                case NotReady() as waiting:
                    if waiting.until is not None:
                        scan.next_scan_at = min(waiting.until, scan.next_scan_at or waiting.until)
                    if waiting.is_settling:
                        scan.read_until = min(scan.read_until, known.came_after)
                case None:
                    pass

    def _examine(self, fd: int, name: str, known: _Known, now: float) -> Arrival | Refusal | NotReady | None:
        status = lstat(fd, name)
        if status is None:
            return None
        stamp = Stamp.of(status)
        if stamp != known.stamp:
            known.stamp, known.unchanged_since, known.deferred = stamp, now, None
            known.renamed = known.is_left = False
            if known.way is Way.RENAMED:  # and written to afterwards
                known.way, known.claimed = Way.IN_PLACE, ""
        known.unchanged_since = min(known.unchanged_since, now)  # a clock set back must not prolong the wait
        if known.deferred is not None and now < known.deferred:
            return NotReady(known.deferred)
        if known.is_left:
            return None
        error = self._unread_problem(name, status)
        if error is not None:
            return Refusal(name, error, stamp, came=known.came(status.st_uid, now))
        patience = _COMPLETE if known.renamed else self._patience
        content = read_stable(fd, name, stamp, known.unchanged_since, now, patience)
        if isinstance(content, NotReady) or not content.raw:
            return self._unready(name, known, status, content, now)
        raw = content.raw
        known.is_left = bool(left_aside(name)) and not declares_sender(raw)
        if known.is_left:
            return None
        digest, came = hashlib.sha256(raw).hexdigest(), known.came(content.uid, now)
        return Arrival(name, raw, digest, stamp, known.first_seen, in_place=not known.renamed, came=came)

    def _unread_problem(self, name: str, status: os.stat_result) -> MessageError | None:
        if stat.S_ISREG(status.st_mode) and status.st_size <= self._max_bytes and for_file_name(name) == name:
            return None
        path = for_file_name(name)
        if stat.S_ISLNK(status.st_mode):
            return MessageError("symlink", "it is a symbolic link", "Send the file itself.", path)
        if not stat.S_ISREG(status.st_mode):
            kind = stat.filemode(status.st_mode)[0]
            what = "it is a directory" if kind == "d" else f"it is not a file (type {kind!r})"
            return MessageError("not-regular", what, "Send a regular file.", path)
        if status.st_size > self._max_bytes:
            problem = f"it has {status.st_size} bytes, more than {self._max_bytes}"
            return MessageError("too-large", problem, "Send a shorter text that names the large file.", path)
        problem = "its name is not UTF-8, or has control characters"
        return MessageError("bad-name", problem, "Send it under a plain name such as task.md.", path)

    def _unready(
        self, name: str, known: _Known, status: os.stat_result, why: NotReady | Whole, now: float
    ) -> Refusal | NotReady:
        """A file that cannot be read yet, or is empty. If that stays so for long enough, it is refused."""
        path, deadline = for_file_name(name), known.unchanged_since + self._incomplete
        if isinstance(why, NotReady) and not why.denied:
            # limited: a file that is written endlessly must not keep a lease from expiring
            is_settling = why.until is not None and now < known.first_seen + self._incomplete
            return NotReady(why.until, is_settling=is_settling)
        if now < deadline:
            return NotReady(deadline)
        stamp = Stamp.of(status)
        if isinstance(why, NotReady):
            hint = "Make it readable (`chmod a+r`) before you move it in."
            error = MessageError("unreadable", f"uid {os.geteuid()} may not read it", hint, path)
            return Refusal(name, error, stamp, came=known.came(status.st_uid, now))
        error = MessageError("empty", "it is empty", "Write it under a hidden name, then rename it.", path)
        return Refusal(name, error, stamp, b"", hashlib.sha256(b"").hexdigest(), known.came(why.uid, now))
