"""Kills a child of ours at every line of code that it runs, without cleanup and `finally`, as kill -9 does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from mailboxd.workspace import files, filing, mail, taskfiles

_TRACED = frozenset(module.__file__ for module in (filing, files, mail, taskfiles))
_KILLED = 77


def killed_at(line: int, action: Callable[[], object]) -> bool:
    """Runs `action` in a child that dies before the `line`-th line inside the workspace modules; whether it did."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _arm(line)
            action()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, _KILLED}, f"the child failed by itself at line {line}: exit {code}"
    return code == _KILLED


def every_line(action: Callable[[], object], prepare: Callable[[], object]) -> Iterator[int]:
    """Prepares and kills `action` at each line in turn; yields after each kill, until a run gets through."""
    for line in range(1, 10_000):
        prepare()
        if not killed_at(line, action):
            assert line > 10, "nothing was traced"
            return
        yield line


def _arm(line: int) -> None:
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in _TRACED:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os._exit(_KILLED)
        return trace

    sys.settrace(trace)
