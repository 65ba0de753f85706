"""From the inbox to the engine: each file that is ready is judged once, however often it is seen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from mailboxd.core.times import to_text
from mailboxd.engine.engine import Engine
from mailboxd.errors import MessageError, WorldError
from mailboxd.intake.archive import InboxFile, stored_name
from mailboxd.intake.interpret import Intake
from mailboxd.mailbox.inbox import Arrival, Inbox, Refusal

# ---------------------------------------------------------------------------------------------------------------------
# How much one sender may bring in a minute. What is more waits in the inbox; nothing is refused for its number.
#
# Every message gets a place in a timetable of whole minutes, its sender's own: one that finds this minute full is told
# which minute is its. So a flood of 50,000 is read twice, not once a minute, and delays nobody but its sender. The
# timetable is lost with the process, without harm: then the messages that still wait are given places anew.
#
# A sender is who a message says it is from, and any user who can write to the inbox can say anything, so this protects
# from peers that have run wild. From one that lies, signatures do (`signing.require`).

_MINUTE = 60.0
UNKNOWN_SENDER = ""
"""Who sent what cannot be read: all of that counts as one sender's."""


@dataclass(slots=True)
class _Page:
    """The last minute of a sender's timetable in which anything is booked, and what is."""

    minute: int
    messages: int = 0
    size: int = 0


@dataclass(slots=True)
class SenderQuota:
    """`messages` and `size` (bytes) are what one sender may bring in a minute; 0: as much as it likes."""

    messages: int = 0
    size: int = 0
    _pages: dict[str, _Page] = field(default_factory=dict)
    _booked: dict[str, float] = field(default_factory=dict)
    """Names of files that wait -> the moment from which they are taken."""
    _minute: int = 0

    def turn(self, sender: str, name: str, size: int, now: float) -> float | None:
        """When the file `name` with a message of `sender` is to be taken, in seconds since 1970; None: now."""
        if not self.messages and not self.size:
            return None
        self._turn_page(int(now // _MINUTE))
        booked = self._booked.get(name)
        if booked is None:
            booked = self._book(sender.lower(), size)
        if booked > now:
            self._booked[name] = booked
            return booked
        self._booked.pop(name, None)
        return None

    def _book(self, sender: str, size: int) -> float:
        """A place in the first minute with room, in order; what is too large for any has a minute of its own."""
        page = self._pages.setdefault(sender, _Page(self._minute))
        full = self.messages and page.messages >= self.messages
        heavy = self.size and page.messages and page.size + size > self.size
        if full or heavy:
            page.minute, page.messages, page.size = page.minute + 1, 0, 0
        page.messages += 1
        page.size += size
        return page.minute * _MINUTE

    def _turn_page(self, minute: int) -> None:
        if minute == self._minute:
            return
        if minute < self._minute:  # the clock was set back: what was booked would be far away
            self._pages.clear()
            self._booked.clear()
        self._minute = minute
        self._pages = {sender: page for sender, page in self._pages.items() if page.minute >= minute}
        # a file that somebody took away again must not be remembered for ever
        self._booked = {name: at for name, at in self._booked.items() if at > (minute - 2) * _MINUTE}


# ---------------------------------------------------------------------------------------------------------------------
# From the inbox to the engine: each file that is ready is judged once, however often it is seen.

AT_ONCE = 500
_INCOMPLETE = frozenset({"unterminated", "empty", "length-mismatch"})
"""What a file that is still being written looks like: it is left for a while before it is judged."""
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """What one look at the inbox leaves to do: moments to look again (seconds since 1970), or at once."""

    moments: list[float]
    more: bool


@dataclass(slots=True)
class Arrivals:
    """The inbox of one workspace. `incomplete`: seconds that a file which looks unfinished is left alone."""

    engine: Engine
    intake: Intake
    inbox: Inbox
    incomplete: float
    quota: SenderQuota = field(default_factory=SenderQuota)
    require_directories: Callable[[], None] = lambda: None
    """Raises WorldError while judged mail could not be moved out of the inbox."""
    is_catching_up: bool = False
    """What lay here when the daemon started is not judged yet: among it may be what takes back the work that waits."""
    judged: int = 0
    """Files that have been judged so far, or read and put off."""
    _read_until: float = 0.0
    _is_behind: bool = True

    def take(self, now: float, *, can_file: bool) -> IntakeResult:
        """Judge what is ready; inside a batch. `now` is seconds since 1970. Raises WorldError.

        Nothing is judged while it cannot be filed: then the inbox is left as it is.
        """
        self._is_behind = True
        if not can_file:
            return IntakeResult([], more=False)
        self.require_directories()
        scan = self.inbox.scan(now, AT_ONCE)
        moments = [scan.look_again]
        arrived = ((arrival, _file(arrival)) for arrival in scan.arrivals)
        moments += [self._judge(arrival, file, now) for arrival, file in arrived if self._is_new(file)]
        for refusal in scan.refused:
            if self._is_new(file := _file(refusal)):
                self.intake.reject(file, refusal.error)
        self.judged += len(scan.arrivals) + len(scan.refused)
        self._read_until, self._is_behind = scan.read_until, scan.truncated
        self.is_catching_up = scan.truncated and not scan.read_until
        return IntakeResult([moment for moment in moments if moment is not None], scan.truncated)

    def judged_until(self) -> str | None:
        """All that came before that moment has been judged: ours, as text. None: all there is has been."""
        if not self._is_behind:
            return None
        return to_text(self._read_until) if self._read_until else ""

    def _is_new(self, file: InboxFile) -> bool:
        """Not judged already and only not moved yet, because a crash or an obstacle came between."""
        return not self.engine.store.messages.awaits_filing(file.name, file.stamp)

    def _judge(self, arrival: Arrival, file: InboxFile, now: float) -> float | None:
        """Let an arrival happen; or the moment at which one that looks unfinished is judged all the same."""
        parsed = self.intake.parse(file)
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
                # A bug of ours must not stop the other mail, nor meet the same file again after every restart.
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
    return InboxFile(name, found.raw, found.sha256, stamp.size, numbers | extra, in_place)
