"""`archive/DATE/INDEX.md`: a day's messages in a table, for less, git and Markdown viewers.

A projection of the database, written when the loop has time: lines are appended, without a sync, in the order in which
messages were filed and sent; one that was listed as sent and could not be delivered gets another. If a crash or a
power cut took lines of the latest day, it is written again at the next start.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

from mailboxd.core.sanitize import for_table
from mailboxd.errors import MessageError
from mailboxd.formats.mailbox.files import lstat, open_regular, read_up_to, replace, world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.mailbox.maildir import INDEX, day_in, read_message, require_day
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.host.clock import Clock
from mailboxd.ledger.messages import Listed
from mailboxd.ledger.store import Store

EVERY = 5.0
"""Least seconds between two appends."""
_AT_ONCE = 1_000
_LARGEST = 64 << 20
_LARGEST_MESSAGE = 1 << 20
_PLACES = ("archive", "rejected", "outbox")
_DECIDES = {"approval": "decision", "review": "verdict", "reply": "status"}
"""The header that holds the decision, by type."""
_WIDTHS = {"time": 8, "from": 12, "to": 12, "type": 8, "task": 24, "verdict": 9, "decision": 8}


def _line(cells: Iterable[str], file: str) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS.values(), strict=True))
    return f"| {' | '.join(padded)} | {file} |\n"


def _title(day: str) -> str:
    return f"# Messages of {day}\n\n"


def _is_ours(day: str, found: bytes) -> bool:
    """Whether it is an index: an earlier version let a message have its name."""
    return found.startswith(_title(day).encode())


_HEAD = (
    "Written by mailboxd as messages are filed and sent. Times are UTC.\n\n"
    + _line(_WIDTHS, "file")
    + _line(("-" * width for width in _WIDTHS.values()), "----")
)


@dataclass(slots=True)
class DailyIndex:
    store: Store
    ws: Workspace
    clock: Clock
    _covered: int | None = None
    """The last event whose messages are listed; None: this daemon has listed nothing yet."""
    _newest: int = 0
    _next: float = 0.0
    _unchecked: str = ""
    """A day that may lack lines; empty: none."""

    @property
    def due(self) -> float | None:
        """When there is something to list, on the monotonic clock; None: nothing."""
        if self._covered != self._newest:
            return self._next
        return 0.0 if self._unchecked else None

    def perform(self, newest: int, *, now: bool = False) -> None:
        """List what was filed and sent up to the event `newest`, if it is time to (or `now`). Raises WorldError."""
        self._newest = newest
        if self._covered is None:
            self._unchecked, self._covered = self.store.last_event_at()[:10], newest
            return
        mono = self.clock.monotonic()
        if self._covered != newest and (now or mono >= self._next):
            self._next = mono + EVERY
            self._list(newest, self._covered)
        elif self._unchecked and self._covered == newest:  # what is new is listed first: it does not count as missing
            self._repair(self._unchecked)
            self._unchecked = ""

    def _list(self, newest: int, after: int) -> None:
        listed, covered = self.store.messages.listed_after(after, _AT_ONCE)
        by_day: defaultdict[str, list[Listed]] = defaultdict(list)
        for one in listed:
            if day := day_in(one.path.rpartition("/")[0]):
                by_day[day].append(one)
        for day, ones in by_day.items():
            self._append(day, ones)
        self._covered = newest if covered is None else covered

    def _append(self, day: str, listed: Iterable[Listed]) -> None:
        text = "".join(map(self._entry, listed)).encode()
        with world_errors(f"write mailbox/archive/{day}/{INDEX}"), require_day(self.ws, f"archive/{day}") as fd:
            try:
                file = os.open(INDEX, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW, dir_fd=fd)
            except FileNotFoundError:
                self._repair(day)
                return
            try:
                if _is_ours(day, os.pread(file, len(_title(day)), 0)):
                    os.write(file, text)
            finally:
                os.close(file)

    def _repair(self, day: str) -> None:
        """Write the index of a day again if it lacks lines."""
        with world_errors(f"write mailbox/archive/{day}/{INDEX}"), require_day(self.ws, f"archive/{day}") as fd:
            found = b""
            if (file := open_regular(fd, INDEX)) is not None:
                try:
                    found = read_up_to(file, _LARGEST)
                finally:
                    os.close(file)
                if found and not _is_ours(day, found):
                    return
            elif lstat(fd, INDEX) is not None:
                return  # a link or the like
            listed = self.store.messages.listed_on(day, _PLACES)
            head = _title(day) + _HEAD
            if found.count(b"\n") != head.count("\n") + len(listed):
                replace(fd, INDEX, (head + "".join(map(self._entry, listed))).encode(), lambda: True)

    def _entry(self, one: Listed) -> str:
        place, _, rest = one.path.partition("/")
        target = rest.rpartition("/")[2] if place == "archive" else f"../../{one.path}"
        link = f"[{for_table(rest.rpartition('/')[2])}]({quote(target, safe='/~')})"
        told = (one.at[11:19], one.sender, one.receiver, one.type, one.task, one.verdict, self._decision(one))
        return _line(map(for_table, told), link)

    def _decision(self, one: Listed) -> str:
        """The decision in the message, or the outcome of the work that it reports."""
        if one.type not in _DECIDES or one.verdict == "rejected":
            return ""
        raw = self.store.messages.body(one.id) or read_message(self.ws, one.path, _LARGEST_MESSAGE)
        with suppress(MessageError):
            return str(getattr(parse_message(raw or b"", one.path).message, _DECIDES[one.type], ""))
        return ""
