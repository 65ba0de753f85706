"""Times as text and as numbers: pure conversions, no clock (that is `mailboxd.host.clock`).

Every time in mailboxd is ISO-8601 UTC with milliseconds, `2026-11-21T02:07:53.120Z` (protocol section 6). All have
the same width, so they sort as text. Results are rounded to whole
milliseconds, so that a replay gives the same bytes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMAT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", re.ASCII)


def to_text(epoch: float) -> str:
    """The text of a time in seconds since 1970, rounded to the nearest millisecond.

    Raises ValueError outside the years 1 to 9999.
    """
    try:
        second, milliseconds = divmod(round(epoch * 1000), 1000)
        return f"{_second(second)}.{milliseconds:03}Z"
    except OverflowError:
        raise ValueError(f"{epoch} s since 1970 is outside the years 1 to 9999") from None


@lru_cache(maxsize=16)  # much happens within one second
def _second(epoch: int) -> str:
    # not strftime("%Y"): glibc does not pad years below 1000
    return (_EPOCH + timedelta(seconds=epoch)).replace(tzinfo=None).isoformat()


@lru_cache(maxsize=256)  # a batch has one time, which is parsed many times
def to_epoch(text: str) -> float:
    """Seconds since 1970 of a text as `to_text` writes it. Raises ValueError for any other."""
    if _FORMAT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a time like 2026-11-21T02:07:53.120Z")
    return (datetime.fromisoformat(text) - _EPOCH).total_seconds()


def moment(text: str, now: str) -> str:
    """A time for people, to the minute: `21 Nov 02:07 UTC`; in another year than `now` with the year."""
    year = "" if text[:4] == now[:4] else f" {text[:4]}"
    return f"{int(text[8:10])} {_MONTHS[int(text[5:7]) - 1]}{year} {text[11:16]} UTC"


def plus(text: str, seconds: float) -> str:
    """The time `seconds` after `text`, before it if negative. Raises ValueError as the functions above."""
    return to_text(to_epoch(text) + round(seconds, 3))
