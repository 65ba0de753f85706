"""Identifiers: a prefix that names the kind, and a ULID that sorts by time (protocol section 6).

A ULID is 48 bits of milliseconds and 80 random bits, written as 26 characters of Crockford's base 32. Ids from one
`Ids` are strictly increasing, also within a millisecond and when the clock is set back: then the previous id is
incremented.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from mailboxd.core.times import to_epoch, to_text

PREFIXES = ("tsk", "att", "trn", "rev", "art", "apr", "msg", "ord", "dbt", "rpt")
"""Task, attempt, turn, review, artifact, approval, message, held order, doubt, repetition."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_DIGITS = 26
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(5 * (_DIGITS - 2), -1, -10)
_ULID = re.compile(f"[{_ALPHABET}]{{{_DIGITS}}}")
_PYTHONS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
"""From these digits to those of `int`."""
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 40
_LAST = 253_402_300_800_000
"""Milliseconds from 1970 to the year 10,000, later than any time here."""


class Ids:
    """A source of ids. `random` returns n random bits; a simulation injects a seeded one."""

    def __init__(self, random: Callable[[int], int] = secrets.randbits) -> None:
        self._random = random
        self._latest = -1
        self._high, self._begins = -1, ""
        """The latest id without its last digits, as a number and as text."""

    def new(self, prefix: str, now: str) -> str:
        """A fresh id such as `tsk_01JD5W8Z3KQ4T6V9XA2B7C0DEF`, greater than all earlier ones.

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
        high = self._latest >> 10
        if high != self._high:  # ids of one moment differ in their last digits
            self._high, self._begins = high, _base32(self._latest)[:-2]
        return f"{prefix}_{self._begins}{_PAIRS[self._latest & 1023]}"


def readable(unique: str, *texts: str) -> str:
    """A task id for people: the first of these texts that has words, in ASCII, and a few `unique` characters."""
    return f"{next(filter(None, map(slug, texts)), 'task')}-{unique}"


def slug(text: str) -> str:
    """The words of a text as they stand in a readable id: `Write programme` -> `write-programme`; may be empty."""
    from anyascii import anyascii  # with what reads its tables; most processes name nothing

    return _NOT_IN_SLUG.sub("-", anyascii(text[:_LONGEST_SLUG]).lower())[:_LONGEST_SLUG].strip("-")


def earliest(prefix: str, at: str) -> str:
    """A lower bound for the ids of this kind that are made from this time on."""
    return f"{prefix}_{_base32(max(round(to_epoch(at) * 1000), 0) << _RANDOM_BITS)}"


def time_of(name: str) -> str | None:
    """The time in an id; None if it is not one of mailboxd's ids."""
    prefix, _, digits = name.partition("_")
    if prefix not in PREFIXES or not _ULID.fullmatch(digits):
        return None
    milliseconds = int(digits.translate(_PYTHONS), 32) >> _RANDOM_BITS
    return to_text(milliseconds / 1000) if milliseconds < _LAST else None


def _base32(number: int) -> str:
    """Two digits at a time, for speed."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


# Ids of traces and spans, derived from the ids of tasks and attempts.
#
# One trace follows a piece of work from its file through every child and peer to the answer. Its id is that of the
# file's `traceparent` header (W3C Trace Context) or derived from the root task. Messages to a peer carry the span of
# the waiting attempt, so that the peer's spans are below it.

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = "01"


@dataclass(frozen=True, slots=True)
class Parent:
    """A parsed `traceparent`: trace and span as lower-case hex, and the flags unchanged."""

    trace: str
    span: str
    flags: str = _SAMPLED

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{self.flags}"


def parse(header: str | None) -> Parent | None:
    """Parse the header; None without one, and for one that the standard ignores (all zeros, version ff)."""
    found = _HEADER.fullmatch(header or "")
    if found is None or found[1] == "ff" or not int(found[2], 16) or not int(found[3], 16):
        return None
    return Parent(found[2], found[3], found[4])


def trace_of(root: str, header: str | None) -> str:
    """The trace of the tree of the task `root` (its id), whose message carried `header`."""
    return _above(root, header).trace


@lru_cache(maxsize=256)  # the tasks of one tree follow each other
def _above(root: str, header: str | None) -> Parent:
    return parse(header) or Parent(_digest("trace", root, 32), "")


def span_of(*names: str) -> str:
    """The span of a task, an attempt, a turn or a message, from its ids."""
    return _digest("span", "\n".join(names), 16)


def passed_on(root: str, header: str | None, attempt: str) -> str:
    """The `traceparent` of a message that dispatches an attempt to a peer."""
    above = _above(root, header)
    return str(Parent(above.trace, span_of(attempt), above.flags))


def _digest(kind: str, name: str, length: int) -> str:
    # the standard forbids all zeros, which a hash will not produce
    return hashlib.sha256(f"mailboxd {kind}\n{name}".encode()).hexdigest()[:length]
