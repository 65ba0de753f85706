"""Kills a child of ours before every system call that changes something, without cleanup, as kill -9 does.

Between two such calls the disk stays the same, so these are all the crashes that there are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_CHANGING = frozenset({"link", "rename", "unlink", "mkdir", "write", "fsync"})
_KILLED = 77


def killed_at(point: int, action: Callable[[], object]) -> bool:
    """Runs `action` in a child that dies before its `point`-th change, counted from 1; whether it did."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _arm(point)
            action()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, _KILLED}, f"the child failed by itself at point {point}: exit {code}"
    return code == _KILLED


def every_point(action: Callable[[], object], prepare: Callable[[], object]) -> Iterator[int]:
    """Prepares, and kills `action` at each point in turn; yields after each kill, until a run gets through."""
    for point in range(1, 1_000):
        prepare()
        if not killed_at(point, action):
            assert point > 3, "no change was noticed"
            return
        yield point


def _arm(point: int) -> None:
    left = point

    def profile(frame: FrameType, event: str, called: Any) -> None:
        nonlocal left
        # renameat2 is called through ctypes, which no profiler sees: before and after the function that does it
        changes = event == "c_call" and called.__module__ == "posix" and called.__name__ in _CHANGING
        moves = event in {"call", "return"} and frame.f_code.co_name == "move"
        if changes or moves:
            left -= 1
            if left == 0:
                os._exit(_KILLED)

    sys.setprofile(profile)
