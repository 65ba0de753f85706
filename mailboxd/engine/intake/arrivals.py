"""Passes each file that is ready from the inbox to the engine, once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mailboxd.core.times import to_text
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake.archive import InboxFile, stored_name
from mailboxd.engine.intake.interpret import Intake
from mailboxd.errors import MessageError, WorldError
from mailboxd.formats.mailbox.inbox import Arrival, Inbox, Refusal, Scan
from mailboxd.formats.protocol.messages import Parsed

# Rate limit of one sender: messages above it wait in the inbox, none is refused for it
#
# Each sender has a timetable of whole minutes. A message that finds the current minute full is booked into a later one,
# so a flood of 50,000 is read twice, not once a minute, and delays only its sender. The timetable is lost on restart,
# without harm: waiting messages are booked again.
#
# The sender is the one that the message names, so this protects against runaway peers. Against forged senders use
# signatures (`signing.require`).

_MINUTE = 60.0
UNKNOWN_SENDER = ""
"""The sender of all messages that cannot be read."""


@dataclass(slots=True)
class _Bookings:
    """The last minute of a sender's timetable that has bookings, and their sums."""

    minute: int
    messages: int = 0
    size: int = 0


@dataclass(slots=True)
class SenderQuota:
    """One sender may send `messages` and `size` (bytes) per minute; 0: no limit."""

    messages: int = 0
    size: int = 0
    _timetable: dict[str, _Bookings] = field(default_factory=dict)
    _booked: dict[str, float] = field(default_factory=dict)
    """Name of a waiting file -> time from which it may be taken."""
    _minute: int = 0

    def turn(self, sender: str, name: str, size: int, now: float) -> float | None:
        """When to take the file `name` from `sender`, in seconds since 1970; None: now."""
        if not self.messages and not self.size:
            return None
        self._start_minute(int(now // _MINUTE))
        booked = self._booked.get(name)
        if booked is None:
            booked = self._book(sender.lower(), size)
        if booked > now:
            self._booked[name] = booked
            return booked
        self._booked.pop(name, None)
        return None

    def _book(self, sender: str, size: int) -> float:
        """Book the first minute with room, in order; a message above the limit gets a minute for itself."""
        page = self._timetable.setdefault(sender, _Bookings(self._minute))
        full = self.messages and page.messages >= self.messages
        heavy = self.size and page.messages and page.size + size > self.size
        if full or heavy:
            page.minute, page.messages, page.size = page.minute + 1, 0, 0
        page.messages += 1
        page.size += size
        return page.minute * _MINUTE

    def _start_minute(self, minute: int) -> None:
        if minute == self._minute:
            return
        if minute < self._minute:  # the clock was set back: bookings would be far in the future
            self._timetable.clear()
            self._booked.clear()
        self._minute = minute
        self._timetable = {sender: page for sender, page in self._timetable.items() if page.minute >= minute}
        # forget files that were removed meanwhile
        self._booked = {name: at for name, at in self._booked.items() if at > (minute - 2) * _MINUTE}


# Taking arrivals

AT_ONCE = 500
_INCOMPLETE = frozenset({"unterminated", "empty", "length-mismatch"})
"""Errors of a file that may still be written: it is deferred before it is rejected."""
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class Mail:
    """The files read from the inbox at `now`, in seconds since 1970."""

    now: float
    scan: Scan
    arrivals: Sequence[tuple[Arrival, InboxFile, Parsed | MessageError]]


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """When to scan again: at these times (seconds since 1970), or at once if there is `more`."""

    scan_at: list[float]
    more: bool


@dataclass(slots=True)
class Arrivals:
    """The inbox of one workspace. `incomplete`: seconds for which a file that may be unfinished is deferred."""

    engine: Engine
    intake: Intake
    inbox: Inbox
    incomplete: float
    quota: SenderQuota = field(default_factory=SenderQuota)
    require_directories: Callable[[], None] = lambda: None
    """Raises WorldError if mail cannot be moved out of the inbox."""
    is_catching_up: bool = False
    """Mail from before the start is not all taken yet; it may cancel work that is ready."""
    _read_until: float = 0.0
    _is_behind: bool = True

    def read(self, now: float, *, can_file: bool = True) -> Mail | None:
        """Read the files that are ready, outside of any transaction. `now` is seconds since 1970. Raises WorldError.

        With `can_file` false nothing is read, because it could not be moved out of the inbox.
        """
        self._is_behind = True
        if not can_file:
            return None
        self.require_directories()
        scan = self.inbox.scan(now, AT_ONCE)
        files = [(arrival, _file(arrival)) for arrival in scan.arrivals]
        return Mail(now, scan, [(arrival, file, self.intake.parse(file)) for arrival, file in files])

    def take(self, mail: Mail | None) -> IntakeResult:
        """Take what was read; inside a batch. Raises WorldError."""
        if mail is None:
            return IntakeResult([], more=False)
        scan, times = mail.scan, [mail.scan.next_scan_at]
        refused = [(_file(one), one.error) for one in scan.refused]
        names = [file.name for _, file, _ in mail.arrivals] + [file.name for file, _ in refused]
        # what was taken, and not moved because of a crash or an obstacle, waits to be filed
        waiting = self.engine.store.messages.awaiting_filing(names) if names else []
        for arrival, file, parsed in mail.arrivals:
            if (file.name, file.stamp) not in waiting:
                times.append(self._take(arrival, file, parsed, mail.now))
        for file, error in refused:
            if (file.name, file.stamp) not in waiting:
                self.intake.reject(file, error)
        self._read_until, self._is_behind = scan.read_until, scan.read_until < mail.now
        self.is_catching_up = scan.truncated and not scan.read_until
        return IntakeResult([time for time in times if time is not None], scan.truncated)

    def read_until(self) -> str | None:
        """All files that came before this time have been taken, or will not be soon. None: all files."""
        if not self._is_behind:
            return None
        return to_text(self._read_until) if self._read_until else ""

    def _take(self, arrival: Arrival, file: InboxFile, parsed: Parsed | MessageError, now: float) -> float | None:
        """Pass an arrival on, or defer it; return until when (seconds since 1970)."""
        until = arrival.first_seen + self.incomplete
        unfinished = isinstance(parsed, MessageError) and parsed.rule in _INCOMPLETE and now < until
        sender = UNKNOWN_SENDER if isinstance(parsed, MessageError) else parsed.message.from_
        turn = None if unfinished else self.quota.turn(sender, arrival.name, len(arrival.raw), now)
        if turn is not None:
            self.inbox.defer(arrival.name, turn)
            return turn
        if not isinstance(parsed, MessageError):
            try:
                with self.engine.store.savepoint():
                    self.intake.receive(file, parsed)
            except (WorldError, MemoryError):
                raise
            except Exception as bug:
                # must not stop other mail, nor be repeated after every restart
                _log.exception("a bug in mailboxd: %s could not be taken; please report this", arrival.name)
                self.intake.reject(
                    file,
                    MessageError(
                        "internal", f"a bug in mailboxd ({type(bug).__name__}); its log has the details", path=file.name
                    ),
                )
        elif unfinished:
            self.inbox.defer(arrival.name, until)
            return until
        else:
            self.intake.reject(file, parsed)
        return None


def _file(found: Arrival | Refusal) -> InboxFile:
    name, extra = stored_name(found.name)
    stamp = found.stamp
    numbers = {"dev": stamp.dev, "ino": stamp.ino, "size": stamp.size, "mtime_ns": stamp.mtime_ns}
    in_place = isinstance(found, Arrival) and found.in_place
    return InboxFile(name, found.raw, found.sha256, stamp.size, numbers | extra, in_place, found.came)
