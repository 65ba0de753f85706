"""A file without an id that an operator drops again: the same work as before, work of its own, or work that is held.

Such a file is known by its bytes alone. While the work that it made is open, and shortly after, a copy is a slip of the
hand, or the same file once more; later it means that the work is wanted again, as when cron copies it in each night.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from mailboxd.core.times import to_epoch

SAME_SECONDS = 600.0
"""How long after the end of the work a copy of its file is still the same work."""
AT_ONCE = 2
"""Returns within `LATELY` seconds of which each may be work of its own; of a further one a person is asked."""
LATELY = 3_600.0


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of the bytes of a file that has returned."""

    unfinished: bool = False
    """An earlier copy was taken and not moved out of the inbox yet: this may be that one."""
    put_back: bool = False
    """An earlier copy had the same modification time: a program that synchronizes folders may have put it back."""
    is_open: bool = False
    """The latest work that was made of them has not ended."""
    ended_at: str = ""
    """When it ended; empty while it is open."""
    returns: int = 0
    """How often they have returned within `LATELY` seconds, without this time."""


class Return(StrEnum):
    """What a file that has returned is; the values say why, after `this copy was not taken, because`."""

    UNFINISHED = "that copy was still being put away"
    PUT_BACK = "it is unchanged since then, by its modification time: a program that synchronizes may have put it back"
    OPEN = "that task had not ended then"
    JUST_ENDED = "that task had ended less than ten minutes before"
    NEW = "it is work of its own"
    HELD = "it is work of its own, and held"

    @property
    def is_same(self) -> bool:
        """Whether it is the same work, so that nothing is done."""
        return self not in (Return.NEW, Return.HELD)


def judge(before: Before, now: str) -> Return:
    """What a file is whose bytes made work before."""
    if before.is_open:
        return Return.OPEN
    if before.put_back:
        return Return.PUT_BACK
    if before.unfinished:
        return Return.UNFINISHED
    if abs(to_epoch(now) - to_epoch(before.ended_at)) < SAME_SECONDS:  # it may seem to end later: the clock was set
        return Return.JUST_ENDED
    return Return.HELD if before.returns >= AT_ONCE else Return.NEW


_NUMBERED = re.compile(r"-[0-9a-f]{8}-([0-9]{1,9})$")


def number_of(task_id: str) -> int:
    """The number of a task among those of one file: `export-0a1b2c3d` is the first, `export-0a1b2c3d-2` the second."""
    found = _NUMBERED.search(task_id)
    return 1 if found is None else int(found[1])


_HELD = "the same file has returned "


def why_held(returns: int) -> str:
    """Why work is on hold whose file has returned that often within an hour."""
    return f"{_HELD}{returns} times within an hour: what drops it may do so without end"


def is_held(held: str) -> bool:
    """Whether a task is on hold because its file returns too often."""
    return held.startswith(_HELD)
