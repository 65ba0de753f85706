"""When people are told: quiet hours, and notices that are told together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo

from mailboxd.core.local_time import instant, local_of
from mailboxd.core.sanitize import storable_text
from mailboxd.core.times import plus

GATHERED = 3.0
"""Seconds without another notice of its kind after which one is sent: what happens at once is told at once."""
APART = 60.0
"""Seconds between two messages with notices of one kind, and the longest time that one waits for others."""
_NAMED = 5
_WINDOW = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9]) ?(?:-|–|to) ?([01]?[0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """The part of each day, in local time, in which people are not told; it may go past midnight."""

    begins: time
    ends: time

    def until(self, at: str, zone: tzinfo) -> str | None:
        """When the quiet hours end that `at` falls into; None if it falls into none."""
        local = local_of(at, zone)
        now = local.time().replace(tzinfo=None)
        if self.begins < self.ends:
            inside, day = self.begins <= now < self.ends, local.date()
        else:
            inside = now >= self.begins or now < self.ends
            day = local.date() + timedelta(days=int(now >= self.begins))
        if not inside:
            return None
        local_end = datetime.combine(day, self.ends)
        end = instant(local_end, zone)  # in the hour that is repeated, the first end may be over
        return end if end > at else instant(local_end, zone, second=True)


def read_quiet(text: str) -> QuietHours:
    """The quiet hours that `22:00-07:00` means. Raises ValueError."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    first, last = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    if first == last:
        raise ValueError(text)
    return QuietHours(first, last)


def due(oldest: str, newest: str, last_sent: str | None) -> str:
    """When notices of one kind are sent together, which were ordered from `oldest` to `newest`.

    `last_sent`: when the message before with notices of that kind was sent.
    """
    calm = plus(newest, GATHERED)
    apart = calm if last_sent is None else max(calm, plus(last_sent, APART))
    return min(apart, plus(oldest, APART))


def named(names: Sequence[str]) -> str:
    """The first few of these names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


WORDS = 2_000
"""Characters of what was sent that its event has; of all of it it has the SHA-256."""


def words_on_record(words: str) -> dict[str, str]:
    """What was said to people, for the event about it: the hash of all of it, and its beginning."""
    kept = words if len(words) <= WORDS else f"{words[: WORDS - 1]}…"
    return {"sha256": hashlib.sha256(as_sent(words)).hexdigest(), "words": storable_text(kept)}


def as_sent(words: str) -> bytes:
    """The bytes of what is sent to people; a surrogate, which stands for no character, is written as an escape."""
    return words.encode("utf-8", "backslashreplace")
