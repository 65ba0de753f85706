"""How much one sender may bring in a minute. What is more waits in the inbox; nothing is refused for its number.

Every message gets a place in a timetable of whole minutes, its sender's own: one that finds this minute full is told
which minute is its. So a flood of 50,000 is read twice, not once a minute, and delays nobody but its sender. The
timetable is lost with the process, without harm: then the messages that still wait are given places anew.

A sender is who a message says it is from, and any user who can write to the inbox can say anything, so this protects
from peers that have run wild. From one that lies, signatures do (`signing.require`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

_MINUTE = 60.0
NOBODY = ""
"""Who sent what cannot be read: all of that counts as one sender's."""


@dataclass(slots=True)
class _Page:
    """The last minute of a sender's timetable in which anything is booked, and what is."""

    minute: int
    messages: int = 0
    size: int = 0


@dataclass(slots=True)
class Timetable:
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
