"""Identifiers: a prefix that names the kind, and a ULID that sorts by time (protocol section 6).

A ULID is 48 bits of milliseconds and 80 random bits, written as 26 characters of Crockford's base 32. Ids from one
`Ids` are strictly increasing, also within a millisecond and when the clock is set back: the random half of the one
before is counted up by one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from mailboxd.core.times import to_epoch, to_text

PREFIXES = ("tsk", "att", "trn", "rev", "art", "apr", "msg")
"""Task, attempt, turn, review, artifact, approval, message."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_DIGITS = 26
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(5 * (_DIGITS - 2), -1, -10)
_LAST = 253_402_300_800_000
"""Milliseconds from 1970 to the year 10,000, which no time of ours can say."""


class Ids:
    """A source of ids. `random` gives n random bits; inject a seeded one and a simulation repeats itself."""

    def __init__(self, random: Callable[[int], int] = secrets.randbits) -> None:
        self._random = random
        self._latest = -1

    def new(self, prefix: str, now: str) -> str:
        """A fresh id such as `tsk_01JD5W8Z3KQ4T6V9XA2B7C0DEF`, later than every id given before.

        `prefix` is one of PREFIXES and `now` a time as `mailboxd.core.times` writes it, not before 1970;
        ValueError otherwise.
        """
        if prefix not in PREFIXES:
            raise ValueError(f"{prefix!r} is not one of {', '.join(PREFIXES)}")
        milliseconds = round(to_epoch(now) * 1000)
        if milliseconds < 0:
            raise ValueError(f"{now} is before 1970")
        if milliseconds <= self._latest >> _RANDOM_BITS:
            self._latest += 1
        else:
            self._latest = milliseconds << _RANDOM_BITS | self._random(_RANDOM_BITS)
        return f"{prefix}_{_base32(self._latest)}"


def earliest(prefix: str, at: str) -> str:
    """What no id of this kind that was made after that moment comes before."""
    return f"{prefix}_{_base32(max(round(to_epoch(at) * 1000), 0) << _RANDOM_BITS)}"


def time_of(name: str) -> str | None:
    """The moment at which an id was made, as it says itself; None for what is no id of ours."""
    prefix, _, digits = name.partition("_")
    if prefix not in PREFIXES or len(digits) != _DIGITS or not set(digits) <= set(_ALPHABET):
        return None
    number = 0
    for digit in digits:
        number = number << 5 | _ALPHABET.index(digit)
    milliseconds = number >> _RANDOM_BITS
    return to_text(milliseconds / 1000) if milliseconds < _LAST else None


def _base32(number: int) -> str:
    """Two digits at a time: an id is made for each event that has something new."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
