"""Work that repeats: when its runs are due, and which of them are made up for when they could not start in time.

A repetition is one item with a next time. Each run is an ordinary task, made in the transaction that moves the next
time, so that a crash neither loses a run nor makes it twice. Which times there are is asked of a `Times`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mailboxd.core.times import plus, to_epoch

GRACE_SECONDS = 300.0
"""A run that starts so late is not missed: a daemon may be busy, or restarting."""
MOST_MADE_UP = 100
"""Missed runs that are made up for, the latest ones."""
_COUNTED = 1_000
"""Times that are counted at once: one of a line of cron takes 0.2 ms to find, and the daemon waits for it."""


class Missed(StrEnum):
    """What becomes of the runs that could not start at their time."""

    ONCE = "once"
    ALL = "all"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Repetition:
    """One row of `repetitions`."""

    id: str
    name: str
    """By which people call it: the id of its message."""
    sender: str
    title: str
    said: str
    """How it is repeated, as it was written."""
    rule: str
    """The same, as `protocol.repeats` reads it."""
    zone: str
    """The zone of its times; empty = the machine's."""
    anchor: str
    """From when intervals count."""
    text: str
    """The message of each run."""
    digest: str
    """Of the work and of how it is repeated: a file with another one is no repeat of its message."""
    created_at: str
    next_at: str
    missed: Missed = Missed.ONCE
    overlap: bool = False
    """A run may start while an earlier one is open."""
    runs: int = 0
    missed_runs: int = 0
    """How many times had no run of their own; `counted` has it in words."""
    paused: str = ""
    """Why it is paused; empty = it is not."""
    ended: str = ""
    """Why there are no more runs; empty = it goes on."""
    problem: str = ""
    """Why the latest run could not be made."""
    last_at: str | None = None
    """The time of the latest run."""
    counts: bool = False
    """Whether its runs count towards the limit of an hour: nothing proves that a person asked for it."""

    @property
    def is_live(self) -> bool:
        return not self.ended and not self.paused


class Times(Protocol):
    """The times of a rule."""

    def after(self, at: str) -> str:
        """The first one after `at`."""
        ...

    def before(self, at: str) -> str:
        """The last one before `at`."""
        ...


@dataclass(frozen=True, slots=True)
class Due:
    """The times whose runs begin now, how many times are passed over, and when something is due next."""

    runs: tuple[str, ...]
    passed_over: int
    next_at: str


def due(one: Repetition, now: str, times: Times, *, is_open: bool) -> Due | None:
    """What a repetition has to do now; None if nothing is due, or if an open run stands before the next.

    A run that waits for an earlier one to end is late, and is treated as one that was missed.
    """
    if not one.is_live or one.next_at > now or (is_open and not one.overlap):
        return None
    late = _late(one.next_at, now, times)
    count, follows = _count(one.next_at, now, times), times.after(now)
    if one.missed is Missed.SKIP and to_epoch(now) - to_epoch(late[-1]) > GRACE_SECONDS:
        return Due((), count, follows)
    if one.missed is not Missed.ALL:
        return Due(late[-1:], count - 1, follows)
    if one.overlap:
        return Due(late, count - len(late), follows)
    return Due(late[:1], count - len(late), late[1] if len(late) > 1 else follows)


def _late(first: str, now: str, times: Times) -> tuple[str, ...]:
    """The times from `first` until now, oldest first; of many the latest."""
    found = [times.before(plus(now, 0.001))]
    while found[-1] > first and len(found) < MOST_MADE_UP:
        found.append(times.before(found[-1]))
    return tuple(reversed([max(at, first) for at in found])) if found[0] >= first else (first,)


def _count(first: str, now: str, times: Times) -> int:
    """How many times there are from `first` until now; of very many only so many are counted."""
    count, at = 0, first
    while at <= now and count < _COUNTED:
        count, at = count + 1, times.after(at)
    return count


def told_of(count: int) -> str:
    """How many runs were passed over, in words; empty for none."""
    if count <= 0:
        return ""
    return f"{counted(count)} missed run{'s' * (count > 1)} not made up for"


def counted(missed: int) -> str:
    """A number of missed runs; `at least` so many if some may have been left uncounted."""
    return str(missed) if missed < _COUNTED - MOST_MADE_UP else f"at least {missed}"


def runs_of(name: str, count: int) -> str:
    """The id of the run after so many."""
    return f"{name}-{count + 1}"


def upcoming(one: Repetition, times: Times, count: int) -> Sequence[str]:
    """The next times of a repetition, `count` at most."""
    found = [one.next_at]
    while len(found) < count:
        found.append(times.after(found[-1]))
    return found
